"""How many weights a transformer has, exactly, by part: every bias, norm and gate is counted.

Each function reads `ModelColumns`, whose entries are numbers or arrays, and returns the same: whole
Python numbers for one model, float64 (exact below 2^53) for a table of models.
"""

from dataclasses import dataclass

from gridloom.model.transformer import Transformer
from gridloom.planner.cases import Column, ModelColumns, model_columns


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Number of weights by part of the model, each summed over the layers.

    Attributes:
        embedding: One row a token of the vocabulary.
        positions: The learned table of positions.
        attention: Projections of queries, keys, values and output, or those of latent attention;
            their biases and the norms of queries, keys and latents.
        ffn: Dense feed-forward layers with their biases.
        routers: Routers of the expert layers, the gates of their shared experts with them.
        routed_experts: All routed experts.
        shared_experts: The experts that every token goes through.
        norms: Of the layers, of the embedding, and the last one.
        output: Matrix from the residual stream to logits; of a tied one only its bias.
        prediction: Modules that predict further tokens; embedding and output are the model's own.
        routed_active: Those of ``routed_experts`` that one token goes through.
    """

    embedding: Column
    positions: Column
    attention: Column
    ffn: Column
    routers: Column
    routed_experts: Column
    shared_experts: Column
    norms: Column
    output: Column
    prediction: Column
    routed_active: Column

    @property
    def main(self) -> Column:
        """All but the prediction modules, which a trained model can do without."""
        return (
            self.embedding
            + self.positions
            + self.attention
            + self.ffn
            + self.routers
            + self.routed_experts
            + self.shared_experts
            + self.norms
            + self.output
        )

    @property
    def total(self) -> Column:
        """All of them."""
        return self.main + self.prediction

    @property
    def active(self) -> Column:
        """Those of the main model that one token goes through.

        As publishers count it: all but the routed experts that were not chosen, the tables of
        embedding and output included (Mixtral, 2024, section 2.2: 12.9 of 46.7 billion).
        """
        return self.main - self.routed_experts + self.routed_active


def count_parameters(model: Transformer) -> Parameters:
    """Return the weights of ``model`` by part, as whole numbers."""
    return parameter_columns(model_columns(model))


def parameter_columns(model: ModelColumns) -> Parameters:
    """Return the weights of each model by part, summed over the layers."""
    norm = _norm(model)
    expert_layers = model.expert_layers
    one_expert = expert_weights(model)
    return Parameters(
        embedding=embedding_weights(model),
        positions=model.positions * model.hidden,
        attention=model.layers * attention_weights(model),
        ffn=(model.layers - expert_layers) * ffn_weights(model),
        routers=expert_layers * router_weights(model),
        routed_experts=expert_layers * model.experts * one_expert,
        shared_experts=expert_layers * shared_expert_weights(model),
        norms=model.layers * norm_weights(model) + (1 + model.embedding_norm) * norm,
        output=output_weights(model),
        prediction=model.prediction_layers * prediction_weights(model),
        routed_active=expert_layers * model.per_token * one_expert,
    )


def embedding_weights(model: ModelColumns) -> Column:
    """Return the weights of the input embedding, ``vocabulary x hidden``."""
    return model.vocabulary * model.hidden


def output_weights(model: ModelColumns) -> Column:
    """Return the weights of the output layer beyond those that it shares with the embedding."""
    return (1 - model.tied) * embedding_weights(model) + model.head_bias * model.vocabulary


def attention_weights(model: ModelColumns) -> Column:
    """Return the weights of one layer's attention: matrices, biases, norms of queries and keys."""
    return (1 - model.latent) * _projected(model) + model.latent * _latent(model)


def ffn_weights(model: ModelColumns) -> Column:
    """Return the weights of one dense feed-forward layer."""
    return _feed_forward(model, model.ffn)


def expert_weights(model: ModelColumns) -> Column:
    """Return the weights of one routed expert; 0 in a dense model."""
    return (model.experts > 0) * _feed_forward(model, model.expert_ffn)


def shared_expert_weights(model: ModelColumns) -> Column:
    """Return the weights of all shared experts of one layer together; 0 without them."""
    return (model.shared_ffn > 0) * _feed_forward(model, model.shared_ffn)


def router_weights(model: ModelColumns) -> Column:
    """Return the weights of one layer's router and of the gate of its shared expert."""
    return model.experts * (model.hidden + model.router_bias) + model.shared_gate * model.hidden


def norm_weights(model: ModelColumns) -> Column:
    """Return the weights of one layer's norms on the residual stream, two or four."""
    return model.norms_per_layer * _norm(model)


def prediction_weights(model: ModelColumns) -> Column:
    """Return the weights of one prediction module beyond the embedding and output that it shares.

    Two norms, a matrix that joins the residual stream with the embedding of the next token, one
    block (of experts in a model of experts) and a last norm (DeepSeek-V3, 2024, section 2.2).
    """
    has_experts = model.experts > 0
    routed = model.experts * expert_weights(model)
    of_experts = routed + shared_expert_weights(model) + router_weights(model)
    block = (1 - has_experts) * ffn_weights(model) + has_experts * of_experts
    join = 2 * model.hidden * model.hidden + 3 * _norm(model)
    return join + attention_weights(model) + norm_weights(model) + block


def _projected(model: ModelColumns) -> Column:
    """Attention with a projection each of queries, keys and values."""
    query = model.heads * model.head_size
    key = model.kv_heads * model.head_size
    matrices = 2 * model.hidden * (query + key)
    biases = model.qkv_bias * (query + 2 * key) + model.output_bias * model.hidden
    norms = model.qk_norm_head * 2 * model.head_size + model.qk_norm_all * (query + key)
    return matrices + biases + norms


def _latent(model: ModelColumns) -> Column:
    """Latent attention; the norm of a latent has one scale a rank (DeepSeek-V2, 2024, 2.1)."""
    query = model.heads * (model.nope_size + model.rope_size)
    through_latent = model.query_rank > 0
    direct = (1 - through_latent) * model.hidden * query
    queries = direct + model.query_rank * (model.hidden + 1 + query)
    down = model.hidden * (model.kv_rank + model.rope_size) + model.kv_rank
    up = model.kv_rank * model.heads * (model.nope_size + model.value_size)
    output = model.heads * model.value_size * model.hidden + model.output_bias * model.hidden
    return queries + down + up + output


def _feed_forward(model: ModelColumns, width: Column) -> Column:
    """Gate (where gated), up and down of a feed-forward layer ``width`` wide, with biases."""
    matrices = (2 + model.gated) * model.hidden * width
    return matrices + model.ffn_bias * ((1 + model.gated) * width + model.hidden)


def _norm(model: ModelColumns) -> Column:
    """Scale, and bias where there is one, of one norm of the residual stream."""
    return (1 + model.norm_bias) * model.hidden
