"""The updates of a user's model, with the other sites."""

from typing import TYPE_CHECKING

import torch
from torch import nn

from gridloom.model.parallel import SiteSync
from gridloom.runtime.library.rows import Rows
from gridloom.runtime.library.start import current, on_report
from gridloom.runtime.shards import Shards
from gridloom.runtime.updates import Sync, SyncOptions

if TYPE_CHECKING:  # a site of one rank does without it
    from gridloom.runtime.inside.site_model import SiteModel


def sync(
    model: "nn.Module | SiteModel | Shards",
    optimizer: torch.optim.Optimizer,
    how: SiteSync | None = None,
    options: SyncOptions | None = None,
) -> Sync:
    """Return what makes the updates, with the other sites where there are any.

    What they take is measured, and `gl.report` writes it down: see ``Sync.metrics``.

    Args:
        model: Its trainable parameters are exchanged; equal at all sites. Where a site has several
            ranks, what ``gl.parallelize`` returned, or for kind ``outer`` a model that another
            library has spread over all of them: with ``fully_shard`` (FSDP2) or as distributed
            tensors, in ``DistributedDataParallel``, or as ``Shards`` say.
        optimizer: Over those parameters; its state goes to sites that come back.
        how: What is exchanged, and how often; by default what the job's ``sync`` says, and outside
            of gridloom every step, whole.
        options: Clipping, patience, and the connections' settings.
    """
    run = current()
    run.independent_sites = len(run.place.sites) > 1
    made = Sync(run, model, optimizer, how or run.place.sync, options or SyncOptions())
    on_report(Rows(run, made).write)
    return made
