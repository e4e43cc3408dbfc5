"""Predicted memory of one rank of the recipe, by kind, at its peak: the start of the backward."""

from collections.abc import Iterator
from dataclasses import dataclass

from gridloom.model.recipe import GptShape, Training
from gridloom.planner.shape import kv_width, parameters

FP32_BYTES = 4
BF16_BYTES = 2


@dataclass(frozen=True)
class MemoryLine:
    """One kind of memory.

    Attributes:
        kind: Its name.
        size_bytes: How much a rank holds.
    """

    kind: str
    size_bytes: int


def micro_batch(training: Training, ranks: int) -> int:
    """Return the sequences that one of ``ranks`` takes through the model at once, at most."""
    share = -(-training.global_batch // ranks)
    return min(training.micro_batch or share, share)


def memory(shape: GptShape, training: Training, ranks: int) -> tuple[MemoryLine, ...]:
    """Return what one of ``ranks`` pure data-parallel ranks holds.

    With ``P`` parameters, all state is fp32 and whole on each rank: parameters ``4 P``, AdamW's
    two moments ``8 P``, and ``4 P`` for the flat bucket in which gradients are averaged, of which
    the gradients are views. With bf16, the matrices' copies for the products are ``2`` bytes a
    weight. What the backward needs of the forward is counted by ``_activations`` and ``_loss``.
    Not counted: the allocator's slack, the framework itself and its workspaces.
    """
    counted = parameters(shape)
    sequences = micro_batch(training, ranks)
    tokens = sequences * training.sequence_length
    width = BF16_BYTES if training.precision == "bf16" else FP32_BYTES
    lines = [
        MemoryLine("parameters", FP32_BYTES * counted.total),
        MemoryLine("optimizer moments", 2 * FP32_BYTES * counted.total),
        MemoryLine("gradients (exchange bucket)", FP32_BYTES * counted.total),
    ]
    if training.precision == "bf16":
        matrices = counted.attention + counted.ffn + shape.vocabulary * shape.hidden
        lines.append(MemoryLine("bf16 copies of the matrices", BF16_BYTES * matrices))
    return (*lines, *_activations(shape, tokens, width), _loss(shape, tokens))


def memory_bytes(shape: GptShape, training: Training, ranks: int) -> int:
    """Return the sum of ``memory``."""
    return sum(line.size_bytes for line in memory(shape, training, ranks))


def _activations(shape: GptShape, tokens: int, width: int) -> Iterator[MemoryLine]:
    """Yield what each layer keeps for the backward, for ``tokens`` tokens.

    A token in a layer of width ``h``, keys of width ``k`` and feed-forward width ``f`` keeps, at
    ``width`` bytes a number where matrix products read it and at 4 in the fp32 residual stream:

    * each of two norms: its input and the normed input in fp32 (``2 h``), its output (``h``), and
      one fp32 scale; the last norm of the model likewise;
    * attention: query, key and value (``h + 2 k``), query and key after rotation (``h + k``), the
      output (``h``), and one fp32 log-sum a head: the fused kernel keeps no matrix of scores;
    * feed-forward: gate and up, the gate's SiLU, the product (``4 f``).
    """
    hidden, layers = shape.hidden, shape.layers
    norms = 2 * layers + 1
    yield MemoryLine(
        "activations: norms", tokens * norms * (hidden * (2 * FP32_BYTES + width) + FP32_BYTES)
    )
    attention = width * 3 * (hidden + kv_width(shape)) + FP32_BYTES * shape.heads
    yield MemoryLine("activations: attention", tokens * layers * attention)
    yield MemoryLine("activations: feed-forward", tokens * layers * width * 4 * shape.ffn)


def _loss(shape: GptShape, tokens: int) -> MemoryLine:
    """Return the log-softmax and the gradient of the logits, in fp32."""
    return MemoryLine("logits and loss", tokens * 2 * FP32_BYTES * shape.vocabulary)
