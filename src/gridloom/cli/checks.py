"""What `gridloom doctor` looks at, one function a check."""

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from gridloom.base.codec import encode
from gridloom.base.errors import GridloomError
from gridloom.base.units import format_bytes
from gridloom.cli.settings import Settings
from gridloom.cli.wiring import Plane
from gridloom.control.restore import replayed, restore
from gridloom.model.life import HOLDING
from gridloom.sites.local.inventory import discover

_FREE_BYTES_MIN = 1_000_000_000


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
    ]
    return [check(settings) for check in checks]


def _python(_: Settings) -> Check:
    return Check("python", "ok", f"{sys.version.split()[0]} at {sys.executable}")


def _devices(_: Settings) -> Check:
    nodes = [node for site in discover().sites for node in site.nodes]
    listed = ", ".join(
        f"{node.count} {node.accelerator} of {format_bytes(node.memory_bytes)}" for node in nodes
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
    home = settings.home
    existing = next(path for path in (home, *home.parents) if path.exists())
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return Check("state directory", "ok", str(home))
    return Check("state directory", "bad", f"{home} cannot be written", "set GRIDLOOM_HOME")


def _space(settings: Settings) -> Check:
    home = settings.home
    existing = next(path for path in (home, *home.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    found = f"{format_bytes(free)} free"
    if free < _FREE_BYTES_MIN:
        return Check("disk", "bad", found, "free some space: checkpoints need it")
    return Check("disk", "ok", found)


def _journal(settings: Settings) -> Check:
    if not settings.journal.exists():
        return Check("journal", "ok", "none yet")
    try:
        plane = Plane(settings)
        machine, seq = restore(plane.journal)
        whole = replayed([record for record in plane.journal.records() if record.seq <= seq])
    except GridloomError as error:
        remedy = f"keep {settings.journal} and report this"
        return Check("journal", "bad", str(error), remedy)
    if whole != encode(machine.state):
        remedy = f"keep {settings.journal} and report this"
        return Check("journal", "bad", "its snapshot and its records differ", remedy)
    return Check("journal", "ok", f"{seq} records, replayed to the same state")


def _control_plane(settings: Settings) -> Check:
    if not settings.journal.exists():
        return Check("control plane", "ok", "nothing to control yet")
    try:
        plane = Plane(settings)
        holding = [job for job in plane.state().jobs.values() if job.state in HOLDING]
    except GridloomError:
        return Check("control plane", "bad", "cannot be told without the journal")
    if plane.led():
        return Check("control plane", "ok", f"runs; {_jobs(len(holding))} under way")
    if holding:
        found = f"none, but {holding[0].job_id} is {holding[0].state.value}"
        return Check("control plane", "bad", found, f"gridloom resume {holding[0].job_id}")
    return Check("control plane", "ok", "none needed")


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
