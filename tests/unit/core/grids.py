"""Small grids and shapes in few words: for the tests of the core's parts."""

from typing import Any

from gridloom.core.capacity import Capacity
from gridloom.core.demand import Demand
from gridloom.core.gang import Finder, Spot
from gridloom.core.rank import Ranker
from gridloom.core.state import Signals
from gridloom.core.topology import Tree
from gridloom.model.inventory import Inventory, Node, Site
from gridloom.model.life import Placement
from gridloom.model.parallel import ParallelPlan
from gridloom.model.policy import Weights
from gridloom.model.spec import GroupNeed, JobSpec, Option, Program

NO_FRAGMENTS = Weights(fragmentation=0.0)


def node(text: str, number: int = 0, **more: Any) -> Node:
    """Return the node ``[path/]count[:island][kind]``, as ``r0/4:2`` or ``8 h100``."""
    text, _, kind = text.partition(" ")
    *path, size = text.split("/")
    count, _, island = size.partition(":")
    settings: dict[str, Any] = {
        "name": f"n{number}",
        "address": f"at-{number}",
        "accelerator": kind or "cpu",
        "path": tuple(path),
        "count": int(count),
        "island": int(island or 0),
    }
    return Node(**settings | more)


def site(name: str, *nodes: str | Node, levels: str = "", **more: Any) -> Site:
    """Return a site of nodes n0, n1, ... or of those given."""
    made = tuple(
        one if isinstance(one, Node) else node(one, number, address=f"{name}-{number}")
        for number, one in enumerate(nodes)
    )
    return Site(name=name, kind="local", nodes=made, levels=tuple(levels.split()), **more)


def grid(*sites: Site, **more: Any) -> Inventory:
    return Inventory(sites=sites, **more)


def shape(data: int, *, tensor: int = 1, pipeline: int = 1, **more: Any) -> Option:
    plan = ParallelPlan(data=data, tensor=tensor, pipeline=pipeline)
    settings: dict[str, Any] = {"accelerator": "cpu", "plan": plan}
    return Option(**settings | more)


def must(ranks: int, level: str) -> GroupNeed:
    return GroupNeed(ranks=ranks, level=level)


def should(ranks: int, level: str) -> GroupNeed:
    return GroupNeed(ranks=ranks, level=level, required=False)


def spec(*options: Option, **more: Any) -> JobSpec:
    return JobSpec(name="j", program=Program(argv=(), workdir="/"), options=options, **more)


class Ground:
    """A grid, what is free on it, and where a gang would go."""

    def __init__(
        self, inventory: Inventory, weights: Weights | None = None, signals: Signals | None = None
    ) -> None:
        self.tree = Tree(inventory)
        self.capacity = Capacity(self.tree)
        self.ranker = Ranker(self.tree, weights or Weights(), signals or Signals())

    def demand(self, option: Option, **more: Any) -> Demand:
        return Demand(spec(option, **more), option, self.tree)

    def finder(self, demand: Demand) -> Finder:
        return Finder(demand, self.capacity, self.capacity.available)

    def spot(self, option: Option, **more: Any) -> Spot | None:
        finder = self.finder(self.demand(option, **more))
        found = finder.best(self.ranker)
        assert finder.fits() == (found is not None)
        return found

    def place(self, option: Option, **more: Any) -> Placement | None:
        """Return where a gang would go."""
        spot = self.spot(option, **more)
        if spot is None:
            return None
        return self.capacity.place(option, spot.units, spot.devices, self.ranker.prices)[0]

    def where(self, option: Option, **more: Any) -> str:
        """Return where a gang would go, as ``site/node:devices ...``."""
        placement = self.place(option, **more)
        if placement is None:
            return "nowhere"
        return " ".join(f"{task.domain}:{len(task.devices)}" for task in placement.tasks)

    def run(self, option: Option, **more: Any) -> Placement:
        """Let a gang have the place where it would go."""
        spot = self.spot(option, **more)
        assert spot is not None
        placement, held = self.capacity.place(option, spot.units, spot.devices, self.ranker.prices)
        self.capacity.take(held)
        return placement
