"""What `gridloom doctor` looks at, one function a check."""

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from gridloom.base.codec import encode
from gridloom.base.errors import GridloomError
from gridloom.base.files import disk_is_full
from gridloom.base.units import format_bytes
from gridloom.cli.home import REMEDY, trouble_with
from gridloom.cli.lookup import all_jobs
from gridloom.cli.marks import mark_text
from gridloom.cli.settings import Settings
from gridloom.cli.wiring import Plane
from gridloom.control.restore import replayed, restore
from gridloom.core.machine import RULES
from gridloom.model.life import OVER
from gridloom.sites.local.inventory import discover

_FREE_BYTES_MIN = 1_000_000_000
_START_S = 2.0
_LOOK_S = 0.1
_MARKS_MAX = 8


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What.
        state: ``ok``, ``note`` (worth knowing) or ``bad`` (must be mended).
        found: What was found.
        remedy: What to do, if anything.
    """

    name: str
    state: Literal["ok", "note", "bad"]
    found: str
    remedy: str = ""


def run_checks(settings: Settings) -> list[Check]:
    """Return all checks of this machine and of the state directory."""
    checks: list[Callable[[Settings], Check]] = [
        _python,
        _devices,
        _torch,
        _git,
        _home,
        _space,
        _journal,
        _control_plane,
        _nodes,
    ]
    return [check(settings) for check in checks]


def _python(_: Settings) -> Check:
    return Check("python", "ok", f"{sys.version.split()[0]} at {sys.executable}")


def _devices(_: Settings) -> Check:
    nodes = [node for site in discover().sites for node in site.nodes]
    listed = ", ".join(
        f"{node.count} {node.accelerator} of {format_bytes(node.memory_bytes)}"
        + (" each" if node.count > 1 else "")
        for node in nodes
    )
    return Check("devices", "ok", listed)


def _torch(_: Settings) -> Check:
    try:
        return Check("torch", "ok", version("torch"))
    except PackageNotFoundError:
        remedy = "pip install 'gridloom[train]' for `recipe:` jobs"
        return Check("torch", "note", "not installed", remedy)


def _git(_: Settings) -> Check:
    path = shutil.which("git")
    if path:
        return Check("git", "ok", path)
    return Check("git", "note", "not found", "install git to have commits recorded with runs")


def _home(settings: Settings) -> Check:
    trouble = trouble_with(settings)
    if trouble:
        return Check("state directory", "bad", trouble, REMEDY)
    return Check("state directory", "ok", str(settings.home))


def _space(settings: Settings) -> Check:
    home = settings.home
    known = (_free_bytes(place) for place in (home, *home.parents))
    free = next((count for count in known if count is not None), 0)
    found = f"{format_bytes(free)} free"
    if free < _FREE_BYTES_MIN:
        return Check("disk", "bad", found, "free some space: checkpoints need it")
    return Check("disk", "ok", found)


def _free_bytes(place: Path) -> int | None:
    try:
        found = shutil.disk_usage(place)
    except (OSError, UnicodeError):  # not there, or not to be looked at
        return None
    return found.free if found.total else None  # the kernel's own trees have no size


def _journal(settings: Settings) -> Check:
    if not _exists(settings.journal):
        return Check("journal", "ok", "none yet")
    try:
        plane = Plane(settings)
        machine, seq = restore(plane.journal)
        records = [record for record in plane.journal.records() if record.seq <= seq]
        old = sum(record.rules != RULES for record in records)
        if old:  # they led to a snapshot, and that is all that can be said of them
            found = f"{seq} records, {old} of them by the rules of another version; the others"
            return Check("journal", "ok", f"{found} go on from its snapshot")
        whole = replayed(records)
    except (GridloomError, OSError) as error:
        return Check("journal", "bad", str(error), _remedy(settings))
    if whole != encode(machine.state):
        remedy = f"keep {settings.journal} and report this"
        return Check("journal", "bad", "its snapshot and its records differ", remedy)
    return Check("journal", "ok", f"{seq} records, replayed to the same state")


def _remedy(settings: Settings) -> str:
    """Return what helps against a journal that cannot be read, by what else is wrong."""
    if trouble_with(settings):
        return REMEDY
    if disk_is_full(settings.home):
        return f"free space on the disk of {settings.home}, then `gridloom resume JOB`"
    return f"keep {settings.journal} and report this"


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, UnicodeError):
        return False


def _control_plane(settings: Settings) -> Check:
    if not _exists(settings.journal):
        return Check("control plane", "ok", "nothing to control yet")
    try:
        plane = Plane(settings)
        under_way = [job for job in all_jobs(plane).values() if job.state not in OVER]
        led = _led(plane) if under_way else plane.led()
    except (GridloomError, OSError):
        return Check("control plane", "bad", "cannot be told without the journal")
    if led:
        return Check("control plane", "ok", f"runs; {_jobs(len(under_way))} under way")
    if under_way:
        first = under_way[0]
        found = f"none, but {first.job_id} is {first.state.value}"
        return Check("control plane", "bad", found, f"gridloom resume {first.job_id}")
    return Check("control plane", "ok", "none needed")


def _nodes(settings: Settings) -> Check:
    if not _exists(settings.journal):
        return Check("nodes", "ok", "no grid yet")
    try:
        plane = Plane(settings)
        state = plane.state()
    except (GridloomError, OSError):
        return Check("nodes", "bad", "cannot be told without the journal")
    if state.inventory is None:
        return Check("nodes", "ok", "no grid yet")
    marked = [
        mark_text(domain, mark, plane.clock.now_s()) for domain, mark in sorted(state.marks.items())
    ]
    if marked:
        few = "; ".join(marked[:_MARKS_MAX])
        more = f"; and {len(marked) - _MARKS_MAX} more" if len(marked) > _MARKS_MAX else ""
        return Check("nodes", "note", few + more, "gridloom node restore NODE")
    count = sum(len(site.nodes) for site in state.inventory.sites)
    return Check("nodes", "ok", "1 node takes work" if count == 1 else f"{count} nodes take work")


def _led(plane: Plane) -> bool:
    """Return whether a control plane runs, or does so in a moment: its start takes a while."""
    until_s = plane.clock.monotonic_s() + _START_S
    while not (led := plane.led()) and plane.clock.monotonic_s() < until_s:
        plane.clock.sleep(_LOOK_S)
    return led


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
