"""Seconds of collectives: alpha-beta over the levels that each group really spans.

A group has ``ranks`` members, ``stride`` devices apart in the order in which ranks fill nodes. Its
members inside one scale-up domain speak over its links; between domains each member has its own
network interface, so that a group with ``local`` members in a domain crosses with the bandwidth of
``local`` interfaces (one ring an interface, as NCCL builds them); above a leaf switch a share of
that bandwidth remains. Alpha-beta: Hockney, 1994; rings: Patarasuk and Yuan, 2009.
"""

import numpy as np

from gridloom.planner.cases import Cases, Column
from gridloom.planner.constants import Constants


def ring_s(
    cases: Cases, constants: Constants, ranks: Column, stride: Column, whole_bytes: Column
) -> Column:
    """Return the seconds of a reduce-scatter, or an all-gather, of ``whole_bytes`` over a group.

    ``(n - 1) / n`` of the whole goes through the slowest link, in steps whose latency grows with
    the ranks around a ring, and with the logarithm of the domains in a tree of rings once that is
    less (NCCL's trees). An all-reduce is both, one after the other; where the switches of a
    scale-up domain reduce (NVLink SHARP), each rank sends the whole once and receives it once.
    """
    machine = cases.machine
    local = np.clip(machine.node / np.maximum(stride, 1.0), 1.0, ranks)
    spans = ranks * stride > machine.node
    inside = machine.scaleup_bytes_per_s * constants.scaleup_share
    outside = local * _network_bytes_per_s(cases, constants, ranks * stride)
    outside = np.where(local > 1, np.minimum(inside, outside), outside)
    domains = np.ceil(ranks / local)
    near = (local - 1) * constants.scaleup_latency_s
    hops = np.minimum(domains - 1, np.log2(np.maximum(domains, 1.0)) + 1.0)
    latency = np.where(spans, hops * constants.network_latency_s, 0.0) + near
    moved = whole_bytes * (ranks - 1) / np.maximum(ranks, 1.0)
    return np.where(ranks > 1, moved / np.where(spans, outside, inside) + latency, 0.0)


def all_to_all_s(
    cases: Cases, constants: Constants, ranks: Column, stride: Column, copies: tuple[Column, Column]
) -> Column:
    """Return the seconds of an exchange over a group in which each rank sends to all.

    What stays in the domain and what leaves it go at once, each over its own links.

    Args:
        cases: On which machine.
        constants: What its links reach.
        ranks: Members of the group.
        stride: Devices from one to the next.
        copies: Bytes that a rank sends, one for each copy, and how many copies there are. A domain
            gets what is for several of its members once and hands it on (as DeepEP does).
    """
    machine = cases.machine
    each_bytes, count = copies
    local = np.clip(machine.node / np.maximum(stride, 1.0), 1.0, ranks)
    domains = np.maximum(ranks / local, 1.0)
    met = domains * (1.0 - (1.0 - 1.0 / domains) ** count)
    far = each_bytes * met * (domains - 1.0) / domains
    near = each_bytes * count * (local - 1.0) / local
    inside = near / (machine.scaleup_bytes_per_s * constants.all_to_all_share)
    outside = far / (machine.network_bytes_per_s * constants.all_to_all_share)
    latency = np.where(domains > 1, constants.network_latency_s, constants.scaleup_latency_s)
    return np.where(ranks > 1, np.maximum(inside, outside) + latency, 0.0)


def hop_s(cases: Cases, constants: Constants, stride: Column, sent_bytes: Column) -> Column:
    """Return the seconds of one message to the rank ``stride`` devices away."""
    machine = cases.machine
    far = stride >= machine.node
    rate = np.where(
        far,
        _network_bytes_per_s(cases, constants, stride),
        machine.scaleup_bytes_per_s * constants.scaleup_share,
    )
    latency = np.where(far, constants.network_latency_s, constants.scaleup_latency_s)
    return sent_bytes / rate + latency


def sites_s(cases: Cases, payload_bytes: Column) -> Column:
    """Return the seconds of one all-reduce of a site's payload over the ring of sites.

    ``2 (S - 1) / S`` of the payload leaves each site, in ``2 (S - 1)`` steps.
    """
    machine = cases.machine
    sites = np.maximum(machine.sites, 1.0)
    rate = np.where(machine.wan_bytes_per_s > 0, machine.wan_bytes_per_s, np.inf)
    moved = 2.0 * (sites - 1) / sites * payload_bytes / rate
    return moved + 2.0 * (sites - 1) * machine.wan_latency_s


def _network_bytes_per_s(cases: Cases, constants: Constants, span: Column) -> Column:
    """Return what one interface carries for a group that spans ``span`` devices."""
    machine = cases.machine
    above = (machine.leaf > 0) & (span > machine.leaf)
    share = np.where(above, machine.spine_share, 1.0)
    return machine.network_bytes_per_s * constants.network_share * share
