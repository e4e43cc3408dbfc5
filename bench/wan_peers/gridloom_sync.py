"""Gridloom: ``gl.sync`` makes the updates, by any of its methods."""

import argparse
import os
import sys

import torch
from bench.wan_peers import common
from torch import nn

import gridloom.runtime as gl
from gridloom.model.parallel import SiteSync
from gridloom.runtime.corpus import Sampler, share_of
from gridloom.runtime.schedule import learning_rate
from gridloom.runtime.updates import Sync, SyncOptions
from gridloom.wire.launch import Rank


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


def train(run: common.Run, model: common.Loss, inner: torch.optim.Optimizer, sync: Sync) -> None:
    """Train as ``common.train`` does; with ``--alternate``, every second window without a WAN.

    In such a window the ranks do all that they do in the others but for ``Sync``: what it costs is
    the ratio of the two kinds, measured side by side.
    """
    training, options = run.training, run.options
    sampler = Sampler(run.corpus.train, common.LENGTH, training.seed)
    share = share_of(run.rank, run.world, training.global_batch)
    parameters = list(model.parameters())
    run.meet("start")
    meter = common.Meter(run)
    for step in range(1, training.steps + 1):
        alone = options.alternate and meter.number % 2 == 1
        first = (step - 1) * training.global_batch + share.start
        for group in inner.param_groups:
            group["lr"] = learning_rate(training, step)
        loss = model(*sampler.batch(first, len(share)))
        torch.autograd.backward(loss)
        if alone:
            nn.utils.clip_grad_norm_(parameters, training.clip_norm)
            inner.step()
            inner.zero_grad()
        else:
            sync.step(common.SEQUENCES * common.LENGTH)
        meter.step(float(loss.detach()))
        if step % options.window == 0:
            last = meter.window({"alone": alone, "rounds": len(sync.rounds())})
            if last:
                break
            if options.alternate:
                run.meet(f"window {meter.number}")


def main() -> None:
    parser = common.arguments(__doc__)
    usual = SiteSync()
    parser.add_argument("--kind", default="outer", choices=("every_step", "accumulated", "outer"))
    parser.add_argument("--every", type=int, default=20, help="training steps")
    parser.add_argument("--codec", default="blocks")
    parser.add_argument("--bits", type=int, default=4)
    parser.add_argument("--fragments", type=int, default=4)
    parser.add_argument("--rank", type=int, default=usual.rank)
    parser.add_argument("--share", type=float, default=usual.share)
    parser.add_argument("--outer-learning-rate", type=float, default=usual.outer_learning_rate)
    parser.add_argument("--outer-momentum", type=float, default=usual.outer_momentum)
    parser.add_argument("--alternate", action="store_true", help="every second window: no WAN")
    options = parser.parse_args()
    run, model = common.begin("gridloom", options)
    take_contract(run)
    inner = common.adamw(common.groups(model, run.training), run.training)
    gl.init()
    sync = gl.sync(model, inner, method(options), SyncOptions(clip_norm=run.training.clip_norm))
    train(run, model, inner, sync)
    for event in sync.events():
        print(event, file=sys.stderr)
    sync.finish()
    common.finish(run, model)


if __name__ == "__main__":
    main()
