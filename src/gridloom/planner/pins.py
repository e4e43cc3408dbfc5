"""Values that a person gives for some knobs, as ``tp=8,pp=1``, narrow a search space."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, get_args

from gridloom.base.errors import InputError, Problem
from gridloom.model.parallel import Offload, Optimizer, Precision, Recompute, Schedule
from gridloom.planner.search_space import NODE_SHARD, SearchSpace

Pins = Mapping[str, int | str]

SHORT = {
    "tp": "tensor",
    "pp": "pipeline",
    "cp": "context",
    "dp": "data",
    "ep": "expert",
    "etp": "expert_tensor",
    "vpp": "virtual_stages",
    "mbs": "micro_batch",
    "sp": "sequence_parallel",
}
"""Short names of knobs, as frameworks write them."""

_FLAGS = {"on": True, "true": True, "yes": True, "1": True}
_FLAGS |= {"off": False, "false": False, "no": False, "0": False}


def pinned(space: SearchSpace, pins: Pins) -> SearchSpace:
    """Return ``space`` with one value for each knob in ``pins``.

    Args:
        space: What to narrow.
        pins: Knobs of ``SearchSpace``, or short names, and their values: a number, ``on`` or
            ``off``, a word, or words joined by ``+`` for ``offload`` (``none`` for none).

    Raises:
        InputError: A name or a value cannot be; all problems are in it.
    """
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    for name, value in full_names(pins).items():
        read = _READERS.get(name)
        if read is None:
            known = ", ".join(sorted({*_READERS, *SHORT}))
            problems.append(Problem("no such knob", f"write one of {known}", field=name))
            continue
        try:
            values[name] = (read(str(value).strip().lower()),)
        except ValueError as error:
            problems.append(Problem(f"{value!r} is no value of it", str(error), field=name))
    if problems:
        raise InputError(problems)
    chunks = values.pop("virtual_stages", (0,))[0]
    if chunks == 1:
        straight = tuple(name for name in space.schedule if name != "interleaved")
        values.setdefault("schedule", straight or ("1f1b",))
    elif chunks:
        values |= {"virtual_stages": (chunks,), "schedule": ("interleaved",)}
    return replace(space, **values)


def full_names(pins: Pins) -> dict[str, int | str]:
    """Return ``pins`` with short names written out."""
    return {SHORT.get(name, name): value for name, value in pins.items()}


def _count(least: int, most: int = 1 << 40) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            bound = f"from {least} to {most}" if most < 1 << 40 else f"of {least} at least"
            raise ValueError(f"write a whole number {bound}")
        return int(text)

    return read


def _shard(text: str) -> int:
    return NODE_SHARD if text == "node" else _count(0)(text)


def _flag(text: str) -> bool:
    if text not in _FLAGS:
        raise ValueError("write on or off")
    return _FLAGS[text]


def _word(kind: Any) -> Callable[[str], str]:
    words = get_args(kind)

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"write one of {', '.join(words)}")
        return text

    return read


def _offload(text: str) -> tuple[str, ...]:
    return () if text == "none" else tuple(_word(Offload)(word) for word in text.split("+"))


_READERS: dict[str, Callable[[str], Any]] = {
    "devices": _count(1),
    "tensor": _count(1),
    "pipeline": _count(1),
    "context": _count(1),
    "data": _count(1),
    "expert": _count(1),
    "expert_tensor": _count(0),
    "virtual_stages": _count(1),
    "micro_batch": _count(1),
    "zero": _count(0, 3),
    "shard": _shard,
    "recompute": _word(Recompute),
    "recompute_layers": _count(0),
    "schedule": _word(Schedule),
    "precision": _word(Precision),
    "optimizer": _word(Optimizer),
    "offload": _offload,
    "sequence_parallel": _flag,
    "flash_attention": _flag,
    "overlap_gradients": _flag,
    "overlap_parameters": _flag,
    "overlap_tensor": _flag,
}
