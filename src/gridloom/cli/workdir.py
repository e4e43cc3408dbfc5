"""What a run depends on besides its files: the commit and changes of the workdir, the packages."""

import platform
import subprocess
import sys
from pathlib import Path

from gridloom import __version__
from gridloom.control.rundir import DIFF_FILE, ENVIRONMENT_FILE
from gridloom.model.inventory import Inventory

_GIT_S = 10.0
_DIFF_BYTES_MAX = 16 * 1024 * 1024


def snapshot_of(workdir: Path, devices: Inventory) -> dict[str, bytes | object]:
    """Return the files that say under which conditions a job was handed in.

    Args:
        workdir: Where its ranks start; need not be under git.
        devices: What this machine has.
    """
    commit = _git(workdir, "rev-parse", "HEAD").strip().decode()
    untracked = _git(workdir, "ls-files", "--others", "--exclude-standard", "--", ".")
    diff = _git(workdir, "diff", "--binary", "HEAD", "--", ".") if commit else b""
    environment = {
        "gridloom": __version__,
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "platform": platform.platform(),
        "devices": devices,
        "git": {
            "commit": commit or None,
            "changed": bool(diff),
            "untracked": untracked.decode(errors="replace").splitlines(),
        },
        "packages": _packages(),
    }
    files: dict[str, bytes | object] = {ENVIRONMENT_FILE: environment}
    if diff:
        files[DIFF_FILE] = diff[:_DIFF_BYTES_MAX]
    return files


def _packages() -> dict[str, str]:
    """Return the installed packages by the names of their directories: reading each costs time."""
    found: dict[str, str] = {}
    for entry in sys.path:
        for directory in Path(entry).glob("*.dist-info"):
            name, _, version = directory.name.removesuffix(".dist-info").partition("-")
            found.setdefault(name.replace("_", "-"), version)  # the first on the path is the one
    return dict(sorted(found.items()))


def _git(workdir: Path, *arguments: str) -> bytes:
    """Return what git prints; nothing without git, outside a repository, or when it hangs."""
    try:
        done = subprocess.run(  # noqa: S603 - fixed words
            ["git", *arguments],  # noqa: S607 - the user's own git
            cwd=workdir,
            capture_output=True,
            timeout=_GIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return done.stdout if done.returncode == 0 else b""
