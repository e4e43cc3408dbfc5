"""Futures of a live state: what runs goes on, what waits starts when the scheduler lets it."""

import math
import random
from typing import Any

import pytest
from msgspec.structs import replace
from tests.fakes.simulated import arrival, grid

from gridloom.base.codec import encode
from gridloom.core.machine import Machine
from gridloom.core.turn import LeaseTerms
from gridloom.model.action import StartAttempt
from gridloom.model.event import (
    AnyEvent,
    CancelRequested,
    EvictRequested,
    InventoryChanged,
    JobSubmitted,
    NodeMarked,
    StopRequested,
    TaskEnded,
    TaskReady,
    TaskRunning,
)
from gridloom.model.inventory import Inventory
from gridloom.model.life import Outcome
from gridloom.model.policy import combined
from gridloom.model.reason import Why
from gridloom.sim.forecast import Futures, Outlook, Seen, outlooks, unknown_durations
from gridloom.sim.simulation import Simulation
from gridloom.sim.workload_nouns import Arrival

START_S = 1_000_000.0


def live(
    inventory: Inventory, *jobs: Arrival, now_s: float = START_S, ready: bool = True
) -> Machine:
    """Return a scheduler to which all jobs were handed in at once; what could start runs."""
    machine = Machine(terms=LeaseTerms())
    events: list[AnyEvent] = [InventoryChanged(inventory=inventory)]
    events += [JobSubmitted(job_id=j.job_id, spec=j.spec, submitted_s=now_s) for j in jobs]
    actions = machine.step(events, now_s, random.Random(0))
    heard: list[AnyEvent] = []
    for action in actions:
        if isinstance(action, StartAttempt):
            heard += said(action) if ready else said(action)[:-1]
    machine.step(heard, now_s, random.Random(0))
    return machine


def said(start: StartAttempt) -> list[AnyEvent]:
    job_id, attempt, epoch = start.job_id, start.attempt, start.epoch
    domains = [task.domain for task in start.placement.tasks]
    alive: list[AnyEvent] = [
        TaskRunning(job_id=job_id, attempt=attempt, epoch=epoch, domain=domain)
        for domain in domains
    ]
    ready = TaskReady(
        job_id=job_id, attempt=attempt, epoch=epoch, domain=domains[0], resumed_step=0
    )
    return [*alive, ready]


def job(job_id: str, duration_s: float, devices: int = 1, spread: float = 0.0) -> Arrival:
    told = {"duration_s": duration_s, "spread": spread, "checkpoint_s": 5.0}
    return arrival(job_id, devices=devices, forecast=told)


def test_a_queue_on_one_device_is_worked_off() -> None:
    machine = live(grid(1), job("a", 100.0), job("b", 50.0), job("c", 10.0))
    before = encode(machine.state)
    found = outlooks(machine.state, ["a", "b", "c"], START_S + 40.0, Futures())
    assert encode(machine.state) == before
    times = {
        job_id: (one.start_s(50) - START_S, one.end_s(50) - START_S)
        for job_id, one in found.items()
    }
    assert times == {"a": (0.0, 100.0), "b": (100.0, 150.0), "c": (150.0, 160.0)}
    placement, share = found["c"].placement()
    assert placement is not None
    assert (placement.tasks[0].domain, share) == ("s/n0", 1.0)


@pytest.mark.parametrize("policy", ["fifo", "sjf", "backfill", "backfill-conservative"])
def test_it_agrees_with_the_simulation(policy: str) -> None:
    """The same jobs, all handed in at once, in both."""
    rng = random.Random(5)
    jobs = [
        replace(arrival(f"j{i:02d}", devices=rng.randint(1, 4)), work_s=float(rng.randint(5, 400)))
        for i in range(40)
    ]
    jobs = [
        replace(one, spec=replace(one.spec, forecast=replace(one.spec.forecast, duration_s=w)))
        for one in jobs
        for w in [one.work_s]
    ]
    inventory = replace(grid(4, 2), policy=combined(policy))
    sim = Simulation(inventory, [replace(one, submit_s=START_S) for one in jobs], seed=0)
    sim.run()
    ids = [one.job_id for one in jobs]
    found = outlooks(live(inventory, *jobs).state, ids, START_S, Futures())
    assert {i: found[i].end_s(50) for i in ids} == pytest.approx(
        {row.job_id: row.end_s for row in sim.record.jobs()}
    )


def test_uncertain_durations_give_an_interval_of_known_width() -> None:
    machine = live(grid(1), job("a", 1000.0, spread=0.3), job("b", 10.0))
    futures = Futures(seed=1, runs=400)
    one = outlooks(machine.state, ["b"], START_S, futures)["b"]
    low, half, high = (one.start_s(p) - START_S for p in (10, 50, 90))
    assert half == pytest.approx(1000.0, rel=0.06)
    assert low == pytest.approx(1000.0 * math.exp(-0.3 * 1.2816), rel=0.08)
    assert high == pytest.approx(1000.0 * math.exp(0.3 * 1.2816), rel=0.08)
    assert outlooks(machine.state, ["b"], START_S, futures)["b"] == one
    other = outlooks(machine.state, ["b"], START_S, replace(futures, seed=2))["b"]
    assert other != one
    assert len(outlooks(machine.state, ["b"], START_S, Futures())["b"].seen) == 40


def test_what_runs_already_has_not_ended_yet() -> None:
    machine = live(grid(1), job("a", 100.0, spread=0.5))
    for late_s in (90.0, 300.0):
        one = outlooks(machine.state, ["a"], START_S + late_s, Futures(runs=30))["a"]
        assert min(seen.end_s for seen in one.seen) > START_S + late_s
    one = outlooks(machine.state, ["a"], START_S + 1e6, Futures(runs=30))["a"]
    assert one.end_s(90) == pytest.approx(START_S + 1.1e6)  # nothing is known that is so long


def test_nobody_knows_what_waits_for_what_nobody_knows() -> None:
    machine = live(grid(1), job("a", 0.0), job("b", 10.0))
    found = outlooks(machine.state, ["a", "b"], START_S, Futures())
    assert (found["a"].start_s(50), found["a"].end_s(50)) == (START_S, math.inf)
    assert found["b"].start_s(50) == math.inf
    assert found["b"].placement() == (None, 0.0)
    assert [one.job_id for one in unknown_durations(machine.state)] == ["a"]
    known = {"a": 70.0}
    assert unknown_durations(machine.state, known) == []
    found = outlooks(machine.state, ["b"], START_S, Futures(durations=known))
    assert found["b"].start_s(50) == START_S + 70.0


def test_a_limit_on_running_time_ends_what_nobody_knows() -> None:
    limited = job("a", 0.0)
    budget = replace(limited.spec.budget, run_s_max=200.0)
    limited = replace(limited, spec=replace(limited.spec, budget=budget))
    machine = live(grid(1), limited, job("b", 10.0))
    assert unknown_durations(machine.state) == []
    found = outlooks(machine.state, ["b"], START_S, Futures())
    assert found["b"].start_s(50) == pytest.approx(START_S + 205.0)


def test_what_was_told_to_stop_does_so() -> None:
    machine = live(grid(1), job("a", 1000.0), job("b", 10.0))
    machine.step([StopRequested(job_id="a")], START_S + 2.0, random.Random(0))
    found = outlooks(machine.state, ["a", "b"], START_S + 2.0, Futures())
    assert found["a"].end_s(50) == START_S + 7.0
    assert found["b"].start_s(50) == START_S + 7.0


def test_what_if_facts_come_first() -> None:
    machine = live(grid(1), job("a", 100.0), job("b", 100.0))
    new = JobSubmitted(job_id="new", spec=job("new", 5.0).spec, submitted_s=START_S + 10)
    cancel = CancelRequested(job_id="a")
    for facts, start_s in (((new,), 200.0), ((cancel, new), 110.0)):
        found = outlooks(machine.state, ["new"], START_S + 10, Futures(facts=facts))
        assert found["new"].start_s(50) == START_S + start_s
    larger = InventoryChanged(inventory=grid(1, 1))
    found = outlooks(machine.state, ["new"], START_S + 10, Futures(facts=(larger, new)))
    assert found["new"].start_s(50) == START_S + 100.0  # b is on the new node


def test_a_drain_moves_what_runs_and_keeps_its_work() -> None:
    machine = live(grid(1, 1), job("a", 100.0))
    drain = NodeMarked(domain="s/n0", mark="drain")
    found = outlooks(machine.state, ["a"], START_S + 60, Futures(facts=(drain,)))
    assert found["a"].end_s(50) == pytest.approx(START_S + 105.0)  # five seconds to save


def test_a_program_that_never_says_that_it_trains_does_so_from_its_start() -> None:
    machine = live(grid(1), job("a", 100.0), ready=False)
    found = outlooks(machine.state, ["a"], START_S + 40.0, Futures())
    assert found["a"].end_s(50) == START_S + 100.0
    evicted = EvictRequested(job_id="a")
    found = outlooks(machine.state, ["a"], START_S + 40.0, Futures(facts=(evicted,)))
    assert found["a"].end_s(50) == START_S + 105.0


def test_what_is_evicted_before_it_trains_starts_once_more() -> None:
    """It restarts for 30 s when a drain ends that; nothing is lost, as there was nothing."""
    slow = job("a", 100.0)
    forecast = replace(slow.spec.forecast, restart_s=30.0)
    machine = live(grid(1, 1), replace(slow, spec=replace(slow.spec, forecast=forecast)))
    facts = tuple(NodeMarked(domain=f"s/n{i}", mark="drain") for i in range(2))
    found = outlooks(machine.state, ["a"], START_S + 10, Futures(facts=facts[:1]))
    assert found["a"].end_s(50) == START_S + 10 + 5 + 30 + 90
    found = outlooks(machine.state, ["a"], START_S + 10, Futures(facts=facts))
    assert found["a"].end_s(50) == math.inf  # nowhere to go


def test_ranks_of_futures() -> None:
    one = Outlook(seen=tuple(Seen(start_s=float(n)) for n in range(1, 11)))
    assert [one.start_s(p) for p in (10, 50, 90)] == [1.0, 5.0, 9.0]
    assert one.end_s(10) == math.inf


def test_a_site_that_is_away_for_a_moment_ends_with_the_others() -> None:
    two = arrival("a", devices=4, min_sites=2, max_sites=2, forecast={"duration_s": 100.0})
    machine = live(Inventory(sites=(*grid(2).sites, replace(grid(2).sites[0], name="t"))), two)
    attempt = machine.state.jobs["a"].attempts[-1]
    attempt.independent_sites = True
    about: Any = {"job_id": "a", "attempt": 1, "epoch": attempt.epoch, "domain": "t/n0"}
    killed = Outcome(code=Why.KILLED, sentence="it was killed")
    machine.step([TaskEnded(**about, outcome=killed)], START_S + 1.0, random.Random(0))
    assert list(attempt.absent) == ["t"]
    for at_s in (1.5, 4.0):  # before it starts again, and after
        machine.step([], START_S + at_s, random.Random(0))
        one = outlooks(machine.state, ["a"], START_S + at_s, Futures())["a"]
        assert one.end_s(50) == pytest.approx(START_S + 100.0)
