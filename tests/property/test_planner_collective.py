"""The bytes formula against a simulation that really moves chunks about."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gridloom.planner.collective import bytes_per_step

Payload = list[int]


def chunks(length: int, parts: int) -> list[range]:
    edges = [length * part // parts for part in range(parts + 1)]
    return [range(*pair) for pair in pairwise(edges)]


def reduce_scatter(ranks: list[Payload]) -> int:
    """Leave chunk ``r + 1`` of the sum at rank ``r``; return how many numbers were sent."""
    count, sent = len(ranks), 0
    parts = chunks(len(ranks[0]), count)
    for turn in range(count - 1):
        moved = []
        for rank in range(count):
            part = parts[(rank - turn) % count]
            moved.append(((rank + 1) % count, part, [ranks[rank][index] for index in part]))
            sent += len(part)
        for to, part, numbers in moved:
            for index, number in zip(part, numbers, strict=True):
                ranks[to][index] += number
    return sent


def all_gather(ranks: list[Payload]) -> int:
    count, sent = len(ranks), 0
    parts = chunks(len(ranks[0]), count)
    for turn in range(count - 1):
        for rank in range(count):
            part = parts[(rank + 1 - turn) % count]
            to = ranks[(rank + 1) % count]
            to[part.start : part.stop] = ranks[rank][part.start : part.stop]
            sent += len(part)
    return sent


def lead(heads: list[Payload]) -> int:
    """Let the first one have all sums and tell the others; return how many numbers were sent."""
    first, *others = heads
    sent = sum(map(len, others))
    total = [sum(column) for column in zip(*heads, strict=True)]
    for payload in heads:
        payload[:] = total
    # with two sites it is its own sum that the other one lacks; with more, the total
    return sent + len(others) * len(first)


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.integers(0, 3),
    st.randoms(use_true_random=False),
)
def test_bytes_are_those_of_the_algorithm(site_ranks, times, random) -> None:  # type: ignore[no-untyped-def]
    length = 60 * times  # divisible by every number of ranks and sites
    sites = [
        [[random.randrange(100) for _ in range(length)] for _ in range(ranks)]
        for ranks in site_ranks
    ]
    expected = [sum(column) for column in zip(*[p for site in sites for p in site], strict=True)]

    reduced = sum(reduce_scatter(site) + all_gather(site) for site in sites)
    between = lead([site[0] for site in sites])
    broadcast = 0
    for site in sites if len(sites) > 1 else ():
        for payload in site[1:]:
            payload[:] = site[0]
            broadcast += length

    assert all(payload == expected for site in sites for payload in site)
    found = bytes_per_step(4 * length, site_ranks)
    assert found.reduce == 4 * reduced
    assert found.between_sites == 4 * between
    assert found.broadcast == 4 * broadcast
    assert found.per_representative * len(sites) == found.between_sites
