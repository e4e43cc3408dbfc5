"""From what a cluster and supervisors say of a task to what has happened to it (pure)."""

import msgspec
from msgspec.structs import replace

from gridloom.model.event import TaskWaiting
from gridloom.model.life import Outcome
from gridloom.model.reason import Why
from gridloom.sites.kube.endings import CAUSES, Ending, EndKind
from gridloom.sites.kube.parse_pods import Phase, PodSight
from gridloom.sites.kube.parse_runs import RunPhase, RunSight, attempt_ending
from gridloom.sites.kube.parse_workloads import WorkloadSight, WorkloadState
from gridloom.sites.kube.reading import said
from gridloom.sites.kube.render_jobset import REPLICATED_JOB
from gridloom.wire.agent import Who

_BY_SITE = frozenset(
    {EndKind.PREEMPTED, EndKind.TIME_LIMIT, EndKind.CANCELLED, EndKind.NODE_FAILED}
)
"""Ends that befall all pods of a gang alike."""
_SILENT = frozenset({Phase.CREATING, Phase.PULLING})
_REMEDIES = {
    EndKind.TIME_LIMIT: "raise `time_limit` of the site in the grid file",
    EndKind.OUT_OF_MEMORY: "ask for more memory in `resources` of the site, or cut the model"
    " smaller",
    EndKind.LAUNCH_FAILED: "see what `image`, `python` and `volumes` of the site in the grid file"
    " say",
}


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a gang's job now.

    Attributes:
        name: Of the job.
        run: The job; nothing before it was seen, and when it is gone.
        is_gone: It was there, and is no more.
        pods: Its pods.
        workload: Kueue's view of it, if it is queued.
        eviction: Why Kueue has taken its place away after its pods had run.
        warning: What the cluster warned of last about what it says nothing of.
        trouble: Why the cluster cannot be looked at; empty if it can.
    """

    name: str
    run: RunSight | None = None
    is_gone: bool = False
    pods: tuple[PodSight, ...] = ()
    workload: WorkloadSight | None = None
    eviction: Ending | None = None
    warning: str = ""
    trouble: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether a pod of it may still do something."""
        return any(pod.phase is not Phase.ENDED for pod in self.pods)

    def pod(self, index: int) -> PodSight | None:
        """Return the pod of a task, by the task's number; the last one that started."""
        own = [pod for pod in self.pods if pod.index == index]
        return max(own, key=lambda pod: pod.started_s, default=None)


def ending(seen: Seen) -> Ending | None:
    """Return how the gang as a whole has ended; nothing as long as it has not."""
    if seen.is_alive:
        return None
    if seen.eviction is not None:
        return seen.eviction
    workload = seen.workload
    if workload is not None and workload.state is WorkloadState.DEACTIVATED:
        return _end(workload.eviction_kind or EndKind.CANCELLED, workload.sentence)
    if seen.run is None and not seen.is_gone:
        return None
    return attempt_ending(seen.run, seen.pods)


def silent(seen: Seen) -> str:
    """Return the name of the job, or of a pod, that should go on and of which nothing is said."""
    if seen.run is None or seen.run.phase is not RunPhase.ACTIVE:
        return ""
    if not seen.pods:
        # The pods of the other forms are made by a Job inside
        return seen.name if seen.run.kind == "Job" else f"{seen.name}-{REPLICATED_JOB}-0"
    waits = (pod for pod in seen.pods if pod.phase in _SILENT)
    return next((pod.name for pod in waits), "")


def evicted(workload: WorkloadSight | None, *, ever: bool = False) -> Ending | None:
    """Return why Kueue has taken the place of a workload away, if it has.

    Args:
        workload: Of the gang.
        ever: Whether it counts that it was so once, and is not any more.
    """
    if workload is None or not (workload.eviction or (ever and workload.was_evicted)):
        return None
    kind = workload.eviction_kind or EndKind.PREEMPTED
    return _end(kind, workload.sentence or "Kueue had put it out")


def wait_of(seen: Seen, index: int, who: Who) -> TaskWaiting:
    """Return what a task waits for that has not come up yet."""
    return TaskWaiting(**who, sentence=_waiting(seen, seen.pod(index)))


def outcome_of(
    seen: Seen, end: Ending, who: Who, *, asked: str, printed: str, now_s: float
) -> Outcome:
    """Return how a task ended of whose end its supervisor has said nothing.

    Args:
        seen: Its gang.
        end: What the cluster says.
        who: The task.
        asked: The sentence with which it was asked to stop; empty if it was not.
        printed: The last line that the supervisor has printed.
        now_s: The time, if the cluster does not tell it.
    """
    code, sentence = end.why, f"Kubernetes {_called(seen)}: {end.sentence}"
    if end.kind in (EndKind.DONE, EndKind.FAILED):
        code = Why.SUPERVISOR_LOST
        words = printed if printed not in end.sentence else ""
        sentence = said(
            f"the supervisor of {who['domain']} is gone without a word", end.sentence, words
        )
    if asked and end.kind in (EndKind.CANCELLED, EndKind.FAILED, EndKind.DONE):
        code, sentence = Why.STOP_REQUESTED, f"{asked}: {sentence}"
    return Outcome(
        code=code,
        sentence=sentence,
        remedy=_REMEDIES.get(end.kind, ""),
        exit_code=-end.signal or end.exit_code or 0,
        ended_s=end.ended_s or now_s,
    )


def why_asked(outcome: Outcome, seen: Seen, taken: Ending | None) -> Outcome | None:
    """Return the outcome of a task that its site has asked to stop, with the site's reason.

    Args:
        outcome: As its supervisor has it.
        seen: Its gang.
        taken: What took pods of it away, if something did.

    Returns:
        Nothing as long as the site's reason may still become known.
    """
    whole = ending(seen)
    found = seen.eviction or evicted(seen.workload, ever=True)
    if found is None and whole is not None and whole.kind in _BY_SITE:
        found = whole
    if found is None and taken is not None and taken.kind is not EndKind.CANCELLED:
        found = taken
    if found is None and whole is None:
        return None
    if found is None and whole is not None and whole.kind is not EndKind.DONE:
        sentence = f"Kubernetes {_called(seen)} ended: {whole.sentence}: {outcome.sentence}"
        return replace(outcome, code=Why.PEER_LOST, sentence=sentence)
    found = found or taken
    if found is None:
        return outcome
    sentence = f"Kubernetes {_called(seen)}: {found.sentence}: {outcome.sentence}"
    return replace(outcome, code=found.why, sentence=sentence, remedy=_REMEDIES.get(found.kind, ""))


def _waiting(seen: Seen, pod: PodSight | None) -> str:
    if seen.trouble:
        return f"Kubernetes cannot be asked: {seen.trouble}"
    if seen.run is None:
        return "is being handed to Kubernetes"
    called = f"Kubernetes {_called(seen)}"
    workload = seen.workload
    if workload is not None and workload.state is not WorkloadState.ADMITTED:
        return f"{called}: {workload.sentence}"
    if seen.run.phase is not RunPhase.ACTIVE:
        return f"{called}: {seen.run.sentence}"
    if pod is None:
        return said(f"{called} has no pod for it yet", seen.warning)
    told = seen.warning if pod.phase in _SILENT else ""
    return said(f"{called}: pod {pod.name} {_stage(pod)}", told)


def _stage(pod: PodSight) -> str:
    node = f" on {pod.node}" if pod.node else ""
    words = {
        Phase.WAITING: "waits for the scheduler",
        Phase.CREATING: f"is being made{node}",
        Phase.PULLING: f"fetches its image{node}",
        Phase.RUNNING: f"starts{node}",
    }
    return words.get(pod.phase) or f"{pod.phase}{node}: {pod.sentence}"


def _called(seen: Seen) -> str:
    kind = seen.run.kind if seen.run is not None else ""
    return f"{kind or 'job'} {seen.name}"


def _end(kind: EndKind, sentence: str) -> Ending:
    return Ending(kind=kind, why=CAUSES[kind], sentence=sentence)
