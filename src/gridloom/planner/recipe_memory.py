"""Predicted memory of the recipe's fullest rank, by kind, at its peak: the start of the backward.

How a copy is cut decides what a rank holds: a share of each matrix (tensor), some of the layers
(pipeline) and of the experts (expert), a run of each sequence (context), and with ZeRO a share of
the state of what it holds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gridloom.model.parallel import ParallelPlan
from gridloom.model.recipe import GptShape, Training
from gridloom.planner.shape import kv_width

FP32_BYTES = 4
_HALF_BYTES = 2
_GATHERED_LAYERS = 2
"""Layers whole at a time with ZeRO-3: the one that computes, and the next one."""


@dataclass(frozen=True)
class MemoryLine:
    """One kind of memory.

    Attributes:
        kind: Its name.
        size_bytes: How much a rank holds.
    """

    kind: str
    size_bytes: int


@dataclass(frozen=True)
class _Held:
    """Weights of one rank before any of their state is sharded."""

    matrices: int
    """Of attention and dense or shared feed-forward, without the experts."""
    experts: int
    others: int
    """Norms, routers and gates."""
    tables: int
    """Embedding and output."""
    output: int
    """Of the matrix that gives logits, wherever it is counted."""
    layer: int
    """Of the largest layer, with its experts."""

    @property
    def dense(self) -> int:
        """All but the experts."""
        return self.matrices + self.others + self.tables


@dataclass(frozen=True)
class _Rank:
    """One rank of a stage: what its lines follow from."""

    shape: GptShape
    training: Training
    plan: ParallelPlan
    site_copies: int
    stage: int
    layers: Sequence[int]

    @property
    def width(self) -> int:
        """Bytes of a number where matrix products read it."""
        return FP32_BYTES if self.training.precision == "fp32" else _HALF_BYTES

    @property
    def is_last(self) -> bool:
        """Whether it computes the loss."""
        return self.stage == self.plan.pipeline - 1

    @property
    def tokens(self) -> int:
        """Of a micro-batch."""
        sequences = micro_batch(self.training, self.plan)
        return sequences * self.training.sequence_length // self.plan.context

    @property
    def in_flight(self) -> int:
        """Micro-batches whose activations it holds at most.

        A stage of 1F1B has as many as there are stages from it on (Narayanan et al. 2019), of the
        other schedules by the chunks of its warm-up (Narayanan et al. 2021, section 2.2).
        """
        plan = self.plan
        if plan.pipeline == 1:
            return 1
        behind = plan.pipeline - self.stage
        if plan.schedule != "1f1b":
            chunks = (plan.virtual_stages - 1) * plan.pipeline + 2 * (behind - 1) + 1
            behind = -(-chunks // plan.virtual_stages)
        share = -(-self.training.global_batch // plan.data)
        return max(1, min(behind, share // micro_batch(self.training, plan)))


def micro_batch(training: Training, plan: ParallelPlan) -> int:
    """Return the sequences that a rank takes through the model at once, at most.

    Args:
        training: How it is trained.
        plan: How it is cut; ``data`` are the copies at all sites.
    """
    share = -(-training.global_batch // plan.data)
    wanted = training.micro_batch or plan.micro_batch
    return min(wanted or (1 if plan.pipeline > 1 else share), share)


def memory(
    shape: GptShape, training: Training, plan: ParallelPlan, sites: int = 1
) -> tuple[MemoryLine, ...]:
    """Return what the fullest rank holds.

    Of ``P`` weights that it holds, all state is fp32: parameters ``4 P``, AdamW's two moments
    ``8 P``, and ``4 P`` for the flat bucket in which gradients are averaged, of which the gradients
    are views. With bf16 or fp16, the matrices' copies for the products are ``2`` bytes a weight.
    With ZeRO the state is shared by the ranks of a shard group, and weights are gathered: all of
    them below level 3, else what the outermost module holds and two layers; gradients are whole at
    level 1. What the backward needs of the forward is counted by ``_activations`` and ``_loss``.
    Not counted: the allocator's slack, the framework itself and its workspaces. Experts are
    counted with an even load, and ``operators`` recomputes less than it does.

    Args:
        shape: The model.
        training: How it is trained.
        plan: How it is cut; ``data`` are the copies at all sites, which have as many each.
        sites: Their number.
    """
    stages = plan.stages(shape.layers)
    ranks = []
    for stage in range(plan.pipeline):
        layers = [layer for part in stages[stage :: plan.pipeline] for layer in part]
        rank = _Rank(shape, training, plan, max(1, plan.data // sites), stage, layers)
        kinds = (*_state(rank), *_activations(rank), *_loss(rank))
        ranks.append(tuple(line for line in kinds if line.size_bytes))
    return max(ranks, key=lambda lines: sum(line.size_bytes for line in lines))


def memory_bytes(shape: GptShape, training: Training, plan: ParallelPlan, sites: int = 1) -> int:
    """Return the sum of ``memory``."""
    return sum(line.size_bytes for line in memory(shape, training, plan, sites))


def _held(rank: _Rank) -> _Held:
    shape, plan, hidden = rank.shape, rank.plan, rank.shape.hidden
    attention = 2 * hidden * (hidden + kv_width(shape)) // plan.tensor
    matrices = experts = others = layer = 0
    for number in rank.layers:
        mixed = shape.experts_at(number)
        dense, routed, beside = 3 * hidden * shape.ffn // plan.tensor, 0, 2 * hidden
        if mixed is not None:
            dense = 3 * hidden * mixed.shared_ffn // plan.tensor
            routed = mixed.count // plan.expert * (3 * hidden * mixed.ffn // plan.tensor)
            beside += hidden * (mixed.count + mixed.shared_gate)
        matrices, experts = matrices + attention + dense, experts + routed
        others += beside
        layer = max(layer, attention + dense + routed + beside)
    table = shape.vocabulary * hidden
    is_first, is_last = rank.stage == 0, rank.is_last
    own = is_last and not (shape.tied_embeddings and is_first)
    return _Held(
        matrices=matrices,
        experts=experts,
        others=others + hidden * is_last,
        tables=table * (is_first + own),
        output=table * is_last,
        layer=layer,
    )


def _state(rank: _Rank) -> Iterator[MemoryLine]:
    plan, held = rank.plan, _held(rank)
    ranks = rank.site_copies * plan.context
    group = (plan.shard or ranks) if plan.zero else 1
    expert_group = group if plan.expert == 1 else ranks // plan.expert if plan.zero else 1
    whole = held.dense + held.experts
    own = -(-held.dense // group) + -(-held.experts // expert_group)
    is_sharded = group > 1
    gradients = whole if plan.zero == 1 else own
    if is_sharded and "parameters" in plan.offload:
        own = gradients = 0
    yield MemoryLine("parameters", FP32_BYTES * own)
    yield MemoryLine("optimizer moments", 2 * FP32_BYTES * own)
    yield MemoryLine("gradients (exchange bucket)", FP32_BYTES * gradients)
    if is_sharded:
        gathered = whole
        if plan.zero == 3:
            gathered = min(whole, held.tables + _GATHERED_LAYERS * held.layer)
        yield MemoryLine("gathered weights", rank.width * gathered)
    elif rank.width < FP32_BYTES:
        copied = held.matrices + held.experts + held.output
        kind = f"{rank.training.precision} copies of the matrices"
        yield MemoryLine(kind, rank.width * copied)


def _activations(rank: _Rank) -> Iterator[MemoryLine]:
    """Yield what the layers keep for the backward.

    A token in a layer of width ``h``, keys of width ``k`` and feed-forward width ``f`` keeps, at
    ``width`` bytes a number where matrix products read it and at 4 in the fp32 residual stream:

    * each of two norms: its input and the normed input in fp32 (``2 h``), its output (``h``), and
      one fp32 scale; the last norm of the model likewise;
    * attention: query, key and value (``h + 2 k``), query and key after rotation (``h + k``), the
      output (``h``), and one fp32 log-sum a head: the fused kernel keeps no matrix of scores; with
      context ranks, the keys and values of the whole sequence too (``2 k`` a token of it);
    * feed-forward: gate and up, the gate's SiLU, the product (``4 f``); of each expert that the
      token goes through the same, and what goes in and comes out (``2 h``); a fp32 score an expert.

    Tensor ranks share heads and widths, and with sequence parallelism the stream. What is computed
    again is not kept: attention's core (``selective``: query and key after rotation, log-sums), or
    whole layers (``full``), of which only the input is; one such layer is whole in the backward.
    """
    plan, shape, tokens = rank.plan, rank.shape, rank.tokens
    spread = plan.tensor if plan.sequence_parallel else 1
    covered = len(rank.layers) if plan.recompute == "full" else 0
    if plan.recompute_layers:
        # of every chunk, the first ones
        covered = min(covered, plan.recompute_layers * plan.virtual_stages)
    kept = [rank.layers[-1], *rank.layers[covered:]] if covered else [*rank.layers]
    turns = [1] * bool(covered) + [rank.in_flight] * (len(rank.layers) - covered)
    if "activations" in plan.offload:
        kept, turns, covered = [rank.layers[-1]], [1], 0
    stream = tokens // spread * shape.hidden * FP32_BYTES
    yield MemoryLine("activations: inputs of layers", covered * rank.in_flight * stream)
    normed = shape.hidden * rank.width * tokens
    norms = 2 * sum(turns) * (2 * stream + normed + tokens // spread * FP32_BYTES)
    if rank.is_last:
        scored = tokens // plan.tensor
        norms += scored * (shape.hidden * (2 * FP32_BYTES + rank.width) + FP32_BYTES)
    yield MemoryLine("activations: norms", norms)
    yield MemoryLine("activations: attention", sum(turns) * tokens * _attention(rank))
    fed = sum(turn * _feed_forward(rank, layer) for turn, layer in zip(turns, kept, strict=True))
    yield MemoryLine("activations: feed-forward", tokens * fed)


def _attention(rank: _Rank) -> int:
    """Return the bytes that attention keeps of a token."""
    plan, hidden, keys = rank.plan, rank.shape.hidden, kv_width(rank.shape)
    numbers = 3 * (hidden + keys)
    sums = FP32_BYTES * rank.shape.heads
    if plan.recompute == "selective":
        numbers, sums = 2 * (hidden + keys), 0
    if plan.context > 1:
        numbers += 2 * keys * plan.context
    return (rank.width * numbers + sums) // plan.tensor


def _feed_forward(rank: _Rank, layer: int) -> int:
    """Return the bytes that the feed-forward part of a layer keeps of a token."""
    shape, tensor = rank.shape, rank.plan.tensor
    mixed = shape.experts_at(layer)
    if mixed is None:
        return rank.width * 4 * shape.ffn // tensor
    routed = mixed.per_token * (2 * shape.hidden + 4 * mixed.ffn // tensor)
    shared = 4 * mixed.shared_ffn // tensor
    return rank.width * (routed + shared) + FP32_BYTES * mixed.count


def _loss(rank: _Rank) -> Iterator[MemoryLine]:
    """Yield the log-softmax and the gradient of the logits, in fp32."""
    if rank.is_last:
        scored = rank.tokens // rank.plan.tensor
        yield MemoryLine("logits and loss", scored * 2 * FP32_BYTES * rank.shape.vocabulary)
