"""What the runtime costs on one site: its loop beside a bare PyTorch loop, in the same processes.

    python -m bench.overhead_site [--json] [--windows 12] [--steps 6] [one] [ddp] [fsdp] [init]

`one` is one process; `ddp` two ranks, DistributedDataParallel beside `gl.parallelize`; `fsdp` two
ranks, FSDP2 beside it with ZeRO 3; each loop clips, moves its weights by AdamW and reads its loss,
and gridloom's also reports and asks whether to stop. The two loops take turns, window by window, so
that a machine whose speed drifts is unfair to neither; that they train the same is checked. `init`
is the time of `gl.init()` in a fresh process beside that of `init_process_group`.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import gridloom.runtime as gl
from gridloom.model.recipe import GptShape, TextData
from gridloom.runtime.corpus import Sampler, load_corpus
from gridloom.runtime.gpt import Gpt

LIMIT = 1.02
"""Allowed ratio of seconds a training step, unless the spread is wider."""

INIT_LIMIT_S = 0.5
"""Allowed for ``gl.init()``."""

CASES = {"one": 1, "ddp": 2, "fsdp": 2}
"""Number of ranks by case."""

SEQUENCES, LENGTH = 4, 128
"""Of a rank and training step."""

WARM_WINDOWS = 2
CLIP_NORM = 1.0
STARTS = 5


@dataclass(frozen=True)
class Verdict:
    """One case.

    Attributes:
        case: Its name.
        bare_s: Median seconds of a training step of the bare loop.
        gridloom_s: Of gridloom's.
        ratio: Of the second to the first.
        low: Lower quartile of the ratios of neighbouring windows.
        high: Upper quartile.
        processor_ratio: As ``ratio``, in seconds of the processor; other programs hardly move it.
        difference: Largest between the two losses of a training step.
        windows: Of each loop.
    """

    case: str
    bare_s: float
    gridloom_s: float
    ratio: float
    low: float
    high: float
    processor_ratio: float
    difference: float
    windows: int

    @property
    def is_good(self) -> bool:
        """Whether it is within the limit, or not to be told from 1."""
        return self.ratio <= LIMIT or self.low <= 1.0


Loop = Callable[[int], float]
"""Makes the training step of this number; returns its loss."""


def loops(
    case: str, shape: GptShape, batches: Sequence[tuple[torch.Tensor, torch.Tensor]]
) -> tuple[Loop, Loop]:
    """Return the bare loop and gridloom's, over models of equal weights."""

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gpt = Gpt(shape, seed=1)

        def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return self.gpt.loss_sum(inputs, targets) / targets.numel()

    gl.init()
    own = Loss()
    bare: nn.Module = own
    if case == "ddp":
        bare = DistributedDataParallel(own, gradient_as_bucket_view=True)
    elif case == "fsdp":
        for block in own.gpt.blocks.values():
            fully_shard(block)
        fully_shard(own)
    bare_optimizer = torch.optim.AdamW(bare.parameters(), lr=1e-3, fused=True)

    def bare_step(number: int) -> float:
        loss = bare(*batches[number % len(batches)])
        loss.backward()
        nn.utils.clip_grad_norm_(bare.parameters(), CLIP_NORM)
        bare_optimizer.step()
        bare_optimizer.zero_grad()
        return float(loss.detach())

    plan = gl.ParallelPlan(data=CASES[case], zero=3 if case == "fsdp" else 0, precision="fp32")
    model = gl.parallelize(Loss(), plan)
    optimizer = torch.optim.AdamW(model.module.parameters(), lr=1e-3, fused=True)
    sync = gl.sync(model, optimizer, options=gl.SyncOptions(clip_norm=CLIP_NORM))

    def own_step(number: int) -> float:
        loss = model.module(*batches[number % len(batches)])
        loss.backward()
        sync.step(LENGTH * SEQUENCES)
        found = float(loss.detach())
        gl.report(number + 1, loss=found)
        gl.should_stop()
        return found

    return bare_step, own_step


def measure(case: str, windows: int, steps: int) -> Verdict:
    """Let the two loops of a case take turns; the result is that of this rank."""
    torch.set_num_threads(1)
    rank = int(os.environ.get("RANK", "0"))
    sampler = Sampler(load_corpus(TextData()).train, LENGTH, 1)
    batches = [sampler.batch((n * 2 + rank) * SEQUENCES, SEQUENCES) for n in range(16)]
    shape = GptShape(layers=6, hidden=192, heads=6, kv_heads=6, ffn=512)
    pair = loops(case, shape, batches)
    taken: list[list[tuple[float, float]]] = [[], []]
    difference = 0.0
    for window in range(WARM_WINDOWS + windows):
        losses: list[list[float]] = [[], []]
        for which in (0, 1) if window % 2 else (1, 0):
            if CASES[case] > 1:
                dist.barrier()
            start_s, used_s = time.perf_counter(), time.process_time()
            losses[which] = [pair[which](window * steps + step) for step in range(steps)]
            row = (time.perf_counter() - start_s, time.process_time() - used_s)
            if window >= WARM_WINDOWS:
                taken[which].append(row)
        apart = (abs(a - b) for a, b in zip(*losses, strict=True))
        difference = max(difference, *apart)
    wall, used = ([[row[kind] / steps for row in rows] for rows in taken] for kind in (0, 1))
    ratios = [own / bare for bare, own in zip(*wall, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    medians = [statistics.median(values) for values in wall]
    return Verdict(
        case=case,
        bare_s=medians[0],
        gridloom_s=medians[1],
        ratio=medians[1] / medians[0],
        low=low,
        high=high,
        processor_ratio=statistics.median(used[1]) / statistics.median(used[0]),
        difference=difference,
        windows=windows,
    )


def run_ranks(world: int, module: str, *arguments: str) -> list[Any]:
    """Run a module as so many ranks; return what each has found."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = []
    for rank in range(world):
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        command = [sys.executable, "-m", module, *arguments]
        ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    told = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        sys.exit(f"{' '.join(arguments)}: a rank failed")
    return [json.loads(text.splitlines()[-1]) for text in told]


def starts(world: int) -> dict[str, Any]:
    """Return the seconds that joining takes, the slowest rank's, median of several starts."""
    found: dict[str, list[float]] = {"gridloom": [], "bare": []}
    for _ in range(STARTS):
        for kind, values in found.items():
            with tempfile.TemporaryDirectory() as place:
                values.append(max(run_ranks(world, "bench.overhead_site_start", kind, place)))
    medians = {f"{kind}_s": statistics.median(values) for kind, values in found.items()}
    return {"case": "init", "ranks": world, **medians}


def report(options: argparse.Namespace) -> int:
    """Measure what was asked for and print it; 1 when something is beyond its limit."""
    is_good = True
    sizes = ["--windows", str(options.windows), "--steps", str(options.steps)]
    for case in options.cases or [*CASES, "init"]:
        if case == "init":
            for world in (1, 2):
                line = starts(world)
                is_good &= line["gridloom_s"] < INIT_LIMIT_S
                text = (
                    f"init, {world} rank(s): {line['gridloom_s']:.3f} s (limit {INIT_LIMIT_S} s); "
                    f"init_process_group alone {line['bare_s']:.3f} s"
                )
                print(json.dumps(line) if options.json else text, flush=True)
            continue
        one = Verdict(**run_ranks(CASES[case], "bench.overhead_site", "--rank-of", case, *sizes)[0])
        is_good &= one.is_good
        text = (
            f"{case}: bare {one.bare_s * 1e3:.1f} ms a training step, gridloom "
            f"{one.gridloom_s * 1e3:.1f} ms, ratio {one.ratio:.3f} (quartiles {one.low:.3f} to "
            f"{one.high:.3f}, {one.windows} windows each; limit {LIMIT}), "
            f"processor {one.processor_ratio:.3f}; losses differ by {one.difference:.1e}"
        )
        print(json.dumps(asdict(one)) if options.json else text, flush=True)
    return 0 if is_good else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "cases", nargs="*", metavar="CASE", help="one, ddp, fsdp, init; default: all"
    )
    parser.add_argument("--windows", type=int, default=12, help="of each loop, after the warm-up")
    parser.add_argument("--steps", type=int, default=6, help="training steps of a window")
    parser.add_argument("--json", action="store_true", help="one line of JSON a case")
    parser.add_argument("--rank-of", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.cases) - {*CASES, "init"}:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    if options.rank_of:
        print(json.dumps(asdict(measure(options.rank_of, options.windows, options.steps))))
    else:
        return report(options)
    if dist.is_initialized():
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
