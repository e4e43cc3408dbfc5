"""Floating-point work that a model is worth, whatever program does it: the yardstick of MFU."""

from gridloom.model.transformer import Transformer
from gridloom.planner.cases import model_columns
from gridloom.planner.models.parameters import (
    count_parameters,
    embedding_weights,
)


def product_weights(model: Transformer) -> int:
    """Return the weights that one token meets in products.

    All but norms, and the tables of the input embedding and of positions, which are looked up; the
    output matrix counts, even a tied one, and of routed experts those that a token goes through.
    """
    counted = count_parameters(model)
    tied = embedding_weights(model_columns(model)) if model.tied else 0
    looked_up = counted.embedding + counted.positions
    return int(counted.active - looked_up - counted.norms + tied)


def attention_flops_per_token(model: Transformer, sequence: int) -> int:
    """Return the flops of attention's two products, forward and backward, without causal discount.

    ``12 layers width sequence``, with the width of all heads' queries and values (Chowdhery et al.,
    PaLM, 2022, appendix B); latent attention's queries and values differ in width.
    """
    width = model.heads * 2 * model.width_per_head
    if model.latent is not None:
        latent = model.latent
        width = model.heads * (latent.nope_size + latent.rope_size + latent.value_size)
    return 6 * model.layers * width * sequence


def flops_per_token(model: Transformer, sequence: int) -> int:
    """Return the model flops of one token, forward and backward: ``6 P`` and those of attention."""
    return 6 * product_weights(model) + attention_flops_per_token(model, sequence)


def model_flops_use(
    tokens_per_s: float, flops_a_token: float, devices: int, device_flops: float
) -> float:
    """Return the share of the devices' peak rate that model flops take (MFU), from 0 to 1."""
    return tokens_per_s * flops_a_token / (devices * device_flops)
