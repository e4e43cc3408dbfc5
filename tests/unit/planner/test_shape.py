"""Parameters and work of a transformer, against what others publish."""

import pytest

from gridloom.model.recipe import GptShape
from gridloom.model.transformer import Experts
from gridloom.planner.shape import Parameters, kv_width, parameter_count, parameters, step_flops

SMALL = GptShape(layers=4, hidden=192, heads=6, kv_heads=2, ffn=480)

PUBLISHED = {
    "Llama 2 7B": (
        GptShape(layers=32, hidden=4096, heads=32, kv_heads=32, ffn=11008, vocabulary=32000,
                 tied_embeddings=False),
        6_738_415_616,
    ),
    "Llama 2 70B": (
        GptShape(layers=80, hidden=8192, heads=64, kv_heads=8, ffn=28672, vocabulary=32000,
                 tied_embeddings=False),
        68_976_648_192,
    ),
    "Llama 3 8B": (
        GptShape(layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocabulary=128256,
                 tied_embeddings=False),
        8_030_261_248,
    ),
    "Llama 3.2 1B, tied": (
        GptShape(layers=16, hidden=2048, heads=32, kv_heads=8, ffn=8192, vocabulary=128256),
        1_235_814_400,
    ),
    "TinyLlama 1.1B": (
        GptShape(layers=22, hidden=2048, heads=32, kv_heads=4, ffn=5632, vocabulary=32000,
                 tied_embeddings=False),
        1_100_048_384,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes(name: str) -> None:
    shape, count = PUBLISHED[name]
    assert parameter_count(shape) == count


def test_by_part_and_by_hand() -> None:
    assert kv_width(SMALL) == 64
    assert parameters(SMALL) == Parameters(
        embedding=257 * 192,
        attention=4 * (192 * 192 + 192 * 64 + 192 * 64 + 192 * 192),
        ffn=4 * (192 * 480 + 192 * 480 + 480 * 192),
        norms=4 * (192 + 192) + 192,
        output=0,
    )
    assert parameter_count(SMALL) == 1_550_208


def test_the_matrices_of_a_gpt2_layer() -> None:
    # GPT-2 (124M): a layer has 4 h h of attention and 8 h h of feed-forward without biases; a gated
    # layer of two thirds the width has as many.
    shape = GptShape(layers=12, hidden=768, heads=12, kv_heads=12, ffn=2048, vocabulary=50257)
    counted = parameters(shape)
    assert counted.attention + counted.ffn == 12 * 12 * 768**2
    assert counted.total == pytest.approx(124e6, rel=0.01)


def test_experts_by_hand() -> None:
    experts = Experts(count=8, per_token=2, ffn=96, shared_ffn=64, shared_gate=True, dense_layers=1)
    mixed = GptShape(layers=4, hidden=192, heads=6, kv_heads=2, ffn=480, experts=experts)
    layer = 3 * 192 * (8 * 96 + 64) + 192 * 8 + 192
    assert parameters(mixed).ffn == 3 * layer + 3 * 192 * 480
    idle = 3 * 3 * 192 * 6 * 96  # of three layers, six experts that a token does not see
    work = step_flops(mixed, tokens=1, sequence_length=1)
    counted = parameters(mixed)
    matrices = counted.attention + counted.ffn - idle + 257 * 192
    assert work == 6 * matrices + 12 * 4 * 192


def test_an_output_of_its_own() -> None:
    untied = GptShape(layers=4, hidden=192, heads=6, kv_heads=2, ffn=480, tied_embeddings=False)
    assert parameter_count(untied) - parameter_count(SMALL) == 257 * 192


def test_work_of_a_step() -> None:
    matrices = 4 * (2 * 192 * 192 + 2 * 192 * 64) + 4 * 3 * 192 * 480 + 257 * 192
    assert step_flops(SMALL, tokens=4096, sequence_length=128) == 4096 * (
        6 * matrices + 12 * 4 * 192 * 128
    )


def test_work_is_linear_in_tokens_and_grows_with_the_sequence() -> None:
    once = step_flops(SMALL, tokens=100, sequence_length=10)
    assert step_flops(SMALL, tokens=300, sequence_length=10) == 3 * once
    assert step_flops(SMALL, tokens=100, sequence_length=20) > once
