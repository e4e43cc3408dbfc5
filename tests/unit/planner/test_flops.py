"""Model flops by hand, and against the account of gridloom's own recipe."""

import pytest

from gridloom.model.recipe import GptShape
from gridloom.model.transformer import Transformer
from gridloom.planner.flops import (
    attention_flops_per_token,
    flops_per_token,
    model_flops_use,
    product_weights,
)
from gridloom.planner.models.presets import preset
from gridloom.planner.shape import step_flops


def test_llama_3_8b_by_hand() -> None:
    model = preset("llama3-8b")
    # Of 8,030,261,248 weights the embedding's 128256 x 4096 and the 65 norms meet no product.
    assert product_weights(model) == 8_030_261_248 - 525_336_576 - 65 * 4096
    assert attention_flops_per_token(model, 8192) == 12 * 32 * 4096 * 8192
    assert flops_per_token(model, 8192) == 6 * 7_504_658_432 + 12_884_901_888


@pytest.mark.parametrize("tied", [True, False])
def test_agrees_with_the_account_of_the_recipe(tied: bool) -> None:
    shape = GptShape(
        layers=4, hidden=256, heads=8, kv_heads=2, ffn=704, vocabulary=512, tied_embeddings=tied
    )
    model = Transformer(
        name="", layers=4, hidden=256, heads=8, kv_heads=2, ffn=704, vocabulary=512, tied=tied
    )
    assert flops_per_token(model, 128) == step_flops(shape, 1, 128)


def test_experts_count_as_far_as_a_token_goes_through_them() -> None:
    # 12.88 billion active (Mixtral, 2024), less the embedding.
    assert product_weights(preset("mixtral-8x7b")) == pytest.approx(12.88e9 - 0.131e9, rel=1e-3)


def test_model_flops_use() -> None:
    assert model_flops_use(1000.0, 4.945e11, 1, 989e12) == pytest.approx(0.5)
