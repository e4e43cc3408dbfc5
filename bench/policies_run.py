"""One run of a policy for ``bench/policies.py``, its figures, and tables of them."""

import math
import statistics
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from gridloom.cli.simulate_forecast import on_calendar, read_outlook
from gridloom.core.machine import Machine
from gridloom.model.inventory import Inventory
from gridloom.model.policy import Policy
from gridloom.planner.durations import Method
from gridloom.sim.forecasts import Learned
from gridloom.sim.gauges import scatter
from gridloom.sim.generate import GeneratorSpec
from gridloom.sim.record import Point
from gridloom.sim.report import Circumstances, Summary, summarise
from gridloom.sim.simulation import Simulation
from gridloom.sim.terms import Forecasts, SimTerms
from gridloom.sim.workload import Arrival, Workload

HOUR_S = 3600.0


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A load on a grid under a policy.

    Attributes:
        name: Of the window or seed.
        about: What a reader should know of it.
        grid: Where.
        arrivals: Jobs.
        policy: By which rules.
        forecast: Who predicts: ``told`` by the load, or a way of `gridloom simulate`, or a method.
        made: What the jobs are made from, where they are.
        seed: Of the run.
    """

    name: str
    about: str
    grid: Inventory
    arrivals: tuple[Arrival, ...]
    policy: Policy = Policy()
    forecast: str = "told"
    made: GeneratorSpec | None = None
    seed: int = 1


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What one run came to; shares are of the time in which jobs arrive."""

    summary: Summary
    utilisation: float
    fragmentation: float
    worst_queue_wait_s: float


_KNOWN: dict[tuple[object, ...], Result] = {}


def run(case: Case, label: str) -> Result:
    """Simulate to the end; what ran before is not run again."""
    jobs = zlib.crc32(repr(case.arrivals).encode())
    grid = zlib.crc32(repr(case.grid).encode())
    key = (case.name, jobs, grid, repr(replace(case.policy, name="")), case.forecast, case.seed)
    if key not in _KNOWN:
        _KNOWN[key] = _simulated(case, label)
    return _KNOWN[key]


def _simulated(case: Case, label: str) -> Result:
    began_s = time.process_time()
    load = on_calendar(Workload(arrivals=case.arrivals))
    method: Method | None = None
    if case.forecast in ("medians", "learned"):
        method, arrivals = ("medians" if case.forecast == "medians" else "learned"), load.arrivals
    else:
        way = "user" if case.forecast == "told" else case.forecast
        arrivals = read_outlook(way).told(load, case.seed)
    terms = SimTerms(spans=False, keep_over=False)
    machine = Machine(terms=replace(terms.lease_terms(), forget_over=True))
    clock: list[Simulation] = []
    learner: Forecasts | None = None
    if method:
        learner = Learned(case.seed, method, lambda: clock[0].now_s)
    sim = Simulation(
        replace(case.grid, policy=case.policy),
        arrivals,
        seed=case.seed,
        terms=terms,
        forecasts=learner,
        gauge=scatter(machine),
        machine=machine,
    )
    clock.append(sim)
    sim.run()
    cpu_s = time.process_time() - began_s
    about = Circumstances(policy=label, seed=case.seed, now_s=sim.now_s, cpu_s=cpu_s)
    summary = summarise(sim.record, arrivals, about)
    open_jobs = summary.unfinished + summary.never_ran
    note = f", {open_jobs} NOT ENDED" if open_jobs else ""
    print(
        f"{case.name} {label}: {cpu_s:.1f} s, jct {_h(summary.jct_mean_s)} h{note}",
        file=sys.stderr,
        flush=True,
    )
    curve = [p for p in sim.record.curve() if p.at_s <= arrivals[-1].submit_s]
    return Result(
        summary=summary,
        utilisation=_share(curve, lambda p: p.used, lambda p: p.available),
        fragmentation=_share(curve, lambda p: p.fragmentation, lambda p: 1.0),
        worst_queue_wait_s=max(f.wait_mean_s or 0.0 for f in summary.by_queue.values()),
    )


def presets_table(rows: Sequence[tuple[str, list[Result]]]) -> str:
    """Return means over the windows; last comes the paired ratio to the first row's."""
    lines = [
        "| policy | JCT mean, h | p50 | p90 | p99 | wait mean, h | p50 | p90 | p99 | used |"
        " scattered | lost + overhead, device-h | evicted | Jain | worst queue's wait, h |"
        " JCT over backfill's (least-most) | CPU s |",
        "|---|" + "---:|" * 16,
    ]
    base = [result.summary.jct_mean_s for result in rows[0][1]]
    for label, results in sorted(rows, key=lambda row: _ratio(row[1], base)[0]):
        s = [result.summary for result in results]
        cells = [
            *(
                _h(_mean([getattr(one, f"{what}_{which}_s") for one in s]))
                for what in ("jct", "wait")
                for which in ("mean", "p50", "p90", "p99")
            ),
            f"{_mean([r.utilisation for r in results]):.3f}",
            f"{_mean([r.fragmentation for r in results]):.2f}",
            *_lost(s),
            f"{_mean([one.fairness or math.nan for one in s]):.2f}",
            _h(_mean([r.worst_queue_wait_s for r in results])),
            _told(_ratio(results, base)),
            f"{_mean([one.cpu_s for one in s]):.1f}",
        ]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def ratios_table(rows: Sequence[tuple[str, list[Result]]]) -> str:
    """Return ratios to the first row's figures, window by window: mean (least-most)."""
    lines = [
        "| | JCT mean, h | JCT mean, ratio | p50 | p90 | p99 | wait mean | used | scattered |"
        " lost + overhead, device-h | evicted | Jain | device-h | cost | CO2 |",
        "|---|" + "---:|" * 14,
    ]
    first = [result.summary for result in rows[0][1]]
    for label, results in rows:
        s = [result.summary for result in results]

        def over(name: str, s: list[Summary] = s) -> str:
            return _told(_pairs([getattr(x, name) for x in s], [getattr(x, name) for x in first]))

        cells = [
            _h(_mean([one.jct_mean_s for one in s])),
            *(over(f"jct_{which}_s") for which in ("mean", "p50", "p90", "p99")),
            over("wait_mean_s"),
            f"{_mean([r.utilisation for r in results]):.3f}",
            f"{_mean([r.fragmentation for r in results]):.2f}",
            *_lost(s),
            f"{_mean([one.fairness or math.nan for one in s]):.2f}",
            *(
                f"{_pairs([getattr(x, n) for x in s], [getattr(x, n) for x in first])[0]:.3f}"
                for n in ("device_s", "cost", "carbon_kg")
            ),
        ]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return filled(lines)


def filled(lines: Sequence[str]) -> str:
    """Return a table without the columns that say nothing in any row."""
    cells = [
        line.strip("| ").split(" | ") if n != 1 else line.strip("|").split("|")
        for n, line in enumerate(lines)
    ]
    cells[0] = ["", *cells[0][-len(cells[1]) + 1 :]] if lines[0].startswith("| |") else cells[0]
    kept = [
        place
        for place in range(len(cells[0]))
        if any(row[place] not in ("nan", "-") for row in cells[2:])
    ]
    return "\n".join("| " + " | ".join(row[place] for place in kept) + " |" for row in cells)


def _lost(s: Sequence[Summary]) -> list[str]:
    lost_h = _mean([one.lost_device_s for one in s]) / HOUR_S
    overhead_h = _mean([one.overhead_device_s for one in s]) / HOUR_S
    return [f"{lost_h:.0f} + {overhead_h:.0f}", f"{_mean([one.preemptions for one in s]):.0f}"]


Ratio = tuple[float, float, float]


def _ratio(results: Sequence[Result], base: Sequence[float | None]) -> Ratio:
    return _pairs([result.summary.jct_mean_s for result in results], base)


def _pairs(values: Sequence[float | None], base: Sequence[float | None]) -> Ratio:
    """Return the geometric mean of the ratios, the least and the most."""
    ratios = [v / b for v, b in zip(values, base, strict=True) if v is not None and b]
    if not ratios or min(ratios) <= 0:
        return (math.nan, math.nan, math.nan)
    return statistics.geometric_mean(ratios), min(ratios), max(ratios)


def _told(ratio: Ratio) -> str:
    if math.isnan(ratio[0]):
        return "-"
    mean, least, most = (f"{value:.2f}" for value in ratio)
    return mean if least == most else f"{mean} ({least}-{most})"


def _share(
    curve: Sequence[Point], part: Callable[[Point], float], whole: Callable[[Point], float]
) -> float:
    steps = [(p, q.at_s - p.at_s) for p, q in pairwise(curve) if part(p) == part(p)]
    total = math.fsum(whole(p) * s for p, s in steps)
    return math.fsum(part(p) * s for p, s in steps) / total if total else math.nan


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else math.nan


def _h(value_s: float | None) -> str:
    return "-" if value_s is None else f"{value_s / HOUR_S:.2f}"
