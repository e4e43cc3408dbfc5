"""One rank as a site of its own: the fp16 loss scale, skipped steps, state, and clear refusals."""

import pytest
import torch
from tests.unit.runtime.inside.layouts import DENSE, SEED, TRAINING, UNTIED, batch, module, plan

from gridloom.base.errors import InputError
from gridloom.model.recipe import Training
from gridloom.runtime.gpt import IGNORED, Gpt
from gridloom.runtime.inside.axes import Axes, Axis
from gridloom.runtime.inside.parallelize import blocks_of, parallelize, parallelize_gpt
from gridloom.runtime.inside.replicate import Replicated
from gridloom.runtime.inside.scaler import LARGEST_SCALE, LEAST_SCALE, LossScaler

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("verdicts", "scale", "good_steps", "skipped"),
    [
        ("", 16.0, 0, 0),
        ("+", 16.0, 1, 0),
        ("++", 16.0, 2, 0),
        ("+++", 32.0, 0, 0),
        ("-", 8.0, 0, 1),
        ("--", 4.0, 0, 2),
        ("++-", 8.0, 0, 1),
        ("-+", 8.0, 1, 0),
        ("++-+++", 16.0, 0, 0),
        ("++++++", 64.0, 0, 0),
    ],
)
def test_the_scale_after_good_and_bad_steps(
    verdicts: str, scale: float, good_steps: int, skipped: int
) -> None:
    scaler = LossScaler(16.0, growth_steps=3)
    for verdict in verdicts:
        scaler.update(finite=verdict == "+")
    assert (scaler.scale, scaler.good_steps, scaler.skipped) == (scale, good_steps, skipped)


def test_the_scale_has_bounds() -> None:
    low, high = LossScaler(2 * LEAST_SCALE), LossScaler(LARGEST_SCALE, growth_steps=1)
    low.update(finite=False)
    high.update(finite=True)
    assert not low.lost
    low.update(finite=False)
    assert (low.scale, high.scale) == (LEAST_SCALE, LARGEST_SCALE)
    assert low.lost


def test_a_checkpoint_keeps_the_scale() -> None:
    old, new = LossScaler(64.0, growth_steps=5), LossScaler(growth_steps=5)
    old.update(finite=True)
    new.load(old.state())
    assert (new.scale, new.good_steps) == (64.0, 1)


def test_an_overflow_skips_the_step_and_training_recovers() -> None:
    model = parallelize_gpt(DENSE, SEED, Axes(plan(precision="fp16"), CPU, DENSE))
    model.optimize(TRAINING)
    assert model.scaler is not None
    model.scaler.load({"scale": 2.0**18, "good_steps": 0})
    before = [piece.tensor.clone() for piece in model.parameters]
    inputs, targets = batch(0)
    totals = model.accumulate(inputs, targets)
    outcomes = [model.step(float(totals.tokens), 1e-3, 1.0)]
    while outcomes[-1].skipped:
        for piece, tensor in zip(model.parameters, before, strict=True):
            assert torch.equal(piece.tensor, tensor)
        totals = model.accumulate(inputs, targets)
        outcomes.append(model.step(float(totals.tokens), 1e-3, 1.0))
    assert len(outcomes) > 3
    assert model.scaler.scale == 2.0 ** (18 - len(outcomes) + 1)
    whole = Gpt(DENSE, SEED)
    torch.autograd.backward(whole.loss_sum(inputs, targets) / targets.numel())
    norm = torch.nn.utils.get_total_norm([p.grad for p in whole.parameters() if p.grad is not None])
    assert outcomes[-1].norm == pytest.approx(float(norm), rel=1e-2)
    again = model.accumulate(inputs, targets)
    assert float(again.loss_sum) < float(totals.loss_sum)


def test_without_a_scaler_too_bad_gradients_leave_the_weights() -> None:
    model = parallelize_gpt(UNTIED, SEED, Axes(plan(), CPU, UNTIED))
    model.optimize(Training(steps=1, global_batch=8, sequence_length=32))
    inputs, targets = batch(0)
    totals = model.accumulate(inputs, targets)
    before = [piece.tensor.clone() for piece in model.parameters]
    gradient = model.parameters[0].gradient
    assert gradient is not None
    gradient[0, 0] = torch.inf
    assert model.step(float(totals.tokens), 1e-3, 0.0).skipped
    for piece, tensor in zip(model.parameters, before, strict=True):
        assert torch.equal(piece.tensor, tensor)
    model.accumulate(inputs, targets)
    assert not model.step(float(totals.tokens), 1e-3, 0.0).skipped


def test_targets_that_do_not_count_are_no_tokens() -> None:
    model = parallelize_gpt(DENSE, SEED, Axes(plan(), CPU, DENSE))
    inputs, targets = (tokens.clone() for tokens in batch(0))
    targets[:, 5:] = IGNORED
    assert int(model.accumulate(inputs, targets).tokens) == 5 * TRAINING.global_batch


def test_state_goes_to_another_model_and_on_from_there() -> None:
    axes = Axes(plan(), CPU, DENSE)
    inputs, targets = batch(0)
    models = [parallelize_gpt(DENSE, seed, axes) for seed in (1, 2)]
    for model in models:
        model.optimize(TRAINING)
        model.accumulate(inputs, targets)
        model.step(256, 1e-3, 1.0)
    models[1].load_state(models[0].state())
    outcomes = []
    for model in models:
        model.accumulate(*batch(1))
        outcomes.append(model.step(256, 1e-3, 1.0))
    assert outcomes[0] == outcomes[1]
    for one, other in zip(models[0].parameters, models[1].parameters, strict=True):
        assert torch.equal(one.tensor, other.tensor)


def test_calls_that_need_something_first() -> None:
    own = parallelize(module(), Axes(plan(), CPU))
    for call in (own.accumulate, own.evaluate):
        with pytest.raises(InputError, match="a module of your own has its own forward"):
            call(*batch(0))
    with pytest.raises(InputError, match="call optimize before step"):
        own.step(1, 1e-3, 1.0)
    with pytest.raises(InputError, match="build the axes with the shape"):
        parallelize_gpt(UNTIED, SEED, Axes(plan(), CPU, DENSE))


def test_the_blocks_of_a_module_are_what_its_lists_hold() -> None:
    own = module()
    assert [type(block).__name__ for block in blocks_of(own)] == ["Linear", "Sequential", "Linear"]
    holder = torch.nn.Module()
    holder.inner = torch.nn.Module()
    holder.inner.layers = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2), "b": torch.nn.GELU()})
    assert blocks_of(holder) == [holder.inner.layers["a"]]


def test_gradients_that_nobody_made_are_zero_once_sums_are_complete() -> None:
    used, unused = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    replicated = Replicated([used, unused], Axis())
    torch.autograd.backward((2 * used).sum())
    made = used.grad
    replicated.finish()
    assert used.grad is not made  # it lies in the bucket now
    assert used.grad is not None
    assert used.grad.tolist() == [2, 2, 2]
    assert unused.grad is not None
    assert unused.grad.tolist() == [0, 0, 0]


def test_only_gradients_beyond_the_norm_are_clipped() -> None:
    model = parallelize(module(), Axes(plan(), CPU))
    torch.autograd.backward(model.module(torch.ones(2, 8)).square().sum())
    before = [gradient.clone() for gradient in model.gradients.present()]
    norm = model.clip(1e9)
    assert all(map(torch.equal, model.gradients.present(), before))
    assert float(model.clip(float(norm) / 4)) == pytest.approx(float(norm))
    assert float(model.gradients.norm()) == pytest.approx(float(norm) / 4, rel=1e-4)
