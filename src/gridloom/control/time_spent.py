"""Where the time of a job's training steps went, by site (pure)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gridloom.control.metrics import number

Metric = Mapping[str, Any]

PARTS = {
    "forward": "forward_s",
    "backward": "backward_s",
    "forward and backward": "compute_s",
    "optimiser": "optimizer_s",
    "inside the site": "within_site_s",
    "between sites": "between_site_s",
    "data": "data_s",
    "checkpoint": "checkpoint_s",
    "other": "other_s",
}
"""What a training step consists of, by the name that a person reads; ``compute_s`` is forward and
backward where they cannot be told apart."""

_STEADY = ("compute_s", "optimizer_s", "within_site_s", "between_site_s", "data_s")
"""With what is none of these, all of ``step_s``; the checkpoint comes on top."""


def time_by_site(
    metrics: Sequence[Metric], others: Mapping[str, Sequence[Metric]]
) -> dict[str, dict[str, float | None]]:
    """Return mean seconds of a training step by site and part, named as in ``PARTS``.

    Beside the parts there are ``steps`` (how many the means are of), ``step_s`` (without the
    checkpoint) and ``between_site_hidden_s``, which lies behind the parts. A part is ``None`` where
    it is not told. Training steps whose seconds nobody has told do not count.

    Args:
        metrics: Lines of ``metrics.jsonl``.
        others: Lines of ``metrics-<site>.jsonl``, by site.
    """
    samples: dict[str, list[Metric]] = {}
    for rows in (metrics, *(others[site] for site in sorted(others))):
        for row in rows:
            for site, sample in _samples(row):
                samples.setdefault(site, []).append(sample)
    return {site: _means(found) for site, found in samples.items()}


def shares(parts: Mapping[str, float | None]) -> dict[str, float]:
    """Return what share of a site's time each part has, by the name that a person reads.

    Forward and backward are one part or two; parts without time are left out.
    """
    once = ("forward", "backward") if parts.get("forward_s") is None else ("forward and backward",)
    seconds = {name: parts.get(key) or 0.0 for name, key in PARTS.items() if name not in once}
    total_s = sum(seconds.values())
    return {name: spent / total_s for name, spent in seconds.items() if spent > 0}


def _samples(row: Metric) -> Iterator[tuple[str, Metric]]:
    """Yield what a row tells of each site: of the step before what an exchange cannot carry."""
    if row.get("sites"):
        for site, told in row["sites"].items():
            step_s = told.get("step_s", row.get("step_s"))
            if _seconds(step_s):
                yield site, {**told, "step_s": step_s}
    elif isinstance(row.get("site"), str) and _seconds(row.get("step_s")):
        yield row["site"], row


def _means(samples: Sequence[Metric]) -> dict[str, float | None]:
    count = len(samples)

    def mean(key: str) -> float | None:
        told = [sample.get(key) is not None for sample in samples]
        return sum(_seconds(sample.get(key)) for sample in samples) / count if all(told) else None

    names = ("step_s", *_STEADY, "forward_s", "checkpoint_s", "between_site_hidden_s")
    found: dict[str, float | None] = {"steps": count, **{name: mean(name) for name in names}}
    forward_s, compute_s = found["forward_s"], found["compute_s"]
    found["backward_s"] = None
    if forward_s is not None and compute_s is not None:
        found["backward_s"] = max(0.0, compute_s - forward_s)
    known_s = sum(found[name] or 0.0 for name in _STEADY)
    found["other_s"] = max(0.0, (found["step_s"] or 0.0) - known_s)
    return found


def _seconds(value: object) -> float:
    """Return seconds that a program has told, 0 where they are none."""
    told = number(value)
    return told if math.isfinite(told) and told > 0 else 0.0
