"""What the tests of step times share: a machine of round numbers, models, and free constants."""

import math
from dataclasses import fields, replace
from typing import Any

from gridloom.model.parallel import ParallelPlan, SiteSync
from gridloom.model.transformer import Experts, LatentAttention, Transformer
from gridloom.planner.cases import Cases, MachineColumns, model_columns, plan_columns
from gridloom.planner.constants import Constants

MACHINE = MachineColumns(
    flops_32=1e14,
    flops_16=4e14,
    flops_8=8e14,
    memory_bytes=80e9,
    hbm_bytes_per_s=2e12,
    node=8,
    scaleup_bytes_per_s=400e9,
    network_bytes_per_s=50e9,
    leaf=0,
    spine_share=1.0,
    host_bytes_per_s=20e9,
    sharp=0,
    units=0,
    sites=1,
    wan_bytes_per_s=0.0,
    wan_latency_s=0.0,
)

# Every width is a multiple of 256, so that no tile is padded whichever the cut.
DENSE = Transformer(
    name="dense",
    layers=32,
    hidden=4096,
    ffn=16384,
    heads=32,
    kv_heads=8,
    vocabulary=65536,
)
MIXTURE = Transformer(
    name="mixture",
    layers=24,
    hidden=2048,
    ffn=8192,
    heads=16,
    kv_heads=16,
    vocabulary=32768,
    experts=Experts(count=64, per_token=8, ffn=1024, shared_ffn=2048, dense_layers=4),
)
LATENT = Transformer(
    name="latent",
    layers=16,
    hidden=4096,
    ffn=16384,
    heads=32,
    kv_heads=32,
    vocabulary=65536,
    latent=LatentAttention(
        query_rank=1536, kv_rank=512, rope_size=64, nope_size=128, value_size=128
    ),
)

IDEAL = Constants(
    matrix_share=1.0,
    matrix_share_8=1.0,
    depth_half=0.0,
    middle_tile_share=1.0,
    small_tile_share=1.0,
    unaligned_64_share=1.0,
    unaligned_8_share=1.0,
    row_scale_share=1.0,
    expert_imbalance=1.0,
    small_head=0.0,
    unfused_passes=1.0,
    unfused_kernels=1.0,
    older_attention_share=1.0,
    tensor_latency_s=0.0,
    ring_latency_s=0.0,
    recompute_share=1.0,
    attention_share=math.inf,
    attention_backward=1.0,
    hbm_share=math.inf,
    kernel_s=0.0,
    launch_s=0.0,
    blocking_s=0.0,
    scaleup_share=math.inf,
    network_share=math.inf,
    all_to_all_share=math.inf,
    scaleup_latency_s=0.0,
    network_latency_s=0.0,
    step_fixed_s=0.0,
    jitter=0.0,
)
"""Only matrix products take time, and they reach the peak rate."""

FREE = replace(IDEAL, matrix_share=math.inf, matrix_share_8=math.inf)
"""Nothing takes time."""


def case(
    model: Transformer = DENSE,
    *,
    sequence: int = 4096,
    batch: int = 512,
    machine: dict[str, Any] | None = None,
    **plan: Any,
) -> Cases:
    """Return a case on `MACHINE` with what ``machine`` changes of it."""
    return Cases(
        model=model_columns(model),
        plan=plan_columns(ParallelPlan(**({"micro_batch": 1} | plan))),
        machine=replace(MACHINE, **(machine or {})),
        sequence=sequence,
        global_batch=batch,
    )


def between_sites(every: int = 1, bits: int = 32) -> SiteSync:
    """Return an exchange between sites."""
    return SiteSync(kind="every_step" if every == 1 else "outer", every=every, bits=bits)


def parts(value: object) -> dict[str, float]:
    """Return the fields of a dataclass as floats."""
    return {field.name: float(getattr(value, field.name)) for field in fields(value)}  # type: ignore[arg-type]
