import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from gridloom.base.errors import InputError
from gridloom.model.recipe import GptShape
from gridloom.runtime.gpt import IGNORED, Attention, Gpt, rotary_table, rotate

SHAPE = GptShape(layers=2, hidden=32, heads=4, kv_heads=2, ffn=48)


def tokens(batch: int, time: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 257, (batch, time), generator=torch.Generator().manual_seed(seed))


def test_equal_seeds_give_equal_weights_and_others_do_not() -> None:
    torch.manual_seed(5)
    first = Gpt(SHAPE, 1).state_dict()
    torch.manual_seed(6)
    again, other = Gpt(SHAPE, 1).state_dict(), Gpt(SHAPE, 2).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["embedding.weight"], other["embedding.weight"])


def test_no_position_sees_its_future() -> None:
    model, text = Gpt(SHAPE, 1), tokens(1, 12)
    changed = text.clone()
    changed[0, 8:] = 7
    before, after = model(text), model(changed)
    assert torch.allclose(before[0, :8], after[0, :8], atol=1e-6)
    assert not torch.allclose(before[0, 8:], after[0, 8:], atol=1e-3)


def test_an_untrained_model_is_as_wise_as_a_die() -> None:
    model, text = Gpt(SHAPE, 1), tokens(4, 32)
    loss = model.loss_sum(text[:, :-1], text[:, 1:]) / text[:, 1:].numel()
    assert loss.item() == pytest.approx(math.log(257), abs=0.1)


def test_ignored_targets_do_not_count() -> None:
    model, text = Gpt(SHAPE, 1), tokens(1, 9)
    inputs, targets = text[:, :-1], text[:, 1:].clone()
    whole = model.loss_sum(inputs, targets)
    left, right = targets.clone(), targets.clone()
    left[:, 4:], right[:, :4] = IGNORED, IGNORED
    parts = model.loss_sum(inputs, left) + model.loss_sum(inputs, right)
    assert parts.item() == pytest.approx(whole.item(), rel=1e-6)


def test_grouped_queries_share_their_keys_as_if_these_were_repeated() -> None:
    attention = Attention(SHAPE)
    x = torch.randn(2, 6, 32, generator=torch.Generator().manual_seed(1))
    rotary = rotary_table(6, 8, 10_000.0)
    # rows by key head: two queries, their key, their value
    heads = attention.qkv(x).view(2, 6, 2, 4, 8)
    query = rotate(heads[..., :2, :].reshape(2, 6, 4, 8).transpose(1, 2), rotary)
    key, value = rotate(heads[..., 2, :].transpose(1, 2), rotary), heads[..., 3, :].transpose(1, 2)
    key, value = (t.repeat_interleave(2, dim=1) for t in (key, value))
    scores = query @ key.transpose(-1, -2) / math.sqrt(8)
    scores = scores.masked_fill(torch.ones(6, 6).triu(1).bool(), -math.inf)
    by_hand = attention.out((scores.softmax(-1) @ value).transpose(1, 2).reshape(2, 6, 32))
    assert torch.allclose(attention(x, rotary), by_hand, atol=1e-5)


def test_rotated_products_depend_on_the_distance_alone() -> None:
    query, key = torch.randn(2, 8, generator=torch.Generator().manual_seed(3))
    rotary = rotary_table(20, 8, 100.0)
    queries = rotate(query.expand(1, 1, 20, 8), rotary)[0, 0]
    keys = rotate(key.expand(1, 1, 20, 8), rotary)[0, 0]
    products = [float(queries[t + 5] @ keys[t]) for t in range(15)]
    assert products == pytest.approx([products[0]] * 15, abs=1e-5)
    assert float(queries[7].norm()) == pytest.approx(float(query.norm()), rel=1e-6)


def test_tying_saves_one_matrix() -> None:
    untied = GptShape(layers=2, hidden=32, heads=4, kv_heads=2, ffn=48, tied_embeddings=False)
    counts = [sum(p.numel() for p in Gpt(shape, 1).parameters()) for shape in (SHAPE, untied)]
    block = 32 * (32 + 2 * 16) + 32 * 32 + 3 * 32 * 48 + 2 * 32
    assert counts == [257 * 32 + 2 * block + 32, 2 * 257 * 32 + 2 * block + 32]


def test_the_residual_projections_start_smaller() -> None:
    weights = Gpt(GptShape(layers=8, hidden=64, heads=2, kv_heads=2, ffn=64), 1).state_dict()
    out, qkv = (weights[f"blocks.0.attention.{name}.weight"].std() for name in ("out", "qkv"))
    ratio = float(out / qkv)
    assert ratio == pytest.approx(1 / 4, rel=0.1)


def test_it_learns_a_line_by_heart() -> None:
    model, text = Gpt(SHAPE, 1), tokens(1, 17)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"layers": 0}, "model.layers: is 0"),
        ({"heads": 3}, "model.hidden: is 32, must be a multiple of twice the heads"),
        ({"kv_heads": 3}, "model.kv_heads: is 3, must divide the heads"),
    ],
)
def test_an_impossible_shape_names_its_field(change: dict[str, int], field: str) -> None:
    fields = {name: getattr(SHAPE, name) for name in GptShape.__struct_fields__}
    with pytest.raises(InputError, match=field):
        Gpt(GptShape(**{**fields, **change}), 1)
