"""Layouts of a tiny model, and the program that trains one rank of them, one after the other.

``python -m tests.unit.runtime.inside.layouts <rank> <directory>``: four such processes are one
world for the layouts of four ranks, and two worlds of two for the rest.
"""

import dataclasses
import json
import sys
import traceback
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import FileStore
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.nn.functional import mse_loss

from gridloom.model.parallel import ParallelPlan, SiteSync
from gridloom.model.recipe import GptShape, Training
from gridloom.model.transformer import Experts
from gridloom.runtime.averaging import Averaging, Owned
from gridloom.runtime.inside import replicate
from gridloom.runtime.inside.axes import Axes
from gridloom.runtime.inside.parallelize import parallelize, parallelize_gpt
from gridloom.runtime.inside.site_model import SiteModel
from gridloom.runtime.wan.buckets import gradient_of
from gridloom.runtime.wan.state import OptimizerState, local

DENSE = GptShape(layers=4, hidden=64, heads=4, kv_heads=2, ffn=96)
UNTIED = GptShape(layers=4, hidden=64, heads=4, kv_heads=2, ffn=96, tied_embeddings=False)
SPARSE = GptShape(
    layers=2,
    hidden=64,
    heads=4,
    kv_heads=2,
    ffn=96,
    experts=Experts(count=4, per_token=2, ffn=32, shared_ffn=32, shared_gate=True),
    router_loss=0.1,
)
TRAINING = Training(steps=30, global_batch=8, sequence_length=32, learning_rate=3e-3)
SEED = 3
WORLD = 4
FEW, MANY = 2, TRAINING.steps


@dataclasses.dataclass(frozen=True)
class Layout:
    """A cut, and how long to train with it."""

    shape: GptShape
    plan: ParallelPlan
    batches: int = 1  # that a rank's share of a step is handed over in
    steps: int = MANY
    save: bool = False
    resume: str = ""  # the layout whose checkpoint to go on from


@dataclasses.dataclass(frozen=True)
class ModuleCut:
    """A module of the user's own, and how it is spread."""

    plan: ParallelPlan
    parts: int = 1  # that a share is taken in, without communication before the last
    bucket_bytes: int = replicate.BUCKET_BYTES


def plan(**fields: Any) -> ParallelPlan:
    return ParallelPlan(**{"precision": "fp32", **fields})


LAYOUTS = {
    "dp2": Layout(DENSE, plan(data=2)),
    "tp2": Layout(DENSE, plan(tensor=2)),
    "tp2 sequence": Layout(DENSE, plan(tensor=2, sequence_parallel=True)),
    "pp2": Layout(DENSE, plan(pipeline=2)),
    "cp2": Layout(DENSE, plan(context=2)),
    "fsdp zero 3": Layout(DENSE, plan(data=2, zero=3)),
    "tp2 pp2": Layout(DENSE, plan(tensor=2, pipeline=2)),
    "hsdp": Layout(DENSE, plan(data=4, zero=3, shard=2, micro_batch=1)),
    "ep2": Layout(SPARSE, plan(data=2, expert=2)),
    # what else goes together, for a few steps
    "pp2 interleaved": Layout(
        DENSE, plan(pipeline=2, schedule="interleaved", virtual_stages=2, micro_batch=2), steps=FEW
    ),
    "pp2 zero bubble": Layout(DENSE, plan(pipeline=2, schedule="zero_bubble"), steps=FEW),
    "pp2 zero bubble, two stages a rank": Layout(
        UNTIED, plan(pipeline=2, schedule="zero_bubble", virtual_stages=2), steps=FEW
    ),
    "pp4, in two batches": Layout(
        DENSE, plan(pipeline=4, stage_layers=(1, 1, 1, 1)), batches=2, steps=FEW
    ),
    "zero 1": Layout(DENSE, plan(data=2, zero=1, micro_batch=1), batches=2, steps=FEW),
    "zero 2": Layout(DENSE, plan(data=2, zero=2, micro_batch=2), batches=2, steps=FEW),
    "tp2 zero 3": Layout(UNTIED, plan(tensor=2, data=2, zero=3), steps=FEW, save=True),
    "pp2 zero 2": Layout(DENSE, plan(pipeline=2, data=2, zero=2), steps=FEW, save=True),
    "pp2 zero bubble dp2": Layout(
        DENSE, plan(pipeline=2, data=2, schedule="zero_bubble"), steps=FEW
    ),
    "cp2 tp2": Layout(UNTIED, plan(context=2, tensor=2, sequence_parallel=True), steps=FEW),
    "cp2 zero 3": Layout(DENSE, plan(context=2, zero=3), steps=FEW),
    "ep2 tp2": Layout(
        SPARSE, plan(data=2, tensor=2, expert=2, expert_tensor=2, sequence_parallel=True), steps=FEW
    ),
    "ep2 zero 3": Layout(SPARSE, plan(data=2, expert=2, zero=3), steps=FEW),
    "ep2 twice, zero 3": Layout(SPARSE, plan(data=4, expert=2, zero=3), steps=FEW, save=True),
    "ep2 pp2": Layout(SPARSE, plan(data=2, pipeline=2, expert=2), steps=FEW),
    "ep2 cp2": Layout(SPARSE, plan(context=2, expert=2), steps=FEW),
    "experts, tp2": Layout(SPARSE, plan(tensor=2), steps=FEW),
    "full recompute": Layout(
        DENSE, plan(data=2, zero=3, recompute="full", recompute_layers=3), steps=FEW
    ),
    "selective recompute": Layout(DENSE, plan(tensor=2, recompute="selective"), steps=FEW),
    "recompute of operators": Layout(DENSE, plan(tensor=2, recompute="operators"), steps=FEW),
    "full recompute, experts": Layout(SPARSE, plan(data=2, expert=2, recompute="full"), steps=FEW),
    "full recompute, zero bubble": Layout(
        DENSE, plan(pipeline=2, schedule="zero_bubble", recompute="full"), steps=FEW
    ),
    "offload": Layout(
        DENSE, plan(data=2, zero=3, offload=("parameters", "activations")), steps=FEW
    ),
}


RESUMED = {
    "pp2 dp2 after tp2 zero 3": Layout(
        UNTIED, plan(pipeline=2, data=2), steps=FEW, resume="tp2 zero 3"
    ),
    "tp2 cp2 after pp2 zero 2": Layout(
        DENSE, plan(tensor=2, context=2), steps=FEW, resume="pp2 zero 2"
    ),
    "ep2 tp2 after ep2 twice": Layout(
        SPARSE,
        plan(data=2, tensor=2, expert=2, expert_tensor=2),
        steps=FEW,
        resume="ep2 twice, zero 3",
    ),
}
LOW_PRECISION = {
    "bf16 dp2": Layout(DENSE, plan(data=2, precision="bf16"), steps=FEW),
    "bf16 zero 3": Layout(DENSE, plan(data=2, zero=3, precision="bf16"), steps=FEW),
    "bf16 pp2": Layout(DENSE, plan(pipeline=2, precision="bf16"), steps=FEW),
    "fp16 pp2 zero 2": Layout(SPARSE, plan(pipeline=2, data=2, zero=2, precision="fp16"), steps=7),
}
MODULES = {
    "module dp2": ModuleCut(plan(data=2)),
    "module dp2, in parts, many buckets": ModuleCut(plan(data=2), parts=2, bucket_bytes=3000),
    "module zero 2": ModuleCut(plan(data=2, zero=2)),
    "module zero 3, in parts": ModuleCut(plan(data=2, zero=3), parts=2),
}
GPTS = LAYOUTS | RESUMED | LOW_PRECISION
ALL = {name: layout.plan for name, layout in (GPTS | MODULES).items()}


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Return the whole batch of a step: lines of text that can be learnt."""
    draw = torch.Generator().manual_seed(step)
    start = torch.randint(0, 200, (TRAINING.global_batch, 1), generator=draw)
    stride = torch.randint(1, 4, (TRAINING.global_batch, 1), generator=draw)
    text = (start + stride * torch.arange(TRAINING.sequence_length + 1)) % 257
    return text[:, :-1], text[:, 1:]


def train(layout: Layout, axes: Axes, model: SiteModel, first: int = 0) -> dict[str, list[float]]:
    """Train one rank; return the losses and norms of the site."""
    losses, norms, skipped = [], [], []
    for step in range(first, first + layout.steps):
        inputs, targets = (t.chunk(axes.data_ranks)[axes.data_rank] for t in batch(step))
        parts = list(zip(inputs.chunk(layout.batches), targets.chunk(layout.batches), strict=True))
        own = [
            model.accumulate(*part, last=number == len(parts))
            for number, part in enumerate(parts, 1)
        ]
        totals = model.sum_totals(sum(own[1:], own[0]))
        losses.append(float((totals.loss_sum + totals.router_loss) / totals.tokens))
        outcome = model.step(float(totals.tokens), TRAINING.learning_rate, TRAINING.clip_norm)
        norms.append(outcome.norm)
        skipped.append(float(outcome.skipped))
    return {"losses": losses, "norms": norms, "skipped": skipped}


def run_layout(name: str, directory: Path) -> Any:
    """Train one rank of a layout; leave its pieces in the directory."""
    layout = GPTS[name]
    axes = Axes(layout.plan, torch.device("cpu"), layout.shape)
    model = parallelize_gpt(layout.shape, SEED, axes)
    model.optimize(TRAINING)
    if layout.resume:
        state = model.state()
        load(state, checkpoint_id=directory / layout.resume)
        model.load_state(state)
    first = FEW if layout.resume else 0
    inputs, targets = (t.chunk(axes.data_ranks)[axes.data_rank] for t in batch(first))
    before = model.sum_totals(model.evaluate(inputs, targets))
    found = train(layout, axes, model, first)
    strayed = round_trip(axes, model)
    if layout.save:
        save(model.state(), checkpoint_id=directory / name)
    pieces = [
        (piece.name, piece.shape, piece.start, piece.owner, piece.tensor.clone())
        for piece in model.parameters
    ]
    for piece in model.parameters:  # the owners' numbers, as if they had come from elsewhere
        piece.tensor.fill_(float(axes.rank + 1) if piece.owner else -1.0)
    model.spread()
    least = min(float(p.tensor.min()) for p in model.parameters if p.tensor.numel())
    torch.save(pieces, directory / f"{name} {axes.rank}.pt")
    evaluated = float((before.loss_sum + before.router_loss) / before.tokens)
    return {**found, "least": least, "evaluated": evaluated, "strayed": strayed}


def round_trip(axes: Axes, model: SiteModel) -> float:
    """Exchange gradients as with a site that has the same; return how far they have changed."""
    inputs, targets = (t.chunk(axes.data_ranks)[axes.data_rank] for t in batch(0))
    model.accumulate(inputs, targets)
    pieces = [piece for piece in model.parameters if piece.tensor.numel()]
    before = [local(gradient_of(piece.parameter)).clone() for piece in pieces]
    for piece in pieces:
        if not piece.owner and piece.gradient is not None:
            piece.gradient.fill_(-1.0)  # it is to come from the owner
    parameters = [piece.parameter for piece in model.parameters]
    owned = Owned(parameters, [piece.owner for piece in model.parameters], model)
    inner = OptimizerState(torch.optim.SGD(parameters, lr=1.0))
    site = Averaging(owned, SiteSync(), 2**14, inner, lambda: None).ranks
    assert site is not None
    site.keep()
    if axes.rank == 0:
        payloads = [site.encode(bucket) for bucket in range(len(site.sizes_bytes()))]
        alone = [bytes(site.go_alone(as_sent=as_sent)) for as_sent in (True, False)]
        assert alone[0] == alone[1]
        assert len(alone[0]) == 16 * axes.world
        for bucket, payload in enumerate(payloads):
            mean = site.combine(bucket, [(1.0, payload), (3.0, payload)])
            assert len(mean) == len(payload)
            site.take(bucket, [(1.0, payload), (1.0, mean)])
        site.update()
        site.take_back()
        site.end()
    else:
        site.follow()
    after = [local(gradient_of(piece.parameter)) for piece in pieces]
    strayed = max(float((a - b).abs().max()) for a, b in zip(after, before, strict=True))
    model.gradients.zero()
    return strayed


def module() -> nn.Module:
    torch.manual_seed(SEED)
    layers = [layer for _ in range(3) for layer in (nn.Linear(24, 24), nn.GELU())]
    return nn.Sequential(nn.Linear(8, 24), nn.Sequential(*layers), nn.Linear(24, 4))


def examples(step: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(8, 8, generator=torch.Generator().manual_seed(step))
    return x, x[:, :4].cos()


def run_module(name: str) -> Any:
    """Train a module as a user would; return the means of the losses."""
    cut = MODULES[name]
    replicate.BUCKET_BYTES = cut.bucket_bytes
    axes = Axes(cut.plan, torch.device("cpu"))
    own = module()
    if axes.rank:  # whatever the others begin with, the first rank's counts
        nn.init.zeros_(next(own.parameters()))
    model = parallelize(own, axes)
    optimizer = torch.optim.AdamW(model.module.parameters(), lr=1e-2)
    losses, norms = [], []
    for step in range(FEW):
        x, y = (t.chunk(axes.data_ranks)[axes.data_rank] for t in examples(step))
        total = torch.zeros(())
        shares = list(zip(x.chunk(cut.parts), y.chunk(cut.parts), strict=True))
        with model.no_sync():
            for part in shares[:-1]:
                total += _backward(model, part, cut.parts)
        total += _backward(model, shares[-1], cut.parts)
        model.finish()
        norms.append(float(model.clip(0.5)))
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(total)
        losses.append(float(total) / axes.world)
    return {"losses": losses, "norms": norms}


def _backward(model: SiteModel, part: tuple[Tensor, Tensor], parts: int) -> Tensor:
    loss = mse_loss(model.module(part[0]), part[1]) / parts
    torch.autograd.backward(loss)
    return loss.detach()


def run(name: str, rank: int, ranks: int, directory: Path) -> Any:
    """Run one rank in a world of its own."""
    store = FileStore(str(directory / f"store {name}"), ranks)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=60)
    )
    try:
        return run_module(name) if name in MODULES else run_layout(name, directory)
    finally:
        dist.destroy_process_group()


def shares(names: Sequence[str]) -> list[list[tuple[str, int, int]]]:
    """Return for each of the four processes its layouts, its rank there and the ranks there."""
    todo: list[list[tuple[str, int, int]]] = [[] for _ in range(WORLD)]
    pair = 0
    for name in names:
        ranks = ALL[name].world_size
        first = 0 if ranks == WORLD else 2 * pair
        pair = pair if ranks == WORLD else 1 - pair
        for rank in range(ranks):
            todo[first + rank].append((name, rank, ranks))
    return todo


def main(process: int, directory: Path, names: Sequence[str]) -> None:
    torch.set_num_threads(1)
    found = {}
    for name, rank, ranks in shares(names)[process]:
        try:
            found[f"{name}/{rank}"] = run(name, rank, ranks, directory)
        except Exception:  # noqa: BLE001 - the test shows it
            found[f"{name}/{rank}"] = {"error": traceback.format_exc()}
    (directory / f"found-{process}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:] or list(ALL))
