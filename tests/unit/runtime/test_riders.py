"""The numbers that ride along with the gradients."""

import math

from gridloom.runtime.riders import RankSeconds, Totals, count, pack, unpack


def test_they_add_up_over_ranks_and_are_averaged_over_a_site() -> None:
    ranks = [
        pack(Totals(10.0, 5, 0.0, 7.0, 2.0, 1e9), site, 2, RankSeconds(compute, data=0.5))
        for site, compute in ((0, 1.0), (0, 3.0), (1, 8.0))
    ]
    assert {len(numbers) for numbers in ranks} == {count(2)}
    totals, sites = unpack([sum(column) for column in zip(*ranks, strict=True)], [2, 1])
    assert totals == Totals(30.0, 15.0, 0.0, 21.0, 6.0, 3e9)
    assert totals.whole_within_bytes == 21
    assert sites == [RankSeconds(2.0, data=0.5), RankSeconds(8.0, data=0.5)]


def test_what_one_rank_did_not_measure_nobody_knows() -> None:
    assert Totals(1.0, 1.0, 0.0, 2.0 + math.nan, 0.0, 1e9).whole_within_bytes is None
