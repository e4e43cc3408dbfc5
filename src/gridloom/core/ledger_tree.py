"""The tree of queues and cohorts that quota is counted over, and what may be wrong with one.

Every node *has* an amount of each kind: its nominal and what its children let it have. A child
*keeps* what it has beyond its ``lend_max``; the rest is its parent's to hand out. Use is counted
where it is drawn from: a child's use up to what it keeps stays with the child, the rest is use of
the parent as well. A node's use may reach its *ceiling*: what it has, and its ``borrow_max``; the
root has nobody to borrow from. So are quotas counted in Kueue's cohorts (KEP-79, KEP-1224;
``pkg/cache/scheduler/resource_node.go``).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from gridloom.base.errors import BrokenError
from gridloom.model.quota import Cohort, Queue

UNLIMITED = 1 << 62
"""Devices beyond every count: what may be used where no limit is set."""

_NAMED_MAX = 4
"""Names that one sentence lists."""


class Node:
    """A queue or a cohort, with its use; what a kind is not named in is 0 but for the ceiling.

    Attributes:
        label: As a sentence names it, ``queue `a```.
        parent: What it draws from beyond what it keeps; nothing for a root.
        weight: For its share.
        limited: Its tree has quotas; else nothing here but the use counts.
        own: Its nominal.
        borrow: Its ``borrow_max``.
        has: What it can hand out, or use without borrowing.
        keeps: Of that, what its parent never gets.
        ceilings: What its use may reach; ``ceiling_else`` for a kind that is not in it.
        reach: What it could use if nobody else used anything.
        base: Of what its share is a part.
        use: Devices that are drawn from it, by kind; never 0.
    """

    __slots__ = (
        "base",
        "borrow",
        "ceiling_else",
        "ceilings",
        "has",
        "keeps",
        "label",
        "limited",
        "own",
        "parent",
        "reach",
        "use",
        "weight",
    )

    def __init__(self, noun: str, item: Queue | Cohort) -> None:
        self.label = f"{noun} `{item.name}`"
        self.weight = item.weight
        self.own: Mapping[str, int] = item.nominal or {}
        self.borrow = item.borrow_max
        self.parent: Node | None = None
        self.limited = False
        self.has: dict[str, int] = {}
        self.keeps: dict[str, int] = {}
        self.ceilings: dict[str, int] = {}
        self.ceiling_else = UNLIMITED
        self.reach: dict[str, int] = {}
        self.base: Mapping[str, int] = {}
        self.use: dict[str, int] = {}

    def ceiling(self, kind: str) -> int:
        """Return what its use may reach."""
        return self.ceilings.get(kind, self.ceiling_else)

    def idle(self, kind: str) -> int:
        """Return what it keeps and does not use."""
        return max(0, self.keeps.get(kind, 0) - self.use.get(kind, 0))

    def borrows(self, kind: str) -> int:
        """Return by how much it uses more than it has; 0 without quotas."""
        if not self.limited:
            return 0
        return max(0, self.use.get(kind, 0) - self.has.get(kind, 0))

    def drawn(self, kind: str, devices: int) -> int:
        """Return by how much the use of its parent grows when its own grows by ``devices``."""
        use, keeps = self.use.get(kind, 0), self.keeps.get(kind, 0)
        return max(0, use + devices - keeps) - max(0, use - keeps)


def grow(
    queues: Sequence[Queue], cohorts: Sequence[Cohort], totals: Mapping[str, int]
) -> dict[str, Node]:
    """Return the node of each queue, linked to its cohort's, which are linked to theirs.

    A queue without a nominal is linked to its cohort only if nothing in the whole tree is limited;
    with quotas around it, it stands alone.

    Raises:
        BrokenError: There are ``problems``.
    """
    if found := problems(queues, cohorts):
        raise BrokenError("; ".join(found))
    parents = {cohort.name: cohort.parent for cohort in cohorts}
    up = {name: list(_up(name, parents)) for name in parents}
    limited = {up[name][-1] for name in _limited(queues, cohorts)}
    nodes = {cohort.name: Node("cohort", cohort) for cohort in cohorts}
    leaves = {queue.name: Node("queue", queue) for queue in queues}
    for cohort in cohorts:
        nodes[cohort.name].limited = up[cohort.name][-1] in limited
        nodes[cohort.name].parent = nodes[cohort.parent] if cohort.parent else None
    for queue in queues:
        leaf = leaves[queue.name]
        leaf.limited = queue.nominal is not None
        if queue.cohort and leaf.limited == nodes[queue.cohort].limited:
            leaf.parent = nodes[queue.cohort]
    inner = sorted(cohorts, key=lambda cohort: -len(up[cohort.name]))
    upwards = [
        *((leaves[queue.name], queue.lend_max) for queue in queues),
        *((nodes[cohort.name], cohort.lend_max) for cohort in inner),
    ]
    kinds = _kinds(queues, cohorts)
    for node, lend in upwards:
        if node.limited:
            _collect(node, lend, kinds)
    for node, _ in reversed(upwards):
        if node.limited:
            _reach(node, kinds)
        else:
            node.base = totals
    return leaves


def problems(queues: Sequence[Queue], cohorts: Sequence[Cohort]) -> list[str]:
    """Return what keeps queues and cohorts from being trees, each with what would be right."""
    parents = {cohort.name: cohort.parent for cohort in cohorts}
    counted = chain(
        (("queue", *counted) for counted in Counter(queue.name for queue in queues).items()),
        (("cohort", *counted) for counted in Counter(cohort.name for cohort in cohorts).items()),
    )
    found = [
        f"{noun} `{name}` is declared {count} times; keep one, or rename the others"
        for noun, name, count in counted
        if count > 1
    ]
    have = ", ".join(f"`{name}`" for name in list(parents)[:_NAMED_MAX])
    remedy = f"declare it, or name one that is there: {have}" if parents else "declare it"
    found += [
        f"queue `{queue.name}` is in cohort `{queue.cohort}`, which is not there; {remedy}"
        for queue in queues
        if queue.cohort and queue.cohort not in parents
    ]
    found += [
        f"cohort `{name}` has the parent `{parent}`, which is not there; {remedy}"
        for name, parent in parents.items()
        if parent and parent not in parents
    ]
    return [*found, *_cycles(parents)]


def _collect(node: Node, lend: Mapping[str, int] | None, kinds: Iterable[str]) -> None:
    """Add up what ``node`` has, once its children did; hand its parent what it does not keep."""
    parent = node.parent
    for kind in kinds:
        has = node.has.get(kind, 0) + node.own.get(kind, 0)
        keeps = max(0, has - lend.get(kind, 0)) if parent and lend is not None else 0
        node.has[kind], node.keeps[kind] = has, keeps
        if parent:
            parent.has[kind] = parent.has.get(kind, 0) + has - keeps
        if not parent:
            node.ceilings[kind] = has
        elif node.borrow is not None:
            node.ceilings[kind] = has + node.borrow.get(kind, 0)
    node.ceiling_else = UNLIMITED if parent and node.borrow is None else 0


def _reach(node: Node, kinds: Iterable[str]) -> None:
    """Note what ``node`` could use on an empty grid, once its parent did."""
    above = node.parent.reach if node.parent else node.has
    for kind in kinds:
        node.reach[kind] = min(node.ceiling(kind), node.keeps[kind] + above[kind])
    node.base = above


def _kinds(queues: Sequence[Queue], cohorts: Sequence[Cohort]) -> list[str]:
    items: list[Queue | Cohort] = [*queues, *cohorts]
    amounts = (
        amount or {} for item in items for amount in (item.nominal, item.borrow_max, item.lend_max)
    )
    return sorted({kind for amount in amounts for kind in amount})


def _up(name: str, parents: Mapping[str, str]) -> Iterator[str]:
    """Yield ``name`` and its ancestors, up to an unknown one; the first repeated one ends it."""
    seen: set[str] = set()
    while name in parents:
        yield name
        if name in seen:
            return
        seen.add(name)
        name = parents[name]


def _limited(queues: Sequence[Queue], cohorts: Sequence[Cohort]) -> Iterator[str]:
    """Yield the cohorts in which something is owned or limited."""
    yield from (queue.cohort for queue in queues if queue.cohort and queue.nominal is not None)
    for cohort in cohorts:
        if cohort.nominal or cohort.borrow_max is not None or cohort.lend_max is not None:
            yield cohort.name


def _cycles(parents: Mapping[str, str]) -> Iterator[str]:
    done: set[str] = set()
    for name in parents:
        way = []
        for ancestor in _up(name, parents):
            if ancestor in done:
                break
            way.append(ancestor)
        if len(way) > 1 and way[-1] in way[:-1]:
            circle = way[way.index(way[-1]) : -1]
            names = " in ".join(f"`{member}`" for member in [*circle, circle[0]])
            yield f"cohorts cannot lie within themselves: {names}; take away one `parent`"
        done.update(way)
