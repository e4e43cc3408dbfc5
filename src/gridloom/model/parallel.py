"""How a model is cut: degrees along the mesh axes, memory measures, and the sync between sites."""

from collections.abc import Mapping
from typing import Literal

import msgspec

Schedule = Literal["1f1b", "interleaved", "zero_bubble"]
"""Order of micro-batches in a pipeline."""

Recompute = Literal["none", "selective", "operators", "full"]
"""Which activations are computed again in the backward: none, attention's core, every operator but
attention and every second matrix product, whole layers."""

Loss = Literal["copies", "in_place", "fused", "chunked"]
"""How the cross-entropy holds the logits: in fp32 copies, in one fp32 copy used again, never in
fp32, or in copies of a part of the tokens at a time."""

Precision = Literal["fp32", "fp16", "bf16", "bf16_pure", "fp8", "fp8_rowwise"]
"""Number format of the matrix products; bf16_pure has weights and moments in bf16 alone, without
an fp32 copy; fp8 keeps bf16 everywhere else, with one scale a tensor or block, or one a row."""

Optimizer = Literal["adamw", "adamw_16bit", "adamw_8bit", "adafactor", "lamb", "muon", "sgd"]
"""The update rule, for the state that it keeps."""

Offload = Literal["optimizer", "gradients", "parameters", "activations"]
"""What may live in the memory of the host."""


SyncKind = Literal["every_step", "accumulated", "outer"]
"""What replica groups at different sites exchange: gradients at every training step, gradients of
several steps together, or pseudo-gradients in the background."""

Codec = Literal["plain", "blocks", "top_k", "low_rank", "deep"]
"""How what is exchanged is made small: fewer bits of a floating-point number, whole multiples of a
scale a block (of 1 bit: their signs), only the largest numbers, factors of low rank (PowerSGD), or
only the largest numbers of what momentum has gathered (Deep Gradient Compression)."""


CODEC_BITS: Mapping[Codec, tuple[int, ...]] = {
    "plain": (16, 32),
    "blocks": (1, 4, 8),
    "top_k": (4, 8, 16, 32),
    "low_rank": (32,),
    "deep": (32,),
}
"""What one number may have on the way."""

WHOLE_GRADIENT_CODECS: tuple[Codec, ...] = ("low_rank", "deep")
"""Those that work on whole gradients, not on fragments of the parameters."""

MASKED_SITES_MIN = 3
"""Sites that sum their updates under masks: fewer would know each other's from the sum."""

OUTER_FRAGMENTS = 4
"""Parts in which ``outer`` exchanges parameters where nothing is said. One at a time costs clearly
more in loss than 4; 12 are no better (``bench/wan_loss.py``)."""

WAN_STREAMS = 4
"""TCP connections of a pair of sites where nothing is said."""

OUTER_WORK_SHARE = 0.02
"""Of the time of the training steps, that rounds of ``outer`` may take when its interval is 0."""


class SitePrivacy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What of a site's update the others may see, where data may not leave the site; for ``outer``.

    With any of it, a newcomer is given what the sites have agreed on and nothing else.

    Attributes:
        masked: Updates are added up under masks of pairs of sites: nobody sees one alone.
        clip_norm: To which a site's update of the whole model is clipped; 0 for any.
        noise_multiplier: Deviation of the noise in each of its numbers, over ``clip_norm``; 0 for
            none.
        delta: Probability at which what the noise promises may fail.
    """

    masked: bool = False
    clip_norm: float = 0.0
    noise_multiplier: float = 0.0
    delta: float = 1e-6


class SiteSync(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What replica groups at different sites exchange, and how often.

    Attributes:
        kind: ``every_step``: gradients, hierarchically, at every training step; ``accumulated``:
            the same, once in ``every`` steps; ``outer``: pseudo-gradients, once in ``every``.
        every: Training steps from one exchange of a parameter to the next; 0, for ``outer``: as
            few as link and processor allow.
        bits: Of one number on the way; below 32 it is compressed.
        codec: How; ``plain`` has 32 or 16 bits, ``blocks`` 8, 4 or 1, ``top_k`` 32, 16, 8 or 4.
        share: Of the numbers, that ``top_k`` and ``deep`` send.
        warm_up: Exchanges over which ``deep`` comes down to its share, from a quarter.
        momentum: Of ``deep``, in the place of the optimiser's own.
        rank: Of the factors that ``low_rank`` sends.
        fragments: Parts of the parameters, exchanged one after the other; for ``outer``.
        outer_learning_rate: Of the outer optimiser, SGD with Nesterov's momentum; for ``outer``.
        outer_momentum: Its momentum; with 0 and a learning rate of 1 weights are averaged, which
            is best at short intervals.
        privacy: What of an update the other sites may see.
    """

    kind: SyncKind = "every_step"
    every: int = 1
    bits: int = 32
    codec: Codec = "plain"
    share: float = 0.01
    warm_up: int = 0
    momentum: float = 0.9
    rank: int = 4
    fragments: int = 1
    outer_learning_rate: float = 1.0
    outer_momentum: float = 0.0
    privacy: SitePrivacy = SitePrivacy()

    @property
    def stride(self) -> int:
        """Training steps of which the gradients go into one update."""
        return self.every if self.kind == "accumulated" else 1


Auto = Literal["auto"]
"""The planner chooses."""


class ParallelPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, cache_hash=True):
    """Degrees along the mesh axes and the memory measures with them.

    The product of ``tensor``, ``pipeline``, ``context`` and ``data`` is the world size; ``expert``
    and ``expert_tensor`` are folded into ``tensor x context x data`` and add no ranks.

    Attributes:
        tensor: Ranks that share each matrix; they sit in one node.
        pipeline: Stages of layers.
        context: Ranks that share each sequence.
        data: Copies of the model.
        expert: Ranks over which a layer's experts are spread.
        expert_tensor: Ranks that share each expert; ``tensor`` when 0 and ``expert`` is 1, else 1.
        sequence_parallel: Tensor ranks also share the tokens between matrix products.
        schedule: Order of micro-batches in the pipeline.
        virtual_stages: Chunks of layers a stage holds, with the interleaved schedule.
        stage_layers: Layers of each stage, when they are uneven; empty for an even cut.
        zero: What data ranks shard: 0 nothing, 1 optimizer, 2 gradients too, 3 parameters too.
        shard: Ranks of one shard group; 0 for all of ``data x context`` (HSDP otherwise).
        gather_unit: What ZeRO-3 gathers at a time: a layer, or one parameter tensor.
        micro_batch: Sequences that a rank takes through the model at once; 0 for all its share.
        recompute: Which activations are computed again.
        recompute_layers: Layers a stage that ``full`` covers; 0 for all of them.
        flash_attention: Attention's scores are never stored.
        native_attention: Fused attention written for this generation of devices (cuDNN,
            FlashAttention-3 on Hopper), not for the one before.
        fused: Element-wise kernels are fused, by a compiler or by hand.
        blocking_launches: The host waits for each kernel before it launches the next, as when
            debugging (CUDA_LAUNCH_BLOCKING).
        precision: Number format of matrix products.
        optimizer: The update rule.
        offload: What lives in the memory of the host.
        overlap_gradients: Gradients are reduced behind the backward.
        overlap_parameters: Sharded parameters are gathered behind the forward.
        overlap_tensor: Tensor-parallel collectives run behind the matrix products beside them.
        site_sync: How copies at different sites stay one model.
        gradient_bytes: A parameter's, in the buffer where gradients are summed; 0 for the usual:
            as the weights, but 4 beside bf16 weights below ZeRO-3.
        reduce_bytes: Of a gradient on its way between data ranks; 0 for the usual: as the weights
            under ZeRO-3, else as summed.
        loss: How the cross-entropy holds the logits.
        dropout: Masks of dropout are kept.
    """

    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    data: int = 1
    expert: int = 1
    expert_tensor: int = 0
    sequence_parallel: bool = False
    schedule: Schedule = "1f1b"
    virtual_stages: int = 1
    stage_layers: tuple[int, ...] = ()
    zero: Literal[0, 1, 2, 3] = 0
    shard: int = 0
    gather_unit: Literal["layer", "tensor"] = "layer"
    micro_batch: int = 0
    recompute: Recompute = "none"
    recompute_layers: int = 0
    flash_attention: bool = True
    native_attention: bool = True
    fused: bool = True
    blocking_launches: bool = False
    precision: Precision = "bf16"
    optimizer: Optimizer = "adamw"
    offload: tuple[Offload, ...] = ()
    overlap_gradients: bool = True
    overlap_parameters: bool = True
    overlap_tensor: bool = False
    site_sync: SiteSync = SiteSync()
    gradient_bytes: int = 0
    reduce_bytes: int = 0
    loss: Loss = "copies"
    dropout: bool = False

    @property
    def replica_ranks(self) -> int:
        """Ranks that hold one full copy of the model."""
        return self.tensor * self.pipeline * self.context

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self.replica_ranks * self.data

    def stages(self, layers: int) -> list[range]:
        """Return the layers of every stage of the pipeline, even to one layer, or as planned.

        A rank holds every ``pipeline``-th of them, ``virtual_stages`` in all.
        """
        count = self.pipeline * self.virtual_stages
        counts = self.stage_layers or [layers // count + (i < layers % count) for i in range(count)]
        ends = [sum(counts[: i + 1]) for i in range(count)]
        return [range(end - size, end) for size, end in zip(counts, ends, strict=True)]

    @property
    def is_spread(self) -> bool:
        """Whether ranks hold different parts of the model, and none a whole copy."""
        return self.replica_ranks > 1 or self.expert > 1 or self.zero > 0
