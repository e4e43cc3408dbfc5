"""Laws of stages at different sites: what more of a network, or of memory, can never do."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import at_least

from gridloom.planner.site_stages import (
    SiteStages,
    StageHop,
    stages_forecast,
    stages_s,
    wanted_depths,
    wire_bits,
)
from gridloom.planner.sync_forecast import SyncLink

LINKS = st.builds(
    SyncLink,
    bytes_per_s=st.floats(1e5, 1e11),
    rtt_s=st.floats(0.0, 0.5),
    loss=st.floats(0.0, 0.01),
)


@st.composite
def pipelines(draw: st.DrawFn) -> SiteStages:
    count = draw(st.integers(2, 4))
    slots = [draw(st.floats(1e-3, 1.0)) for _ in range(count)]
    inner = [draw(st.integers(1, 3)) for _ in range(count)]
    micro_batches = draw(st.integers(1, 64))
    least = [sum(inner[place:]) for place in range(count)]
    return SiteStages(
        sites=tuple(f"s{place}" for place in range(count)),
        layers=(4,) * count,
        fill_s=tuple(slot * stages for slot, stages in zip(slots, inner, strict=True)),
        slot_s=tuple(slots),
        once_s=draw(st.floats(0.0, 1.0)),
        micro_batches=micro_batches,
        numbers=draw(st.floats(1e3, 1e9)),
        copies=draw(st.integers(1, 16)),
        hops=tuple(StageHop(link=draw(LINKS)) for _ in range(count - 1)),
        exact_bits=draw(st.sampled_from([16, 32])),
        least_depths=tuple(least),
        depths=tuple(float(one + draw(st.integers(0, 40))) for one in least),
        step_tokens=draw(st.floats(1e2, 1e7)),
        shares_cores=draw(st.booleans()),
        is_runnable=max(inner) == 1,
    )


def faster(stages: SiteStages, rate: float) -> SiteStages:
    hops = (
        replace(hop, link=replace(hop.link, bytes_per_s=hop.link.bytes_per_s * rate))
        for hop in stages.hops
    )
    return replace(stages, hops=tuple(hops))


def free(stages: SiteStages) -> SiteStages:
    return replace(stages, depths=(float("inf"),) * len(stages.depths))


@given(pipelines(), st.floats(1.0, 1e3))
@at_least(60)
def test_a_faster_link_is_never_slower(stages: SiteStages, rate: float) -> None:
    ahead = faster(stages, rate)
    for bits in wire_bits(stages.exact_bits):
        assert stages_s(ahead, bits) <= stages_s(stages, bits) * (1 + 1e-9)
    assert stages_forecast(ahead).worth >= stages_forecast(stages).worth * (1 - 1e-9)


@given(pipelines(), st.integers(2, 8))
@at_least(60)
def test_the_same_batch_in_more_micro_batches_is_never_slower(
    stages: SiteStages, times: int
) -> None:
    """As long as memory holds enough of them, and a smaller one computes as fast a sequence."""
    finer = replace(
        stages,
        micro_batches=stages.micro_batches * times,
        fill_s=tuple(fill_s / times for fill_s in stages.fill_s),
        slot_s=tuple(slot_s / times for slot_s in stages.slot_s),
        numbers=stages.numbers / times,
    )
    for bits in wire_bits(stages.exact_bits):
        assert stages_s(free(finer), bits) <= stages_s(free(stages), bits) * (1 + 1e-9)


@given(pipelines(), st.integers(1, 64))
@at_least(60)
def test_more_micro_batches_take_longer_and_fill_the_stages_better(
    stages: SiteStages, more: int
) -> None:
    longer = replace(stages, micro_batches=stages.micro_batches + more)
    bits = stages.exact_bits
    assert stages_s(longer, bits) >= stages_s(stages, bits)
    each, before = (stages_s(free(one), bits) / one.micro_batches for one in (longer, stages))
    assert each <= before * (1 + 1e-9)


@given(pipelines())
@at_least(60)
def test_either_end_may_be_the_first(stages: SiteStages) -> None:
    turned = replace(
        stages,
        fill_s=stages.fill_s[::-1],
        slot_s=stages.slot_s[::-1],
        hops=stages.hops[::-1],
    )
    for bits in wire_bits(stages.exact_bits):
        assert stages_s(free(turned), bits) == pytest.approx(stages_s(free(stages), bits))


@given(pipelines(), st.integers(0, 40))
@at_least(60)
def test_memory_helps_until_the_links_are_covered(stages: SiteStages, more: int) -> None:
    roomy = replace(stages, depths=tuple(depth + more for depth in stages.depths))
    for bits in wire_bits(stages.exact_bits):
        least_s = stages_s(free(stages), bits)
        assert stages_s(roomy, bits) >= least_s * (1 - 1e-9)
        covered = replace(stages, depths=tuple(map(float, wanted_depths(stages, bits))))
        assert stages_s(covered, bits) == pytest.approx(least_s)
        assert least_s >= stages.without_network_s * (1 - 1e-9)


@given(pipelines())
@at_least(60)
def test_a_forecast_is_of_the_stages(stages: SiteStages) -> None:
    found = stages_forecast(stages)
    assert 0 < found.worth <= found.tokens_ratio <= 1 + 1e-9
    assert found.bits in wire_bits(stages.exact_bits)
    assert (found.loss.share == 0) == (found.bits == stages.exact_bits)
    assert found.step_s == stages_s(stages, found.bits)
    limits = zip(found.depths, stages.depths, strict=True)
    assert all(1 <= held <= max(depth, 1) for held, depth in limits)
    assert all(held < stages.micro_batches for _, held in found.bounds)
