"""The policy of a grid file: a name, or one with some of its rules changed."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, get_args

from pydantic import BeforeValidator, Field

from gridloom.model.policy import POLICIES, Blocked, Order
from gridloom.wire.documents_check import Document
from gridloom.wire.documents_devices import DURATION, DURATION_ABOVE_0
from gridloom.wire.documents_values import (
    Choice,
    Flag,
    Quantity,
    Value,
    Whole,
    did_you_mean,
    found,
    wrong,
)

SWITCHES = ("elastic", "defragment", "predict")
"""What may be joined to a policy's name besides other policies."""

POLICY_NAMES = {
    "attained_steps": "attained_steps_s",
    "cooldown": "cooldown_s",
    "min_run": "min_run_s",
    "patience": "patience_s",
    "resize_min": "resize_s_min",
    "slot_hold": "slot_hold_s",
    "taint": "taint_s",
}
"""What a field of this section is called in the model, where that carries its unit."""

_NUMBER = Quantity("a number")


@dataclass(frozen=True)
class PolicyName(Value):
    """``fair``, or several joined: ``las+elastic``."""

    @property
    def right(self) -> str:
        """The names, and what may be joined to them."""
        return f"one of {', '.join(POLICIES)}, or several joined by `+`, as `las+elastic`"

    def parse(self, value: object) -> str:
        """Return the names joined by ``+``, without spaces."""
        if not isinstance(value, str):
            raise self.refuse(value)
        parts = [part.strip() for part in value.split("+")]
        for part in parts:
            if part not in POLICIES and part not in SWITCHES:
                near = did_you_mean(part, [*POLICIES, *SWITCHES])
                message = f"there is no policy `{part}`" if part else found(value)
                names = f"there are: {', '.join([*POLICIES, *SWITCHES])}"
                raise wrong(message, f"{near} {names}".strip())
        return "+".join(parts)

    def schema(self) -> dict[str, Any]:
        """Names joined by ``+``."""
        one = "|".join([*POLICIES, *SWITCHES])
        return {"type": "string", "pattern": rf"^\s*({one})(\s*\+\s*({one}))*\s*$"}


@dataclass(frozen=True)
class StepsValue(Value):
    """Amounts of device time, each larger than the one before: ``[1h, 10h, 100h]``."""

    @property
    def right(self) -> str:
        """The form."""
        return "a list of durations, each longer than the one before, as `[1h, 10h, 100h]`"

    def parse(self, value: object) -> tuple[float, ...]:
        """Return device-seconds."""
        items = value if isinstance(value, list) else [value]
        steps = tuple(DURATION_ABOVE_0.parse(item) for item in items)
        if not steps or any(a >= b for a, b in pairwise(steps)):
            raise self.refuse(value)
        return steps

    def schema(self) -> dict[str, Any]:
        """A duration, or a list of them."""
        each = DURATION_ABOVE_0.schema()
        return {"anyOf": [each, {"type": "array", "items": each, "minItems": 1}]}


class WeightsDocument(Document):
    """What makes a place better, in percent of the training step time one would give for it."""

    time: Annotated[
        float | None,
        _NUMBER,
        Field(description="For each percent that the predicted training step is longer."),
    ] = None
    wish: Annotated[
        float | None,
        _NUMBER,
        Field(
            description="For each level that a group sits further out than `placement` wishes,"
            " where no predicted step time tells what that costs."
        ),
    ] = None
    fragmentation: Annotated[
        float | None,
        _NUMBER,
        Field(description="For each wholly free domain of which the job uses a part only."),
    ] = None
    price: Annotated[
        float | None, _NUMBER, Field(description="For each percent above the cheapest site.")
    ] = None
    energy: Annotated[
        float | None, _NUMBER, Field(description="For each percent of power above the thriftiest.")
    ] = None
    carbon: Annotated[
        float | None, _NUMBER, Field(description="For each percent of CO2 above the cleanest.")
    ] = None
    distance: Annotated[
        float | None, _NUMBER, Field(description="For each site without the job's data.")
    ] = None
    advantage: Annotated[
        float | None,
        _NUMBER,
        Field(description="For each percent that others would gain more from such devices."),
    ] = None


class PreemptionDocument(Document):
    """For whom running jobs are evicted."""

    priority: Annotated[bool | None, Flag(), Field(description="For a job of higher priority.")] = (
        None
    )
    reclaim: Annotated[
        bool | None, Flag(), Field(description="For a queue that wants back what it lent.")
    ] = None
    order: Annotated[
        bool | None, Flag(), Field(description="For a job that comes first in the policy's order.")
    ] = None
    min_run: Annotated[
        float | None,
        DURATION,
        Field(description="A job that started less than this ago is left alone."),
    ] = None
    cooldown: Annotated[
        float | None,
        DURATION,
        Field(description="A job evicted less than this ago is not evicted for an equal."),
    ] = None
    gain_min: Annotated[
        float | None,
        _NUMBER,
        Field(description="Share by which the order must differ before it evicts."),
    ] = None


class PolicyDocument(Document):
    """By which rules jobs are placed; what is not said stays as `base` has it."""

    base: Annotated[
        str,
        PolicyName(),
        Field(
            description="Policy from which this one differs, or several joined by `+`.",
            examples=["fair", "las+elastic"],
        ),
    ] = "backfill"
    order: Annotated[
        str | None,
        Choice(get_args(Order)),
        Field(
            description="By what jobs of one priority are ordered: `submit`: when they were handed"
            " in; `duration`: as predicted; `remaining`: what is predicted to be left; `attained`:"
            " device time had so far; `share`: their queue's; `deadline`."
        ),
    ] = None
    blocked: Annotated[
        str | None,
        Choice(get_args(Blocked)),
        Field(
            description="What a job that cannot start means for those behind it: `stop`: they wait"
            " too; `skip`: they pass it; `hold`: they pass it where it could never run; `easy`:"
            " they pass it unless that delays its promised start; `conservative`: or anybody's."
        ),
    ] = None
    patience: Annotated[
        float | None,
        DURATION,
        Field(
            description="How long a job that cannot start lets others pass on nodes that it could"
            " use, where nobody knows when those that run will end."
        ),
    ] = None
    promises_max: Annotated[
        int | None,
        Whole(1, 10**6),
        Field(
            description="To how many of those that wait `conservative` promises a start, where the"
            " grid has more than one node; those behind wait."
        ),
    ] = None
    weights: WeightsDocument = Field(
        default=WeightsDocument(), description="What a place is worth."
    )
    preemption: PreemptionDocument = Field(
        default=PreemptionDocument(), description="For whom running jobs are evicted."
    )
    ageing_per_hour: Annotated[
        float | None,
        _NUMBER,
        Field(description="Priority that a waiting job gains on one handed in an hour later."),
    ] = None
    attained_steps: Annotated[
        tuple[float, ...] | None,
        StepsValue(),
        Field(
            description="Device time at which a job falls to the next class, for `attained`.",
            examples=[["1h", "10h", "100h"]],
        ),
    ] = None
    elastic: Annotated[
        bool | None, Flag(), Field(description="Jobs that allow it grow into what is idle, and"
        " shrink before they are evicted.")
    ] = None  # fmt: skip
    resize_min: Annotated[
        float | None,
        DURATION,
        Field(description="A job is grown no earlier than this after its last start."),
    ] = None
    defragment: Annotated[
        bool | None,
        Flag(),
        Field(description="Jobs move at a checkpoint when that lets a blocked one start."),
    ] = None
    slot_hold: Annotated[
        float | None,
        DURATION,
        Field(description="How long a job keeps the places it had when one of them is lost."),
    ] = None
    failures_max: Annotated[
        int | None,
        Whole(0, 10**6),
        Field(description="Jobs in a row that a node fails before it is tainted; 0: never."),
    ] = None
    taint: Annotated[
        float | None,
        DURATION,
        Field(description="How long a tainted node then gets no work."),
    ] = None
    predict: Annotated[
        bool | None,
        Flag(),
        Field(description="Durations are learned from past jobs rather than taken from users."),
    ] = None


def _by_name(value: object) -> object:
    """Let a policy's name stand for the whole section."""
    if isinstance(value, str):
        return {"base": PolicyName().parse(value)}
    if not isinstance(value, dict):
        raise wrong(found(value), f"write {PolicyName().right}, or `field: value` lines below it")
    return value


PolicySection = Annotated[
    PolicyDocument,
    BeforeValidator(_by_name, json_schema_input_type=PolicyDocument | Annotated[str, PolicyName()]),
]
"""The section as it is written: a mapping, or a name."""
