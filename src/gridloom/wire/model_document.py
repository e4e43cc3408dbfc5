"""What a job file says of the recipe's model: the shape of a transformer, dense or of experts."""

from typing import Annotated

from pydantic import Field

from gridloom.model.recipe import GptShape
from gridloom.model.transformer import Experts
from gridloom.wire.documents_check import Document
from gridloom.wire.documents_values import Flag, Quantity, Whole

_USUAL = GptShape(layers=1, hidden=2, heads=1, kv_heads=1, ffn=1)


class ExpertsDocument(Document):
    """A mixture of experts in place of the feed-forward layer; no token is dropped."""

    count: Annotated[int, Whole(1, 10**5), Field(description="Routed experts a layer.")]
    per_token: Annotated[
        int, Whole(1, 10**4), Field(description="Routed experts that a token goes through.")
    ]
    ffn: Annotated[int, Whole(1, 10**7), Field(description="Width of one routed expert.")]
    shared_ffn: Annotated[
        int,
        Whole(0, 10**7),
        Field(description="Width of all shared experts of a layer together; 0: none."),
    ] = 0
    shared_gate: Annotated[
        bool, Flag(), Field(description="A learned gate weighs the shared experts.")
    ] = False
    dense_layers: Annotated[
        int, Whole(0, 10_000), Field(description="The first layers, which stay dense.")
    ] = 0
    every: Annotated[
        int, Whole(1, 10_000), Field(description="Behind them, one layer in so many has experts.")
    ] = 1


class ModelDocument(Document):
    """Shape of the recipe's transformer."""

    layers: Annotated[int, Whole(1, 10_000), Field(description="Transformer blocks.")]
    hidden: Annotated[
        int, Whole(2, 10**6), Field(description="Width of the residual stream; heads divide it.")
    ]
    heads: Annotated[int, Whole(1, 10**5), Field(description="Attention (query) heads.")]
    kv_heads: Annotated[
        int | None,
        Whole(1, 10**5),
        Field(description="Key and value heads, a divisor of heads. Default: heads."),
    ] = None
    ffn: Annotated[
        int | None,
        Whole(1, 10**7),
        Field(description="Width of the gated feed-forward layer. Default: 3 x hidden."),
    ] = None
    tied_embeddings: Annotated[
        bool, Flag(), Field(description="The output layer shares the embedding's weights.")
    ] = True
    rope_base: Annotated[
        float,
        Quantity("a number", above=True),
        Field(description="Base of the rotary frequencies."),
    ] = _USUAL.rope_base
    experts: ExpertsDocument | None = Field(
        None, description="Experts in place of the feed-forward layer."
    )
    router_loss: Annotated[
        float,
        Quantity("a number"),
        Field(description="Weight of the loss that keeps the load of experts even."),
    ] = _USUAL.router_loss


def to_shape(said: ModelDocument) -> GptShape:
    """Return the model that ``said`` means, with what it leaves out."""
    experts = said.experts
    return GptShape(
        layers=said.layers,
        hidden=said.hidden,
        heads=said.heads,
        kv_heads=said.kv_heads or said.heads,
        ffn=said.ffn or 3 * said.hidden,
        tied_embeddings=said.tied_embeddings,
        rope_base=said.rope_base,
        experts=Experts(**dict(experts)) if experts is not None else None,
        router_loss=said.router_loss,
    )
