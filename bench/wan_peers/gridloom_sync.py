"""Gridloom: ``gl.sync`` makes the updates, by any of its methods."""

import argparse
import os

import torch
from bench.wan_peers import common

import gridloom.runtime as gl
from gridloom.model.parallel import SiteSync
from gridloom.runtime.sync import Sync, SyncOptions
from gridloom.wire.launch import Rank


class Updates(torch.optim.Optimizer):
    """``Sync`` as the shared training loop wants its optimiser."""

    def __init__(self, sync: Sync, inner: torch.optim.Optimizer, tokens: int) -> None:
        self._sync, self._inner, self._tokens = sync, inner, tokens
        self.param_groups = inner.param_groups

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        self._sync.step(self._tokens)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """``Sync`` has done it."""


def take_contract(run: common.Run) -> None:
    """Set the variables of gridloom's launch contract: every rank is a site of its own."""
    run.store.set(f"address/{run.rank}", run.address)
    addresses = tuple(run.store.get(f"address/{n}").decode() for n in range(run.world))
    rank = Rank(
        job_id="bench", attempt=1, epoch=1, rank=run.rank, world_size=run.world, local_rank=0,
        local_world_size=1, node_rank=run.rank, node_count=run.world, site=f"site{run.rank}",
        site_ranks=tuple((f"site{n}", 1) for n in range(run.world)), node_addresses=addresses,
        master_address=addresses[0], master_port=29500, restart_count=0, run_dir="",
        report_file="", grace_s=30.0, node_ranks=(1,) * run.world,
    )  # fmt: skip
    os.environ.update(rank.environment())


def method(options: argparse.Namespace) -> SiteSync:
    """Return the method that the command line describes."""
    return SiteSync(
        kind=options.kind,
        every=options.every,
        codec=options.codec,
        bits=options.bits,
        fragments=options.fragments,
        rank=options.rank,
        share=options.share,
        outer_learning_rate=options.outer_learning_rate,
        outer_momentum=options.outer_momentum,
    )


def main() -> None:
    parser = common.arguments(__doc__)
    usual = SiteSync()
    parser.add_argument("--kind", default="outer", choices=("every_step", "accumulated", "outer"))
    parser.add_argument("--every", type=int, default=50, help="training steps")
    parser.add_argument("--codec", default="blocks")
    parser.add_argument("--bits", type=int, default=4)
    parser.add_argument("--fragments", type=int, default=8)
    parser.add_argument("--rank", type=int, default=usual.rank)
    parser.add_argument("--share", type=float, default=usual.share)
    parser.add_argument("--outer-learning-rate", type=float, default=usual.outer_learning_rate)
    parser.add_argument("--outer-momentum", type=float, default=usual.outer_momentum)
    options = parser.parse_args()
    run, model = common.begin("gridloom", options)
    take_contract(run)
    inner = common.adamw(common.groups(model, run.training), run.training)
    gl.init()
    sync = gl.sync(
        model, inner, method(options), SyncOptions(clip_norm=run.training.clip_norm)
    )
    updates = Updates(sync, inner, common.SEQUENCES * common.LENGTH)
    common.train(run, model, updates, clip=False)
    sync.finish()
    common.finish(run, model)


if __name__ == "__main__":
    main()
