"""Quota: what each queue uses of its own and of its cohort's, what it may still have, its share.

Every question and every change walks from one queue to its root, so it costs the depth of the tree.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from gridloom.base.errors import BrokenError
from gridloom.core.ledger_tree import UNLIMITED, Node, grow
from gridloom.core.shortage import Shortage, levels, too_much_ever, too_much_now, unknown
from gridloom.model.quota import Cohort, Queue

_NOTHING: Mapping[str, int] = MappingProxyType({})


class Ledger:
    """Devices in use by queue, cohort and kind, against what is owned, lent and borrowed.

    A queue without a nominal has no limit, lends nothing and borrows nothing. The queue without a
    name is always there, and is such a one unless it is declared. What runs in a queue that is no
    longer declared is counted, but bounds nobody.
    """

    def __init__(
        self, queues: Sequence[Queue], cohorts: Sequence[Cohort], totals: Mapping[str, int]
    ) -> None:
        """Begin with nothing in use.

        Args:
            queues: With the cohorts, free of ``ledger_tree.problems``.
            cohorts: Of which queues, and other cohorts, are part.
            totals: Devices of the grid by kind.

        Raises:
            BrokenError: Queues and cohorts are no tree.
        """
        if all(queue.name for queue in queues):
            queues = (*queues, Queue(name=""))
        self._totals = totals
        self._queues = {queue.name: queue for queue in queues}
        self._paths = {
            name: tuple(_way_up(node)) for name, node in grow(queues, cohorts, totals).items()
        }

    def known(self, queue: str) -> bool:
        """Return whether the queue is declared."""
        return queue in self._queues

    def limited(self, queue: str) -> bool:
        """Return whether quotas bound the queue."""
        return self._path(queue)[0].limited

    def use(self, queue: str, kind: str) -> int:
        """Return how many devices the queue uses."""
        return self._path(queue)[0].use.get(kind, 0)

    def take(self, queue: str, kind: str, devices: int) -> None:
        """Count ``devices`` more as the queue's; whether it may have them is not asked here.

        Raises:
            BrokenError: ``devices`` is negative.
        """
        if devices < 0:
            raise BrokenError(f"queue `{queue}` cannot take {devices} {kind}")
        self._charge(queue, kind, devices)

    def give_back(self, queue: str, kind: str, devices: int) -> None:
        """Undo ``take``.

        Raises:
            BrokenError: The queue does not use that many, or ``devices`` is negative.
        """
        if not 0 <= devices <= self._path(queue)[0].use.get(kind, 0):
            raise BrokenError(
                f"queue `{queue}` cannot give back {devices} of {self.use(queue, kind)} {kind}"
            )
        self._charge(queue, kind, -devices)

    def room(self, queue: str, kind: str) -> int:
        """Return how many more devices the queue may have now; ``UNLIMITED`` for any number."""
        if queue not in self._queues:
            return 0
        path = self._paths[queue]
        if not path[0].limited:
            return UNLIMITED
        below, room = 0, UNLIMITED
        for node in path:
            use = node.use.get(kind, 0)
            ceiling = node.ceilings.get(kind, node.ceiling_else)
            if ceiling != UNLIMITED:
                room = min(room, below + max(0, ceiling - use))
            below += max(0, node.keeps.get(kind, 0) - use)
        return room

    def shortage(self, queue: str, kind: str, devices: int) -> Shortage | None:
        """Return nothing if the queue may have ``devices`` more now, else what stands against it.

        It may have what fits into its own ceiling and into that of every cohort that it is drawn
        from; a cohort whose use would not grow has no say.
        """
        if queue not in self._queues:
            return unknown(queue, self._queues, devices)
        if devices <= self.room(queue, kind):
            return None
        path = self._paths[queue]
        remedy = None
        if _first_right(path, kind) >= devices:
            write = f"write `reclaim: true` for {path[0].label}, so that it takes back what it lent"
            remedy = "" if self._queues[queue].reclaim else write
        return too_much_now(path, kind, devices, remedy=remedy)

    def ever(self, queue: str, kind: str, devices: int) -> Shortage | None:
        """Return nothing if the queue may have ``devices`` on an empty grid, else why never."""
        if queue not in self._queues:
            return unknown(queue, self._queues, devices)
        path = self._paths[queue]
        if not path[0].limited or devices <= path[0].reach.get(kind, 0):
            return None
        return too_much_ever(path, kind, devices)

    def borrowed(self, queue: str, kind: str) -> int:
        """Return how much of what the queue uses is beyond its nominal; 0 if it has none."""
        return self._path(queue)[0].borrows(kind)

    def owed(self, queue: str, kind: str, devices: int) -> int:
        """Return how many of ``devices`` more the queue has the first right to.

        They stay within its nominal, or within what a cohort has that it is part of and that is
        itself part of another, which then has to give it back. 0 if the queue may not reclaim.
        """
        if queue not in self._queues or not self._queues[queue].reclaim:
            return 0
        return min(devices, _first_right(self._paths[queue], kind))

    def lent(self, owner: str, borrower: str, kind: str) -> int:
        """Return for how many devices of a job ``owner`` may take back from ``borrower``.

        Inside the smallest cohort that both are part of, all that the borrower's devices are drawn
        through borrows, and all that the owner's are drawn through has enough for the job: what
        was lent inside a cohort is taken back inside it first. Kueue's hierarchical reclaim
        (``pkg/scheduler/preemption/classical/hierarchical_preemption.go``) asks the same of the
        borrower, but lets a queue within its nominal pass over the cohorts between.
        """
        if owner not in self._queues or borrower not in self._queues:
            return 0
        mine, theirs = self._paths[owner], self._paths[borrower]
        count, their_count = _apart(mine, theirs)
        if not 0 < count < len(mine) or not self._queues[owner].reclaim:
            return 0
        if not all(node.borrows(kind) for node in theirs[:their_count]):
            return 0
        return _rights(mine[:count], kind)[-1]

    def lends_to(self, owner: str, borrower: str, kind: str, devices: int = 1) -> bool:
        """Return whether ``owner`` may take from ``borrower`` for a job of ``devices``."""
        return self.lent(owner, borrower, kind) >= devices

    def share(self, queue: str, extra: Mapping[str, int] = _NOTHING) -> float:
        """Return the queue's weighted dominant share with ``extra`` more, or fewer, devices.

        With quotas: the largest over the kinds of (use - nominal) / (what its cohort could use on
        an empty grid), over the weight, and 0 within its nominal. That is the share value of
        Kueue's fair sharing (KEP-1714, ``pkg/cache/scheduler/fair_sharing.go``), each kind being a
        resource of its own. Without: the largest of use / (devices of the grid), over the weight:
        weighted dominant resource fairness (Ghodsi et al., NSDI 2011, sections 4 and 4.3). With
        weight 0 it is infinite, unless it is 0; a kind that there is none of counts as one device.
        """
        return _shares(self._path(queue), extra)[0]

    def path_share(self, queue: str, extra: Mapping[str, int] = _NOTHING) -> tuple[float, ...]:
        """Return the shares of the root cohort, of every other on the way down, and of the queue.

        A cohort's are counted as a queue's, against the cohort above. Without ``extra`` they sort
        queues of a tree as hierarchical fair sharing does: where two ways part, the lower share
        comes first. With it, ``rival_shares`` compares.
        """
        return tuple(reversed(_shares(self._path(queue), extra)))

    def rival_shares(
        self,
        queue: str,
        other: str,
        *,
        extra: Mapping[str, int] = _NOTHING,
        other_extra: Mapping[str, int] = _NOTHING,
    ) -> tuple[float, float]:
        """Return the shares of ``queue`` and ``other`` where their ways up part.

        Those are the two children, one above each queue or itself, of the smallest cohort that
        both are part of; the roots of two trees. Of one queue it is twice its own.
        """
        mine, theirs = self._path(queue), self._path(other)
        count, their_count = _apart(mine, theirs)
        mine, theirs = mine[: max(1, count)], theirs[: max(1, their_count)]
        return _shares(mine, extra)[-1], _shares(theirs, other_extra)[-1]

    def _path(self, queue: str) -> tuple[Node, ...]:
        """Return the queue's node and those above it; a node of its own if it is not declared."""
        if queue not in self._paths:
            (node,) = grow([Queue(name=queue)], (), self._totals).values()
            self._paths[queue] = (node,)
        return self._paths[queue]

    def _charge(self, queue: str, kind: str, devices: int) -> None:
        node: Node | None = self._path(queue)[0]
        while node and devices:
            drawn = node.drawn(kind, devices) if node.parent else 0
            use = node.use.pop(kind, 0) + devices
            if use:
                node.use[kind] = use
            node, devices = node.parent, drawn


def _way_up(node: Node) -> Iterator[Node]:
    above: Node | None = node
    while above:
        yield above
        above = above.parent


def _apart(mine: Sequence[Node], theirs: Sequence[Node]) -> tuple[int, int]:
    """Return how many nodes of each way up, from the queue on, the other does not share."""
    count, their_count = len(mine), len(theirs)
    while count and their_count and mine[count - 1] is theirs[their_count - 1]:
        count, their_count = count - 1, their_count - 1
    return count, their_count


def _rights(path: Sequence[Node], kind: str) -> list[int]:
    """Return, for each node, how many more devices the queue may have without it borrowing."""
    found, most = [], UNLIMITED
    for level in levels(path, kind):
        node = level.node
        unused = max(0, node.has.get(kind, 0) - node.use.get(kind, 0))
        found.append(min(most, level.below + unused))
        most = min(most, level.room)
    return found


def _first_right(path: Sequence[Node], kind: str) -> int:
    """Return how many more devices somebody may have to give back to the queue."""
    return max(_rights(path[:-1] or path, kind))


def _shares(path: Sequence[Node], extra: Mapping[str, int]) -> list[float]:
    """Return the share of each node once the queue, the first, has ``extra`` more."""
    found = []
    for node in path:
        use: Mapping[str, int] = node.use
        if extra:
            use = {kind: use.get(kind, 0) + extra.get(kind, 0) for kind in (*use, *extra)}
            extra = {kind: node.drawn(kind, devices) for kind, devices in extra.items()}
        found.append(_share(node, use))
    return found


def _share(node: Node, use: Mapping[str, int]) -> float:
    largest = 0.0
    for kind, devices in use.items():
        beyond = devices - node.has.get(kind, 0)
        if beyond > 0:
            largest = max(largest, beyond / max(1, node.base.get(kind, 0)))
    if not largest:
        return 0.0
    return largest / node.weight if node.weight else math.inf
