"""The files that `simulate` is given: opened, unpacked and read into nouns."""

import gzip
import io
import zlib
from pathlib import Path

from msgspec.structs import replace

from gridloom.base.errors import InputError, Problem
from gridloom.base.files import cause_of
from gridloom.model.booking import Booking
from gridloom.model.inventory import Inventory
from gridloom.sim.faults import Fault, parse_faults
from gridloom.sim.signals import Change, parse_signals
from gridloom.sim.workload import openb_inventory
from gridloom.wire.convert import to_bookings, to_inventory
from gridloom.wire.documents import read_grid

SIZE_MAX_BYTES = 4_000_000_000
"""A log that is larger, unpacked, does not fit a machine's memory as jobs."""

_GZIP = b"\x1f\x8b"
_NODE_COLUMNS = frozenset({"sn", "gpu", "model"})


def read_bytes(path: Path, what: str) -> bytes:
    """Return the content of a file; unpacked when it is gzip, whatever its name.

    Raises:
        InputError: It cannot be read or unpacked, or is too large.
    """
    try:
        with path.open("rb") as opened:
            data = opened.read(SIZE_MAX_BYTES + 1)
        if data.startswith(_GZIP):
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(SIZE_MAX_BYTES + 1)
    except (zlib.error, EOFError, gzip.BadGzipFile) as error:
        problem = Problem(f"{what} cannot be unpacked: {error}", "give it whole", file=str(path))
        raise InputError([problem]) from error
    except OSError as error:
        problem = Problem(f"{what} cannot be read: {cause_of(error)}", file=str(path))
        raise InputError([problem]) from error
    if len(data) > SIZE_MAX_BYTES:
        raise InputError([Problem(f"{what} is too large", "give a part of it", file=str(path))])
    return data


def read_text(path: Path, what: str) -> str:
    """Return the text of a file, unpacked.

    Raises:
        InputError: It cannot be read, or is no text.
    """
    data = read_bytes(path, what)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        problem = Problem(f"{what} is not UTF-8 text", file=str(path), line=line)
        raise InputError([problem]) from error


def read_ground(path: Path) -> tuple[Inventory, tuple[Booking, ...]]:
    """Return the grid of a grid file, or of openb's list of nodes, and what is booked of it.

    Raises:
        InputError: With everything that is wrong with the file.
    """
    data = read_bytes(path, "the grid file")
    first = data.split(b"\n", 1)[0].decode("utf-8-sig", errors="replace")
    if {name.strip().lower() for name in first.split(",")} >= _NODE_COLUMNS:
        return openb_inventory(read_text(path, "the list of nodes"), str(path)), ()
    document = read_grid(data, str(path)).document
    inventory = to_inventory(document)
    silent = [site.name for site in inventory.sites if not site.nodes]
    if silent:
        found = f"the file does not say which nodes {', '.join(silent)} has"
        remedy = "write `nodes:`; `gridloom grid show --json` tells those of the site itself"
        raise InputError([Problem(found, remedy, file=str(path), field=f"sites.{silent[0]}")])
    return inventory, to_bookings(document)


def read_faults(path: Path | None, inventory: Inventory, from_s: float) -> tuple[Fault, ...]:
    """Return the faults of a script whose times count from ``from_s``.

    Raises:
        InputError: With everything that is wrong with the script.
    """
    if path is None:
        return ()
    faults = parse_faults(read_text(path, "the script of faults"), str(path), inventory)
    return tuple(replace(fault, at_s=fault.at_s + from_s) for fault in faults)


def read_signals(path: Path | None, inventory: Inventory, from_s: float) -> tuple[Change, ...]:
    """Return the changes of prices and carbon that a file lists, whose times count from ``from_s``.

    Raises:
        InputError: With everything that is wrong with the file.
    """
    if path is None:
        return ()
    sites = [site.name for site in inventory.sites]
    changes = parse_signals(read_text(path, "the table of signals"), str(path), sites)
    return tuple(replace(change, at_s=change.at_s + from_s) for change in changes)
