"""From a Job, JobSet or TrainJob and its pods to where an attempt is, and how it ended (pure)."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from gridloom.sites.kube.endings import CAUSES, Ending, EndKind, first_cause
from gridloom.sites.kube.parse_pods import Phase, PodSight
from gridloom.sites.kube.reading import Condition, Metadata, Part, convert, holding, said, seconds


class RunPhase(StrEnum):
    """Where all pods of an attempt together are."""

    SUSPENDED = "suspended"
    """Held back, most often by Kueue: no pod of it may exist."""
    ACTIVE = "active"
    STOPPING = "stopping"
    """It was deleted, and is not gone yet."""
    ENDED = "ended"


class RunSight(msgspec.Struct, frozen=True, kw_only=True):
    """One Job, JobSet or TrainJob.

    Attributes:
        kind: Which of them.
        name: Its name.
        uid: What tells it from another one of that name.
        labels: Of it.
        phase: Where it is.
        sentence: What the cluster says of it; empty when it only runs.
        ending: How it ended, by its own words alone; ``attempt_ending`` knows more.
        active: Pods that exist and have not ended.
        ready: Of them, those that run.
        succeeded: Pods that are done.
        failed: Pods that failed.
    """

    kind: str
    name: str
    uid: str
    labels: dict[str, str]
    phase: RunPhase
    sentence: str = ""
    ending: Ending | None = None
    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0


class _Spec(Part, frozen=True, kw_only=True):
    suspend: bool = False


class _Part(Part, frozen=True, kw_only=True):
    """Counts of jobs inside a JobSet or TrainJob; each has all pods of its nodes."""

    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0


class _Status(_Part, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] = ()
    completion_time: datetime | None = None
    replicated_jobs_status: tuple[_Part, ...] = ()
    jobs_status: tuple[_Part, ...] = ()


class _Run(Part, frozen=True, kw_only=True):
    kind: str = ""
    metadata: Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


_DONE = ("Complete", "Completed")
_REASONS = {
    "DeadlineExceeded": (EndKind.TIME_LIMIT, "its time limit is over"),
    "BackoffLimitExceeded": (EndKind.FAILED, "a pod of it failed"),
    "PodFailurePolicy": (EndKind.FAILED, "a pod of it failed in a way that nothing is tried after"),
    "FailedJobs": (EndKind.FAILED, "a pod of it failed"),
    "FailJobSet": (EndKind.FAILED, "a pod of it failed in a way that nothing is tried after"),
    "ReachedMaxRestarts": (EndKind.FAILED, "it failed as often as it may be started"),
}


def read_run(data: object) -> RunSight:
    """Return what a Job, JobSet or TrainJob says; raise ``SiteError`` when it is none."""
    run = convert(data, _Run)
    phase, sentence, ending = _life(run)
    parts = run.status.replicated_jobs_status or run.status.jobs_status or [run.status]
    return RunSight(
        kind=run.kind,
        name=run.metadata.name,
        uid=run.metadata.uid,
        labels=run.metadata.labels,
        phase=phase,
        sentence=sentence,
        ending=ending,
        active=sum(part.active for part in parts),
        ready=sum(part.ready for part in parts),
        succeeded=sum(part.succeeded for part in parts),
        failed=sum(part.failed for part in parts),
    )


def attempt_ending(run: RunSight | None, pods: Sequence[PodSight]) -> Ending | None:
    """Return how an attempt ended; nothing while it has not.

    A job says that pods of it failed; which one was first, and of what, only its pods say. Of an
    attempt whose job is gone the pods that are left tell; without any, somebody deleted it.
    """
    endings = [pod.ending for pod in pods if pod.phase is Phase.ENDED and pod.ending]
    if run is None:
        if any(pod.phase is not Phase.ENDED for pod in pods):
            return None
        return first_cause(endings) or _end(EndKind.CANCELLED, "its job was deleted")
    if run.ending is None or run.ending.kind is not EndKind.FAILED:
        return run.ending
    told = first_cause([one for one in endings if one.kind is not EndKind.DONE])
    return told or run.ending


def _life(run: _Run) -> tuple[RunPhase, str, Ending | None]:
    conditions = run.status.conditions
    for name in _DONE:
        if done := holding(conditions, name):
            ended_s = seconds(run.status.completion_time or done.last_transition_time)
            ending = _end(EndKind.DONE, "it is done", ended_s)
            return RunPhase.ENDED, ending.sentence, ending
    if failed := holding(conditions, "Failed"):
        kind, sentence = _REASONS.get(failed.reason, (EndKind.FAILED, "it failed"))
        words = said(sentence, failed.reason, failed.message)
        ending = _end(kind, words, seconds(failed.last_transition_time))
        return RunPhase.ENDED, words, ending
    if run.metadata.deletion_timestamp:
        return RunPhase.STOPPING, "it was deleted, and is not gone yet", None
    if run.spec.suspend:
        held = holding(conditions, "Suspended")
        return RunPhase.SUSPENDED, said("it is held back", held.message if held else ""), None
    return RunPhase.ACTIVE, "", None


def _end(kind: EndKind, sentence: str, ended_s: float = 0.0) -> Ending:
    return Ending(kind=kind, why=CAUSES[kind], sentence=sentence, ended_s=ended_s)
