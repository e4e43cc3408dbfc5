"""Pods: where they are and how they ended; every sample is one that a server would keep."""

from typing import Any

import pytest
from tests.unit.sites.kube.schemas import built_in_errors

from gridloom.model.reason import Why
from gridloom.sites.kube.endings import CAUSES, EXITS, EndKind, signal_of
from gridloom.sites.kube.parse_pods import DISRUPTIONS, STUCK_REASONS, Phase, PodSight, read_pod

ON_NODE = {"nodeName": "n1"}
AT = "1970-01-01T00:01:40Z"


def made(
    status: dict[str, Any], spec: dict[str, Any] | None = None, **metadata: Any
) -> dict[str, Any]:
    data = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train-a1-3-x7k2p", "uid": "u3", **metadata},
        "spec": {
            "containers": [{"name": "node", "image": "i"}],
            **(ON_NODE if spec is None else spec),
        },
        "status": status,
    }
    assert built_in_errors(data, "1.36") == []
    return data


def container(**state: dict[str, Any]) -> dict[str, Any]:
    one = {"name": "node", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    return {**one, "state": state}


def condition(type_: str, status: str = "True", **more: str) -> dict[str, Any]:
    return {"type": type_, "status": status, **more}


def ended(phase: str = "Failed", **terminated: Any) -> dict[str, Any]:
    return {"phase": phase, "containerStatuses": [container(terminated=terminated)]}


def failed(code: int, reason: str = "Error", **more: Any) -> dict[str, Any]:
    return ended(exitCode=code, reason=reason, finishedAt=AT, **more)


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    state = {"reason": reason, "message": message}
    return {"phase": "Pending", "containerStatuses": [container(waiting=state)]}


def test_a_running_pod() -> None:
    status = {
        "phase": "Running",
        "podIP": "10.1.2.3",
        "containerStatuses": [container(running={"startedAt": AT})],
    }
    key = "batch.kubernetes.io/job-completion-index"
    assert read_pod(made(status, labels={"gridloom/job": "j"}, annotations={key: "3"})) == PodSight(
        name="train-a1-3-x7k2p",
        uid="u3",
        labels={"gridloom/job": "j"},
        index=3,
        node="n1",
        address="10.1.2.3",
        phase=Phase.RUNNING,
        started_s=100.0,
    )


def test_the_number_may_stand_in_a_label_alone() -> None:
    labels = {"batch.kubernetes.io/job-completion-index": "12"}
    assert read_pod(made({}, labels=labels)).index == 12
    assert read_pod(made({})).index == -1


GATE = "Scheduling is blocked due to non-empty scheduling gates"
NO_ROOM = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
WAITS: dict[str, tuple[dict[str, Any], dict[str, Any], Phase, str]] = {
    "new": ({"phase": "Pending"}, {}, Phase.WAITING, ""),
    "gated": (
        {
            "conditions": [
                condition("PodScheduled", "False", reason="SchedulingGated", message=GATE)
            ]
        },
        {},
        Phase.GATED,
        f"it is held back before the scheduler: {GATE}",
    ),
    "unschedulable": (
        {
            "conditions": [
                condition("PodScheduled", "False", reason="Unschedulable", message=NO_ROOM)
            ]
        },
        {},
        Phase.UNSCHEDULABLE,
        f"no node takes it now: {NO_ROOM}",
    ),
    "creating": (waiting("ContainerCreating"), ON_NODE, Phase.CREATING, ""),
    "pulling": (
        waiting("ContainerCreating") | {"conditions": [condition("PodReadyToStartContainers")]},
        ON_NODE,
        Phase.PULLING,
        "",
    ),
    "init": (
        {
            "phase": "Pending",
            "initContainerStatuses": [container(waiting={"reason": "ErrImagePull"})],
        },
        ON_NODE,
        Phase.STUCK,
        "the image cannot be fetched: ErrImagePull",
    ),
}


@pytest.mark.parametrize(("status", "spec", "phase", "sentence"), WAITS.values(), ids=WAITS)
def test_where_a_pod_is(
    status: dict[str, Any], spec: dict[str, Any], phase: Phase, sentence: str
) -> None:
    seen = read_pod(made(status, spec))
    assert (seen.phase, seen.sentence) == (phase, sentence)


@pytest.mark.parametrize("reason", STUCK_REASONS)
def test_a_pod_that_cannot_start(reason: str) -> None:
    seen = read_pod(made(waiting(reason, "Back-off pulling\n  image")))
    assert seen.phase is Phase.STUCK
    assert seen.ending is not None
    assert seen.ending.kind is EndKind.LAUNCH_FAILED
    assert seen.ending.why is Why.REFUSED
    assert seen.sentence == f"{STUCK_REASONS[reason]}: {reason}: Back-off pulling image"


def test_a_pod_that_is_told_to_stop() -> None:
    status = {"phase": "Running", "containerStatuses": [container(running={"startedAt": AT})]}
    seen = read_pod(made(status, deletionTimestamp=AT))
    assert (seen.phase, seen.sentence, seen.ending) == (Phase.STOPPING, "it was told to stop", None)
    taken = {"conditions": [condition("DisruptionTarget", reason="EvictionByEvictionAPI")]}
    seen = read_pod(made(status | taken, deletionTimestamp=AT))
    assert seen.sentence == "its node is being drained: EvictionByEvictionAPI"


def test_a_pod_that_is_done() -> None:
    seen = read_pod(
        made(ended("Succeeded", exitCode=0, reason="Completed", finishedAt=AT, startedAt=AT))
    )
    assert (seen.phase, seen.started_s) == (Phase.ENDED, 100.0)
    assert seen.ending is not None
    assert (seen.ending.kind, seen.ending.why) == (EndKind.DONE, Why.COMPLETED)
    assert (seen.ending.exit_code, seen.ending.ended_s) == (0, 100.0)


LOW = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 10Mi."
DISK = "The node was low on resource: ephemeral-storage."
OWN = "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi."
ENDS: dict[str, tuple[dict[str, Any], EndKind, Why, str]] = {
    "exit": (failed(1), EndKind.FAILED, Why.EXITED, "exit code 1"),
    "last words": (
        failed(1, message="Traceback\nKeyError: 'x'"),
        EndKind.FAILED,
        Why.EXITED,
        "exit code 1: Traceback KeyError: 'x'",
    ),
    "config": (
        failed(78),
        EndKind.FAILED,
        Why.CONFIG,
        "exit code 78: what the job says cannot be run",
    ),
    "segfault": (failed(139), EndKind.FAILED, Why.EXITED, "exit code 139: killed by SIGSEGV"),
    "real-time signal": (
        failed(162),
        EndKind.FAILED,
        Why.EXITED,
        "exit code 162: killed by signal 34",
    ),
    "no signal": (failed(255), EndKind.FAILED, Why.EXITED, "exit code 255"),
    "memory": (
        failed(137, "OOMKilled"),
        EndKind.OUT_OF_MEMORY,
        Why.OUT_OF_MEMORY,
        "it used more memory than it had asked for",
    ),
    "no such program": (
        failed(128, "StartError", message='exec: "train": not found'),
        EndKind.LAUNCH_FAILED,
        Why.REFUSED,
        'its program could not be started: StartError: exec: "train": not found',
    ),
    "rebooted": (
        failed(137, "ContainerStatusUnknown"),
        EndKind.NODE_FAILED,
        Why.NODE_LOST,
        "its node lost sight of it",
    ),
    "evicted for memory": (
        {"phase": "Failed", "reason": "Evicted", "message": LOW},
        EndKind.OUT_OF_MEMORY,
        Why.OUT_OF_MEMORY,
        f"its node ran out of memory: {LOW}",
    ),
    "evicted for disk": (
        {"phase": "Failed", "reason": "Evicted", "message": DISK},
        EndKind.NODE_FAILED,
        Why.NODE_LOST,
        f"its node evicted it: {DISK}",
    ),
    "evicted for its own disk": (
        {"phase": "Failed", "reason": "Evicted", "message": OWN},
        EndKind.FAILED,
        Why.EXITED,
        f"its node evicted it: {OWN}",
    ),
    "deadline": (
        {"phase": "Failed", "reason": "DeadlineExceeded", "message": "Pod was active too long"},
        EndKind.TIME_LIMIT,
        Why.TIME_LIMIT,
        "its time limit is over: Pod was active too long",
    ),
    "refused by the node": (
        {"phase": "Failed", "reason": "OutOfnvidia.com/gpu", "message": "not enough"},
        EndKind.LAUNCH_FAILED,
        Why.REFUSED,
        "its node refused it: OutOfnvidia.com/gpu: not enough",
    ),
    "device plugin": (
        {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy device"},
        EndKind.LAUNCH_FAILED,
        Why.REFUSED,
        "its node refused it: UnexpectedAdmissionError: no healthy device",
    ),
    "shut down": (
        {"phase": "Failed", "reason": "Terminated", "message": "Pod was terminated"},
        EndKind.NODE_FAILED,
        Why.NODE_LOST,
        "its node was shut down: Pod was terminated",
    ),
    "says nothing": (
        {"phase": "Failed"},
        EndKind.FAILED,
        Why.EXITED,
        "it failed without saying how",
    ),
}


@pytest.mark.parametrize(("status", "kind", "why", "sentence"), ENDS.values(), ids=ENDS)
def test_how_a_pod_ended(status: dict[str, Any], kind: EndKind, why: Why, sentence: str) -> None:
    ending = read_pod(made(status)).ending
    assert ending is not None
    assert (ending.kind, ending.why, ending.sentence) == (kind, why, sentence)


@pytest.mark.parametrize("reason", DISRUPTIONS)
def test_what_was_done_to_a_pod_says_more_than_its_exit(reason: str) -> None:
    more = {"reason": reason, "message": "m", "lastTransitionTime": "1970-01-01T00:00:50Z"}
    ending = read_pod(
        made(failed(143) | {"conditions": [condition("DisruptionTarget", **more)]})
    ).ending
    kind, sentence = DISRUPTIONS[reason]
    assert ending is not None
    assert (ending.kind, ending.ended_s) == (kind, 50.0)
    assert ending.sentence == f"{sentence}: {reason}: m"


def test_a_disruption_of_a_kind_unknown_yet() -> None:
    taken = {"conditions": [condition("DisruptionTarget", reason="New")]}
    ending = read_pod(made(failed(143) | taken)).ending
    assert ending is not None
    assert (ending.kind, ending.ended_s) == (EndKind.PREEMPTED, 100.0)


def test_the_kubelet_says_why_it_ended_a_pod() -> None:
    taken = {"conditions": [condition("DisruptionTarget", reason="TerminationByKubelet")]}
    ending = read_pod(made(failed(143) | taken | {"reason": "Preempting"})).ending
    assert ending is not None
    assert ending.kind is EndKind.PREEMPTED


def test_an_exit_after_a_stop_was_asked_for() -> None:
    ending = read_pod(made(failed(75), deletionTimestamp=AT)).ending
    assert ending is not None
    assert (ending.kind, ending.why) == (EndKind.CANCELLED, Why.STOP_REQUESTED)
    ending = read_pod(made(failed(143), deletionTimestamp=AT)).ending
    assert ending is not None
    assert (ending.kind, ending.why, ending.signal) == (
        EndKind.CANCELLED,
        Why.CANCELLED_AT_SITE,
        15,
    )


def test_of_several_containers_the_first_that_failed_tells() -> None:
    first = container(terminated={"exitCode": 79, "finishedAt": AT})
    later = container(terminated={"exitCode": 1, "finishedAt": "1970-01-01T00:02:00Z"})
    status = {"phase": "Failed", "containerStatuses": [later | {"name": "side"}, first]}
    ending = read_pod(made(status)).ending
    assert ending is not None
    assert (ending.why, ending.exit_code) == (Why.POISONED, 79)


@pytest.mark.parametrize(
    ("code", "told", "signal"), [(0, 0, 0), (1, 0, 0), (137, 0, 9), (255, 0, 0), (1, 15, 15)]
)
def test_signals(code: int, told: int, signal: int) -> None:
    assert signal_of(code, told) == signal


def test_tables_are_whole() -> None:
    assert set(CAUSES) == set(EndKind)
    assert set(EXITS) == {0, 74, 75, 76, 78, 79}
