"""Activations that the backward computes again instead of keeping (Chen et al. 2016)."""

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import torch
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from gridloom.model.parallel import Recompute

_ATTENTION = frozenset(
    (
        torch.ops.aten._scaled_dot_product_flash_attention.default,
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
        torch.ops.aten._scaled_dot_product_efficient_attention.default,
        torch.ops.aten._scaled_dot_product_cudnn_attention.default,
    )
)
_PRODUCTS = frozenset((torch.ops.aten.mm.default, torch.ops.aten.addmm.default))


def run_layer(kind: Recompute, layer: Callable[..., Any], *inputs: Any) -> Any:
    """Run a whole layer, and keep of it what ``kind`` says."""
    if kind == "full":
        return _again(layer, *inputs)
    if kind == "operators":
        return _again(layer, *inputs, context_fn=_keep_products)
    return layer(*inputs)


def run_attention(kind: Recompute, core: Callable[..., Any], *inputs: Any) -> Any:
    """Run the core of attention, and keep of it what ``kind`` says.

    Only its inputs are kept when selective (Korthikanti et al. 2022, section 5).
    """
    return _again(core, *inputs) if kind == "selective" else core(*inputs)


def _again(call: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    # nothing here draws random numbers, so their state need not be kept
    return checkpoint(call, *inputs, use_reentrant=False, preserve_rng_state=False, **options)


def _keep_products() -> Any:
    """Return contexts that keep attention's result and every second matrix product."""
    forward, backward = count(), count()

    def policy(context: Any, operator: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        if operator in _ATTENTION:
            return CheckpointPolicy.MUST_SAVE
        if operator in _PRODUCTS and next(backward if context.is_recompute else forward) % 2 == 0:
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(partial(policy))
