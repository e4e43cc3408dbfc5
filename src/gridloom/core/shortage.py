"""Why a queue cannot have more: the arithmetic as a sentence, and what to change."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from gridloom.core.ledger_tree import UNLIMITED, Node
from gridloom.model.reason import Why

_NAMED_MAX = 4
"""Queues that one sentence lists."""


class Shortage(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a queue, or a cohort above it, has too little of for a job.

    Attributes:
        code: ``QUOTA`` or ``ACCELERATOR_HOURS``.
        limiting: The queue or cohort whose limit it is, as ``queue `a```.
        sentence: What was found, for a person.
        wanted: What the job needs, in devices or in accelerator-hours, rounded up.
        found: What it could have, rounded down.
        remedy: The smallest change that would help; empty when time, or reclaim, does.
    """

    code: Why
    limiting: str
    sentence: str
    wanted: int
    found: int
    remedy: str = ""


class Level(NamedTuple):
    """One node on the way from a queue to its root.

    Attributes:
        node: It.
        below: Devices that the queue could have before this node's use grows.
        left: By how much this node's use may still grow; negative when it is past its ceiling.
    """

    node: Node
    below: int
    left: int

    @property
    def room(self) -> int:
        """How many devices the queue could have if only this node limited it."""
        return self.below + max(0, self.left)


def levels(path: Iterable[Node], kind: str, *, empty: bool = False) -> list[Level]:
    """Return the nodes of ``path``, a queue first, with what each leaves it now or if ``empty``."""
    below, found = 0, []
    for node in path:
        use = 0 if empty else node.use.get(kind, 0)
        ceiling = node.ceiling(kind)
        found.append(Level(node, below, ceiling if ceiling == UNLIMITED else ceiling - use))
        below += max(0, node.keeps.get(kind, 0) - use)
    return found


def too_much_now(
    path: Sequence[Node], kind: str, devices: int, *, remedy: str | None = None
) -> Shortage:
    """Return why a queue cannot have ``devices`` more; without a ``remedy``, what to raise."""
    way = levels(path, kind)
    tight = _tight(way)
    first = way[0].node
    kept = f", keeps {idle} more to itself" if (idle := first.idle(kind)) else ""
    more = f"{tight.room} more" if tight.room else "no more"
    return Shortage(
        code=Why.QUOTA,
        limiting=tight.node.label,
        sentence=(
            f"{_uses(first, kind)}{kept}{_may_borrow(first, kind)}{_above(first, tight, kind)}:"
            f" it can have {more}, the job needs {devices}"
        ),
        wanted=devices,
        found=tight.room,
        remedy=_raised(way, kind, devices) if remedy is None else remedy,
    )


def too_much_ever(path: Sequence[Node], kind: str, devices: int) -> Shortage:
    """Return why a queue could not have ``devices`` even if nothing else ran."""
    way = levels(path, kind, empty=True)
    tight = _tight(way)
    first = way[0].node
    if first.parent:
        most = first.reach.get(kind, 0) - first.has.get(kind, 0)
        amount = f"at most {most}" if most else "none"
        borrow = f" and can borrow {amount} from {first.parent.label}"
    else:
        borrow = " and has no cohort to borrow from"
    fewer = f"ask for at most {tight.room} {kind}, or " if tight.room else ""
    return Shortage(
        code=Why.QUOTA,
        limiting=tight.node.label,
        sentence=f"{_owns(first, kind)}{borrow}; the job needs {devices}",
        wanted=devices,
        found=tight.room,
        remedy=fewer + _raised(way, kind, devices),
    )


def unknown(queue: str, known: Iterable[str], devices: int) -> Shortage:
    """Return why a queue that is not declared can have nothing."""
    names = sorted(name for name in known if name)
    listed = ", ".join(f"`{name}`" for name in names[:_NAMED_MAX])
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return Shortage(
        code=Why.QUOTA,
        limiting=f"queue `{queue}`",
        sentence=f"the grid has no queue `{queue}`",
        wanted=devices,
        found=0,
        remedy=(
            f"name one that it has: {listed}{more}"
            if names
            else "name none: the grid has no queues"
        ),
    )


def _tight(way: Sequence[Level]) -> Level:
    """Return the level that leaves the least; of equals the lowest."""
    return min(way, key=lambda level: level.room)


def _owns(node: Node, kind: str) -> str:
    return f"{node.label} owns {node.has.get(kind, 0) or 'no'} {kind}"


def _uses(node: Node, kind: str) -> str:
    use, has = node.use.get(kind, 0), node.has.get(kind, 0)
    if not has:
        return f"{_owns(node, kind)} but uses {use}" if use else _owns(node, kind)
    if use > has:
        return f"{node.label} uses {use} {kind} ({use - has} beyond its {has})"
    return f"{node.label} uses {use} of its {has} {kind}"


def _may_borrow(node: Node, kind: str) -> str:
    if not node.parent:
        return ""
    ceiling = node.ceiling(kind)
    if ceiling == UNLIMITED:
        return f" and may borrow from {node.parent.label}"
    left = ceiling - max(node.use.get(kind, 0), node.has.get(kind, 0))
    return f" and may borrow {f'{left}' if left > 0 else 'no'} more from {node.parent.label}"


def _above(first: Node, tight: Level, kind: str) -> str:
    """Return what the node has left that limits the queue, if that is not the queue itself."""
    node = tight.node
    if node is first:
        return ""
    if node.parent:
        return f"; {_uses(node, kind)}{_may_borrow(node, kind)}"
    left = max(0, tight.left)
    unused = f"{left or 'none'} {'are' if left > 1 else 'is'} unused"
    return f", where {unused}" if first.parent is node else f"; in {node.label} {unused}"


def _raised(way: Sequence[Level], kind: str, devices: int) -> str:
    """Return the limit to raise, and to what, so that ``devices`` more can be had.

    If one ``borrow_max`` is all that is in the way, it is that; a larger nominal of the queue's own
    always helps, since it adds as much to every cohort above or is kept below it.
    """
    short = [level for level in way if level.room < devices]
    node, below, left = short[0]
    if len(short) == 1 and node.parent and node.borrow is not None:
        most = node.borrow.get(kind, 0) + devices - below - left
        return f"raise `borrow_max` of {node.label} to {most} {kind}"
    missing = max(devices - below - left for _, below, left in short)
    first = way[0].node
    return f"raise `nominal` of {first.label} to {first.own.get(kind, 0) + missing} {kind}"
