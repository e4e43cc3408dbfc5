"""Parameters and floating-point work of a transformer, exactly, from its shape."""

from dataclasses import dataclass

from gridloom.model.recipe import GptShape


@dataclass(frozen=True)
class Parameters:
    """Number of weights by part of the model.

    Attributes:
        embedding: One row a token of the vocabulary.
        attention: Query, key, value and output matrices of all layers.
        ffn: Gate, up and down matrices of all layers.
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
    plus ``2 h (kv_heads d)`` (key, value), its feed-forward ``3 h ffn``, its norms ``2 h``.
    """
    hidden = shape.hidden
    table = shape.vocabulary * hidden
    return Parameters(
        embedding=table,
        attention=shape.layers * (2 * hidden * hidden + 2 * hidden * kv_width(shape)),
        ffn=shape.layers * 3 * hidden * shape.ffn,
        norms=(2 * shape.layers + 1) * hidden,
        output=0 if shape.tied_embeddings else table,
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
    looking up an embedding and scaling by a norm cost no product.
    """
    counted = parameters(shape)
    matrices = counted.attention + counted.ffn + shape.vocabulary * shape.hidden
    return tokens * (6 * matrices + 12 * shape.layers * shape.hidden * sequence_length)
