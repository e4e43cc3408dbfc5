"""The largest numbers: which they are, where they stand, and Deep Gradient Compression."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gridloom.runtime.compress import (
    WARM_UP,
    Blocks,
    Cast,
    DeepGradient,
    DeepPolicy,
    Feedback,
    NotFiniteError,
    TopK,
    seeded,
)
from gridloom.runtime.compress.places import decode_places, encode_places, places_bytes

LONG = 200_000


def drawn(seed: int, count: int) -> torch.Tensor:
    numbers = torch.randn(2, count, generator=seeded(seed, 0, 0))
    return numbers[0] * torch.exp(2 * numbers[1])


@given(st.data(), st.integers(0, 400))
def test_places_come_back(data: st.DataObject, numbers: int) -> None:
    chosen = data.draw(st.sets(st.integers(0, numbers - 1))) if numbers else set()
    places = torch.tensor(sorted(chosen), dtype=torch.int64)
    payload = encode_places(places, numbers)
    assert len(payload) == places_bytes(len(places), numbers)
    assert torch.equal(decode_places(payload, len(places), numbers), places)


@pytest.mark.parametrize("numbers", [1, 1000, 12_345_678])
@pytest.mark.parametrize("share", [0.25, 0.0625, 0.016, 0.004, 0.001, 1.0])
def test_places_take_few_bits(numbers: int, share: float) -> None:
    count = max(1, round(numbers * share))
    bits = 8 * places_bytes(count, numbers)
    assert bits <= count * (math.log2(numbers / count) + 3) + 16
    assert bits <= 32 * count


def test_places_that_are_damaged() -> None:
    payload = encode_places(torch.tensor([3, 40, 77]), 100)
    with pytest.raises(ValueError, match="a payload of 0 places; 3 were announced"):
        decode_places(torch.zeros_like(payload), 3, 100)
    late = encode_places(torch.tensor([3, 40, 127]), 100)
    with pytest.raises(ValueError, match="a payload with place 127 of 100"):
        decode_places(late, 3, 100)


@given(seed=st.integers(0, 99), count=st.integers(1, 700), share=st.floats(0.001, 1.0))
def test_the_largest_are_sent_as_they_are(seed: int, count: int, share: float) -> None:
    codec = TopK(share)
    values = drawn(seed, count)
    back = codec.decode(codec.encode(values), count)
    sent = back != 0
    assert int(sent.sum()) == codec.count(count) == min(count, max(1, round(count * share)))
    assert torch.equal(back[sent], values[sent])
    if not bool(sent.all()):
        assert float(values[sent].abs().min()) >= float(values[~sent].abs().max())


@pytest.mark.parametrize("share", [0.6, 0.25, 0.01, 0.00001])
@pytest.mark.parametrize("kind", ["drawn", "hidden", "flattering", "equal", "few", "sorted"])
def test_long_tensors_are_searched_by_a_sample_that_may_mislead(kind: str, share: float) -> None:
    values = drawn(1, LONG)
    if kind == "hidden":  # the sample sees only zeros
        values[:: LONG // 2**16] = 0
    elif kind == "flattering":  # the sample sees only the largest
        values[:: LONG // 2**16] *= 1e6
    elif kind == "equal":
        values = torch.ones(LONG)
    elif kind == "few":
        values = torch.zeros(LONG).index_fill(0, torch.arange(5, LONG, 9999), -2.0)
    elif kind == "sorted":
        values = values.sort().values
    codec = TopK(share)
    places = codec.choose(values)
    expected = values.abs().topk(codec.count(LONG)).values
    assert bool((places[1:] > places[:-1]).all())
    assert torch.equal(values[places].abs().sort(descending=True).values, expected)


def test_values_may_be_small_too() -> None:
    values = drawn(2, 10_000)
    whole, half, byte = TopK(0.05), TopK(0.05, Cast(torch.bfloat16)), TopK(0.05, Blocks(8))
    sizes = [codec.size_bytes(10_000) for codec in (whole, half, byte)]
    assert sizes[0] - sizes[1] == 1000
    assert sizes[1] - sizes[2] > 450
    for codec, close in ((half, 2**-8), (byte, 2**-6)):
        feedback = Feedback(codec, 10_000)
        back = codec.decode(feedback.encode(values), 10_000)
        assert float((back - whole.decode(whole.encode(values), 10_000)).norm()) <= (
            close * float(values.norm())
        )
        assert torch.allclose(back + feedback.residual, values, rtol=1e-6)


def test_any_share_is_read_by_any_other() -> None:
    values = drawn(3, 900)
    payload = TopK(0.3).encode(values)
    assert torch.equal(TopK(0.001).decode(payload, 900), TopK(0.3).decode(payload, 900))


def test_payloads_that_are_damaged() -> None:
    codec = TopK(0.1)
    payload = codec.encode(drawn(4, 100))
    with pytest.raises(ValueError, match="a payload of -1 of 100 numbers"):
        codec.decode(payload[:3], 100)
    with pytest.raises(ValueError, match="a payload of 10 of 9 numbers"):
        codec.decode(payload, 9)
    with pytest.raises(ValueError, match=r"a payload of \d+ bytes; 100 numbers take"):
        codec.decode(payload[:-1], 100)


def test_shares_that_are_not() -> None:
    for share in (0.0, 1.5, -1.0, math.nan):
        with pytest.raises(ValueError, match="it lies above 0 and up to 1"):
            TopK(share)


class Reference:
    """Algorithm 1 and the appendices of the paper, number by number."""

    def __init__(self, numbers: int, momentum: float) -> None:
        self.momentum = momentum
        self.u, self.v = [0.0] * numbers, [0.0] * numbers

    def step(self, gradient: list[float], count: int, limit: float) -> dict[int, float]:
        norm = math.sqrt(sum(g * g for g in gradient))
        scale = min(1.0, limit / norm)
        for i, g in enumerate(gradient):
            self.u[i] = self.momentum * self.u[i] + scale * g
            self.v[i] += self.u[i]
        largest = sorted(range(len(gradient)), key=lambda i: -abs(self.v[i]))[:count]
        sent = {i: self.v[i] for i in largest}
        for i in largest:
            self.u[i] = self.v[i] = 0.0
        return sent


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("clip_norm", [math.inf, 3.0])
def test_deep_gradients_are_those_of_the_paper(momentum: float, clip_norm: float) -> None:
    policy = DeepPolicy((0.5, 0.1), 2, momentum, clip_norm, sites=4)
    deep = DeepGradient(40, policy)
    reference = Reference(40, momentum)
    for round_ in range(12):
        gradient = torch.randn(40, generator=seeded(round_, 0, 0))
        size = deep.size_bytes(deep.round)
        payload = deep.encode(gradient)
        assert len(payload) == size == deep.size_bytes(round_)
        count = 20 if round_ < 2 else 4
        expected = reference.step(gradient.tolist(), count, clip_norm / 2)
        back = deep.codec(round_).decode(payload, 40)
        assert back.nonzero().squeeze(1).tolist() == sorted(expected)
        assert back[sorted(expected)].tolist() == pytest.approx(
            [expected[place] for place in sorted(expected)], rel=1e-5
        )
        assert torch.allclose(deep.velocity, torch.tensor(reference.u), atol=1e-5)
        assert torch.allclose(deep.residual, torch.tensor(reference.v), atol=1e-5)


def test_the_share_shrinks_over_the_first_rounds() -> None:
    deep = DeepGradient(100_000, DeepPolicy(rounds_a_share=3))
    counts = [deep.codec(round_).count(100_000) for round_ in range(20)]
    assert counts[:15:3] == [round(100_000 * share) for share in WARM_UP]
    assert counts[0] == counts[2]
    assert counts[12:] == [100] * 8


def test_a_deep_gradient_that_never_arrived_is_gathered_again() -> None:
    deep = DeepGradient(50, DeepPolicy((0.2,), momentum=0.0))
    values = drawn(5, 50)
    deep.take_back(deep.encode(values))
    assert torch.allclose(deep.residual, values)


def test_deep_gradients_go_on_from_where_they_stood() -> None:
    first, second = (DeepGradient(200, DeepPolicy((0.5, 0.1))) for _ in range(2))
    first.encode(drawn(1, 200))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first.encode(drawn(2, 200)), second.encode(drawn(2, 200)))
    assert second.round == 2


def test_a_poisoned_gradient_is_refused() -> None:
    deep = DeepGradient(20)
    deep.encode(drawn(1, 20))
    before = deep.state_dict()
    with pytest.raises(NotFiniteError, match="20 of 20 numbers"):
        deep.encode(torch.full((20,), math.inf))
    after = deep.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_policies_that_are_not() -> None:
    with pytest.raises(ValueError, match="at least 1 of each"):
        DeepPolicy(shares=())
    with pytest.raises(ValueError, match="at least 1 of each"):
        DeepPolicy(rounds_a_share=0)
    with pytest.raises(ValueError, match="at least 1 of each"):
        DeepPolicy(sites=0)
    with pytest.raises(ValueError, match="a momentum of 1; it lies from 0 to below 1"):
        DeepPolicy(momentum=1.0)
    with pytest.raises(ValueError, match="a norm of 0 to clip to"):
        DeepPolicy(clip_norm=0.0)
