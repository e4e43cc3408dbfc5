"""Asks a cluster all that a look at a site needs: only questions, nothing is changed."""

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from msgspec.structs import replace

from gridloom.base.clock import Clock
from gridloom.base.errors import InputError, SiteError
from gridloom.model.inventory import KubeAccess, Site
from gridloom.sites.kube.api import Questions, RefusedError
from gridloom.sites.kube.facts import Facts
from gridloom.sites.kube.gang import FORMS, pods
from gridloom.sites.kube.inventory import first_kind, label_values, selected, tolerations_of
from gridloom.sites.kube.parse_kueue import (
    ClusterQueue,
    LocalQueue,
    read_cluster_queue,
    read_local_queue,
)
from gridloom.sites.kube.parse_nodes import read_nodes
from gridloom.sites.kube.reading import items
from gridloom.sites.kube.render import manifests
from gridloom.sites.kube.render_pod import Manifest
from gridloom.sites.kube.role import Access, role_manifests
from gridloom.wire.agent import TaskRef

NODES_PATH = "/api/v1/nodes"
_MISSING = 404
_KUEUE = ("v1beta2", "v1beta1")
"""Versions of Kueue's API, the newest first."""


def gather(site: Site, api: Questions, runs: PurePath, clock: Clock) -> Facts:
    """Return what can be found out about the cluster of a site; of one that is away, only that.

    Args:
        site: As the grid file has it.
        api: How its cluster is asked.
        runs: Directory of all run directories.
        clock: Ours.
    """
    access = site.kubernetes
    assert access is not None  # the grid file was checked
    try:
        before_s = clock.now_s()
        version = api.ask("/version")
        after_s = clock.now_s()
        known = Facts(
            release=str(version.body.get("gitVersion", "")),
            told_s=version.told_s,
            asked_s=(before_s, after_s),
            denied=tuple(_denied(api, access)),
        )
        if (nodes := _allowed(api, NODES_PATH)) is not None:
            ours = {"items": selected(nodes, access)}
            known = replace(
                known,
                nodes=read_nodes(ours, (), tolerations_of(access)),
                labels={name: label_values(nodes, name) for name in access.node_selector},
            )
        known = replace(
            known,
            missing_claims=tuple(_missing_claims(api, access)),
        )
        if access.queue:
            known = _with_queues(known, api, access)
        return _tried(known, site, access, api, runs)
    except SiteError as error:
        return Facts(trouble=str(error))


def _allowed(api: Questions, path: str) -> Manifest | None:
    """Return what stands at a path; nothing if it is not for us, or not there."""
    try:
        return api.ask(path).body
    except RefusedError:
        return None


def _denied(api: Questions, access: KubeAccess) -> Iterator[str]:
    """Yield what our role would let us do, and the account may not."""
    role = Access(
        namespace=access.namespace, forms=(FORMS[access.workload],), kueue=bool(access.queue)
    )
    for one in role_manifests(role):
        where = access.namespace if one["kind"] == "Role" else ""
        rules = one.get("rules", ())
        found = [said for rule in rules for said in _denied_by(api, rule, where)]
        # Of a namespace that is another's nothing at all is ours
        if (
            where
            and all(missing == asked for _, missing, asked in found)
            and len(found) == sum(len(rule["resources"]) for rule in rules)
        ):
            yield f"do anything of what is needed in {where}"
        else:
            yield from (said for said, _, _ in found)


def _denied_by(
    api: Questions, rule: dict[str, Any], namespace: str
) -> Iterator[tuple[str, int, int]]:
    """Yield what is denied of a resource, how many verbs that is, and of how many."""
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    (group,) = rule["apiGroups"]
    for resource in rule["resources"]:
        plural, _, part = resource.partition("/")
        missing = []
        for verb in rule["verbs"]:
            deed = {"verb": verb, "group": group, "resource": plural, "namespace": namespace}
            deed |= {"subresource": part} if part else {}
            asked = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": deed},
            }
            if not api.ask(path, asked).body["status"].get("allowed"):
                missing.append(verb)
        if missing:
            where = f" in {namespace}" if namespace else ""
            said = f"{', '.join(missing)} {resource}{'.' + group if group else ''}{where}"
            yield said, len(missing), len(rule["verbs"])


def _missing_claims(api: Questions, access: KubeAccess) -> Iterator[str]:
    volumes = (*([access.runs] if access.runs else []), *access.volumes.values())
    for claim in dict.fromkeys(volume.claim for volume in volumes if volume.claim):
        path = f"/api/v1/namespaces/{access.namespace}/persistentvolumeclaims/{claim}"
        try:
            api.ask(path)
        except RefusedError as error:
            if error.code == _MISSING:  # else it may not be known
                yield claim


def _with_queues(known: Facts, api: Questions, access: KubeAccess) -> Facts:
    version = _kueue_version(api)
    if not version:
        return known
    root = f"/apis/kueue.x-k8s.io/{version}"
    listed = _allowed(api, f"{root}/namespaces/{access.namespace}/localqueues")
    queues = None if listed is None else tuple(map(read_local_queue, items(listed)))
    ours = next((one for one in queues or () if one.name == access.queue), None)
    flavors = _allowed(api, f"{root}/resourceflavors")
    names = None
    if flavors is not None:
        found = (one for one in items(flavors) if isinstance(one, dict))
        names = tuple(str(one["metadata"]["name"]) for one in found)
    return replace(
        known,
        has_kueue=True,
        queues=queues,
        cluster_queue=_cluster_queue(api, root, ours),
        flavors=names,
    )


def _kueue_version(api: Questions) -> str:
    said = _allowed(api, "/apis/kueue.x-k8s.io") or {}
    served = {str(one.get("version")) for one in said.get("versions", ())}
    return next((version for version in _KUEUE if version in served), "")


def _cluster_queue(api: Questions, root: str, ours: LocalQueue | None) -> ClusterQueue | None:
    if ours is None or not ours.cluster_queue:
        return None
    found = _allowed(api, f"{root}/clusterqueues/{ours.cluster_queue}")
    return read_cluster_queue(found) if found is not None else None


def _tried(known: Facts, site: Site, access: KubeAccess, api: Questions, runs: PurePath) -> Facts:
    """Ask whether a job of one pod would be taken."""
    task = TaskRef(job_id="check", attempt=1, epoch=1, site=site.name, node="any")
    asked = replace(pods(task, runs, access, first_kind(site), devices=1), command=("true",))
    try:
        *_, main = manifests(asked, FORMS[access.workload])
        said = api.tries(main)
    except RefusedError as error:
        return replace(known, refusal=str(error), refusal_code=error.code)
    except InputError as error:
        return replace(known, refusal=str(error))
    return replace(known, warnings=said.warnings)
