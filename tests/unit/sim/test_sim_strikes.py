"""What faults do, to the second, and what the scheduler is told of them."""

import math
from typing import Any

import pytest
from msgspec.structs import replace
from tests.fakes.scheduler import FakeScheduler
from tests.fakes.simulated import Played, arrival, grid

from gridloom.core.turn import LeaseTerms
from gridloom.model.action import RenewLease, StartAttempt, StopTask
from gridloom.model.event import (
    BookingDropped,
    BookingMade,
    CancelRequested,
    EvictRequested,
    NodeMarked,
    TaskEnded,
    TaskReady,
    TaskRefused,
    TaskRunning,
)
from gridloom.model.life import JobState
from gridloom.model.reason import Why
from gridloom.sim.engine import NEVER_S
from gridloom.sim.faults import Fault
from gridloom.sim.terms import SimTerms

CHECKPOINTS = {"checkpoint_every_s": 10.0}


def down(at_s: float, domain: str, duration_s: float = 0.0) -> Fault:
    return Fault(at_s=at_s, kind="down", domain=domain, duration_s=duration_s)


def marks(played: Played) -> list[tuple[float, str, str]]:
    return [(at_s, event.domain, event.mark) for at_s, event in played.facts(NodeMarked)]


def ends(played: Played) -> list[tuple[float, str, Why]]:
    return [(at_s, one.domain, one.outcome.code) for at_s, one in played.facts(TaskEnded)]


def test_a_node_goes_down_and_its_gang_with_it() -> None:
    job = arrival(devices=2, work_s=100.0, forecast=CHECKPOINTS)
    played = Played(grid(1, 1, 2), [job], faults=[down(45.0, "s/n1", 300.0)])
    assert marks(played) == [(55.0, "s/n1", "lost")]
    assert ends(played)[:2] == [(55.0, "s/n1", Why.NODE_LOST), (55.0, "s/n0", Why.STOP_REQUESTED)]
    row = played.job()
    # 45 s of training of which 40 are kept, 10 s until it is known, 60 s for the rest
    assert (row.attempts, row.end_s) == (2, 115.0)
    assert (row.useful_device_s, row.lost_device_s, row.overhead_device_s) == (200.0, 10.0, 20.0)


def test_a_lost_node_counts_as_available_while_it_is_held_and_comes_back() -> None:
    jobs = [arrival("a", work_s=20.0), arrival("b", 1.0, devices=3, work_s=30.0)]
    played = Played(grid(1, 2), jobs, faults=[down(5.0, "s/n1", 50.0)])
    curve = [(one.at_s, one.used, one.available) for one in played.sim.record.curve()]
    assert (15.0, 1, 1) in curve  # the loss is known, n1 is free and gone
    assert (55.0, 3, 3) in curve
    assert all(used <= available for _, used, available in curve)
    assert marks(played) == [(15.0, "s/n1", "lost"), (55.0, "s/n1", "")]


def test_a_blip_shorter_than_the_detection_loses_the_work_all_the_same() -> None:
    played = Played(grid(1), [arrival(work_s=100.0)], faults=[down(50.0, "s/n0", 4.0)])
    assert marks(played) == [(54.0, "s/n0", "lost"), (54.0, "s/n0", "")]
    assert played.job().end_s == 154.0
    assert played.job().lost_device_s == 50.0


def test_a_whole_site_goes_down_and_nodes_keep_their_own_marks() -> None:
    faults = [down(10.0, "a/n0", 100.0), down(20.0, "a", 30.0), down(25.0, "a/n1", 5.0)]
    played = Played(
        grid(1, 1, sites=("a",)),
        [arrival(devices=2, work_s=500.0)],
        faults=faults,
        terms=SimTerms(detect_s=0.0),
    )
    assert marks(played) == [
        (10.0, "a/n0", "lost"),
        (20.0, "a", "lost"),
        (20.0, "a/n0", "lost"),
        (25.0, "a/n1", "lost"),
        (50.0, "a", ""),
        (50.0, "a/n0", "lost"),
        (50.0, "a/n1", ""),
        (110.0, "a/n0", ""),
    ]
    assert played.job().first_start_s == 0.0
    assert played.job().end_s == 610.0


def test_a_start_on_a_node_that_is_down_and_not_yet_known_to_be() -> None:
    played = Played(grid(1), [arrival("j", 52.0)], faults=[down(50.0, "s/n0", 100.0)])
    assert ends(played)[0] == (60.0, "s/n0", Why.NODE_LOST)
    assert played.job().end_s == 250.0
    assert played.job().overhead_device_s == 8.0


def test_a_start_on_a_node_known_to_be_down_ends_at_once() -> None:
    class Blind(FakeScheduler):
        """Does not look at marks until it failed."""

        def place(self, job_id: str) -> Any:
            marks = self.marks
            self.marks = marks if self.jobs[job_id].attempt else {}
            placement = super().place(job_id)
            self.marks = marks
            return placement

    played = Played(grid(1, 1), [arrival("j", 70.0)], faults=[down(0.0, "s/n0")], machine=Blind())
    assert ends(played)[0] == (70.0, "s/n0", Why.NODE_LOST)
    assert (played.job().attempts, played.job().end_s) == (2, 170.0)


def test_spot_capacity_is_drained_on_notice_and_then_gone() -> None:
    fault = Fault(at_s=100.0, kind="reclaim", domain="s/n0", duration_s=200.0, notice_s=30.0)
    jobs = [arrival("j", work_s=150.0, forecast=CHECKPOINTS), arrival("k", 80.0, work_s=1.0)]
    played = Played(grid(1), jobs, faults=[fault])
    assert marks(played) == [(70.0, "s/n0", "drain"), (100.0, "s/n0", "lost"), (300.0, "s/n0", "")]
    assert ends(played)[0] == (100.0, "s/n0", Why.NODE_LOST)
    assert played.job("k").wait_s > 200.0
    assert played.job().lost_device_s == 0.0
    without = Fault(at_s=100.0, kind="reclaim", domain="s/n0", duration_s=200.0)
    assert marks(Played(grid(1), jobs, faults=[without]))[0] == (100.0, "s/n0", "lost")


def test_maintenance_is_booked_ahead_and_drains() -> None:
    fault = Fault(at_s=50.0, kind="maintenance", domain="s", duration_s=10.0, notice_s=20.0)
    played = Played(grid(1), [arrival(work_s=100.0)], faults=[fault])
    at_s, made = played.facts(BookingMade)[0]
    booking = made.booking
    assert (at_s, booking.start_s, booking.end_s, booking.nodes) == (30.0, 50.0, 60.0, ("s",))
    assert [(t, one.name) for t, one in played.facts(BookingDropped)] == [(60.0, booking.name)]
    assert marks(played) == [(50.0, "s", "drain"), (60.0, "s", "")]
    assert played.job().end_s == 100.0  # whether work moves is for the scheduler to say
    forever = Fault(at_s=50.0, kind="maintenance", domain="s", notice_s=90.0)
    played = Played(grid(1), [arrival(work_s=100.0)], faults=[forever])
    at_s, made = played.facts(BookingMade)[0]
    assert (at_s, made.booking.end_s) == (0.0, NEVER_S)
    assert (
        Played(
            grid(1),
            [arrival()],
            faults=[Fault(at_s=50.0, kind="maintenance", domain="s", duration_s=5.0)],
        ).facts((BookingMade, BookingDropped))
        == []
    )


def test_killed_processes_leave_the_node_well() -> None:
    fault = Fault(at_s=30.0, kind="kill", domain="s/n0")
    played = Played(grid(1, 1), [arrival(devices=2, work_s=100.0)], faults=[fault])
    assert ends(played)[:2] == [(30.0, "s/n0", Why.KILLED), (30.0, "s/n1", Why.STOP_REQUESTED)]
    assert marks(played) == []
    assert (played.job().end_s, played.job().lost_device_s) == (130.0, 60.0)


def test_a_site_that_starts_nothing() -> None:
    fault = Fault(at_s=0.0, kind="refuse", domain="a", duration_s=50.0)

    class Patient(FakeScheduler):
        """Tries the other site after a refusal."""

        def place(self, job_id: str) -> Any:
            self.marks["a"] = "taint" if any(isinstance(e, TaskRefused) for e in self.seen) else ""
            return super().place(job_id)

    played = Played(
        grid(1, sites=("a", "b")),
        [arrival()],
        faults=[fault],
        machine=Patient(),
        terms=SimTerms(start_s=3.0),
    )
    told = played.facts(TaskRefused)
    assert [(at_s, one.domain, one.reason.code) for at_s, one in told] == [
        (3.0, "a/n0", Why.REFUSED)
    ]
    assert (played.job().attempts, played.job().end_s) == (2, 106.0)
    late = Played(grid(1, sites=("a", "b")), [arrival("j", 50.0)], faults=[fault])
    assert late.facts(TaskRefused) == []


def test_a_gang_goes_at_the_pace_of_its_slowest_node() -> None:
    faults = [
        Fault(at_s=20.0, kind="slow", domain="s/n0", duration_s=40.0, factor=2.0),
        Fault(at_s=30.0, kind="slow", domain="s/n1", duration_s=10.0, factor=4.0),
        Fault(at_s=30.0, kind="slow", domain="s/n2", duration_s=10.0, factor=9.0),
    ]
    played = Played(grid(1, 1, 1), [arrival(devices=2, work_s=100.0)], faults=faults)
    # 20 s at 1, 10 s at 1/2, 10 s at 1/4, 20 s at 1/2, the rest at 1
    assert played.job().end_s == pytest.approx(60.0 + 100.0 - 20 - 5 - 2.5 - 10)
    assert played.job().useful_device_s == pytest.approx(2 * played.job().running_s)


def test_slow_sites_and_nodes_multiply() -> None:
    faults = [
        Fault(at_s=0.0, kind="slow", domain="s", factor=2.0),
        Fault(at_s=0.0, kind="slow", domain="s/n0", factor=3.0),
    ]
    assert Played(grid(1), [arrival()], faults=faults).job().end_s == pytest.approx(600.0)


TWO = grid(4, sites=("a", "b"))


def wide(job_id: str = "j", submit_s: float = 0.0, **more: Any) -> Any:
    return arrival(job_id, submit_s, devices=2, min_sites=2, max_sites=2, **more)


def test_a_narrow_link_stretches_what_waits_for_it() -> None:
    fault = Fault(at_s=0.0, kind="slow", domain="b|a", duration_s=60.0, factor=6.0)
    played = Played(TWO, [wide()], faults=[fault], terms=SimTerms(link_share=0.2))
    assert played.job().end_s == pytest.approx(60.0 + 100.0 - 30.0)  # twice as slow for 60 s
    within = Played(TWO, [arrival()], faults=[fault])
    assert within.job().end_s == 100.0


def test_a_cut_link_lets_jobs_between_stand_still() -> None:
    fault = Fault(at_s=30.0, kind="cut", domain="a|b", duration_s=500.0)
    played = Played(TWO, [wide()], faults=[fault])
    assert played.job().end_s == 600.0
    assert played.job().overhead_device_s == 1000.0
    assert marks(played) == []
    forever = Played(TWO, [wide()], faults=[Fault(at_s=30.0, kind="cut", domain="a|b")])
    assert forever.job().state is JobState.RUNNING  # nothing will ever happen to it
    assert forever.sim.now_s == 30.0


def test_a_short_cut_of_a_site_delays_its_news_only() -> None:
    fault = Fault(at_s=95.0, kind="cut", domain="a", duration_s=9.0)
    played = Played(TWO, [arrival("j"), wide("w", work_s=200.0)], faults=[fault])
    assert ends(played)[0] == (104.0, "a/n0", Why.COMPLETED)
    assert played.job("j").running_s == 104.0
    assert played.job("w").end_s == 209.0
    assert marks(played) == []


def test_a_long_cut_of_a_site_lets_its_leases_lapse() -> None:
    fault = Fault(at_s=50.0, kind="cut", domain="a", duration_s=300.0)
    job = arrival("j", forecast=CHECKPOINTS)
    played = Played(TWO, [job, wide("w", 1.0, work_s=200.0)], faults=[fault])
    assert marks(played) == [(60.0, "a", "lost"), (350.0, "a", "")]
    told = ends(played)
    assert told[:2] == [(60.0, "a/n0", Why.LEASE_LAPSED), (60.0, "a/n0", Why.LEASE_LAPSED)]
    # j went on at site b from the checkpoint of second 50, complete as soon as it began
    assert (played.job("j").attempts, played.job("j").end_s) == (2, 100.0)
    assert played.job("j").useful_device_s == 100.0
    assert played.job("w").first_start_s == 1.0
    assert (played.job("w").end_s, played.job("w").lost_device_s) == (550.0, 98.0)


def test_what_ended_unheard_in_a_long_cut_is_done_in_no_time() -> None:
    fault = Fault(at_s=95.0, kind="cut", domain="a", duration_s=300.0)
    played = Played(TWO, [arrival()], faults=[fault])
    assert [code for _, _, code in ends(played)] == [Why.LEASE_LAPSED, Why.COMPLETED]
    assert (played.job().end_s, played.job().useful_device_s) == (105.0, 100.0)


def test_orders_and_starts_reach_a_cut_site_when_it_is_back() -> None:
    fault = Fault(at_s=10.0, kind="cut", domain="a", duration_s=8.0)
    jobs = [arrival("j", devices=4, work_s=100.0), arrival("k", 12.0, devices=5, work_s=50.0)]
    cancel, evict = CancelRequested(job_id="j"), EvictRequested(job_id="j")
    played = Played(grid(4, sites=("a",)), jobs[:1], (12.0, cancel), faults=[fault])
    assert ends(played) == [(18.0, "a/n0", Why.STOP_REQUESTED)]
    assert played.job().state is JobState.CANCELLED
    played = Played(grid(4, sites=("a",)), jobs[:1], (12.0, evict), faults=[fault])
    assert ends(played)[0] == (18.0, "a/n0", Why.STOP_REQUESTED)
    assert played.job().end_s == 100.0
    late = Played(
        grid(4, sites=("a", "b")),
        [arrival("k", 12.0, devices=5, work_s=50.0)],
        faults=[fault],
        terms=SimTerms(start_s=1.0),
    )
    told = late.facts((TaskRunning, TaskReady))
    assert [(at_s, one.domain) for at_s, one in told] == [
        (13.0, "b/n0"),
        (19.0, "a/n0"),
        (19.0, "a/n0"),
    ]
    assert late.job("k").end_s == 69.0


def test_a_gang_that_is_cut_apart_cannot_save() -> None:
    fault = Fault(at_s=30.0, kind="cut", domain="a", duration_s=9.0)
    job = wide(forecast={"checkpoint_s": 1.0}, grace_s=4.0)
    played = Played(TWO, [job], (32.0, EvictRequested(job_id="j")), faults=[fault])
    assert ends(played)[:2] == [
        (36.0, "b/n0", Why.STOP_REQUESTED),
        (43.0, "a/n0", Why.STOP_REQUESTED),  # its grace began when the order arrived
    ]
    assert played.job().lost_device_s == 60.0


def test_a_node_lost_while_saving_spoils_what_is_saved() -> None:
    job = arrival(devices=2, forecast={"checkpoint_s": 20.0}, grace_s=30.0)
    played = Played(
        grid(1, 1, 2),
        [job],
        (30.0, EvictRequested(job_id="j")),
        faults=[down(40.0, "s/n1")],
        terms=SimTerms(detect_s=5.0),
    )
    assert ends(played)[:2] == [
        (45.0, "s/n1", Why.NODE_LOST),
        (50.0, "s/n0", Why.STOP_REQUESTED),
    ]
    assert played.job().lost_device_s == 60.0


def test_a_stop_of_a_gang_that_is_broken_takes_its_grace() -> None:
    job = arrival(devices=2, grace_s=15.0)
    played = Played(
        grid(1, 1, 2),
        [job],
        (32.0, EvictRequested(job_id="j")),
        faults=[down(30.0, "s/n1")],
        terms=SimTerms(detect_s=5.0),
    )
    assert ends(played)[:2] == [
        (35.0, "s/n1", Why.NODE_LOST),
        (47.0, "s/n0", Why.STOP_REQUESTED),
    ]


def test_faults_before_the_first_job_are_in_force_or_over() -> None:
    faults = [
        down(0.0, "s/n0"),
        down(10.0, "s/n1", 5.0),
        Fault(at_s=90.0, kind="slow", domain="s", duration_s=30.0, factor=2.0),
    ]
    played = Played(grid(1, 1), [arrival("j", 100.0)], faults=faults, terms=SimTerms(detect_s=0.0))
    assert marks(played) == [(100.0, "s/n0", "lost")]
    assert [span.domain for span in played.sim.record.spans()] == ["s/n1"]
    assert played.job().end_s == 210.0


def test_marks_by_hand() -> None:
    played = Played(
        grid(1, 1),
        [arrival("j", work_s=100.0), arrival("k", 40.0, work_s=10.0)],
        (10.0, NodeMarked(domain="s/n1", mark="cordon")),
        (20.0, NodeMarked(domain="s/n0", mark="lost", sentence="burnt")),
        (60.0, NodeMarked(domain="s/n1", mark="")),
        (70.0, NodeMarked(domain="s/n0", mark="")),
    )
    assert marks(played) == [
        (10.0, "s/n1", "cordon"),
        (20.0, "s/n0", "lost"),
        (60.0, "s/n1", ""),
        (70.0, "s/n0", ""),
    ]
    assert ends(played)[0] == (20.0, "s/n0", Why.NODE_LOST)
    assert (played.job().end_s, played.job("k").first_start_s) == (160.0, 70.0)


LEASES = SimTerms(detect_s=5.0, heartbeat_s=2.0, lease=LeaseTerms(lease_s=6.0, kill_margin_s=4.0))


class Leasing(FakeScheduler):
    """Takes tasks for dead when their lease has lapsed, as the core does."""

    def __init__(self) -> None:
        super().__init__(lease_s=6.0)
        self.leases: dict[tuple[str, str], float] = {}

    def step(self, events: Any, now: float, rng: Any) -> list[Any]:
        for (job_id, domain), until_s in list(self.leases.items()):
            job = self.jobs.get(job_id)
            if job is None or domain not in job.live:
                del self.leases[job_id, domain]
            elif now >= until_s + 4.0:
                del job.live[domain], self.leases[job_id, domain]
                job.failed = Why.LEASE_LAPSED
                if not job.live:
                    self._close(job_id, job)
        actions = super().step(events, now, rng)
        for action in actions:
            if isinstance(action, StartAttempt):
                for task in action.placement.tasks:
                    self.leases[action.job_id, task.domain] = action.lease_until_s
            elif isinstance(action, RenewLease):
                self.leases[action.job_id, action.domain] = action.lease_until_s
        return actions

    def next_timer_s(self, until_s: float = math.inf) -> float | None:
        return min((until_s + 4.0 for until_s in self.leases.values()), default=None)


def test_heartbeats_renew_leases() -> None:
    played = Played(grid(1), [arrival(work_s=11.0)], terms=LEASES, machine=Leasing())
    assert [at_s for at_s, _ in played.facts(TaskRunning)] == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert played.job().end_s == 11.0


def test_a_silent_node_is_taken_for_dead_without_a_word() -> None:
    played = Played(
        grid(1),
        [arrival(work_s=30.0)],
        faults=[down(7.0, "s/n0", 10.0)],
        terms=replace(LEASES, detect_s=NEVER_S),
        machine=Leasing(),
    )
    # last heard of at 6 s: the lease lapses at 12 s, and at 16 s it is dead; what is started then
    # has not begun when the node is back
    assert [at_s for at_s, _ in played.actions(StartAttempt)] == [0.0, 16.0, 17.0]
    assert (played.job().end_s, played.job().lost_device_s) == (47.0, 7.0)
    assert ends(played) == [(17.0, "s/n0", Why.NODE_LOST), (47.0, "s/n0", Why.COMPLETED)]
    assert played.sim.record.used_device_s == 47.0


def test_a_loss_that_is_told_ends_what_a_lease_would_have_ended() -> None:
    played = Played(
        grid(1, 1),
        [arrival(work_s=30.0)],
        faults=[down(7.0, "s/n0")],
        terms=LEASES,
        machine=Leasing(),
    )
    assert ends(played)[0] == (12.0, "s/n0", Why.NODE_LOST)
    assert played.job().end_s == 42.0


def test_a_task_that_hears_nothing_stops_itself_when_its_lease_lapses() -> None:
    fault = Fault(at_s=7.0, kind="cut", domain="a", duration_s=40.0)
    played = Played(
        grid(1, sites=("a", "b")),
        [arrival(work_s=30.0)],
        faults=[fault],
        terms=LEASES,
        machine=Leasing(),
    )
    # it trained until its lease lapsed; others fared no better until the site was back
    starts_s = [at_s for at_s, _ in played.actions(StartAttempt)]
    assert starts_s == [0.0, 16.0, 26.0, 36.0, 46.0]
    assert (played.job().lost_device_s, played.job().end_s) == (12.0, 77.0)


def test_a_node_that_restarts_tells_that_its_tasks_are_gone() -> None:
    played = Played(
        grid(1),
        [arrival(work_s=30.0)],
        faults=[down(7.0, "s/n0", 3.0)],
        terms=LEASES,
        machine=Leasing(),
    )
    assert ends(played)[0] == (10.0, "s/n0", Why.NODE_LOST)
    assert (played.job().attempts, played.job().end_s) == (2, 40.0)


def test_a_cut_shorter_than_the_lease_is_survived() -> None:
    fault = Fault(at_s=7.0, kind="cut", domain="a", duration_s=4.0)
    played = Played(TWO, [arrival(work_s=30.0)], faults=[fault], terms=LEASES, machine=Leasing())
    assert (played.job().end_s, played.job().attempts) == (30.0, 1)


def test_a_cut_that_ends_after_the_lapse_and_before_the_margin() -> None:
    fault = Fault(at_s=7.0, kind="cut", domain="a", duration_s=7.0)
    played = Played(TWO, [arrival(work_s=30.0)], faults=[fault], terms=LEASES, machine=Leasing())
    assert ends(played)[0] == (14.0, "a/n0", Why.LEASE_LAPSED)
    assert played.job().attempts == 2


def test_an_order_that_arrives_after_its_lease_has_lapsed_starts_nothing() -> None:
    fault = Fault(at_s=0.0, kind="cut", domain="b", duration_s=7.0)
    played = Played(TWO, [wide(work_s=30.0)], faults=[fault], terms=LEASES, machine=Leasing())
    assert ends(played)[:2] == [
        (7.0, "b/n0", Why.LEASE_LAPSED),
        (7.0, "a/n0", Why.STOP_REQUESTED),
    ]
    assert (played.job().attempts, played.job().end_s) == (2, 37.0)


def test_a_lease_that_the_scheduler_does_not_renew_ends_the_task() -> None:
    class Mute(FakeScheduler):
        def _renew(self, event: TaskRunning, now: float) -> None:
            """Say nothing."""

    played = Played(
        grid(1), [arrival(work_s=8.0)], terms=LEASES, machine=Mute(lease_s=7.0, retry=False)
    )
    assert ends(played) == [(8.0, "s/n0", Why.COMPLETED)]
    played = Played(
        grid(1), [arrival(work_s=99.0)], terms=LEASES, machine=Mute(lease_s=7.0, retry=False)
    )
    assert ends(played)[0] == (8.0, "s/n0", Why.LEASE_LAPSED)
    assert played.job().state is JobState.FAILED
    assert not played.actions(StopTask)
