"""gridloom's own journal as a log."""

from pathlib import Path

import pytest

from gridloom.base.codec import encode
from gridloom.base.errors import InputError
from gridloom.model.action import AnyAction, CloseJob, StartAttempt
from gridloom.model.event import (
    AnyEvent,
    CheckpointSaved,
    InventoryChanged,
    JobSubmitted,
    TaskEnded,
    TaskReady,
    TaskRunning,
)
from gridloom.model.inventory import Inventory, Site
from gridloom.model.life import JobState, Outcome, Placement
from gridloom.model.parallel import ParallelPlan
from gridloom.model.reason import Why
from gridloom.model.spec import Forecast, JobSpec, Option, Program
from gridloom.sim.workload import Workload, journal_inventory, read

JOURNAL = Path(__file__).parents[2] / "journals" / "killed-stopped-resumed.jsonl"
ZERO_S = 1_700_000_000.0


def option(devices: int, step_s: float = 0.0) -> Option:
    return Option(accelerator="h100", plan=ParallelPlan(data=devices), step_s=step_s)


def submitted(*options: Option, **more: object) -> JobSubmitted:
    spec = JobSpec(
        name="train",
        program=Program(argv=("a",), workdir="/"),
        options=options,
        **more,  # type: ignore[arg-type]
    )
    return JobSubmitted(job_id="train-1", spec=spec, submitted_s=ZERO_S + 5)


def start(shape: Option, attempt: int = 1) -> StartAttempt:
    return StartAttempt(
        job_id="train-1",
        attempt=attempt,
        epoch=attempt,
        placement=Placement(option=shape, tasks=()),
        restart_count=attempt - 1,
        lease_until_s=0.0,
    )


def ended(at_s: float, attempt: int = 1) -> TaskEnded:
    outcome = Outcome(code=Why.COMPLETED, sentence="", ended_s=ZERO_S + at_s if at_s else 0.0)
    return TaskEnded(
        job_id="train-1", attempt=attempt, epoch=attempt, domain="s/n", outcome=outcome
    )


def task(kind: type[TaskRunning] = TaskRunning, attempt: int = 1, **more: int) -> AnyEvent:
    return kind(job_id="train-1", attempt=attempt, epoch=attempt, domain="s/n", **more)


def closed(state: JobState = JobState.SUCCEEDED) -> CloseJob:
    return CloseJob(job_id="train-1", state=state)


def journal(*records: tuple[float, list[AnyEvent], list[AnyAction]]) -> str:
    lines = [
        encode({"seq": n, "now_s": ZERO_S + at_s, "seed": 1, "events": e, "actions": a}).decode()
        for n, (at_s, e, a) in enumerate(records, start=1)
    ]
    return "\n".join(lines)


def usual(*options: Option, taken: int = 0, **more: object) -> Workload:
    return read(
        journal(
            (10, [submitted(*options, **more)], [start(options[taken])]),
            (12, [task()], []),
            (15, [task()], []),
            (112, [ended(111)], [closed()]),
        )
    )


def test_a_recorded_journal() -> None:
    workload = read(JOURNAL.read_bytes())
    assert workload.format == "journal"
    assert [(a.job_id, a.state) for a in workload.arrivals] == [
        ("two-sites-9cvj37", "cancelled"), ("waits-rnqpak", "completed"),
    ]  # fmt: skip
    first, second = workload.arrivals
    assert [first.submit_s, second.submit_s] == pytest.approx([0, 7.716], abs=0.001)
    assert second.work_s == pytest.approx(4.992, abs=0.001)  # from its first sign of life
    assert second.spec.sites == ("south",)
    grid = journal_inventory(JOURNAL.read_text())
    assert grid is not None
    assert [site.name for site in grid.sites] == ["north", "south"]


def test_work_is_from_the_first_sign_of_life_to_the_end() -> None:
    (arrival,) = usual(option(8)).arrivals
    assert (arrival.submit_s, arrival.work_s, arrival.row) == (0, 99, 1)
    assert arrival.spec.program.argv == ("a",)
    assert arrival.spec.forecast.duration_s == 99
    assert usual(option(8)).origin_s == ZERO_S + 5


def test_predictions_and_deadlines_stay() -> None:
    (arrival,) = usual(
        option(8), forecast=Forecast(duration_s=50, spread=0.3), deadline_s=ZERO_S + 205
    ).arrivals
    assert (arrival.spec.forecast.duration_s, arrival.spec.forecast.spread) == (50, 0.3)
    assert arrival.spec.deadline_s == 200  # in the workload's own time


@pytest.mark.parametrize(
    ("first", "second", "work_s"),
    [
        (option(8), option(4), 49.5),
        (option(8, 1.0), option(4, 1.5), 66),
        (option(8, 1.0), option(4), 49.5),
    ],
)
def test_work_on_another_shape_counts_at_its_speed(
    first: Option, second: Option, work_s: float
) -> None:
    (arrival,) = usual(first, second, taken=1).arrivals
    assert arrival.work_s == pytest.approx(work_s)


def test_earlier_attempts_count_up_to_their_last_checkpoint() -> None:
    shape = option(8)
    workload = read(
        journal(
            (10, [submitted(shape)], [start(shape)]),
            (20, [task(), task(TaskReady, resumed_step=0)], []),  # type: ignore[arg-type]
            (45, [task(TaskReady, resumed_step=2, life=2)], []),  # type: ignore[arg-type]
            (50, [task(CheckpointSaved, step=3)], []),  # type: ignore[arg-type]
            (60, [ended(0)], [start(shape, 2)]),
            (70, [task(attempt=2)], []),
            (80, [ended(80, 2)], [start(shape, 3)]),
            (90, [task(attempt=3), task(TaskReady, 3, resumed_step=3)], []),  # type: ignore[arg-type]
            (100, [ended(100, 3)], [closed(JobState.FAILED)]),
        )
    )
    (arrival,) = workload.arrivals
    assert arrival.work_s == 30 + 0 + 10
    assert (arrival.state, arrival.fail_after_s) == ("failed", 40)


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ([(1.0, [submitted(option(8))], [])], "unfinished"),
        ([(1.0, [submitted(option(8))], [start(option(8))])], "unfinished"),
        ([(1.0, [submitted(option(8))], [closed(JobState.CANCELLED)])], "never_ran"),
        ([(1.0, [submitted()], [start(option(8)), closed()])], "no_devices"),
        ([(1.0, [submitted(option(0))], [start(option(8)), closed()])], "no_devices"),
        ([(1.0, [submitted(option(8))], [start(option(8)), closed()])], "zero_duration"),
    ],
)
def test_jobs_that_did_not_run_are_dropped(
    records: list[tuple[float, list[AnyEvent], list[AnyAction]]], why: str
) -> None:
    with pytest.raises(InputError, match=rf"log:1: no row is usable \(1 {why}\)"):
        read(journal(*records))


def test_lines_that_are_no_record_are_dropped() -> None:
    good = journal(
        (10, [submitted(option(8))], [start(option(8))]),
        (12, [task(), ended(20)], [closed()]),
    )
    first, second = good.splitlines()
    text = f'{first}\nno JSON\n{{"seq": 2}}\n{"[" * 100_000}\n{second}\n{second[:50]}'
    workload = read(text)
    assert len(workload.arrivals) == 1
    assert [(d.row, d.why) for d in workload.dropped] == [(n, "malformed") for n in (2, 3, 4, 6)]


def test_what_is_told_of_unknown_jobs_is_nothing() -> None:
    text = journal((1, [task(), ended(5)], [start(option(8)), closed()]))
    with pytest.raises(InputError, match="has no jobs"):
        read(text)
    assert journal_inventory(text) is None
    grid = Inventory(sites=(Site(name="a", kind="local", nodes=()),))
    assert journal_inventory(journal((1, [InventoryChanged(inventory=grid)], []))) == grid
