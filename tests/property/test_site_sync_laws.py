"""Laws of the choice between sync methods: what more of a network can never do."""

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import structs
from tests.examples import at_least

from gridloom.planner.site_sync import LOSS_BOUND, SPEED_ENOUGH, candidates, choose
from gridloom.planner.sync_forecast import SyncLink, SyncSituation, forecast

LINKS = st.builds(
    SyncLink,
    bytes_per_s=st.floats(1e4, 1e11),
    rtt_s=st.floats(0.0, 1.0),
    loss=st.floats(0.0, 0.2),
)


@st.composite
def situations(draw: st.DrawFn) -> SyncSituation:
    sites = draw(st.integers(2, 3))
    return SyncSituation(
        parameters=draw(st.integers(10**4, 10**11)),
        width=draw(st.integers(64, 16384)),
        tokens=draw(st.floats(1e5, 1e13)),
        step_s=draw(st.floats(1e-3, 100.0)),
        step_tokens=draw(st.floats(1e2, 1e7)),
        sites=sites,
        links=tuple(draw(LINKS) for _ in range(sites * (sites - 1) // 2)),
        ranks=draw(st.integers(1, 64)),
        shares_cores=draw(st.booleans()),
    )


def better(situation: SyncSituation, rate: float, loss: float) -> SyncSituation:
    links = [
        replace(one, bytes_per_s=one.bytes_per_s * rate, loss=one.loss * loss)
        for one in situation.links
    ]
    return replace(situation, links=tuple(links))


@at_least(25)
@given(situations())
def test_every_method_has_a_forecast_and_one_is_chosen(situation: SyncSituation) -> None:
    for how in candidates(situation):
        found = forecast(how, situation)
        assert 0 < found.tokens_ratio <= 1
        assert 0 < found.worth <= 1
        assert found.bytes_per_token > 0
        assert found.every >= how.every
        assert found.loss.share >= 0
    choice = choose(situation)
    assert choice == choose(situation)
    assert choice.within.loss.share <= LOSS_BOUND
    chosen = [choice.within] if choice.beyond is None else [choice.within, choice.beyond]
    for one in chosen:  # a candidate, called by the interval that comes about
        assert one.every == one.how.every
        alike = {structs.replace(how, every=one.every) for how in candidates(situation)}
        assert one.how in alike


@at_least(25)
@given(situations(), st.floats(1.0, 1e3), st.floats(0.0, 1.0))
def test_a_better_network_is_never_worse(
    situation: SyncSituation, rate: float, loss: float
) -> None:
    ahead = better(situation, rate, loss)
    for how in candidates(situation):
        before, after = forecast(how, situation), forecast(how, ahead)
        assert after.tokens_ratio >= before.tokens_ratio
        assert after.every <= before.every
        assert after.loss.share <= before.loss.share
        assert after.travel_s <= before.travel_s
    was, now = choose(situation).within, choose(ahead).within
    if was.tokens_ratio >= SPEED_ENOUGH:
        assert now.tokens_ratio >= SPEED_ENOUGH
        assert round(now.loss.share, 3) <= round(was.loss.share, 3)
    elif now.tokens_ratio < SPEED_ENOUGH:
        assert round(now.worth, 3) >= round(was.worth, 3)


@at_least(25)
@given(situations(), st.floats(1.0, 1e3))
def test_more_bandwidth_makes_no_interval_longer(situation: SyncSituation, rate: float) -> None:
    """Outer steps beyond the bound are as frequent as a link allows: more so on a better one."""
    before, after = choose(situation), choose(better(situation, rate, 1.0))
    assume(before.beyond is not None and after.beyond is not None)
    assert after.best.every <= before.best.every


@at_least(25)
@given(situations(), st.floats(0.0, 0.1), st.floats(0.0, 0.1))
def test_a_wider_bound_is_never_worse(situation: SyncSituation, one: float, other: float) -> None:
    low, high = sorted((one, other))
    slow, fast = choose(situation, low).within, choose(situation, high).within
    assert round(fast.worth, 3) >= round(slow.worth, 3)
