"""Clipping, noise, and what they promise: against the exact value where there is one."""

import math
import sys

import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import norm as normal

from gridloom.base.errors import InputError
from gridloom.runtime.compress import NotFiniteError, seeded
from gridloom.runtime.wan.privacy import clipped, epsilon, noised


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


def test_noise_has_its_deviation_on_top_of_what_was_clipped() -> None:
    count = 400_000
    update = torch.full((count,), 10.0)
    back = noised(update, 2.0, 0.5, seeded(1, "north", 0))
    noise = back - clipped(update, 2.0)
    assert float(noise.std()) == pytest.approx(1.0, rel=5 / math.sqrt(2 * count))
    assert abs(float(noise.mean())) < 5 / math.sqrt(count)
    within = float((noise.abs() < 1).to(torch.float64).mean())
    assert within == pytest.approx(math.erf(1 / math.sqrt(2)), abs=5 * 0.5 / math.sqrt(count))
    assert torch.equal(noised(update, 2.0, 0.5, seeded(1, "north", 0)), back)
    assert not torch.equal(noised(update, 2.0, 0.5, seeded(1, "south", 0)), back)
    assert torch.equal(noised(update, 2.0, 0.0, seeded(1, "north", 0)), clipped(update, 2.0))


def test_what_is_refused() -> None:
    ones = torch.ones(3)
    for bad in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InputError, match=r"norm: is .*; give a finite norm above 0"):
            clipped(ones, bad)
    with pytest.raises(InputError, match="noise_multiplier: is -1; give 0 or more"):
        noised(ones, 1.0, -1.0, seeded(1, 1, 1))
    with pytest.raises(NotFiniteError):
        noised(torch.tensor([math.nan]), 1.0, 1.0, seeded(1, 1, 1))
    with pytest.raises(InputError) as caught:
        epsilon(0.0, -1, delta=1.0, participation=2.0)
    fields = [problem.field for problem in caught.value.problems]
    assert fields == ["noise_multiplier", "rounds", "delta", "participation"]


def test_the_extra_is_named_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opacus.accountants.analysis.rdp", None)
    with pytest.raises(InputError, match=r"opacus; pip install 'gridloom\[privacy\]'"):
        epsilon(1.0, 1, delta=1e-5)
