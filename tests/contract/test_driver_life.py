"""Every driver: a task is started once, speaks, ends with the right cause, and can be stopped."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.contract.harness import CLOCK, LONG_S, Control, DriverHarness, eventually, is_alive
from tests.contract.programs import DEAF, SAVES, STAY, python

from gridloom.base.errors import SiteError
from gridloom.model.event import CheckpointSaved, StepReported, TaskEnded, TaskRunning, TaskWaiting
from gridloom.model.reason import Why


def started(harness: DriverHarness, body: str, **more: object) -> Control:
    order = harness.order(python(body), **more)  # type: ignore[arg-type]
    driver = harness.driver()
    assert not driver.submit(harness.site, [order])
    return Control(driver, order)


def test_a_task_is_seen_to_run_to_speak_and_to_end(harness: DriverHarness) -> None:
    speaks = (
        'say("ready"); say("step", step=1); say("step", step=2);'
        'say("checkpoint", step=2, path="/c"); print("done")'
    )
    control = started(harness, speaks)
    outcome = control.end()
    assert (outcome.code, outcome.exit_code) == (Why.COMPLETED, 0)
    kinds = [type(fact) for fact in control.facts if not isinstance(fact, TaskWaiting)]
    assert kinds[0] is TaskRunning, "it may have waited in the site's own queue before"
    assert kinds[-1] is TaskEnded
    assert control.sees(StepReported).step in {1, 2}
    assert [f.step for f in control.facts if isinstance(f, StepReported)][-1] == 2
    assert control.sees(CheckpointSaved).step == 2
    who = {(f.job_id, f.attempt, f.epoch, f.domain) for f in control.facts}  # type: ignore[union-attr]
    assert who == {(control.order.task.job_id, 1, 7, "here/n1")}
    assert Path(control.order.ranks[0].log_file).read_text() == "done\n"


@dataclass(frozen=True)
class Ending:
    """How a program ends, and what is to be said of it."""

    body: str
    code: Why
    exit_code: int
    sentence: str
    remedy: str = ""


FAILURE = 'say("failure", message="no room", remedy="make some");'
ENDINGS = {
    "well": Ending("pass", Why.COMPLETED, 0, "all ranks ended well"),
    "with an error": Ending(
        "print('no such optimizer'); sys.exit(3)",
        Why.EXITED,
        3,
        "rank 0 exited with status 3: no such optimizer",
    ),
    "by a kill": Ending(
        "os.kill(os.getpid(), 9)",
        Why.KILLED,
        -9,
        "rank 0 was killed by SIGKILL (out of memory is a usual cause)",
    ),
    "by a crash": Ending(
        "os.kill(os.getpid(), 11)", Why.KILLED, -11, "rank 0 was killed by SIGSEGV"
    ),
    "without room": Ending(f"{FAILURE} sys.exit(74)", Why.IO, 74, "rank 0: no room", "make some"),
    "misconfigured": Ending(
        f"{FAILURE} sys.exit(78)", Why.CONFIG, 78, "rank 0: no room", "make some"
    ),
    "stopped by itself": Ending(
        "say('ready'); sys.exit(75)", Why.STOP_REQUESTED, 75, "rank 0 saved its state and stopped"
    ),
    "with a code that means nothing of a program that is mute": Ending(
        "sys.exit(75)", Why.EXITED, 75, "rank 0 exited with status 75"
    ),
    "with words that are no text": Ending(
        r"os.write(1, b'\x1b[31mbad \xff\x00byte\x1b[0m\n\r\n'); sys.exit(1)",
        Why.EXITED,
        1,
        "rank 0 exited with status 1: bad \N{REPLACEMENT CHARACTER}byte",
    ),
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS.keys())
def test_an_end_is_told_with_its_cause(harness: DriverHarness, ending: Ending) -> None:
    outcome = started(harness, ending.body).end()
    assert (outcome.code, outcome.exit_code, outcome.sentence, outcome.remedy) == (
        ending.code,
        ending.exit_code,
        ending.sentence,
        ending.remedy,
    )
    assert outcome.rank == 0
    assert abs(outcome.ended_s - CLOCK.now_s()) < LONG_S


def test_the_culprit_is_told_and_not_its_victims(harness: DriverHarness) -> None:
    body = """
if RANK == 1:
    mark("culprit")
    time.sleep(0.1)
    os.kill(os.getpid(), 9)
say("ready")
wait_for("culprit")
sys.exit(76)
"""
    outcome = started(harness, body, ranks=3).end()
    assert (outcome.code, outcome.rank) == (Why.KILLED, 1)


def test_a_victim_is_told_where_there_is_no_culprit(harness: DriverHarness) -> None:
    outcome = started(harness, "say('ready'); sys.exit(76)").end()
    assert (outcome.code, outcome.sentence) == (
        Why.PEER_LOST,
        "rank 0 lost contact with another rank",
    )


def test_one_bad_exit_ends_the_ranks_that_would_stay(harness: DriverHarness) -> None:
    control = started(harness, f"if RANK == 0: wait_for('rank-1'); sys.exit(5)\n{DEAF}", ranks=2)
    (deaf,) = harness.marks(control.order, "rank-1")
    outcome = control.end()
    assert (outcome.code, outcome.rank, outcome.exit_code) == (Why.EXITED, 0, 5)
    assert not is_alive(deaf)


def test_a_program_that_cannot_be_started_is_a_fault_of_the_job(
    harness: DriverHarness, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.write_text("no program")
    cases = {
        "No such file or directory: no-such-program": harness.order(["no-such-program"]),
        "No such file or directory: /no/such/place": harness.order(
            python("pass"), workdir="/no/such/place"
        ),
        f"Permission denied: {data}": harness.order([str(data)]),
        "embedded null byte": harness.order(["python\0"]),
        "illegal environment variable name": harness.order(["true"], env={"A=B": ""}),
    }
    driver = harness.driver()
    for order in cases.values():
        assert not driver.submit(harness.site, [order])
    for what, order in cases.items():
        outcome = Control(driver, order).end()
        assert (outcome.code, outcome.sentence) == (
            Why.CONFIG,
            f"rank 0 cannot be started: {what}",
        )


def test_a_log_that_cannot_be_written_is_a_fault_of_the_disk(harness: DriverHarness) -> None:
    order = harness.order(python("pass"))
    Path(order.ranks[0].log_file).mkdir(parents=True)
    driver = harness.driver()
    assert not driver.submit(harness.site, [order])
    assert Control(driver, order).end().code is Why.IO


def test_a_task_is_started_once(harness: DriverHarness) -> None:
    once = "os.close(os.open(f'{MARKS}/first', os.O_CREAT | os.O_EXCL)); wait_for('go')"
    order = harness.order(python(once))
    drivers = [harness.driver() for _ in range(3)]
    for driver in [*drivers, *drivers]:
        assert not driver.submit(harness.site, [order])
    control = Control(drivers[1], order)
    control.sees(TaskRunning)
    assert not harness.driver().submit(harness.site, [order])
    harness.go(order)
    assert control.end().code is Why.COMPLETED
    for driver in (drivers[0], harness.driver()):
        assert not driver.submit(harness.site, [order])
        assert Control(driver, order).end().code is Why.COMPLETED, "it ended, and is not run again"
    eventually(lambda: not harness.guards(order.task))


def test_a_new_driver_takes_over(harness: DriverHarness) -> None:
    order = harness.order(python(SAVES), lease_s=2.0)
    first = harness.driver()
    assert not first.submit(harness.site, [order])
    harness.marks(order, "rank-0")
    del first
    control = Control(harness.driver(), order)
    assert control.sees(StepReported).step == 7
    until_s = CLOCK.monotonic_s() + order.lease_s * 1.3
    eventually(lambda: control.beat() and CLOCK.monotonic_s() > until_s)
    assert not any(isinstance(fact, TaskEnded) for fact in control.facts), "renewals keep it alive"
    control.driver.stop(order.task, LONG_S, "enough")
    assert control.end().sentence == "enough: rank 0 saved its state and stopped"


def test_an_end_is_repeated_and_never_another(harness: DriverHarness) -> None:
    control = started(harness, "sys.exit(9)")
    outcome = control.end()
    eventually(lambda: not harness.guards(control.order.task))
    for _ in range(3):
        control.beat()
    assert {f.outcome for f in control.facts if isinstance(f, TaskEnded)} == {outcome}


def test_what_was_never_submitted_has_no_news(harness: DriverHarness) -> None:
    assert harness.driver().observe([harness.order(["true"]).task]) == []


def test_a_stop_gives_time_to_save(harness: DriverHarness) -> None:
    control = started(harness, SAVES, ranks=2)
    harness.marks(control.order, "rank-0", "rank-1")
    control.driver.stop(control.order.task, LONG_S, "was asked to stop")
    outcome = control.end()
    assert (outcome.code, outcome.exit_code) == (Why.STOP_REQUESTED, 75)
    assert outcome.sentence == "was asked to stop: rank 0 saved its state and stopped"
    assert control.sees(CheckpointSaved).step == 7


def test_a_stop_kills_what_ignores_it_after_the_grace(harness: DriverHarness) -> None:
    control = started(harness, DEAF)
    (deaf,) = harness.marks(control.order, "rank-0")
    control.driver.stop(control.order.task, 0.3, "was asked to stop")
    outcome = control.end()
    assert outcome.code is Why.STOP_REQUESTED
    assert outcome.sentence == "was asked to stop: not ended within its grace, so killed"
    assert not is_alive(deaf)


def test_a_second_stop_may_shorten_the_grace_and_never_prolongs_it(harness: DriverHarness) -> None:
    control = started(harness, DEAF)
    task = control.order.task
    harness.marks(control.order, "rank-0")
    control.driver.stop(task, LONG_S, "was asked to stop")
    control.sees(TaskRunning)
    control.driver.stop(task, 0.0, "was cancelled")
    control.driver.stop(task, LONG_S, "was asked to stop")
    control.driver.stop(task, 0.0, "was cancelled")
    outcome = control.end()
    assert (outcome.code, outcome.exit_code) == (Why.STOP_REQUESTED, -9)
    assert outcome.sentence.startswith("was cancelled: ")


def test_a_stop_before_the_start_is_obeyed(harness: DriverHarness) -> None:
    order = harness.order(python(DEAF))
    driver = harness.driver()
    driver.stop(order.task, 0.0, "was cancelled")
    assert not driver.submit(harness.site, [order])
    assert Control(driver, order).end().code is Why.STOP_REQUESTED


def test_done_before_the_stop_reached_it_is_done(harness: DriverHarness) -> None:
    body = "on_term(lambda *_: sys.exit(0)); say('ready'); mark('rank-0'); hold()"
    control = started(harness, body)
    harness.marks(control.order, "rank-0")
    control.driver.stop(control.order.task, LONG_S, "was asked to stop")
    assert control.end().code is Why.COMPLETED


def test_a_failure_to_save_is_not_hidden_by_the_stop(harness: DriverHarness) -> None:
    body = f"on_term(lambda *_: ({FAILURE[:-1]}, sys.exit(74))); mark('rank-0'); hold()"
    control = started(harness, body)
    harness.marks(control.order, "rank-0")
    control.driver.stop(control.order.task, LONG_S, "was asked to stop")
    outcome = control.end()
    assert (outcome.code, outcome.sentence) == (Why.IO, "rank 0: no room")


def test_a_lease_that_had_lapsed_starts_nothing(harness: DriverHarness) -> None:
    order = harness.order(python("mark('rank-0')"), lease_s=1.0)
    lapsed = type(order)(
        **{f: getattr(order, f) for f in order.__struct_fields__} | {"lease_until_s": CLOCK.now_s()}
    )
    driver = harness.driver()
    assert not driver.submit(harness.site, [lapsed])
    outcome = Control(driver, order).end()
    assert outcome.code is Why.LEASE_LAPSED
    assert outcome.sentence == "the lease had lapsed before the task was started"
    assert not list(Path(order.env["MARKS"]).iterdir())


def test_a_lease_that_is_not_renewed_ends_the_task(harness: DriverHarness) -> None:
    order = harness.order(python(DEAF), ranks=2, lease_s=1.0)
    driver = harness.driver()
    assert not driver.submit(harness.site, [order])
    deaf = harness.marks(order, "rank-0", "rank-1")
    outcome = Control(driver, order, renews=False).end()
    assert outcome.code is Why.LEASE_LAPSED
    assert outcome.sentence == (
        "the control plane has not renewed the lease: not ended within its grace, so killed"
    )
    assert not any(map(is_alive, deaf))


def test_a_site_refuses_with_a_reason(harness: DriverHarness) -> None:
    order = harness.order(python(STAY))
    harness.spoil(order)
    reason = harness.driver().submit(harness.site, [order])[order.task]
    assert reason.code is Why.IO
    assert reason.sentence.startswith("the task cannot be started: ")
    assert reason.remedy
    with pytest.raises(SiteError):
        harness.driver().renew(order.task, 0.0)
    with pytest.raises(SiteError):
        harness.driver().stop(order.task, 0.0, "")
    assert harness.driver().observe([order.task]) == []
