"""The layers that a pipeline over sites is cut from; each site builds those of its own stage."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from gridloom.base.errors import InputError, Problem
from gridloom.model.recipe import GptShape
from gridloom.runtime.gpt import IGNORED, Gpt, Part, check_shape, cross_entropy
from gridloom.runtime.links import WHOLE

Layer = nn.Module | Callable[[], nn.Module]
"""A layer, or what builds it: then sites that do not hold it never do."""


def built(layers: Sequence[Layer], own: range) -> list[nn.Module]:
    """Return all layers; of those that are to be built, others' are without memory (``meta``)."""
    modules = []
    for number, layer in enumerate(layers):
        if isinstance(layer, nn.Module):
            modules.append(layer)
        elif number in own:
            modules.append(layer())
        else:
            with torch.device("meta"):
                modules.append(layer())
    return modules


def check_untied(layers: Sequence[nn.Module], own: range) -> None:
    """Raise ``InputError`` if a parameter is in this stage and in another one too."""
    mine = {id(p) for n in own for p in layers[n].parameters()}
    problems = [
        Problem(
            f"layer {number}, of another stage, shares its {name} with this one",
            remedy="untie them, or cut so that both are in one stage",
            field="pipeline.stage_layers",
        )
        for number, layer in enumerate(layers)
        if number not in own
        for name, parameter in layer.named_parameters()
        if id(parameter) in mine
    ]
    if problems:
        raise InputError(problems)


def gpt_layers(shape: GptShape, seed: int) -> list[Layer]:
    """Return the layers of gridloom's own model; equal seeds, equal weights however it is cut.

    Raises:
        InputError: The shape cannot be built, or not in stages at different sites: a tied
            embedding's gradient would have to cross all links in every step, and so would, with
            each micro-batch, the loss of the experts' router.
    """
    check_shape(shape)
    refused = (
        ("tied_embeddings", shape.tied_embeddings, "untie them"),
        ("experts", shape.experts is not None, "cut experts inside a site"),
    )
    problems = [
        Problem(f"{name} do not go with stages at different sites", remedy, field=f"model.{name}")
        for name, is_there, remedy in refused
        if is_there
    ]
    if problems:
        raise InputError(problems)
    last = shape.layers - 1
    parts = [Part([n], first=n == 0, last=n == last) for n in range(shape.layers)]
    return [partial(Gpt, shape, seed, WHOLE, part) for part in parts]


def token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy, in nats, over the targets that are not ``IGNORED``."""
    return cross_entropy(logits, targets) / (targets != IGNORED).sum().clamp(min=1)
