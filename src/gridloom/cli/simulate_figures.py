"""Figures of `simulate` as JSON: of one run, or mean and spread over several seeds."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gridloom.sim.report import Summary


def as_json(summary: Summary, currency: str) -> dict[str, Any]:
    """Return the figures of one run by name."""
    told: dict[str, Any] = msgspec.to_builtins(summary)
    return {**told, "currency": currency}


def over_seeds(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mean of each figure over runs with several seeds.

    Beside them stand ``seeds`` and ``spread``: the standard deviation of the sample, by figure.
    """
    merged: dict[str, Any] = _mean(runs)
    merged["seed"] = runs[0]["seed"]
    merged["seeds"] = [run["seed"] for run in runs]
    merged["spread"] = {
        name: statistics.stdev(values)
        for name in runs[0]
        if name != "seed" and len(values := _numbers([run.get(name) for run in runs])) > 1
    }
    return merged


def _mean(values: Sequence[Any]) -> Any:
    """Return the mean of numbers, of mappings key by key, and else the first."""
    first = values[0]
    if any(isinstance(value, Mapping) for value in values):
        parts = [value for value in values if isinstance(value, Mapping)]
        keys = dict.fromkeys(key for part in parts for key in part)
        return {key: _mean([part[key] for part in parts if key in part]) for key in keys}
    if isinstance(first, bool):
        return any(values)
    numbers = _numbers(values)
    if not numbers:
        return first
    return first if len(set(numbers)) == 1 else math.fsum(numbers) / len(numbers)


def _numbers(values: Sequence[Any]) -> list[float]:
    return [one for one in values if isinstance(one, int | float) and not isinstance(one, bool)]
