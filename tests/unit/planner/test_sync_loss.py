"""What a sync method costs in loss: measured rows, published figures, and neither mixed up."""

import pytest
from msgspec import structs

from gridloom.model.parallel import SiteSync
from gridloom.planner.sync_loss import (
    ONE_SEED_SPREAD,
    PUBLISHED_OUTER,
    LossRow,
    predicted_loss,
)
from gridloom.planner.sync_measured import LOSS_ROWS

OUTER = SiteSync(kind="outer", every=6, codec="blocks", bits=4, outer_momentum=0.0)


def row(every: int, loss: float, **more: object) -> LossRow:
    settled = {"kind": "outer", "codec": "blocks", "bits": 4, "parameters": 1_000_000}
    settled |= {"tokens": 1_000_000, "source": "here", **more}
    return LossRow(every=every, loss=loss, **settled)  # type: ignore[arg-type]


ROWS = [row(4, 0.01), row(16, 0.03), row(8, 0.02)]


def at(every: float, rows: list[LossRow], how: SiteSync = OUTER, size: float = 1e6) -> float:
    return predicted_loss(how, every, int(size), size, rows).share


def test_between_rows_loss_is_linear_in_the_logarithm_of_the_interval() -> None:
    assert [at(every, ROWS) for every in (1, 2, 4, 8, 16)] == pytest.approx(
        [0.0, 0.005, 0.01, 0.02, 0.03]
    )


def test_beyond_the_last_row_it_goes_on_as_steep_and_says_so() -> None:
    inside, outside = (predicted_loss(OUTER, every, 10**6, 1e6, ROWS) for every in (16, 32))
    assert (inside.extrapolated, outside.extrapolated) == (False, True)
    assert outside.share == pytest.approx(0.04)
    flat = [row(4, 0.02), row(16, 0.02)]
    assert at(64, flat) > 0.02


def test_a_measurement_that_falls_counts_as_level() -> None:
    assert at(8, [row(4, 0.02), row(8, 0.01)]) == 0.02
    assert at(4, [row(4, -0.01)]) == 0.0


def test_rows_of_one_interval_are_averaged_and_the_wider_spread_counts() -> None:
    found = predicted_loss(OUTER, 4, 10**6, 1e6, [row(4, 0.01, spread=0.002), row(4, 0.03)])
    assert found.share == pytest.approx(0.02)
    assert found.spread == ONE_SEED_SPREAD


def test_the_largest_scale_that_is_no_larger_counts() -> None:
    rows = [row(8, 0.1), row(8, 0.05, tokens=10_000_000), row(8, 0.01, tokens=10**9)]
    assert at(8, rows, size=2e7) == pytest.approx(0.05)
    small = predicted_loss(OUTER, 8, 1000, 1000.0, rows)
    assert small.share == pytest.approx(0.1)
    assert small.extrapolated
    assert predicted_loss(OUTER, 8, 10**6, 1e6, rows).extrapolated is False
    assert predicted_loss(OUTER, 8, 10**8, 1e6, rows).extrapolated is True


def test_rows_with_as_many_fragments_count_first_and_coarser_ones_bound_finer_ones() -> None:
    rows = [row(4, 0.0, fragments=4), row(8, 0.01, fragments=4), row(8, 0.09, fragments=1)]
    fragments = SiteSync(kind="outer", every=8, codec="blocks", bits=8, fragments=4)
    assert at(8, rows, fragments) == pytest.approx(0.01)
    assert at(8, rows, structs.replace(OUTER, fragments=2)) == pytest.approx(0.05)
    assert at(8, rows, OUTER) == pytest.approx(
        0.09
    )  # what many fragments cost tells nothing of one


def test_whole_gradients_cost_nothing_and_others_go_by_their_own_rows() -> None:
    assert predicted_loss(SiteSync(), 1, 10**6, 1e6, ROWS).source == "exact"
    top = SiteSync(codec="top_k")
    assumed = predicted_loss(top, 1, 10**6, 1e6, ROWS)
    assert assumed.extrapolated
    assert "not measured" in assumed.source
    measured = row(1, 0.004, kind="every_step", codec="top_k", bits=32)
    found = predicted_loss(top, 1, 10**6, 1e6, [measured])
    assert (found.share, found.extrapolated) == (0.004, False)


def test_accumulation_is_bounded_by_what_its_tokens_are_worth() -> None:
    shares = [at(every, ROWS, SiteSync(kind="accumulated", every=every)) for every in (1, 2, 8)]
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert shares[2] == pytest.approx(8**0.095 - 1)


def test_published_figures_hold_at_their_scale_and_with_their_momentum() -> None:
    published = replace_momentum(0.9)
    large = (PUBLISHED_OUTER.parameters, float(PUBLISHED_OUTER.tokens))
    found = predicted_loss(published, 100, *large, ROWS)
    assert found.share == pytest.approx(0.01)
    assert not found.extrapolated
    assert predicted_loss(published, 500, *large, ROWS).extrapolated
    assert "here" in predicted_loss(OUTER, 100, *large, ROWS).source
    assert "here" in predicted_loss(published, 100, large[0], 1e8, ROWS).source


def replace_momentum(momentum: float) -> SiteSync:
    return SiteSync(kind="outer", every=6, codec="blocks", bits=4, outer_momentum=momentum)


def test_without_a_row_nothing_is_promised() -> None:
    assert predicted_loss(OUTER, 6, 10**6, 1e6, []).share == 1.0


def test_shipped_rows_say_where_they_come_from() -> None:
    assert all(one.source and "bench.wan_loss" in one.command for one in LOSS_ROWS)
    for one in LOSS_ROWS:
        how = SiteSync(kind="outer", codec="blocks", bits=one.bits, fragments=one.fragments)
        found = predicted_loss(how, one.every, one.parameters, one.tokens, LOSS_ROWS)
        assert found.share == pytest.approx(one.loss)
        assert not found.extrapolated


def test_rows_of_more_bits_or_of_another_codec_tell_nothing() -> None:
    def share(**more: object) -> float:
        how = SiteSync(kind="outer", every=14, codec="blocks", fragments=4)
        how = structs.replace(how, **more)
        return predicted_loss(how, 14, 1_330_000, 3e6, LOSS_ROWS).share

    assert share(bits=1, fragments=8) == pytest.approx(0.0122)
    assert share(bits=4) == share(bits=8) == share(codec="plain", bits=32)
    assert share(bits=4) != share(bits=1)
    assert share(codec="top_k", bits=4) == 1.0  # nobody knows
    wide = [row for row in LOSS_ROWS if row.bits == 4]
    how = SiteSync(kind="outer", every=14, codec="blocks", bits=1)
    assert predicted_loss(how, 14, 1_330_000, 3e6, wide).source == "nothing was measured"


def test_what_was_published_was_sent_in_four_bits_or_more() -> None:
    how = SiteSync(
        kind="outer", every=50, codec="blocks", bits=4, outer_learning_rate=0.7, outer_momentum=0.9
    )
    assert predicted_loss(how, 50, 10**9, 10**10, LOSS_ROWS).source.startswith("published")
    signs = structs.replace(how, bits=1)
    assert predicted_loss(signs, 50, 10**9, 10**10, LOSS_ROWS).extrapolated
