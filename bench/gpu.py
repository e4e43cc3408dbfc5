"""The part of the suite that needs an accelerator, and how much of its peak training uses.

    python -m bench.gpu [--json] [--no-tests]

Runs the tests marked `gpu` (low precision, attention's own kernels, compiled blocks, codecs), sums
over a process group of the device's own library, and measures training in bf16, plain and
compiled: tokens a second and MFU, beside the peak that the maker names, where the planner's
catalogue has the device, and the rate of a large matrix product in the same run.
Without an accelerator it says so in one line, and ends with 0.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from gridloom.model.parallel import ParallelPlan
from gridloom.model.recipe import GptShape, Training
from gridloom.planner.catalogue import find_accelerator
from gridloom.planner.shape import parameter_count, step_flops
from gridloom.runtime.accelerator import backend_for, device_name, local_device, synchronize
from gridloom.runtime.inside.axes import Axes
from gridloom.runtime.inside.parallelize import parallelize_gpt
from gridloom.runtime.inside.site_model import SiteModel

ROOT = Path(__file__).parents[1]
TESTS = "tests/unit/runtime"

SHAPES = (
    GptShape(layers=24, hidden=2048, heads=16, kv_heads=16, ffn=5632, vocabulary=32000),
    GptShape(layers=12, hidden=768, heads=12, kv_heads=12, ffn=2048, vocabulary=32000),
)
"""From the largest, 1.3 thousand million parameters: the first that fits is taken."""

LENGTH = 2048
SEQUENCES = (16, 8, 4, 2, 1)
"""Tried in this order, until a training step fits."""

WARM_STEPS, STEPS = 5, 20
MATRIX, PRODUCTS = 8192, 20

NO_DEVICE = "gpu: skipped, for torch finds no accelerator on this machine"


def run_tests() -> int:
    """Run the tests marked ``gpu``; return pytest's exit code."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", TESTS]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def join(device: torch.device) -> float:
    """Join a world of this one rank over the device's library; return how far its sum is off."""
    store = HashStore()
    dist.init_process_group(backend_for(device), store=store, rank=0, world_size=1)
    values = torch.arange(1 << 20, device=device, dtype=torch.float32)
    summed = values.clone()
    dist.all_reduce(summed)
    parts = [torch.empty_like(values)]
    dist.all_gather(parts, values)
    return float((summed - values).abs().max() + (parts[0] - values).abs().max())


def matrix_rate(device: torch.device) -> float:
    """Return floating-point operations a second of a large product in bf16."""
    one, two = (torch.randn(MATRIX, MATRIX, device=device, dtype=torch.bfloat16) for _ in range(2))
    seconds = timed(lambda _: one @ two, device, PRODUCTS)
    return float(2 * MATRIX**3 / statistics.median(seconds))


def timed(act: Callable[[int], object], device: torch.device, times: int) -> list[float]:
    """Return the seconds of each of so many calls, after some that warm up."""
    seconds = []
    for number in range(WARM_STEPS + times):
        synchronize(device)
        start_s = time.perf_counter()
        act(number)
        synchronize(device)
        seconds.append(time.perf_counter() - start_s)
    return seconds[WARM_STEPS:]


def train(shape: GptShape, sequences: int, device: torch.device, *, compiled: bool) -> list[float]:
    """Train for some steps in bf16; return the seconds of each.

    Raises:
        torch.OutOfMemoryError: It does not fit.
    """
    axes = Axes(ParallelPlan(precision="bf16"), device, shape)
    model: SiteModel = parallelize_gpt(shape, 1, axes, compile_blocks=compiled)
    training = Training(steps=WARM_STEPS + STEPS, global_batch=sequences, sequence_length=LENGTH)
    model.optimize(training)
    draw = torch.Generator().manual_seed(1)
    text = torch.randint(shape.vocabulary, (sequences, LENGTH + 1), generator=draw).to(device)

    def step(_: int) -> None:
        model.accumulate(text[:, :-1], text[:, 1:])
        model.step(sequences * LENGTH, training.learning_rate, training.clip_norm)

    return timed(step, device, STEPS)


def largest_batch(shape: GptShape, device: torch.device, *, compiled: bool) -> dict[str, Any]:
    """Train with the largest batch that fits; return what was measured; nothing if none does."""
    for sequences in SEQUENCES:
        try:
            seconds = train(shape, sequences, device, compiled=compiled)
        except torch.OutOfMemoryError:
            continue
        finally:
            torch.accelerator.empty_cache()
        step_s = statistics.median(seconds)
        return {
            "case": "bf16 compiled" if compiled else "bf16",
            "sequences": sequences,
            "step_s": step_s,
            "step_s_range": [min(seconds), max(seconds)],
            "tokens_per_s": sequences * LENGTH / step_s,
        }
    return {}


def rates(device: torch.device) -> list[dict[str, Any]]:
    """Return MFU of training, plain and compiled, with the largest shape that fits."""
    name = device_name(device)
    known = find_accelerator(name)
    named = known.flops_16 if known is not None else 0.0
    measured = matrix_rate(device)
    found = []
    for shape in SHAPES:
        parameters = parameter_count(shape)
        for compiled in (False, True):
            line = largest_batch(shape, device, compiled=compiled)
            if line:
                flops = line["tokens_per_s"] * step_flops(shape, 1, LENGTH)
                line |= {"device": name, "parameters": parameters, "matrix_flops_per_s": measured}
                line |= {"mfu": flops / named if named else None, "of_matrix": flops / measured}
                found.append(line)
        if found:
            return found
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", action="store_true", help="one line of JSON a measurement")
    parser.add_argument("--no-tests", action="store_true", help="only measure")
    options = parser.parse_args()
    if not torch.accelerator.is_available():
        print(NO_DEVICE)
        return 0
    code = 0 if options.no_tests else run_tests()
    device = local_device(0)
    off = join(device)
    backend = backend_for(device)
    line: dict[str, Any] = {"case": "process group", "backend": backend, "off": off}
    print(json.dumps(line) if options.json else f"{backend}: one rank, sums off by {off:g}")
    lines = rates(device)
    for line in lines:
        share = "no data sheet" if line["mfu"] is None else f"MFU {line['mfu']:.1%}"
        text = (
            f"{line['device']}, {line['case']}: {line['parameters'] / 1e6:.0f} M parameters, "
            f"{line['sequences']} x {LENGTH} tokens, {line['step_s'] * 1e3:.0f} ms a training "
            f"step, {line['tokens_per_s']:,.0f} tokens/s, {share}; "
            f"{line['of_matrix']:.1%} of a large product's {line['matrix_flops_per_s']:.3g} flop/s"
        )
        print(json.dumps(line) if options.json else text)
    dist.destroy_process_group()
    return code or int(off != 0.0 or not lines)


if __name__ == "__main__":
    sys.exit(main())
