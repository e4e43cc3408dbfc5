"""Sync methods between sites: what is predicted of each, and which one is chosen."""

import math
from dataclasses import replace

import pytest

from gridloom.model.parallel import SiteSync
from gridloom.planner.site_sync import (
    LOSS_BOUND,
    MEASURED_RULE,
    PUBLISHED_RULE,
    SPEED_ENOUGH,
    adaptive,
    candidates,
    choose,
)
from gridloom.planner.sync_forecast import (
    CODEC_S_PER_MILLION,
    SEGMENT_BYTES,
    TRANSPORT_S_PER_BYTE,
    SyncLink,
    SyncSituation,
    forecast,
    payload_bytes,
)
from gridloom.planner.sync_measured import LOSS_ROWS

SLOW = SyncLink(bytes_per_s=12.5e6, rtt_s=0.04)  # 100 Mbit/s
SMALL = SyncSituation(
    parameters=12_000_000,
    width=384,
    tokens=20e6,
    step_s=0.5,
    step_tokens=512,
    links=(SLOW,),
)
LARGE = replace(
    SMALL,
    parameters=8_000_000_000,
    tokens=1e12,
    step_s=10.0,
    step_tokens=4e6,
    ranks=64,
    shares_cores=False,
    links=(SyncLink(bytes_per_s=1.25e9, rtt_s=0.04),),
)
OUTER = SiteSync(kind="outer", every=6, codec="blocks", bits=4)


def test_every_step_waits_for_the_gradient_there_and_back() -> None:
    found = forecast(SiteSync(), SMALL)
    payload = 12e6 * 4
    assert found.travel_s == pytest.approx(2 * payload / 12.5e6 + 0.04)
    waits_s = found.travel_s + 12 * 0.004  # seconds of a core for a million numbers
    assert found.tokens_ratio == pytest.approx(0.5 / (0.5 + waits_s))
    assert found.bytes_per_token == pytest.approx(2 * payload / 512)
    assert (found.every, found.loss.share, found.loss.spread) == (1, 0.0, 0.0)


def test_gradients_of_several_steps_wait_once() -> None:
    often, seldom = (
        forecast(how, SMALL) for how in (SiteSync(), SiteSync(kind="accumulated", every=8))
    )
    assert seldom.travel_s == often.travel_s
    waits = [1 / one.tokens_ratio - 1 for one in (often, seldom)]
    assert waits[0] == pytest.approx(8 * waits[1])
    assert seldom.bytes_per_token == pytest.approx(often.bytes_per_token / 8)
    assert seldom.loss.extrapolated


def test_outer_steps_cost_the_processor_only() -> None:
    found = forecast(OUTER, SMALL)
    payload = 12e6 * (4 + 8 / 64) / 8
    busy_s = 12 * CODEC_S_PER_MILLION["blocks 4"] + 2 * payload * TRANSPORT_S_PER_BYTE
    assert found.tokens_ratio == pytest.approx(3.0 / (3.0 + busy_s))
    assert found.every == 6
    free = forecast(OUTER, replace(SMALL, shares_cores=False))
    assert free.tokens_ratio == 1.0
    fewer = forecast(OUTER, replace(SMALL, ranks=4))
    assert found.tokens_ratio < fewer.tokens_ratio < 1.0


def test_a_link_that_is_too_slow_stretches_the_interval_and_costs_loss() -> None:
    slower = replace(SMALL, links=(SyncLink(bytes_per_s=1.25e6, rtt_s=0.04),))
    rows = [replace(row, fragments=1) for row in LOSS_ROWS]
    found, near = forecast(OUTER, slower, rows), forecast(OUTER, SMALL, rows)
    assert found.travel_s > 6 * 0.5
    busy_s = 3.0 / found.tokens_ratio - 3.0
    assert found.every == math.ceil((found.travel_s + busy_s) / 0.5)
    assert found.loss.share > near.loss.share
    assert found.bytes_per_token == pytest.approx(near.bytes_per_token * 6 / found.every)
    assert any("stretches the interval to 21" in reason for reason in found.reasons)


def test_an_interval_of_0_is_as_short_as_link_and_processor_allow() -> None:
    found = forecast(SiteSync(kind="outer", every=0, codec="blocks", bits=4), SMALL)
    assert found.tokens_ratio == pytest.approx(0.98, abs=0.002)
    fast = replace(SMALL, shares_cores=False)
    free = forecast(SiteSync(kind="outer", every=0, codec="blocks", bits=4), fast)
    assert free.every == math.ceil(free.travel_s / 0.5)


@pytest.mark.parametrize(
    ("how", "bits"),
    [
        (SiteSync(), 32.0),
        (SiteSync(bits=16), 16.0),
        (SiteSync(codec="blocks", bits=8), 8.125),
        (SiteSync(codec="blocks", bits=4), 4.125),
        (SiteSync(codec="top_k", share=0.25), 0.25 * 36.5),
        (SiteSync(codec="deep", share=0.25), 0.25 * 36.5),
        (SiteSync(codec="low_rank", rank=4), 32 * 2 * 4 / 1024),
        (SiteSync(codec="low_rank", rank=4096), 32.0),
    ],
)
def test_bits_of_a_number_on_the_way(how: SiteSync, bits: float) -> None:
    assert payload_bytes(how, 1e6) == pytest.approx(1e6 * bits / 8)


def test_losses_bound_what_tcp_gets_through() -> None:
    lossy = SyncLink(bytes_per_s=125e6, rtt_s=0.15, loss=0.001)
    stream = math.sqrt(1.5) * SEGMENT_BYTES / (0.15 * math.sqrt(0.001))
    assert lossy.rate_bytes_per_s() == pytest.approx(4 * stream)
    assert lossy.rate_bytes_per_s(streams=1) == pytest.approx(stream)
    assert replace(lossy, loss=0.0).rate_bytes_per_s() == 125e6
    assert SyncLink(bytes_per_s=1e12).rate_bytes_per_s() == pytest.approx(1 / TRANSPORT_S_PER_BYTE)


def test_more_sites_travel_by_the_slowest_link_and_burden_the_leader() -> None:
    near = SyncLink(bytes_per_s=125e6, rtt_s=0.02)
    three = replace(SMALL, sites=3, links=(near, SLOW, near))
    assert forecast(OUTER, three).travel_s == forecast(OUTER, SMALL).travel_s
    assert forecast(OUTER, three).tokens_ratio < forecast(OUTER, SMALL).tokens_ratio
    assert forecast(OUTER, three).bytes_per_token == 2 * forecast(OUTER, SMALL).bytes_per_token


def test_of_what_is_fast_enough_the_least_loss_is_chosen() -> None:
    fast = choose(SMALL).within
    assert fast.tokens_ratio >= SPEED_ENOUGH
    for how in candidates(SMALL):
        other = forecast(how, SMALL)
        if other.tokens_ratio >= SPEED_ENOUGH:
            assert fast.loss.share <= other.loss.share + 0.0005
    quick = replace(SMALL, step_s=0.05)  # the processor has no time for any of them
    slow = choose(quick).within
    assert slow.tokens_ratio < SPEED_ENOUGH
    for how in candidates(quick):
        other = forecast(how, quick)
        if other.loss.share <= LOSS_BOUND:
            assert slow.worth >= other.worth - 0.0005


def test_what_a_network_does_not_slow_is_sent_whole() -> None:
    near = SyncLink(bytes_per_s=1e12, rtt_s=1e-6)
    long = replace(SMALL, step_s=60.0, shares_cores=False, links=(near,))
    assert choose(long).best.how == SiteSync()


def test_on_a_slow_link_outer_steps_are_chosen_within_the_bound() -> None:
    choice = choose(SMALL)
    best = choice.best
    assert choice.beyond is None
    assert (best.how.kind, best.how.codec, best.how.bits) == ("outer", "blocks", 1)
    assert best.loss.share <= LOSS_BOUND
    assert best.tokens_ratio > 0.9 > 5 * forecast(SiteSync(), SMALL).tokens_ratio
    assert best in choice.rivals
    assert len({one.how for one in choice.rivals}) == len(choice.rivals) == 9
    assert (best.how.outer_learning_rate, best.how.outer_momentum) == MEASURED_RULE


@pytest.mark.parametrize("situation", [SMALL, LARGE])
def test_an_interval_of_0_is_shown_and_never_chosen(situation: SyncSituation) -> None:
    rows = [replace(row, loss=0.0) for row in LOSS_ROWS]  # however little it cost
    choice = choose(situation, rows=rows)
    shown = next(one for one in choice.rivals if not one.how.every)
    assert shown == forecast(adaptive(situation), situation, rows)
    assert shown.every >= 1
    assert choice.best.how.every == choice.best.every


def test_nothing_but_whole_gradients_is_left_by_a_bound_of_0_where_that_is_fast() -> None:
    near = replace(LARGE, parameters=1_000_000, links=(SyncLink(bytes_per_s=1e9),))
    choice = choose(near, bound=0.0)
    assert choice.best.how == SiteSync()
    assert choice.best.tokens_ratio > 0.99


def test_the_bound_gives_way_where_all_within_it_is_hopeless() -> None:
    slower = replace(SMALL, links=(SyncLink(bytes_per_s=5e4, rtt_s=0.04),))
    choice = choose(slower)
    assert choice.beyond is choice.best
    assert choice.within.loss.share <= choice.bound < choice.best.loss.share
    assert choice.best.how.kind == "outer"
    assert choice.best.worth > 2 * choice.within.worth
    assert choice.best.tokens_ratio > 0.9


def test_large_trainings_go_by_what_is_published() -> None:
    best = choose(LARGE).best
    assert best.how.kind == "outer"
    assert (best.how.outer_learning_rate, best.how.outer_momentum) == PUBLISHED_RULE
    assert best.loss.source.startswith("published")
    assert best.every == 32


def test_measured_rows_change_the_choice() -> None:
    rows = [replace(row, loss=0.0) for row in LOSS_ROWS]
    assert choose(SMALL, rows=rows).best.how.every > choose(SMALL).best.how.every


def test_every_candidate_is_another_one() -> None:
    found = list(candidates(SMALL))
    assert len(set(found)) == len(found)
