"""Get, list and watch."""

import base64
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.fakes.kube_api.kernel import Call, Kernel
from tests.fakes.kube_api.resources import convert
from tests.fakes.kube_api.selectors import Matcher, field_matcher, label_matcher
from tests.fakes.kube_api.status import ApiError, Obj, bad_request, copied, expired
from tests.fakes.kube_api.store import Change, Place

_END = "k8s.io/initial-events-end"
_BEAT_S = 0.5
"""How often a waiting watch looks whether it should end."""


def get(kernel: Kernel, call: Call) -> Obj:
    """Return one object."""
    return kernel.must(call.resource, call.namespace, call.name)


def list_(kernel: Kernel, call: Call) -> Obj:
    """Return a list, in pages where ``limit`` says so; later pages show the same version."""
    store, resource = kernel.store, call.resource
    fits = _matcher(call)
    with store.lock:
        version, start = _from_where(kernel, call)
        objects = store.at(resource.key, version)
        found = [
            (place, convert(objects[place], resource))
            for place in sorted(objects)
            if place > start and call.namespace in ("", place[0])
        ]
        found = [(place, one) for place, one in found if fits(one)]
    limit = int(call.query.get("limit") or 0)
    meta: Obj = {"resourceVersion": str(version)}
    if limit and len(found) > limit:
        meta["continue"] = _token(version, found[limit - 1][0])
        meta["remainingItemCount"] = len(found) - limit
        found = found[:limit]
    items = [copied(one) for _, one in found]
    if not resource.custom:  # Go's typed lists do not repeat in each item what the list says
        items = [{k: v for k, v in one.items() if k not in ("kind", "apiVersion")} for one in items]
    return {
        "kind": f"{resource.kind}List",
        "apiVersion": resource.api_version,
        "metadata": meta,
        "items": items,
    }


def _from_where(kernel: Kernel, call: Call) -> tuple[int, Place]:
    present = kernel.store.version
    asked = call.query.get("resourceVersion", "")
    match = call.query.get("resourceVersionMatch", "")
    if token := call.query.get("continue"):
        version, start = _untoken(token)
        try:
            kernel.store.at(call.resource.key, version)
        except ApiError as error:
            gone = expired(
                "The provided continue parameter is too old to display a consistent "
                "list result. You can start a new list without the continue parameter."
            )
            gone.details = {"causes": [], "continue": _token(present, start)}
            raise gone from error
        return version, start
    if match and not asked:
        raise bad_request("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if asked and not asked.isdigit():
        raise bad_request(f'invalid resource version "{asked}": must be a number')
    if asked and int(asked) > present:
        details = {
            "causes": [
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            ],
            "retryAfterSeconds": 1,
        }
        raise ApiError(
            504,
            "Timeout",
            f"Timeout: Too large resource version: {asked}, current: {present}",
            details=details,
        )
    return (int(asked) if match == "Exact" else present), ("", "")


def _token(version: int, start: Place) -> str:
    return base64.urlsafe_b64encode(json.dumps([version, *start]).encode()).decode()


def _untoken(token: str) -> tuple[int, Place]:
    try:
        version, namespace, name = json.loads(base64.urlsafe_b64decode(token))
    except ValueError as error:
        raise bad_request("continue key is not valid") from error
    return int(version), (namespace, name)


def _matcher(call: Call) -> Matcher:
    by_label = label_matcher(call.query.get("labelSelector", ""))
    fields = call.query.get("fieldSelector", "")
    by_field = field_matcher(fields, call.resource.plural, custom=call.resource.custom)
    return lambda obj: by_label(obj) and by_field(obj)


@dataclass(frozen=True)
class WatchSettings:
    """How watches behave.

    Attributes:
        bookmark_s: Seconds between bookmarks, for those who allow them.
        longest_s: A watch ends after this, or after ``timeoutSeconds``.
    """

    bookmark_s: float = 60.0
    longest_s: float = 1800.0


def watch(
    kernel: Kernel, call: Call, settings: WatchSettings, is_over: Callable[[], bool]
) -> Iterator[Obj]:
    """Return watch events until the time is over; an ERROR event where the version is too old."""
    fits = _matcher(call)
    asked = call.query.get("resourceVersion", "")
    if asked and not asked.isdigit():
        raise bad_request(f'invalid resource version "{asked}": must be a number')
    wants_initial = call.query.get("sendInitialEvents") in ("true", "1")
    if wants_initial and call.query.get("resourceVersionMatch") != "NotOlderThan":
        raise bad_request("sendInitialEvents requires resourceVersionMatch=NotOlderThan")
    longest_s = float(call.query.get("timeoutSeconds") or settings.longest_s)
    with kernel.store.lock:
        version = kernel.store.version
        is_from_now = wants_initial or asked in ("", "0")
        first = _initial(kernel, call, fits) if is_from_now else []
    if not is_from_now:
        version = int(asked)
    if wants_initial and _allows_bookmarks(call):
        first.append(_bookmark(call, version, {_END: "true"}))
    until_s = kernel.clock.monotonic_s() + min(longest_s, settings.longest_s)
    following = _follow(kernel, call, settings, version, until_s=until_s, is_over=is_over)
    return itertools.chain(first, following)


def _allows_bookmarks(call: Call) -> bool:
    return call.query.get("allowWatchBookmarks") in ("true", "1")


def _follow(
    kernel: Kernel,
    call: Call,
    settings: WatchSettings,
    version: int,
    *,
    until_s: float,
    is_over: Callable[[], bool],
) -> Iterator[Obj]:
    fits, clock = _matcher(call), kernel.clock
    next_s = clock.monotonic_s() + settings.bookmark_s
    while not is_over() and clock.monotonic_s() < until_s:
        try:
            with kernel.store.lock:
                changes = kernel.store.since(version, call.resource.key)
                upto = kernel.store.version
        except ApiError as error:
            yield {"type": "ERROR", "object": error.body()}
            return
        for change in changes:
            event = _event(call, change, fits)
            if event is not None:
                yield event
        version = upto
        if _allows_bookmarks(call) and clock.monotonic_s() >= next_s:
            yield _bookmark(call, version)
            next_s = clock.monotonic_s() + settings.bookmark_s
        left_s = min(until_s - clock.monotonic_s(), _BEAT_S, settings.bookmark_s)
        _wait(kernel, version, max(left_s, 0.0), is_over)
    if _allows_bookmarks(call) and not is_over():
        yield _bookmark(call, version)


def _wait(kernel: Kernel, seen: int, longest_s: float, is_over: Callable[[], bool]) -> None:
    kernel.store.wait_until(lambda: kernel.store.version > seen or is_over(), longest_s)


def _initial(kernel: Kernel, call: Call, fits: Matcher) -> list[Obj]:
    found = [
        convert(one, call.resource) for one in kernel.store.all(call.resource.key, call.namespace)
    ]
    return [{"type": "ADDED", "object": one} for one in found if fits(one)]


def _bookmark(call: Call, version: int, annotations: dict[str, str] | None = None) -> Obj:
    meta: Obj = {"resourceVersion": str(version), "creationTimestamp": None}
    if annotations:
        meta["annotations"] = annotations
    kind, api_version = call.resource.kind, call.resource.api_version
    return {
        "type": "BOOKMARK",
        "object": {"kind": kind, "apiVersion": api_version, "metadata": meta},
    }


def _event(call: Call, change: Change, fits: Matcher) -> Obj | None:
    if call.namespace not in ("", change.place[0]):
        return None
    new = None if change.new is None else convert(change.new, call.resource)
    old = None if change.old is None else convert(change.old, call.resource)
    is_in, was_in = new is not None and fits(new), old is not None and fits(old)
    if is_in:
        return {"type": "MODIFIED" if was_in else "ADDED", "object": new}
    if not was_in or old is None:
        return None
    # What leaves the selection is shown as it was, at the version of the change
    last = new if new is not None else old
    meta = {**last["metadata"], "resourceVersion": str(change.version)}
    return {"type": "DELETED", "object": {**last, "metadata": meta}}
