"""Both sides of MFU: flops that a model is worth, and flops that a device could do."""

import math

import pytest
import torch
from tests.unit.runtime.inside.layouts import DENSE
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from gridloom.base.system import SystemClock
from gridloom.model.recipe import GptShape
from gridloom.planner.shape import step_flops
from gridloom.runtime.gpt import Gpt
from gridloom.runtime.peak import peak_flops, sheet_flops

CPU = torch.device("cpu")
GROUPED = GptShape(layers=3, hidden=64, heads=4, kv_heads=2, ffn=96, tied_embeddings=False)


@pytest.mark.parametrize("shape", [DENSE, GROUPED])
def test_model_flops_are_those_that_torch_counts(shape: GptShape) -> None:
    model = Gpt(shape, seed=1)
    tokens = torch.arange(2 * 33).view(2, 33) % shape.vocabulary
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        torch.autograd.backward(model.loss_sum(tokens[:, :-1], tokens[:, 1:]))
    assert counter.get_total_flops() == step_flops(shape, 2 * 32, 32)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_device_without_a_data_sheet_is_measured(precision: str) -> None:
    state = torch.get_rng_state()
    found = peak_flops(CPU, precision, SystemClock())
    assert 1e6 < found < math.inf
    assert torch.equal(torch.get_rng_state(), state)


def test_the_user_knows_better() -> None:
    assert peak_flops(CPU, "fp32", SystemClock(), 2e12) == 2e12
    assert math.isnan(peak_flops(CPU, "fp32", SystemClock(), 0))


@pytest.mark.parametrize(
    ("name", "precision", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16", 989e12),
        ("NVIDIA H100 80GB HBM3", "fp32", 494.5e12),
        ("NVIDIA A100-SXM4-80GB", "fp16", 312e12),
        ("cpu", "fp32", None),
    ],
)
def test_a_data_sheet_by_the_makers_name(name: str, precision: str, expected: float | None) -> None:
    assert sheet_flops(name, precision) == expected
