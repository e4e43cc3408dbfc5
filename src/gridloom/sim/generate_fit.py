"""From published margins to a joint distribution: of kind, duration, size and ending of a job."""

from functools import lru_cache
from math import log

import msgspec
import numpy as np
import numpy.typing as npt

from gridloom.sim.generate_acme import CLUSTERS, Cluster

Array = npt.NDArray[np.float64]

_LEAN = {"pretrain": 2.0, "evaluation": -1.0}
"""How a kind leans to large jobs, as the power of the number of devices that its odds have.

The curves of sizes are not published by kind. These two powers give pretraining 69 % of Seren's
and 92 % of Kalos's device-time, and evaluation 1 % of Kalos's, where the paper says 69.5, 94.0 and
0.8 %; median sizes of 128 and 512 for pretraining and 1 for evaluation, where it says over 100
and below 4.
"""

_ROUNDS, _HALVINGS, _CLOSE = 500, 60, 1e-9


class Cell(msgspec.Struct, frozen=True):
    """One kind, span of durations and size.

    Attributes:
        kind: Name of the kind.
        low_s: Shortest duration; those in the cell are even in their logarithm.
        high_s: Longest.
        devices: How many.
        weight: Share of jobs.
        endings: Chance of each ending, in the order of the cluster's.
    """

    kind: str
    low_s: float
    high_s: float
    devices: int
    weight: float
    endings: tuple[float, ...]

    @property
    def mean_s(self) -> float:
        """Mean duration."""
        return _mean_s(self.low_s, self.high_s)


@lru_cache(maxsize=4)
def cells(cluster: str) -> tuple[Cell, ...]:
    """Return the cells of a cluster, by its name in `CLUSTERS`.

    They have the published shares of jobs by kind and duration, of jobs by size, of device-time
    by size, and of jobs and device-time by ending, all at once. What these leave open is as near
    to independence as they allow.
    """
    published = CLUSTERS[cluster]
    spans = _spans(published)
    weights = np.array([weight for *_, weight in spans])
    means_s = np.array([_mean_s(low_s, high_s) for _, low_s, high_s, _ in spans])
    devices = np.array([size.devices for size in published.sizes], dtype=np.float64)
    jobs = np.diff([0.0, *(size.jobs_pct for size in published.sizes)])
    time = np.diff([0.0, *(size.time_pct for size in published.sizes)])
    lean = np.array([devices ** _LEAN.get(kind, 0.0) for kind, *_ in spans])
    joint = fitted(weights, means_s, jobs, time / (jobs * devices), lean)
    work = (means_s[:, None] * devices).ravel()
    endings = fitted(
        joint.ravel(),
        work,
        np.array([ending.jobs for ending in published.endings]),
        np.array([ending.time / ending.jobs for ending in published.endings]),
        np.ones((joint.size, len(published.endings))),
    )
    chances = endings / endings.sum(axis=1, keepdims=True)
    return tuple(
        Cell(
            kind=kind,
            low_s=low_s,
            high_s=high_s,
            devices=size.devices,
            weight=float(joint[row, column]),
            endings=tuple(map(float, chances[row * len(devices) + column])),
        )
        for row, (kind, low_s, high_s, _) in enumerate(spans)
        for column, size in enumerate(published.sizes)
    )


def fitted(rows: Array, values: Array, columns: Array, means: Array, odds: Array) -> Array:
    """Return a joint distribution with given margins and a given mean in each column.

    It is ``odds[r, c] x a[r] x b[c] x values[r] ** power[c]``, with the ``a``, ``b`` and powers
    that meet the margins and the means: iterative proportional fitting (Deming and Stephan 1940)
    with a third step for the means.

    Args:
        rows: Weight of each row, any scale.
        values: Value of each row, above 0.
        columns: Weight of each column, any scale.
        means: Mean value wanted in each column, any scale: they are scaled to agree with
            the mean over the rows.
        odds: How rows and columns attract each other before all this, above 0.

    Returns:
        Shares of rows by columns, of 1 in all.
    """
    rows, columns = rows / rows.sum(), columns / columns.sum()
    means = means * float(rows @ values) / float(columns @ means)
    means = np.clip(means, values.min() * 1.001, values.max() / 1.001)
    scale = rows.copy()
    shares: Array = np.outer(rows, columns)
    for _ in range(_ROUNDS):
        shares = _tilted(np.log(scale)[:, None] + np.log(odds), values, means) * columns
        sums = shares.sum(axis=1)
        scale *= rows / sums
        if np.abs(sums - rows).sum() < _CLOSE:
            break
    return shares


def _tilted(base: Array, values: Array, means: Array) -> Array:
    """Return columns of 1 in all, ``exp(base) x values ** power``, with these means of values.

    The power of each column is found by halving; the mean grows with it.
    """
    logs = np.log(values)[:, None]
    low, high = np.full(len(means), -30.0), np.full(len(means), 30.0)
    for _ in range(_HALVINGS):
        power = (low + high) / 2
        above = values @ _columns(base + logs * power) > means
        low, high = np.where(above, low, power), np.where(above, power, high)
    return _columns(base + logs * (low + high) / 2)


def _columns(exponents: Array) -> Array:
    """Return ``exp(exponents)``, each column scaled to a sum of 1."""
    parts: Array = np.exp(exponents - exponents.max(axis=0))
    parts /= parts.sum(axis=0)
    return parts


def _spans(cluster: Cluster) -> list[tuple[str, float, float, float]]:
    """Return kind, shortest and longest duration and weight of each stretch of a curve."""
    spans = []
    for kind in cluster.kinds:
        below = 0.0
        for power, pct in enumerate((*kind.duration_pct, 100.0)):
            low_s, high_s = (2.0 ** (power - 1), 2.0**power) if power else (1.0, 1.0)
            if pct > below:
                spans.append((kind.name, low_s, high_s, kind.share * (pct - below) / 100))
            below = pct
    return spans


def _mean_s(low_s: float, high_s: float) -> float:
    """Return the mean of what is even in its logarithm between two ends."""
    return low_s if high_s == low_s else (high_s - low_s) / log(high_s / low_s)
