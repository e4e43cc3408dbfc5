"""Lists of host names as Slurm writes them: ``node[01-16,20],login1`` and back (pure)."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

HOSTS_MAX = 1 << 20
"""So many hosts one list may name: more is a slip of the pen that would fill the memory."""

_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
_NUMBERED = re.compile(r"(.*?)(\d{1,9})$", re.DOTALL)
_SEPARATORS = re.compile(r"[\s,\[\]]")


def expand(text: str) -> tuple[str, ...]:
    """Return the names that a host list stands for, in its order; of ``(null)`` or nothing, none.

    Zeros in front of the first number of a range set the width of all its numbers. A list may
    hold several brackets in one name; the last of them varies fastest.

    Raises:
        ValueError: ``text`` is not a host list, or names more than ``HOSTS_MAX`` hosts.
    """
    text = text.strip()
    if text in ("", "(null)", "None"):
        return ()
    names: list[str] = []
    for item in _items(text):
        pieces = _pieces(item, text)
        count = 1
        for piece in pieces:
            count *= sum(high - low + 1 for low, high, _ in piece) if piece else 0
        if len(names) + count > HOSTS_MAX:
            raise ValueError(f"{text[:60]!r} names more than {HOSTS_MAX} hosts")
        values = [list(_values(piece)) for piece in pieces]
        literals = re.split(r"\[[^\]]*\]", item)
        for chosen in itertools.product(*values):
            tail = "".join(n + rest for n, rest in zip(chosen, literals[1:], strict=True))
            names.append(literals[0] + tail)
    return tuple(names)


def compress(names: Iterable[str]) -> str:
    """Return one host list that expands to ``names`` again, in their order.

    Neighbours that differ only in the number at their end share a bracket. Numbers elsewhere in a
    name are left alone: not every release reads a bracket that is not the last thing of a name.

    Raises:
        ValueError: A name is empty, or has a space, a comma or a bracket.
    """
    items: list[str] = []
    numbered = map(_numbered, names)
    for (prefix, has_number), group in itertools.groupby(numbered, lambda n: (n[0], bool(n[1]))):
        numbers = [number for _, number in group]
        if not has_number:
            items.extend(prefix for _ in numbers)
            continue
        ranges = _ranges(numbers)
        single = len(ranges) == 1 and "-" not in ranges[0]
        items.append(prefix + (ranges[0] if single else f"[{','.join(ranges)}]"))
    return ",".join(items)


def _items(text: str) -> Iterator[str]:
    """Split at the commas outside brackets."""
    start, is_open = 0, False
    for at, char in enumerate(text):
        if char in "[]":
            if is_open == (char == "["):
                raise ValueError(f"{text[:60]!r} is not a host list: stray {char!r} at {at + 1}")
            is_open = not is_open
        elif char.isspace():
            raise ValueError(f"{text[:60]!r} is not a host list: space at {at + 1}")
        elif char == "," and not is_open:
            yield _named(text[start:at], text)
            start = at + 1
    if is_open:
        raise ValueError(f"{text[:60]!r} is not a host list: a bracket is not closed")
    yield _named(text[start:], text)


def _named(item: str, text: str) -> str:
    if not item:
        raise ValueError(f"{text[:60]!r} is not a host list: a name is missing beside a comma")
    return item


def _pieces(item: str, text: str) -> list[list[tuple[int, int, int]]]:
    """Return what each bracket of a name says: (first, last, width) of every range."""
    return [[_range(part, text) for part in inside.split(",")] for inside in _insides(item)]


def _insides(item: str) -> list[str]:
    return re.findall(r"\[([^\]]*)\]", item)


def _range(part: str, text: str) -> tuple[int, int, int]:
    match = _RANGE.fullmatch(part)
    if match is None or not part.isascii():
        raise ValueError(f"{text[:60]!r} is not a host list: {part!r} is not a number or a range")
    low, high = int(match[1]), int(match[2] or match[1])
    if high < low:
        raise ValueError(f"{text[:60]!r} is not a host list: {part!r} counts down")
    return low, high, len(match[1])


def _values(ranges: Sequence[tuple[int, int, int]]) -> Iterator[str]:
    for low, high, width in ranges:
        for number in range(low, high + 1):
            yield f"{number:0{width}d}"


def _numbered(name: str) -> tuple[str, str]:
    """Return a name's beginning and the digits at its end, which may be none."""
    if not name or _SEPARATORS.search(name):
        raise ValueError(f"{name!r} cannot stand in a host list")
    match = _NUMBERED.fullmatch(name) if name.isascii() else None
    return (match[1], match[2]) if match else (name, "")


def _ranges(numbers: Sequence[str]) -> list[str]:
    """Join numbers that follow each other, as they are written."""
    ranges: list[tuple[str, str]] = []
    for number in numbers:
        if ranges and number == f"{int(ranges[-1][1]) + 1:0{len(ranges[-1][0])}d}":
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return [low if low == high else f"{low}-{high}" for low, high in ranges]
