"""Runs a probe as a job of one pod of a cluster, and takes it out again."""

import contextlib
from pathlib import Path

from msgspec.structs import replace

from gridloom.base.clock import Clock
from gridloom.base.errors import InputError, SiteError
from gridloom.model.inventory import KubeAccess, Site
from gridloom.sites.kube.api import PODS, WORKLOADS, Api, resource_of
from gridloom.sites.kube.gang import FORMS, pods
from gridloom.sites.kube.inventory import first_kind
from gridloom.sites.kube.labels import RUN_LABEL
from gridloom.sites.kube.parse_pods import Phase, PodSight, read_pod
from gridloom.sites.kube.parse_workloads import WorkloadSight, read_workload
from gridloom.sites.kube.render import manifests
from gridloom.sites.kube.render_pod import Manifest
from gridloom.sites.probe import Probed
from gridloom.sites.probing import OwnPlace, follow
from gridloom.wire.agent import TaskRef

_LOG_LINES = 20
_LIMIT_S = 120


def probe(site: Site, api: Api, directory: Path, *, timeout_s: float, clock: Clock) -> Probed:
    """Return how a probe of a site went; nothing of it is left in the cluster.

    Args:
        site: Which.
        api: How its cluster is asked.
        directory: New, among the run directories, which pods should see as we do. It is removed.
        timeout_s: How long to wait for the probe.
        clock: Ours.

    Raises:
        OSError: The directory cannot be written.
    """
    access = site.kubernetes
    assert access is not None  # the grid file was checked
    blank = Probed(
        engine="Kubernetes",
        directory=str(directory.parent),
        python=access.python,
        submitted_s=clock.now_s(),
        given_up_s=timeout_s,
    )
    place = OwnPlace(directory)
    place.make()
    try:
        *others, main = _objects(site, access, directory)
        for one in others:
            api.apply(one)
        made = api.apply(main)
        job = _PodJob(api, main, str(made["metadata"]["uid"]), queued=bool(access.queue))
        try:
            return follow(job, place, blank, timeout_s=timeout_s, clock=clock)
        finally:
            job.take_out(others)
    except (InputError, SiteError) as error:
        return replace(blank, refusal=str(error))
    finally:
        place.clear()


def _objects(site: Site, access: KubeAccess, directory: Path) -> tuple[Manifest, ...]:
    task = TaskRef(job_id=directory.name, attempt=1, epoch=1, site=site.name, node="any")
    argv = (access.python, "-P", "-m", "gridloom.agent.probe", str(directory), access.network)
    asked = replace(
        pods(task, directory.parent, access, first_kind(site), devices=1),
        command=tuple(word for word in argv if word),
        deadline_s=_LIMIT_S,
    )
    return manifests(asked, FORMS[access.workload])


class _PodJob:
    """Plays `gridloom.sites.probing.ProbeJob`."""

    def __init__(self, api: Api, main: Manifest, uid: str, *, queued: bool) -> None:
        self._api, self._main, self._uid, self._queued = api, main, uid, queued
        self._pod: PodSight | None = None
        self._workload: WorkloadSight | None = None

    def look(self) -> None:
        selector = f"{RUN_LABEL}={self._main['metadata']['labels'][RUN_LABEL]}"
        with contextlib.suppress(SiteError):
            listed, _ = self._api.list(PODS, selector)
            self._pod = read_pod(listed[-1]) if listed else None
        for resource in WORKLOADS if self._queued and self._pod is None else ():
            with contextlib.suppress(SiteError):
                listed, _ = self._api.list(resource, "")
                own = [one for one in map(read_workload, listed) if one.owner_uid == self._uid]
                self._workload = own[0] if own else self._workload
                return

    def is_over(self) -> bool:
        return self._pod is not None and self._pod.phase in (Phase.ENDED, Phase.STUCK)

    def has_run(self) -> bool:
        return self._pod is not None and self._pod.phase is Phase.ENDED

    def started_s(self) -> float | None:
        return self._pod.started_s or None if self._pod is not None else None

    def told(self, probed: Probed) -> Probed:
        pod = self._pod
        if pod is None:
            held = self._workload.sentence if self._workload is not None else ""
            return replace(probed, waits=held or "the cluster has made no pod for it")
        if pod.phase is Phase.STUCK:
            return replace(probed, stuck=pod.sentence)
        if pod.phase is Phase.ENDED:
            ended = f"pod {pod.name} on {pod.node or 'no node'} has ended: {pod.sentence}"
            return replace(probed, ended=ended, log=self._log(pod))
        if pod.phase in (Phase.RUNNING, Phase.STOPPING):
            return replace(probed, log=self._log(pod))
        return replace(probed, waits=pod.sentence or f"its pod is {pod.phase}")

    def take_out(self, others: list[Manifest]) -> None:
        name = self._main["metadata"]["name"]
        with contextlib.suppress(SiteError):  # it ends by itself, and is deleted after a while
            self._api.delete(resource_of(self._main), name, self._uid)
        for one in others:
            with contextlib.suppress(SiteError):
                resource = resource_of(one)
                made = self._api.get(resource, one["metadata"]["name"])
                if made is not None:
                    uid = str(made["metadata"]["uid"])
                    self._api.delete(resource, one["metadata"]["name"], uid)

    def _log(self, pod: PodSight) -> str:
        try:
            return self._api.log(pod.name, _LOG_LINES)
        except SiteError:
            return ""
