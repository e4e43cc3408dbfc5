"""Kinds of values in stories: counts and amounts to be compared, dependencies, pairs of names."""

import re
from dataclasses import dataclass
from typing import Any, Literal

from gridloom.wire.documents_values import Choice, Text, Texts, Value, Whole, found, wrong

JOB_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
NAMES_PATTERN = r"[A-Za-z0-9*?][A-Za-z0-9._*?\[\]!-]{0,127}"
JOB = Text("a job's name, as `train`", JOB_PATTERN)
NAMES = Texts(Text("a job's name, which may hold `*` and `?`", NAMES_PATTERN), "jobs' names")
DOMAIN = Text("a node, as `n0` or `north/n0`, or a site", r"[A-Za-z0-9][A-Za-z0-9._/-]{0,103}")

RANKS_MAX = 1_000_000
_COUNT = re.compile(r"(\d{1,9})(?:(\+)|\s*-\s*(\d{1,9}))?")
_AMOUNT = re.compile(r"(\d{1,9})\s*(nodes?|devices?)?")
_KINDS = ("afterok", "afterany", "afternotok", "after")


@dataclass(frozen=True)
class Span:
    """Whole numbers from ``least`` to ``most``; without ``most`` any from ``least`` on."""

    least: int
    most: int | None

    def __contains__(self, number: int) -> bool:
        return number >= self.least and (self.most is None or number <= self.most)

    def __str__(self) -> str:
        if self.most is None:
            return f"at least {self.least}"
        return f"{self.least}" if self.most == self.least else f"{self.least} to {self.most}"


@dataclass(frozen=True)
class SpanValue(Value):
    """``4``, ``2-4`` or ``2+``."""

    @property
    def right(self) -> str:
        """The forms."""
        return "a whole number, or a range as `2-4` or `2+`"

    def parse(self, value: object) -> Span:
        """Return the range; a number is a range of one."""
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise self.refuse(value)
        match = _COUNT.fullmatch(str(value).strip())
        if match is None:
            raise self.refuse(value)
        least = int(match[1])
        most = None if match[2] else int(match[3] or least)
        if most is not None and most < least:
            raise wrong(f"{found(value)}: the range is empty", "write the smaller number first")
        return Span(least, most)

    def schema(self) -> dict[str, Any]:
        """A number, or text."""
        text = {"type": "string", "pattern": rf"^\s*{_COUNT.pattern}\s*$"}
        return {"anyOf": [{"type": "integer", "minimum": 0}, text]}


@dataclass(frozen=True)
class Amount:
    """What a job should hold; nothing where it does not matter."""

    nodes: int | None = None
    devices: int | None = None

    def __str__(self) -> str:
        parts = [(self.nodes, "node"), (self.devices, "device")]
        return " and ".join(_counted(n, word) for n, word in parts if n is not None)


@dataclass(frozen=True)
class AmountValue(Value):
    """``32 devices``, ``4 nodes`` or ``4 nodes, 32 devices``; a bare number counts devices."""

    @property
    def right(self) -> str:
        """The forms."""
        return "an amount, as `32 devices`, `4 nodes` or `4 nodes, 32 devices`"

    def parse(self, value: object) -> Amount:
        """Return the amount."""
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise self.refuse(value)
        amounts: dict[str, int] = {}
        for part in str(value).split(","):
            match = _AMOUNT.fullmatch(part.strip())
            if match is None:
                raise self.refuse(value)
            word = "nodes" if (match[2] or "").startswith("node") else "devices"
            if word in amounts:
                raise wrong(f"{found(value)}: {word} are given twice", "keep one")
            amounts[word] = int(match[1])
        return Amount(**amounts)

    def schema(self) -> dict[str, Any]:
        """A number, or text."""
        one = _AMOUNT.pattern
        text = {"type": "string", "pattern": rf"^\s*{one}\s*(,\s*{one}\s*)?$"}
        return {"anyOf": [{"type": "integer", "minimum": 0}, text]}


@dataclass(frozen=True)
class TasksValue(Value):
    """``4``; or several numbers that an elastic job may have: ``2-8``, ``[8, 4, 2]``."""

    @property
    def right(self) -> str:
        """The forms."""
        return "how many tasks, as `4`, or for an elastic job `2-8` or `[8, 4, 2]`"

    def parse(self, value: object) -> tuple[int, ...]:
        """Return the numbers, the largest first."""
        whole = Whole(1, RANKS_MAX)
        if isinstance(value, list):
            numbers = [whole.parse(item) for item in value]
        elif isinstance(value, str) and (
            match := re.fullmatch(r"(\d{1,7})\s*-\s*(\d{1,7})", value)
        ):
            least, most = int(match[1]), int(match[2])
            if not 0 < least <= most <= least + 10_000:
                raise wrong(
                    f"{found(value)}: the range is empty or too long", f"write {self.right}"
                )
            numbers = [*range(least, most + 1)]
        else:
            numbers = [whole.parse(value)]
        if not numbers or len(set(numbers)) < len(numbers):
            raise self.refuse(value)
        return tuple(sorted(numbers, reverse=True))

    def schema(self) -> dict[str, Any]:
        """A number, a range or a list."""
        number = {"type": "integer", "minimum": 1, "maximum": RANKS_MAX}
        text = {"type": "string", "pattern": r"^\d{1,7}\s*-\s*\d{1,7}$"}
        return {"anyOf": [number, text, {"type": "array", "items": number, "minItems": 1}]}


Kind = Literal["afterok", "afterany", "afternotok", "after"]


@dataclass(frozen=True)
class AfterValue(Value):
    """Other jobs: ``a``, ``[a, b]`` or ``[a, {b: afterany}]``."""

    @property
    def right(self) -> str:
        """The forms."""
        return f"jobs' names, or `name: kind` with one of {', '.join(_KINDS)}"

    def parse(self, value: object) -> tuple[tuple[str, Kind], ...]:
        """Return names and kinds."""
        items = value if isinstance(value, list) else [value]
        if not items:
            raise self.refuse(value)
        return tuple(pair for item in items for pair in self._pairs(item))

    def _pairs(self, item: object) -> list[tuple[str, Kind]]:
        if isinstance(item, dict):
            kinds = Choice(_KINDS)
            return [(NAMES.each.parse(name), kinds.parse(kind)) for name, kind in item.items()]  # type: ignore[misc]
        return [(NAMES.each.parse(item), "afterok")]

    def schema(self) -> dict[str, Any]:
        """Text, a mapping, or a list of them."""
        one = {"type": "string", "pattern": f"^{NAMES_PATTERN}$"}
        kinds = {"type": "object", "additionalProperties": {"enum": [*_KINDS]}}
        each = {"anyOf": [one, kinds]}
        return {"anyOf": [one, kinds, {"type": "array", "items": each, "minItems": 1}]}


@dataclass(frozen=True)
class GroupsValue(Value):
    """How many consecutive ranks sit together at which level: ``{node: 8, leaf: all}``."""

    @property
    def right(self) -> str:
        """The form."""
        return "levels with the ranks that sit together there, as `{node: 8, leaf: all}`"

    def parse(self, value: object) -> dict[str, int]:
        """Return ranks by level; 0 stands for all of the job's."""
        if not isinstance(value, dict) or not value:
            raise self.refuse(value)
        groups: dict[str, int] = {}
        for level, ranks in value.items():
            if not re.fullmatch(r"[a-z][a-z0-9_]{0,19}", str(level)):
                raise wrong(f"`{level}` cannot be a level", f"write {self.right}")
            groups[str(level)] = 0 if ranks == "all" else Whole(1, RANKS_MAX).parse(ranks)
        return groups

    def schema(self) -> dict[str, Any]:
        """A mapping of numbers."""
        number = {"type": "integer", "minimum": 1, "maximum": RANKS_MAX}
        each = {"anyOf": [number, {"const": "all"}]}
        return {"type": "object", "additionalProperties": each, "minProperties": 1}


@dataclass(frozen=True)
class PairsValue(Value):
    """Pairs of names: ``[[hi*, lo*]]``."""

    @property
    def right(self) -> str:
        """The form."""
        return "a list of pairs of names, as `[[hi*, lo*]]`"

    def parse(self, value: object) -> tuple[tuple[str, str], ...]:
        """Return the pairs."""
        if not isinstance(value, list) or not value:
            raise self.refuse(value)
        pairs: list[tuple[str, str]] = []
        for item in value:
            if not isinstance(item, list) or len(item) != 2:
                raise self.refuse(value)
            pairs.append((NAMES.each.parse(item[0]), NAMES.each.parse(item[1])))
        return tuple(pairs)

    def schema(self) -> dict[str, Any]:
        """A list of lists of two."""
        one = {"type": "string", "pattern": f"^{NAMES_PATTERN}$"}
        pair = {"type": "array", "items": one, "minItems": 2, "maxItems": 2}
        return {"type": "array", "items": pair, "minItems": 1}


@dataclass(frozen=True)
class NodesChoiceValue(Value):
    """A set of nodes, or a list of sets of which one is right: ``[[n0, n1], [n2, n3]]``."""

    @property
    def right(self) -> str:
        """The forms."""
        return "nodes, as `[n0, n1]`, or alternatives, as `[[n0, n1], [n2, n3]]`"

    def parse(self, value: object) -> tuple[tuple[str, ...], ...]:
        """Return the alternatives."""
        items = value if isinstance(value, list) else [value]
        if not items:
            raise self.refuse(value)
        alternatives = items if isinstance(items[0], list) else [items]
        nodes = Texts(DOMAIN, "nodes")
        return tuple(nodes.parse(alternative) for alternative in alternatives)

    def schema(self) -> dict[str, Any]:
        """Text, a list, or a list of lists."""
        one = {"type": "string", "pattern": f"^{DOMAIN.pattern}$"}
        some = {"type": "array", "items": one, "minItems": 1}
        return {"anyOf": [one, some, {"type": "array", "items": some, "minItems": 1}]}


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
