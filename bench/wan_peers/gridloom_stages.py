"""Gridloom: one pipeline over the sites, some layers at each; with one rank the whole model."""

import statistics
import sys
import time

import torch
from bench.wan_peers import common
from bench.wan_peers.gridloom_sync import take_contract
from msgspec import structs

import gridloom.runtime as gl
from gridloom.runtime.corpus import Sampler
from gridloom.runtime.schedule import learning_rate
from gridloom.runtime.wan.stages import Passed, Stages
from gridloom.runtime.wan.stages_layers import gpt_layers, token_loss

SHAPE = structs.replace(common.SHAPE, tied_embeddings=False)
"""The model of all peers, but for its tied embedding, which is at both ends."""


def train(run: common.Run, stages: Stages) -> None:
    """Train as ``common.train`` does, on batches of as many micro-batches as there are."""
    training, options = run.training, run.options
    sampler = Sampler(run.corpus.train, common.LENGTH, training.seed)
    count = options.micro_batches * options.sequences
    optimizer = common.adamw(common.groups(stages.module, training), training)
    run.meet("start")
    meter = common.Meter(run)
    steps: list[tuple[Passed, float]] = []
    for step in range(1, training.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(training, step)
        passed = stages.forward_backward(*sampler.batch((step - 1) * count, count))
        began_s = time.perf_counter()
        optimizer.step()
        steps.append((passed, time.perf_counter() - began_s))
        meter.step(passed.loss)
        if step % options.window == 0:
            tokens = len(steps) * count * common.LENGTH
            if meter.window({"tokens": tokens, **_of_steps(steps, stages)}):
                break
            steps = []


def _of_steps(steps: list[tuple[Passed, float]], stages: Stages) -> dict[str, object]:
    """Return what a prediction needs of some steps, medians, and what is to be seen of them."""
    link = next(iter(stages.links().values()), None)
    return {
        "compute_s": statistics.median(passed.compute_s for passed, _ in steps),
        "waited_s": statistics.median(passed.waited_s for passed, _ in steps),
        "update_s": statistics.median(update_s for _, update_s in steps),
        "depth": steps[-1][0].depth,
        "again": sum(passed.again for passed, _ in steps),
        "rtt_s": link.rtt_s_min if link else None,
        "bandwidth_bytes_per_s": link.bandwidth_bytes_per_s if link else None,
    }


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--micro-batches", type=int, default=16)
    parser.add_argument("--sequences", type=int, default=1, help="of a micro-batch")
    parser.add_argument("--bits", type=int, default=32, help="of a number on its way")
    parser.add_argument("--in-flight", type=int, default=0, help="micro-batches; 0: as needed")
    options = parser.parse_args()
    run, _ = common.begin("gridloom-stages", options)
    if run.world > 1:
        take_contract(run)
    gl.init()
    how = gl.StageOptions(
        micro_batches=options.micro_batches,
        in_flight=options.in_flight,
        bits=options.bits,
        clip_norm=run.training.clip_norm,
    )
    torch.manual_seed(options.seed)
    stages = gl.pipeline(gpt_layers(SHAPE, options.seed), token_loss, how)
    train(run, stages)
    stages.finish()
    for name, link in stages.links().items():
        print(f"{name}: {link.sent_bytes} bytes sent", file=sys.stderr)
    run.meet("end")
    if run.rank == 0:
        time.sleep(1.0)  # the store goes with this process; the others may still ask it


if __name__ == "__main__":
    main()
