from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gridloom.runtime.compress import Blocks, Cast, Codec, NotFiniteError
from gridloom.runtime.wan.fragments import CHUNK, Fragments, Window
from gridloom.runtime.wan.outer import Fragment, OuterRule, average

PLAIN = OuterRule(learning_rate=1.0, momentum=0.0)
NUMBERS = 200


def exact() -> Codec:
    return Cast(torch.float32)


def values(seed: int, numbers: int = NUMBERS) -> Tensor:
    return torch.randn(numbers, generator=torch.Generator().manual_seed(seed))


def window(weights: Tensor) -> Window:
    """Look at the weights themselves, which are written to."""
    return Fragments([weights], 1).windows[0]


def hold_round(
    sites: list[Fragment], locals_: list[Tensor], moved: list[Tensor] | None = None
) -> list[Tensor]:
    """All offer, train on by ``moved``, and take the result in."""
    offers = [site.offer(window(local)) for site, local in zip(sites, locals_, strict=True)]
    weights = [site.unshared for site in sites]
    since = [torch.zeros_like(one) for one in locals_] if moved is None else moved
    later = [one + more for one, more in zip(locals_, since, strict=True)]
    parts = list(zip(weights, offers, strict=True))
    for site, local in zip(sites, later, strict=True):
        site.settle(parts, window(local), included=True)
    return later


def told(change: Tensor, tokens: float) -> list[tuple[float, Tensor]]:
    """Return the parts of a round by which the anchor moves by minus ``change``."""
    return [(tokens, exact().encode(change))]


def test_plain_averaging_gives_the_mean_by_tokens_and_keeps_what_was_learnt_since() -> None:
    start = values(0)
    sites = [Fragment(start, PLAIN, exact()) for _ in range(2)]
    sites[0].unshared, sites[1].unshared = 300.0, 100.0
    locals_, moved = [values(1), values(2)], [values(3), values(4)]
    after = hold_round(sites, locals_, moved)
    mean = 0.75 * locals_[0] + 0.25 * locals_[1]
    for site, weights, since in zip(sites, after, moved, strict=True):
        torch.testing.assert_close(site.anchor, mean)
        torch.testing.assert_close(weights, mean + since)
        assert site.unshared == 0


def test_the_outer_step_is_sgd_with_nesterovs_momentum() -> None:
    start = values(0)
    site = Fragment(start, OuterRule(learning_rate=0.7, momentum=0.9), exact())
    reference = torch.nn.Parameter(start.clone())
    optimizer = torch.optim.SGD([reference], lr=0.7, momentum=0.9, nesterov=True)
    local = start
    for number in range(1, 6):
        local = local + 0.1 * values(number)
        reference.grad = (reference - local).detach()
        site.unshared = 1.0
        (local,) = hold_round([site], [local])
        optimizer.step()
        torch.testing.assert_close(site.anchor, reference.detach())
        torch.testing.assert_close(local, reference.detach())


@pytest.mark.parametrize("codec", [exact, lambda: Blocks(4)])
def test_sites_agree_to_the_bit_whatever_is_lost_on_the_way(codec: Callable[[], Codec]) -> None:
    sites = [Fragment(values(0), OuterRule(), codec()) for _ in range(3)]
    locals_ = [values(0)] * 3
    for number in range(1, 8):
        for place, site in enumerate(sites):
            site.unshared += 10.0 * (place + 1)
            locals_[place] = locals_[place] + 0.1 * values(10 * number + place)
        locals_ = hold_round(sites, locals_)
        for site in sites[1:]:
            assert torch.equal(site.anchor, sites[0].anchor)
            assert torch.equal(site.velocity, sites[0].velocity)


def test_a_late_site_meets_the_others_in_the_middle_by_tokens() -> None:
    start, local = values(0), values(1)
    site = Fragment(start, PLAIN, exact())
    site.unshared = 100.0
    others = values(2)
    weights = local.clone()
    site.settle(told(start - others, 300.0), window(weights), included=False)
    torch.testing.assert_close(site.anchor, others)
    torch.testing.assert_close(weights, 0.75 * others + 0.25 * local)
    assert site.unshared == 400.0  # so that the next such meeting weighs in what is there by now


def test_a_site_that_has_not_trained_takes_the_others_weights() -> None:
    site = Fragment(values(0), PLAIN, exact())
    weights = values(1)
    site.settle(told(values(0) - values(2), 300.0), window(weights), included=False)
    torch.testing.assert_close(weights, values(2))


@given(bits=st.sampled_from([4, 8, 32]), missed=st.integers(1, 3))
def test_an_offer_that_came_too_late_is_in_the_next_one(bits: int, missed: int) -> None:
    """Codecs lose some of it, feedback brings it: nothing is sent twice or never."""
    codec = exact() if bits == 32 else Blocks(bits)
    site = Fragment(values(0), PLAIN, codec)
    local = values(0)
    for number in range(missed):
        local = local + values(number + 1)
        site.unshared += 10.0
        site.offer(window(local))
        nothing = codec.encode(torch.zeros(NUMBERS))
        site.settle([(0.0, nothing)], window(local), included=False)
    wanted = site.anchor - local
    payload = site.offer(window(local))
    sent = site.decoded(payload)
    site.settle([(0.0, payload)], window(local), included=True)
    torch.testing.assert_close(site.anchor - local + sent, wanted, atol=1e-4, rtol=1e-4)


def test_a_newcomer_is_level_after_adopting_a_state() -> None:
    old = Fragment(values(0), OuterRule(), Blocks(8))
    old.unshared = 10.0
    hold_round([old], [values(1)])
    new = Fragment(values(5), OuterRule(), Blocks(8))
    new.unshared = 3.0
    new.offer(window(values(6)))
    new.adopt(old.state())
    assert torch.equal(new.anchor, old.anchor)
    assert torch.equal(new.velocity, old.velocity)
    assert new.unshared == 0
    old.unshared = new.unshared = 7.0
    locals_ = hold_round([old, new], [values(7), values(8)])
    assert torch.equal(old.anchor, new.anchor)
    torch.testing.assert_close(locals_[0], locals_[1], atol=0.1, rtol=0)  # but for what is lost


def test_a_combined_payload_makes_good_what_it_lost() -> None:
    site = Fragment(torch.zeros(NUMBERS), PLAIN, Blocks(4))
    parts = [(1.0, Blocks(4).encode(values(n))) for n in range(3)]
    sent = torch.zeros(NUMBERS)
    for _ in range(20):
        sent += site.decoded(site.combine(parts))
    mean = average([(1.0, site.decoded(payload)) for _, payload in parts])
    torch.testing.assert_close(sent / 20, mean, atol=0.05, rtol=0)


@pytest.mark.parametrize("bits", [4, 32])
def test_a_fragment_of_many_chunks_is_as_one_of_its_chunks(bits: int) -> None:
    """Numbers do not know of each other, and tokens count for all."""
    numbers = 2 * CHUNK + 1000
    codec = exact() if bits == 32 else Blocks(bits)
    start, locals_ = values(0, numbers), [values(n + 1, numbers) for n in range(2)]
    whole = [Fragment(start, OuterRule(), codec) for _ in range(2)]
    tail = [Fragment(start[2 * CHUNK :], OuterRule(), codec) for _ in range(2)]
    for place, site in enumerate(whole + tail):
        site.unshared = 10.0 * (place % 2 + 1)
    after = hold_round(whole, locals_)
    after_tail = hold_round(tail, [local[2 * CHUNK :] for local in locals_])
    assert torch.equal(whole[0].anchor, whole[1].anchor)
    assert torch.equal(whole[0].anchor[2 * CHUNK :], tail[0].anchor)
    assert torch.equal(after[0][2 * CHUNK :], after_tail[0])


def test_a_weight_that_is_no_number_is_not_sent_and_changes_nothing() -> None:
    numbers = CHUNK + 10
    site = Fragment(values(0, numbers), PLAIN, Blocks(4))
    bad = values(1, numbers)
    bad[-1] = float("nan")
    with pytest.raises(NotFiniteError):
        site.offer(window(bad))
    assert site._offer is None


def test_a_payload_of_another_length_is_refused_and_changes_nothing() -> None:
    site = Fragment(values(0), PLAIN, exact())
    with pytest.raises(ValueError, match="payload"):
        site.settle([(1.0, torch.zeros(3, dtype=torch.uint8))], window(values(1)), included=False)
    assert torch.equal(site.anchor, values(0))


def test_two_sites_of_one_mind_have_a_cosine_of_one() -> None:
    site = Fragment(torch.zeros(NUMBERS), PLAIN, exact())
    apart = values(1)
    parts = [*told(apart, 1.0), *told(3 * apart, 1.0)]
    moved = site.settle(parts, window(torch.zeros(NUMBERS)), included=False)
    assert moved.cosine == pytest.approx(1.0)
    assert moved.norm == pytest.approx(2 * float(apart.norm()))
    assert site.settle(told(apart, 1.0), window(apart), included=False).cosine is None


def test_nobody_has_any_weight_in_the_last_rounds() -> None:
    torch.testing.assert_close(
        average([(0.0, torch.ones(3)), (0.0, torch.full((3,), 3.0))]), torch.full((3,), 2.0)
    )


@given(
    sizes=st.lists(st.integers(0, 7), min_size=1, max_size=5).filter(lambda s: sum(s) > 0),
    count=st.integers(1, 9),
)
def test_fragments_are_a_partition_of_equal_parts(sizes: list[int], count: int) -> None:
    tensors = [torch.arange(size, dtype=torch.float32) + 10 * i for i, size in enumerate(sizes)]
    fragments = Fragments(tensors, count)
    total = sum(sizes)
    assert len(fragments) == count
    parts = [fragments.numbers(i) for i in range(len(fragments))]
    assert sum(parts) == total
    assert max(parts) - min(parts) <= 1
    assert torch.equal(
        torch.cat([fragments.read(i) for i in range(len(fragments))]), torch.cat(tensors)
    )
    for i in range(len(fragments)):
        fragments.write(i, -1 - fragments.read(i))
    assert all(bool((tensor < 0).all()) for tensor in tensors)


def test_fragments_of_another_type_are_read_and_written_as_fp32() -> None:
    weights = torch.nn.Parameter(torch.ones(2, 3, dtype=torch.bfloat16))
    fragments = Fragments([weights], 2)
    assert fragments.read(1).dtype == torch.float32
    fragments.write(0, torch.full((3,), 0.5))
    assert weights.tolist() == [[0.5, 0.5, 0.5], [1.0, 1.0, 1.0]]
