"""Placements, steps and reclaim on a made grid, and how their cost grows; for ``bench/core.py``."""

import gc
import math
import statistics
import time
from collections.abc import Sequence

import numpy as np
from bench.core_grid import SIZES, Drive, Jobs, filled, grid, peak_bytes, share
from bench.core_reclaim import reclaim

from gridloom.core import laws
from gridloom.core.laws_step import Laws, Mode
from gridloom.model.inventory import Inventory
from gridloom.model.policy import POLICIES

NODES = 12_500
PLACEMENTS_MIN = 1000
STEP_S_MAX = 0.05
RECLAIM_S_MAX = 0.5
TOPOLOGY_MAX = 2.0
MEMORY_BYTES_MAX = 2 * 2**30
_QUEUES, _KINDS = 8, 48
_MODES: tuple[Mode, ...] = ("incremental", "off")


def show_placements(*, quick: bool) -> None:
    """Print gang placements a second through the door, with topology and by mere counting."""
    nodes, rounds, seconds = (1250, 1, 1.0) if quick else (NODES, 5, 4.0)
    greedy = POLICIES["backfill-greedy"]
    rates: list[float] = []
    plain: list[float] = []
    for number in range(rounds):  # they take turns
        rates.append(placements(grid(nodes, policy=greedy), Jobs(seed=number), seconds))
        flat = grid(nodes, policy=greedy, levels=False)
        plain.append(placements(flat, Jobs(seed=number, needs=False), seconds))
    ratios = [counting / topology for counting, topology in zip(plain, rates, strict=True)]
    print(f"\n## Gang placements on {8 * nodes:,} devices, sizes {SIZES[0]} to {SIZES[-1]}\n")
    print("| | placements/s | limit |\n|---|---:|---:|")
    print(f"| five levels, groups near each other | {_range(rates)} | {PLACEMENTS_MIN:,} |")
    print(f"| eight sites, nothing asked of the topology | {_range(plain)} | |")
    print(f"| cost of topology over counting | {_range(ratios, '.2f')} | {TOPOLOGY_MAX:g} |")


def placements(inventory: Inventory, jobs: Jobs, seconds: float) -> float:
    """Return the jobs placed a second of the door: in batches and one by one.

    The grid is kept between three quarters and all full: what ends makes room for what comes.
    """
    drive = Drive(inventory)
    devices = int(drive.machine.index.capacity.total)
    spent_s, starts, number = 0.0, 0, 0
    while spent_s < seconds:
        number += 1
        room = int(drive.machine.index.capacity.total)
        facts = [jobs.next(drive.now_s) for _ in range(100 if number % 2 else 1)]
        before = len(drive.seconds)
        started = drive.step(facts, timed=True)
        if room > devices / 8:  # until then the grid fills up, which is counted too
            spent_s += sum(drive.seconds[before:])
            starts += started
        while drive.machine.index.capacity.total < devices / 4 and drive.running:
            drive.step(drive.end(min(20, len(drive.running))))
    return starts / spent_s


def show_steps(*, quick: bool) -> None:
    """Print how long steps take with many jobs waiting, several queues and priorities."""
    nodes, waiting, steps = (1250, 1000, 20) if quick else (NODES, 10_000, 300)
    limit_ms = STEP_S_MAX * 1e3
    print(f"\n## Steps on {8 * nodes:,} devices with {waiting:,} jobs waiting\n")
    print(f"{_QUEUES} queues with quotas in a tree of cohorts, three priorities.\n")
    print("| policy | laws | shapes | running | p50 ms | p99 ms | max ms | limit | starts/s |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    checked_s: list[float] = []
    for name in ("backfill-greedy", "backfill", "fair"):
        drive = loaded(nodes, name, waiting)
        shapes = {id(bucket.shape) for bucket in drive.machine.index.buckets.values()}
        for mode in _MODES:
            drive.laws = Laws(mode, drive.machine)
            before, drive.seconds = drive.starts, []
            run_on(drive, steps, prefix=mode)
            spent_s = drive.seconds
            print(
                f"| {name} | {mode} | {len(shapes)} | {len(drive.running):,} |"
                f" {share(spent_s, 0.5) * 1e3:.1f} | {share(spent_s, 0.99) * 1e3:.1f} |"
                f" {max(spent_s) * 1e3:.1f} | {limit_ms:g} |"
                f" {(drive.starts - before) / sum(spent_s):,.0f} |",
                flush=True,
            )
        begin_s = time.thread_time()
        laws.check(drive.machine.state)
        checked_s.append(time.thread_time() - begin_s)
        gc.unfreeze()
    print(f"\nAll laws of all jobs, once: {_range([one * 1e3 for one in checked_s])} ms")
    limit = MEMORY_BYTES_MAX / 2**30
    print(f"Peak memory so far: {peak_bytes() / 2**30:.2f} GiB (limit {limit:g} GiB)")


def loaded(nodes: int, policy: str, waiting: int) -> Drive:
    """Return a full grid of several queues with so many jobs waiting."""
    inventory = grid(nodes, policy=POLICIES[policy], queues=_QUEUES)
    return filled(inventory, Jobs(kinds=_KINDS, queues=_QUEUES), waiting=waiting)


def run_on(drive: Drive, steps: int, *, prefix: str = "k", seconds_max: float = 60.0) -> None:
    """Let jobs end and come in turn, one in each step, and note what the steps take."""
    jobs = Jobs(kinds=_KINDS, queues=_QUEUES, seed=7, prefix=prefix)
    stop_s = time.perf_counter() + seconds_max
    for _ in range(steps // 2):
        drive.step(drive.end(), timed=True)
        drive.step([jobs.next(drive.now_s)], timed=True)
        if time.perf_counter() > stop_s:
            break


def show_reclaim(*, quick: bool) -> None:
    """Print how long it takes to find whom to evict for an owner that wants half of a grid."""
    rounds = 1 if quick else 5
    print("\n## An owner asks for half of a grid that others' jobs of one to eight nodes fill\n")
    print("| nodes | small jobs | wanted nodes | victims | seconds | limit |")
    print("|---:|---:|---:|---:|---:|---:|")
    sizes = (125, 250) if quick else (125, 250, 500, 1000, 2000)
    middles = []
    for nodes in sizes:
        wanted = 512 if nodes == 1000 else nodes // 2
        found = [reclaim(nodes, wanted) for _ in range(rounds)]
        times_s = [spent_s for spent_s, _, _ in found]
        middles.append(statistics.median(times_s))
        limit = f"{RECLAIM_S_MAX:g}" if nodes == 1000 else ""
        _, running, victims = found[0]
        print(
            f"| {nodes:,} | {running} | {wanted} | {victims} | {_range(times_s, '.3f')} | {limit} |"
        )
    print(f"\nExponent over nodes: {exponent(sizes, middles):.2f}")


def show_curves(*, quick: bool) -> None:
    """Print how the cost of a step grows with nodes, with waiting and with running jobs."""
    most = 20.0
    print("\n## How the cost of a step grows (greedy backfilling)\n")
    print("| what grows | from | to | median ms at each | exponent |\n|---|---:|---:|---|---:|")
    sizes: tuple[int, ...] = (250, 1000) if quick else (1000, 2500, 6000, 12_500, 25_000)
    _row("nodes (1,000 waiting)", sizes, [_step_s(size, 1000, most) for size in sizes])
    sizes = (100, 1000) if quick else (100, 1000, 10_000, 100_000)
    nodes = 250 if quick else 2500
    _row(f"waiting ({nodes:,} nodes)", sizes, [_step_s(nodes, size, most) for size in sizes])
    sizes = (100, 500) if quick else (250, 1000, 4000, 12_000)
    _row("running (one node each)", sizes, [_running_s(size) for size in sizes])


def _step_s(nodes: int, waiting: int, seconds_max: float) -> float:
    inventory = grid(nodes, policy=POLICIES["backfill-greedy"])
    drive = filled(inventory, Jobs(kinds=_KINDS), waiting=waiting)
    jobs = Jobs(kinds=_KINDS, seed=7, prefix="k")
    stop_s = time.perf_counter() + seconds_max
    for _ in range(100):
        drive.step(drive.end(), timed=True)
        drive.step([jobs.next(drive.now_s)], timed=True)
        if time.perf_counter() > stop_s:
            break
    gc.unfreeze()
    return statistics.median(drive.seconds)


def _running_s(running: int) -> float:
    """Return the median step where a job runs on each node; one ends as another comes."""
    drive = Drive(grid(running, policy=POLICIES["backfill-greedy"]))
    jobs = Jobs(sizes=(8,))
    drive.step([jobs.next(0.0) for _ in range(running)])
    for _ in range(100):
        drive.step(drive.end(), timed=True)
        drive.step([jobs.next(drive.now_s)], timed=True)
    return statistics.median(drive.seconds)


def _row(title: str, sizes: Sequence[int], seconds: Sequence[float]) -> None:
    shown = ", ".join(f"{one * 1e3:.2f}" for one in seconds)
    print(
        f"| {title} | {sizes[0]:,} | {sizes[-1]:,} | {shown} | {exponent(sizes, seconds):.2f} |",
        flush=True,
    )


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the slope of a straight line through the logarithms: 1 is linear."""
    slope, _ = np.polyfit([math.log(one) for one in sizes], [math.log(s) for s in seconds], 1)
    return float(slope)


def _range(values: Sequence[float], form: str = ",.0f") -> str:
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:{form}} ({least:{form}} to {most:{form}})"
