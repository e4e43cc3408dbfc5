"""A user's model as one pipeline over all sites."""

from collections.abc import Sequence

from gridloom.runtime.library.start import current
from gridloom.runtime.wan.stages import StageOptions, Stages
from gridloom.runtime.wan.stages_layers import Layer
from gridloom.runtime.wan.stages_work import Loss


def pipeline(layers: Sequence[Layer], loss: Loss, how: StageOptions | None = None) -> Stages:
    """Cut a model over the sites, some layers at each; on one site all of them are there.

    In place of the forward and the backward pass a loop calls ``forward_backward`` of the result.
    All sites read the same batches: ``gl.data(..., local=True)`` with one seed. The ranks of a site
    hold equal copies of its stage, and each takes a share of every batch.

    Args:
        layers: Of the whole model, in order: each takes the one tensor that the one before gives.
            They, or functions that build them, of which each site calls its own alone.
        loss: From what the last layer gives for a micro-batch, and its targets, to the mean of
            its losses.
        how: The cut, the micro-batches, and what a number is sent as.

    Raises:
        InputError: The layers cannot be cut so, or an option cannot be.
    """
    return Stages(current(), layers, loss, how or StageOptions())
