"""Runs as a table would hold them, and a varied table of runs that known constants made."""

import random
from typing import Any

import numpy as np
from msgspec import structs

from gridloom.model.parallel import ParallelPlan
from gridloom.model.transformer import Transformer
from gridloom.planner.calibration import Calibration, predicted_s
from gridloom.planner.catalogue import ACCELERATORS
from gridloom.planner.hardware import Fabric
from gridloom.planner.priors import PRIORS
from gridloom.planner.published import Run

MODEL = Transformer(
    name="model",
    layers=32,
    hidden=4096,
    ffn=14336,
    heads=32,
    kv_heads=8,
    vocabulary=128256,
)
PLAN = ParallelPlan(tensor=2, data=4, zero=1, micro_batch=1)
RUN = Run(
    id="run",
    group="group",
    label="model",
    program="a program",
    model=MODEL,
    plan=PLAN,
    accelerator=ACCELERATORS["h100"],
    fabric=Fabric(),
    devices=8,
    sequence=4096,
    global_batch=64,
    grade="A",
    step_s=10.0,
)

# As far from the priors as a real cluster may be.
TRUTH = Calibration(
    shared={name: prior.value for name, prior in PRIORS.items()}
    | {
        "matrix_share": 0.75,
        "attention_share": 0.42,
        "hbm_share": 0.78,
        "network_share": 0.55,
        "scaleup_share": 0.65,
        "hidden_passes": 14.0,
        "step_fixed_s": 0.013,
    },
    families={
        "a100": {"matrix_share": 1.08, "attention_share": 1.05, "hbm_share": 0.97},
        "h100": {"matrix_share": 0.92, "attention_share": 0.96, "hbm_share": 1.04},
    },
)

SIZES = ((24, 2048, 16), (32, 4096, 32), (40, 5120, 40), (64, 8192, 64))


def varied_runs(count: int = 60, seed: int = 3) -> list[Run]:
    """Return runs of two families in six groups, with the step times that `TRUTH` predicts."""
    rng = random.Random(seed)
    runs = [_varied(rng, index) for index in range(count)]
    times = predicted_s(TRUTH, runs)
    return [timed(run, step_s) for run, step_s in zip(runs, times, strict=True)]


def timed(run: Run, step_s: float, **changes: Any) -> Run:
    """Return ``run`` with another step time."""
    fields = {name: getattr(run, name) for name in run.__dataclass_fields__}
    return Run(**fields | {"step_s": float(step_s)} | changes)


def relative(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return absolute relative errors."""
    return np.asarray(np.abs(np.asarray(found) / np.asarray(wanted) - 1.0))


def _varied(rng: random.Random, index: int) -> Run:
    layers, hidden, heads = SIZES[rng.randrange(len(SIZES))]
    model = structs.replace(
        MODEL, layers=layers, hidden=hidden, heads=heads, kv_heads=8, ffn=7 * hidden // 2
    )
    tensor, pipeline = rng.choice((1, 2, 4, 8)), rng.choice((1, 1, 2, 4))
    data, micro_batch = rng.choice((2, 4, 8, 16)), rng.choice((1, 2))
    zero = rng.choice((0, 1, 2, 3)) if pipeline == 1 else rng.choice((0, 1))
    plan = ParallelPlan(
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        zero=zero,  # type: ignore[arg-type]
        micro_batch=micro_batch,
        sequence_parallel=tensor > 1,
        recompute=rng.choice(("none", "selective", "full")),
        flash_attention=rng.random() < 0.8,
    )
    kind = ("a100", "h100")[index % 2]
    return Run(
        id=f"run-{index}",
        group=f"{kind}-{index % 3}",
        label="model",
        program="a program",
        model=model,
        plan=plan,
        accelerator=ACCELERATORS[kind],
        fabric=Fabric(),
        devices=plan.world_size,
        sequence=rng.choice((1024, 2048, 8192)),
        global_batch=data * micro_batch * rng.choice((4, 8, 16)),
        grade="A",
    )
