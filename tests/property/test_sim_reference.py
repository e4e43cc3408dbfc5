"""The simulator and its scheduler against a few lines that share nothing with them."""

import heapq
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridloom.model.inventory import Inventory, Node, Site
from gridloom.model.parallel import ParallelPlan
from gridloom.model.policy import POLICIES
from gridloom.model.spec import Forecast, JobSpec, Option, Program
from gridloom.sim.simulation import Simulation
from gridloom.sim.workload import Arrival

DEVICES = 16
ORIGIN_S = 1e9
"""Far from 0, which means "no time" in places."""

Row = tuple[int, int, int]
"""Submission and duration in seconds, and devices."""

ROWS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 40), st.integers(1, DEVICES)),
    min_size=1,
    max_size=40,
)


def reference(rows: Sequence[Row], start: Callable[..., list[int]]) -> list[int]:
    """Return when each job starts: at each instant jobs end, then come, then may start."""
    began = [-1] * len(rows)
    running: list[tuple[int, int]] = []
    waiting: list[int] = []
    coming = sorted(range(len(rows)), key=lambda i: (rows[i][0], i))
    while coming or running:
        now = min([rows[i][0] for i in coming[:1]] + [end for end, _ in running[:1]])
        while running and running[0][0] == now:
            heapq.heappop(running)
        while coming and rows[coming[0]][0] == now:
            waiting.append(coming.pop(0))
        for i in start(rows, now, waiting, running):
            waiting.remove(i)
            began[i] = now
            heapq.heappush(running, (now + rows[i][1], i))
    return began


def free(rows: Sequence[Row], running: Sequence[tuple[int, int]]) -> int:
    return DEVICES - sum(rows[i][2] for _, i in running)


def fifo(
    rows: Sequence[Row], _now: int, waiting: list[int], running: list[tuple[int, int]]
) -> list[int]:
    left, starts = free(rows, running), []
    for i in waiting:
        if rows[i][2] > left:
            break
        left -= rows[i][2]
        starts.append(i)
    return starts


def greedy(
    rows: Sequence[Row], _now: int, waiting: list[int], running: list[tuple[int, int]]
) -> list[int]:
    left, starts = free(rows, running), []
    for i in waiting:
        if rows[i][2] <= left:
            left -= rows[i][2]
            starts.append(i)
    return starts


def shortest(
    rows: Sequence[Row], now: int, waiting: list[int], running: list[tuple[int, int]]
) -> list[int]:
    by_length = sorted(waiting, key=lambda i: (rows[i][1], rows[i][0], i))
    return greedy(rows, now, by_length, running)


def easy(
    rows: Sequence[Row], now: int, waiting: list[int], running: list[tuple[int, int]]
) -> list[int]:
    """Backfill so that the first that is blocked starts as early as if nobody passed it."""
    starts = fifo(rows, now, waiting, running)
    if len(starts) == len(waiting):
        return starts
    busy = sorted([*running, *((now + rows[i][1], i) for i in starts)])
    head, *rest = [i for i in waiting if i not in starts]
    left = free(rows, busy)
    at, then = now, left
    while then < rows[head][2]:
        at = busy[0][0]
        while busy and busy[0][0] == at:
            then += rows[busy.pop(0)[1]][2]
    extra = then - rows[head][2]
    for i in rest:
        devices = rows[i][2]
        late = now + rows[i][1] > at
        if devices <= left and (not late or devices <= extra):
            left -= devices
            extra -= devices * late
            starts.append(i)
    return starts


def simulated(rows: Sequence[Row], policy: str) -> list[int]:
    node = Node(name="n", address="", accelerator="gpu", count=DEVICES)
    site = Site(name="pool", kind="simulated", nodes=(node,))
    arrivals = [
        Arrival(
            job_id=str(i),
            submit_s=ORIGIN_S + submit_s,
            work_s=float(duration_s),
            spec=JobSpec(
                name="j",
                program=Program(argv=(), workdir="/"),
                options=(Option(accelerator="gpu", plan=ParallelPlan(data=devices)),),
                forecast=Forecast(duration_s=float(duration_s)),
            ),
        )
        for i, (submit_s, duration_s, devices) in sorted(
            enumerate(rows), key=lambda entry: (entry[1][0], entry[0])
        )
    ]
    simulation = Simulation(Inventory(sites=(site,), policy=POLICIES[policy]), arrivals, seed=0)
    simulation.run()
    began = {row.job_id: row.first_start_s for row in simulation.record.jobs()}
    return [round(began[str(i)] - ORIGIN_S) for i in range(len(rows))]


@pytest.mark.parametrize(
    ("policy", "start"),
    [("fifo", fifo), ("backfill-greedy", greedy), ("sjf", shortest), ("backfill", easy)],
)
@given(rows=ROWS)
def test_every_job_starts_when_the_reference_says(
    policy: str, start: Callable[..., list[int]], rows: list[Row]
) -> None:
    assert simulated(rows, policy) == reference(rows, start)
