"""What a site's update may tell about the site: it is clipped, noised, and accounted for.

The promise is (epsilon, delta)-differential privacy for a whole site: had its data been absent,
its update zero, what is seen would be almost as likely (by a factor of e^epsilon, but for delta).
It follows from the Gaussian mechanism (Dwork and Roth, 2014): an update of a norm of at most C, to
which noise of deviation z C is added in every number, where z is the *noise multiplier*.

Which multiplier counts depends on who looks:

- Who sees a site's own updates sees the site's own noise: z, and participation 1, as it is known
  when the site took part.
- Who sees only the sum over N sites (see ``masks``), and is none of them, sees the noise of all:
  z sqrt(N). If N - H sites work with whoever looks, it is z sqrt(H).
- Participation below 1 counts only where each site takes part by a chance of its own, drawn anew
  every round and told to nobody who looks (Poisson sampling).

An update that travels in parts, each in a round of its own, counts by the parts: with F of them,
each clipped to C / sqrt(F), the multiplier of a part's round is z sqrt(F); all F rounds together
then cost what one round of the whole update would.

What is done with a noised update afterwards (compressing, averaging) tells nothing more; so noise
comes first. Weights of a mean must not depend on the data. Nothing is promised about anything else
a site sends: its loss, its number of tokens, its times.
Sums in floating point leak a little more than the theory says (Mironov, 2012).
"""

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gridloom.base.errors import InputError, Problem
from gridloom.runtime.compress.codec import require_finite

_ORDERS = [1 + step / 10 for step in range(1, 100)] + [*range(12, 64), 80, 128, 256, 512, 1024]
"""Of the Renyi divergence, over which the smallest epsilon is taken."""


def clipped(update: Tensor, norm: float, *, length: float | None = None) -> Tensor:
    """Return an update, fp32 ``[n]``, shrunk to a norm where it is longer.

    Args:
        update: The update, or a part of it.
        norm: The largest that it may have.
        length: The norm of the whole of which ``update`` is a part; by default it is the whole.

    Raises:
        InputError: The norm is not above 0.
        NotFiniteError: A number is not finite.
    """
    if not 0 < norm < float("inf"):
        raise InputError([Problem(f"is {norm:g}", "give a finite norm above 0", field="norm")])
    require_finite(update)
    if length is None:
        length = length_of(update)
    return update * (norm / length) if length > norm else update.clone()


def length_of(update: Tensor) -> float:
    """Return the norm of an update."""
    return float(torch.linalg.vector_norm(update, dtype=torch.float64))


def noised(update: Tensor, deviation: float, normal: Callable[[int], Tensor]) -> Tensor:
    """Add Gaussian noise to an update that has been clipped, in place.

    Args:
        update: fp32 ``[n]``.
        deviation: Of the noise in each number: the noise multiplier times the norm; 0 or more.
        normal: Returns so many numbers of mean 0 and deviation 1. For a promise to hold, nobody
            else may be able to foresee them, as of ``keystream``.

    Raises:
        InputError: The deviation is below 0.
    """
    if not 0 <= deviation < float("inf"):
        raise InputError([Problem(f"is {deviation:g}", "give 0 or more", field="deviation")])
    if deviation:
        update.add_(normal(len(update)), alpha=deviation)
    return update


def epsilon(
    noise_multiplier: float, rounds: int, *, delta: float, participation: float = 1.0
) -> float:
    """Return a bound of epsilon after so many rounds.

    By Renyi differential privacy (Mironov, 2017; of the sampled Gaussian mechanism: Mironov, Talwar
    and Zhang, 2019), as counted by opacus.

    Args:
        noise_multiplier: As seen by whoever looks (see the module), above 0.
        rounds: That this site's data took part in, or may have taken part in.
        delta: The probability at which the promise may fail; well below 1 over the sites.
        participation: Probability at which the site takes part in a round.

    Raises:
        InputError: An argument is out of its range, or the extra is not installed.
    """
    _check(noise_multiplier, rounds, delta, participation)
    if rounds == 0:
        return 0.0
    analysis = _opacus_analysis()
    divergences = analysis.compute_rdp(
        q=participation, noise_multiplier=noise_multiplier, steps=rounds, orders=_ORDERS
    )
    with warnings.catch_warnings():
        # an order at the end of the list: the bound holds, another list would give a smaller one
        warnings.simplefilter("ignore")
        bound, _ = analysis.get_privacy_spent(orders=_ORDERS, rdp=divergences, delta=delta)
    return float(bound)


def _check(noise_multiplier: float, rounds: int, delta: float, participation: float) -> None:
    problems = []
    if not 0 < noise_multiplier < float("inf"):
        problems.append(_problem("noise_multiplier", noise_multiplier, "a finite number above 0"))
    if rounds < 0:
        problems.append(_problem("rounds", rounds, "0 or more"))
    if not 0 < delta < 1:
        problems.append(_problem("delta", delta, "a number between 0 and 1"))
    if not 0 < participation <= 1:
        problems.append(_problem("participation", participation, "a number above 0, at most 1"))
    if problems:
        raise InputError(problems)


def _problem(field: str, value: float, right: str) -> Problem:
    return Problem(f"is {value:g}", f"give {right}", field=field)


def _opacus_analysis() -> Any:
    try:
        return importlib.import_module("opacus.accountants.analysis.rdp")
    except ImportError as error:
        text = "the privacy accountant needs the package opacus"
        raise InputError([Problem(text, "pip install 'gridloom[privacy]'")]) from error
