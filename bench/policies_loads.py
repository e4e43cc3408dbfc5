"""Jobs and grids for ``bench/policies.py``, and what changes them for one row of a table."""

import csv
import io
import math
import random
import statistics
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.policies_run import Case
from msgspec.structs import replace

from gridloom.base.errors import InputError, Problem
from gridloom.cli.simulate_files import read_text
from gridloom.model.inventory import Inventory, Node, Site
from gridloom.model.quota import Cohort, Queue
from gridloom.model.spec import GroupNeed, Option, Speed
from gridloom.sim.generate import GeneratorSpec, generate
from gridloom.sim.workload import Arrival, ReadOptions, openb_inventory, read

DAY_S, HOUR_S = 86400.0, 3600.0
NODE, RACK_NODES, POD_RACKS, SITE_NODES = 8, 4, 4, 16
LEVELS = ("pod", "rack")

LONGEST_S = {"philly": 2 * DAY_S, "openb": DAY_S}
"""Longer jobs are left out: in a window of some days one of them would decide its figures."""

NEVER_S = 1e9
CHECKPOINT_S, RESTART_S, EVERY_S = 30.0, 120.0, 1800.0
"""Of ``checkpoints``: an assumption, the same as that of made loads."""

STEP_TIMES = {
    "AWS": (1.0, 1.75, 1.925, 2.12),
    "RTX": (1.0, 1.03, 1.06, 1.09),
}
"""Step time by the level reached (node, rack, pod, site) over that within one node. The second is
what `profiles` prints: the median over Sia's models of four devices on two nodes over one node, on
AWS's and on the RTX nodes. Nobody measured further out: each level costs another 10 % (of AWS) or
3 % (of RTX), an assumption."""

KINDS = {
    "t4": (65.0, 320.0), "p100": (18.7, 732.0), "v100m16": (112.0, 900.0),
    "v100m32": (112.0, 900.0), "a10": (125.0, 600.0), "g2": (125.0, 600.0), "g3": (112.0, 900.0),
}  # fmt: skip
"""Dense TFLOP/s in half precision and GB/s of memory, from NVIDIA's data sheets. Nobody says what
G2 and G3 are: they are taken for A10 and V100, an assumption."""

PRICES = (("north", 2.6, 30.0), ("middle", 2.0, 350.0), ("south", 1.6, 650.0))
"""Sites of made loads: price an hour, and grams of CO2 a kWh. The clean one is dear."""


def philly(path: Path, jobs: int, windows: int, load: float) -> list[Case]:
    """Return windows at the end of Philly's log, each on whole racks that give the load."""
    arrivals, left_out = _read(path, "philly", ReadOptions())
    cases = []
    for number, part in enumerate(_windows(arrivals, jobs, windows), start=1):
        rack = NODE * RACK_NODES
        racks = max(1, round(_asked(part) / load / rack))
        grid = _grid([("site", racks * RACK_NODES, 0.0, 0.0)], part)
        about = f"{_said(part)}; {racks} racks of {RACK_NODES} nodes of {NODE}; {left_out}"
        cases.append(_case("philly", number, about, grid, part))
    return cases


def openb(pods: Path, nodes: Path, jobs: int, windows: int, load: float) -> list[Case]:
    """Return windows at the end of openb's log, closer together, on every 60th of its nodes."""
    grid = _thinned(openb_inventory(read_text(nodes, "the nodes"), str(nodes)))
    counts = defaultdict(int)
    for node in grid.sites[0].nodes:
        counts[node.accelerator] += node.count
    kinds = tuple(sorted(counts, key=lambda kind: -counts[kind]))
    arrivals, left_out = _read(pods, "openb", ReadOptions(accelerators=kinds))
    arrivals = _on(arrivals, counts)
    devices = sum(counts.values())
    cases = []
    for number, part in enumerate(_windows(arrivals, jobs, windows), start=1):
        span_s = part[-1].submit_s - part[0].submit_s
        device_s = sum(a.spec.options[0].devices * a.work_s for a in part)
        faster = load * devices * span_s / device_s
        close = _closer(part, faster)
        about = (
            f"{_said(close)}; submissions {faster:.1f} times as fast; {devices} devices; {left_out}"
        )
        with_queues = replace(grid, queues=_queues(close))
        cases.append(_case("openb", number, about, with_queues, close))
    return cases


def made(cluster: str, jobs: int, seed: int, load: float) -> Case:
    """Return jobs as those of Acme, on three sites."""
    grid = _grid([(name, SITE_NODES, price, carbon) for name, price, carbon in PRICES], ())
    site_devices = SITE_NODES * NODE
    spec = GeneratorSpec(
        jobs=jobs,
        devices=site_devices,
        cluster="kalos" if cluster == "kalos" else "seren",
        load=load * len(PRICES),
        forecast_spread=0.5,
        queues=("a", "b", "c"),
    )
    arrivals = generate(spec, random.Random(seed)).arrivals
    grid = replace(grid, queues=_queues(arrivals))
    about = f"{_said(arrivals)}; 3 sites of {site_devices} devices"
    return Case(
        name=f"{cluster}-{seed}", about=about, grid=grid, arrivals=arrivals, made=spec, seed=seed
    )


def at_load(case: Case, load: float) -> Case:
    """Return the same made jobs, arriving as fast as the load says."""
    return _again(case, load=load * len(PRICES))


def elastic(case: Case, scaling: float = 0.9) -> Case:
    """Return the same made jobs, of which those that train may run on other numbers of devices."""
    return _again(case, elastic=1.0, scaling=scaling)


def quotas(case: Case, *, lent: bool) -> Case:
    """Return the case with a third of the devices for each queue."""
    third = sum(n.count for s in case.grid.sites for n in s.nodes) // len(case.grid.queues)
    queues = tuple(
        replace(q, cohort="all" if lent else "", nominal={"gpu": third}) for q in case.grid.queues
    )
    cohorts = (Cohort(name="all"),) if lent else ()
    return replace(case, grid=replace(case.grid, queues=queues, cohorts=cohorts))


def packed(case: Case, *, required: bool = True) -> Case:
    """Return jobs whose ranks must, or should, fill nodes."""

    def change(option: Option) -> Option:
        devices = option.devices
        block = max(r for r in range(1, min(devices, NODE) + 1) if devices % r == 0)
        need = GroupNeed(ranks=block, level="node", required=required)
        return replace(option, groups=(need,) if block > 1 else ())

    return _options(case, lambda _, options: tuple(map(change, options)))


def placed(case: Case, table: Sequence[float]) -> Case:
    """Return jobs whose training step takes longer the further out their gang sits.

    The log's duration is then that of the furthest place: work counts at ``Option.step_s``.
    """
    sizes = (NODE, NODE * RACK_NODES, NODE * RACK_NODES * POD_RACKS, math.inf)
    names = ("node", "rack", "pod", "site")

    def change(option: Option) -> Option:
        if option.devices == 1:
            return option
        reached = [
            (name, step)
            for name, step, size in zip(names, table, sizes, strict=True)
            if option.devices <= size
        ]
        speeds = tuple(Speed(level=name, step_s=step) for name, step in reached)
        return replace(option, speeds=speeds, step_s=reached[-1][1])

    return _options(case, lambda _, options: tuple(map(change, options)))


def kinds_differ(case: Case) -> Case:
    """Return jobs that are bound by arithmetic or by memory, by turns as the id falls."""

    def change(job_id: str, options: tuple[Option, ...]) -> tuple[Option, ...]:
        bound = zlib.crc32(job_id.encode()) % 2
        first = KINDS[options[0].accelerator][bound]
        return tuple(replace(o, step_s=first / KINDS[o.accelerator][bound]) for o in options)

    return _options(case, change)


def priority_of_ls(case: Case) -> Case:
    """Return pods of which the latency-sensitive come first."""
    arrivals = tuple(
        replace(a, spec=replace(a.spec, priority=1)) if a.spec.queue == "LS" else a
        for a in case.arrivals
    )
    return replace(case, arrivals=arrivals)


def checkpoints(case: Case, save_s: float = CHECKPOINT_S, restart_s: float = RESTART_S) -> Case:
    """Return jobs that save their state when they are stopped, and begin from it."""

    def change(arrival: Arrival) -> Arrival:
        forecast = replace(
            arrival.spec.forecast,
            checkpoint_s=save_s,
            restart_s=restart_s,
            checkpoint_every_s=EVERY_S if save_s < NEVER_S else 0.0,
        )
        return replace(arrival, spec=replace(arrival.spec, forecast=forecast))

    return replace(case, arrivals=tuple(map(change, case.arrivals)))


def placement_ratios(path: Path) -> str:
    """Return what two nodes cost against one, by model and kind of node, from measured steps."""
    steps: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    for row in csv.DictReader(io.StringIO(read_text(path, "the placements"))):
        key = row["cluster_type"], row["app"], row["local_bsz"]
        steps[key][row["placement"]] = float(row["step_time"])
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (nodes, model, _), by in steps.items():
        if "4" in by and "22" in by:
            found[nodes][model].append(by["22"] / by["4"])
    lines = ["| nodes | model: 2 + 2 devices over 4 in one node | median |", "|---|---|---:|"]
    for nodes, models in sorted(found.items()):
        medians = {model: statistics.median(ratios) for model, ratios in sorted(models.items())}
        told = ", ".join(f"{model} {ratio:.2f}" for model, ratio in medians.items())
        lines.append(f"| {nodes} | {told} | {statistics.median(medians.values()):.2f} |")
    return "\n".join(lines)


def _read(path: Path, form: str, options: ReadOptions) -> tuple[tuple[Arrival, ...], str]:
    load = read(read_text(path, "the log"), format=form, file=str(path), options=options)
    kept = tuple(a for a in load.arrivals if a.work_s <= LONGEST_S[form])
    hours = LONGEST_S[form] / HOUR_S
    share = 1 - len(kept) / len(load.arrivals)
    return kept, f"{share:.1%} of the log's jobs run more than {hours:.0f} h and are left out"


def _windows(arrivals: tuple[Arrival, ...], jobs: int, count: int) -> list[tuple[Arrival, ...]]:
    if len(arrivals) < jobs * count:
        message = f"has {len(arrivals)} usable jobs, {jobs * count} are asked for"
        raise InputError([Problem(message, "ask for fewer", field="--jobs")])
    tail = arrivals[-jobs * count :]
    return [tail[number * jobs : (number + 1) * jobs] for number in range(count)]


def _asked(part: Sequence[Arrival]) -> float:
    """Return the devices that would run on average while jobs arrive, were there no limit."""
    end_s = part[-1].submit_s
    device_s = sum(a.spec.options[0].devices * min(a.work_s, end_s - a.submit_s) for a in part)
    return device_s / (end_s - part[0].submit_s)


def _closer(part: Sequence[Arrival], faster: float) -> tuple[Arrival, ...]:
    first_s = part[0].submit_s
    return tuple(replace(a, submit_s=first_s + (a.submit_s - first_s) / faster) for a in part)


def _said(part: Sequence[Arrival]) -> str:
    days = (part[-1].submit_s - part[0].submit_s) / DAY_S
    work = sorted(a.work_s for a in part)
    most = max(a.spec.options[0].devices for a in part)
    return (
        f"{len(part)} jobs in {days:.2f} days, median {work[len(work) // 2]:.0f} s, p99"
        f" {work[int(len(work) * 0.99)] / HOUR_S:.1f} h, up to {most} devices,"
        f" {_asked(part):.0f} devices would run on average"
    )


def _grid(sites: Sequence[tuple[str, int, float, float]], part: Sequence[Arrival]) -> Inventory:
    made = []
    for name, nodes, price, carbon in sites:
        rows = []
        for number in range(nodes):
            rack = number // RACK_NODES
            path = (f"p{rack // POD_RACKS}", f"r{rack}")
            rows.append(
                Node(name=f"n{number:03d}", address="", accelerator="gpu", count=NODE, path=path)
            )
        made.append(
            Site(
                name=name,
                kind="simulated",
                nodes=tuple(rows),
                levels=LEVELS,
                price_per_accelerator_hour=price,
                carbon_g_per_kwh=carbon,
                power_w_per_accelerator=700.0 if carbon else 0.0,
            )
        )
    return Inventory(sites=tuple(made), queues=_queues(part))


def _thinned(grid: Inventory) -> Inventory:
    """Return every 60th node of each kind and size, at least one."""
    groups: dict[tuple[str, int], list[Node]] = defaultdict(list)
    for node in grid.sites[0].nodes:
        groups[node.accelerator, node.count].append(node)
    nodes = [node for group in groups.values() for node in group[::60]]
    return replace(grid, sites=(replace(grid.sites[0], nodes=tuple(nodes)),))


def _on(arrivals: tuple[Arrival, ...], counts: dict[str, int]) -> tuple[Arrival, ...]:
    """Return jobs that can run on the kinds that there are."""
    return tuple(a for a in arrivals if any(o.accelerator in counts for o in a.spec.options))


def _queues(part: Sequence[Arrival]) -> tuple[Queue, ...]:
    return tuple(Queue(name=name) for name in sorted({a.spec.queue for a in part}))


def _case(what: str, number: int, about: str, grid: Inventory, part: tuple[Arrival, ...]) -> Case:
    plain = Case(name=f"{what}-{number}", about=about, grid=grid, arrivals=part, seed=number)
    return checkpoints(plain)


def _again(case: Case, **changes: float) -> Case:
    if case.made is None:
        raise InputError([Problem("is no made load", "make one")])
    spec = replace(case.made, **changes)
    return replace(case, arrivals=generate(spec, random.Random(case.seed)).arrivals)


def _options(case: Case, change: Callable[[str, tuple[Option, ...]], tuple[Option, ...]]) -> Case:
    arrivals = tuple(
        replace(a, spec=replace(a.spec, options=change(a.job_id, a.spec.options)))
        for a in case.arrivals
    )
    return replace(case, arrivals=arrivals)
