"""What our own training program is told: the shape of the model, its data, and how to train it."""

import msgspec

from gridloom.model.parallel import ParallelPlan, SiteSync
from gridloom.model.transformer import Experts

PYTHON_STDLIB = "python-stdlib"
"""Name of the corpus that every machine has: the source code of Python's standard library."""

BYTE_VOCABULARY = 257
"""The 256 bytes and one token between documents."""


class GptShape(msgspec.Struct, frozen=True, kw_only=True):
    """A decoder-only transformer: pre-norm, rotary positions, grouped-query attention, SwiGLU.

    Attributes:
        layers: Transformer blocks.
        hidden: Width of the residual stream.
        heads: Query heads; ``hidden / heads`` is the head size.
        kv_heads: Key and value heads, a divisor of ``heads``.
        ffn: Width of the gated feed-forward layer.
        vocabulary: Tokens.
        tied_embeddings: The output layer shares the weights of the input embedding.
        rope_base: Base of the rotary frequencies.
        experts: Mixture of experts in place of the feed-forward layer; ``None`` when dense.
        router_loss: Weight of the loss that balances experts, beside the cross-entropy.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int = BYTE_VOCABULARY
    tied_embeddings: bool = True
    rope_base: float = 10_000.0
    experts: Experts | None = None
    router_loss: float = 0.01

    def experts_at(self, layer: int) -> Experts | None:
        """Return the experts of a layer, from 0; ``None`` where it is dense."""
        experts = self.experts
        if experts is None or layer < experts.dense_layers:
            return None
        return None if (layer - experts.dense_layers + 1) % experts.every else experts


class TextData(msgspec.Struct, frozen=True, kw_only=True):
    """Text to train on, as bytes.

    Attributes:
        text: ``("python-stdlib",)``, or files, directories and glob patterns.
        held_out: Share of the files that is kept from training and used to evaluate, 0 to 0.5.
    """

    text: tuple[str, ...] = (PYTHON_STDLIB,)
    held_out: float = 0.02


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """How to train.

    Attributes:
        steps: Training steps in all.
        global_batch: Sequences a training step, over all ranks.
        sequence_length: Tokens a sequence.
        micro_batch: Sequences a rank takes through the model at once; 0 means all its share.
        learning_rate: Peak, reached after the warm-up.
        min_learning_rate: At the end of the cosine.
        warmup_steps: Steps of linear warm-up.
        weight_decay: AdamW's, on matrices only.
        beta1: AdamW's first moment.
        beta2: AdamW's second moment.
        clip_norm: Global norm to which gradients are clipped; 0 means no clipping.
        precision: ``fp32``; or ``bf16`` or ``fp16`` for the matrix products, with fp32 weights and
            gradients, and a dynamic scale of the loss for ``fp16``.
        seed: Of the weights and of the data order.
    """

    steps: int
    global_batch: int
    sequence_length: int
    micro_batch: int = 0
    learning_rate: float = 3e-3
    min_learning_rate: float = 3e-4
    warmup_steps: int = 20
    weight_decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    clip_norm: float = 1.0
    precision: str = "fp32"
    seed: int = 1


class CheckpointPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how often state is saved.

    Attributes:
        directory: Absolute path that every rank can write; each site has a directory of its own in
            it, with its name, for sites need not share a file system.
        interval_steps: Training steps between two checkpoints.
        keep: How many of the newest are kept.
    """

    directory: str
    interval_steps: int = 50
    keep: int = 2


class GptRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that ``gridloom.runtime.entry`` is told beyond who it is.

    Written by the control plane as ``recipe.json`` in the run directory.

    Attributes:
        shape: The model.
        data: What it learns.
        training: How.
        checkpoint: Where and how often its state is saved.
        sync: How its copies at different sites stay one model.
        plan: How a site cuts the model over its ranks; where nothing is said, as the shape that
            the job was placed in. Its ``data`` follows from the ranks that each site has, its
            precision and its micro-batch are those of ``training``.
        device_flops: Peak flop/s of a device, that MFU is a share of; ``None`` for its data sheet's
            or, where the planner has none, what a few products reach; 0 for no MFU.
    """

    shape: GptShape
    data: TextData
    training: Training
    checkpoint: CheckpointPolicy
    sync: SiteSync = SiteSync()
    plan: ParallelPlan = ParallelPlan()
    device_flops: float | None = None
