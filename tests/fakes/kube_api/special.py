"""Subresources and kinds that are no plain objects: binding, eviction, reviews, logs."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from tests.fakes.kube_api import deletes, rbac
from tests.fakes.kube_api.kernel import Call, Kernel
from tests.fakes.kube_api.status import Obj, bad_request, conflict

Logs = dict[tuple[str, str, str], list[str]]
"""Lines by the pod's namespace and name and the container's name."""
_BEAT_S = 0.2


def bind(kernel: Kernel, call: Call) -> Obj:
    """Set a pod's node, as a scheduler does."""
    with kernel.store.lock:
        pod = kernel.must(call.resource, call.namespace, call.name)
        if pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]:
            node = pod["spec"].get("nodeName", "")
            why = f"pod {call.name} is already assigned to node {node!r} or is being deleted"
            raise conflict("", "pods", call.name, why)
        pod["spec"]["nodeName"] = call.body["target"]["name"]
        conditions = [
            one for one in pod["status"].get("conditions") or () if one["type"] != "PodScheduled"
        ]
        conditions.append(
            {
                "type": "PodScheduled",
                "status": "True",
                "lastProbeTime": None,
                "lastTransitionTime": kernel.now(),
            }
        )
        pod["status"]["conditions"] = conditions
        kernel.keep(call.resource, pod)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def evict(kernel: Kernel, call: Call) -> Obj:
    """Delete a pod through the eviction API: it is marked as disrupted first."""
    with kernel.store.lock:
        pod = kernel.must(call.resource, call.namespace, call.name)
        conditions = pod["status"].setdefault("conditions", [])
        conditions.append(
            {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "EvictionByEvictionAPI",
                "lastTransitionTime": kernel.now(),
                "message": "Eviction API: evicting",
            }
        )
        kernel.keep(call.resource, pod)
        options = (call.body or {}).get("deleteOptions") or {}
        deletes.delete(kernel, replace(call, verb="delete", subresource="", body=options))
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def review(kernel: Kernel, call: Call) -> Obj:
    """Answer a SelfSubjectAccessReview."""
    body = call.body if isinstance(call.body, dict) else {}
    asked = (body.get("spec") or {}).get("resourceAttributes")
    if not asked:
        raise bad_request("spec.resourceAttributes is required here")
    resource = asked.get("resource", "")
    if asked.get("subresource"):
        resource += f"/{asked['subresource']}"
    deed = rbac.Deed(
        asked.get("verb", ""),
        asked.get("group", ""),
        resource,
        asked.get("namespace", ""),
        asked.get("name", ""),
    )
    return {
        **body,
        "kind": call.resource.kind,
        "apiVersion": call.resource.api_version,
        "metadata": {},
        "status": {"allowed": rbac.may(kernel, call.user, deed)},
    }


def log(kernel: Kernel, call: Call, logs: Logs, is_over: Callable[[], bool]) -> Iterator[str]:
    """Return a container's lines; with ``follow`` until it has ended."""
    pod = kernel.must(call.resource, call.namespace, call.name)
    key = (call.namespace, call.name, _container(call, pod))
    if not _has_begun(pod):
        told = f'container "{key[2]}" in pod "{call.name}" is waiting to start: ContainerCreating'
        raise bad_request(told)
    tail = call.query.get("tailLines")
    lines = list(logs.get(key, ()))
    first = lines if tail is None else lines[max(len(lines) - int(tail), 0) :]
    if call.query.get("follow") not in ("true", "1"):
        return iter(first)
    return itertools.chain(first, _follow(kernel, call, logs, key, len(lines), is_over))


def _follow(
    kernel: Kernel,
    call: Call,
    logs: Logs,
    key: tuple[str, str, str],
    sent: int,
    is_over: Callable[[], bool],
) -> Iterator[str]:
    while not is_over():
        pod = kernel.live(call.resource, call.namespace, call.name)
        more = list(logs.get(key, ()))[sent:]
        sent += len(more)
        yield from more
        if not more and (pod is None or _has_ended(pod)):
            return
        if not more:
            kernel.store.wait_until(partial(_is_longer, logs, key, sent), _BEAT_S)


def _is_longer(logs: Logs, key: tuple[str, str, str], than: int) -> bool:
    return len(logs.get(key, ())) > than


def _container(call: Call, pod: Obj) -> str:
    names = [one["name"] for one in pod["spec"]["containers"]]
    asked = call.query.get("container")
    if asked is None and len(names) > 1:
        raise bad_request(
            f"a container name must be specified for pod {call.name}, choose one of: "
            f"[{' '.join(names)}]"
        )
    if asked is not None and asked not in names:
        raise bad_request(f"container {asked} is not valid for pod {call.name}")
    return asked or str(names[0])


def _has_begun(pod: Obj) -> bool:
    return pod.get("status", {}).get("phase") in ("Running", "Succeeded", "Failed")


def _has_ended(pod: Obj) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
