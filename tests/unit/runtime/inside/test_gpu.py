"""What only an accelerator shows: its own attention kernels, low precision, compiled blocks."""

import pytest
import torch
from tests.unit.runtime.inside.layouts import DENSE, SEED, SPARSE, TRAINING, batch, plan

from gridloom.runtime.inside.axes import Axes
from gridloom.runtime.inside.links import attend_to_end
from gridloom.runtime.inside.parallelize import parallelize_gpt

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),  # compiling
    pytest.mark.skipif(not torch.accelerator.is_available(), reason="needs an accelerator"),
]


def losses(device: str, precision: str, *, compile_blocks: bool, sparse: bool) -> list[float]:
    shape = SPARSE if sparse else DENSE
    axes = Axes(plan(precision=precision), torch.device(device), shape)
    model = parallelize_gpt(shape, SEED, axes, compile_blocks=compile_blocks)
    model.optimize(TRAINING)
    found = []
    for step in range(TRAINING.steps):
        totals = model.accumulate(*batch(step))
        found.append(float(totals.loss_sum / totals.tokens))
        model.step(float(totals.tokens), TRAINING.learning_rate, TRAINING.clip_norm)
    return found


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("compile_blocks", [False, True])
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-3), ("bf16", 2e-2)])
def test_it_trains_as_on_the_cpu(
    precision: str, tolerance: float, compile_blocks: bool, sparse: bool
) -> None:
    device = str(torch.accelerator.current_accelerator())
    expected = losses("cpu", "fp32", compile_blocks=False, sparse=sparse)
    found = losses(device, precision, compile_blocks=compile_blocks, sparse=sparse)
    assert found == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_queries_at_the_end_see_what_they_see_on_the_cpu(kv_heads: int) -> None:
    draw = torch.Generator().manual_seed(1)
    query = torch.randn(2, 4, 32, 64, generator=draw)
    key, value = (torch.randn(2, kv_heads, 128, 64, generator=draw) for _ in range(2))
    device = torch.accelerator.current_accelerator()
    found = []
    for place, kind in (("cpu", torch.float32), (device, torch.float32), (device, torch.bfloat16)):
        parts = [t.detach().clone().to(place, kind) for t in (query, key, value)]
        parts = [t.requires_grad_() for t in parts]
        seen = attend_to_end(*parts)
        torch.autograd.backward(seen.float().square().sum())
        gradients = [p.grad.float().cpu() for p in parts if p.grad is not None]
        found.append([seen.detach().float().cpu(), *gradients])
    for exact, near in zip(found[0], found[1], strict=True):
        assert torch.allclose(exact, near, atol=1e-2, rtol=1e-2)
    for exact, near in zip(found[0], found[2], strict=True):
        assert torch.allclose(exact, near, atol=1e-1, rtol=1e-1)
