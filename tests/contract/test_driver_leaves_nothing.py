"""Every driver: whatever ends a task, none of its processes survives, however it hides."""

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest
from tests.contract.harness import (
    CLOCK,
    LONG_S,
    Control,
    DriverHarness,
    LocalHarness,
    eventually,
    is_alive,
    signal_all,
)
from tests.contract.programs import DEAF, HIDES, HIDES_WELL, python

from gridloom.model.reason import Why

HIDDEN = ("rank-0", "child", "session", "daemon")
WELL_HIDDEN = (*HIDDEN, "bare")

Finish = Callable[[DriverHarness, Control, Sequence[psutil.Process]], None]


def end_well(harness: DriverHarness, control: Control, guards: Sequence[psutil.Process]) -> None:
    harness.go(control.order)


def stop(harness: DriverHarness, control: Control, guards: Sequence[psutil.Process]) -> None:
    control.driver.stop(control.order.task, 0.2, "stop")


def kill(harness: DriverHarness, control: Control, guards: Sequence[psutil.Process]) -> None:
    control.driver.stop(control.order.task, 0.0, "kill")


def do_not_renew(
    harness: DriverHarness, control: Control, guards: Sequence[psutil.Process]
) -> None:
    pass


def kill_supervisor(
    harness: DriverHarness, control: Control, guards: Sequence[psutil.Process]
) -> None:
    signal_all(guards[-1:], signal.SIGKILL)


def freeze_supervisor(
    harness: DriverHarness, control: Control, guards: Sequence[psutil.Process]
) -> None:
    signal_all(guards[-1:], signal.SIGSTOP)


def kill_guardian_and_end(
    harness: DriverHarness, control: Control, guards: Sequence[psutil.Process]
) -> None:
    signal_all(guards[:-1], signal.SIGKILL)
    harness.go(control.order)


def terminate(harness: DriverHarness, control: Control, guards: Sequence[psutil.Process]) -> None:
    signal_all(guards[:1], signal.SIGTERM)


FINISHES: dict[str, tuple[Finish, Why, float]] = {
    "a good end": (end_well, Why.COMPLETED, LONG_S),
    "a stop": (stop, Why.STOP_REQUESTED, LONG_S),
    "a kill": (kill, Why.STOP_REQUESTED, LONG_S),
    "SIGTERM of the node's operator": (terminate, Why.STOP_REQUESTED, LONG_S),
    "a lapsed lease": (do_not_renew, Why.LEASE_LAPSED, 2.0),
    "SIGKILL of the supervisor": (kill_supervisor, Why.SUPERVISOR_LOST, LONG_S),
    "a supervisor that hangs": (freeze_supervisor, Why.SUPERVISOR_LOST, 2.0),
    "SIGKILL of the guardian, then a good end": (kill_guardian_and_end, Why.COMPLETED, LONG_S),
}


@pytest.mark.slow
@pytest.mark.parametrize(("finish", "code", "lease_s"), FINISHES.values(), ids=FINISHES.keys())
def test_nothing_survives(
    harness: DriverHarness, finish: Finish, code: Why, lease_s: float
) -> None:
    order = harness.order(python(HIDES_WELL), lease_s=lease_s, lapse_grace_s=0.2)
    driver = harness.driver()
    assert not driver.submit(harness.site, [order])
    processes = harness.marks(order, *WELL_HIDDEN)
    control = Control(driver, order, renews=False)
    guards = harness.guards(order.task)
    finish(harness, control, guards)
    if finish is kill_guardian_and_end and not harness.outlives_guardian:
        code = Why.SUPERVISOR_LOST
    assert control.end().code is code
    assert not [process for process in processes if is_alive(process)]
    eventually(lambda: not any(map(is_alive, guards)))


@pytest.mark.slow
def test_nothing_survives_the_loss_of_supervisor_and_guardian(harness: DriverHarness) -> None:
    order = harness.order(python(HIDES))
    first = harness.driver()
    assert not first.submit(harness.site, [order])
    rank, *hidden = harness.marks(order, *HIDDEN)
    guards = harness.guards(order.task)
    assert len(guards) == 2
    signal_all(guards, signal.SIGKILL)
    eventually(lambda: not is_alive(rank))  # the kernel does that, with no driver to look
    second = harness.driver()
    assert not second.submit(harness.site, [order]), "what was started is not started again"
    outcome = Control(second, order).end()
    assert outcome.code is Why.SUPERVISOR_LOST
    assert outcome.sentence.startswith("the supervisor of here/n1 is gone without a word")
    assert "supervisor.log" in outcome.remedy
    assert not [process for process in hidden if is_alive(process)]
    assert not harness.guards(order.task)


def test_what_was_killed_before_its_first_rank_ran_counts_as_started(
    harness: DriverHarness,
) -> None:
    order = harness.order(python("mark('rank-0')"))
    log_file = Path(order.ranks[0].log_file)
    log_file.parent.mkdir(parents=True)
    os.mkfifo(log_file)  # holds the supervisor up when it opens that, until somebody reads
    assert not harness.driver().submit(harness.site, [order])
    eventually(lambda: len(harness.guards(order.task)) == 2)
    guards = harness.guards(order.task)
    signal_all(guards, signal.SIGKILL)
    log_file.unlink()
    driver = harness.driver()
    eventually(lambda: not any(map(is_alive, guards)))
    assert not driver.submit(harness.site, [order])
    assert Control(driver, order).end().code is Why.SUPERVISOR_LOST
    assert not list(Path(order.env["MARKS"]).iterdir())


@pytest.mark.slow
def test_all_is_gone_within_ten_seconds_of_the_control_plane(tmp_path: Path) -> None:
    """The terms that the core reckons with: a lease of 6 s and a margin of 4 s."""
    harness = LocalHarness(tmp_path)
    order = harness.order(python(f"{HIDES_WELL};{DEAF}"), lease_s=6.0, lapse_grace_s=2.4)
    try:
        with subprocess.Popen(harness.plane(order)) as plane:
            harness.go(order)  # it goes on after hiding, deaf to SIGTERM
            processes = harness.marks(order, *WELL_HIDDEN)
            guards = harness.guards(order.task)
            plane.kill()
        killed_s = CLOCK.monotonic_s()
        eventually(lambda: not any(map(is_alive, [*processes, *guards])), within_s=10.0)
        took_s = CLOCK.monotonic_s() - killed_s
        assert took_s > 6.0, "it had its lease to the end"
        assert Control(harness.driver(), order).end().code is Why.LEASE_LAPSED
    finally:
        harness.close()


@pytest.mark.slow
def test_a_resubmission_at_any_moment_starts_nothing_twice(harness: DriverHarness) -> None:
    """Control planes that submit and are killed, one after the other, and one that stays."""
    body = "os.close(os.open(f'{MARKS}/first', os.O_CREAT | os.O_EXCL)); mark('rank-0'); hold()"
    order = harness.order(python(body))
    argv = harness.plane(order)
    for delay_s in (0.15, 0.25, 0.35, 0.45):
        with subprocess.Popen(argv) as plane:
            CLOCK.sleep(delay_s)
            plane.kill()
    driver = harness.driver()
    assert not driver.submit(harness.site, [order])
    driver.observe([order.task])
    (rank,) = harness.marks(order, "rank-0")
    eventually(lambda: len(harness.guards(order.task)) == 2)
    assert is_alive(rank), "a second start would have failed, and ended the task"
    driver.stop(order.task, 0.0, "enough")
    assert Control(driver, order).end().code is Why.STOP_REQUESTED
