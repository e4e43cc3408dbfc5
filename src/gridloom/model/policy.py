"""Policies as data: who comes first, what a blocked job means, what a place is worth."""

from typing import Literal

import msgspec
from msgspec.structs import replace

Order = Literal["submit", "duration", "remaining", "attained", "share", "deadline"]
"""By what jobs of one priority are ordered: submission; predicted duration; what is predicted to be
left of it; device time had so far; their queue's weighted share; deadline."""

Blocked = Literal["stop", "skip", "hold", "easy", "conservative"]
"""What a job that cannot start means for those behind it: they wait too; they pass it; they pass
it where it could never run; they pass it if its start, promised from predicted ends, is not
delayed; if none of the promised starts is."""


class Weights(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What makes a place better, in percent of the training step time one would give for it.

    Attributes:
        time: Per percent that the predicted step is longer than the job's shortest.
        wish: Per level that a group sits further out than it should, where no predicted step time
            tells what that costs.
        fragmentation: Per domain, from the rack up to the site, that was wholly free and of which
            the job uses a part only.
        price: Per percent above the cheapest site with such devices.
        energy: Per percent of watts above the thriftiest.
        carbon: Per percent of grams of CO2 an hour above the cleanest.
        distance: Of every site in use that does not hold the job's data.
        advantage: Per percent that other jobs would gain more from this kind of device (Gavel's
            idea: each job where its relative speed is best).
    """

    time: float = 1.0
    wish: float = 5.0
    fragmentation: float = 1.0
    price: float = 0.5
    energy: float = 0.0
    carbon: float = 0.0
    distance: float = 10.0
    advantage: float = 0.0


class Preemption(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """For whom running jobs are evicted.

    Attributes:
        priority: For a job of higher priority.
        reclaim: For a queue that wants back what it lent.
        order: For a job that comes first in the policy's order (SRTF, LAS); ``share`` for a queue
            that stays below the victim's queue in weighted share even after it got its devices.
        min_run_s: A job that started less than this ago is left alone.
        cooldown_s: A job evicted less than this ago is not evicted again for an equal in priority.
        gain_min: By which share the order must differ before it evicts (hysteresis).
    """

    priority: bool = True
    reclaim: bool = True
    order: bool = False
    min_run_s: float = 0.0
    cooldown_s: float = 600.0
    gain_min: float = 0.1


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """By which rules jobs are placed.

    Attributes:
        name: Of the preset it came from.
        order: By what jobs of one priority are ordered.
        blocked: What a job that cannot start means for those behind it.
        patience_s: How long a blocked job lets others pass on nodes that it could use, where no
            start can be promised because nobody knows when those that run will end.
        promises_max: To how many waiting jobs, the first in order, ``conservative`` promises a
            start on a grid of more than one unit; those behind wait. On one unit: to all.
        weights: What a place is worth.
        preemption: For whom running jobs are evicted.
        ageing_per_hour: By how much priority a waiting job gains on one submitted an hour later.
        attained_steps_s: Device-seconds at which a job falls to the next class, for ``attained``.
        elastic: Jobs that allow it grow into what is idle, and shrink before they are evicted.
        resize_s_min: A job is grown no earlier than this after its last start.
        defragment: Jobs move at a checkpoint when that lets a blocked one start.
        slot_hold_s: How long a gang keeps the places it had when one of them is lost.
        failures_max: Different jobs in a row that a node fails before it is tainted; 0 for never.
        taint_s: How long it then gets no work.
        predict: Durations come from a learned predictor rather than from the users.
    """

    name: str = "backfill"
    order: Order = "submit"
    blocked: Blocked = "easy"
    patience_s: float = 300.0
    promises_max: int = 256
    weights: Weights = Weights()
    preemption: Preemption = Preemption()
    ageing_per_hour: float = 0.0
    attained_steps_s: tuple[float, ...] = (3600.0, 36000.0, 360000.0)
    elastic: bool = False
    resize_s_min: float = 600.0
    defragment: bool = False
    slot_hold_s: float = 120.0
    failures_max: int = 3
    taint_s: float = 3600.0
    predict: bool = False


_ORDER = Preemption(order=True)

POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy(name="fifo", blocked="stop"),
        Policy(name="backfill-greedy", blocked="skip"),
        Policy(name="backfill", blocked="easy"),
        Policy(name="backfill-conservative", blocked="conservative"),
        Policy(name="sjf", order="duration", blocked="skip"),
        Policy(name="srtf", order="remaining", blocked="skip", preemption=_ORDER),
        Policy(name="las", order="attained", blocked="skip", preemption=_ORDER),
        Policy(name="fair", order="share", preemption=_ORDER),
        Policy(name="throughput", weights=Weights(advantage=1.0)),
        Policy(name="topology", weights=Weights(wish=50.0, fragmentation=5.0)),
        Policy(name="cost", weights=Weights(price=10.0)),
        Policy(name="carbon", weights=Weights(carbon=10.0)),
    )
}
"""The policies that have a name; ``combined`` joins them."""


def combined(names: str) -> Policy:
    """Return the policy that ``names``, joined by ``+``, ask for: each adds what it is known for.

    What a part changes against the default policy is taken over; a later part wins. Parts that
    are not policies but switches: ``elastic``, ``defragment``, ``predict``.

    Raises:
        KeyError: A part is unknown; the error holds it.
    """
    policy, default = Policy(name=names), Policy()
    for name in names.split("+"):
        if name in _SWITCHES:
            policy = replace(policy, **{name: True})
            continue
        part = POLICIES[name]
        for field in part.__struct_fields__:
            if field != "name" and getattr(part, field) != getattr(default, field):
                policy = replace(policy, **{field: getattr(part, field)})
    return policy


_SWITCHES = frozenset({"elastic", "defragment", "predict"})
