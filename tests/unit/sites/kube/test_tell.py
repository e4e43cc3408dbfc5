"""What a task waits for, and how a gang has ended, from what a cluster says."""

from typing import Any

import msgspec
import pytest

from gridloom.model.life import Outcome
from gridloom.model.reason import Why
from gridloom.sites.kube.endings import CAUSES, Ending, EndKind
from gridloom.sites.kube.parse_pods import Phase, PodSight
from gridloom.sites.kube.parse_runs import RunPhase, RunSight
from gridloom.sites.kube.parse_workloads import WorkloadSight, WorkloadState, read_workload
from gridloom.sites.kube.tell import Seen, ending, wait_of, why_asked
from gridloom.wire.agent import Who

WHO = Who(job_id="j", attempt=1, epoch=1, domain="hpc/n1", life=1)
RUN = RunSight(kind="Job", name="j-a1", uid="u", labels={}, phase=RunPhase.ACTIVE)


def pod(phase: Phase = Phase.RUNNING, index: int = 0, **more: Any) -> PodSight:
    said: dict[str, Any] = {"uid": "p", "labels": {}, "node": "k1", "address": "10.0.0.7"}
    return PodSight(name=f"j-a1-{index}", index=index, phase=phase, **said | more)


def workload(state: WorkloadState, **more: Any) -> WorkloadSight:
    data = {"metadata": {"name": "w"}, "spec": {}, "status": {}}
    said: dict[str, Any] = {"state": state, "sentence": "Kueue says so"}
    return msgspec.structs.replace(read_workload(data), **said | more)


def end(kind: EndKind, sentence: str = "so it was") -> Ending:
    return Ending(kind=kind, why=CAUSES[kind], sentence=sentence)


WAITS: dict[str, tuple[dict[str, Any], str]] = {
    "not there": ({}, "is being handed to Kubernetes"),
    "unheard": ({"trouble": "no route"}, "Kubernetes cannot be asked: no route"),
    "in a queue": (
        {"run": RUN, "workload": workload(WorkloadState.PENDING)},
        "Kubernetes Job j-a1: Kueue says so",
    ),
    "held": (
        {"run": msgspec.structs.replace(RUN, phase=RunPhase.SUSPENDED, sentence="it is held back")},
        "Kubernetes Job j-a1: it is held back",
    ),
    "without a pod": (
        {"run": RUN, "workload": workload(WorkloadState.ADMITTED)},
        "Kubernetes Job j-a1 has no pod for it yet",
    ),
    "placed": (
        {"run": RUN, "pods": (pod(Phase.PULLING), pod(Phase.RUNNING, 1))},
        "Kubernetes Job j-a1: pod j-a1-0 fetches its image on k1",
    ),
    "not placed": (
        {"run": RUN, "pods": (pod(Phase.UNSCHEDULABLE, node="", sentence="no node takes it now"),)},
        "Kubernetes Job j-a1: pod j-a1-0 unschedulable: no node takes it now",
    ),
}


@pytest.mark.parametrize(("said", "sentence"), WAITS.values(), ids=WAITS)
def test_what_a_task_waits_for(said: dict[str, Any], sentence: str) -> None:
    assert wait_of(Seen(name="j-a1", **said), 0, WHO).sentence == sentence


def test_what_is_not_queued_any_more_has_ended() -> None:
    gone = workload(WorkloadState.DEACTIVATED, eviction_kind=EndKind.LAUNCH_FAILED)
    seen = Seen(name="j-a1", run=RUN, workload=gone)
    assert ending(seen) == end(EndKind.LAUNCH_FAILED, "Kueue says so")
    assert ending(msgspec.structs.replace(seen, pods=(pod(),))) is None, "its pod still runs"


@pytest.mark.parametrize(
    ("whole", "taken", "code"),
    [
        (EndKind.DONE, None, Why.STOP_REQUESTED),
        (EndKind.DONE, EndKind.CANCELLED, Why.CANCELLED_AT_SITE),
        (EndKind.TIME_LIMIT, EndKind.CANCELLED, Why.TIME_LIMIT),
        (EndKind.FAILED, EndKind.CANCELLED, Why.PEER_LOST),
        (EndKind.FAILED, EndKind.NODE_FAILED, Why.NODE_LOST),
        (None, EndKind.PREEMPTED, Why.PREEMPTED),
        (None, EndKind.CANCELLED, None),
        (None, None, None),
    ],
)
def test_why_a_task_was_asked_to_stop(
    whole: EndKind | None, taken: EndKind | None, code: Why | None
) -> None:
    run = msgspec.structs.replace(RUN, ending=end(whole) if whole else None)
    asked = Outcome(code=Why.STOP_REQUESTED, sentence="it stopped", ended_s=1.0)
    found = why_asked(asked, Seen(name="j-a1", run=run), end(taken) if taken else None)
    assert (found.code if found else None) is code
    if found is not None:
        assert found.sentence.endswith("it stopped")
