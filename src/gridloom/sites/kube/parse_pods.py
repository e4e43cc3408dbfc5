"""From a pod to where it is in its life, and how it ended (pure)."""

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum

import msgspec

from gridloom.sites.kube.endings import CAUSES, EXITS, Ending, EndKind, signal_of
from gridloom.sites.kube.labels import COMPLETION_INDEX
from gridloom.sites.kube.reading import (
    Condition,
    Metadata,
    Part,
    condition,
    convert,
    holding,
    said,
    seconds,
)


class Phase(StrEnum):
    """Where a pod is in its life."""

    GATED = "gated"
    """Kueue, or another keeper of a gate, has not let it through to the scheduler."""
    WAITING = "waiting"
    """The scheduler has not looked at it."""
    UNSCHEDULABLE = "unschedulable"
    """The scheduler finds no node for it now."""
    CREATING = "creating"
    """It is on a node that prepares volumes, network and container."""
    PULLING = "pulling"
    """Its network is ready and its container is not: most often the image is fetched."""
    STUCK = "stuck"
    """It cannot start, and is tried again and again; ``ending`` says how it will have ended."""
    RUNNING = "running"
    STOPPING = "stopping"
    """It was told to stop, and still has its grace."""
    ENDED = "ended"


class PodSight(msgspec.Struct, frozen=True, kw_only=True):
    """One pod.

    Attributes:
        name: Its name.
        uid: What tells it from another one of that name.
        labels: Of it.
        index: Its number in the job; -1 for none.
        node: Where it is; empty before it is placed.
        address: Of the pod; empty before it has one.
        phase: Where it is in its life.
        sentence: What holds it up, or how it ended; empty when all goes well.
        ending: How it ended; of a stuck one how it would.
        taken: What took it away from outside, or does, however its container ends.
        started_s: When its container started, in seconds since the epoch; 0 before.
    """

    name: str
    uid: str
    labels: dict[str, str]
    index: int
    node: str
    address: str
    phase: Phase
    sentence: str = ""
    ending: Ending | None = None
    taken: Ending | None = None
    started_s: float = 0.0


class _Waiting(Part, frozen=True, kw_only=True):
    reason: str = ""
    message: str = ""


class _Running(Part, frozen=True, kw_only=True):
    started_at: datetime | None = None


class _Terminated(Part, frozen=True, kw_only=True):
    exit_code: int
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class _State(Part, frozen=True, kw_only=True):
    waiting: _Waiting | None = None
    running: _Running | None = None
    terminated: _Terminated | None = None


class _Container(Part, frozen=True, kw_only=True):
    name: str
    state: _State = _State()


class _Spec(Part, frozen=True, kw_only=True):
    node_name: str = ""


class _Status(Part, frozen=True, kw_only=True):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: tuple[Condition, ...] = ()
    init_container_statuses: tuple[_Container, ...] = ()
    container_statuses: tuple[_Container, ...] = ()


class _Pod(Part, frozen=True, kw_only=True):
    metadata: Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


STUCK_REASONS = {
    "ImagePullBackOff": "the image cannot be fetched",
    "ErrImagePull": "the image cannot be fetched",
    "ErrImageNeverPull": "the image is not on the node and must not be fetched",
    "InvalidImageName": "the image's name is none",
    "ImageInspectError": "the image on the node cannot be read",
    "RegistryUnavailable": "the registry does not answer",
    "SignatureValidationFailed": "the image's signature is not accepted",
    "CreateContainerConfigError": "the container refers to something that does not exist",
    "CreateContainerError": "the container cannot be made",
    "RunContainerError": "the container cannot be started",
    "PreStartHookError": "the container's hook failed",
    "PostStartHookError": "the container's hook failed",
    "CrashLoopBackOff": "the container ends again and again",
}
"""Why a container waits that will not start by itself, unless somebody mends the cause."""

DISRUPTIONS = {
    "PreemptionByScheduler": (EndKind.PREEMPTED, "a pod of higher priority took its place"),
    "DeletionByTaintManager": (EndKind.NODE_FAILED, "its node got a taint that it does not bear"),
    "EvictionByEvictionAPI": (EndKind.PREEMPTED, "its node is being drained"),
    "DeletionByPodGC": (EndKind.NODE_FAILED, "its node is gone"),
    "TerminationByKubelet": (EndKind.NODE_FAILED, "its node ended it"),
}
"""What the reasons of a pod's DisruptionTarget condition say."""

_NODE_REASONS = {
    "NodeLost": (EndKind.NODE_FAILED, "its node is lost"),
    "NodeShutdown": (EndKind.NODE_FAILED, "its node was shut down"),
    "Shutdown": (EndKind.NODE_FAILED, "its node was shut down"),
    "Terminated": (EndKind.NODE_FAILED, "its node was shut down"),
    "Preempting": (EndKind.PREEMPTED, "a critical pod of the node took its place"),
    "DeadlineExceeded": (EndKind.TIME_LIMIT, "its time limit is over"),
}
_REFUSED = ("OutOf", "NodeAffinity", "NodeSelector", "UnexpectedAdmissionError", "TopologyAffinity")
_NEVER_RAN = ("StartError", "ContainerCannotRun", "ContainerCreateError")
_SIGNAL_NAMES = {6: "SIGABRT", 7: "SIGBUS", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}


def read_pod(data: object) -> PodSight:
    """Return what a pod says of itself; raise ``SiteError`` when it is none."""
    pod = convert(data, _Pod)
    phase, sentence, ending = _life(pod)
    states = [one.state.running or one.state.terminated for one in pod.status.container_statuses]
    started = [seconds(one.started_at) for one in states if one]
    index = pod.metadata.annotations.get(
        COMPLETION_INDEX, pod.metadata.labels.get(COMPLETION_INDEX, "")
    )
    return PodSight(
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        labels=pod.metadata.labels,
        index=int(index) if index.isdecimal() else -1,
        node=pod.spec.node_name,
        address=pod.status.pod_ip,
        phase=phase,
        sentence=sentence,
        ending=ending,
        taken=_taken(pod),
        started_s=min(started, default=0.0),
    )


def _life(pod: _Pod) -> tuple[Phase, str, Ending | None]:
    if pod.status.phase in ("Succeeded", "Failed"):
        ending = _ending(pod)
        return Phase.ENDED, ending.sentence, ending
    if pod.metadata.deletion_timestamp:
        taken = _disruption(pod)
        return Phase.STOPPING, taken.sentence if taken else "it was told to stop", None
    if not pod.spec.node_name:
        return *_unplaced(pod), None
    for waiting in _waiting(pod):
        if waiting.reason in STUCK_REASONS:
            sentence = said(STUCK_REASONS[waiting.reason], waiting.reason, waiting.message)
            return Phase.STUCK, sentence, _end(EndKind.LAUNCH_FAILED, sentence)
    if pod.status.phase == "Running":
        return Phase.RUNNING, "", None
    prepared = holding(pod.status.conditions, "PodReadyToStartContainers")
    return Phase.PULLING if prepared else Phase.CREATING, "", None


def _unplaced(pod: _Pod) -> tuple[Phase, str]:
    placed = condition(pod.status.conditions, "PodScheduled")
    if placed is None:
        return Phase.WAITING, ""
    if placed.reason == "SchedulingGated":
        return Phase.GATED, said("it is held back before the scheduler", placed.message)
    return Phase.UNSCHEDULABLE, said("no node takes it now", placed.message)


def _waiting(pod: _Pod) -> Iterator[_Waiting]:
    for one in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if one.state.waiting:
            yield one.state.waiting


def _ending(pod: _Pod) -> Ending:
    """The first that applies: what befell the pod from outside, then how its container ended."""
    exits = [
        one.state.terminated
        for one in (*pod.status.init_container_statuses, *pod.status.container_statuses)
        if one.state.terminated
    ]
    ended_s = max((seconds(one.finished_at) for one in exits), default=0.0)
    if pod.status.phase == "Succeeded":
        return _end(EndKind.DONE, "it is done", exit_code=0, ended_s=ended_s)
    if (evicted := _evicted(pod)) or (evicted := _disruption(pod)):
        return msgspec.structs.replace(evicted, ended_s=evicted.ended_s or ended_s)
    failed = [one for one in exits if one.exit_code]
    if failed:
        first = min(failed, key=lambda one: seconds(one.finished_at))
        return _exit(first, stopped=bool(pod.metadata.deletion_timestamp))
    return _reported(pod, ended_s)


def _evicted(pod: _Pod) -> Ending | None:
    """The kubelet itself ends pods when its node runs short, and says of what."""
    if pod.status.reason != "Evicted":
        return None
    message = pod.status.message
    if "resource: memory" in message:
        return _end(EndKind.OUT_OF_MEMORY, said("its node ran out of memory", message))
    own = "exceeds the" in message or "exceeded" in message
    kind = EndKind.FAILED if own else EndKind.NODE_FAILED
    return _end(kind, said("its node evicted it", message))


def _disruption(pod: _Pod) -> Ending | None:
    taken = holding(pod.status.conditions, "DisruptionTarget")
    if taken is None:
        return None
    kind, sentence = DISRUPTIONS.get(taken.reason, (EndKind.PREEMPTED, "the cluster took it away"))
    kind, sentence = _NODE_REASONS.get(pod.status.reason, (kind, sentence))
    ended_s = seconds(taken.last_transition_time)
    return _end(kind, said(sentence, taken.reason, taken.message), ended_s=ended_s)


def _taken(pod: _Pod) -> Ending | None:
    evicted = _evicted(pod) or _disruption(pod)
    if evicted is None and pod.metadata.deletion_timestamp:
        return _end(EndKind.CANCELLED, "it was deleted")
    return evicted


def _exit(exit_: _Terminated, *, stopped: bool) -> Ending:
    code, signal = exit_.exit_code, signal_of(exit_.exit_code, exit_.signal)
    ended_s = seconds(exit_.finished_at)
    words = said(exit_.message)
    if exit_.reason == "OOMKilled":
        sentence = said("it used more memory than it had asked for", words)
        kind = EndKind.OUT_OF_MEMORY
    elif exit_.reason in _NEVER_RAN:
        sentence = said("its program could not be started", exit_.reason, words)
        kind = EndKind.LAUNCH_FAILED
    elif exit_.reason == "ContainerStatusUnknown":
        sentence, kind = said("its node lost sight of it", words), EndKind.NODE_FAILED
    else:
        return _own_exit(exit_, signal, stopped=stopped)
    return _end(kind, sentence, exit_code=code, signal=signal, ended_s=ended_s)


def _own_exit(exit_: _Terminated, signal: int, *, stopped: bool) -> Ending:
    why, meaning = EXITS.get(exit_.exit_code, (None, ""))
    if signal:
        meaning = f"killed by {_SIGNAL_NAMES.get(signal, f'signal {signal}')}"
    kind = EndKind.CANCELLED if stopped else EndKind.FAILED
    sentence = said(f"exit code {exit_.exit_code}", meaning, exit_.message)
    ended_s = seconds(exit_.finished_at)
    ending = _end(kind, sentence, exit_code=exit_.exit_code, signal=signal, ended_s=ended_s)
    return msgspec.structs.replace(ending, why=why) if why else ending


def _reported(pod: _Pod, ended_s: float) -> Ending:
    """Nothing of it ever ran, or nothing is known of what did: the pod's own words are left."""
    reason, message = pod.status.reason, pod.status.message
    if reason in _NODE_REASONS:
        kind, sentence = _NODE_REASONS[reason]
        return _end(kind, said(sentence, message), ended_s=ended_s)
    if reason.startswith(_REFUSED):
        sentence = said("its node refused it", reason, message)
        return _end(EndKind.LAUNCH_FAILED, sentence, ended_s=ended_s)
    sentence = said("it failed without saying how", reason, message)
    return _end(EndKind.FAILED, sentence, ended_s=ended_s)


def _end(
    kind: EndKind,
    sentence: str,
    *,
    exit_code: int | None = None,
    signal: int = 0,
    ended_s: float = 0.0,
) -> Ending:
    return Ending(
        kind=kind,
        why=CAUSES[kind],
        sentence=sentence,
        exit_code=exit_code,
        signal=signal,
        ended_s=ended_s,
    )
