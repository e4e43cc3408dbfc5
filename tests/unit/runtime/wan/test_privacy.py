"""Clipping, noise, and what they promise: against the exact value where there is one."""

import math
import sys

import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import norm as normal

from gridloom.base.errors import InputError
from gridloom.runtime.compress import NotFiniteError
from gridloom.runtime.wan.privacy import clipped, epsilon, length_of, noised


def exact_epsilon(noise_multiplier: float, rounds: int, delta: float) -> float:
    """Return epsilon of the Gaussian mechanism, as Balle and Wang (2018, theorem 8) have it."""
    mu = math.sqrt(rounds) / noise_multiplier

    def excess(eps: float) -> float:
        tail = normal.logcdf(-eps / mu - mu / 2) + eps
        return float(normal.cdf(-eps / mu + mu / 2) - math.exp(tail) - delta)

    return float(brentq(excess, 0.0, 400.0))


@pytest.mark.parametrize(
    ("noise_multiplier", "rounds"), [(0.7, 1), (1.0, 1), (1.0, 100), (5.0, 100), (20.0, 1000)]
)
@pytest.mark.parametrize("delta", [1e-5, 1e-8])
def test_epsilon_bounds_the_exact_one_closely(
    noise_multiplier: float, rounds: int, delta: float
) -> None:
    pytest.importorskip("opacus", reason="needs gridloom[privacy]")
    exact = exact_epsilon(noise_multiplier, rounds, delta)
    assert exact <= epsilon(noise_multiplier, rounds, delta=delta) <= 1.15 * exact


def test_epsilon_grows_with_rounds_and_participation_and_falls_with_noise() -> None:
    pytest.importorskip("opacus", reason="needs gridloom[privacy]")
    assert epsilon(1.0, 0, delta=1e-6) == 0.0
    values = [
        epsilon(4.0, 100, delta=1e-5, participation=0.05),
        epsilon(2.0, 100, delta=1e-5, participation=0.05),
        epsilon(2.0, 400, delta=1e-5, participation=0.05),
        epsilon(2.0, 400, delta=1e-5, participation=0.5),
        epsilon(2.0, 400, delta=1e-5),
        epsilon(2.0, 400, delta=1e-9),
        epsilon(0.05, 400, delta=1e-9),
    ]
    assert values == sorted(set(values))
    assert math.isfinite(values[-1])


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
def test_only_what_is_longer_is_shrunk(scale: float) -> None:
    update = scale * torch.tensor([3.0, -4.0, 0.0])
    assert torch.equal(clipped(update, 6.0 * scale), update)
    assert torch.allclose(clipped(update, 1.0 * scale), update / 5)
    kept = clipped(update, 6.0 * scale)
    kept.zero_()
    assert bool(update.any())


def test_a_part_is_shrunk_as_its_whole_is() -> None:
    whole = torch.tensor([3.0, -4.0, 12.0])
    parts = [clipped(part, 6.5, length=length_of(whole)) for part in whole.split([2, 1])]
    assert torch.allclose(torch.cat(parts), whole / 2)


def test_noise_is_added_in_place_with_its_deviation() -> None:
    update = torch.tensor([1.0, 2.0])
    assert noised(update, 0.5, lambda count: torch.arange(1.0, count + 1)) is update
    assert torch.equal(update, torch.tensor([1.5, 3.0]))
    assert torch.equal(noised(update.clone(), 0.0, torch.ones), update)


def test_what_is_refused() -> None:
    ones = torch.ones(3)
    for bad in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InputError, match=r"norm: is .*; give a finite norm above 0"):
            clipped(ones, bad)
    with pytest.raises(InputError, match="deviation: is -1; give 0 or more"):
        noised(ones, -1.0, torch.ones)
    with pytest.raises(NotFiniteError):
        clipped(torch.tensor([math.nan]), 1.0)
    with pytest.raises(InputError) as caught:
        epsilon(0.0, -1, delta=1.0, participation=2.0)
    fields = [problem.field for problem in caught.value.problems]
    assert fields == ["noise_multiplier", "rounds", "delta", "participation"]


def test_the_extra_is_named_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opacus.accountants.analysis.rdp", None)
    with pytest.raises(InputError, match=r"opacus; pip install 'gridloom\[privacy\]'"):
        epsilon(1.0, 1, delta=1e-5)
