"""What the backward needs, against published formulas and against tensors counted by hand."""

import dataclasses
from typing import Any

import pytest
from tests.unit.planner.memory_machine import MACHINE

from gridloom.model.parallel import ParallelPlan
from gridloom.model.transformer import Experts, LatentAttention, Transformer
from gridloom.planner import activations
from gridloom.planner.activations import LayerActivations
from gridloom.planner.cases import Cases, model_columns, plan_columns

GIB = 2**30


def gpt(layers: int, hidden: int, heads: int, **more: Any) -> Transformer:
    """A GPT as in Korthikanti et al. (2022): feed-forward of four widths, no gate, 51200 words."""
    return Transformer(
        name="gpt",
        layers=layers,
        hidden=hidden,
        ffn=4 * hidden,
        heads=heads,
        kv_heads=heads,
        vocabulary=51200,
        gated=False,
        tied=True,
        norm="layer",
        **more,
    )


def case(model: Transformer, sequence: int = 2048, batch: int = 512, **plan: Any) -> Cases:
    return Cases(
        model=model_columns(model),
        plan=plan_columns(ParallelPlan(**plan)),
        machine=MACHINE,
        sequence=sequence,
        global_batch=batch,
    )


def old(**plan: Any) -> dict[str, Any]:
    """The kernels of 2022: dropout, and scores that are stored."""
    return {"precision": "fp16", "dropout": True, "flash_attention": False} | plan


S, B, H, A = 2048, 4, 6144, 64
SBH = S * B * H
MODEL = gpt(48, H, A)


@pytest.mark.parametrize("t", [1, 2, 8])
def test_a_layer_with_tensor_parallelism_is_korthikantis_equation_2(t: int) -> None:
    found = activations.whole(case(MODEL, **old(tensor=t, micro_batch=B)))
    assert found.of_dense() == pytest.approx(SBH * (10 + 24 / t + 5 * A * S / (H * t)))


@pytest.mark.parametrize("t", [1, 2, 8])
def test_sequence_parallelism_shares_the_rest_too(t: int) -> None:
    found = activations.whole(case(MODEL, **old(tensor=t, micro_batch=B, sequence_parallel=True)))
    assert found.of_dense() == pytest.approx(SBH / t * (34 + 5 * A * S / H))


def test_selective_recomputation_drops_the_scores() -> None:
    plan = old(tensor=8, micro_batch=B, sequence_parallel=True, recompute="selective")
    assert activations.kept(case(MODEL, **plan)).of_dense() == pytest.approx(34 * SBH / 8)


def test_parts_of_a_layer_are_those_of_the_paper() -> None:
    found = activations.whole(case(MODEL, **old(micro_batch=B)))
    assert found.attention == pytest.approx(11 * SBH + 5 * A * S * S * B)
    assert (found.ffn, found.norms) == (19 * SBH, 4 * SBH)


@pytest.mark.parametrize(
    ("model", "plan", "share"),
    [  # Korthikanti et al. (2022), figure 7: percent of the tensor-parallel baseline
        (gpt(48, 6144, 64), {"micro_batch": 4}, (66.84, 49.42, 16.18, 7.64)),
        (gpt(96, 12288, 96), {"micro_batch": 1}, (62.04, 56.53, 18.49, 8.71)),
        (gpt(105, 20480, 128), {"micro_batch": 1}, (58.31, 62.04, 20.27, 9.42)),
        (gpt(128, 25600, 160), {"micro_batch": 1}, (58.31, 62.04, 20.27, 9.42)),
    ],
)
def test_figure_7(model: Transformer, plan: dict[str, Any], share: tuple[float, ...]) -> None:
    def layer(**more: Any) -> float:
        return float(activations.kept(case(model, **old(tensor=8, **plan, **more))).of_dense())

    whole = layer()
    stream = activations.stream_bytes(case(model, **old(tensor=8, **plan)))
    found = (
        layer(sequence_parallel=True),
        layer(recompute="selective"),
        layer(sequence_parallel=True, recompute="selective"),
        stream,
    )
    # The figure was read off a picture: half a point each way.
    assert [100 * each / whole for each in found] == pytest.approx(share, abs=0.75)


@pytest.mark.parametrize(
    ("model", "plan", "plain_gib", "small_gib"),
    [  # Korthikanti et al. (2022), figure 1: first stage, without and with both measures
        (gpt(48, 6144, 64), {"micro_batch": 4}, 59.25, 9.5625),
        (
            gpt(96, 12288, 96),
            {"pipeline": 8, "virtual_stages": 3, "schedule": "interleaved", "micro_batch": 1},
            66.84375,
            12.3515625,
        ),
        (
            gpt(105, 20480, 128),
            {"pipeline": 35, "virtual_stages": 3, "schedule": "interleaved", "micro_batch": 1},
            114.0234375,
            23.076171875,
        ),
        (gpt(128, 25600, 160), {"pipeline": 64, "micro_batch": 1}, 131.25, 26.5625),
    ],
)
def test_figure_1(
    model: Transformer, plan: dict[str, Any], plain_gib: float, small_gib: float
) -> None:
    def first_stage(**more: Any) -> float:
        cases = case(model, batch=4096, **old(tensor=8, **plan, **more))
        layers = model.layers / cases.plan.pipeline
        held = activations.layers_in_flight(cases, layers, 0)
        return float(held * activations.kept(cases).of_dense()) / GIB

    assert first_stage() == pytest.approx(plain_gib, rel=1e-3)
    assert first_stage(sequence_parallel=True, recompute="selective") == pytest.approx(
        small_gib, rel=1e-3
    )


@pytest.mark.parametrize(("p", "v"), [(8, 3), (4, 2), (35, 3)])
def test_interleaving_holds_the_papers_factor_more(p: int, v: int) -> None:
    cases = case(MODEL, batch=10**4, pipeline=p, virtual_stages=v, schedule="interleaved")
    held = activations.layers_in_flight(cases, 12.0, 0)
    assert held == pytest.approx(12 * p * (1 + (p - 1) / (p * v)))


def test_stages_hold_one_micro_batch_less_each_and_never_more_than_there_are() -> None:
    cases = case(MODEL, batch=64, pipeline=8)
    held = [float(activations.layers_in_flight(cases, 1.0, index)) for index in range(8)]
    assert held == [8, 7, 6, 5, 4, 3, 2, 1]
    few = case(MODEL, batch=3, pipeline=8)
    assert [float(activations.layers_in_flight(few, 1.0, i)) for i in (0, 4, 6)] == [3, 3, 2]
    few = case(MODEL, batch=1, pipeline=4, virtual_stages=2, schedule="interleaved")
    assert activations.layers_in_flight(few, 2.0, 0) == 2.0


def test_zero_bubble_holds_on_every_stage_what_the_first_holds() -> None:
    cases = case(MODEL, batch=64, pipeline=8, schedule="zero_bubble")
    assert activations.layers_in_flight(cases, 1.0, 7) == 8.0


LLAMA = Transformer(
    name="llama", layers=32, hidden=4096, ffn=14336, heads=32, kv_heads=8, vocabulary=128256
)
H_LLAMA = 2 * 4096 * 4096
"""Bytes of one tensor of the residual stream, at 4096 tokens."""


def test_a_gated_layer_with_grouped_queries_is_34_widths() -> None:
    found = activations.whole(case(LLAMA, sequence=4096, micro_batch=1))
    kv = 1024 / 4096
    assert found.attention == pytest.approx(H_LLAMA * (1 + 2 + 2 * kv))  # input, q and output, k, v
    assert found.norms == H_LLAMA * 2
    assert found.ffn == pytest.approx(H_LLAMA * (1 + 3 * 14336 / 4096))
    assert found.of_dense() == pytest.approx(2 * 4096 * 4096 * 17)


def test_eager_kernels_keep_more() -> None:
    fused = activations.whole(case(LLAMA, sequence=4096, micro_batch=1))
    eager = activations.whole(case(LLAMA, sequence=4096, micro_batch=1, fused=False))
    assert eager.ffn - fused.ffn == pytest.approx(2 * 4096 * 14336)
    assert eager.attention - fused.attention == pytest.approx(2 * 4096 * 2 * 3072)


def test_by_operator_a_compiled_layer_keeps_input_queries_values_output_and_gate() -> None:
    plan: dict[str, Any] = {"micro_batch": 1, "recompute": "operators"}
    found = activations.kept(case(LLAMA, sequence=4096, **plan))
    widths = 4096 + 2 * 4096 + 1024 + 14336
    assert found.of_dense() == pytest.approx(2 * 4096 * widths)
    eager = activations.kept(case(LLAMA, sequence=4096, fused=False, **plan))
    assert eager.of_dense() - found.of_dense() == pytest.approx(H_LLAMA)


def test_fp8_operands_are_kept_in_eight_bits_unless_cast_on_the_way() -> None:
    wide = activations.whole(case(LLAMA, sequence=4096, micro_batch=1))
    narrow = activations.whole(case(LLAMA, sequence=4096, micro_batch=1, precision="fp8"))
    # The inputs of four products lose a byte; attention's own output stays beside its fp8 copy.
    saved = 4096 * (2 * 4096 + 14336 - 4096)
    assert wide.of_dense() - narrow.of_dense() == pytest.approx(saved)
    cast = activations.whole(case(LLAMA, sequence=4096, micro_batch=1, precision="fp8", zero=3))
    assert cast == wide


def test_context_ranks_share_tokens() -> None:
    one = activations.whole(case(LLAMA, sequence=4096, micro_batch=2))
    four = activations.whole(case(LLAMA, sequence=4096, micro_batch=2, context=4))
    assert one.of_dense() == pytest.approx(4 * four.of_dense())


EXPERTS = dataclasses.replace(
    model_columns(
        Transformer(
            name="moe",
            layers=24,
            hidden=2048,
            ffn=8192,
            heads=16,
            kv_heads=16,
            vocabulary=32000,
            experts=Experts(count=64, per_token=6, ffn=1408, shared_ffn=2816),
        )
    )
)


def experts(**plan: Any) -> LayerActivations:
    cases = dataclasses.replace(case(LLAMA, sequence=1024, micro_batch=1, **plan), model=EXPERTS)
    return activations.whole(cases)


def test_a_routed_token_is_kept_at_each_of_its_experts() -> None:
    tokens, hidden = 1024, 2048
    routed = 6 * tokens * 2 * (2 * hidden + 3 * 1408)
    shared = tokens * 2 * 3 * 2816
    router = 2 * 4 * 64 * tokens
    assert experts().experts == pytest.approx(tokens * 2 * hidden + router + routed + shared)


def test_tokens_at_experts_depend_on_who_shares_an_expert() -> None:
    cases = case(LLAMA, sequence=1024, micro_batch=1, tensor=4, sequence_parallel=True, expert=8)
    apart = dataclasses.replace(cases, model=EXPERTS)
    assert activations.routed_tokens(apart) == 1024 / 4 * 6
    together = dataclasses.replace(apart, plan=dataclasses.replace(apart.plan, expert_tensor=4))
    assert activations.routed_tokens(together) == 1024 * 6


def test_room_at_experts_counts_when_it_exceeds_an_even_share() -> None:
    cases = dataclasses.replace(case(LLAMA, sequence=1024, micro_batch=1), model=EXPERTS)
    roomy = dataclasses.replace(cases, model=dataclasses.replace(EXPERTS, capacity_factor=1.5))
    assert activations.routed_tokens(roomy) == 1.5 * activations.routed_tokens(cases)


def test_latent_attention_keeps_its_latents_beside_queries_keys_and_values() -> None:
    model = Transformer(
        name="mla",
        layers=2,
        hidden=2048,
        ffn=8192,
        heads=16,
        kv_heads=16,
        vocabulary=32000,
        latent=LatentAttention(
            query_rank=0, kv_rank=512, rope_size=64, nope_size=128, value_size=128
        ),
    )
    found = activations.whole(case(model, sequence=1024, micro_batch=1))
    widths = 2048 + 16 * (2 * 192 + 2 * 128) + 16 * 128 + 2 * 512
    assert found.attention == pytest.approx(2 * 1024 * widths)
    some = activations.kept(case(model, sequence=1024, micro_batch=1, recompute="operators"))
    assert some.attention == pytest.approx(2 * 1024 * 2 * 16 * 128)


def test_offloaded_activations_leave_two_layers() -> None:
    cases = case(LLAMA, offload=("activations",))
    assert activations.on_device(cases, 32.0, 32.0) == 2.0
    assert activations.on_device(cases, 1.0, 1.0) == 1.0
    assert activations.on_device(case(LLAMA), 32.0, 32.0) == 32.0
