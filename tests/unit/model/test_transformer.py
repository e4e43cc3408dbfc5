"""The few numbers that a transformer computes of itself."""

import pytest

from gridloom.model.transformer import Experts, Transformer

DENSE = Transformer(
    name="dense", layers=12, hidden=768, ffn=3072, heads=12, kv_heads=12, vocabulary=50257
)


def with_experts(experts: Experts | None) -> Transformer:
    return Transformer(
        name="experts",
        layers=27,
        hidden=2048,
        ffn=10944,
        heads=16,
        kv_heads=16,
        head_size=192,
        vocabulary=102400,
        experts=experts,
    )


def test_a_head_has_its_share_of_the_width_or_its_own_size() -> None:
    assert DENSE.width_per_head == 64
    assert with_experts(None).width_per_head == 192


@pytest.mark.parametrize(
    ("dense", "every", "layers"), [(0, 1, 27), (1, 1, 26), (3, 1, 24), (0, 2, 13), (1, 2, 13)]
)
def test_layers_with_experts(dense: int, every: int, layers: int) -> None:
    experts = Experts(count=8, per_token=2, ffn=1408, dense_layers=dense, every=every)
    assert with_experts(experts).expert_layers == layers
    assert DENSE.expert_layers == 0
