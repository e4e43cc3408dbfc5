"""Seconds of collectives over the levels of the network, by hand."""

from typing import Any

import numpy as np
import pytest
from tests.unit.planner.step_cases import case

from gridloom.planner.cases import Cases, stack
from gridloom.planner.communication import all_to_all_s, hop_s, ring_s, sites_s
from gridloom.planner.constants import Constants

CONSTANTS = Constants(
    scaleup_share=0.5,
    network_share=0.8,
    all_to_all_share=0.25,
    scaleup_latency_s=1e-6,
    network_latency_s=10e-6,
)
INSIDE = 400e9 * 0.5
OUTSIDE = 50e9 * 0.8
GB = 1e9


def on(**machine: Any) -> Cases:
    return case(machine=machine)


def ring(ranks: int, stride: int, **machine: Any) -> float:
    return float(ring_s(on(**machine), CONSTANTS, ranks, stride, GB))


# --- rings


def test_a_ring_inside_a_domain() -> None:
    assert ring(8, 1) == pytest.approx(7 / 8 * GB / INSIDE + 7e-6)
    assert ring(2, 1) == pytest.approx(1 / 2 * GB / INSIDE + 1e-6)
    assert ring(4, 2) == pytest.approx(3 / 4 * GB / INSIDE + 3e-6)


@pytest.mark.parametrize("stride", [1, 8, 64])
def test_a_group_of_one_exchanges_nothing(stride: int) -> None:
    assert ring(1, stride) == 0.0


@pytest.mark.parametrize(
    ("ranks", "stride", "local", "hops"),
    [
        (16, 1, 8, 1),  # two domains with eight interfaces each
        (64, 1, 8, 4),  # eight domains: the tree's log2(8) + 1 is less than 7 steps
        (4, 8, 1, 3),  # each in a domain of its own, on one interface
        (16, 8, 1, 5),
        (8, 4, 2, 3),  # two members a domain, on two interfaces
    ],
)
def test_a_ring_across_domains(ranks: int, stride: int, local: int, hops: int) -> None:
    bandwidth = min(local * OUTSIDE, INSIDE) if local > 1 else OUTSIDE
    expected = (ranks - 1) / ranks * GB / bandwidth + hops * 10e-6 + (local - 1) * 1e-6
    assert ring(ranks, stride) == pytest.approx(expected)


def test_links_inside_bound_what_the_interfaces_carry() -> None:
    # Eight interfaces of 40 GB/s are more than one scale-up link of 200 GB/s.
    assert 8 * OUTSIDE > INSIDE
    assert ring(16, 1) == pytest.approx(15 / 16 * GB / INSIDE + 17e-6)
    # A single member a domain does not use the scale-up links at all.
    slow = ring(4, 8, scaleup_bytes_per_s=1e9)
    assert slow == ring(4, 8)


def test_above_a_leaf_switch_a_share_of_the_bandwidth_remains() -> None:
    below = ring(4, 8, leaf=32, spine_share=0.25)
    above = ring(8, 8, leaf=32, spine_share=0.25)
    assert below == ring(4, 8)
    assert above == pytest.approx(7 / 8 * GB / (OUTSIDE * 0.25) + 4 * 10e-6)
    # Eight interfaces at a quarter carry less than the scale-up links.
    assert ring(64, 1, leaf=32, spine_share=0.25) == pytest.approx(
        63 / 64 * GB / (8 * OUTSIDE * 0.25) + 4 * 10e-6 + 7e-6
    )
    # Without a leaf the share says nothing, and inside a domain neither.
    assert ring(8, 8, leaf=0, spine_share=0.25) == ring(8, 8)
    assert ring(8, 1, leaf=4, spine_share=0.25) == ring(8, 1)


def test_a_ring_over_part_of_a_last_domain_counts_it() -> None:
    assert ring(12, 1) == pytest.approx(11 / 12 * GB / INSIDE + 10e-6 + 7e-6)


# --- all to all


def all_to_all(ranks: int, stride: int, copies: float, **machine: Any) -> float:
    return float(all_to_all_s(on(**machine), CONSTANTS, ranks, stride, (GB, copies)))


@pytest.mark.parametrize("copies", [1, 4])
def test_an_exchange_inside_a_domain(copies: int) -> None:
    expected = 7 / 8 * copies * GB / (400e9 * 0.25) + 1e-6
    assert all_to_all(8, 1, copies) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("copies", "met"),
    [
        (1, 1.0),
        (2, 4 * (1 - 0.75**2)),  # to two of four domains, or both to one
        (8, 4 * (1 - 0.75**8)),
        (1000, 4.0),  # never to more domains than there are
    ],
)
def test_a_domain_gets_what_is_for_several_of_its_members_once(copies: int, met: float) -> None:
    far = met * 3 / 4 * GB / (50e9 * 0.25)
    near = copies * 7 / 8 * GB / (400e9 * 0.25)
    assert all_to_all(32, 1, copies) == pytest.approx(max(far, near) + 10e-6)


def test_near_and_far_go_at_once() -> None:
    far = 3 / 4 * GB / (50e9 * 0.25)
    assert all_to_all(32, 1, 1) == pytest.approx(far + 10e-6)
    near = 7 / 8 * GB / (10e9 * 0.25)
    assert all_to_all(32, 1, 1, scaleup_bytes_per_s=10e9) == pytest.approx(near + 10e-6)


def test_strides_spread_an_exchange_over_domains() -> None:
    # Two members in each of four domains.
    assert all_to_all(8, 4, 1) == pytest.approx(3 / 4 * GB / (50e9 * 0.25) + 10e-6)
    assert all_to_all(4, 8, 1) == pytest.approx(3 / 4 * GB / (50e9 * 0.25) + 10e-6)


def test_one_rank_sends_nothing() -> None:
    assert all_to_all(1, 1, 8) == 0.0


# --- messages


@pytest.mark.parametrize(
    ("stride", "rate", "latency"),
    [(1, INSIDE, 1e-6), (7, INSIDE, 1e-6), (8, OUTSIDE, 10e-6), (64, OUTSIDE, 10e-6)],
)
def test_one_message(stride: int, rate: float, latency: float) -> None:
    assert float(hop_s(on(), CONSTANTS, stride, GB)) == pytest.approx(GB / rate + latency)


def test_a_message_above_a_leaf() -> None:
    found = float(hop_s(on(leaf=32, spine_share=0.5), CONSTANTS, 64, GB))
    assert found == pytest.approx(GB / (OUTSIDE / 2) + 10e-6)


# --- sites


def test_one_site_waits_for_none() -> None:
    assert float(sites_s(on(), GB)) == 0.0
    assert float(sites_s(on(wan_bytes_per_s=1e8, wan_latency_s=0.1), GB)) == 0.0


@pytest.mark.parametrize(("sites", "share", "steps"), [(2, 1.0, 2), (4, 1.5, 6), (5, 1.6, 8)])
def test_a_ring_of_sites(sites: int, share: float, steps: int) -> None:
    cases = on(sites=sites, wan_bytes_per_s=1.25e9, wan_latency_s=0.03)
    expected = share * GB / 1.25e9 + steps * 0.03
    assert float(sites_s(cases, GB)) == pytest.approx(expected)


def test_sites_without_a_stated_bandwidth_cost_their_latency() -> None:
    assert float(sites_s(on(sites=3, wan_latency_s=0.01), GB)) == pytest.approx(0.04)


# --- tables


def test_a_table_of_groups_is_computed_as_each_of_them() -> None:
    each = [
        on(node=node, leaf=leaf, spine_share=0.5, sites=sites, wan_bytes_per_s=1e9)
        for node, leaf, sites in ((8, 0, 1), (4, 16, 2), (1, 8, 3), (72, 144, 1))
    ]
    together = stack(each)
    ranks, stride = np.array([8.0, 16.0, 32.0, 4.0]), np.array([1.0, 2.0, 1.0, 72.0])
    groups = list(zip(each, ranks, stride, strict=True))
    reduced = [float(ring_s(one, CONSTANTS, r, s, GB)) for one, r, s in groups]
    assert np.allclose(ring_s(together, CONSTANTS, ranks, stride, GB), reduced, rtol=1e-12)
    sent = (GB, np.array([1.0, 2.0, 4.0, 8.0]))
    exchanged = [
        float(all_to_all_s(one, CONSTANTS, r, s, (GB, count)))
        for (one, r, s), count in zip(groups, sent[1], strict=True)
    ]
    found = all_to_all_s(together, CONSTANTS, ranks, stride, sent)
    assert np.allclose(found, exchanged, rtol=1e-12)
    hops = [float(hop_s(one, CONSTANTS, s, GB)) for one, s in zip(each, stride, strict=True)]
    assert np.allclose(hop_s(together, CONSTANTS, stride, GB), hops, rtol=1e-12)
    rings = [float(sites_s(one, GB)) for one in each]
    assert np.allclose(sites_s(together, GB), rings, rtol=1e-12)
