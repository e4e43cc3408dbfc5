"""Devices as Slurm writes them, in what it has and in what is asked for (pure)."""

import re

from gridloom.base.units import parse_bytes
from gridloom.sites.slurm.hostlist import expand
from gridloom.sites.slurm.records import Gres
from gridloom.sites.slurm.values import text, words

_GRES = re.compile(r"(?:gres[/:])?(?P<words>[^()\s]+)(?:\((?P<note>[^()]*)\))?")


def gres(value: object) -> tuple[Gres, ...]:
    """Return devices of ``gpu:h100:8(S:0-1),nic:2`` or ``gpu:h100:4(IDX:0-1,3)``.

    Raises:
        ValueError: It is not a list of devices.
    """
    said = ",".join(words(value)) if isinstance(value, list) else text(value)
    return tuple(_one_gres(item) for item in re.split(r",(?![^(]*\))", said) if text(item))


def gres_text(gres: Gres) -> str:
    """Return devices as they are asked for, as ``gpu:h100:8``."""
    return ":".join([gres.name, *([gres.type] if gres.type else []), str(gres.count)])


def _one_gres(item: str) -> Gres:
    match = _GRES.fullmatch(item.strip().replace(":(null)", ""))
    if match is None:
        raise ValueError(f"{item!r} is not a device such as gpu:h100:8")
    said = [word for word in re.split("[:=]", match["words"]) if word != "no_consume"]
    amount = 1
    if len(said) > 1 and re.fullmatch(r"\d{1,15}[KMGTPkmgtp]?", said[-1]):
        told = said.pop()
        amount = int(told) if told.isdigit() else parse_bytes(told)
    note = (match["note"] or "").removeprefix("IDX:") if "IDX:" in (match["note"] or "") else ""
    return Gres(
        name=said[0], type=":".join(said[1:]), count=amount, indices=_indices(note) if note else ()
    )


def _indices(note: str) -> tuple[int, ...]:
    return () if not text(note) else tuple(int(index) for index in expand(f"[{note}]"))
