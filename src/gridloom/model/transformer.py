"""What a model is to the planner: the shape of a decoder-only transformer, dense or of experts."""

from typing import Literal

import msgspec

Norm = Literal["rms", "layer"]
"""Root-mean-square normalisation with a scale, or layer normalisation."""


class LatentAttention(msgspec.Struct, frozen=True, kw_only=True):
    """Keys and values read from one low-rank latent a token (DeepSeek-V2, 2024, section 2.1).

    Attributes:
        query_rank: Rank of the queries' own latent; 0 when queries are projected directly.
        kv_rank: Rank of the latent of keys and values.
        rope_size: Positional part of a head's query and of the one key that all heads share.
        nope_size: Part of a head's query and key without position.
        value_size: Size of a head's value.
    """

    query_rank: int
    kv_rank: int
    rope_size: int
    nope_size: int
    value_size: int


class Experts(msgspec.Struct, frozen=True, kw_only=True):
    """A mixture of experts in place of the feed-forward layer.

    Attributes:
        count: Routed experts a layer.
        per_token: Routed experts that a token goes through (top-k).
        ffn: Width of one routed expert.
        shared_ffn: Width of all shared experts of a layer together; 0 without.
        shared_gate: A learned gate weighs the shared expert (one vector a layer).
        dense_layers: The first layers keep a dense feed-forward layer.
        every: One layer in so many has experts, after the dense ones.
        capacity_factor: Room of an expert over an even share; 0 when no token is dropped.
        router_bias: The router adds a learned or balanced number an expert.
    """

    count: int
    per_token: int
    ffn: int
    shared_ffn: int = 0
    shared_gate: bool = False
    dense_layers: int = 0
    every: int = 1
    capacity_factor: float = 0.0
    router_bias: bool = False


class Transformer(msgspec.Struct, frozen=True, kw_only=True):
    """A decoder-only transformer.

    Attributes:
        name: As its publisher writes it.
        layers: Transformer blocks.
        hidden: Width of the residual stream.
        ffn: Width of the dense feed-forward layer.
        heads: Query heads.
        kv_heads: Key and value heads: ``heads`` is multi-head, 1 multi-query, between grouped.
        head_size: Of one head; ``hidden / heads`` when 0.
        vocabulary: Rows of the embedding.
        gated: The feed-forward layer has a gate matrix (SwiGLU, GeGLU).
        tied: The output layer shares the weights of the input embedding.
        positions: Rows of a learned table of positions; 0 without one.
        norm: Kind of normalisation.
        norm_bias: Layer normalisation has a bias.
        norms_per_layer: 2, or 4 with norms behind attention and feed-forward too.
        qk_norm: Width that is normalised of the queries and keys: ``""``, ``"head"`` (one scale
            that heads share) or ``"all"`` (a scale for the whole projection).
        embedding_norm: A norm behind the embedding.
        qkv_bias: Biases of query, key and value.
        output_bias: Bias of attention's output.
        ffn_bias: Biases of the feed-forward layer.
        head_bias: Bias of the output layer.
        window: Tokens that a windowed layer sees; 0 when every layer sees all.
        full_every: One layer in so many sees all; 0 when every layer is windowed.
        latent: Latent attention instead of key and value projections.
        experts: Mixture of experts.
        prediction_layers: Extra modules that predict further tokens (DeepSeek-V3, section 2.2).
    """

    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_size: int = 0
    vocabulary: int
    gated: bool = True
    tied: bool = False
    positions: int = 0
    norm: Norm = "rms"
    norm_bias: bool = False
    norms_per_layer: int = 2
    qk_norm: Literal["", "head", "all"] = ""
    embedding_norm: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    ffn_bias: bool = False
    head_bias: bool = False
    window: int = 0
    full_every: int = 0
    latent: LatentAttention | None = None
    experts: Experts | None = None
    prediction_layers: int = 0

    @property
    def width_per_head(self) -> int:
        """Size of one head."""
        return self.head_size or self.hidden // self.heads

    @property
    def expert_layers(self) -> int:
        """Layers whose feed-forward is a mixture of experts."""
        if self.experts is None:
            return 0
        return (self.layers - self.experts.dense_layers) // self.experts.every
