"""Handing a prepared job in: shows its plan, asks, writes its run directory, posts it."""

import fcntl
import random
import sys
from collections.abc import Sequence
from pathlib import PurePath

from msgspec.structs import replace
from rich.console import Console

from gridloom.base.errors import GridloomError, InputError
from gridloom.base.units import format_bytes, format_count
from gridloom.cli.arrays import array_specs
from gridloom.cli.lookup import all_jobs
from gridloom.cli.output import console, pairs, table
from gridloom.cli.prepare import Prepared, remove_run_directories, write_run_directories
from gridloom.cli.wiring import Plane
from gridloom.core.machine import Machine
from gridloom.model.action import StartAttempt
from gridloom.model.booking import Booking
from gridloom.model.event import (
    AnyEvent,
    BookingDropped,
    BookingMade,
    InventoryChanged,
    JobSubmitted,
)
from gridloom.model.inventory import CPU, Inventory, Site
from gridloom.model.life import OVER, Job, Placement
from gridloom.model.parallel import ParallelPlan, SiteSync
from gridloom.model.spec import JobSpec
from gridloom.planner.collective import bucket_bytes, bytes_per_step
from gridloom.planner.shape import parameter_count
from gridloom.wire.convert import deadline_s
from gridloom.wire.parallel_document import ParallelDocument

_ANSWERS = {"": True, "y": True, "yes": True, "n": False, "no": False}


def show_plan(prepared: Prepared) -> None:
    """Print where the job would run on an empty grid, and what is predicted of it."""
    out = console()
    placement = expected_placement(prepared)
    rows = []
    first_rank = 0
    for task in placement.tasks:
        site = prepared.grid.inventory.site(task.site)
        last_rank = first_rank + len(task.devices) - 1
        ranks = str(first_rank) if last_rank == first_rank else f"{first_rank}-{last_rank}"
        first_rank = last_rank + 1
        memory = placement.option.memory_bytes
        price = site.price_per_accelerator_hour * len(task.devices)
        rows.append(
            (
                task.site,
                task.node,
                f"{placement.option.accelerator} {_numbers(task.devices)}",
                ranks,
                format_bytes(memory) if memory else "unknown",
                f"{price:g} {prepared.grid.inventory.currency}" if price else "-",
            )
        )
    columns = ("site", "node", "devices", "ranks", "memory a rank", "price an hour")
    out.print(table(columns, rows, right=columns[3:]))
    out.print(pairs(_about(prepared, placement)))
    out.print()


def confirm(*, yes: bool) -> bool:
    """Ask whether to go on; yes without asking when told so.

    Raises:
        InputError: Nobody can be asked.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise InputError("nobody can be asked here: add -y to go on without asking")
    out = Console(highlight=False)
    while True:
        try:
            answer = out.input("go on? [Y/n] ", markup=False).strip().lower()
        except (EOFError, KeyboardInterrupt) as ended:
            out.print()  # the question stands without an answer on its line
            if isinstance(ended, KeyboardInterrupt):
                raise
            return False
        if answer in _ANSWERS:
            return _ANSWERS[answer]


def hand_in(plane: Plane, prepared: Prepared) -> list[str]:
    """Write the run directories and post the jobs; they are safe on disk when this returns.

    Returns:
        The ids: one, or those of an array.

    Raises:
        InputError: Other jobs are under way on another grid.
    """
    inventory = prepared.grid.inventory
    events: list[AnyEvent] = []
    # One hand-in at a time, so that no other grid comes in between the look and the post
    with plane.settings.handin_lock.open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        present = _present_grid(plane)
        if present != inventory:
            under_way = [job for job in all_jobs(plane).values() if job.state not in OVER]
            if not under_way:
                events.append(InventoryChanged(inventory=inventory))
            elif present is None or not _same_file(present, prepared):
                _refuse_another_grid(plane, under_way[0])
        now_s = plane.clock.now_s()
        events += _booked(plane, prepared.grid.bookings, now_s)
        specs = _specs(prepared, now_s)
        write_run_directories(prepared, specs, plane.settings)
        events += [
            JobSubmitted(job_id=job_id, spec=spec, submitted_s=now_s)
            for job_id, spec in specs.items()
        ]
        try:
            plane.journal.post(events)
        except GridloomError:
            remove_run_directories(specs, plane.settings)
            raise
    return list(specs)


def expected_placement(prepared: Prepared) -> Placement:
    """Return where the job would run if it had the grid to itself."""
    return expected_start(prepared).placement


def expected_start(prepared: Prepared) -> StartAttempt:
    """Return how the job would start if it had the grid to itself: the core decides, as it will."""
    machine = Machine()
    events: list[AnyEvent] = [
        InventoryChanged(inventory=prepared.grid.inventory),
        JobSubmitted(job_id=prepared.job_id, spec=prepared.spec, submitted_s=0.0),
    ]
    actions = machine.step(events, 0.0, random.Random(0))
    return next(action for action in actions if isinstance(action, StartAttempt))


def _present_grid(plane: Plane) -> Inventory | None:
    """Return the grid as it is, or will be once the letters are read."""
    handed_in = [letter.event for letter in plane.journal.letters()]
    grids = [fact.inventory for fact in handed_in if isinstance(fact, InventoryChanged)]
    return grids[-1] if grids else plane.state().inventory


def _specs(prepared: Prepared, now_s: float) -> dict[str, JobSpec]:
    """Return what is handed in at ``now_s``, by id: the job, or those of its array."""
    document = prepared.file.document
    spec = replace(prepared.spec, deadline_s=deadline_s(document, now_s))
    if document.array is None:
        return {prepared.job_id: spec}
    own = document.checkpoint.directory is not None and spec.recipe is not None
    common = PurePath(spec.recipe.checkpoint.directory) if own and spec.recipe else None
    return array_specs(prepared.job_id, spec, document.array, common)


def _booked(plane: Plane, bookings: Sequence[Booking], now_s: float) -> list[AnyEvent]:
    """Return what makes the present bookings those of the grid file; what is past is left out."""
    handed_in = [letter.event for letter in plane.journal.letters()]  # first, as ``all_jobs`` does
    present = dict(plane.state().bookings)
    for fact in handed_in:
        if isinstance(fact, BookingMade):
            present[fact.booking.name] = fact.booking
        elif isinstance(fact, BookingDropped):
            present.pop(fact.name, None)
    wanted = {booking.name: booking for booking in bookings if booking.end_s > now_s}
    dropped = [name for name in sorted(present) if name not in wanted]
    return [
        *(BookingDropped(name=name) for name in dropped),
        *(BookingMade(booking=b) for name, b in wanted.items() if present.get(name) != b),
    ]


def _same_file(present: Inventory, prepared: Prepared) -> bool:
    """Return whether grids differ only in nodes that sites told.

    Then the present one stays, with the nodes as they were, until no job is under way.
    """
    told, inventory = prepared.grid.told, prepared.grid.inventory
    return bool(told) and _without_nodes(present, told) == _without_nodes(inventory, told)


def _without_nodes(inventory: Inventory, told: Sequence[str]) -> Inventory:
    sites = tuple(
        _without_what_is_told(site) if site.name in told else site for site in inventory.sites
    )
    return replace(inventory, sites=sites)


def _without_what_is_told(site: Site) -> Site:
    slurm, kubernetes = site.slurm, site.kubernetes
    return replace(
        site,
        nodes=(),
        levels=(),
        slurm=replace(slurm, gres={}) if slurm is not None else None,
        kubernetes=replace(kubernetes, devices={}) if kubernetes is not None else None,
    )


def _refuse_another_grid(plane: Plane, under_way: Job) -> None:
    raise InputError(
        f"{under_way.job_id} is under way on another grid in {plane.settings.home}; "
        "use the same grid, wait for its end, or set GRIDLOOM_HOME to another directory"
    )


def _about(prepared: Prepared, placement: Placement) -> list[tuple[str, str]]:
    spec, inventory = prepared.spec, prepared.grid.inventory
    rows = [("job", prepared.job_id), ("grid", prepared.grid.source)]
    if spec.recipe is not None:
        weights = parameter_count(spec.recipe.shape)
        training = spec.recipe.training
        tokens = training.steps * training.global_batch * training.sequence_length
        site_ranks = [count for _, count in placement.site_ranks()]
        step = bytes_per_step(bucket_bytes(weights, len(site_ranks)), site_ranks)
        plan = placement.option.plan
        parts = [f"{format_bytes(step.within_sites)} within sites"] if not plan.is_spread else []
        if plan.site_sync == SiteSync():
            parts.append(f"{format_bytes(step.between_sites)} between sites")
        rows += [
            ("model", f"{format_count(weights)} parameters, {training.precision}"),
            ("training", f"{training.steps} steps, {format_count(tokens)} tokens"),
            *([("cut", _cut_words(plan))] if plan.is_spread else []),
            *([("a step moves", ", ".join(parts))] if parts else []),
        ]
        rows.append(("training step", _step_sentence(prepared, placement)))
        if len(site_ranks) > 1:
            rows += _sync_rows(prepared)
    if placement.price_per_hour:
        rows.append(("price", f"{placement.price_per_hour:g} {inventory.currency} an hour in all"))
    return rows


def _cut_words(plan: ParallelPlan) -> str:
    """Return how the model is cut, in the words of a job file; ``data`` over all sites."""
    usual, said = ParallelDocument(), []
    for name in ParallelDocument.model_fields:
        value = getattr(plan, name)
        if value != getattr(usual, name):
            listed = " ".join(map(str, value)) if isinstance(value, tuple) else value
            said.append(name if value is True else f"{name} {listed}")
    return ", ".join(said)


def _sync_rows(prepared: Prepared) -> list[tuple[str, str]]:
    from gridloom.cli.sync import sync_rows  # costs time that jobs at one site do not need

    return sync_rows(prepared.spec, prepared.grid.inventory)


def _step_sentence(prepared: Prepared, placement: Placement) -> str:
    if placement.option.accelerator == CPU:
        return f"cannot be predicted: the planner has no data sheet of `{CPU}` devices"
    from gridloom.cli.predict import step_sentence  # numpy costs time that others do not need

    return step_sentence(prepared.spec, placement.option)


def _numbers(devices: tuple[int, ...]) -> str:
    first, last = devices[0], devices[-1]
    if len(devices) == 1:
        return str(first)
    if last - first + 1 == len(devices):
        return f"{first}-{last}"
    return ",".join(str(device) for device in devices)
