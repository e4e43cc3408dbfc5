"""How fast the scheduling core and the simulator are, each figure beside a peer or a limit.

    python -m bench.core [--quick] [--only SECTION ...] [--philly CSV] [--accasim-python PATH]
        [--million]

Sections: ``philly`` (needs ``--philly``, a log as ``id,submit,duration,gpus`` that may be
compressed with gzip, and, for the peer, ``--accasim-python``, a Python with AccaSim 1.1.3),
``placements``, ``steps``, ``reclaim``, ``curves``; ``--million`` adds a million jobs of a made
workload, which takes long. All in one process and one thread; times are CPU time unless said
otherwise, medians with the range beside them: a shared machine tells little by its clock.
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse  # noqa: E402
import csv  # noqa: E402
import gzip  # noqa: E402
import io  # noqa: E402
import json  # noqa: E402
import random  # noqa: E402
import statistics  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Sequence  # noqa: E402
from pathlib import Path  # noqa: E402

from bench.core_curves import show_curves, show_placements, show_reclaim, show_steps  # noqa: E402
from bench.core_grid import grid, peak_bytes  # noqa: E402

from gridloom.core.machine import Machine  # noqa: E402
from gridloom.core.turn import LeaseTerms  # noqa: E402
from gridloom.model.inventory import Inventory, Node, Site  # noqa: E402
from gridloom.model.policy import POLICIES  # noqa: E402
from gridloom.sim.engine import NEVER_S  # noqa: E402
from gridloom.sim.generate import GeneratorSpec, generate  # noqa: E402
from gridloom.sim.simulation import Simulation  # noqa: E402
from gridloom.sim.terms import SimTerms  # noqa: E402
from gridloom.sim.workload import read  # noqa: E402
from gridloom.sim.workload_nouns import Workload  # noqa: E402

PHILLY_DEVICES = 144
PEER_SHARE_MAX = 0.1
"""The limit: a tenth of the peer's CPU seconds."""


def show_philly(path: Path, peer: str, rounds: int) -> None:
    """Print the CPU seconds of a log of one pool under greedy backfilling, and the peer's."""
    text = _text(path)
    workload = read(text, file=path.name)
    rows = [
        (int(row["submit"]), int(row["duration"]), int(row["gpus"]))
        for row in csv.DictReader(io.StringIO(text))
    ]
    told = json.dumps({"devices": PHILLY_DEVICES, "jobs": rows})
    ours: list[float] = []
    theirs: list[float] = []
    waits: list[float] = []
    wait_s = 0.0
    for _ in range(rounds):
        cpu_s, wait_s = _philly_once(workload)
        ours.append(cpu_s)
        if peer:
            found = _peer_once(peer, told)
            theirs.append(found["cpu_s"])
            waits.append(found["wait_s"])
    print(f"\n## {len(rows):,} jobs on {PHILLY_DEVICES} counted devices, greedy backfilling\n")
    print("| | CPU seconds, reading excluded | average wait |\n|---|---:|---:|")
    print(f"| gridloom | {spread(ours, '.2f')} | {wait_s:,.1f} s |")
    if not peer:
        return
    print(f"| AccaSim | {spread(theirs, '.2f')} | {waits[0]:,.1f} s |")
    shares = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    print(f"| share of a round (limit {PEER_SHARE_MAX:g}) | {spread(shares, '.2f')} | |")


def _philly_once(workload: Workload) -> tuple[float, float]:
    """Return the CPU seconds of one simulation, and the average wait that came of it."""
    begin_s = time.process_time()
    simulation = Simulation(pool(PHILLY_DEVICES), workload.arrivals, seed=0)
    simulation.run()
    cpu_s = time.process_time() - begin_s
    return cpu_s, statistics.fmean(row.wait_s for row in simulation.record.jobs())


def pool(devices: int) -> Inventory:
    """Return a grid whose devices are only counted."""
    node = Node(name="n", address="", accelerator="gpu", count=devices)
    return Inventory(
        sites=(Site(name="pool", kind="simulated", nodes=(node,)),),
        policy=POLICIES["backfill-greedy"],
    )


def _peer_once(python: str, told: str) -> dict[str, float]:
    script = Path(__file__).with_name("core_accasim.py")
    done = subprocess.run(
        (python, str(script)), input=told, capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def show_million(counts: Sequence[int]) -> None:
    """Print what a made workload takes from one end to the other on 100,000 devices."""
    print("\n## Made workloads on 100,000 devices, from one end to the other\n")
    print("| jobs | wall: making them | wall: simulation | jobs/s | steps | peak memory |")
    print("|---:|---:|---:|---:|---:|---:|")
    for count in counts:
        begin_s = time.perf_counter()
        spec = GeneratorSpec(jobs=count, devices=100_000, load=0.8)
        workload = generate(spec, random.Random(0))
        made_s = time.perf_counter() - begin_s
        inventory = Inventory(
            sites=tuple(
                Site(
                    name=site.name,
                    kind="simulated",
                    levels=site.levels,
                    nodes=tuple(
                        Node(name=n.name, address="", accelerator="gpu", count=8, path=n.path)
                        for n in site.nodes
                    ),
                )
                for site in grid(12_500, policy=POLICIES["backfill-greedy"]).sites
            ),
            policy=POLICIES["backfill-greedy"],
        )
        terms = SimTerms(spans=False, keep_over=False)
        machine = Machine(terms=LeaseTerms(lease_s=NEVER_S, forget_over=True))
        begin_s = time.perf_counter()
        simulation = Simulation(inventory, workload.arrivals, seed=0, terms=terms, machine=machine)
        simulation.run()
        ran_s = time.perf_counter() - begin_s
        print(
            f"| {len(simulation.record):,} | {made_s:,.1f} s | {ran_s:,.1f} s |"
            f" {count / ran_s:,.0f} | {simulation.record.steps:,} |"
            f" {peak_bytes() / 2**30:.2f} GiB |",
            flush=True,
        )


def spread(values: Sequence[float], form: str) -> str:
    """Return the median with the least and the most beside it."""
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:{form}} ({least:{form}} to {most:{form}})"


def _text(path: Path) -> str:
    raw = path.read_bytes()
    return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()


def main() -> int:
    parser = argparse.ArgumentParser(description="Figures of the scheduling core.")
    parser.add_argument("--quick", action="store_true", help="few rounds and small grids")
    parser.add_argument("--only", nargs="+", default=[], metavar="SECTION")
    parser.add_argument("--philly", type=Path, metavar="CSV")
    parser.add_argument("--accasim-python", default="", metavar="PATH")
    parser.add_argument("--million", action="store_true")
    given = parser.parse_args()
    sections: dict[str, Callable[[], None]] = {
        "placements": lambda: show_placements(quick=given.quick),
        "steps": lambda: show_steps(quick=given.quick),
        "reclaim": lambda: show_reclaim(quick=given.quick),
        "curves": lambda: show_curves(quick=given.quick),
    }
    if given.philly:
        peer, rounds = given.accasim_python, 1 if given.quick else 5
        sections = {"philly": lambda: show_philly(given.philly, peer, rounds), **sections}
    if given.million:
        counts = (10_000,) if given.quick else (50_000, 1_000_000)
        sections["million"] = lambda: show_million(counts)
    if unknown := [name for name in given.only if name not in sections]:
        print(f"no section {', '.join(unknown)}; there are {', '.join(sections)}", file=sys.stderr)
        return 2
    for name in given.only or sections:
        sections[name]()
    print(f"\nPeak memory of this process: {peak_bytes() / 2**30:.2f} GiB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
