"""Figures of a run, worked out by hand."""

import math
from typing import Any

import pytest
from msgspec.structs import replace
from tests.fakes.simulated import arrival, grid, option

from gridloom.core.machine import Machine
from gridloom.model.inventory import Inventory
from gridloom.model.policy import combined
from gridloom.model.quota import Queue
from gridloom.sim.gauges import scatter
from gridloom.sim.report import (
    Circumstances,
    Summary,
    nearest_rank,
    size_class,
    summarise,
)
from gridloom.sim.simulation import Simulation
from gridloom.sim.terms import SimTerms
from gridloom.sim.workload_nouns import Arrival

FIFO = combined("fifo")


def ran(
    inventory: Inventory, *arrivals: Arrival, until_s: float | None = None, **more: Any
) -> Summary:
    machine = Machine(terms=SimTerms().lease_terms())
    gauge = scatter(machine)
    sim = Simulation(inventory, arrivals, seed=0, machine=machine, gauge=gauge, **more)
    sim.run(until_s)
    about = Circumstances(policy="fifo", seed=0, now_s=sim.now_s, dropped={"twin": 2})
    return summarise(sim.record, arrivals, about)


def fifo(inventory: Inventory, *queues: str) -> Inventory:
    return replace(inventory, policy=FIFO, queues=tuple(Queue(name=name) for name in queues))


def test_figures_of_three_jobs_one_after_another() -> None:
    """One device: 0-100, 100-300, 300-305; submitted at 0, 0 and 50."""
    found = ran(
        fifo(grid(1, price_per_accelerator_hour=36.0, power_w_per_accelerator=1000.0)),
        arrival("a", 0.0, work_s=100.0),
        arrival("b", 0.0, work_s=200.0),
        arrival("c", 50.0, work_s=5.0),
    )
    assert (found.jobs, found.completed, found.succeeded, found.never_ran) == (3, 3, 3, 0)
    assert found.jct_mean_s == pytest.approx((100 + 300 + 255) / 3)
    assert (found.jct_p50_s, found.jct_p90_s, found.jct_p99_s) == (255.0, 300.0, 300.0)
    assert found.wait_mean_s == pytest.approx((0 + 100 + 250) / 3)
    assert (found.wait_p50_s, found.wait_p90_s) == (100.0, 250.0)
    # 100/100, 300/200, 255/10: the shortest counts as ten seconds
    assert (found.slowdown_p50, found.slowdown_p90) == (1.5, 25.5)
    assert found.makespan_s == 305.0
    assert (found.utilisation, found.goodput, found.fragmentation) == (1.0, 1.0, 0.0)
    assert found.cost == pytest.approx(305 * 36 / 3600)
    assert found.energy_kwh == pytest.approx(305 / 3600)
    assert (found.fairness, found.fairness_over) == (None, "")
    assert found.dropped == {"twin": 2}


def test_only_jobs_that_started_and_are_over_count_as_completed() -> None:
    found = ran(
        fifo(grid(2)),
        arrival("fails", 0.0, devices=2, work_s=100.0, fail_after_s=50.0, state="failed"),
        arrival("leaves", 0.0, devices=2, work_s=30.0, state="cancelled"),
        arrival("huge", 0.0, devices=4, work_s=10.0),
        arrival("runs", 0.0, devices=2, work_s=1000.0),
        arrival("waits", 0.0, devices=2, work_s=10.0),
        until_s=200.0,
    )
    assert (found.jobs, found.completed) == (5, 2)
    assert (found.succeeded, found.failed, found.cancelled) == (0, 1, 1)
    assert (found.unfinished, found.never_ran) == (1, 2)
    assert found.jct_mean_s == pytest.approx((50 + 80) / 2)
    assert found.makespan_s == 80.0
    assert found.simulated_s == 200.0
    assert found.lost_device_s == pytest.approx(160.0)  # neither that failed nor that left kept any
    assert found.goodput == pytest.approx(1 - 160 / 400)


def test_a_failed_job_is_measured_by_the_time_to_its_failure() -> None:
    found = ran(
        fifo(grid(1)),
        arrival("a", 0.0, work_s=100.0),
        arrival("b", 0.0, work_s=900.0, fail_after_s=50.0, state="failed"),
    )
    assert found.slowdown_p90 == 3.0


def test_groups_are_by_what_was_asked_for_and_by_queue() -> None:
    found = ran(
        fifo(grid(8, 8), "x", "y"),
        arrival("a", 0.0, devices=1, work_s=10.0, queue="x"),
        arrival("b", 0.0, devices=8, work_s=20.0, queue="x"),
        arrival("c", 0.0, devices=8, work_s=40.0, queue="y"),
    )
    assert {size: one.jobs for size, one in found.by_size.items()} == {"1": 1, "2-8": 2}
    assert {queue: one.jobs for queue, one in found.by_queue.items()} == {"x": 2, "y": 1}
    assert found.by_queue["x"].jct_mean_s == 15.0
    # c waits for a's node: queue x never waited, y held its devices 40 of 50 s
    assert found.by_queue["y"].wait_mean_s == 10.0
    share = 40 / 50
    assert found.fairness == pytest.approx((1 + share) ** 2 / (2 * (1 + share**2)))
    assert found.fairness_over == "queue"


def test_fairness_is_over_users_where_there_is_one_queue() -> None:
    found = ran(
        fifo(grid(1)),
        arrival("a", 0.0, work_s=100.0, user="u"),
        arrival("b", 0.0, work_s=100.0, user="v"),
    )
    assert found.fairness == pytest.approx(1.5**2 / (2 * 1.25))
    assert found.fairness_over == "user"


def test_fragmentation_is_whole_nodes_that_are_missing() -> None:
    wide = option(5)
    machine = Machine(terms=SimTerms().lease_terms())
    gauge = scatter(machine)
    jobs = [arrival(f"j{i}", 0.0, work_s=100.0, options=(wide,)) for i in range(2)]
    sim = Simulation(grid(8, 8, 8), jobs, seed=0, machine=machine, gauge=gauge)
    assert gauge() == 0.0  # no grid yet
    sim.run(50.0)
    assert gauge() == 0.0  # 3 + 3 + 8 free make one whole node, and one is there
    more = [arrival(f"j{i}", 0.0, work_s=100.0, options=(wide,)) for i in range(3)]
    machine = Machine(terms=SimTerms().lease_terms())
    gauge = scatter(machine)
    sim = Simulation(grid(8, 8, 8), more, seed=0, machine=machine, gauge=gauge)
    sim.run(50.0)
    assert gauge() == 1.0  # 3 + 3 + 3 free make one, and none is there


def test_percentiles_are_nearest_ranks() -> None:
    ten = [float(n) for n in range(1, 11)]
    assert [nearest_rank(ten, p) for p in (0, 10, 11, 50, 90, 91, 100)] == [1, 1, 2, 5, 9, 10, 10]
    assert nearest_rank([], 50) is None
    assert nearest_rank([3.0], 99) == 3.0


def test_sizes_have_no_gaps() -> None:
    names = [size_class(n) for n in (1, 2, 8, 9, 64, 65, 512, 513, 10**7)]
    assert names == ["1", "2-8", "2-8", "9-64", "9-64", "65-512", "65-512", "over 512", "over 512"]


def test_nothing_came_of_nothing() -> None:
    found = ran(fifo(grid(1)), arrival("huge", 0.0, devices=9))
    assert (found.completed, found.never_ran) == (0, 1)
    assert found.jct_mean_s is found.jct_p50_s is found.makespan_s is found.slowdown_p50 is None
    assert found.goodput is None
    assert not any(isinstance(v, float) and math.isnan(v) for v in found.by_size.values())
