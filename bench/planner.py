"""How fast the planner searches: plans a second, two well-known searches, and how cost grows.

Everything runs in one process with one thread. Each figure is the median of several searches after
a warm-up, with the range beside it. The peers: the planner's own formulas on one plan at a time in
the same run, and Calculon (Isaev et al., SC 2023), which evaluates one configuration at a time in
Python; its figure was taken once on such a machine and is printed for reference, not measured here.
"""

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import combinations

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

from gridloom.planner.catalogue import accelerator  # noqa: E402
from gridloom.planner.costs import cost_model  # noqa: E402
from gridloom.planner.models.presets import preset  # noqa: E402
from gridloom.planner.pools import Pool, PoolLink, PoolSpace  # noqa: E402
from gridloom.planner.pools_search import search_pools  # noqa: E402
from gridloom.planner.search import Found, Goal, search  # noqa: E402
from gridloom.planner.search_grid import blocks, cases_of, grid  # noqa: E402
from gridloom.planner.search_space import NODE_SHARD, SearchSpace  # noqa: E402
from gridloom.planner.shipped import SHIPPED  # noqa: E402
from gridloom.planner.verdict import least_hardware, why_not  # noqa: E402

ROUNDS = 5
CALCULON_PLANS_PER_CPU_S = 79
BY_FAMILY = {family: cost_model(SHIPPED.constants(family)) for family in SHIPPED.families}
COSTS = BY_FAMILY["h100"]
BOTH = (False, True)

LLAMA = SearchSpace(
    model=preset("llama-3.1-405b"),
    accelerator=accelerator("h100"),
    devices=(16384,),
    global_batch=2048,
    sequence=8192,
)
LLAMA_WIDE = replace(
    LLAMA,
    shard=(0, NODE_SHARD),
    recompute_layers=(0, 1, 2, 4),
    precision=("bf16", "fp8"),
    overlap_tensor=BOTH,
    overlap_gradients=BOTH,
    overlap_parameters=BOTH,
)
# What Calculon's README searches: 5,128 A100, a batch of at most 2,520, fp16, and its knobs: splits
# of tensor, pipeline and data, interleaving, micro-batch, recomputation, sequence-parallel
# collectives or all-reduces, sharding of the optimizer, overlap of both, offload of weights (with
# their gradients), activations and optimizer, each or all.
PARTS = (("parameters", "gradients"), ("activations",), ("optimizer",))
OFFLOAD = tuple(
    tuple(name for part in parts for name in part)
    for count in range(4)
    for parts in combinations(PARTS, count)
)
TURING = SearchSpace(
    model=preset("mt-nlg-530b"),
    accelerator=accelerator("a100"),
    devices=(5128,),
    global_batch=2520,
    sequence=2048,
    batch_at_most=True,
    uneven_stages=False,
    context=(1,),
    zero=(0, 1),
    precision=("fp16",),
    offload=OFFLOAD,  # type: ignore[arg-type]
    overlap_gradients=BOTH,
    overlap_tensor=BOTH,
)


def timed(work: Callable[[], object], rounds: int = ROUNDS) -> tuple[float, float, float]:
    """Return the median, least and most seconds of ``work``; after a warm-up, unless run once."""
    if rounds > 1:
        work()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), min(seconds), max(seconds)


def show_rate() -> None:
    """Print plans a second where every plan's memory and time are computed."""
    roomy = Goal(memory_share=1e9)
    plans = search(LLAMA, COSTS, roomy).counts.fitting
    middle, least, most = timed(lambda: search(LLAMA, COSTS, roomy))
    print(
        f"memory and time of every plan: {plans / middle:,.0f} plans/s on one core"
        f" ({plans / most:,.0f} to {plans / least:,.0f}; {plans:,} plans)"
    )
    table = grid(LLAMA)
    block = next(blocks(table))
    some = [(int(d), int(k)) for d, k in zip(*block.pairs, strict=True)][::97][:100]
    rows = [(table.plan(*one), int(table.degrees["global_batch"][one[0]])) for one in some]

    def one_by_one() -> None:
        for plan, batch in rows:
            cases = cases_of(LLAMA, plan, batch)
            COSTS.memory_bytes(cases)
            COSTS.step_s(cases)

    alone = len(rows) / timed(one_by_one)[0]
    print(
        f"  the same formulas, one plan at a time: {alone:,.0f} plans/s"
        f" ({plans / middle / alone:,.0f} times fewer)"
    )
    print(
        f"  Calculon, for reference: {CALCULON_PLANS_PER_CPU_S} configurations per CPU second"
        f" ({plans / middle / CALCULON_PLANS_PER_CPU_S:,.0f} times fewer)"
    )


def show_search(title: str, space: SearchSpace, limit_s: float) -> None:
    """Print one search: counts, time, and what it found."""
    found: list[Found] = []
    middle, least, most = timed(
        lambda: found.append(search(space, BY_FAMILY[space.accelerator.family]))
    )
    counts = found[-1].counts
    print(f"{title}: {middle:.3f} s ({least:.3f} to {most:.3f}; limit {limit_s:g} s)")
    pruned = sum(counts.pruned.values())
    print(
        f"  asked {counts.asked:,} = pruned {pruned:,} + evaluated {counts.evaluated:,};"
        f" fitting {counts.fitting:,}; {counts.evaluated / middle:,.0f} plans/s"
    )
    reasons = sorted(counts.pruned.items(), key=lambda item: -item[1])
    print("  pruned by " + ", ".join(f"{rule} {number:,}" for rule, number in reasons))
    if not found[-1].plans:
        leanest = found[-1].leanest
        assert leanest is not None
        print(f"  nothing fits; the leanest plan needs {leanest.memory_bytes / 1e9:.0f} GB")
        return
    best = found[-1].plans[0]
    print(
        f"  best: tensor {best.plan.tensor}, pipeline {best.plan.pipeline} x"
        f" {best.plan.virtual_stages}, context {best.plan.context}, data {best.plan.data},"
        f" micro-batch {best.plan.micro_batch}, {best.step_s:.2f} s a step,"
        f" {best.memory_bytes / 1e9:.0f} GB"
    )


def show_growth() -> None:
    """Print how the cost of a search grows with devices and with candidates."""
    print("| devices | evaluated | fitting | seconds | plans/s |\n|---:|---:|---:|---:|---:|")
    for devices in (64, 512, 4096, 16384, 65536, 131072):
        row(f"{devices:,}", replace(LLAMA, devices=(devices,)))
    row("512 to 16,384, by 512", replace(LLAMA, devices=tuple(range(512, 16385, 512))))
    print("| knobs | evaluated | fitting | seconds | plans/s |\n|---|---:|---:|---:|---:|")
    space = LLAMA
    row("as above", space)
    for title, changes in (
        ("+ groups of a node", {"shard": (0, NODE_SHARD)}),
        ("+ overlap on and off", {"overlap_gradients": BOTH, "overlap_tensor": BOTH}),
        ("+ fp8", {"precision": ("bf16", "fp8")}),
        ("+ some layers recomputed", {"recompute_layers": (0, 1, 2, 4)}),
        ("+ offload", {"offload": OFFLOAD}),
    ):
        space = replace(space, **changes)
        row(title, space, rounds=1)


def row(title: str, space: SearchSpace, rounds: int = 3) -> None:
    found: list[Found] = []
    middle, _, _ = timed(
        lambda: found.append(search(space, BY_FAMILY[space.accelerator.family])), rounds
    )
    counts = found[-1].counts
    print(
        f"| {title} | {counts.evaluated:,} | {counts.fitting:,} | {middle:.3f} |"
        f" {counts.evaluated / middle:,.0f} |"
    )


def show_questions() -> None:
    """Print what the other questions take: why not, least hardware, several sites."""
    middle, _, _ = timed(lambda: why_not(LLAMA, {"tp": 8, "pp": 1}, COSTS), 3)
    print(f"why not tp=8,pp=1 (405B on 16,384 H100): {middle:.2f} s")
    middle, _, _ = timed(lambda: least_hardware(LLAMA, COSTS), 3)
    found = least_hardware(LLAMA, COSTS)
    assert found is not None
    print(f"least hardware for 405B on H100: {found.devices} devices, {middle:.2f} s")
    asked = PoolSpace(
        space=replace(
            LLAMA, model=preset("llama-3.1-70b"), global_batch=512, context=(1,), zero=(1,)
        ),
        pools=(
            Pool(name="a", site="x", accelerator=accelerator("h100"), count=256),
            Pool(name="b", site="y", accelerator=accelerator("a100"), count=256),
            Pool(name="c", site="z", accelerator=accelerator("h20"), count=128),
        ),
        links=tuple(
            PoolLink(between=pair, bytes_per_s=12.5e9, latency_s=0.01)
            for pair in (("x", "y"), ("x", "z"), ("y", "z"))
        ),
        costs=COSTS,
    )
    for way in ("replicas", "stages"):
        one = replace(asked, ways=(way,))
        middle, _, _ = timed(partial(search_pools, one), 3)
        compared = search_pools(one).compared
        print(f"three pools, {way}: {middle:.2f} s, {compared} choices of pools compared")


def main() -> None:
    show_rate()
    show_search("Calculon's example, 530B on 5,128 A100", TURING, 1.0)
    show_search("the same on 2,240 A100, as it was trained", replace(TURING, devices=(2240,)), 1.0)
    show_search("Llama 3.1 405B on 16,384 H100", LLAMA, 5.0)
    show_search("the same with all of 131,072 tokens", _long(LLAMA), 5.0)
    show_search("Llama 3.1 405B on 16,384 H100, every knob", LLAMA_WIDE, 5.0)
    show_growth()
    show_questions()


def _long(space: SearchSpace) -> SearchSpace:
    return replace(space, sequence=131072, global_batch=128)


if __name__ == "__main__":
    main()
