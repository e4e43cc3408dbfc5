"""One row of the preset tables: a published model and the parameter count its source states."""

from dataclasses import dataclass

from gridloom.model.transformer import Transformer

CHECKPOINT = "weights of the checkpoint on huggingface.co, without buffers and repeated tied tables"
"""Exact. Where a checkpoint stores no more than its weights, its page there shows the same number;
it shows more for Llama 2 (rotary buffers), GPT-2 (masks) and Qwen3-0.6B (the tied table again)."""

KERAS = "keras-hub preset metadata"
"""``params`` of the model's presets in keras-team/keras-hub, exact."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published model.

    Attributes:
        model: Its shape; the name is the one that people write.
        count: Parameters as the source states them.
        unit: Value of the last digit that the source prints; 1 for an exact count.
        source: Where ``count`` stands.
        stored_again: Weights that the published checkpoint, and so ``count``, holds twice: copies
            of the embedding and the output beside a prediction module that shares them.
        aliases: Further names, for lookup.
    """

    model: Transformer
    count: int
    unit: int = 1
    source: str
    stored_again: int = 0
    aliases: tuple[str, ...] = ()
