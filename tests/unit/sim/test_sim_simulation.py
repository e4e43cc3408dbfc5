"""The run of a simulation: what it waits for, what stops it, and what it refuses."""

import itertools
import math
import random
from collections.abc import Iterator
from typing import Any

import pytest
from tests.fakes.scheduler import FakeScheduler
from tests.fakes.simulated import Played, arrival, grid

from gridloom.base.errors import BrokenError, InputError
from gridloom.core.machine import Machine
from gridloom.model.event import InventoryChanged, JobSubmitted, NodeMarked, StopRequested
from gridloom.model.life import JobState
from gridloom.sim.engine import NEVER_S
from gridloom.sim.faults import Fault
from gridloom.sim.simulation import Simulation
from gridloom.sim.terms import SimTerms
from gridloom.sim.workload_nouns import Arrival


def test_it_begins_with_the_first_job_and_the_grid() -> None:
    played = Played(grid(1), [arrival("j", 1e9)])
    first = played.journal[0]
    assert (first.now_s, [type(event) for event in first.events]) == (
        1e9,
        [InventoryChanged, JobSubmitted],
    )
    assert played.sim.now_s == 1e9 + 100.0


def test_without_jobs_it_shows_the_grid_and_ends() -> None:
    played = Played(grid(1), [], faults=[Fault(at_s=7.0, kind="down", domain="s")])
    assert [(one.now_s, len(one.events)) for one in played.journal] == [(7.0, 1)]
    assert list(played.sim.record.jobs()) == []
    assert Played(grid(1), []).sim.now_s == 0.0


def test_it_ends_when_all_jobs_are_over_whatever_else_may_come() -> None:
    played = Played(grid(1), [arrival()], faults=[Fault(at_s=1e6, kind="down", domain="s")])
    assert played.sim.now_s == 100.0


def test_it_ends_when_what_waits_waits_in_vain() -> None:
    fault = Fault(at_s=10.0, kind="down", domain="s")
    played = Played(grid(1), [arrival("a"), arrival("b", 1.0)], faults=[fault])
    assert {row.job_id: row.state for row in played.sim.record.jobs()} == {
        "a": JobState.QUEUED,
        "b": JobState.QUEUED,
    }
    assert played.sim.now_s == 20.0
    assert played.job("b").wait_s == 19.0
    assert played.job("a").device_s == 20.0


def test_it_goes_on_for_a_node_that_comes_back() -> None:
    fault = Fault(at_s=10.0, kind="down", domain="s", duration_s=1e6)
    played = Played(grid(1), [arrival()], faults=[fault])
    assert played.job().end_s == 1000110.0


def test_it_stops_at_a_time_and_goes_on() -> None:
    played = Played(grid(1), [arrival("a"), arrival("b", 20.0)], until_s=100.0)
    assert (played.job("a").state, played.job("b").state) == (
        JobState.SUCCEEDED,
        JobState.RUNNING,
    )
    played.sim.run(130.0)
    assert (played.sim.now_s, played.job("b").running_s) == (130.0, 30.0)
    with pytest.raises(InputError, match="for 129 s, which has passed; hand it in for 130 s"):
        played.sim.inject(StopRequested(job_id="b"), 129.0)
    played.sim.inject(StopRequested(job_id="b"), 130.0)
    played.sim.run()
    assert (played.job("b").state, played.job("b").end_s) == (JobState.STOPPED, 130.0)
    played.sim.run(1e6)
    assert played.sim.now_s == 130.0


def test_arrivals_are_taken_as_they_are_needed() -> None:
    taken = []

    def endless() -> Iterator[Arrival]:
        for i in itertools.count():
            taken.append(i)
            yield arrival(f"j{i}", 10.0 * i, work_s=5.0)

    played = Played(grid(1), endless(), until_s=95.0)
    assert len(taken) == 11  # one in advance
    assert len(played.sim.record) == 10


def test_arrivals_out_of_order_are_refused() -> None:
    with pytest.raises(InputError, match="b is submitted before the job in front of it; put the"):
        Played(grid(1), [arrival("a", 5.0), arrival("b", 4.0)])


def test_two_jobs_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="two jobs are called a; give each job an id"):
        Played(grid(1), [arrival("a", 5.0, work_s=1.0), arrival("a", 50.0)])


def test_a_job_cannot_be_handed_in_as_a_fact() -> None:
    event = JobSubmitted(job_id="x", spec=arrival().spec, submitted_s=0.0)
    with pytest.raises(InputError, match="give it to the simulation as an arrival"):
        Played(grid(1), [], (1.0, event))


def test_wishes_come_before_arrivals_and_after_ends() -> None:
    played = Played(
        grid(1, 1),
        [arrival("a", 0.0, work_s=50.0), arrival("b", 50.0)],
        (50.0, StopRequested(job_id="b")),
        (-5.0, NodeMarked(domain="s/n1", mark="cordon")),
    )
    assert played.journal[0].now_s == -5.0
    names = [[type(e).__name__ for e in one.events] for one in played.journal if one.now_s == 50.0]
    assert names[0] == ["TaskEnded", "StopRequested", "JobSubmitted"]


def test_a_scheduler_that_is_stuck_at_one_instant_is_named() -> None:
    fault = Fault(at_s=0.0, kind="refuse", domain="s")
    with pytest.raises(
        BrokenError, match=r"101 steps at 3.0 s have not .* TaskRefused\(job_id='j'"
    ):
        Played(
            grid(1),
            [arrival("j", 3.0)],
            faults=[fault],
            terms=SimTerms(steps_max=100),
        )


def test_a_timer_that_is_always_due_is_named() -> None:
    machine = FakeScheduler()
    machine.timer_s = 5.0
    with pytest.raises(BrokenError, match=r"11 steps at 5.0 s .* the timer for 5.0 s"):
        Played(grid(1), [arrival()], terms=SimTerms(steps_max=10), machine=machine)


def test_timers_are_kept_and_far_ones_are_none() -> None:
    class Timed(FakeScheduler):
        """Wants to be asked at 42 s."""

        def next_timer_s(self, until_s: float = math.inf) -> float | None:
            return 42.0 if self.times_s[-1] < 42.0 else NEVER_S

    played = Played(grid(1), [arrival()], machine=Timed())
    assert [one.now_s for one in played.journal if not one.events] == [42.0]


def test_a_simulation_needs_no_onlookers() -> None:
    sim = Simulation(grid(1), [arrival()], seed=0, machine=FakeScheduler())
    sim.run()
    assert sim.record.job("j").end_s == 100.0


def test_every_step_is_watched() -> None:
    seen: list[float] = []

    def watch(sim: Simulation) -> None:
        seen.append(sim.now_s)
        assert sim.record.steps == len(seen)

    played = Played(grid(1), [arrival()], watch=watch)
    assert seen == [record.now_s for record in played.journal]


def test_the_chance_of_a_step_is_that_of_its_seed() -> None:
    """The record tells a seed; ``Random`` of that seed gives the same chance as the step had."""

    class Gambler(FakeScheduler):
        """Draws in every second step only."""

        drawn: list[Any]

        def step(self, events: Any, now: float, rng: random.Random) -> list[Any]:
            self.drawn = getattr(self, "drawn", [])
            self.drawn.append(draw(rng) if len(self.drawn) % 2 else None)
            return super().step(events, now, rng)

    def draw(rng: random.Random) -> Any:
        first = rng.gauss(0, 1) if len(machine.drawn) % 4 == 1 else rng.randrange(100)
        return first, rng.uniform(0.9, 1.1), rng.randrange(100), rng.gauss(0, 1)

    machine = Gambler()
    jobs = [arrival(f"j{i}", float(i)) for i in range(20)]
    played = Played(grid(4), jobs, machine=machine, seed=12345)
    told, machine.drawn = machine.drawn, []
    for record, drawn in zip(played.journal, told, strict=True):
        again = draw(random.Random(record.seed))
        assert drawn is None or drawn == again
        machine.drawn.append(None)
    assert len({record.seed for record in played.journal}) == len(played.journal)


def test_the_scheduler_is_the_core_s_own_with_leases_that_never_lapse() -> None:
    sim = Simulation(grid(1), [], seed=0)
    assert isinstance(sim.machine, Machine)
    assert sim.machine.terms.lease_s == NEVER_S
    sim = Simulation(grid(1), [], seed=0, terms=SimTerms(heartbeat_s=1.0))
    assert sim.machine.terms == SimTerms().lease
