"""What Slurm's states of jobs and of nodes mean for work of ours (pure).

The names are those of Slurm's page "Job State Codes" and of the manual pages of squeue, sacct and
sinfo, from 20.11 to 25.11. A job has one base state, and flags: text tells only one of them, the
flag before the base.
"""

from collections.abc import Iterable
from enum import IntEnum, StrEnum

import msgspec

from gridloom.sites.slurm.records import Job


class JobPhase(StrEnum):
    """Where a job is, as far as whoever waits for it cares."""

    WAITING = "waiting"
    HELD = "held"
    RUNNING = "running"
    PAUSED = "paused"
    ENDING = "ending"
    ENDED = "ended"
    UNKNOWN = "unknown"


class JobEnd(StrEnum):
    """How a job ended."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIME_LIMIT = "time_limit"
    NODE_FAILED = "node_failed"
    PREEMPTED = "preempted"
    OUT_OF_MEMORY = "out_of_memory"
    LAUNCH_FAILED = "launch_failed"


class NodeUse(IntEnum):
    """What a node is good for; of several that its states say, the largest holds."""

    USABLE = 0
    """New work may start, if enough of it is free."""
    BUSY = 1
    """In service, but all of it is taken, kept for others, or changing."""
    DRAINED = 2
    """Takes no new work, because somebody said so."""
    DOWN = 3
    """Does not work."""


class JobState(msgspec.Struct, frozen=True):
    """One of Slurm's states of jobs.

    Attributes:
        name: As Slurm spells it.
        code: The letters that squeue's short form has for it.
        phase: What it means; of a flag, whatever the base is.
        end: How a job ended that has it; ``None`` of one that has not.
    """

    name: str
    code: str
    phase: JobPhase
    end: JobEnd | None = None


JOB_STATES = (
    # Flags first, in the order in which Slurm's own text prefers them to the base
    JobState("COMPLETING", "CG", JobPhase.ENDING),
    JobState("STAGE_OUT", "SO", JobPhase.ENDING),
    JobState("POWER_UP_NODE", "PU", JobPhase.WAITING),
    JobState("CONFIGURING", "CF", JobPhase.WAITING),
    JobState("RESIZING", "RS", JobPhase.RUNNING),
    JobState("EXPEDITING", "EX", JobPhase.WAITING),
    JobState("REQUEUED", "RQ", JobPhase.WAITING),
    JobState("REQUEUE_FED", "RF", JobPhase.WAITING),
    JobState("REQUEUE_HOLD", "RH", JobPhase.HELD),
    JobState("SPECIAL_EXIT", "SE", JobPhase.HELD),
    JobState("STOPPED", "ST", JobPhase.PAUSED),
    JobState("REVOKED", "RV", JobPhase.ENDED, JobEnd.CANCELLED),
    JobState("RESV_DEL_HOLD", "RD", JobPhase.HELD),
    JobState("SIGNALING", "SI", JobPhase.RUNNING),
    JobState("LAUNCH_FAILED", "LF", JobPhase.ENDED, JobEnd.LAUNCH_FAILED),
    JobState("RECONFIG_FAIL", "NR", JobPhase.ENDED, JobEnd.LAUNCH_FAILED),
    # Base states
    JobState("PENDING", "PD", JobPhase.WAITING),
    JobState("RUNNING", "R", JobPhase.RUNNING),
    JobState("SUSPENDED", "S", JobPhase.PAUSED),
    JobState("COMPLETED", "CD", JobPhase.ENDED, JobEnd.DONE),
    JobState("CANCELLED", "CA", JobPhase.ENDED, JobEnd.CANCELLED),
    JobState("FAILED", "F", JobPhase.ENDED, JobEnd.FAILED),
    JobState("TIMEOUT", "TO", JobPhase.ENDED, JobEnd.TIME_LIMIT),
    JobState("NODE_FAIL", "NF", JobPhase.ENDED, JobEnd.NODE_FAILED),
    JobState("PREEMPTED", "PR", JobPhase.ENDED, JobEnd.PREEMPTED),
    JobState("BOOT_FAIL", "BF", JobPhase.ENDED, JobEnd.LAUNCH_FAILED),
    JobState("DEADLINE", "DL", JobPhase.ENDED, JobEnd.TIME_LIMIT),
    JobState("OUT_OF_MEMORY", "OOM", JobPhase.ENDED, JobEnd.OUT_OF_MEMORY),
)
"""Every state that Slurm has, those that override others first."""

_BY_NAME = {key: state for state in JOB_STATES for key in (state.name, state.code)}
_ORDER = {state.name: at for at, state in enumerate(JOB_STATES)}
_HOLDS = frozenset({"JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "ReservationDeleted"})
_LATE_FLAGS = frozenset({"LAUNCH_FAILED", "RECONFIG_FAIL"})
_ENDS_BY_REASON = {
    "JobLaunchFailure": JobEnd.LAUNCH_FAILED,
    "NodeDown": JobEnd.NODE_FAILED,
    "OutOfMemory": JobEnd.OUT_OF_MEMORY,
    "TimeLimit": JobEnd.TIME_LIMIT,
    "DeadLine": JobEnd.TIME_LIMIT,
}

_NODE_STATES = {
    NodeUse.USABLE: "IDLE MIXED MIX PLANNED PLND CLOUD DYNAMIC_NORM DYNAMIC_FUTURE POWERED_DOWN"
    " POWERING_UP POWER_UP POWER POWER_SAVE UNDRAIN RESUME PERFCTRS NPC EXTERNAL",
    NodeUse.BUSY: "ALLOCATED ALLOC COMPLETING COMP RESERVED RESV RES POWER_DOWN POWERING_DOWN"
    " REBOOT_REQUESTED REBOOT BLOCKED EXCLUSIVE",
    NodeUse.DRAINED: "DRAIN DRAINED DRAINING DRNG FAIL FAILING FAILG POWER_DRAIN MAINTENANCE MAINT",
    NodeUse.DOWN: "DOWN ERROR NOT_RESPONDING NO_RESPOND REBOOT_ISSUED INVALID_REG INVAL FUTURE"
    " UNKNOWN INVALID REBOOT_CANCELED",
}
_USE = {name: use for use, names in _NODE_STATES.items() for name in names.split()}
_SUFFIXES = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}


def job_states(said: Iterable[str]) -> tuple[str, ...]:
    """Return states by their full names, from names or codes, as of ``CANCELLED by 1000``."""
    names = (word.split()[0].upper() for word in said if word.split())
    return tuple(_BY_NAME[name].name if name in _BY_NAME else name for name in names)


def job_phase(states: Iterable[str], reason: str = "") -> JobPhase:
    """Return where a job is; a state nobody knows counts for nothing beside one that is known.

    Args:
        states: Base state and flags, in any order.
        reason: Slurm's code of why it waits: some of those hold the job.
    """
    known = _known(states)
    # What stays on a job that was put back into the queue does not say where it is
    says = [state for state in known if state.name not in _LATE_FLAGS] or known
    if not says:
        return JobPhase.UNKNOWN
    phase = says[0].phase
    return JobPhase.HELD if phase is JobPhase.WAITING and reason in _HOLDS else phase


def job_end(job: Job) -> JobEnd | None:
    """Return how a job ended; ``None`` for one that has not, or of which nobody can tell."""
    if job_phase(job.states, job.reason) is not JobPhase.ENDED:
        return None
    first = next(state.end for state in _known(job.states) if state.end)
    return _ENDS_BY_REASON.get(job.reason, first) if first is JobEnd.FAILED else first


def node_states(said: Iterable[str]) -> tuple[str, ...]:
    """Return states by their names, from ``IDLE+DRAIN``, ``drained*``, or a list of JSON."""
    found: list[str] = []
    for word in said:
        for part in word.upper().split("+"):
            marks = part[len(part.rstrip("".join(_SUFFIXES))) :]
            found += [part.removesuffix(marks), *(_SUFFIXES[mark] for mark in marks)]
    return tuple(dict.fromkeys(name for name in found if name))


def node_use(states: Iterable[str]) -> NodeUse:
    """Return what a node in ``states`` is good for; one in none is down.

    A node in a reservation is busy: whoever may use it asks for the reservation.
    """
    names = node_states(states)
    if not any(name in _USE for name in names):
        return NodeUse.DOWN
    return max(_USE.get(name, NodeUse.USABLE) for name in names)


def _known(states: Iterable[str]) -> list[JobState]:
    """Return the states that are known, those that override others first."""
    names = {name for name in job_states(states) if name in _ORDER}
    return [JOB_STATES[at] for at in sorted(_ORDER[name] for name in names)]
