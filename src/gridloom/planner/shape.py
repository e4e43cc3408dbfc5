"""Parameters and floating-point work of a transformer, exactly, from its shape."""

from dataclasses import dataclass

from gridloom.model.recipe import GptShape


@dataclass(frozen=True)
class Parameters:
    """Number of weights by part of the model.

    Attributes:
        embedding: One row a token of the vocabulary.
        attention: Query, key, value and output matrices of all layers.
        ffn: Gate, up and down matrices of all layers, of all their experts, and the routers.
        norms: Scales of two norms a layer and of the last one.
        output: Matrix from the residual stream to logits; 0 when it is the embedding's.
    """

    embedding: int
    attention: int
    ffn: int
    norms: int
    output: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.embedding + self.attention + self.ffn + self.norms + self.output


def parameters(shape: GptShape) -> Parameters:
    """Return the number of weights; no matrix has a bias.

    With width ``h``, head size ``d = h / heads``: a layer's attention is ``2 h h`` (query, output)
    plus ``2 h (kv_heads d)`` (key, value), its feed-forward ``3 h ffn``, its norms ``2 h``. Where
    a layer has experts, see ``_ffn``.
    """
    hidden = shape.hidden
    table = shape.vocabulary * hidden
    return Parameters(
        embedding=table,
        attention=shape.layers * (2 * hidden * hidden + 2 * hidden * kv_width(shape)),
        ffn=_ffn(shape, shape.experts.count if shape.experts is not None else 0),
        norms=(2 * shape.layers + 1) * hidden,
        output=0 if shape.tied_embeddings else table,
    )


def _ffn(shape: GptShape, routed: int) -> int:
    """Return the weights of all feed-forward layers, counting ``routed`` experts of a layer.

    With experts of width ``f`` a layer has ``3 h f`` for each, ``3 h`` a unit of the shared width,
    a router of ``h`` an expert, and ``h`` for the gate of the shared expert.
    """
    hidden, experts = shape.hidden, shape.experts
    if experts is None:
        return shape.layers * 3 * hidden * shape.ffn
    mixed = (shape.layers - experts.dense_layers) // experts.every
    layer = 3 * hidden * (routed * experts.ffn + experts.shared_ffn)
    gate = hidden if experts.shared_ffn and experts.shared_gate else 0
    return mixed * (layer + hidden * experts.count + gate) + (
        (shape.layers - mixed) * 3 * hidden * shape.ffn
    )


def parameter_count(shape: GptShape) -> int:
    """Return the number of weights in all."""
    return parameters(shape).total


def kv_width(shape: GptShape) -> int:
    """Return the width of the keys (and of the values) of one token in one layer."""
    return shape.kv_heads * (shape.hidden // shape.heads)


def step_flops(shape: GptShape, tokens: int, sequence_length: int) -> int:
    """Return the floating-point operations of one training step over ``tokens`` tokens.

    ``tokens (6 P + 12 layers hidden sequence_length)``: a multiplication and an addition for each
    weight that takes part in a matrix product, once forward and twice backward, and the same for
    the two products of attention, without discount for the causal mask (Chowdhery et al., PaLM,
    2022, appendix B; with it MFU is comparable to what others publish). ``P`` counts the matrices
    of attention and feed-forward and the output matrix, even when that one is the embedding's;
    looking up an embedding and scaling by a norm cost no product. Of the experts of a layer, those
    count that a token goes through.
    """
    active = _ffn(shape, shape.experts.per_token if shape.experts is not None else 0)
    matrices = parameters(shape).attention + active + shape.vocabulary * shape.hidden
    return tokens * (6 * matrices + 12 * shape.layers * shape.hidden * sequence_length)
