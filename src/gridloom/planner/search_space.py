"""What a search goes through: a model, a machine, and for each knob the values it may take."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from gridloom.model.parallel import (
    Offload,
    Optimizer,
    ParallelPlan,
    Precision,
    Recompute,
    Schedule,
)
from gridloom.model.transformer import Transformer
from gridloom.planner.hardware import AcceleratorType, Fabric

NODE_SHARD = -1
"""Among the values of ``shard``: the ranks that share a node (hybrid sharding, HSDP)."""


class Rule(StrEnum):
    """Why a combination of values is no plan, or the same plan as another that is kept."""

    DEVICES = "devices"
    NODE = "node"
    HEADS = "heads"
    WIDTHS = "widths"
    LAYERS = "layers"
    SEQUENCE = "sequence"
    DATA = "data"
    BATCH = "batch"
    MICRO_BATCH = "micro_batch"
    CHUNKS = "chunks"
    INTERLEAVING = "interleaving"
    EXPERTS = "experts"
    EXPERT_RANKS = "expert_ranks"
    SHARD = "shard"
    TOKENS = "tokens"
    SAME_SCHEDULE = "same_schedule"
    SAME_EXPERTS = "same_experts"
    SAME_SHARDS = "same_shards"
    SAME_KNOB = "same_knob"
    SAME_RECOMPUTE = "same_recompute"

    @property
    def sentence(self) -> str:
        """The rule, for a person."""
        return _SENTENCES[self]


_SENTENCES = {
    Rule.DEVICES: "tensor x pipeline x context must divide the number of devices",
    Rule.NODE: "the ranks of one tensor group sit in one node, so their number must divide it",
    Rule.HEADS: "the ranks of a tensor group must share attention heads evenly",
    Rule.WIDTHS: "the ranks of a tensor group must share the feed-forward evenly",
    Rule.LAYERS: "every stage must hold a layer, and equally many unless uneven stages are allowed",
    Rule.SEQUENCE: "each context rank takes two equal pieces of a sequence (causal balance)",
    Rule.DATA: "the copies of the model take all devices that tensor, pipeline and context leave",
    Rule.BATCH: "the copies of the model must share the global batch evenly, one sequence at least",
    Rule.MICRO_BATCH: "the micro-batch must divide the sequences that one copy of the model takes",
    Rule.CHUNKS: "every chunk of an interleaved pipeline must hold equally many layers, but for one"
    " less in the first and in the last where uneven stages are allowed",
    Rule.INTERLEAVING: "interleaving takes a number of micro-batches that is a multiple of the"
    " stages",
    Rule.EXPERTS: "the experts, and the width of each, must be shared evenly",
    Rule.EXPERT_RANKS: "expert x expert tensor must divide tensor x context x data",
    Rule.SHARD: "a shard group has two ranks at least, and their number divides data x context",
    Rule.TOKENS: "sequence parallelism shares the tokens of a context rank evenly",
    Rule.SAME_SCHEDULE: "with one stage every schedule is the same",
    Rule.SAME_EXPERTS: "the same ranks for each expert as another value",
    Rule.SAME_SHARDS: "without copies, or without sharding, shard groups are the same",
    Rule.SAME_KNOB: "what one rank does alone is neither shared nor overlapped",
    Rule.SAME_RECOMPUTE: "as many layers as the longest stage holds are all layers",
}


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """Every plan whose knobs take the values given here.

    An empty tuple stands for every value that is possible. All orders of values give the same
    answer.

    Attributes:
        model: The transformer.
        accelerator: The kind of device.
        fabric: The network between devices.
        devices: Numbers of devices, each all used by a plan.
        global_batch: Sequences a training step.
        sequence: Tokens a sequence.
        batch_at_most: The global batch may be smaller: the largest multiple of the copies of the
            model that does not exceed ``global_batch``.
        price_per_device_hour: In the grid's currency.
        power_w: Of one busy device with its share of the node; the accelerator's when 0.
        tensor: Ranks of a tensor group.
        tensor_in_node: A tensor group sits in one node.
        pipeline: Stages.
        uneven_stages: Stages may differ by one layer, the first and the last the shorter ones.
        virtual_stages: Chunks a stage when interleaved; only those of 2 and more count.
        schedule: Orders of micro-batches.
        context: Ranks that share a sequence.
        data: Copies of the model.
        expert: Ranks over which experts are spread.
        expert_tensor: Ranks that share an expert; 0 follows the tensor group with one expert rank
            and is 1 otherwise.
        zero: Stages of sharding.
        shard: Ranks of a shard group; 0 all of ``data x context``, or ``NODE_SHARD``.
        micro_batch: Sequences.
        micro_batch_max: Largest when ``micro_batch`` is empty; 0 for no bound.
        recompute: What is computed again.
        recompute_layers: Layers a stage that ``full`` covers; 0 for all.
        sequence_parallel: Tensor ranks share tokens between matrix products.
        flash_attention: Scores are never stored.
        precision: Of matrix products.
        optimizer: Update rules.
        offload: Sets of what lives in the host's memory.
        overlap_gradients: See ``ParallelPlan``.
        overlap_parameters: See ``ParallelPlan``.
        overlap_tensor: See ``ParallelPlan``.
        base: What else a plan says, as how the loss is computed.
    """

    model: Transformer
    accelerator: AcceleratorType
    fabric: Fabric = field(default_factory=Fabric)
    devices: tuple[int, ...]
    global_batch: int
    sequence: int
    batch_at_most: bool = False
    price_per_device_hour: float = 0.0
    power_w: float = 0.0
    tensor: tuple[int, ...] = ()
    tensor_in_node: bool = True
    pipeline: tuple[int, ...] = ()
    uneven_stages: bool = True
    virtual_stages: tuple[int, ...] = ()
    schedule: tuple[Schedule, ...] = ("1f1b", "interleaved")
    context: tuple[int, ...] = ()
    data: tuple[int, ...] = ()
    expert: tuple[int, ...] = ()
    expert_tensor: tuple[int, ...] = (0,)
    zero: tuple[int, ...] = (0, 1, 2, 3)
    shard: tuple[int, ...] = (0,)
    micro_batch: tuple[int, ...] = ()
    micro_batch_max: int = 0
    recompute: tuple[Recompute, ...] = ("none", "selective", "full")
    recompute_layers: tuple[int, ...] = (0,)
    sequence_parallel: tuple[bool, ...] = (False, True)
    flash_attention: tuple[bool, ...] = (True,)
    precision: tuple[Precision, ...] = ("bf16",)
    optimizer: tuple[Optimizer, ...] = ("adamw",)
    offload: tuple[tuple[Offload, ...], ...] = ((),)
    overlap_gradients: tuple[bool, ...] = (True,)
    overlap_parameters: tuple[bool, ...] = (True,)
    overlap_tensor: tuple[bool, ...] = (False,)
    base: ParallelPlan = field(default_factory=ParallelPlan)

    @property
    def node(self) -> int:
        """Devices of one scale-up domain."""
        return self.fabric.node or self.accelerator.node

    @property
    def watts(self) -> float:
        """Of one busy device."""
        return self.power_w or self.accelerator.power_w


@dataclass(frozen=True)
class Values:
    """The values of the knobs that have to be shared out, for one number of devices.

    Attributes:
        tensor: Ranks of a tensor group.
        pipeline: Stages.
        context: Ranks that share a sequence.
        micro_batch: Sequences.
        schedules: Schedule and chunks a stage.
        expert: Ranks over which experts are spread.
        expert_tensor: Ranks that share an expert, 0 for what follows from the others.
        shards: Stage of sharding and ranks of a shard group.
    """

    tensor: tuple[int, ...]
    pipeline: tuple[int, ...]
    context: tuple[int, ...]
    micro_batch: tuple[int, ...]
    schedules: tuple[tuple[Schedule, int], ...]
    expert: tuple[int, ...]
    expert_tensor: tuple[int, ...]
    shards: tuple[tuple[int, int], ...]


def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of ``number`` (at least 1), smallest first."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def values(space: SearchSpace, devices: int) -> Values:
    """Return the values of ``space`` for ``devices`` devices, each tuple sorted, none twice."""
    shared = divisors(devices)
    layers, experts = space.model.layers, space.model.experts
    tensor = space.tensor or [d for d in shared if not space.tensor_in_node or d <= space.node]
    pipeline = space.pipeline or [d for d in shared if d <= layers]
    context = space.context or [d for d in shared if d == 1 or space.sequence % (2 * d) == 0]
    expert = space.expert or divisors(experts.count if experts else 1)
    # A stage of sharding 0 has no groups, so it is paired with one value only.
    shard = _sorted(space.shard)
    shards = [(zero, size) for zero in _sorted(space.zero) for size in (shard if zero else (0,))]
    return Values(
        tensor=_sorted(tensor),
        pipeline=_sorted(pipeline),
        context=_sorted(context),
        micro_batch=_micro_batches(space, devices),
        schedules=_schedules(space, _sorted(pipeline)),
        expert=_sorted(expert),
        expert_tensor=_sorted(space.expert_tensor) if experts else (0,),
        shards=tuple(shards),
    )


def _sorted(numbers: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(set(numbers)))


def _micro_batches(space: SearchSpace, devices: int) -> tuple[int, ...]:
    if space.micro_batch:
        return _sorted(space.micro_batch)
    shares = {space.global_batch}
    if space.batch_at_most:
        shares = {space.global_batch // copies for copies in divisors(devices)} - {0}
    found = {size for share in shares for size in divisors(share)}
    return _sorted([s for s in found if not space.micro_batch_max or s <= space.micro_batch_max])


def _schedules(space: SearchSpace, pipeline: Sequence[int]) -> tuple[tuple[Schedule, int], ...]:
    """Return each schedule with its chunks a stage; those of ``interleaved`` reach one layer."""
    stages = [count for count in pipeline if count > 1]
    # An embedding and a head may make up a chunk without a layer (Llama 3, 2024, section 3.3.2).
    spare = 2 if space.uneven_stages else 0
    most = (space.model.layers + spare) // min(stages) if stages else 1
    chunks = [c for c in space.virtual_stages if c > 1] or range(2, max(most, 2) + 1)
    found: list[tuple[Schedule, int]] = []
    for schedule in sorted(set(space.schedule)):
        many = chunks if schedule == "interleaved" else (1,)
        found += [(schedule, count) for count in _sorted(tuple(many))]
    return tuple(found)
