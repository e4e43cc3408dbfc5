import pytest
import torch
from torch.autograd import backward

from gridloom.model.recipe import GptShape, Training
from gridloom.runtime.flat import FlatModel
from gridloom.runtime.gpt import Gpt

SHAPE = GptShape(layers=2, hidden=16, heads=2, kv_heads=1, ffn=16)
TRAINING = Training(steps=9, global_batch=2, sequence_length=8, weight_decay=0.3)
TEXT = torch.randint(0, 257, (4, 9), generator=torch.Generator().manual_seed(1))


def test_it_trains_like_adamw_over_the_parameters_one_by_one() -> None:
    plain, laid_out = Gpt(SHAPE, 1), Gpt(SHAPE, 1)
    flat = FlatModel(laid_out, TRAINING, 3)
    groups = [
        {"params": [p for p in plain.parameters() if p.dim() >= 2], "weight_decay": 0.3},
        {"params": [p for p in plain.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))
    for _ in range(5):
        adamw.zero_grad()
        backward(plain.loss_sum(TEXT[:, :-1], TEXT[:, 1:]) / 32)
        norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        adamw.step()
        flat.bucket.zero_()
        for half in TEXT.chunk(2):
            backward(laid_out.loss_sum(half[:, :-1], half[:, 1:]))
        assert flat.update(32, 1e-2, 0.5) == pytest.approx(float(norm), rel=1e-4)
    for one, other in zip(plain.parameters(), laid_out.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_gradients_are_views_and_the_tail_is_apart() -> None:
    model = Gpt(SHAPE, 1)
    flat = FlatModel(model, TRAINING, 3)
    flat.tail.fill_(7)
    backward(model.loss_sum(TEXT[:, :-1], TEXT[:, 1:]))
    squares = [float((p.grad**2).sum()) for p in model.parameters() if p.grad is not None]
    assert float((flat.gradients**2).sum()) == pytest.approx(sum(squares), rel=1e-5)
    assert flat.bucket.numel() == flat.parameters + 3
    assert flat.tail.tolist() == [7, 7, 7]


def test_no_clipping_when_the_norm_is_zero_or_allowed() -> None:
    flats = [FlatModel(Gpt(SHAPE, 1), TRAINING, 0) for _ in range(2)]
    for flat, clip in zip(flats, (0.0, 1e9), strict=True):
        flat.gradients.fill_(100.0)
        flat.update(1, 1e-2, clip)
    one, other = (flat.tensors() for flat in flats)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_saved_state_goes_on_as_if_nothing_had_been() -> None:
    straight, resumed = (FlatModel(Gpt(SHAPE, seed), TRAINING, 0) for seed in (1, 2))
    for step in range(1, 5):
        if step == 3:
            resumed.load({name: t.clone() for name, t in straight.tensors().items()}, 2)
        for flat in (straight, resumed):
            flat.gradients.fill_(0.5 * step)
            flat.update(1, 1e-2, 0)
    one, other = straight.tensors(), resumed.tensors()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert {name.partition(".")[0] for name in one} == {"weight", "exp_avg", "exp_avg_sq"}
