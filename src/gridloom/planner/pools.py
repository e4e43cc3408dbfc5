"""Pools of devices at several sites, the links between them, and plans that join pools."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Literal

from gridloom.model.parallel import Auto, ParallelPlan
from gridloom.planner.costs import CostModel
from gridloom.planner.hardware import AcceleratorType, Fabric
from gridloom.planner.search import Goal
from gridloom.planner.search_space import SearchSpace
from gridloom.planner.site_stages import SiteStages
from gridloom.planner.sync_forecast import SyncLink

Way = Literal["one_pool", "replicas", "stages"]
"""What pools hold: all of the model, copies of the model, or stages of its pipeline."""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Devices of one kind at one site.

    Attributes:
        name: Unique among the pools.
        site: Where they are.
        accelerator: Their kind.
        count: How many there are.
        counts: How many a plan may use, if it uses any; empty for all of them only.
        fabric: The network between them.
        price_per_device_hour: In the grid's currency.
        power_w: Of one busy device with its share of the node; the accelerator's when 0.
        carbon_g_per_kwh: Of the site's electricity.
    """

    name: str
    site: str
    accelerator: AcceleratorType
    count: int
    counts: tuple[int, ...] = ()
    fabric: Fabric = field(default_factory=Fabric)
    price_per_device_hour: float = 0.0
    power_w: float = 0.0
    carbon_g_per_kwh: float = 0.0

    @property
    def watts(self) -> float:
        """Of one busy device."""
        return self.power_w or self.accelerator.power_w

    @property
    def choices(self) -> tuple[int, ...]:
        """Numbers of devices that a plan may use, without 0, smallest first."""
        return tuple(sorted({n for n in self.counts or (self.count,) if 0 < n <= self.count}))

    def network_bytes_per_s(self, devices: int) -> float:
        """Return the rate at which ``devices`` of it reach the site's network together."""
        one = self.fabric.network_bytes_per_s or self.accelerator.network_bytes_per_s
        return one * devices


@dataclass(frozen=True, kw_only=True)
class PoolLink:
    """The network between two sites, the same in both directions.

    Attributes:
        between: The two sites.
        bytes_per_s: What a job can expect, in one direction.
        latency_s: One way.
        loss: Share of the packets that are lost.
    """

    between: tuple[str, str]
    bytes_per_s: float
    latency_s: float = 0.0
    loss: float = 0.0

    @property
    def as_seen(self) -> SyncLink:
        """As the runtime's connections see it."""
        return SyncLink(bytes_per_s=self.bytes_per_s, rtt_s=2 * self.latency_s, loss=self.loss)


@dataclass(frozen=True, kw_only=True)
class PoolSpace:
    """Every plan over some of the pools.

    Attributes:
        space: The plans inside one pool; device, network and number of devices are the pool's.
        pools: Where they can run.
        links: Between sites.
        costs: What plans need and take.
        goal: What is wanted.
        ways: What pools may hold; ``one_pool`` is part of ``replicas``.
        pieces: The batch is shared out among pools in so many equal pieces, at most.
        chain: Pools that hold stages of one pipeline, at most.
        runnable_first: Stages at different sites are cut as the runtime has it, one for each site
            in whole copies, and in other ways only where no pools hold any of these.
        sync: How copies at different sites stay one model: as is best for their links; by default
            as ``space.base`` has it.
    """

    space: SearchSpace
    pools: tuple[Pool, ...]
    links: tuple[PoolLink, ...] = ()
    costs: CostModel
    goal: Goal = field(default_factory=Goal)
    ways: tuple[Way, ...] = ("replicas", "stages")
    pieces: int = 32
    chain: int = 2
    runnable_first: bool = False
    sync: Auto | None = None

    @property
    def steps(self) -> float:
        """Training steps of the whole training; 1 when the goal names no tokens."""
        batch = self.space.global_batch * self.space.sequence
        return self.goal.tokens / batch if self.goal.tokens else 1.0


@dataclass(frozen=True, kw_only=True)
class PoolPart:
    """What one pool does in a plan.

    Attributes:
        pool: Its name.
        site: Its site.
        devices: How many of its devices are used.
        sequences: Of the global batch that pass through it in a training step.
        layers: Of the model that it holds.
        plan: How its part of the model is cut over its devices.
        step_s: What a training step of its part takes, by itself.
        memory_bytes: Peak of its fullest rank.
    """

    pool: str
    site: str
    devices: int
    sequences: int
    layers: int
    plan: ParallelPlan
    step_s: float
    memory_bytes: float


@dataclass(frozen=True, kw_only=True)
class PoolPlan:
    """A plan over one pool or several.

    Attributes:
        way: What each pool holds.
        parts: What each pool does; with ``stages`` in the order of the pipeline.
        step_s: Seconds of a training step.
        between_s: Of these, for what crosses between pools.
        time_s: Of the whole training.
        price: Of the whole training, in the grid's currency.
        energy_j: Of the whole training.
        carbon_g: Of the whole training.
        more_tokens: How many times the tokens it takes to the loss of every step averaged whole;
            ``time_s`` and what follows are without.
        stages: The pipeline in numbers, of the way ``stages``.
    """

    way: Way
    parts: tuple[PoolPart, ...]
    step_s: float
    between_s: float
    time_s: float
    price: float
    energy_j: float
    carbon_g: float
    more_tokens: float = 1.0
    stages: SiteStages | None = None

    @property
    def devices(self) -> int:
        """All devices used."""
        return sum(part.devices for part in self.parts)

    @property
    def memory_bytes(self) -> float:
        """Peak of the fullest rank of all."""
        return max(part.memory_bytes for part in self.parts)


def space_of(space: SearchSpace, pool: Pool, devices: int) -> SearchSpace:
    """Return ``space`` on ``devices`` devices of ``pool``."""
    return replace(
        space,
        accelerator=pool.accelerator,
        fabric=pool.fabric,
        devices=(devices,),
        price_per_device_hour=pool.price_per_device_hour,
        power_w=pool.power_w,
        batch_at_most=False,
    )


def priced(
    way: Way,
    parts: tuple[PoolPart, ...],
    pools: Sequence[Pool],
    step_s: float,
    between_s: float,
    steps: float,
) -> PoolPlan:
    """Return the plan with what its whole training takes and costs.

    Args:
        way: What each pool holds.
        parts: What each pool does.
        pools: The pools of ``parts``, in the same order.
        step_s: Seconds of a training step.
        between_s: Of these, for what crosses between pools.
        steps: Training steps.
    """
    time_s = step_s * steps
    hours = time_s / 3600
    pairs = list(zip(parts, pools, strict=True))
    kwh = [part.devices * pool.watts * hours / 1000 for part, pool in pairs]
    return PoolPlan(
        way=way,
        parts=parts,
        step_s=step_s,
        between_s=between_s,
        time_s=time_s,
        price=sum(part.devices * pool.price_per_device_hour * hours for part, pool in pairs),
        energy_j=sum(kwh) * 3.6e6,
        carbon_g=sum(k * pool.carbon_g_per_kwh for k, pool in zip(kwh, pools, strict=True)),
    )


def objective(plan: PoolPlan, goal: Goal) -> float:
    """Return what ``goal`` wants to be smallest, at an equal loss."""
    found = {"time": plan.time_s, "energy": plan.energy_j}.get(goal.objective, plan.price)
    return found * plan.more_tokens


def accepted(plan: PoolPlan, goal: Goal) -> bool:
    """Return whether ``plan`` is within the limits of ``goal``."""
    return (
        not (goal.deadline_s and plan.time_s > goal.deadline_s)
        and not (goal.price_max and plan.price > goal.price_max)
        and not (goal.devices_max and plan.devices > goal.devices_max)
    )


def link_between(one: str, other: str, links: Sequence[PoolLink]) -> PoolLink | None:
    """Return the fastest link between two sites; nothing when there is none."""
    found = [link for link in links if set(link.between) == {one, other}]
    return max(found, key=lambda link: (link.bytes_per_s, -link.latency_s), default=None)


def ring_s(sites: Sequence[str], links: Sequence[PoolLink], payload_bytes: float) -> float:
    """Return the seconds of averaging ``payload_bytes`` a site around the best ring of ``sites``.

    A ring over ``S`` sites sends ``2 (S - 1) / S`` of the payload over each link, in ``2 (S - 1)``
    rounds, each as slow as the slowest link (Patarasuk and Yuan, 2009). Every ring over direct
    links is tried; two sites are a ring over one link.

    Returns:
        0 for one site; infinity when no ring of direct links joins the sites.
    """
    names = sorted(set(sites))
    count = len(names)
    if count < 2:
        return 0.0
    best = float("inf")
    for rest in permutations(names[1:]):
        ring = (names[0], *rest)
        pairs = [(ring[place], ring[(place + 1) % count]) for place in range(count)]
        hops = [link_between(one, other, links) for one, other in pairs]
        if all(hop is not None and hop.bytes_per_s > 0 for hop in hops):
            known = [hop for hop in hops if hop is not None]
            rate = min(hop.bytes_per_s for hop in known)
            latency_s = max(hop.latency_s for hop in known)
            rounds = 2 * (count - 1)
            best = min(best, rounds * (payload_bytes / count / rate + latency_s))
    return best
