"""Stages of one pipeline at different sites, beside copies at each: predicted and weighed."""

from dataclasses import replace
from math import inf

import pytest

from gridloom.planner.site_stages import (
    SiteStages,
    StageHop,
    StagesForecast,
    exact_bits,
    stages_forecast,
    stages_s,
    wanted_depths,
    weigh,
    weighed_by_link,
    wire_bits,
)
from gridloom.planner.sync_forecast import TRANSPORT_S_PER_BYTE, SyncLink, SyncSituation

SLOW = SyncLink(bytes_per_s=12.5e6, rtt_s=0.04)  # 100 Mbit/s
FAST = SyncLink(bytes_per_s=1.25e9, rtt_s=0.02)
COPIES = SyncSituation(
    parameters=13_000_000_000,
    width=5120,
    tokens=20e9,
    step_s=12.0,
    step_tokens=1e6,
    links=(FAST,),
    ranks=8,
    shares_cores=False,
)
STAGES = SiteStages(
    sites=("north", "south"),
    layers=(20, 20),
    fill_s=(0.1875, 0.1875),
    slot_s=(0.1875, 0.1875),
    micro_batches=64,
    numbers=1e6 * 5120 / 64,
    copies=8,
    hops=(StageHop(link=FAST),),
    exact_bits=16,
    least_depths=(2, 1),
    depths=(inf, inf),
    step_tokens=1e6,
)


def three(link: SyncLink) -> SiteStages:
    """Return a third of the layers at each of three sites."""
    return replace(
        STAGES,
        sites=("north", "east", "south"),
        layers=(14, 13, 13),
        fill_s=(0.09375,) * 3,
        slot_s=(0.09375,) * 3,
        micro_batches=128,
        numbers=STAGES.numbers / 2,
        hops=(StageHop(link=link),) * 2,
        least_depths=(3, 2, 1),
        depths=(inf,) * 3,
    )


def sent_s(stages: SiteStages) -> float:
    """Return what a micro-batch in 16 bits takes over a fast link, sent by eight processes."""
    return stages.numbers * 2 * TRANSPORT_S_PER_BYTE / 8


def test_a_step_is_a_round_and_a_period_for_each_micro_batch_more() -> None:
    one_s = sent_s(STAGES)
    assert one_s < 0.1875
    expected_s = 0.375 + 0.02 + 2 * one_s + 63 * 0.1875
    assert stages_s(STAGES, 16) == pytest.approx(expected_s)
    assert stages_s(replace(STAGES, once_s=0.5), 16) == pytest.approx(expected_s + 0.5)
    found = stages_forecast(STAGES, 12.0)
    assert found.step_s == pytest.approx(expected_s)
    assert found.tokens_ratio == pytest.approx(12.0 / expected_s)
    assert found.travel_s == pytest.approx(0.02 + 2 * one_s)
    assert found.bytes_per_token == pytest.approx(2 * 64 * STAGES.numbers * 2 / 1e6)
    assert (found.bits, found.loss.share, found.worth) == (16, 0.0, found.tokens_ratio)


def test_enough_are_held_that_the_link_is_covered() -> None:
    assert 0.1875 < 0.02 + 2 * sent_s(STAGES) < 0.375
    assert wanted_depths(STAGES, 16) == (4, 1)
    found = stages_forecast(STAGES, 12.0)
    assert (found.depths, found.bounds) == ((4, 1), ())
    few = replace(STAGES, micro_batches=3)
    assert wanted_depths(few, 16) == (3, 1)


def test_where_memory_holds_too_few_the_stages_wait() -> None:
    tight, free = replace(STAGES, depths=(2.0, 8.0)), stages_forecast(STAGES, 12.0)
    round_s = 0.375 + free.travel_s
    assert stages_s(tight, 16) == pytest.approx(round_s + 31 * round_s + 0.1875)
    found = stages_forecast(tight, 12.0)
    assert (found.bits, found.bounds) == (8, (("north", 2),))  # they are back sooner
    assert found.depths == (2, 1)
    assert found.reason == "memory holds 2 micro-batches, and 3 would cover the links"


def test_a_part_in_the_middle_may_be_the_one_that_waits() -> None:
    free = three(FAST)
    tight = replace(free, depths=(128.0, 2.0, 128.0))
    hop_s = FAST.rtt_s + 2 * sent_s(free)
    round_s = 2 * 0.09375 + hop_s  # from the middle on
    assert stages_s(tight, 16) == pytest.approx(0.09375 + hop_s + 64 * round_s + 0.09375)
    assert stages_s(tight, 16) > stages_s(free, 16)


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        (STAGES.over(SLOW), "MB a micro-batch over 100 Mbit/s take"),
        (STAGES.over(SyncLink(bytes_per_s=1e12, rtt_s=3.0)), "each step waits"),
        (
            replace(STAGES, micro_batches=2, slot_s=(6.0, 6.0), fill_s=(6.0, 6.0)),
            "with 2 micro-batches, stages stand still for 6 s a step",
        ),
        (replace(STAGES, once_s=20.0), "cut so, the slowest part computes for 12 s a step, copies"),
    ],
)
def test_the_reason_is_what_costs_most(stages: SiteStages, words: str) -> None:
    assert words in stages_forecast(stages, 12.0).reason


def test_nothing_to_blame_where_nothing_is_lost() -> None:
    free = replace(STAGES.over(SyncLink(bytes_per_s=1e15)), micro_batches=1, fill_s=(0.1875, 0.0))
    assert stages_forecast(replace(free, slot_s=(0.1875, 0.0), numbers=0.0), 1.0).reason == ""


def test_fewer_bits_are_sent_where_that_is_worth_what_they_cost() -> None:
    assert wire_bits(exact_bits("fp32")) == wire_bits(exact_bits("fp16")) == (32, 16, 8)
    assert wire_bits(exact_bits("bf16")) == wire_bits(exact_bits("fp8")) == (16, 8)
    assert stages_forecast(STAGES).bits == 16
    slow = stages_forecast(STAGES.over(SLOW))
    assert slow.bits == 8
    assert slow.loss.extrapolated
    assert slow.worth < slow.tokens_ratio
    assert slow.bytes_per_token == pytest.approx(2 * 64 * STAGES.numbers * 8.125 / 8 / 1e6)


def test_without_copies_the_same_stages_without_a_network_are_the_measure() -> None:
    found = stages_forecast(STAGES)
    assert found.tokens_ratio == pytest.approx(STAGES.without_network_s / found.step_s)


def test_cores_that_train_make_and_send_what_travels() -> None:
    shared = replace(STAGES, shares_cores=True)
    own = STAGES.numbers / 8
    each_s = 0.005 * own / 1e6 + 2 * 2 * own * TRANSPORT_S_PER_BYTE
    more_s = stages_s(shared, 16) - stages_s(STAGES, 16)
    assert more_s == pytest.approx(2 * each_s + 63 * each_s)
    middle = replace(three(FAST), shares_cores=True)
    more_s = stages_s(middle, 16) - stages_s(three(FAST), 16)
    assert more_s == pytest.approx((4 + 127 * 2) * each_s / 2)


def test_inside_a_site_nothing_is_made_small() -> None:
    near = replace(STAGES, hops=(StageHop(link=SyncLink(bytes_per_s=1e9), is_between_sites=False),))
    found = stages_forecast(near)
    assert (found.bytes_per_token, found.travel_s) == (0.0, 0.0)
    assert stages_s(near, 16) == stages_s(near, 8)
    assert near.over(SLOW) == near


def test_on_a_fast_link_stages_beat_copies_of_a_large_model() -> None:
    weighed = weigh(COPIES, STAGES)
    assert weighed.is_won_by_stages
    assert isinstance(weighed.winner, StagesForecast)
    assert weighed.choice is not None
    assert weighed.winner.worth > 1.01 * weighed.choice.best.worth


def test_on_a_slow_link_copies_with_outer_steps_win() -> None:
    slow = weigh(replace(COPIES, links=(SLOW,)), STAGES.over(SLOW))
    assert not slow.is_won_by_stages
    assert slow.choice is not None
    assert slow.winner is slow.choice.best
    assert slow.choice.best.how.kind == "outer"
    assert slow.stages is not None
    assert slow.stages.worth < 0.1


def test_where_copies_do_not_fit_stages_are_the_only_way() -> None:
    weighed = weigh(None, STAGES.over(SLOW))
    assert weighed.choice is None
    assert weighed.winner is weighed.stages
    assert weighed.is_won_by_stages
    assert not weigh(COPIES, None).is_won_by_stages
    assert weigh(None, None).winner is None
    assert not weigh(None, None).is_won_by_stages


def test_three_sites_have_two_links() -> None:
    found, two = stages_forecast(three(FAST), 12.0), stages_forecast(STAGES, 12.0)
    assert found.bits == two.bits == 16
    assert found.bytes_per_token == 2 * two.bytes_per_token
    assert found.travel_s == pytest.approx(2 * (0.02 + sent_s(STAGES)))
    assert len(found.depths) == 3
    assert found.depths[0] > found.depths[1] > found.depths[2] == 1
    copies = replace(COPIES, sites=3, links=(FAST,) * 3)
    assert weigh(copies, three(FAST)).is_won_by_stages
    one_slow = replace(three(FAST), hops=(StageHop(link=FAST), StageHop(link=SLOW)))
    assert not weigh(replace(copies, links=(FAST, FAST, SLOW)), one_slow).is_won_by_stages


def test_which_way_for_which_link() -> None:
    links = [SyncLink(bytes_per_s=rate, rtt_s=0.02) for rate in (1.25e6, 12.5e6, 1.25e9)]
    rows = weighed_by_link(COPIES, STAGES, links)
    assert [link for link, _ in rows] == links
    assert [one.is_won_by_stages for _, one in rows] == [False, False, True]
    every = [one.choice.best.every for _, one in rows if one.choice is not None]
    assert every == sorted(every, reverse=True)
    assert [one.choice for _, one in weighed_by_link(None, STAGES, links)] == [None] * 3
    assert [one.stages for _, one in weighed_by_link(COPIES, None, links)] == [None] * 3
