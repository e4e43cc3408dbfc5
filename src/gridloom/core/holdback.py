"""Which nodes are kept for a blocked job whose start nobody can promise.

It is one set of nodes in which the job would fit: that with most of it free, and of that the
nodes with most free. What is kept only becomes freer, and another set is kept only when more of it
is free, so the job gets what it waits for however many others come; the rest goes on working.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gridloom.core.demand import Demand
from gridloom.core.gang import Finder
from gridloom.core.index import Index
from gridloom.core.topology import Ints

Mask = NDArray[np.bool_]


def to_keep(index: Index, demands: Sequence[Demand], available: Ints, kept: Mask) -> Mask | None:
    """Return the units to keep for a job; nothing if it fits nowhere beside what is kept already.

    Args:
        index: The grid.
        demands: The shapes that the job may take.
        available: For each unit what the job could have now.
        kept: Units that are kept for jobs before it, or closed to it.
    """
    best: tuple[float, int, Mask] | None = None
    for order, demand in enumerate(demands):
        usable = demand.eligible & index.capacity.openings() & ~kept
        units = _of_shape(index, demand, available, usable)
        if units is None:
            continue
        missing = 1 - int(available[units].sum()) / demand.option.devices
        if best is None or (missing, order) < best[:2]:
            best = missing, order, units
    return best[2] if best is not None else None


def _of_shape(index: Index, demand: Demand, available: Ints, usable: Mask) -> Mask | None:
    whole = np.where(usable, index.tree.unit_devices, 0)
    if demand.spec.max_sites > 1 and not demand.together:
        return usable if _fits(index, demand, whole) else None
    domains = _domains(index, demand, available, whole)
    for first, end in domains:
        inside = np.zeros_like(usable)
        inside[first:end] = usable[first:end]
        if _fits(index, demand, np.where(inside, whole, 0)):
            return _fewest(index, demand, available, whole, inside)
    return None


def _domains(index: Index, demand: Demand, available: Ints, whole: Ints) -> list[tuple[int, int]]:
    """Return the runs of units one of which must hold the job, the freest first."""
    tree = index.tree
    runs = []
    for site, (must, _) in demand.gang.items():
        for domain in range(*tree.of_site[must][site]):
            first, end = tree.span(must, domain)
            if int(whole[first:end].sum()) >= demand.option.devices:
                free = int(np.minimum(available, whole)[first:end].sum())
                runs.append((-free, first, end))
    return [(first, end) for _, first, end in sorted(runs)]


def _fewest(index: Index, demand: Demand, available: Ints, whole: Ints, inside: Mask) -> Mask:
    """Return the fewest units, those with most free first, in which the job would fit."""
    units = np.flatnonzero(inside & (whole > 0))
    units = units[np.argsort(-np.minimum(available, whole)[units], kind="stable")]
    low, high = 0, len(units)
    while high - low > 1:
        middle = (low + high) // 2
        if _fits(index, demand, _only(whole, units[:middle])):
            high = middle
        else:
            low = middle
    mask = np.zeros_like(inside)
    mask[units[:high]] = True
    return mask


def _only(whole: Ints, units: Ints) -> Ints:
    part = np.zeros_like(whole)
    part[units] = whole[units]
    return part


def _fits(index: Index, demand: Demand, devices: Ints) -> bool:
    return Finder(demand, None, devices).fits()
