"""From a supervisor's reports to facts (pure)."""

from collections.abc import Iterable

import msgspec

from gridloom.model.event import (
    AnyEvent,
    CheckpointSaved,
    StepReported,
    TaskArrived,
    TaskEnded,
    TaskReady,
    TaskRunning,
)
from gridloom.model.life import Outcome
from gridloom.wire.agent import TaskRef, who
from gridloom.wire.reports import (
    REPORTS,
    Alive,
    AnyReport,
    Arrived,
    CheckpointSeen,
    Ended,
    ReadySeen,
    StepSeen,
)

_IN_ORDER = (Arrived, Alive, ReadySeen, StepSeen, CheckpointSeen, Ended)


def events(task: TaskRef, lines: Iterable[bytes]) -> list[AnyEvent]:
    """Return the facts that ``lines`` report of ``task``.

    A line that a crash cut short says nothing. Of heartbeats, steps and checkpoints only the last
    of each kind counts, because the later include the earlier.
    """
    latest: dict[type, AnyEvent] = {}
    for line in lines:
        try:
            report = REPORTS.decode(line)
        except msgspec.MsgspecError:
            continue
        if report.epoch == task.epoch:
            latest[type(report)] = _event(task, report)
    return [latest[kind] for kind in _IN_ORDER if kind in latest]


def ended(task: TaskRef, outcome: Outcome) -> TaskEnded:
    """Return the fact that nothing of ``task`` is left."""
    return TaskEnded(**who(task), outcome=outcome)


def _event(task: TaskRef, report: AnyReport) -> AnyEvent:
    about = who(task)
    match report:
        case Arrived():
            return TaskArrived(**about, arrival=report.arrival)
        case Alive():
            return TaskRunning(**about)
        case ReadySeen():
            return TaskReady(
                **about,
                resumed_step=report.resumed_step,
                notes=report.notes,
                independent_sites=report.independent_sites,
            )
        case StepSeen():
            return StepReported(**about, step=report.step)
        case CheckpointSeen():
            return CheckpointSaved(**about, step=report.step)
        case Ended():
            return ended(task, report.outcome)
