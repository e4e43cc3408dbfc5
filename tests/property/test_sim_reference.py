"""The simulator and its scheduler against a few lines that share nothing with them."""

import heapq
import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import seeds
from tests.property import sim_references

from gridloom.model.inventory import Inventory, Node, Site
from gridloom.model.parallel import ParallelPlan
from gridloom.model.policy import POLICIES, Policy, Preemption
from gridloom.model.quota import Queue
from gridloom.model.spec import Forecast, JobSpec, Option, Program
from gridloom.sim.simulation import Simulation
from gridloom.sim.terms import SimTerms
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


def simulation(
    rows: Sequence[tuple[int, ...]], policy: Policy, weights: Sequence[int] = (1,), *, told: bool
) -> Simulation:
    """Play rows of submission, duration and devices, and the number of their queue, to the end.

    The grace is next to nothing and saving takes no time, so that who is told to go goes at once
    and loses nothing; ``told`` lets the scheduler know what was saved.
    """
    node = Node(name="n", address="", accelerator="gpu", count=DEVICES)
    site = Site(name="pool", kind="simulated", nodes=(node,))
    arrivals = [
        Arrival(
            job_id=f"{i:03d}",
            submit_s=ORIGIN_S + row[0],
            work_s=float(row[1]),
            spec=JobSpec(
                name="j",
                queue=f"q{row[3]}" if len(row) > 3 else "",
                program=Program(argv=(), workdir="/"),
                options=(Option(accelerator="gpu", plan=ParallelPlan(data=row[2])),),
                forecast=Forecast(duration_s=float(row[1])),
                grace_s=1e-6,
            ),
        )
        for i, row in sorted(enumerate(rows), key=lambda entry: (entry[1][0], entry[0]))
    ]
    queues = tuple(Queue(name=f"q{n}", weight=float(w)) for n, w in enumerate(weights))
    grid = Inventory(sites=(site,), queues=queues, policy=policy)
    played = Simulation(grid, arrivals, seed=0, terms=SimTerms(report_checkpoints=told))
    played.run()
    return played


def simulated(rows: Sequence[Row], policy: str) -> list[int]:
    jobs = simulation(rows, POLICIES[policy], told=False).record.jobs()
    began = {row.job_id: row.first_start_s for row in jobs}
    return [round(began[f"{i:03d}"] - ORIGIN_S) for i in range(len(rows))]


@pytest.mark.parametrize(
    ("policy", "start"),
    [("fifo", fifo), ("backfill-greedy", greedy), ("sjf", shortest), ("backfill", easy)],
)
@given(rows=ROWS)
def test_every_job_starts_when_the_reference_says(
    policy: str, start: Callable[..., list[int]], rows: list[Row]
) -> None:
    assert simulated(rows, policy) == reference(rows, start)


# --- policies that evict: who runs at each instant

PoolRow = sim_references.Row
Rules = sim_references.Rules
Runs = list[list[tuple[int, int]]]

WORLDS = len(seeds(15, 150))
STEPS = (48, 144, 480)
"""Divisible by every size, so that whoever comes to another class does so at a whole second."""

RULES = {
    "srtf, no hysteresis": Rules("remaining"),
    "srtf, as shipped": Rules("remaining", gain_min=0.1, cooldown_s=600),
    "srtf, short cooldown": Rules("remaining", gain_min=0.1, cooldown_s=7),
    "srtf, young jobs are spared": Rules("remaining", min_run_s=10),
    "srtf, nobody tells what was saved": Rules("remaining", told=False, cooldown_s=7),
    "las, no cooldown": Rules("attained", steps=STEPS),
    "las, short cooldown": Rules("attained", steps=STEPS, cooldown_s=10),
    "las, young jobs are spared": Rules("attained", steps=STEPS, min_run_s=5),
    "fair, nobody is evicted, all pass": Rules("share", evicts=False, weights=(1, 2, 3)),
    "fair, nobody is evicted": Rules("share", evicts=False, weights=(1, 2, 3), easy=True),
    "fair, all pass": Rules("share", weights=(1, 2, 3), cooldown_s=10),
    "fair, equal weights": Rules("share", weights=(1, 1, 1), easy=True),
    "fair, as shipped": Rules("share", weights=(1, 2, 3), cooldown_s=600, easy=True),
}


@pytest.mark.parametrize("name", RULES)
def test_at_each_instant_those_run_of_whom_the_reference_says_so(name: str) -> None:
    """All begins and ends of all runs are those of the reference, to the second.

    Runs of one job that touch count as one, and those of no length as none: within an instant a
    job may be sent off and come back.
    """
    rules = RULES[name]
    for seed in range(WORLDS):
        rows = world(random.Random(seed), len(rules.weights))
        wanted = sim_references.Pool(DEVICES, rows, rules).play()
        assert runs(rows, rules) == wanted, rows


@pytest.mark.parametrize(
    ("rules", "rows"),
    [
        pytest.param(
            Rules("attained", steps=(48, 96)),
            # job 5 starts after job 3 has looked for victims; its next class is due to be noted
            [(9, 7, 8), (0, 4, 16), (8, 6, 6), (9, 1, 12), (0, 19, 3), (8, 13, 8)],
            id="las: who starts late in a cycle",
        ),
        pytest.param(
            Rules("share", weights=(1, 1, 1), easy=True),
            # job 0 fits where nobody has to go, but would hold up the promised start of job 2
            [(35, 2, 1, 1), (19, 17, 1, 0), (19, 1, 16, 2)],
            id="fair: a promise is kept",
        ),
        pytest.param(
            Rules("share", weights=(1, 1, 1), easy=True, cooldown_s=600),
            # job 1 starts and will be gone when job 3 is to start: evicting it leaves no more then
            [
                *((1, 1, 1, 1), (2, 1, 1, 2), (0, 2, 16, 0)),
                *((1, 1, 16, 2), (2, 1, 2, 2), (2, 2, 1, 1)),
            ],
            id="fair: gone by then anyway",
        ),
        pytest.param(
            Rules("share", weights=(1, 1, 1), easy=True, cooldown_s=600),
            # what is being freed for job 3 is not all free yet when job 4 is promised a start
            [
                *((3, 9, 6, 1), (6, 23, 1, 0), (0, 29, 6, 1), (28, 2, 4, 2)),
                *((0, 1, 12, 0), (3, 17, 6, 2), (28, 2, 1, 1)),
            ],
            id="fair: kept and not yet free",
        ),
        pytest.param(
            Rules("share", weights=(1, 1, 1), easy=True, cooldown_s=600),
            # what is kept for job 2 is not there for job 4 as well when job 3 is to start
            [(27, 6, 6, 0), (3, 30, 8, 0), (32, 2, 3, 2), (3, 1, 12, 1), (32, 2, 2, 2)],
            id="fair: room for two",
        ),
    ],
)
def test_small_worlds_go_as_the_reference_says(rules: Rules, rows: list[tuple[int, ...]]) -> None:
    jobs = [PoolRow(*row) for row in rows]
    assert runs(jobs, rules) == sim_references.Pool(DEVICES, jobs, rules).play()


def test_srtf_of_jobs_of_one_device_is_the_textbooks() -> None:
    """Those with least left run, so that ends are those of the order that minimises their sum.

    Which of two with the same left goes on is nobody's concern: ends are compared as a set.
    """
    for seed in range(WORLDS // 2):
        rows = [row._replace(devices=1) for row in world(random.Random(seed), 1, per_device=4)]
        ends = [each[-1][1] for each in runs(rows, Rules("remaining"))]
        assert sorted(ends) == textbook_ends([row[:2] for row in rows])


def textbook_ends(jobs: Sequence[tuple[int, int]]) -> list[int]:
    """Return when jobs of one device end if at each second those with least left run."""
    left, ends, now = [duration for _, duration in jobs], [], 0
    while any(left):
        here = [i for i, (submit, _) in enumerate(jobs) if submit <= now and left[i]]
        for i in sorted(here, key=lambda i: left[i])[:DEVICES]:
            left[i] -= 1
            if not left[i]:
                ends.append(now + 1)
        now += 1
    return sorted(ends)


def world(rng: random.Random, queues: int, *, per_device: int = 1) -> list[PoolRow]:
    """Return jobs of which some minutes of a pool are full."""
    return [
        PoolRow(
            rng.randint(0, 60),
            rng.randint(1, 40),
            rng.choice((1, 1, 2, 2, 3, 4, 6, 8, 12, 16)),
            rng.randrange(queues),
        )
        for _ in range(rng.randint(3, 25) * per_device)
    ]


def runs(rows: Sequence[PoolRow], rules: Rules) -> Runs:
    """Return when each job ran in the simulator."""
    policy = Policy(
        order=rules.order,
        blocked="easy" if rules.easy else "skip",
        preemption=Preemption(
            order=rules.evicts,
            gain_min=rules.gain_min,
            cooldown_s=float(rules.cooldown_s),
            min_run_s=float(rules.min_run_s),
        ),
        attained_steps_s=tuple(map(float, rules.steps)),
    )
    found: list[list[tuple[float, float]]] = [[] for _ in rows]
    for span in simulation(rows, policy, rules.weights, told=rules.told).record.spans():
        found[int(span.job_id)].append((span.start_s - ORIGIN_S, span.end_s - ORIGIN_S))
    return [joined(sorted(each)) for each in found]


def joined(spans: Sequence[tuple[float, float]]) -> list[tuple[int, int]]:
    """Return spans in whole seconds, those that touch as one and those of no length left out."""
    long = [(round(begin), round(end)) for begin, end in spans if end > begin]
    cuts = [0, *(n for n, (a, b) in enumerate(pairwise(long), 1) if a[1] < b[0]), len(long)]
    return [(long[a][0], long[b - 1][1]) for a, b in pairwise(cuts) if a < b]
