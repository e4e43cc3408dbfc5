"""What is exported is read by the frameworks' own parsers, and understood as the plan means it."""

import hashlib
import json
import os
import shutil
import site
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gridloom.model.parallel import Offload, ParallelPlan
from gridloom.model.transformer import Experts, LatentAttention, Transformer
from gridloom.planner.frameworks import accelerate, common, deepspeed, megatron, torchtitan
from gridloom.planner.frameworks.common import Goal

pytestmark = [pytest.mark.bed, pytest.mark.timeout(600)]

BED = Path(__file__).parent
REQUIREMENTS = BED / "framework-requirements.txt"
PLACE = BED.parents[1] / ".venv-frameworks"
TITANS = {"torchtitan-toml": "0.2.2", "torchtitan-arguments": "0.3.0"}
TRANSFORMERS = "transformers==5.24.0"  # Accelerate asks for its release before it cuts matrices
HOST: tuple[Offload, ...] = ("optimizer", "gradients", "parameters")

DENSE = Transformer(
    name="", layers=32, hidden=4096, ffn=14336, heads=32, kv_heads=8, vocabulary=128256
)
SPARSE = replace(
    DENSE,
    experts=Experts(count=64, per_token=6, ffn=1408, shared_ffn=2816, dense_layers=1),
    latent=LatentAttention(query_rank=0, kv_rank=512, rope_size=64, nope_size=128, value_size=128),
    kv_heads=32,
    prediction_layers=1,
)
GOAL = Goal(sequence_length=8192, global_batch=256, tokens=8192 * 256 * 1000)


@pytest.fixture(scope="session")
def python() -> Path:
    """The interpreter of an environment with the frameworks; made once, then used again."""
    made = hashlib.sha256(
        REQUIREMENTS.read_bytes() + f"{TITANS}{TRANSFORMERS}{sys.version}{sys.prefix}".encode()
    ).hexdigest()
    mark = PLACE / "made"
    interpreter = PLACE / "bin" / "python"
    if mark.is_file() and mark.read_text() == made:
        return interpreter
    shutil.rmtree(PLACE, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", PLACE], check=True)
    ours = PLACE / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    # Torch weighs hundreds of megabytes: it is taken from where the tests run
    paths = "\n".join(site.getsitepackages())
    (ours / "site-packages" / "torch-of-the-tests.pth").write_text(paths)
    pip: list[str | Path] = [
        interpreter,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    steps = [
        [*pip, "setuptools", "wheel"],
        [*pip, "--no-build-isolation", "--requirement", REQUIREMENTS],
        [*pip, "--no-deps", TRANSFORMERS],
        *(
            [*pip, "--no-deps", "--target", PLACE / name, f"torchtitan=={release}"]
            for name, release in TITANS.items()
        ),
    ]
    for step in steps:
        done = subprocess.run(
            step,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"DS_BUILD_OPS": "0", "DS_ACCELERATOR": "cpu"},
        )
        if done.returncode:
            pytest.skip(f"pip cannot install the frameworks: {done.stderr.strip()[-500:]}")
    mark.write_text(made)
    return interpreter


def probe(python: Path, framework: str, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [python, BED / "framework_probe.py", framework],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(PLACE / framework), "HOME": str(PLACE)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


DEEPSPEED = [
    (DENSE, ParallelPlan(data=8, zero=3, micro_batch=2)),
    (DENSE, ParallelPlan(data=4, context=4, zero=3, overlap_parameters=False, recompute="full")),
    (DENSE, ParallelPlan(tensor=4, data=4, zero=2, overlap_parameters=False, precision="fp16")),
    (DENSE, ParallelPlan(data=8, zero=3, offload=HOST, gradient_bytes=4)),
    (DENSE, ParallelPlan(data=8, zero=3, optimizer="lamb", precision="fp32")),
    (DENSE, ParallelPlan(data=8, zero=2, optimizer="muon", overlap_parameters=False)),
    (DENSE, ParallelPlan(data=8, zero=3, precision="bf16_pure", overlap_gradients=False)),
    (SPARSE, ParallelPlan(data=16, expert=8, zero=1, overlap_gradients=False,
                          overlap_parameters=False)),
    (SPARSE, ParallelPlan(data=4, tensor=2, expert=4, zero=3)),
    (DENSE, ParallelPlan(data=8, zero=3, recompute="full", offload=("activations",))),
]  # fmt: skip


def test_deepspeed_reads_the_plan(python: Path) -> None:
    cases = [
        {
            "config": deepspeed.to_config(model, plan, GOAL),
            "ranks": plan.world_size,
            "data": plan.data,
        }
        for model, plan in DEEPSPEED
    ]
    for (model, given), found in zip(DEEPSPEED, probe(python, "deepspeed", cases), strict=True):
        plan = deepspeed.settled(model, given, GOAL)
        wide = plan.precision in {"fp16", "bf16"} and common.gradient_bytes(plan) == 4
        assert found == {
            "data": plan.data,
            "global_batch": 256,
            "micro_batch": plan.micro_batch,
            "steps": 256 // plan.data // plan.micro_batch,
            "zero": plan.zero,
            "overlap": plan.overlap_gradients,
            "prefetch": plan.zero < 3 or plan.overlap_parameters,
            "offload": ["optimizer" in plan.offload, "parameters" in plan.offload],
            "bf16": plan.precision.startswith("bf16"),
            "fp16": plan.precision == "fp16",
            "pure": plan.precision == "bf16_pure",
            "gradients": "fp32" if wide else None,
            "optimizer": plan.optimizer,
            "tensor": plan.tensor if plan.tensor > 1 else 0,
            "expert": plan.expert,
            "inputs": "activations" in plan.offload,
        }, plan


ACCELERATE = [
    (DENSE, ParallelPlan(data=16, zero=3, recompute="full")),
    (DENSE, ParallelPlan(data=16, zero=2, shard=8, precision="fp16")),
    (DENSE, ParallelPlan(data=8, tensor=2, context=2, zero=3)),
    (DENSE, ParallelPlan(data=8, context=2, zero=3, shard=8, precision="fp8")),
    (DENSE, ParallelPlan(data=8, zero=3, recompute="full", offload=(*HOST, "activations"))),
    (DENSE, ParallelPlan(data=8, precision="fp32")),
    (DENSE, ParallelPlan(precision="fp32")),
]


def test_accelerate_reads_the_plan(python: Path) -> None:
    cases = [{"text": accelerate.to_yaml(model, plan, GOAL)} for model, plan in ACCELERATE]
    for (model, given), found in zip(ACCELERATE, probe(python, "accelerate", cases), strict=True):
        plan = accelerate.settled(model, given, GOAL)
        shards = common.shard_ranks(plan) // plan.context
        expected: dict[str, Any] = {
            "processes": plan.world_size,
            "machines": -(-plan.world_size // 8),
            "kind": "FSDP" if plan.zero else "MULTI_GPU" if plan.data > 1 else "NO",
            "precision": "no" if plan.precision == "fp32" else plan.precision,
        }
        if plan.precision == "fp8":
            expected["precision"] = "fp8 AO"
        elif plan.zero:
            expected |= {
                "reshard": plan.zero == 3,
                "version": 2,
                "offload": "parameters" in plan.offload,
                "recompute": plan.recompute == "full",
                "inputs": "activations" in plan.offload,
                "sizes": [plan.data // shards, shards, plan.tensor, plan.context],
            }
        assert found == expected, plan


TITAN = [
    (DENSE, ParallelPlan(data=16, zero=3, recompute="full")),
    (DENSE, ParallelPlan(data=8, tensor=4, zero=2, shard=4, overlap_tensor=True, fused=False)),
    (DENSE, ParallelPlan(data=4, context=2, tensor=2, zero=3, offload=HOST, loss="fused")),
    (DENSE, ParallelPlan(data=4, pipeline=4, zero=2, micro_batch=2, recompute="operators")),
    (DENSE, ParallelPlan(data=4, pipeline=4, zero=3, micro_batch=1, schedule="interleaved",
                         virtual_stages=4)),
    (DENSE, ParallelPlan(data=4, pipeline=2, zero=3, micro_batch=4, schedule="zero_bubble")),
    (DENSE, ParallelPlan(tensor=2, precision="bf16_pure", fused=False)),
    (SPARSE, ParallelPlan(data=16, tensor=2, expert=16, zero=3)),
    (DENSE, ParallelPlan(data=8)),
]  # fmt: skip
TITAN_TOML = [
    *TITAN,
    (DENSE, ParallelPlan(data=4, pipeline=3, zero=2, micro_batch=2)),
    (DENSE, ParallelPlan(data=4, pipeline=2, zero=2, stage_layers=(17, 15))),
    (DENSE, ParallelPlan(data=8, zero=3, precision="fp8_rowwise")),
    (DENSE, ParallelPlan(data=8, zero=3, precision="fp8")),
    (SPARSE, ParallelPlan(data=8, tensor=2, expert=4, expert_tensor=2, zero=3)),
]


def titan(model: Transformer, given: ParallelPlan) -> dict[str, Any]:
    """What both releases of torchtitan must have understood."""
    plan = torchtitan.settled(model, given, GOAL)
    shards = common.shard_ranks(plan) // plan.context if plan.zero else 1
    names = {"1f1b": "1F1B", "interleaved": "Interleaved1F1B", "zero_bubble": "ZBVZeroBubble"}
    piped = plan.pipeline > 1
    own = 256 // plan.data
    width = "float32" if plan.precision == "fp32" else "bfloat16"
    compiled = [p for p, on in (("model", plan.fused), ("loss", plan.loss == "fused")) if on]
    return {
        "degrees": [
            plan.data // shards,
            shards,
            plan.context,
            plan.tensor,
            plan.pipeline,
            plan.expert,
        ],
        "schedule": names[plan.schedule],
        "reshard": "never" if plan.zero == 2 else "always",
        "batches": [256, own if piped else plan.micro_batch, plan.micro_batch if piped else 1],
        "sequence": 8192,
        "steps": 1000,
        "precision": [width, "bfloat16" if plan.precision == "bf16_pure" else "float32"],
        "offload": bool(plan.offload),
        "compiled": compiled,
        "async": plan.overlap_tensor,
    }


def test_torchtitan_reads_the_toml(python: Path) -> None:
    cases = [
        {
            "text": torchtitan.to_toml(model, plan, GOAL),
            "ranks": plan.world_size,
            "sequence": 8192,
        }
        for model, plan in TITAN_TOML
    ]
    found = probe(python, "torchtitan-toml", cases)
    for (model, given), read in zip(TITAN_TOML, found, strict=True):
        plan = torchtitan.settled(model, given, GOAL)
        modules = read.pop("modules", None)
        mode = "selective" if plan.recompute == "operators" else plan.recompute
        eight = plan.precision.startswith("fp8")
        recipe = "rowwise" if plan.precision == "fp8_rowwise" else "tensorwise"
        assert read == titan(model, given) | {
            "recompute": [mode, "op" if mode == "selective" else "2"],
            "converters": ["quantize.linear.float8"] if eight else [],
            "recipe": recipe if eight else None,
        }, plan
        names = [name for part in modules or [] for name in part]
        layers = [f"layers.{number}" for number in range(model.layers)]
        assert names == (["tok_embeddings", *layers, "norm", "output"] if plan.pipeline > 1 else [])


def test_torchtitan_reads_the_arguments(python: Path) -> None:
    cases = [
        {"words": torchtitan.to_arguments(model, plan, GOAL), "ranks": plan.world_size}
        for model, plan in TITAN
    ]
    found = probe(python, "torchtitan-arguments", cases)
    policies = {"none": None, "operators": "SelectiveAC.Config", "full": "FullAC.Config"}
    for (model, given), read in zip(TITAN, found, strict=True):
        plan = torchtitan.settled(model, given, GOAL)
        chunks = 2 if plan.schedule == "zero_bubble" else plan.virtual_stages
        stage = model.layers // plan.pipeline // chunks if plan.pipeline > 1 else None
        expected = {"recompute": policies[plan.recompute], "stage": stage}
        assert read == titan(model, given) | expected, plan


MEGATRON = [
    (DENSE, ParallelPlan(tensor=8, data=4, sequence_parallel=True, zero=1, overlap_tensor=True)),
    (DENSE, ParallelPlan(data=8, pipeline=4, micro_batch=1, schedule="interleaved",
                         virtual_stages=4, zero=1, recompute="full", recompute_layers=4)),
    (DENSE, ParallelPlan(data=4, pipeline=4, micro_batch=1, stage_layers=(7, 9, 9, 7))),
    (DENSE, ParallelPlan(data=4, pipeline=4, micro_batch=1, stage_layers=(9, 9, 8, 6))),
    (replace(SPARSE, layers=61), ParallelPlan(data=4, pipeline=8, micro_batch=1)),
    (SPARSE, ParallelPlan(tensor=2, data=16, expert=8, sequence_parallel=True, zero=1)),
    (DENSE, ParallelPlan(data=8, zero=3, precision="bf16", recompute="selective")),
    (DENSE, ParallelPlan(data=8, zero=1, offload=("optimizer",))),
    (DENSE, ParallelPlan(data=8, offload=("activations",), precision="fp16")),
    (replace(DENSE, window=4096, full_every=4, qk_norm="head", qkv_bias=True),
     ParallelPlan(data=8, context=2, zero=1, shard=8)),
]  # fmt: skip

TRAINING_ONLY = {
    # Of Megatron-LM's training loop (`megatron/training/arguments.py`), not of Megatron-Core
    "ckpt_format", "cross_entropy_fusion_impl", "cross_entropy_loss_fusion", "global_batch_size",
    "grad_reduce_in_bf16", "group_query_attention", "max_position_embeddings", "micro_batch_size",
    "multi_latent_attention", "position_embedding_type", "seq_length", "swiglu", "train_samples",
    "untie_embeddings_and_output_weights", "vocab_size", "overlap_grad_reduce",
    "use_distributed_optimizer", "bias_activation_fusion", "pipeline_dtype",
}  # fmt: skip


def test_megatron_core_accepts_the_arguments(python: Path) -> None:
    cases = [
        {"words": megatron.to_arguments(model, plan, GOAL), "pipeline": plan.pipeline}
        for model, plan in MEGATRON
    ]
    for (model, given), read in zip(MEGATRON, probe(python, "megatron", cases), strict=True):
        plan = megatron.settled(model, given, GOAL)
        assert "refused" not in read, (plan, read)
        assert set(read.pop("unknown")) <= TRAINING_ONLY, plan
        method = None
        if plan.recompute == "full":
            method = "block" if plan.recompute_layers else "uniform"
        strategies = ["no_shard", "no_shard", "optim_grads", "optim_grads_params"]
        assert read == {
            "layers": list(common.stages(model, plan)),
            "chunks": plan.virtual_stages,
            "heads": [model.heads, model.kv_heads, model.width_per_head],
            "widths": [model.hidden, model.ffn],
            "experts": model.experts.count if model.experts else 0,
            "ranks": [plan.tensor, plan.pipeline, plan.context, plan.expert],
            "recompute": [plan.recompute if plan.recompute != "none" else None, method],
            "sharding": strategies[plan.zero],
        }, plan
