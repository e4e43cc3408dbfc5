"""Seconds of a layer's compute: flops, attention, element-wise traffic and launches, by hand."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.unit.planner.step_cases import DENSE, FREE, IDEAL, LATENT, MIXTURE, case

from gridloom.model.transformer import Transformer
from gridloom.planner.cases import Cases, stack
from gridloom.planner.constants import Constants
from gridloom.planner.kernels import LayerSeconds, layer_seconds, logits_seconds

PEAK = 4e14
MEMORY = 2e12
TOKENS = 4096


def seconds(cases: Cases, constants: Constants, *, expert: bool = False) -> LayerSeconds:
    return layer_seconds(cases, constants, expert=expert)


def flops(model: Transformer, tokens: int = TOKENS) -> float:
    """Return a forward's flops of projections and feed-forward."""
    size = model.width_per_head
    attention = 2 * model.hidden * size * (model.heads + model.kv_heads)
    feed = (2 + model.gated) * model.hidden * model.ffn
    return 2.0 * tokens * (attention + feed)


# --- products


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("micro_batch", [1, 4])
def test_a_layers_products(gated: bool, micro_batch: int) -> None:
    model = msgspec.structs.replace(DENSE, gated=gated)
    found = seconds(case(model, micro_batch=micro_batch), IDEAL)
    expected = flops(model, TOKENS * micro_batch) / PEAK
    assert float(found.forward) == pytest.approx(expected)
    assert float(found.forward) == pytest.approx(expected)
    assert float(found.backward) == pytest.approx(2 * expected)
    assert float(found.core) == 0.0


@pytest.mark.parametrize("cut", [{"tensor": 8}, {"context": 8}, {"tensor": 2, "context": 4}])
def test_tensor_and_context_ranks_share_the_products(cut: dict[str, Any]) -> None:
    whole, part = seconds(case(), IDEAL), seconds(case(**cut), IDEAL)
    assert float(part.forward) == pytest.approx(float(whole.forward) / 8)
    assert float(part.backward) == pytest.approx(float(whole.backward) / 8)


def test_tensor_ranks_beyond_the_key_heads_repeat_them() -> None:
    model = msgspec.structs.replace(DENSE, kv_heads=2)
    two, eight = (float(seconds(case(model, tensor=t), IDEAL).forward) for t in (2, 8))
    keys = 2 * 2.0 * TOKENS * model.hidden * 128 / PEAK
    assert two - keys == pytest.approx(4 * (eight - keys))


def test_experts_work_on_the_tokens_routed_to_them() -> None:
    found = seconds(case(MIXTURE), IDEAL, expert=True)
    attention = 2.0 * TOKENS * 4 * 2048**2
    routed = 2.0 * TOKENS * 8 * 3 * 2048 * 1024
    shared = 2.0 * TOKENS * 3 * 2048 * 2048
    assert float(found.forward) == pytest.approx((attention + routed + shared) / PEAK)
    uneven = seconds(case(MIXTURE), replace(IDEAL, expert_imbalance=1.5), expert=True)
    more = 0.5 * routed / PEAK
    assert float(uneven.forward - found.forward) == pytest.approx(more)
    assert float(uneven.backward - found.backward) == pytest.approx(2 * more)


def test_without_shared_experts_only_the_routed_ones_work() -> None:
    assert MIXTURE.experts is not None
    bare = msgspec.structs.replace(
        MIXTURE, experts=msgspec.structs.replace(MIXTURE.experts, shared_ffn=0)
    )
    found = seconds(case(bare), IDEAL, expert=True)
    expected = 2.0 * TOKENS * (4 * 2048**2 + 8 * 3 * 2048 * 1024)
    assert float(found.forward) == pytest.approx(expected / PEAK)


@pytest.mark.parametrize(
    "cut",
    [
        {"data": 8, "expert": 8},
        {"data": 8, "expert": 8, "micro_batch": 2},
        {"tensor": 2, "data": 8, "expert": 8, "expert_tensor": 2},
        {"tensor": 4, "data": 4, "expert": 16},
    ],
)
def test_spread_experts_do_the_same_work_together(cut: dict[str, Any]) -> None:
    whole = seconds(case(MIXTURE), IDEAL, expert=True)
    part = seconds(case(MIXTURE, **cut), IDEAL, expert=True)
    share = cut.get("micro_batch", 1) / cut.get("tensor", 1)
    assert float(part.forward) == pytest.approx(float(whole.forward) * share)


def test_routed_tokens_are_permuted_there_and_back() -> None:
    there = replace(FREE, permute_passes=4.0, hbm_share=0.5, hidden_passes=0.0, ffn_passes=0.0)
    none = replace(there, permute_passes=0.0)
    with_, without = (seconds(case(MIXTURE), c, expert=True) for c in (there, none))
    moved = 4.0 * TOKENS * 8 * 2048 * 2.0 / (MEMORY * 0.5)
    assert float(with_.forward - without.forward) == pytest.approx(moved)
    assert float(with_.backward - without.backward) == pytest.approx(moved)


def latent_flops(queries: float) -> float:
    keys = 4096 * (512 + 64) + 512 * 32 * (128 + 128)
    return 2.0 * TOKENS * (queries + keys + 32 * 128 * 4096 + 3 * 4096 * 16384)


def test_latent_attention_goes_through_its_latents() -> None:
    queries = 4096 * 1536 + 1536 * 32 * (128 + 64)
    # Widths that no tile divides are padded: 1536 + 512 + 64 columns fill half a tile more.
    free = replace(IDEAL, small_tile_share=1.0)
    found = float(seconds(case(LATENT), free).forward)
    padding = 2.0 * TOKENS * 4096 * 64
    assert found == pytest.approx((latent_flops(queries) + padding) / PEAK)


def test_latent_attention_without_a_latent_of_queries_projects_them_directly() -> None:
    assert LATENT.latent is not None
    direct = msgspec.structs.replace(
        LATENT, latent=msgspec.structs.replace(LATENT.latent, query_rank=0)
    )
    found = float(seconds(case(direct), IDEAL).forward)
    padding = 2.0 * TOKENS * 4096 * 64
    assert found == pytest.approx((latent_flops(4096 * 32 * (128 + 64)) + padding) / PEAK)


# --- attention


CORE = replace(FREE, attention_share=0.5, attention_backward=1.4, hbm_share=1e30)


def test_fused_attention_is_causal() -> None:
    found = seconds(case(), CORE)
    expected = 4.0 * TOKENS * (4096 / 2) * 32 * 128 / (PEAK * 0.5)
    assert float(found.core) == pytest.approx(expected)
    assert float(found.forward) == pytest.approx(expected)
    assert float(found.backward) == pytest.approx(2.5 * 1.4 * expected)


def test_fused_attention_by_kernel_and_head() -> None:
    plain = float(seconds(case(), CORE).core)
    older = replace(CORE, older_attention_share=0.5)
    assert float(seconds(case(), older).core) == pytest.approx(plain)
    assert float(seconds(case(native_attention=False), older).core) == pytest.approx(2 * plain)
    small = replace(CORE, small_head=0.3)
    halved = msgspec.structs.replace(DENSE, heads=64, head_size=64)
    assert float(seconds(case(halved), small).core) == pytest.approx(1.3 * plain)
    wide = msgspec.structs.replace(DENSE, heads=16, head_size=256)
    assert float(seconds(case(wide), small).core) == pytest.approx(plain)
    started = replace(CORE, kernel_s=1e-3)
    assert float(seconds(case(), started).core) == pytest.approx(plain + 2e-3)


def test_windowed_layers_see_their_window() -> None:
    plain = float(seconds(case(), CORE).core)
    windowed = msgspec.structs.replace(DENSE, window=512)
    assert float(seconds(case(windowed), CORE).core) == pytest.approx(plain / 4)
    half = msgspec.structs.replace(DENSE, window=512, full_every=2)
    assert float(seconds(case(half), CORE).core) == pytest.approx(plain * (0.5 + 0.5 / 4))
    wide = msgspec.structs.replace(DENSE, window=100_000)
    assert float(seconds(case(wide), CORE).core) == pytest.approx(plain)
    table = seconds(stack([case(), case(windowed), case(half)]), CORE).core
    assert table == pytest.approx([plain, plain / 4, plain * 0.625])


def test_latent_attention_has_heads_of_two_sizes() -> None:
    found = float(seconds(case(LATENT), CORE).core)
    size = (128 + 64 + 128) / 2
    assert found == pytest.approx(4.0 * TOKENS * 2048 * 32 * size / (PEAK * 0.5))


def test_unfused_attention_computes_and_stores_every_score() -> None:
    plan: dict[str, Any] = {"flash_attention": False, "micro_batch": 2}
    products = seconds(case(**plan), IDEAL)
    expected = 2 * 2.0 * 32 * 2 * 4096 * 4096 * 128 / PEAK
    assert float(products.core) == pytest.approx(expected)
    assert float(products.backward) == pytest.approx(2 * (flops(DENSE, 8192) / PEAK + expected))

    def stored(passes: float) -> LayerSeconds:
        constants = replace(FREE, score_passes=passes, hbm_share=0.5, backward_passes=3.0)
        return seconds(case(**plan), constants)

    traffic = 6.0 * 8192 * 4096 * 32 * 2.0 / (MEMORY * 0.5)
    some, none = stored(6.0), stored(0.0)
    assert float(some.core - none.core) == pytest.approx(traffic)
    assert float(some.backward - none.backward) == pytest.approx(3.0 * traffic)


# --- element-wise kernels


def element_wise(model: Transformer, *, expert: bool = False, **plan: Any) -> tuple[float, float]:
    """Return what passes over wide tensors add to a forward and a backward."""
    with_ = replace(
        FREE, hbm_share=0.5, hidden_passes=10.0, ffn_passes=3.0, cast_passes=2.0,
        backward_passes=2.0, unfused_passes=1.5, permute_passes=0.0,
    )  # fmt: skip
    without = replace(with_, hidden_passes=0.0, ffn_passes=0.0, cast_passes=0.0)
    cases = case(model, **plan)
    some, none = (layer_seconds(cases, c, expert=expert) for c in (with_, without))
    return float(some.forward - none.forward), float(some.backward - none.backward)


STREAM = TOKENS * 4096
INNER = TOKENS * 2 * 16384


@pytest.mark.parametrize(
    ("plan", "numbers", "width"),
    [
        ({}, 10 * STREAM + 3 * INNER, 2),
        ({"precision": "fp32"}, 10 * STREAM + 3 * INNER, 4),
        ({"fused": False}, 1.5 * (10 * STREAM + 3 * INNER), 2),
        ({"tensor": 8}, 10 * STREAM + 3 * INNER / 8, 2),
        ({"tensor": 8, "sequence_parallel": True}, (10 * STREAM + 3 * INNER) / 8, 2),
        ({"context": 4}, (10 * STREAM + 3 * INNER) / 4, 2),
        ({"precision": "fp8"}, 10 * STREAM + 3 * INNER + 2 * (2 * STREAM + INNER), 2),
    ],
)
def test_element_wise_traffic(plan: dict[str, Any], numbers: float, width: int) -> None:
    forward, backward = element_wise(DENSE, **plan)
    expected = numbers * width / (MEMORY * 0.5)
    assert forward == pytest.approx(expected)
    assert backward == pytest.approx(2 * expected)


def test_element_wise_traffic_of_experts() -> None:
    forward, _ = element_wise(MIXTURE, expert=True)
    inner = 2 * (TOKENS * 8 * 1024 + TOKENS * 2048)
    expected = (10 * TOKENS * 2048 + 3 * inner) * 2 / (MEMORY * 0.5)
    assert forward == pytest.approx(expected)


# --- launches


def test_a_tiny_layer_takes_what_the_host_needs_to_launch_it() -> None:
    tiny = msgspec.structs.replace(DENSE, hidden=128, ffn=256, heads=1, kv_heads=1)
    constants = replace(FREE, launch_s=10e-6, layer_kernels=20.0, unfused_kernels=1.5)
    cases = case(tiny, sequence=128)
    found = seconds(cases, constants)
    assert (float(found.forward), float(found.backward)) == pytest.approx((200e-6, 400e-6))
    eager = seconds(case(tiny, sequence=128, fused=False), constants)
    assert (float(eager.forward), float(eager.backward)) == pytest.approx((300e-6, 600e-6))


def test_experts_launch_more_kernels() -> None:
    constants = replace(FREE, launch_s=10e-6, layer_kernels=20.0, expert_kernels=60.0)
    assert float(seconds(case(MIXTURE), constants).forward) == pytest.approx(200e-6)
    assert float(seconds(case(MIXTURE), constants, expert=True).forward) == pytest.approx(800e-6)


def test_the_host_and_the_device_overlap() -> None:
    device = float(seconds(case(), IDEAL).forward)
    # As slow as the device: the smooth maximum is 2 ** (1 / 4) of either.
    equal = replace(IDEAL, launch_s=device / 20.0, layer_kernels=20.0)
    assert float(seconds(case(), equal).forward) == pytest.approx(device * 2**0.25)
    fast = replace(IDEAL, launch_s=device / 200.0, layer_kernels=20.0)
    assert float(seconds(case(), fast).forward) == pytest.approx(device, rel=1e-4)


def test_a_host_that_waits_for_each_kernel_pays_for_each() -> None:
    constants = replace(IDEAL, blocking_s=60e-6, layer_kernels=20.0)
    plain, waits = (seconds(case(blocking_launches=b), constants) for b in (False, True))
    assert float(waits.forward - plain.forward) == pytest.approx(20 * 60e-6)
    assert float(waits.backward - plain.backward) == pytest.approx(2 * 20 * 60e-6)


def test_what_recomputation_by_operator_repeats() -> None:
    # Half of the products, every element-wise kernel, no attention.
    found = seconds(case(), replace(IDEAL, attention_share=0.5))
    assert float(found.operators) == pytest.approx(flops(DENSE) / PEAK / 2)
    some, none = (
        seconds(case(), replace(IDEAL, hbm_share=0.5, hidden_passes=passes, ffn_passes=0.0))
        for passes in (10.0, 0.0)
    )
    assert float(some.operators - none.operators) == pytest.approx(10 * STREAM * 2 / 1e12)
    # Its kernels are launched like any others.
    constants = replace(FREE, launch_s=10e-6, blocking_s=60e-6, layer_kernels=20.0)
    waits = seconds(case(blocking_launches=True), constants)
    assert float(waits.operators) == pytest.approx(20 * 70e-6)


def test_what_attention_adds_to_a_layer() -> None:
    constants = replace(IDEAL, attention_share=0.5, attention_backward=1.4)
    found = seconds(case(), constants)
    assert float(found.attention) == pytest.approx(float(found.core) * (1 + 2.5 * 1.4))
    bound = seconds(case(), replace(constants, launch_s=1.0, layer_kernels=20.0))
    assert float(bound.attention) < 1e-6


# --- logits


@pytest.mark.parametrize(
    ("plan", "peak", "passes"),
    [
        ({}, 4e14, 10.0),
        ({"precision": "fp32"}, 1e14, 10.0),
        ({"precision": "fp8"}, 4e14, 10.0),
        ({"fused": False}, 4e14, 16.0),
    ],
)
@pytest.mark.parametrize("tensor", [1, 8])
def test_logits(plan: dict[str, Any], peak: float, passes: float, tensor: int) -> None:
    constants = Constants(
        matrix_share=0.5, matrix_share_8=0.1, hbm_share=0.8, logit_passes=10.0, unfused_passes=1.6
    )
    found = float(logits_seconds(case(tensor=tensor, **plan), constants))
    logits = TOKENS * 65536 / tensor
    expected = 6.0 * logits * 4096 / (peak * 0.5) + logits * 2.0 * passes / (MEMORY * 0.8)
    assert found == pytest.approx(expected)


def test_a_gain_makes_the_output_layers_product_faster_not_its_loss() -> None:
    plain, quick = Constants(logit_passes=0.0), Constants(logit_passes=0.0, logit_gain=1.25)
    assert float(logits_seconds(case(), plain)) == pytest.approx(
        1.25 * float(logits_seconds(case(), quick))
    )
    lossy = replace(plain, logit_passes=8.0)
    loss = float(logits_seconds(case(), lossy)) - float(logits_seconds(case(), plain))
    gained = replace(lossy, logit_gain=1.25)
    assert float(logits_seconds(case(), gained)) - float(
        logits_seconds(case(), quick)
    ) == pytest.approx(loss)
    for constants in (plain, quick):  # no layer knows of it
        assert float(seconds(case(), constants).forward) == float(seconds(case(), plain).forward)


# --- tables


def test_a_table_of_layers_is_computed_as_each_of_them() -> None:
    each = [
        case(DENSE, tensor=2),
        case(LATENT, flash_attention=False),
        case(msgspec.structs.replace(DENSE, window=1024), precision="fp8", fused=False),
        case(MIXTURE, expert=8, data=8, context=2),
    ]
    for expert in (False, True):
        together = layer_seconds(stack(each), Constants(), expert=expert)
        for index, one in enumerate(each):
            alone = layer_seconds(one, Constants(), expert=expert)
            for part in ("forward", "backward", "core", "operators", "attention"):
                assert np.isclose(getattr(together, part)[index], getattr(alone, part), rtol=1e-12)
