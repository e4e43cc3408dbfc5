"""From the files a person names to a job that is ready to be handed in: reads, checks, plans."""

import dataclasses
import os
import pwd
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gridloom.base.errors import InputError, Problem
from gridloom.base.files import cause_of
from gridloom.base.ids import IdSource
from gridloom.cli.faults import UTF8_REMEDY, not_utf8
from gridloom.cli.job_files import missing_files, unwritable
from gridloom.cli.settings import Settings
from gridloom.cli.workdir import snapshot_of
from gridloom.control import rundir
from gridloom.core.explain import ever_fits
from gridloom.model.booking import Booking
from gridloom.model.inventory import CPU, Inventory
from gridloom.model.spec import JobSpec, Option, ShapeRequest
from gridloom.planner.options import Choice, options, room_bytes
from gridloom.sites.local.inventory import discover
from gridloom.wire.agent import BATCH_FILE
from gridloom.wire.convert import to_bookings, to_inventory, to_job_spec, to_request
from gridloom.wire.documents import JobFile, read_grid, read_job
from gridloom.wire.source import SIZE_MAX_BYTES, read_source

if TYPE_CHECKING:
    from gridloom.cli.batch import Script

_SCRIPTS = (".sbatch", ".slurm", ".sh")


@dataclass(frozen=True)
class Grid:
    """The sites that a job is checked and placed against.

    Attributes:
        inventory: What there is.
        bookings: What of it is spoken for, and when.
        data: The grid file as given; empty when this machine was discovered.
        source: Where it comes from, for a person.
        told: Sites whose nodes are not in the file, but were told by the sites themselves.
        notes: What a person should know of that, a sentence each.
    """

    inventory: Inventory
    data: bytes
    source: str
    bookings: tuple[Booking, ...] = ()
    told: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Prepared:
    """A job that may be handed in.

    Attributes:
        job_id: Minted for it; of an array, what its jobs' ids begin with.
        spec: What the core gets, but for what the time of the hand-in decides.
        grid: Where it may run.
        data: The job file as given.
        file: The job file.
        script: Set when it is a batch script of the user's own.
    """

    job_id: str
    spec: JobSpec
    grid: Grid
    data: bytes
    file: JobFile
    script: "Script | None" = None


def prepare(job: Path, grid: Path | None, settings: Settings, ids: IdSource) -> Prepared:
    """Read a job and the grid it is for, and make sure that it can run there.

    Raises:
        InputError: With every problem found.
    """
    _refuse_unreadable_names(job.absolute(), *([grid.absolute()] if grid else []))
    data = _read(job, "the job file")
    file, found, script = _read_both(job, data, grid, settings)
    base = job.absolute().parent
    workdir = base / Path(file.document.workdir).expanduser()
    problems = missing_files(file, workdir)
    if problems:
        raise InputError(problems)
    job_id = ids.new_id(file.document.name)
    wanted = file.document.checkpoint.directory
    directory = settings.runs / job_id / "checkpoints"
    if wanted:
        directory = base / Path(wanted).expanduser()
    request = to_request(file.document)
    choice = _options(request, found.inventory, script)
    if request.cut == "auto" and not _some_fit(request, choice.options, found.inventory):
        from gridloom.cli.predict import cut_to_fit  # numpy costs time that others do not need

        request = cut_to_fit(request, found.inventory)
        choice = options(request, found.inventory)
    if not choice.options:
        field = ("resources", "accelerators")
        raise InputError([file.problem(field, choice.sentence, choice.remedy)])
    spec = to_job_spec(
        file.document, choice.options, workdir=str(workdir), checkpoint_directory=str(directory)
    )
    spec = replace(
        spec,
        queue=spec.queue or _only_queue(found.inventory),
        user=spec.user or _login_name(),
        batch=script.batch if script else None,
    )
    never = ever_fits(spec, found.inventory)
    if never is not None:
        field = ("resources", "accelerators")
        raise InputError([file.problem(field, never.sentence, never.remedy)])
    problem = unwritable(file, directory) if wanted else None
    if problem is not None:
        raise InputError([problem])
    if request.sync == "auto":
        from gridloom.cli.sync import with_chosen_sync

        spec = with_chosen_sync(spec, found.inventory)
    if spec.recipe is not None and spec.options[0].accelerator != CPU:
        from gridloom.cli.predict import with_step_times  # numpy costs time that others do not need

        spec = with_step_times(spec, found.inventory)
    return Prepared(job_id, spec, found, data, file, script)


def read_grid_file(path: Path | None, settings: Settings) -> Grid:
    """Return the grid like ``load_grid``, without asking sites for nodes that the file leaves out.

    Raises:
        InputError: The file cannot be read or used.
    """
    path = path or settings.grid
    if path is None:
        return Grid(discover(), b"", "this machine, as discovered")
    data = _read(path, "the grid file")
    document = read_grid(data, str(path)).document
    return Grid(to_inventory(document), data, str(path), to_bookings(document))


def load_grid(path: Path | None, settings: Settings) -> Grid:
    """Return the grid of a file, or the settings' grid, or this machine as it is.

    Sites whose nodes the file leaves out are asked for them.

    Raises:
        InputError: The file cannot be read or used.
        SiteError: A site that is to tell its nodes does not, and never has.
    """
    grid = read_grid_file(path, settings)
    open_sites = tuple(site.name for site in grid.inventory.sites if not site.nodes)
    if not open_sites:
        return grid
    from gridloom.cli.site_nodes import with_told_nodes  # sites that tell their nodes are few

    inventory, notes = with_told_nodes(grid.inventory, settings, grid.source)
    return dataclasses.replace(grid, inventory=inventory, told=open_sites, notes=notes)


def write_run_directories(
    prepared: Prepared, specs: Mapping[str, JobSpec], settings: Settings
) -> None:
    """Make the run directory of each job with everything that was given and what became of it.

    Args:
        prepared: What was given.
        specs: The jobs by their ids: one, or those of an array.
        settings: Where.

    Raises:
        InputError: One cannot be written; none is left then.
    """
    files: dict[str, bytes | object] = {
        BATCH_FILE if prepared.script else rundir.JOB_FILE: prepared.data,
        rundir.GRID_RESOLVED_FILE: prepared.grid.inventory,
        **snapshot_of(Path(prepared.spec.program.workdir), discover()),
    }
    if prepared.grid.data:
        files[rundir.GRID_FILE] = prepared.grid.data
    # Of many jobs, each file would wait for the disk by itself
    durable = len(specs) == 1
    try:
        for job_id, spec in specs.items():
            own = {rundir.JOB_RESOLVED_FILE: spec, rundir.RECIPE_FILE: spec.recipe}
            kept = {name: content for name, content in own.items() if content is not None}
            rundir.create(settings.runs, job_id, {**files, **kept}, durable=durable)
        if not durable:
            os.sync()
    except InputError:
        remove_run_directories(specs, settings)
        raise


def remove_run_directories(job_ids: Iterable[str], settings: Settings) -> None:
    """Remove the run directories of jobs of which nobody will ever hear."""
    for job_id in job_ids:
        shutil.rmtree(settings.runs / job_id, ignore_errors=True)


def _options(request: ShapeRequest, inventory: Inventory, script: "Script | None") -> Choice:
    """Return the shapes that a job may take; a script can do with several kinds of devices."""
    kinds = script.kinds if script else (request.accelerator,)
    of_kinds = [options(replace(request, accelerator=kind), inventory) for kind in kinds]
    return replace_dataclass(
        of_kinds[0], options=tuple(option for choice in of_kinds for option in choice.options)
    )


def _some_fit(request: ShapeRequest, shapes: Sequence[Option], inventory: Inventory) -> bool:
    """Return whether a rank of one of the shapes fits on a device, as far as that is known."""
    room = room_bytes(request, inventory)
    return any(not 0 < room < shape.memory_bytes for shape in shapes)


def _only_queue(inventory: Inventory) -> str:
    """Return the queue of a job that names none: that of the grid, if there is exactly one.

    Where there are several, the job was refused.
    """
    return inventory.queues[0].name if len(inventory.queues) == 1 else ""


def _login_name() -> str:
    number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # as in a container that runs under a number alone
        return str(number)


def _read_both(
    job: Path, data: bytes, flag: Path | None, settings: Settings
) -> tuple[JobFile, Grid, "Script | None"]:
    """Return the job, its grid and its script if it is one, or raise with the problems of all."""
    if data.startswith(b"#!") or job.suffix in _SCRIPTS:
        from gridloom.cli.batch import read_script  # costs time that job files do not need

        found = load_grid(flag, settings)
        script = read_script(data, job, found.inventory, Path.cwd())
        return script.file, found, script
    problems: list[Problem] = []
    grid = None
    try:
        grid = load_grid(flag or _named_grid(job, data), settings)
    except InputError as error:
        problems += error.problems
    try:
        file = read_job(data, str(job), grid.inventory if grid else None)
    except InputError as error:
        raise InputError([*problems, *error.problems]) from error
    if grid is None:
        raise InputError(problems)
    return file, grid, None


def _named_grid(job: Path, data: bytes) -> Path | None:
    """Return the grid file that the job names, whatever else is wrong with the job."""
    try:
        source = read_source(data, str(job))
    except InputError:
        return None  # reading the job will say so
    named = source.data.get("grid")
    if not isinstance(named, str):
        return None
    path = job.parent / named
    if not path.is_file():
        remedy = "name a grid file, relative to the job file"
        raise InputError([source.problem(("grid",), f"there is no file {path}", remedy)])
    return path


def _refuse_unreadable_names(*paths: Path) -> None:
    """Refuse what could be opened, but neither be written into the journal nor be printed."""
    for path in paths:
        try:
            str(path).encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{not_utf8(str(path))}; {UTF8_REMEDY}") from error


def _read(path: Path, what: str) -> bytes:
    try:
        with path.open("rb") as opened:
            return opened.read(SIZE_MAX_BYTES + 1)
    except OSError as error:
        raise InputError(
            [Problem(f"{what} cannot be read: {cause_of(error)}", file=str(path))]
        ) from error
