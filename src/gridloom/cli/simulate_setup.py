"""From the flags of `simulate` to a grid, jobs and policies that fit together."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from msgspec.structs import replace

from gridloom.base.errors import InputError, Problem
from gridloom.cli.simulate_files import read_bytes, read_ground, read_text
from gridloom.cli.simulate_flags import Jobs, World
from gridloom.cli.simulate_made import MADE, read_recipe
from gridloom.model.booking import Booking
from gridloom.model.inventory import Inventory, Node, Site
from gridloom.model.policy import POLICIES, Policy, combined
from gridloom.model.quota import Queue
from gridloom.sim.generate import GeneratorSpec, generate
from gridloom.sim.workload import (
    ReadOptions,
    Workload,
    journal_inventory,
    larger_than,
    read,
)

SITE, NODE = "grid", "all"
"""Names of what ``--accelerators`` makes."""

_SWITCHES = ("elastic", "defragment", "predict")
_ACCELERATORS_MAX = 10_000_000
_NODE_DEVICES = 8


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What is simulated.

    Attributes:
        inventory: The grid; each run gives it its own policy.
        bookings: Of the grid.
        jobs: Returns the workload of a seed.
        notes: What a reader of results should know, a sentence each.
        source: What the jobs came from.
    """

    inventory: Inventory
    bookings: tuple[Booking, ...]
    jobs: Callable[[int], Workload]
    notes: tuple[str, ...]
    source: str


def read_setup(jobs: Jobs, world: World) -> Setup:
    """Return the grid and the jobs.

    Raises:
        InputError: With what is wrong with the flags or the files.
    """
    _check(jobs, world)
    grid, bookings = read_ground(world.grid) if world.grid else (None, ())
    if jobs.workload.startswith(MADE):
        return _made(jobs, world, grid, bookings)
    path = Path(jobs.workload)
    data = read_bytes(path, "the workload")
    options = _options(jobs, grid)
    workload = read(data, format=jobs.format_, file=str(path), options=options)
    notes: list[str] = []
    if grid is None and not world.accelerators and workload.format == "journal":
        grid = journal_inventory(data.decode("utf-8", errors="replace"))
    if grid is None:
        grid = _one_node(_kinds(workload), world.accelerators or workload.devices)
    elif strange := _strange(workload, grid):
        options = replace(options, named=False)
        workload = read(data, format=jobs.format_, file=str(path), options=options)
        notes.append(
            f"the grid has none of the log's kinds of device ({', '.join(strange)}):"
            " all jobs may run on its own"
        )
    workload = _fitted(workload, jobs, grid)
    grid, declared = _with_queues(grid, workload, told=world.grid is not None)
    return Setup(
        inventory=grid,
        bookings=bookings,
        jobs=lambda _: workload,
        notes=(*notes, *declared, *workload.notes),
        source=str(path),
    )


def read_policies(text: str, inventory: Inventory) -> tuple[Policy, ...]:
    """Return the policies that ``text`` names; without any, the grid's.

    Raises:
        InputError: One is unknown; all that there are, and the nearest, are named.
    """
    if not text.strip():
        return (inventory.policy,)
    names = dict.fromkeys(
        name
        for word in text.split(",")
        if word.strip()
        for name in (POLICIES if word.strip() == "all" else [word.strip()])
    )
    if not names:
        raise InputError([_unknown(text.strip(), text.strip())])
    policies, problems = [], []
    for name in names:
        try:
            policies.append(combined(name))
        except KeyError as error:
            problems.append(_unknown(str(error.args[0]), name))
    if problems:
        raise InputError(problems)
    return tuple(policies)


def _unknown(part: str, name: str) -> Problem:
    known = [*POLICIES, *_SWITCHES, "all"]
    near = get_close_matches(part.lower(), known, n=1)
    start = f"did you mean `{near[0]}`? There" if near else "there"
    of = f" in `{name}`" if part != name else ""
    return Problem(
        f"there is no policy `{part}`{of}",
        f"{start} are {', '.join(POLICIES)} and `all`; joined by `+` with each other or with"
        f" {', '.join(_SWITCHES)}",
        field="--policy",
    )


def _check(jobs: Jobs, world: World) -> None:
    problems = []
    if not jobs.workload:
        problems.append(
            Problem("is needed", f"name a log, or write {MADE}seren,jobs=1000", field="--workload")
        )
    if world.grid and world.accelerators:
        problems.append(Problem("stands beside --grid", "give one", field="--accelerators"))
    if world.accelerators is not None and not 1 <= world.accelerators <= _ACCELERATORS_MAX:
        message = f"{world.accelerators} devices cannot be"
        right = f"write a number from 1 to {_ACCELERATORS_MAX}"
        problems.append(Problem(message, right, field="--accelerators"))
    if jobs.limit < 0:
        problems.append(Problem(f"{jobs.limit} jobs cannot be", "write 1000", field="--limit"))
    if not 0 <= world.noise <= 2:
        message = f"{world.noise:g} cannot be"
        problems.append(Problem(message, "write a number from 0 to 2, as 0.05", field="--noise"))
    if problems:
        raise InputError(problems)


def _made(jobs: Jobs, world: World, grid: Inventory | None, bookings: tuple[Booking, ...]) -> Setup:
    options = _options(jobs, grid)
    total = _devices(grid) if grid else world.accelerators or 0
    spec = read_recipe(jobs.workload, options, total, elastic=jobs.elastic)
    if grid is None:
        grid = _one_node(spec.options.accelerators, world.accelerators or spec.devices)
    first = grid

    def of_seed(seed: int) -> Workload:
        return _fitted(generate(_shared(spec, first), random.Random(seed)), jobs, first)

    grid, declared = _named_queues(grid, spec.queues, told=world.grid is not None)
    return Setup(
        inventory=grid, bookings=bookings, jobs=of_seed, notes=declared, source=jobs.workload
    )


def _shared(spec: GeneratorSpec, grid: Inventory) -> GeneratorSpec:
    """Return the spec with users dealt to the grid's queues, unless it names its own."""
    names = tuple(queue.name for queue in grid.queues if queue.name)
    return replace(spec, queues=names) if names and not spec.queues else spec


def _options(jobs: Jobs, grid: Inventory | None) -> ReadOptions:
    sizes: Counter[int] = Counter()
    kinds: Counter[str] = Counter()
    for site in grid.sites if grid else ():
        for node in site.nodes:
            sizes[node.count] += 1
            kinds[node.accelerator] += node.count
    return ReadOptions(
        accelerators=tuple(kind for kind, _ in kinds.most_common()) or ("gpu",),
        gang=jobs.gang,
        node_devices=min(sizes, key=lambda size: (-sizes[size], size)) if sizes else _NODE_DEVICES,
        elastic=jobs.elastic,
        part=jobs.part,
        profiles=read_text(jobs.profiles, "the profiles") if jobs.profiles else "",
    )


def _kinds(workload: Workload) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(
            option.accelerator for arrival in workload.arrivals for option in arrival.spec.options
        )
    )


def _strange(workload: Workload, grid: Inventory) -> tuple[str, ...]:
    """Return the kinds that the jobs name where the grid has none of them."""
    there = {node.accelerator for site in grid.sites for node in site.nodes}
    kinds = _kinds(workload)
    return () if any(kind in there for kind in kinds) else kinds


def _one_node(kinds: Sequence[str], devices: int) -> Inventory:
    if devices < 1:
        message = "says nothing of its machine, and no grid is given"
        remedy = "add --grid FILE, or --accelerators N"
        raise InputError([Problem(message, remedy, field="--workload")])
    nodes = tuple(
        Node(name=kind if len(kinds) > 1 else NODE, address="", accelerator=kind, count=devices)
        for kind in kinds
    )
    return Inventory(sites=(Site(name=SITE, kind="simulated", nodes=nodes),))


def _devices(grid: Inventory) -> int:
    return sum(node.count for site in grid.sites for node in site.nodes)


def _fitted(workload: Workload, jobs: Jobs, grid: Inventory) -> Workload:
    """Return the jobs that are asked for and that the grid has devices for.

    Raises:
        InputError: None is left.
    """
    if jobs.limit:
        workload = replace(workload, arrivals=workload.arrivals[: jobs.limit])
    workload = larger_than(workload, _devices(grid))
    if not workload.arrivals:
        message = f"every job is larger than the grid with its {_devices(grid)} devices"
        raise InputError([Problem(message, "simulate a larger one", field="--workload")])
    return workload


def _with_queues(
    grid: Inventory, workload: Workload, *, told: bool
) -> tuple[Inventory, tuple[str, ...]]:
    names = sorted({arrival.spec.queue for arrival in workload.arrivals})
    return _named_queues(grid, names, told=told)


def _named_queues(
    grid: Inventory, names: Sequence[str], *, told: bool
) -> tuple[Inventory, tuple[str, ...]]:
    """Return the grid with queues for all jobs, those that it does not declare without limits."""
    known = {queue.name for queue in grid.queues}
    new = [name for name in names if name and name not in known]
    if not new:
        return grid, ()
    grid = replace(grid, queues=(*grid.queues, *(Queue(name=name) for name in new)))
    if not (told and known):
        return grid, ()
    shown = ", ".join(new[:5]) + (", ..." if len(new) > 5 else "")
    return grid, (f"queues of the log that the grid does not have are without limits: {shown}",)
