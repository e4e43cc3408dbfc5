"""Training across sites: speed, loss and bytes, beside the peers, in the same run and bed.

    python -m bench.wan --quick            # the first case, gridloom alone, in under five minutes
    python -m bench.wan [--case 40ms-100mbit] [--peers] [--json]

Speed is measured on an emulated WAN (``bench/wan_bed.py``; needs root), every site on a core of its
own, in alternated windows: in every second one the same ranks train for themselves, as if there
were no network to pay for. Their ratio is ``tokens_ratio``. Loss does not depend on the link: it
is measured without a bed (``bench/wan_loss.py``) against averaging whole gradients at every step,
after equal tokens; ``loss_ratio`` is of the nats on text that was held out.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.wan_bed import ROOT, Bed
from bench.wan_one import Outcome, installed, run_peer
from bench.wan_peers.common import LENGTH, SEQUENCES, SHAPE
from msgspec import structs, to_builtins

from gridloom.model.parallel import SiteSync
from gridloom.planner.shape import parameter_count
from gridloom.planner.site_sync import choose
from gridloom.planner.sync_forecast import SyncLink, SyncSituation


@dataclass(frozen=True)
class Link:
    """The WAN between two sites.

    Attributes:
        ends: Two names, or ``*`` for all pairs.
        delay_s: One way.
        mbit_per_s: In each direction.
        loss: Share of the packets that are lost.
    """

    ends: str
    delay_s: float
    mbit_per_s: float
    loss: float = 0.0

    @property
    def line(self) -> str:
        """As ``tests/beds/wan/wan_link.py`` reads it."""
        shape = f"delay={self.delay_s * 1e3:g}ms rate={self.mbit_per_s:g}mbit"
        return f"{self.ends} {shape} loss={self.loss * 100:g}%"

    @property
    def facts(self) -> SyncLink:
        """As the planner reckons with it."""
        return SyncLink(
            bytes_per_s=self.mbit_per_s * 1e6 / 8, rtt_s=2 * self.delay_s, loss=self.loss
        )


@dataclass(frozen=True)
class Case:
    """A WAN.

    Attributes:
        sites: Names.
        links: Between them.
        methods: What is measured on it unless told otherwise: what might be chosen there.
    """

    sites: tuple[str, ...]
    links: tuple[Link, ...]
    methods: tuple[str, ...]


_OUTER = ("outer-8", "outer-8-1bit", "outer-14-1bit", "outer-48")

CASES = {
    "40ms-100mbit": Case(
        ("a", "b"),
        (Link("*", 0.02, 100),),
        ("auto", "adaptive", *_OUTER, "every-step", "every-step-4"),
    ),
    "40ms-10mbit": Case(("a", "b"), (Link("*", 0.02, 10),), ("auto", "adaptive", *_OUTER)),
    "three-1gbit-lossy": Case(
        ("a", "b", "c"),
        (
            Link("a b", 0.01, 1000, 0.001),
            Link("b c", 0.04, 1000, 0.001),
            Link("a c", 0.075, 1000, 0.001),
        ),
        ("auto", "adaptive", *_OUTER, "every-step-4"),
    ),
    # where gathering eight steps makes up for the link, and exchanging every step does not
    "40ms-2gbit": Case(
        ("a", "b"), (Link("*", 0.02, 2000),), ("every-step", "accumulate-8", "auto")
    ),
}


def _outer(every: int, fragments: int, bits: int) -> SiteSync:
    return SiteSync(kind="outer", every=every, fragments=fragments, codec="blocks", bits=bits)


METHODS: dict[str, SiteSync | None] = {
    "auto": None,
    "adaptive": _outer(0, 4, 4),
    "outer-8": _outer(8, 4, 4),
    "outer-16": _outer(16, 4, 4),
    "outer-8-1bit": _outer(8, 4, 1),
    "outer-14-1bit": _outer(14, 7, 1),
    "outer-48": _outer(48, 8, 4),
    "every-step": SiteSync(),
    "every-step-8": SiteSync(codec="blocks", bits=8),
    "every-step-4": SiteSync(codec="blocks", bits=4),
    "accumulate-8": SiteSync(kind="accumulated", every=8),
}
"""By name; ``auto`` is what the planner chooses on the links at hand (``sync: auto``)."""

_TOKENS = 20e6
"""Of the training for which ``auto`` is chosen."""

_BATCH = "4ms"
"""How late a frame may be, so that the hub takes less of the cores that the sites train on."""

_QUICK_LOSS = ("--model", "0.3M", "--tokens", "2e6")
"""What is trained for the loss of the quick measurement: the longer, the less outer steps lag."""

_GRADIENT_WINDOW_STEPS = 16
"""Training steps a window where every few steps wait for the link: there are no rounds to hold."""

PEERS = ("ddp", "ddp-powersgd", "torchft-local-sgd", "torchft-diloco", "torchft-streaming",
         "hivemind-local")  # fmt: skip


@dataclass
class Speed:
    """How fast a method was on a bed.

    Attributes:
        tokens_ratio: Tokens a second over those without a WAN, the median of the windows.
        spread: The lowest and the highest of these ratios.
        tokens_per_s: Of all ranks, the median of the windows.
        bytes_per_token: Sent by all sites, for a token of all sites.
        hub_share: Of a core, that the emulation of the WAN took.
        rounds: Outer rounds in the windows.
        interval_steps: Training steps from one exchange of a parameter to the next, as it was.
    """

    tokens_ratio: float | None
    spread: tuple[float, float] | None
    tokens_per_s: float
    bytes_per_token: float
    hub_share: float
    rounds: int = 0
    interval_steps: float = 0.0
    complaint: str = field(default="", repr=False)


def method_of(name: str, case: Case) -> SiteSync:
    """Return a method; ``auto`` is chosen by the pace of the same ranks without a network."""
    how = METHODS[name]
    if how is not None:
        return how
    alone = peer_speed(case, "alone", 8, 3)
    step_tokens = len(case.sites) * SEQUENCES * LENGTH
    situation = SyncSituation(
        parameters=parameter_count(SHAPE),
        width=SHAPE.hidden,
        tokens=_TOKENS,
        step_s=step_tokens / alone.tokens_per_s,
        step_tokens=step_tokens,
        sites=len(case.sites),
        links=tuple(link.facts for link in case.links),
    )
    return choose(situation).best.how


def speed_of(case: Case, how: SiteSync, window_steps: int, pairs: int) -> Speed:
    """Measure a method of gridloom's in alternated windows."""
    windows = 2 * pairs + 1
    if how.kind != "outer":
        window_steps = min(window_steps, _GRADIENT_WINDOW_STEPS)
    options = [*_words(how), "--codec", how.codec, "--alternate", "--window", str(window_steps)]
    options += ["--steps", str(windows * window_steps)]
    with _bed(case) as bed:
        outcome = run_peer(bed, "gridloom", options, _cores(len(case.sites)), 3600.0)
        hub_s = bed.hub_cpu_s()
    return _speed(outcome, hub_s, how.fragments)


def _speed(outcome: Outcome, hub_s: float, fragments: int) -> Speed:
    """Compare every window without a WAN with the mean of its two neighbours."""
    rows = [list(row) for row in zip(*outcome.windows.values(), strict=True)]
    speeds = [sum(line["tokens"] / line["seconds"] for line in row) for row in rows]
    alone = [bool(row[0]["alone"]) for row in rows]
    ratios = [
        statistics.mean((speeds[i - 1], speeds[i + 1])) / speeds[i]
        for i in range(1, len(rows) - 1)
        if alone[i]
    ]
    wan = [row for row, single in zip(rows, alone, strict=True) if not single]
    rounds = sum(row[0]["rounds"] for row in wan)
    steps = sum(row[0]["steps"] for row in wan)
    tokens = sum(line["tokens"] for row in wan for line in row)
    seconds = sum(row[0]["seconds"] for row in rows)
    return Speed(
        tokens_ratio=statistics.median(ratios) if ratios else None,
        spread=(min(ratios), max(ratios)) if ratios else None,
        tokens_per_s=statistics.median(
            s for s, single in zip(speeds, alone, strict=True) if not single
        )
        if wan
        else 0.0,
        bytes_per_token=sum(line["sent_bytes"] for row in wan for line in row) / max(1, tokens),
        hub_share=hub_s / max(1e-9, seconds),
        rounds=rounds,
        interval_steps=steps * fragments / rounds if rounds else 0.0,
        complaint=outcome.complaint,
    )


def peer_speed(case: Case, peer: str, window_steps: int, windows: int) -> Speed:
    """Measure a peer on the bed; the first window warms up."""
    options = ["--window", str(window_steps), "--steps", str(windows * window_steps)]
    with _bed(case) as bed:
        outcome = run_peer(bed, peer, options, _cores(len(case.sites)), 1800.0)
        hub_s = bed.hub_cpu_s()
    speeds = outcome.tokens_per_s()
    seconds = sum(line["seconds"] for line in outcome.windows[0])
    return Speed(
        tokens_ratio=None,
        spread=None,
        tokens_per_s=statistics.median(speeds) if speeds else 0.0,
        bytes_per_token=outcome.bytes_per_token(),
        hub_share=hub_s / max(1e-9, seconds),
        complaint=outcome.complaint,
    )


def loss_ratio(told: Sequence[str], training: Sequence[str]) -> float:
    """Return held-out nats of a method over those of every-step averaging, after equal tokens.

    The two trainings run beside each other, each on a core of its own.

    Args:
        told: The method, in the words of ``bench/wan_loss.py``.
        training: What both train, in its words.
    """
    found: list[dict[str, Any]] = []
    processes = []
    for core, method in enumerate((("--kind", "every_step"), tuple(told))):
        command = [sys.executable, "-m", "bench.wan_loss", *training, *method]
        pinned = ["taskset", "--cpu-list", str(core % (os.cpu_count() or 1))]
        processes.append(
            subprocess.Popen(
                [*pinned, *command],
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        )
    for process in processes:
        text, _ = process.communicate()
        if process.returncode:
            raise SystemExit("bench.wan_loss failed: run it by itself to see why")
        found.append(json.loads(text.strip().splitlines()[-1]))
    return float(found[1]["bits_per_byte"] / found[0]["bits_per_byte"])


def _bed(case: Case) -> Bed:
    return Bed(case.sites, [link.line for link in case.links], batch=_BATCH)


def _cores(sites: int) -> list[int | None]:
    """Return a core for each site, as far as there are any."""
    return [number % (os.cpu_count() or 1) for number in range(sites)]


def _show(name: str, case: str, speed: Speed) -> None:
    ratio = "      -" if speed.tokens_ratio is None else f"{speed.tokens_ratio:7.3f}"
    spread = "" if speed.spread is None else f"{speed.spread[0]:.3f}-{speed.spread[1]:.3f}"
    print(
        f"{case:18} {name:18} {speed.tokens_per_s:8.0f} {ratio} {spread:12} "
        f"{speed.bytes_per_token:10.1f} {speed.hub_share:6.3f}",
        flush=True,
    )
    if speed.complaint:
        print(speed.complaint, file=sys.stderr)


def main() -> int:
    """Print a line a measurement, and with ``--json`` all of them as the last line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="the first case, shortly")
    parser.add_argument("--json", action="store_true", help="figures as JSON in the last line")
    parser.add_argument("--case", choices=tuple(CASES), action="append")
    parser.add_argument("--method", choices=tuple(METHODS), action="append")
    parser.add_argument("--peers", action="store_true", help="the peers too")
    parser.add_argument("--window", type=int, default=48, help="training steps")
    parser.add_argument("--pairs", type=int, default=3, help="windows with and without a WAN")
    args = parser.parse_args()
    cases = args.case or ["40ms-100mbit"] if args.quick else args.case or list(CASES)
    window, pairs = (48, 2) if args.quick else (args.window, args.pairs)
    print(f"{'case':18} {'method':18} {'tokens/s':>8}   ratio {'spread':12} bytes/token    hub")
    figures: dict[str, Any] = {}
    for name in cases:
        methods = args.method or (["auto"] if args.quick else CASES[name].methods)
        for method in methods:
            how = method_of(method, CASES[name])
            if METHODS[method] is None:
                print(f"{name:18} {method:18} is {' '.join(_words(how))}")
            speed = speed_of(CASES[name], how, window, pairs)
            _show(method, name, speed)
            figures[f"{name}/{method}"] = {"method": to_builtins(how), **vars(speed)}
        for peer in PEERS if args.peers else ():
            if why := installed(peer):
                print(f"{name:18} {peer:18} left out: {why}")
                continue
            speed = peer_speed(CASES[name], peer, 20, 4)
            _show(peer, name, speed)
            figures[f"{name}/{peer}"] = vars(speed)
    if args.quick:
        figures["tokens_ratio"] = speed.tokens_ratio
        every = math.ceil(speed.interval_steps) or how.every
        told = _words(structs.replace(how, every=every))
        figures["loss_ratio"] = loss_ratio(told, _QUICK_LOSS)
        print(f"tokens_ratio {figures['tokens_ratio']:.3f}, loss_ratio {figures['loss_ratio']:.3f}")
    if args.json:
        print(json.dumps(figures))
    return 0


def _words(how: SiteSync) -> list[str]:
    """Return what ``bench/wan_loss.py`` and ``bench/wan_peers/gridloom_sync.py`` are told."""
    words = ["--kind", how.kind, "--every", str(how.every), "--bits", str(how.bits)]
    if how.kind == "outer":
        words += ["--fragments", str(how.fragments)]
        words += ["--outer-learning-rate", f"{how.outer_learning_rate:g}"]
        words += ["--outer-momentum", f"{how.outer_momentum:g}"]
    return words


if __name__ == "__main__":
    raise SystemExit(main())
