"""Whether the state directory can be used, and if not, why not and what would help."""

import os
import pwd
from pathlib import Path

from gridloom.base.errors import InputError
from gridloom.base.files import FULL, cause_of
from gridloom.cli.faults import not_utf8
from gridloom.cli.settings import HOME_VARIABLE, Settings

REMEDY = f"set {HOME_VARIABLE} to a directory that you can write"


def usable(settings: Settings) -> Settings:
    """Return the settings when their state directory can be used.

    Raises:
        InputError: It cannot.
    """
    trouble = trouble_with(settings)
    if trouble:
        raise InputError(f"{trouble}; {REMEDY}")
    return settings


def trouble_with(settings: Settings) -> str:
    """Return why the state directory cannot be used; nothing when it can, or can be made."""
    home = settings.home
    try:
        str(home).encode()
    except UnicodeEncodeError:
        return not_utf8(str(home))
    try:
        if home.exists():
            if not home.is_dir():
                return f"{home} is not a directory"
            return _unwritable(home) or _unwritable_inside(settings)
        return _cannot_be_made(home)
    except OSError as error:
        return f"{home} cannot be used: {cause_of(error)}"


def _unwritable_inside(settings: Settings) -> str:
    journal = settings.journal
    kept = (
        settings.runs,
        *(journal, *(journal.with_name(journal.name + end) for end in ("-wal", "-shm"))),
        *(settings.lock, settings.heir_lock, settings.handin_lock, settings.control_log),
    )
    return next((said for path in kept if path.exists() and (said := _unwritable(path))), "")


def _unwritable(path: Path) -> str:
    rights = os.W_OK | (os.X_OK if path.is_dir() else os.R_OK)
    if os.access(path, rights):
        return ""
    return f"{path} cannot be written: {_why_not(path)}"


def _why_not(path: Path) -> str:
    owner = path.stat().st_uid
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return "the file system is read-only"
    if owner == os.geteuid():
        return "permission denied"
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = f"user {owner}"
    return f"it belongs to {name}"


def _cannot_be_made(home: Path) -> str:
    parent = next(path for path in home.parents if path.exists())
    if not parent.is_dir():
        return f"{home} cannot be made: {parent} is not a directory"
    if said := _unwritable(parent):
        return said
    # Some places let nobody make a directory, whatever their rights say: only a try tells
    trial = parent / f".gridloom-{os.getpid()}"
    try:
        trial.mkdir()
        trial.rmdir()
        home.lstat()
    except FileExistsError:
        return ""
    except FileNotFoundError as error:
        return (
            ""
            if error.filename == str(home)
            else f"{home} cannot be made: {parent} takes no directory"
        )
    except OSError as error:
        return "" if error.errno in FULL else f"{home} cannot be made: {cause_of(error)}"
    return ""
