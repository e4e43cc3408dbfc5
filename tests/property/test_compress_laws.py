"""Laws that every codec keeps: sizes, zeros, ends of the range, nothing lost, nothing poisoned."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gridloom.runtime.compress import (
    Blocks,
    Cast,
    Codec,
    DeepGradient,
    DeepPolicy,
    Feedback,
    Joined,
    LowRank,
    NotFiniteError,
    Signs,
    TopK,
    seeded,
)


def matrix_and_rest(numbers: int) -> list[tuple[int, ...]]:
    rows = math.isqrt(numbers)
    return [(rows, rows), (numbers - rows * rows,)]


def in_two(numbers: int) -> Joined:
    half = numbers // 2
    return Joined([(TopK(0.2, Cast(torch.bfloat16)), half), (Blocks(4), numbers - half)])


CODECS: dict[str, Callable[[int], Codec]] = {
    "fp32": lambda _: Cast(torch.float32),
    "fp16": lambda _: Cast(torch.float16),
    "bf16": lambda _: Cast(torch.bfloat16),
    "int8": lambda _: Blocks(8),
    "int4": lambda _: Blocks(4),
    "int4 of 6": lambda _: Blocks(4, block=6),
    "int8 by chance": lambda _: Blocks(8, generator=seeded(1, "a", 0)),
    "int4 by chance": lambda _: Blocks(4, generator=seeded(1, "a", 0)),
    "signs": lambda _: Signs(),
    "a tenth": lambda _: TopK(0.1),
    "a tenth in int8": lambda _: TopK(0.1, Blocks(8)),
    "all": lambda _: TopK(1.0),
    "rank 2": lambda numbers: LowRank(matrix_and_rest(numbers), 2),
    "rank 2 in bf16": lambda n: LowRank(matrix_and_rest(n), 2, factors=torch.bfloat16),
    "joined": in_two,
}
BY_CHANCE = [name for name in CODECS if name.endswith("chance")]
LOSSLESS = ["fp32", "all"]

FEW = settings(max_examples=8)  # for each of the many codecs

SEEDS = st.integers(0, 2**31)
COUNTS = st.integers(0, 700)
EXPONENTS = st.floats(-30, 30)
MOST = torch.finfo(torch.float32).max
ENDS = [MOST, -MOST, MOST / 3, 1e38, 65520.0, 1.0, 1e-30, 1.2e-38, 1e-40, -1e-45, 0.0, -0.0]


def drawn(seed: int, count: int, exponent: float = 0.0) -> torch.Tensor:
    """Return numbers of many magnitudes."""
    numbers = torch.randn(2, count, generator=seeded(seed, 0, 0))
    return numbers[0] * torch.exp(2 * numbers[1]) * 2**exponent


@pytest.mark.parametrize("name", CODECS)
@FEW
@given(seed=SEEDS, count=COUNTS, exponent=EXPONENTS)
def test_the_size_depends_on_the_number_alone(
    name: str, seed: int, count: int, exponent: float
) -> None:
    codec = CODECS[name](count)
    for values in (drawn(seed, count, exponent), torch.zeros(count)):
        before = values.clone()
        payload = codec.encode(values)
        assert payload.dtype is torch.uint8
        assert payload.shape == (codec.size_bytes(count),)
        assert torch.equal(values, before), "encoding leaves its input alone"
        apart = torch.cat([payload.new_zeros(3), payload])[3:]  # begins at an odd address
        back = codec.decode(apart, count)
        assert back.dtype is torch.float32
        assert back.shape == values.shape
        assert bool(torch.isfinite(back).all())
        assert torch.equal(back, codec.decode(payload, count)), "decoding changes nothing"


@pytest.mark.parametrize("name", CODECS)
@FEW
@given(count=COUNTS)
def test_zeros_stay_zeros(name: str, count: int) -> None:
    codec = CODECS[name](count)
    assert not bool(codec.decode(codec.encode(torch.zeros(count)), count).any())


@pytest.mark.parametrize("name", LOSSLESS)
@FEW
@given(seed=SEEDS, count=COUNTS, exponent=EXPONENTS)
def test_nothing_is_lost_where_all_is_sent(
    name: str, seed: int, count: int, exponent: float
) -> None:
    values = drawn(seed, count, exponent)
    codec = CODECS[name](count)
    assert torch.equal(codec.decode(codec.encode(values), count), values)


@pytest.mark.parametrize("name", CODECS)
@FEW
@given(seed=SEEDS, count=COUNTS, exponent=EXPONENTS)
def test_what_is_kept_is_what_did_not_arrive(
    name: str, seed: int, count: int, exponent: float
) -> None:
    """The short ways by which some codecs leave behind their losses agree with decoding."""
    values = drawn(seed, count, exponent)
    feedback = Feedback(CODECS[name](count), count)
    payload = feedback.encode(values)
    assert torch.equal(payload, CODECS[name](count).encode(values))
    back = feedback.codec.decode(payload, count)
    assert torch.allclose(feedback.residual, values - back, rtol=1e-5, atol=1e-6 * 2**exponent)


@pytest.mark.parametrize("name", CODECS)
@FEW
@given(seed=SEEDS, count=COUNTS, rounds=st.integers(1, 8))
def test_what_was_lost_is_sent_later(name: str, seed: int, count: int, rounds: int) -> None:
    """All that was to be sent is what arrived and what is still owed: nothing goes missing."""
    codec = CODECS[name](count)
    feedback = Feedback(codec, count)
    wanted, arrived = (torch.zeros(count, dtype=torch.float64) for _ in range(2))
    size = 0.0
    for number in range(rounds):
        values = drawn(seed + number, count)
        wanted += values
        back = codec.decode(feedback.encode(values), count)
        arrived += back
        size += float(values.norm() + back.norm())
    # each round rounds a sum and a difference of numbers no longer than these, to 2^-24
    assert float((arrived + feedback.residual - wanted).norm()) <= 2**-22 * size


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@FEW
@given(seed=SEEDS, count=COUNTS, rounds=st.integers(1, 8))
def test_deep_gradients_lose_no_velocity(
    momentum: float, seed: int, count: int, rounds: int
) -> None:
    """What arrived and what is gathered are together the velocities of all rounds."""
    deep = DeepGradient(count, DeepPolicy((0.5, 0.1), momentum=momentum))
    velocity, gathered, arrived = (torch.zeros(count, dtype=torch.float64) for _ in range(3))
    for number in range(rounds):
        values = drawn(seed + number, count)
        velocity = momentum * velocity + values
        gathered += velocity
        back = deep.codec(number).decode(deep.encode(values), count)
        arrived += back
        velocity[back != 0] = 0
    close = 1e-4 * float(gathered.abs().max() if count else 0)
    assert torch.allclose(arrived + deep.residual, gathered, rtol=0, atol=close)


@pytest.mark.parametrize("name", BY_CHANCE)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_chance_is_right_in_the_mean(name: str, seed: int) -> None:
    """Of many roundings of the same blocks the mean is off as a mean of so many may be.

    A rounding lies between two neighbouring levels, so its deviation is half their gap at most;
    the mean of n of them is off by 5 deviations over sqrt(n) once in two million numbers.
    """
    bits = int(name[3])
    values, copies = drawn(seed, 256), 4000
    codec = Blocks(bits, generator=seeded(seed, "a", 0))
    many = values.repeat(copies)
    back = codec.decode(codec.encode(many), len(many)).view(copies, 256).to(torch.float64)
    peaks = values.view(4, 64).abs().amax(dim=1).repeat_interleave(64)
    gap = peaks * 17 / 16 * (1 / 127 if bits == 8 else 23 / 105)
    share = values.abs() * 2**-16
    off = (back.mean(dim=0) - values).abs()
    assert bool((off <= 5 * gap / 2 / copies**0.5 + gap * 2**-16 + share).all())
    nearest = Blocks(bits)
    biased = (nearest.decode(nearest.encode(values), 256) - values).norm()
    assert float(off.norm()) < 0.1 * float(biased)


@pytest.mark.parametrize("name", CODECS)
def test_the_residual_is_bounded(name: str) -> None:
    """A codec that keeps a part d of the squared norm, at least, owes no more than this for ever.

    |e'| <= sqrt(1 - d) (|e| + |x|) (Karimireddy et al., 2019, lemma 3). A tenth keeps a tenth; a
    subspace of r of n directions keeps at least what a random one would, r / n. Rounding by chance
    at 4 bits errs by half the largest gap at most. A mean magnitude of n numbers keeps 1 / n.
    """
    count, rounds = 640, 120
    kept = {"a tenth": 0.1, "a tenth in int8": 0.099, "joined": 0.19}
    kept |= {"rank 2": 2 / 25, "rank 2 in bf16": 2 / 25, "signs": 1 / 256}
    root = math.sqrt(1 - kept.get(name, 0.75))
    feedback = Feedback(CODECS[name](count), count)
    owed, shares, longest = [], [], 0.0
    for number in range(rounds):
        values = drawn(number, count)
        longest = max(longest, float(values.norm()))
        feedback.encode(values)
        owed.append(float(feedback.residual.norm()))
        shares.append(owed[-1] / longest)
    assert max(owed) <= root / (1 - root) * longest
    assert max(shares[60:]) <= 1.5 * max(shares[:60]), "it does not grow"


@pytest.mark.parametrize("name", CODECS)
@FEW
@given(values=st.lists(st.sampled_from(ENDS), max_size=80))
def test_the_ends_of_fp32_stay_finite(name: str, values: list[float]) -> None:
    count = len(values)
    codec = CODECS[name](count)
    feedback = Feedback(codec, count)
    given_values = torch.tensor(values)
    for _ in range(4):
        back = codec.decode(feedback.encode(given_values), count)
        assert bool(torch.isfinite(back).all())
        assert bool(torch.isfinite(feedback.residual).all())
    feedback.take_back(feedback.encode(given_values))
    assert bool(torch.isfinite(feedback.residual).all())


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
@FEW
@given(seed=SEEDS, count=st.integers(1, 700), place=st.integers(0, 699))
def test_poison_is_refused_and_changes_nothing(
    name: str, poison: float, seed: int, count: int, place: int
) -> None:
    feedback = Feedback(CODECS[name](count), count)
    feedback.encode(drawn(seed, count))
    before = feedback.state_dict()
    bad = drawn(seed + 1, count)
    bad[place % count] = poison
    with pytest.raises(NotFiniteError, match=f"1 of {count} numbers"):
        feedback.encode(bad)
    with pytest.raises(NotFiniteError):
        feedback.codec.encode(bad)
    after = feedback.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize("name", CODECS)
@FEW
@given(count=st.integers(1, 700), change=st.sampled_from([-1, 1, 7]))
def test_a_payload_of_another_length_is_refused(name: str, count: int, change: int) -> None:
    codec = CODECS[name](count)
    length = max(0, codec.size_bytes(count) + change)
    with pytest.raises(ValueError, match=r"a payload of (-1|\d+)"):
        codec.decode(torch.zeros(length, dtype=torch.uint8), count)
