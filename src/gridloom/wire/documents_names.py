"""Names in documents, and ranges of them: ``n[001-128]`` for n001 to n128, as in Slurm."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from gridloom.wire.documents_values import Text, Value, found, wrong

SITE_NAME = Text("a site's name", r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
QUEUE_NAME = Text("a queue's name", SITE_NAME.pattern)
COHORT_NAME = Text("a cohort's name", SITE_NAME.pattern)

NODES_MAX = 200_000
"""Nodes that one file may name, however few lines it takes."""

NODE_NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
RANGE_PATTERN = r"[A-Za-z0-9\[][A-Za-z0-9._,\[\]-]*"
"""Of a name or a range of names, for the JSON Schema."""

NODE_EXAMPLE = "`n[001-128]` or `n[1,4,7-9]`"

_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_SPAN = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


@dataclass(frozen=True)
class Span:
    """The numbers from ``first`` to ``last``, written with at least ``width`` digits."""

    first: int
    last: int
    width: int

    @property
    def count(self) -> int:
        """How many numbers."""
        return self.last - self.first + 1


@dataclass(frozen=True)
class Names:
    """One name, or many that differ in numbers.

    Attributes:
        parts: Text and brackets in the order in which they are written.
    """

    parts: tuple[str | tuple[Span, ...], ...]

    @property
    def count(self) -> int:
        """How many names; nothing is expanded for it."""
        return prod(_count(part) for part in self.parts)

    def __iter__(self) -> Iterator[str]:
        """Yield the names: the numbers of the last bracket change fastest."""
        choices = [_texts(part) for part in self.parts]
        return ("".join(chosen) for chosen in product(*choices))

    @property
    def longest(self) -> str:
        """The last name, which no other is longer than."""
        return "".join(_texts_last(part) for part in self.parts)


def parse_names(text: str, pattern: str = NODE_NAME_PATTERN) -> Names:
    """Return the names that ``text`` stands for.

    A number keeps the leading zeros of the first of its range; several brackets make every
    combination.

    Args:
        text: As ``n[001-128]``, ``r[1-4]n[1-16]`` or ``n7``.
        pattern: Of each name.

    Raises:
        PydanticCustomError: ``wrong``, with what was found and what would be right.
    """
    if "[" not in text and re.fullmatch(pattern, text):
        return Names((text,))  # as nearly every name of a grid that lists its nodes one by one
    pieces = list(_PART.finditer(text))
    if "".join(piece[0] for piece in pieces) != text or "[]" in text:
        raise wrong(f"`{text}` is not a range of names", f"write {NODE_EXAMPLE}")
    names = Names(
        tuple(piece[2] if piece[1] is None else _spans(text, piece[1]) for piece in pieces)
    )
    if not re.fullmatch(pattern, names.longest):
        remedy = "use letters, digits, `-`, `_` and `.`, beginning with a letter or digit"
        raise wrong(f"`{text}` cannot be a name", remedy)
    if names.count > NODES_MAX:
        message = f"`{text}` stands for {names.count:,} names"
        raise wrong(message, f"write at most {NODES_MAX:,}")
    return names


@dataclass(frozen=True)
class NodesValue(Value):
    """Nodes of sites, one or a list: ``north/n7`` or ``north/n[001-128]``."""

    @property
    def right(self) -> str:
        """The forms."""
        return "a list of nodes as `SITE/NODE`, as `north/n7` or `north/n[001-128]`"

    def parse(self, value: object) -> tuple[str, ...]:
        """Return what is written, each item with its site and its names."""
        items = value if isinstance(value, list) else [value]
        if not items:
            raise self.refuse(value)
        total = 0
        for item in items:
            if not isinstance(item, str):
                raise self.refuse(value)
            site, slash, names = item.partition("/")
            if not slash or not re.fullmatch(SITE_NAME.pattern, site) or not names:
                raise wrong(found(item), f"write {self.right}")
            total += parse_names(names).count
        if total > NODES_MAX:
            raise wrong(f"found {total:,} nodes", f"write at most {NODES_MAX:,}, or `sites`")
        return tuple(items)

    def schema(self) -> dict[str, Any]:
        """Text, or a list of texts."""
        each = {"type": "string", "pattern": f"^{SITE_NAME.pattern}/{RANGE_PATTERN}$"}
        return {"anyOf": [each, {"type": "array", "items": each, "minItems": 1}]}


def node_domains(items: tuple[str, ...]) -> Iterator[str]:
    """Yield ``site/node`` for every node of ``items``, which ``NodesValue`` has accepted, once."""
    written = (
        f"{site}/{name}"
        for site, _, names in (item.partition("/") for item in items)
        for name in parse_names(names)
    )
    yield from dict.fromkeys(written)


def _spans(text: str, inside: str) -> tuple[Span, ...]:
    spans = []
    for piece in inside.split(","):
        match = _SPAN.fullmatch(piece.strip())
        if match is None:
            raise wrong(f"`{text}` is not a range of names", f"write {NODE_EXAMPLE}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise wrong(f"`{piece.strip()}` in `{text}` is empty", "write the smaller number first")
        spans.append(Span(first, last, len(match[1]) if match[1][0] == "0" else 0))
    return tuple(spans)


def _count(part: str | tuple[Span, ...]) -> int:
    return 1 if isinstance(part, str) else sum(span.count for span in part)


def _texts(part: str | tuple[Span, ...]) -> list[str]:
    if isinstance(part, str):
        return [part]
    return [f"{n:0{span.width}d}" for span in part for n in range(span.first, span.last + 1)]


def _texts_last(part: str | tuple[Span, ...]) -> str:
    if isinstance(part, str):
        return part
    return max((f"{span.last:0{span.width}d}" for span in part), key=len)
