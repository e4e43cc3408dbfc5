"""All-or-nothing placement of one shape over sites and nodes.

Sites are filled by whole replica groups and nodes by whole tensor groups. As the one is a multiple
of the other, a site can take any number of replica groups up to what its nodes hold together, and
a placement exists exactly when the largest sites can hold all groups: nothing is searched blindly.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from gridloom.model.inventory import Node, Site
from gridloom.model.life import Placement, TaskPlacement
from gridloom.model.parallel import ParallelPlan
from gridloom.model.spec import JobSpec, Option

CHOICES_MAX = 2000
"""Sets of sites that are compared by price: all fours of 16 sites, all pairs of 63."""


class FreeNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that may be used, and its free devices, ascending."""

    node: Node
    devices: tuple[int, ...]


class FreeSite(msgspec.Struct, frozen=True, kw_only=True):
    """A site that may be used, and those of its nodes that may be."""

    site: Site
    nodes: tuple[FreeNode, ...]

    def groups(self, plan: ParallelPlan) -> int:
        """Return how many replica groups fit."""
        shares = sum(len(node.devices) // plan.tensor for node in self.nodes)
        return shares * plan.tensor // plan.replica_ranks


def place(spec: JobSpec, option: Option, sites: Sequence[FreeSite]) -> Placement | None:
    """Return the best placement of ``option`` on ``sites``, or nothing when there is none.

    Best is: fewest sites, but ``spec.min_sites`` at least; then cheapest; then the user's order of
    sites; then the order of ``sites``. A job that wants several sites is spread over those chosen
    as evenly as they allow; another fills the cheapest first.
    """
    plan = option.plan
    liked = _by_liking(spec, [site for site in sites if site.groups(plan)])
    rooms = [site.groups(plan) for site in liked]
    share_out = _evenly if spec.min_sites > 1 else _fill_first
    for count in _counts(spec, plan, len(liked)):
        choices = [
            [(liked[i], share) for i, share in zip(chosen, shares, strict=True)]
            for chosen in islice(_choices(rooms, count, plan.data), CHOICES_MAX)
            for shares in [share_out([rooms[i] for i in chosen], plan.data)]
        ]
        if choices:
            return _placement(option, min(choices, key=_price))
    return None


def usable(spec: JobSpec, option: Option, sites: Sequence[FreeSite]) -> list[FreeSite]:
    """Return those of ``sites`` that take part in at least one placement."""
    plan = option.plan
    able = [site for site in sites if site.groups(plan)]
    rooms = [site.groups(plan) for site in able]
    return [
        site
        for i, site in enumerate(able)
        if any(
            rooms[i] + _largest(rooms[:i] + rooms[i + 1 :], count - 1) >= plan.data
            for count in _counts(spec, plan, len(able))
        )
    ]


def _by_liking(spec: JobSpec, sites: Sequence[FreeSite]) -> list[FreeSite]:
    wish = {name: position for position, name in reversed(list(enumerate(spec.sites)))}
    return sorted(
        sites, key=lambda free: (free.site.price_per_accelerator_hour, wish.get(free.site.name, 0))
    )


def _counts(spec: JobSpec, plan: ParallelPlan, sites: int) -> range:
    """Return the numbers of sites that the job can be spread over, fewest first."""
    return range(max(spec.min_sites, 1), min(spec.max_sites, plan.data, sites) + 1)


def _largest(rooms: Sequence[int], count: int) -> int:
    return sum(sorted(rooms, reverse=True)[:count])


def _choices(
    rooms: Sequence[int], count: int, need: int, start: int = 0
) -> Iterator[tuple[int, ...]]:
    """Yield, in order, all ways to choose ``count`` places with ``need`` room in all.

    A place is entered only when the largest of those behind it can hold the rest, so every branch
    that is entered bears a choice, and the first comes quickly however many there are.
    """
    if count == 0:
        yield ()
        return
    for i in range(start, len(rooms) - count + 1):
        if rooms[i] + _largest(rooms[i + 1 :], count - 1) >= need:
            for rest in _choices(rooms, count - 1, need - rooms[i], i + 1):
                yield (i, *rest)


def _fill_first(rooms: Sequence[int], need: int) -> list[int]:
    """Share out ``need`` so that each place has as much as can be, but leaves one to the others."""
    shares = []
    for i, room in enumerate(rooms):
        shares.append(min(room, need - (len(rooms) - i - 1)))
        need -= shares[-1]
    return shares


def _evenly(rooms: Sequence[int], need: int) -> list[int]:
    """Share out ``need`` so that the largest share is as small as can be; the first get the odd."""
    shares = list(rooms)
    left = sorted(range(len(rooms)), key=lambda i: rooms[i])
    while left and rooms[left[0]] <= need // len(left):
        need -= rooms[left.pop(0)]
    for position, i in enumerate(sorted(left)):
        shares[i] = need // len(left) + (position < need % len(left))
    return shares


def _price(shares: list[tuple[FreeSite, int]]) -> float:
    """Return what one rank of each group costs an hour, rounded so that equal sums tie."""
    return round(sum(free.site.price_per_accelerator_hour * share for free, share in shares), 9)


def _placement(option: Option, shares: list[tuple[FreeSite, int]]) -> Placement:
    plan = option.plan
    return Placement(
        option=option,
        tasks=tuple(
            task
            for free, share in shares
            for task in _tasks(free, share * plan.replica_ranks, plan.tensor)
        ),
        price_per_hour=sum(
            free.site.price_per_accelerator_hour * share * plan.replica_ranks
            for free, share in shares
        ),
    )


def _tasks(free: FreeSite, ranks: int, tensor: int) -> list[TaskPlacement]:
    """Spread ``ranks`` over the fewest nodes: the largest while none holds the rest, then best fit.

    The tasks stand in the site's order of nodes.
    """
    rooms = {i: len(node.devices) // tensor * tensor for i, node in enumerate(free.nodes)}
    taken: dict[int, int] = {}
    while ranks:
        fitting = [i for i in rooms if rooms[i] >= ranks]
        i = min(fitting, key=rooms.__getitem__) if fitting else max(rooms, key=rooms.__getitem__)
        taken[i] = min(ranks, rooms.pop(i))
        ranks -= taken[i]
    return [
        TaskPlacement(
            site=free.site.name,
            node=free.nodes[i].node.name,
            address=free.nodes[i].node.address,
            devices=free.nodes[i].devices[: taken[i]],
        )
        for i in sorted(taken)
    ]
