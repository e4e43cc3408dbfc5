"""A user's own batch script as a job: its `#SBATCH` lines in the words of a job file."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from gridloom.base.errors import InputError, Problem
from gridloom.model.inventory import CPU, Inventory, Site, SlurmAccess
from gridloom.model.spec import Batch
from gridloom.sites.slurm.handed_on import HandedOn, Told, handed_on
from gridloom.sites.slurm.options import Setting
from gridloom.sites.slurm.sbatch_file import SbatchFile, parse
from gridloom.sites.slurm.size import Size, size_of
from gridloom.wire.documents import JobFile, job_of
from gridloom.wire.documents_values import did_you_mean
from gridloom.wire.job_document import name_near
from gridloom.wire.source import SIZE_MAX_BYTES, Source
from gridloom.wire.source_tree import Path as Place

_RESTARTS = 3
_SIZES = ("gres", "gpus-per-node", "gpus", "gpus-per-task", "nodes", "ntasks", "cpus-per-task")
_STEPPED = re.compile(r"(\d{1,7})-(\d{1,7}):([1-9]\d{0,6})")
_QUEUES = ("account", "qos", "partition")
"""What may be called as a queue of the grid is, the first that is."""


@dataclass(frozen=True)
class Script:
    """A batch script that can be handed in.

    Attributes:
        file: What it asks for, as a job file says it.
        batch: What else a site's own scheduler is asked for.
        kinds: Of devices that it can do with, best first.
        told: What becomes of each of its options.
        counts_as: What it is counted as that uses no device, where every node has some; else empty.
        is_plain: No site that it may use has Slurm: it runs as any script does.
    """

    file: JobFile
    batch: Batch
    kinds: tuple[str, ...]
    told: tuple[Told, ...]
    counts_as: str
    is_plain: bool


def read_script(data: bytes, path: Path, inventory: Inventory, here: Path) -> Script:
    """Return the job that a batch script is.

    Args:
        data: All of it.
        path: Its file.
        inventory: The grid it is for.
        here: Where it is handed in, which is where it starts unless it says otherwise.

    Raises:
        InputError: With every problem, by line.
    """
    text, file = _text(data, str(path)), str(path)
    read = parse(text, file)
    handed = handed_on(read, file)
    at = {setting.name: setting for setting in read.settings}
    sites = _sites(handed, at, inventory, file)
    size = size_of(read)
    access = {site.name: site.slurm or SlurmAccess() for site in sites}
    kinds = _kinds(size, sites, access)
    is_plain = all(site.kind != "slurm" for site in sites)
    workdir = here / (at["chdir"].value if "chdir" in at else "")
    problems = [
        *_device_problems(size, sites, kinds, _line(at, *_SIZES), file),
        *_queue_problems(at, inventory, file),
        *(_plain_problems(handed, at, kinds, file) if is_plain else ()),
        *([] if is_plain else _output_problems(at, workdir, file)),
    ]
    if problems:
        raise InputError(problems)
    first, (nodes, per_node) = next(iter(kinds.items()))
    data_of_job = {
        **_document(file, read, handed, at, inventory),
        "run": shlex.join(_interpreter(text)),
        "workdir": str(workdir),
        "resources": {
            "accelerators": f"{first}:{nodes * per_node}",
            "sites": [site.name for site in sites],
            "max_sites": 1,
            "ranks_per_node_max": per_node,
        },
        "parallel": {"tensor": per_node},  # so many together on each node, and on no other
    }
    source = Source(file, data=data_of_job, key_lines=_lines(at))
    return Script(
        file=job_of(source, inventory),
        batch=Batch(options=handed.options, submitted_in=str(here), warning=handed.warning),
        kinds=tuple(kind for kind, found in kinds.items() if found == (nodes, per_node)),
        told=handed.told,
        counts_as=_counts_as(size, first, per_node),
        is_plain=is_plain,
    )


def _text(data: bytes, file: str) -> str:
    if len(data) > SIZE_MAX_BYTES:
        raise InputError([Problem("the script is larger than 1 MiB", "make it smaller", file)])
    text = data.decode(errors="replace")  # comments may be in any encoding
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith("#SBATCH") and "\ufffd" in line:
            message = "the line is not in UTF-8"
            raise InputError([Problem(message, "save the file as UTF-8", file, number)])
    return text


def _interpreter(text: str) -> list[str]:
    """Return the words of the first line, as the kernel takes them: a program and one argument."""
    return text.split("\n", 1)[0].removeprefix("#!").strip().split(maxsplit=1)


def _line(at: Mapping[str, Setting], *names: str) -> int:
    return next((at[name].line for name in names if name in at), 0)


def _sites(
    handed: HandedOn, at: Mapping[str, Setting], inventory: Inventory, file: str
) -> Sequence[Site]:
    """Return the sites that may run a script.

    Those it names, else those with its partition, else all that have Slurm, else all.
    """
    names = {site.name: site for site in inventory.sites}
    for name in handed.sites:
        if name not in names:
            remedy = did_you_mean(name, [*names]) or f"the grid has: {', '.join(names)}"
            message = f"the grid has no site `{name}`"
            raise InputError(
                [Problem(message, remedy, file, _line(at, "clusters", "cluster"), "--clusters")]
            )
    slurm = [site for site in inventory.sites if site.kind == "slurm"]
    partition = at["partition"].value if "partition" in at else ""
    named = [site for site in slurm if site.slurm and site.slurm.partition == partition]
    sites = [names[name] for name in handed.sites] or (partition and named) or slurm
    sites = sites or list(inventory.sites)
    if handed.needs_one_site and len(sites) > 1:
        remedy = f"name one of them, as --clusters={sites[0].name}"
        message = f"{handed.needs_one_site}, and it could run at {len(sites)} sites"
        raise InputError([Problem(message, remedy, file, _line(at, "dependency"), "--dependency")])
    return sites


def _kinds(
    size: Size, sites: Sequence[Site], access: Mapping[str, SlurmAccess]
) -> dict[str, tuple[int, int]]:
    """Return the kinds of devices that a script can do with: how many nodes, how many of each.

    One that needs processors alone has those of nodes without devices, or else of any.
    """
    found: dict[str, tuple[int, int]] = {}
    beside: dict[str, tuple[int, int]] = {}
    for site in sites:
        largest = sorted(site.nodes, key=lambda node: -node.count)  # the fewest nodes can do
        for node in largest:
            kind = node.accelerator
            if (wanted := size.on(kind, node, access[site.name])) is not None:
                found.setdefault(kind, wanted)
            elif kind != CPU and (stands := size.beside_devices(node)) is not None:
                beside.setdefault(kind, stands)
    return found or beside


def _counts_as(size: Size, kind: str, per_node: int) -> str:
    if kind == CPU or size.of_node or size.of_job:
        return ""
    return (
        f"it asks for processors alone, and every node has accelerators: gridloom counts it as"
        f" {per_node} {kind} on each node"
    )


def _device_problems(
    size: Size, sites: Sequence[Site], kinds: Mapping[str, object], line: int, file: str
) -> Iterator[Problem]:
    if kinds:
        return
    where = ", ".join(site.name for site in sites)
    if size.of_node or size.of_job:
        there = ", ".join(sorted({node.accelerator for site in sites for node in site.nodes}))
        yield Problem(f"{where} has no such devices", f"there are: {there}", file, line)
    else:
        each = size.of_one(size.nodes or size.tasks)
        remedy = "ask for fewer processors a task, or let the tasks stand on more --nodes"
        found = f"it asks for {each} processors of one node, and {where} has none so large"
        yield Problem(found, remedy, file, line)


def _queue_problems(
    at: Mapping[str, Setting], inventory: Inventory, file: str
) -> Iterator[Problem]:
    if len(inventory.queues) > 1 and _queue(at, inventory) is None:
        names = ", ".join(queue.name for queue in inventory.queues)
        message = "in which queue of the grid it waits is not told"
        remedy = f"write #SBATCH --account=QUEUE: there are {names}"
        yield Problem(message, remedy, file, _line(at, *_QUEUES), "--account")


def _plain_problems(
    handed: HandedOn,
    at: Mapping[str, Setting],
    kinds: Mapping[str, tuple[int, int]],
    file: str,
) -> Iterator[Problem]:
    """Yield what takes Slurm, at sites that have none."""
    remedy = "hand it in on a grid with a site of `kind: slurm`"
    if any(nodes > 1 for nodes, _ in kinds.values()):
        message = "without Slurm a script runs on one node"
        yield Problem(message, remedy, file, _line(at, *_SIZES), "--nodes")
    if "array" in at:
        message = "without Slurm a script is not told its number in an array"
        yield Problem(message, remedy, file, at["array"].line, "--array")
    if handed.needs_one_site:
        yield Problem(handed.needs_one_site, remedy, file, at["dependency"].line, "--dependency")


def _output_problems(at: Mapping[str, Setting], workdir: Path, file: str) -> Iterator[Problem]:
    """Yield directories that are not there: Slurm would fail the job without a word."""
    for name in ("output", "error"):
        place = at[name].value.rpartition("/")[0] if name in at else ""
        is_ours = place and not place.startswith("/") and "%" not in place
        if is_ours and not (workdir / place).is_dir():
            message = f"there is no directory {workdir / place}, and Slurm makes none"
            yield Problem(message, f"mkdir -p {place}", file, at[name].line, f"--{name}")


def _queue(at: Mapping[str, Setting], inventory: Inventory) -> str | None:
    names = [queue.name for queue in inventory.queues]
    said = [at[name].value for name in _QUEUES if name in at]
    return next((name for name in said if name in names), None)


def _document(
    file: str,
    script: SbatchFile,
    handed: HandedOn,
    at: Mapping[str, Setting],
    inventory: Inventory,
) -> dict[str, Any]:
    """Return what a script says that a job file can say, too, but for its devices and program."""
    asked = script.submission
    is_retried = asked.requeue is True
    told: dict[str, Any] = {
        "name": name_near(asked.name or PurePath(file).stem) or "script",
        "retry": {"max_restarts": _RESTARTS if is_retried else 0},
        "preemptible": asked.requeue is not False,
    }
    if queue := _queue(at, inventory):
        told["queue"] = queue
    if asked.time_limit_min:
        told["forecast"] = {"duration": f"{asked.time_limit_min}min"}
    if handed.warning and asked.signal:
        told["grace"] = f"{asked.signal.before_s}s"
    if asked.array:
        told["array"] = _indices(asked.array)
    if handed.after:
        told["after"] = [{"job": job, "when": when} for job, when in handed.after]
    return told


def _indices(text: str) -> str:
    """Return Slurm's indices as a job file says them: no steps, and a single one as a range."""
    listed, percent, limit = text.partition("%")
    items: list[str] = []
    for item in listed.split(","):
        stepped = _STEPPED.fullmatch(item)
        if stepped:
            items += map(str, range(int(stepped[1]), int(stepped[2]) + 1, int(stepped[3])))
        else:
            items.append(item)
    if len(items) == 1 and items[0].isdigit():
        items = [f"{items[0]}-{items[0]}"]
    return ",".join(items) + percent + limit


def _lines(at: Mapping[str, Setting]) -> dict[Place, int]:
    """Return where in the script stands what the fields of its job are made of."""
    places: dict[Place, tuple[str, ...]] = {
        ("name",): ("job-name",),
        ("resources",): _SIZES,
        ("resources", "sites"): ("clusters", "cluster"),
        ("array",): ("array",),
        ("after",): ("dependency",),
        ("forecast",): ("time",),
        ("workdir",): ("chdir",),
        ("grace",): ("signal",),
        ("queue",): _QUEUES,
    }
    found = {place: _line(at, *names) for place, names in places.items()}
    return {("run",): 1, **{place: line for place, line in found.items() if line}}
