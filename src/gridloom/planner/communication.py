"""Seconds of collectives: alpha-beta over the levels that each group really spans."""

import numpy as np

from gridloom.planner.cases import Cases, Column
from gridloom.planner.constants import Constants


def ring_s(cases: Cases, constants: Constants, ranks: Column, stride: Column, moved_bytes: Column) -> Column:
    """Return the seconds of a reduce-scatter or an all-gather of ``moved_bytes`` a rank's whole.

    A ring over ``ranks`` members, ``stride`` devices apart, moves ``(n - 1) / n`` of the whole
    through each link in ``n - 1`` steps. Where it spans scale-up domains, its members inside one
    share the network's bandwidth of all of them.
    """
    machine = cases.machine
    local = np.clip(machine.node / np.maximum(stride, 1.0), 1.0, ranks)
    inside = machine.scaleup_bytes_per_s * constants.scaleup_share
    outside = local * machine.network_bytes_per_s * constants.network_share
    spans = ranks * stride > machine.node
    spans = spans & (ranks > 1)
    rate = np.where(spans, np.minimum(np.where(local > 1, inside, outside), outside), inside)
    groups = np.ceil(ranks / local)
    steps = np.where(
        spans,
        (groups - 1) * constants.network_latency_s + (local - 1) * constants.scaleup_latency_s,
        (ranks - 1) * constants.scaleup_latency_s,
    )
    # Trees and parallel rings make latency grow with the logarithm once groups are large.
    depth = np.where(
        spans,
        (np.log2(np.maximum(groups, 1.0)) + 1) * constants.network_latency_s
        + (local - 1) * constants.scaleup_latency_s,
        steps,
    )
    time = moved_bytes * (ranks - 1) / np.maximum(ranks, 1.0) / rate + np.minimum(steps, depth)
    return np.where(ranks > 1, time, 0.0)


def all_to_all_s(cases: Cases, constants: Constants, ranks: Column, stride: Column, sent_bytes: Column) -> Column:
    """Return the seconds of an exchange in which each rank sends ``sent_bytes`` in all."""
    machine = cases.machine
    local = np.clip(machine.node / np.maximum(stride, 1.0), 1.0, ranks)
    inside = machine.scaleup_bytes_per_s * constants.all_to_all_share
    outside = machine.network_bytes_per_s * constants.all_to_all_share
    far = np.where(ranks > local, (ranks - local) / np.maximum(ranks, 1.0), 0.0)
    near = np.where(ranks > 1, (local - 1) / np.maximum(ranks, 1.0), 0.0)
    time = np.maximum(sent_bytes * near / inside, sent_bytes * far / outside)
    latency = np.where(far > 0, constants.network_latency_s, constants.scaleup_latency_s)
    return np.where(ranks > 1, time + latency, 0.0)
