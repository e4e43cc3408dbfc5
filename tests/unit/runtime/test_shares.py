"""Who takes which samples of a training step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridloom.base.errors import InputError
from gridloom.model.parallel import ParallelPlan
from gridloom.runtime.shares import Shares


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(1, 2), st.integers(0, 30))
def test_every_sample_is_taken_once_and_shares_are_even(
    copies: list[int], tensor: int, more: int
) -> None:
    plan, batch = ParallelPlan(tensor=tensor), sum(copies) + more
    sizes = [count * tensor for count in copies]
    sites = [Shares(plan, sizes, site, batch) for site in range(len(sizes))]
    own = [
        site.own(copy) for site, count in zip(sites, copies, strict=True) for copy in range(count)
    ]
    assert [sample for share in own for sample in share] == list(range(batch))
    assert max(map(len, own)) - min(map(len, own)) <= 1
    assert [site.copies for site in sites] == copies
    whole = sites[0].of_sites()
    assert [sample for share in whole for sample in share] == list(range(batch))
    assert [whole[site].start for site in range(len(sizes))] == [s.own(0).start for s in sites]


@pytest.mark.parametrize(
    ("plan", "sizes", "batch", "message"),
    [
        (ParallelPlan(tensor=2), [2, 1], 4, "a copy of the model takes 2 ranks, and a site has 1"),
        (ParallelPlan(), [1, 2], 2, "is 2, fewer sequences than there are copies"),
        (ParallelPlan(zero=1), [2, 1], 4, "3 copies of the model must have equal shares of it"),
        (ParallelPlan(pipeline=2), [4], 3, "2 copies of the model must have equal shares of it"),
    ],
)
def test_what_cannot_be_shared_is_told(
    plan: ParallelPlan, sizes: list[int], batch: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Shares(plan, sizes, 0, batch)
