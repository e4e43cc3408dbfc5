"""What actions do: starts, training, saving, ends, and where every device-second goes."""

import math
import statistics
from typing import Any

import pytest
from tests.fakes.scheduler import FakeScheduler
from tests.fakes.simulated import Placing, Played, arrival, grid, option

from gridloom.base.errors import BrokenError
from gridloom.model.action import CloseJob, StartAttempt, StopTask
from gridloom.model.event import (
    CancelRequested,
    CheckpointSaved,
    EvictRequested,
    InventoryChanged,
    JobSubmitted,
    ResumeRequested,
    StopRequested,
    TaskEnded,
    TaskReady,
    TaskRunning,
)
from gridloom.model.life import JobState, Placement, TaskPlacement
from gridloom.model.parallel import SiteSync
from gridloom.model.reason import Reason, Why
from gridloom.model.spec import Forecast, JobSpec, Option, Speed
from gridloom.sim.terms import SimTerms

EVICT = EvictRequested(job_id="j")
REASON = Reason(code=Why.PREEMPTED, sentence="away")


def placed(option: Option, *tasks: tuple[str, int], step_s: float = 0.0) -> Placement:
    """Return a placement on whole nodes, as ``site/node`` with a count."""
    return Placement(
        option=option,
        step_s=step_s,
        tasks=tuple(
            TaskPlacement(
                site=domain.partition("/")[0],
                node=domain.partition("/")[2],
                address=domain,
                devices=tuple(range(count)),
            )
            for domain, count in tasks
        ),
    )


def split(played: Played, job_id: str = "j") -> tuple[float, float, float, float]:
    """Return useful, lost, overhead and all device-seconds."""
    row = played.job(job_id)
    return row.useful_device_s, row.lost_device_s, row.overhead_device_s, row.device_s


def test_a_life_without_friction() -> None:
    played = Played(grid(2, 4), [arrival("j", 5.0, devices=6, work_s=100.0)])
    assert [(one.now_s, [type(e).__name__ for e in one.events]) for one in played.journal] == [
        (5.0, ["InventoryChanged", "JobSubmitted"]),
        (5.0, ["TaskRunning", "TaskRunning", "TaskReady"]),
        (105.0, ["TaskEnded", "TaskEnded"]),
    ]
    assert {e.outcome.code for _, e in played.facts(TaskEnded)} == {Why.COMPLETED}
    row = played.job()
    assert (row.state, row.attempts, row.preemptions) == (JobState.SUCCEEDED, 1, 0)
    assert (row.submit_s, row.first_start_s, row.end_s, row.wait_s) == (5.0, 5.0, 105.0, 0.0)
    assert (row.running_s, row.device_s, row.useful_device_s) == (100.0, 600.0, 600.0)
    assert (row.lost_device_s, row.overhead_device_s) == (0.0, 0.0)
    assert (row.devices, row.sites, row.queue) == (6, ("s",), "")


def test_a_job_waits_for_the_one_in_front() -> None:
    jobs = [arrival("a", 0.0, work_s=50.0), arrival("b", 10.0, work_s=5.0, queue="q")]
    played = Played(grid(1), jobs)
    row = played.job("b")
    assert (row.first_start_s, row.wait_s, row.end_s, row.queue) == (50.0, 40.0, 55.0, "q")
    ends = [record for record in played.journal if record.now_s == 50.0]
    assert [type(event) for event in ends[0].events] == [TaskEnded]


def test_an_end_and_an_arrival_at_one_instant_are_one_step() -> None:
    played = Played(grid(1), [arrival("a", 0.0, work_s=50.0), arrival("b", 50.0, work_s=5.0)])
    steps = [record for record in played.journal if record.now_s == 50.0]
    assert [[type(e) for e in one.events] for one in steps] == [
        [TaskEnded, JobSubmitted],
        [TaskRunning, TaskReady],
    ]
    assert played.job("b").wait_s == 0.0


def test_starting_and_restarting_take_their_time() -> None:
    job = arrival(work_s=100.0, forecast={"restart_s": 20.0, "checkpoint_s": 5.0})
    played = Played(grid(2), [job], (60.0, EVICT), terms=SimTerms(start_s=10.0))
    # 10 s to start, 50 s of training, 5 s to save; 10 s and 20 s to go on, 50 s of training
    assert [at_s for at_s, _ in played.facts(TaskRunning)] == [10.0, 75.0]
    assert [at_s for at_s, _ in played.facts(TaskReady)] == [10.0, 95.0]
    assert [one.resumed_step for _, one in played.facts(TaskReady)] == [0, 50]
    assert played.job().end_s == 145.0
    assert split(played) == (100.0, 0.0, 45.0, 145.0)
    assert (played.job().attempts, played.job().preemptions) == (2, 1)


def test_work_goes_at_the_speed_of_the_place_reached() -> None:
    shape = option(2, step_s=1.0)
    slow, fast = placed(shape, ("s/n0", 2), step_s=2.0), placed(shape, ("s/n0", 2), step_s=0.5)
    for placement, end_s in ((slow, 200.0), (fast, 50.0)):
        machine = Placing({"j": [placement]})
        played = Played(grid(2), [arrival(options=(shape,))], machine=machine)
        assert played.job().end_s == end_s


def test_an_attempt_on_another_option_goes_at_that_one_s_speed() -> None:
    first, other = option(4, step_s=1.0), option(2, step_s=1.6)
    machine = Placing({"j": [placed(other, ("s/n0", 2), step_s=1.6)]})
    played = Played(grid(4), [arrival(options=(first, other))], machine=machine)
    assert played.job().end_s == pytest.approx(160.0)
    assert played.job().device_s == pytest.approx(320.0)


def test_noise_is_each_attempt_s_own_and_log_normal() -> None:
    jobs = [arrival(f"j{i}", float(i), work_s=1000.0) for i in range(2000)]
    terms = SimTerms(noise=0.2, spans=False)
    played = Played(grid(2000), jobs, terms=terms)
    factors = [math.log(row.running_s / 1000.0) for row in played.sim.record.jobs()]
    assert statistics.fmean(factors) == pytest.approx(0.0, abs=0.02)
    assert statistics.stdev(factors) == pytest.approx(0.2, rel=0.06)
    alone = Played(grid(1), [jobs[7]], terms=terms)
    assert alone.job("j7").running_s == pytest.approx(played.job("j7").running_s)
    other = Played(grid(1), [jobs[7]], terms=terms, seed=1)
    assert other.job("j7").running_s != alone.job("j7").running_s


def test_a_saved_stop_keeps_all_work() -> None:
    job = arrival(work_s=100.0, grace_s=30.0, forecast={"checkpoint_s": 30.0})
    played = Played(grid(2), [job], (40.0, EVICT))
    assert played.job().end_s == 130.0
    assert split(played) == (100.0, 0.0, 30.0, 130.0)
    ended = played.facts(TaskEnded)[0][1]
    assert ended.outcome.code is Why.STOP_REQUESTED
    assert "saved its state" in ended.outcome.sentence


def test_a_grace_too_short_loses_work_back_to_the_last_checkpoint() -> None:
    forecast = {"checkpoint_s": 30.0, "checkpoint_every_s": 25.0}
    job = arrival(work_s=100.0, grace_s=29.0, forecast=forecast)
    played = Played(grid(2), [job], (60.0, EVICT))
    # killed at 89 s; the checkpoint of second 30 was complete at second 60
    assert "killed" in played.facts(TaskEnded)[0][1].outcome.sentence
    assert split(played) == (100.0, 30.0, 29.0, 159.0)
    assert played.job().end_s == 159.0


def test_a_stop_before_training_has_nothing_to_save() -> None:
    job = arrival(grace_s=30.0, forecast={"checkpoint_s": 30.0})
    played = Played(grid(2), [job], (5.0, EVICT), terms=SimTerms(start_s=10.0))
    assert [at_s for at_s, _ in played.facts(TaskEnded)] == [5.0, 115.0]
    assert split(played) == (100.0, 0.0, 15.0, 115.0)


def test_a_cancelled_job_loses_what_no_checkpoint_kept() -> None:
    job = arrival(devices=2, forecast={"checkpoint_every_s": 30.0})
    played = Played(grid(2), [job], (50.0, CancelRequested(job_id="j")))
    assert split(played) == (60.0, 40.0, 0.0, 100.0)
    assert (played.job().state, played.job().end_s) == (JobState.CANCELLED, 50.0)


def test_a_job_that_its_user_cancelled_in_the_log_is_cancelled() -> None:
    played = Played(grid(1), [arrival(work_s=70.0, state="cancelled")])
    assert [at_s for at_s, _ in played.facts(CancelRequested)] == [70.0]
    row = played.job()
    assert (row.state, row.running_s, row.lost_device_s) == (JobState.CANCELLED, 70.0, 70.0)


def test_a_program_that_fails() -> None:
    job = arrival(devices=3, work_s=100.0, fail_after_s=30.0, forecast={"checkpoint_every_s": 20})
    played = Played(grid(2, 2), [job])
    ended = [event.outcome for _, event in played.facts(TaskEnded)]
    assert [(one.code, one.exit_code, one.rank) for one in ended] == [(Why.EXITED, 1, 0)] * 2
    assert played.job().state is JobState.FAILED
    assert split(played) == (60.0, 30.0, 0.0, 90.0)


def test_work_done_before_the_time_of_failure_is_not_failed() -> None:
    played = Played(grid(1), [arrival(work_s=20.0, fail_after_s=30.0)])
    assert played.job().state is JobState.SUCCEEDED


def test_a_job_that_never_ends_goes_on() -> None:
    played = Played(grid(1), [arrival(work_s=math.inf)], until_s=500.0)
    row = played.job()
    assert (row.state, row.running_s, row.useful_device_s) == (JobState.RUNNING, 500.0, 500.0)
    assert math.isnan(row.end_s)
    played.sim.run(until_s=700.0)
    assert played.job().running_s == 700.0


def test_periodic_checkpoints_may_stop_training() -> None:
    forecast = {"checkpoint_every_s": 10.0, "checkpoint_s": 4.0}
    terms = SimTerms(checkpoint_stall=0.5, report_checkpoints=True)
    played = Played(grid(2), [arrival(work_s=35.0, devices=2, forecast=forecast)], terms=terms)
    # each stands still for 2 s and is complete 4 s after its begin
    told = [(at_s, one.step) for at_s, one in played.facts(CheckpointSaved)]
    assert told == [(14.0, 10), (26.0, 20), (38.0, 30)]
    assert played.job().end_s == 41.0
    assert split(played) == (70.0, 0.0, 12.0, 82.0)


def test_the_last_checkpoint_of_a_stop_is_told() -> None:
    forecast = {"checkpoint_s": 3.0}
    shape = option(step_s=0.5)
    terms = SimTerms(report_checkpoints=True)
    job = arrival(work_s=35.0, forecast=forecast, options=(shape,))
    played = Played(grid(2), [job], (10.0, EVICT), terms=terms)
    assert [(at_s, one.step) for at_s, one in played.facts(CheckpointSaved)] == [(13.0, 20)]
    assert played.facts(TaskReady)[1][1].resumed_step == 20


def test_stop_and_resume() -> None:
    played = Played(
        grid(1),
        [arrival(work_s=100.0)],
        (30.0, StopRequested(job_id="j")),
        (500.0, ResumeRequested(job_id="j")),
    )
    row = played.job()
    assert (row.state, row.end_s, row.attempts) == (JobState.SUCCEEDED, 570.0, 2)
    assert split(played) == (100.0, 0.0, 0.0, 100.0)


def test_without_memory_of_what_is_over_a_resumed_job_is_an_error() -> None:
    class Eager(FakeScheduler):
        """Starts jobs that the world was promised would be forgotten."""

    with pytest.raises(BrokenError, match="attempt 2 of j is started, which is over and was"):
        Played(
            grid(1),
            [arrival(work_s=100.0)],
            (30.0, StopRequested(job_id="j")),
            (500.0, ResumeRequested(job_id="j")),
            terms=SimTerms(keep_over=False),
            machine=Eager(),
        )


def test_a_stopped_job_stays_stopped_in_the_record() -> None:
    played = Played(grid(1), [arrival(work_s=100.0)], (30.0, StopRequested(job_id="j")))
    row = played.job()
    assert (row.state, row.end_s, row.running_s) == (JobState.STOPPED, 30.0, 30.0)


def test_a_job_that_fits_nowhere_ends_failed() -> None:
    played = Played(grid(2), [arrival("big", devices=3), arrival("j", 1.0)])
    row = played.job("big")
    assert (row.state, row.attempts, row.end_s, row.wait_s) == (JobState.FAILED, 0, 0.0, 0.0)
    assert math.isnan(row.first_start_s)
    assert (row.devices, row.sites) == (3, ())
    assert played.job().state is JobState.SUCCEEDED


def test_stale_orders_change_nothing() -> None:
    class Confused(FakeScheduler):
        """Repeats every order to stop, and gives it to attempts that are over or never were."""

        def step(self, *args: Any) -> list[Any]:
            actions = super().step(*args)
            stops = [one for one in actions if isinstance(one, StopTask)]
            again = StopTask(
                job_id="nobody", attempt=1, epoch=9, domain="s/n0", grace_s=0, reason=REASON
            )
            close = CloseJob(job_id="nobody", state=JobState.FAILED)
            return [*actions, *stops, again, close] if stops else actions

    played = Played(grid(2), [arrival()], (60.0, EVICT), machine=Confused())
    assert played.job().end_s == 100.0
    assert len(played.facts(TaskEnded)) == 2


def test_a_scheduler_that_starts_anew_has_given_the_old_attempt_up() -> None:
    class Hasty(FakeScheduler):
        """Starts a second attempt at 10 s without a word to the first."""

        def step(self, events: Any, now: float, rng: Any) -> list[Any]:
            actions = super().step(events, now, rng)
            job = self.jobs.get("j")
            if now == 10.0 and job and job.attempt == 1 and job.placement:
                self.free = {"s/n0": [0]}
                self.queue["j"] = None
                self._place(now)
            return actions

    played = Played(
        grid(1), [arrival()], (10.0, InventoryChanged(inventory=grid(1))), machine=Hasty()
    )
    row = played.job()
    assert (row.attempts, row.running_s, row.lost_device_s) == (2, 110.0, 10.0)
    assert row.end_s == 110.0


@pytest.mark.parametrize("after_s", [10.0, 32.0])
def test_a_job_that_is_closed_under_way_holds_nothing_any_more(after_s: float) -> None:
    class Rash(FakeScheduler):
        """Closes the job under way, be it training or saving."""

        def step(self, events: Any, now: float, rng: Any) -> list[Any]:
            actions = super().step(events, now, rng)
            closes = any(isinstance(event, InventoryChanged) for event in events) and now > 0
            close = CloseJob(job_id="j", state=JobState.CANCELLED)
            return [*actions, close] if closes else actions

    played = Played(
        grid(1),
        [arrival(forecast={"checkpoint_s": 5.0})],
        (30.0, EVICT),
        (after_s, InventoryChanged(inventory=grid(1))),
        machine=Rash(),
    )
    row = played.job()
    assert (row.state, row.end_s, row.device_s) == (JobState.CANCELLED, after_s, after_s)
    assert played.sim.record.curve()[-1].used == 0
    assert played.sim.now_s == max(after_s, 30.0)


def test_the_grid_may_grow() -> None:
    jobs = [arrival("a", 0.0, work_s=100.0), arrival("b", 0.0, work_s=100.0)]
    played = Played(grid(1), jobs, (20.0, InventoryChanged(inventory=grid(1, 1))))
    assert played.job("b").first_start_s == 20.0
    available = [point.available for point in played.sim.record.curve()]
    assert (available[0], available[-1]) == (1, 2)


class Oracle:
    """Forecasts that know too much, and remember who ended."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, float, JobState]] = []

    def predict_at(self, job_id: str, spec: JobSpec, now_s: float) -> Forecast:
        return Forecast(duration_s=now_s + 7.0)

    def finished(self, job_id: str, spec: JobSpec, run_s: float, state: JobState) -> None:
        assert spec.forecast.duration_s == 3.0
        self.ended.append((job_id, run_s, state))


def test_forecasts_are_asked_at_submission_and_told_at_the_end() -> None:
    oracle = Oracle()
    forecast = {"duration_s": 3.0, "restart_s": 5.0}
    jobs = [arrival("a", 1.0, forecast=forecast), arrival("j", 2.0, forecast=forecast)]
    played = Played(grid(1), jobs, (150.0, EVICT), forecasts=oracle)
    told = [event.spec.forecast for _, event in played.facts(JobSubmitted)]
    assert told == [Forecast(duration_s=8.0), Forecast(duration_s=9.0)]
    # the truth about restarts is the job's own, not the forecast's
    assert oracle.ended == [("a", 100.0, JobState.SUCCEEDED), ("j", 105.0, JobState.SUCCEEDED)]
    assert len(played.actions(StartAttempt)) == 3


def test_jobs_between_sites_share_the_link() -> None:
    """Two jobs on one link: the exposed fifth of each training step takes twice as long."""
    inventory = grid(4, sites=("a", "b"))
    jobs = [
        arrival("j", 0.0, devices=2, work_s=100.0, min_sites=2, max_sites=2),
        arrival("k", 50.0, devices=2, work_s=60.0, min_sites=2, max_sites=2),
    ]
    played = Played(inventory, jobs, terms=SimTerms(link_share=0.2))
    # j: 50 s alone, then 1.2 s a second of work until it is done at 110 s;
    # k: 60 s at that pace make 50 s of work, and 10 s alone
    assert played.job("j").end_s == pytest.approx(110.0)
    assert played.job("k").end_s == pytest.approx(120.0)
    assert played.job("j").sites == ("a", "b")


def test_what_the_planner_predicts_tells_how_much_of_a_step_waits_for_the_link() -> None:
    shape = option(2, step_s=2.0, speeds=(Speed(level="site", step_s=1.0),))
    jobs = [
        arrival(name, 0.0, devices=2, work_s=100.0, min_sites=2, max_sites=2, options=(shape,))
        for name in "jk"
    ]
    played = Played(grid(4, sites=("a", "b")), jobs)
    assert played.job("j").end_s == pytest.approx(150.0)  # half of it takes twice as long


def test_an_exchange_once_in_many_steps_hardly_waits() -> None:
    shape = option(2, plan={"site_sync": SiteSync(kind="outer", every=10)})
    jobs = [
        arrival(name, 0.0, devices=2, work_s=100.0, min_sites=2, max_sites=2, options=(shape,))
        for name in "jk"
    ]
    played = Played(grid(4, sites=("a", "b")), jobs, terms=SimTerms(link_share=0.2))
    assert played.job("j").end_s == pytest.approx(102.0)
