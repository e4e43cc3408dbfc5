"""One model over two sites as a pipeline: measured, predicted, and beside one process.

    python -m bench.wan_pipeline [--case 40ms-100mbit] [--bits 32] [--window 6] [--json]

Each site holds half of the layers, on a core of its own, with an emulated WAN between them
(``bench/wan_bed.py``; needs root). Beside it stand the same training by one process that holds the
whole model, on one core, in the same run, and what ``planner.stages_time`` predicts from the
seconds that each stage has computed, the bytes of a micro-batch and the link as it was set.
Batches, model and optimizer are the same; so are the losses, when nothing is compressed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import torch
from bench.wan_bed import PATH, ROOT, Bed
from bench.wan_one import run_peer
from bench.wan_peers import common

from gridloom.planner.stages_time import StageLink, stages_step_s
from gridloom.runtime.wan.stages_wire import Wire


@dataclass(frozen=True)
class Case:
    """A WAN between two sites.

    Attributes:
        rtt_s: Round trip.
        bandwidth_bytes_per_s: In each direction.
    """

    rtt_s: float
    bandwidth_bytes_per_s: float

    @property
    def link(self) -> str:
        """As ``tests/beds/wan/wan_link.py`` reads it."""
        rate = self.bandwidth_bytes_per_s * 8 / 1e6
        return f"* delay={self.rtt_s / 2 * 1e3:g}ms rate={rate:g}mbit"


CASES = {
    "40ms-100mbit": Case(0.040, 12.5e6),
    "150ms-1gbit": Case(0.150, 125e6),
    "40ms-10mbit": Case(0.040, 1.25e6),
}


@dataclass
class Figures:
    """What a case has come to, with some number of bits.

    Attributes:
        tokens_per_s: Of the pipeline, the median of the windows after the first.
        predicted_tokens_per_s: By the planner.
        one_process_tokens_per_s: Of one process with the whole model, on one core.
        loss_difference: Largest difference to that process's mean losses of windows.
        depth: Micro-batches that the first stage held.
        waited_share: Of a step, that the first stage had nothing to do.
        hub_share: Of a core, that the emulation of the WAN took.
    """

    tokens_per_s: float
    predicted_tokens_per_s: float
    one_process_tokens_per_s: float
    loss_difference: float
    depth: int
    waited_share: float
    hub_share: float


def measured(
    case: Case, bits: int, options: argparse.Namespace, alone: list[dict[str, Any]]
) -> Figures:
    """Run one case; compare it with the windows of one process."""
    with Bed(("a", "b"), (case.link,)) as bed:
        cores: list[int | None] = [n % (os.cpu_count() or 1) for n in range(2)]
        outcome = run_peer(bed, "gridloom-stages", [*_words(options), "--bits", str(bits)], cores,
                           options.limit)  # fmt: skip
        hub_s = bed.hub_cpu_s()
    if set(outcome.codes) != {0}:
        raise SystemExit(outcome.complaint or f"exit codes {outcome.codes}")
    first, last = outcome.windows[0], outcome.windows[1]
    speeds = [line["tokens"] / line["seconds"] for line in first[1:]]
    losses = zip(first, alone, strict=True)
    step_s = [line["seconds"] / line["steps"] for line in first[1:]]
    return Figures(
        tokens_per_s=statistics.median(speeds),
        predicted_tokens_per_s=predicted(case, bits, options, (first[1:], last[1:])),
        one_process_tokens_per_s=_speed(alone),
        loss_difference=max(abs(one["loss"] - other["loss"]) for one, other in losses),
        depth=first[-1]["depth"],
        waited_share=statistics.median(line["waited_s"] for line in first[1:])
        / statistics.median(step_s),
        hub_share=hub_s / sum(line["seconds"] for line in first),
    )


def predicted(
    case: Case,
    bits: int,
    options: argparse.Namespace,
    windows: tuple[list[dict[str, Any]], list[dict[str, Any]]],
) -> float:
    """Return the tokens/s that the planner expects of stages that compute as these did."""
    count = options.micro_batches
    stage_s = [statistics.median(line["compute_s"] for line in lines) / count for lines in windows]
    update_s = max(statistics.median(line["update_s"] for line in lines) for lines in windows)
    numbers = options.sequences * common.LENGTH * common.SHAPE.hidden
    wire = Wire(bits, seed=0, site="", device=torch.device("cpu"))
    link = StageLink(
        sent_bytes=wire.size_bytes(numbers),
        bandwidth_bytes_per_s=case.bandwidth_bytes_per_s,
        rtt_s=case.rtt_s,
    )
    depth = windows[0][-1]["depth"]
    step_s = stages_step_s(stage_s, [link], micro_batches=count, depth=depth) + update_s
    return float(count * options.sequences * common.LENGTH / step_s)


def one_process(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the windows of one process that holds the whole model, on one core."""
    world = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": str(options.port), "OMP_NUM_THREADS": "1"}  # fmt: skip
    done = subprocess.run(
        ["taskset", "--cpu-list", "0", sys.executable, "-m", "bench.wan_peers.gridloom_stages",
         *_words(options)],
        cwd=ROOT, env={**os.environ, **world, "PYTHONPATH": PATH}, capture_output=True,
        text=True, check=False, timeout=options.limit,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _words(options: argparse.Namespace) -> list[str]:
    pairs = {
        "--steps": options.windows * options.window,
        "--window": options.window,
        "--micro-batches": options.micro_batches,
        "--sequences": options.sequences,
    }
    return [str(word) for pair in pairs.items() for word in pair]


def _speed(windows: list[dict[str, Any]]) -> float:
    return float(statistics.median(line["tokens"] / line["seconds"] for line in windows[1:]))


def main() -> int:
    """Print a line a case and number of bits, and with ``--json`` all of them as the last line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--case", choices=tuple(CASES), action="append")
    parser.add_argument("--bits", type=int, choices=(32, 16, 8), action="append")
    parser.add_argument("--windows", type=int, default=5, help="the first warms up")
    parser.add_argument("--window", type=int, default=6, help="training steps")
    parser.add_argument("--micro-batches", type=int, default=16)
    parser.add_argument("--sequences", type=int, default=1, help="of a micro-batch")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds of a run")
    parser.add_argument("--port", type=int, default=29487, help="of the one process's store")
    parser.add_argument("--json", action="store_true", help="figures as JSON in the last line")
    options = parser.parse_args()
    alone = one_process(options)
    print(f"one process, whole model: {_speed(alone):.0f} tokens/s")
    print(f"{'case':14} bits tokens/s predicted  ratio x-one depth waited loss-diff   hub")
    figures: dict[str, Any] = {}
    for name in options.case or list(CASES):
        for bits in options.bits or [32, 16, 8]:
            one = measured(CASES[name], bits, options, alone)
            figures[f"{name}/{bits}"] = vars(one)
            print(
                f"{name:14} {bits:4} {one.tokens_per_s:8.0f} {one.predicted_tokens_per_s:9.0f} "
                f"{one.tokens_per_s / one.predicted_tokens_per_s:6.3f} "
                f"{one.tokens_per_s / one.one_process_tokens_per_s:5.2f} {one.depth:5} "
                f"{one.waited_share:6.3f} {one.loss_difference:9.2e} {one.hub_share:5.3f}",
                flush=True,
            )
    if options.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
