"""What a job file says of how the model is cut, in the words of the planner's plans."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from gridloom.model.parallel import Offload, ParallelPlan, Recompute, Schedule
from gridloom.wire.documents_check import Document
from gridloom.wire.documents_values import Choice, Flag, Value, Whole

_SCHEDULES = ("1f1b", "interleaved", "zero_bubble")
_RECOMPUTE = ("none", "selective", "operators", "full")
_OFFLOAD = Choice(("optimizer", "gradients", "parameters", "activations"))
_LAYERS = Whole(1, 10_000)


class _Offloaded(Value):
    """A list of what lives in the memory of the host."""

    @property
    def right(self) -> str:
        """What would be right."""
        return "a list, as `[activations]`"

    def parse(self, value: object) -> tuple[str, ...]:
        """Return the words in their usual order."""
        items = value if isinstance(value, list) else [value]
        said = [_OFFLOAD.parse(item) for item in items]
        return tuple(word for word in _OFFLOAD.words if word in said)

    def schema(self) -> dict[str, Any]:
        """A word, or a list of words."""
        each = _OFFLOAD.schema()
        return {"anyOf": [each, {"type": "array", "items": each}]}


class _StageLayers(Value):
    """The number of layers of every stage."""

    @property
    def right(self) -> str:
        """What would be right."""
        return "a list of layers a stage, as `[3, 4, 4, 3]`"

    def parse(self, value: object) -> tuple[int, ...]:
        """Return the numbers."""
        if not isinstance(value, list) or not value:
            raise self.refuse(value)
        return tuple(_LAYERS.parse(item) for item in value)

    def schema(self) -> dict[str, Any]:
        """A list of whole numbers."""
        return {"type": "array", "items": _LAYERS.schema(), "minItems": 1}


class ParallelDocument(Document):
    """How the model is cut; tensor x pipeline x context x data is the number of devices."""

    tensor: Annotated[
        int, Whole(1, 10**4), Field(description="Ranks that share a matrix, on one node.")
    ] = 1
    pipeline: Annotated[int, Whole(1, 10**4), Field(description="Stages of layers.")] = 1
    context: Annotated[int, Whole(1, 10**4), Field(description="Ranks that share a sequence.")] = 1
    data: Annotated[
        int,
        Whole(1, 10**6, auto=0),
        Field(
            description="Copies of the model, over all sites; `auto`: as many as the devices make."
        ),
    ] = 0
    expert: Annotated[
        int,
        Whole(1, 10**4),
        Field(description="Of the data x context ranks of a site, those that share out experts."),
    ] = 1
    sequence_parallel: Annotated[
        bool,
        Flag(),
        Field(description="Tensor ranks also share the tokens between matrix products."),
    ] = False
    schedule: Annotated[
        Schedule,
        Choice(_SCHEDULES),
        Field(description="Order of micro-batches: `1f1b`, `interleaved` or `zero_bubble`."),
    ] = "1f1b"
    virtual_stages: Annotated[
        int, Whole(1, 10**4), Field(description="Chunks of layers a stage holds; not with `1f1b`.")
    ] = 1
    stage_layers: Annotated[
        tuple[int, ...],
        _StageLayers(),
        Field(description="Layers of each stage, in order. Default: even to one layer."),
    ] = ()
    zero: Annotated[
        Literal[0, 1, 2, 3],
        Whole(0, 3),
        Field(
            description="What the data x context ranks of a site shard: 0 nothing, 1 optimizer,"
            " 2 gradients too, 3 parameters too."
        ),
    ] = 0
    shard: Annotated[
        int,
        Whole(0, 10**6),
        Field(description="Ranks of one shard group; 0: all of a site (HSDP otherwise)."),
    ] = 0
    recompute: Annotated[
        Recompute,
        Choice(_RECOMPUTE),
        Field(
            description="Activations that the backward computes again: `none`; `selective`:"
            " attention's core; `operators`: all but attention and every second matrix product;"
            " `full`: whole layers."
        ),
    ] = "none"
    recompute_layers: Annotated[
        int, Whole(0, 10_000), Field(description="Layers a stage that `full` covers; 0: all.")
    ] = 0
    offload: Annotated[
        tuple[Offload, ...],
        _Offloaded(),
        Field(description="What lives in the host's memory: `activations`, `parameters`."),
    ] = ()


def _auto_is_empty(value: object) -> object:
    return {} if value == "auto" else value


ParallelSection = Annotated[
    ParallelDocument,
    BeforeValidator(_auto_is_empty, json_schema_input_type=ParallelDocument | Literal["auto"]),
]
"""The section as it is written: a mapping, or ``auto``."""


def to_plan(said: ParallelDocument) -> ParallelPlan:
    """Return how a copy of the model is cut; ``data`` follows from the devices.

    An expert is cut like every other matrix.
    """
    fields = dict(said)
    del fields["data"]
    return ParallelPlan(**fields, expert_tensor=said.tensor if said.expert > 1 else 0)


def is_open(said: ParallelDocument) -> bool:
    """Return whether nothing is said of the cut, so that the planner may choose one."""
    return said.model_fields_set <= {"data"}
