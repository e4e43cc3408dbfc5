"""What the driver does at a cluster: hands in, looks for what is missed, deletes, fetches logs."""

import contextlib
from collections.abc import Sequence

from gridloom.base.errors import SiteError
from gridloom.model.reason import Reason, Why
from gridloom.sites.kube.api import EVENTS, Api, AwayError, RefusedError, Resource, resource_of
from gridloom.sites.kube.labels import PLANE_LABEL, SITE_LABELS
from gridloom.sites.kube.parse_runs import read_run
from gridloom.sites.kube.reading import said
from gridloom.sites.kube.render import owner_patch
from gridloom.sites.kube.render_pod import Manifest
from gridloom.sites.kube.state import KubeGang
from gridloom.sites.tasks import unwritable

LOG_LINES = 40

_CONFLICT, _FORBIDDEN, _MISSING = 409, 403, 404
_OURS = (*SITE_LABELS, PLANE_LABEL)


def hand_in(api: Api, gang: KubeGang) -> None:
    """Hand a gang to its cluster, unless the cluster has it: then take that one.

    Nothing is ever applied twice: Kueue, which starts the job, owns that by then.

    Raises:
        AwayError: The cluster does not answer; it may have taken the gang.
    """
    made: list[Manifest] = []
    try:
        *others, main = gang.manifests()
        found = _found(api, main) if gang.may_be_placed else None
        if found is None and gang.stopped:
            gang.unmark()
            return
        gang.mark()
        if found is None:
            made += [api.apply(one) for one in others]
            found = _applied(api, main)
            made.append(found)
        _own(api, found, others)
        gang.place(found["metadata"]["uid"])
    except AwayError:
        raise
    except (OSError, SiteError) as error:
        gang.refusal = refusal(error) if isinstance(error, SiteError) else unwritable(error)
        for one in reversed(made):
            api.delete(resource_of(one), one["metadata"]["name"], one["metadata"]["uid"])


def is_gone(api: Api, gang: KubeGang, main: Resource) -> bool:
    """Return whether a job that is not among those watched is gone."""
    assert gang.placed is not None
    found = api.get(main, gang.seen.name)
    return found is None or read_run(found).uid != gang.placed.uid


def delete(api: Api, gang: KubeGang, main: Resource) -> None:
    """Take a gang out of its cluster; its pods have their grace."""
    assert gang.placed is not None
    api.delete(main, gang.seen.name, gang.placed.uid)
    gang.is_deleted = True


def fetch_logs(api: Api, gang: KubeGang, indexes: Sequence[int]) -> None:
    """Fetch what pods have printed last that ended without a word."""
    for index in indexes:
        pod = gang.seen.pod(index)
        try:
            gang.logs[index] = api.log(pod.name, LOG_LINES) if pod is not None else ""
        except RefusedError:  # it is gone, or nothing of it ever ran
            gang.logs[index] = ""


def fetch_warning(api: Api, gang: KubeGang, about: str) -> None:
    """Fetch what the cluster warned of last about a job or a pod of it.

    Some reasons stand there only, as why no pod can be made, or a volume not be mounted.
    """
    try:
        found, _ = api.list(EVENTS, "", f"involvedObject.name={about},type=Warning")
    except RefusedError:  # without the right the reason stays unknown
        found = []
    latest = max(found, key=lambda one: str(one.get("lastTimestamp")), default={})
    gang.warning = said(str(latest.get("reason", "")), str(latest.get("message", "")))


def refusal(error: SiteError) -> Reason:
    """Return why a cluster does not take a gang."""
    remedy = "`kubernetes:` of the site in the grid file says how jobs are handed in"
    code = error.code if isinstance(error, RefusedError) else 0
    if code == _FORBIDDEN:
        remedy = "`gridloom site manifest kube` prints the rights that gridloom's account needs"
    elif code == _MISSING:
        remedy = "make the namespace, and install what `workload` of the site asks for"
    return Reason(
        code=Why.REFUSED,
        sentence=f"the task cannot be started: Kubernetes says: {error}",
        remedy=remedy,
    )


def _own(api: Api, main: Manifest, others: Sequence[Manifest]) -> None:
    """Let the other objects go when the job goes."""
    for one in others:
        change = owner_patch(main, main["metadata"]["uid"])
        with contextlib.suppress(RefusedError):  # they only stay longer
            api.merge(resource_of(one), one["metadata"]["name"], change)


def _applied(api: Api, main: Manifest) -> Manifest:
    try:
        return api.apply(main)
    except RefusedError as error:
        found = _found(api, main) if error.code == _CONFLICT else None
        if found is None:
            raise
        return found


def _found(api: Api, main: Manifest) -> Manifest | None:
    """Return the job if the cluster has it.

    Raises:
        RefusedError: It has another one of that name.
    """
    name = main["metadata"]["name"]
    found = api.get(resource_of(main), name)
    if found is None:
        return None
    wanted, labels = main["metadata"]["labels"], found["metadata"].get("labels") or {}
    if any(labels.get(label) != wanted.get(label) for label in _OURS):
        raise RefusedError(_CONFLICT, f"there is another {main['kind']} {name}")
    return found
