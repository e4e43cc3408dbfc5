"""Slurm's states, one by one."""

import pytest

from gridloom.sites.slurm.records import Job
from gridloom.sites.slurm.states import (
    JOB_STATES,
    JobEnd,
    JobPhase,
    NodeUse,
    job_end,
    job_phase,
    job_states,
    node_states,
    node_use,
)

ALONE = {
    "PENDING": (JobPhase.WAITING, None),
    "CONFIGURING": (JobPhase.WAITING, None),
    "POWER_UP_NODE": (JobPhase.WAITING, None),
    "REQUEUED": (JobPhase.WAITING, None),
    "REQUEUE_FED": (JobPhase.WAITING, None),
    "EXPEDITING": (JobPhase.WAITING, None),
    "REQUEUE_HOLD": (JobPhase.HELD, None),
    "SPECIAL_EXIT": (JobPhase.HELD, None),
    "RESV_DEL_HOLD": (JobPhase.HELD, None),
    "RUNNING": (JobPhase.RUNNING, None),
    "SIGNALING": (JobPhase.RUNNING, None),
    "RESIZING": (JobPhase.RUNNING, None),
    "SUSPENDED": (JobPhase.PAUSED, None),
    "STOPPED": (JobPhase.PAUSED, None),
    "COMPLETING": (JobPhase.ENDING, None),
    "STAGE_OUT": (JobPhase.ENDING, None),
    "COMPLETED": (JobPhase.ENDED, JobEnd.DONE),
    "FAILED": (JobPhase.ENDED, JobEnd.FAILED),
    "CANCELLED": (JobPhase.ENDED, JobEnd.CANCELLED),
    "REVOKED": (JobPhase.ENDED, JobEnd.CANCELLED),
    "TIMEOUT": (JobPhase.ENDED, JobEnd.TIME_LIMIT),
    "DEADLINE": (JobPhase.ENDED, JobEnd.TIME_LIMIT),
    "NODE_FAIL": (JobPhase.ENDED, JobEnd.NODE_FAILED),
    "PREEMPTED": (JobPhase.ENDED, JobEnd.PREEMPTED),
    "OUT_OF_MEMORY": (JobPhase.ENDED, JobEnd.OUT_OF_MEMORY),
    "BOOT_FAIL": (JobPhase.ENDED, JobEnd.LAUNCH_FAILED),
    "LAUNCH_FAILED": (JobPhase.ENDED, JobEnd.LAUNCH_FAILED),
    "RECONFIG_FAIL": (JobPhase.ENDED, JobEnd.LAUNCH_FAILED),
}


def test_every_state_is_told_of() -> None:
    assert set(ALONE) == {state.name for state in JOB_STATES}
    assert len({state.code for state in JOB_STATES}) == len(JOB_STATES)


@pytest.mark.parametrize("state", JOB_STATES, ids=lambda state: state.name)
def test_a_state_alone_by_name_and_by_code(state: object) -> None:
    assert any(state is known for known in JOB_STATES)
    name, code = state.name, state.code  # type: ignore[attr-defined]
    for said in (name, name.lower(), code):
        phase, end = ALONE[name]
        assert job_states([said]) == (name,)
        assert job_phase([said]) is phase
        assert job_end(Job(job_id=1, states=(said,))) is end


@pytest.mark.parametrize(
    ("states", "reason", "phase", "end"),
    [
        (["RUNNING", "COMPLETING"], "", JobPhase.ENDING, None),
        (["COMPLETED", "COMPLETING"], "", JobPhase.ENDING, None),
        (["RUNNING", "CONFIGURING"], "", JobPhase.WAITING, None),
        (["PENDING", "REQUEUED"], "", JobPhase.WAITING, None),
        (["PENDING"], "JobHeldUser", JobPhase.HELD, None),
        (["PENDING"], "JobHeldAdmin", JobPhase.HELD, None),
        (["PENDING"], "Priority", JobPhase.WAITING, None),
        (["PENDING", "LAUNCH_FAILED"], "", JobPhase.WAITING, None),
        (["REQUEUE_HOLD", "LAUNCH_FAILED"], "", JobPhase.HELD, None),
        (["FAILED", "LAUNCH_FAILED"], "", JobPhase.ENDED, JobEnd.LAUNCH_FAILED),
        (["RUNNING", "SIGNALING"], "", JobPhase.RUNNING, None),
        (["RUNNING", "STOPPED"], "", JobPhase.PAUSED, None),
        (["RUNNING", "SOMETHING_NEW"], "", JobPhase.RUNNING, None),
        (["SOMETHING_NEW"], "", JobPhase.UNKNOWN, None),
        ([], "", JobPhase.UNKNOWN, None),
        (["CANCELLED by 1000"], "", JobPhase.ENDED, JobEnd.CANCELLED),
        (["FAILED"], "NonZeroExitCode", JobPhase.ENDED, JobEnd.FAILED),
        (["FAILED"], "JobLaunchFailure", JobPhase.ENDED, JobEnd.LAUNCH_FAILED),
        (["FAILED"], "NodeDown", JobPhase.ENDED, JobEnd.NODE_FAILED),
        (["FAILED"], "OutOfMemory", JobPhase.ENDED, JobEnd.OUT_OF_MEMORY),
        (["TIMEOUT"], "TimeLimit", JobPhase.ENDED, JobEnd.TIME_LIMIT),
    ],
)
def test_states_together(
    states: list[str], reason: str, phase: JobPhase, end: JobEnd | None
) -> None:
    assert job_phase(states, reason) is phase
    assert job_phase(reversed(states), reason) is phase
    assert job_end(Job(job_id=1, states=tuple(states), reason=reason)) is end


@pytest.mark.parametrize(
    ("said", "names"),
    [
        (["IDLE+DRAIN"], ("IDLE", "DRAIN")),
        (["IDLE", "DRAIN"], ("IDLE", "DRAIN")),
        (["drained*"], ("DRAINED", "NOT_RESPONDING")),
        (["DOWN*+DRAIN"], ("DOWN", "NOT_RESPONDING", "DRAIN")),
        (["idle~"], ("IDLE", "POWERED_DOWN")),
        (["mixed-"], ("MIXED", "PLANNED")),
        (["idle@*"], ("IDLE", "REBOOT_REQUESTED", "NOT_RESPONDING")),
        ([""], ()),
    ],
)
def test_states_of_a_node(said: list[str], names: tuple[str, ...]) -> None:
    assert node_states(said) == names


@pytest.mark.parametrize(
    ("said", "use"),
    [
        ("IDLE", NodeUse.USABLE),
        ("MIXED", NodeUse.USABLE),
        ("MIXED+PLANNED", NodeUse.USABLE),
        ("IDLE+CLOUD", NodeUse.USABLE),
        ("IDLE+CLOUD+POWERED_DOWN", NodeUse.USABLE),
        ("idle#", NodeUse.USABLE),
        ("IDLE+DYNAMIC_NORM", NodeUse.USABLE),
        ("IDLE+SOMETHING_NEW", NodeUse.USABLE),
        ("ALLOCATED", NodeUse.BUSY),
        ("completing", NodeUse.BUSY),
        ("IDLE+COMPLETING", NodeUse.BUSY),
        ("IDLE+RESERVED", NodeUse.BUSY),
        ("idle%", NodeUse.BUSY),
        ("ALLOCATED+REBOOT_REQUESTED", NodeUse.BUSY),
        ("IDLE+BLOCKED", NodeUse.BUSY),
        ("IDLE+DRAIN", NodeUse.DRAINED),
        ("ALLOCATED+DRAIN", NodeUse.DRAINED),
        ("draining", NodeUse.DRAINED),
        ("IDLE+FAIL", NodeUse.DRAINED),
        ("IDLE+MAINTENANCE+RESERVED", NodeUse.DRAINED),
        ("maint", NodeUse.DRAINED),
        ("idle$", NodeUse.DRAINED),
        ("DOWN", NodeUse.DOWN),
        ("DOWN+DRAIN", NodeUse.DOWN),
        ("idle*", NodeUse.DOWN),
        ("reboot^", NodeUse.DOWN),
        ("IDLE+INVALID_REG", NodeUse.DOWN),
        ("FUTURE", NodeUse.DOWN),
        ("UNKNOWN", NodeUse.DOWN),
        ("ERROR", NodeUse.DOWN),
        ("SOMETHING_NEW", NodeUse.DOWN),
        ("", NodeUse.DOWN),
    ],
)
def test_what_a_node_is_good_for(said: str, use: NodeUse) -> None:
    assert node_use([said]) is use
