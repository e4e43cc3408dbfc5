"""What is sent over slow links arrives as the codec says, and what it loses comes later."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gridloom.runtime.compress import Blocks, Cast, Codec, Feedback, TopK

CODECS: dict[str, Codec] = {
    "fp32": Cast(torch.float32),
    "fp16": Cast(torch.float16),
    "bf16": Cast(torch.bfloat16),
    "int8": Blocks(8),
    "int4": Blocks(4),
    "int4 of 6": Blocks(4, block=6),
    "a tenth": TopK(0.1),
    "all": TopK(1.0),
}

SEEDS = st.integers(0, 2**31)
COUNTS = st.integers(1, 700)
EXPONENTS = st.floats(-30, 30)


def drawn(seed: int, count: int, exponent: float = 0.0) -> torch.Tensor:
    """Return numbers of many magnitudes."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(count, generator=generator)
    return values * torch.exp(2 * torch.randn(count, generator=generator)) * 2**exponent


@pytest.mark.parametrize("name", CODECS)
@given(seed=SEEDS, count=COUNTS, exponent=EXPONENTS)
def test_the_payload_has_the_size_that_was_told(
    name: str, seed: int, count: int, exponent: float
) -> None:
    codec = CODECS[name]
    values = drawn(seed, count, exponent)
    payload = codec.encode(values)
    assert payload.dtype is torch.uint8
    assert payload.shape == (codec.size_bytes(count),)
    back = codec.decode(payload, count)
    assert back.dtype is torch.float32
    assert back.shape == values.shape
    assert bool(torch.isfinite(back).all())


@given(seed=SEEDS, count=COUNTS, exponent=EXPONENTS)
def test_nothing_is_lost_where_all_is_sent(seed: int, count: int, exponent: float) -> None:
    values = drawn(seed, count, exponent)
    for name in ("fp32", "all"):
        assert torch.equal(CODECS[name].decode(CODECS[name].encode(values), count), values)


@pytest.mark.parametrize(("bits", "most"), [(8, 127), (4, 7)])
@given(seed=SEEDS, count=COUNTS, exponent=EXPONENTS, block=st.integers(1, 40))
def test_a_number_is_off_by_half_a_scale_at_most(
    bits: int, most: int, seed: int, count: int, exponent: float, block: int
) -> None:
    codec = Blocks(bits, block=2 * block)
    values = drawn(seed, count, exponent)
    back = codec.decode(codec.encode(values), count)
    for start in range(0, count, 2 * block):
        part = slice(start, start + 2 * block)
        scale = float(values[part].abs().max()) / most
        assert float((back[part] - values[part]).abs().max()) <= 0.5001 * scale


@pytest.mark.parametrize("bits", [4, 8])
def test_chance_rounds_to_the_right_value_in_the_mean(bits: int) -> None:
    codec = Blocks(bits, generator=torch.Generator().manual_seed(1))
    values = drawn(3, 256)
    rounds = 3000
    mean = torch.stack([codec.decode(codec.encode(values), 256) for _ in range(rounds)]).mean(0)
    block = 256 if bits == 8 else 64
    scales = values.view(-1, block).abs().amax(dim=1) / (2 ** (bits - 1) - 1)
    spread = scales.repeat_interleave(block) / 2 / rounds**0.5  # of the mean of such a rounding
    assert bool(((mean - values).abs() <= 5 * spread + 1e-6 * values.abs()).all())
    nearest = Blocks(bits)
    assert not torch.equal(nearest.decode(nearest.encode(values), 256), mean)


@given(seed=SEEDS, count=COUNTS, share=st.floats(0.001, 1.0))
def test_the_largest_are_sent_as_they_are(seed: int, count: int, share: float) -> None:
    codec = TopK(share)
    values = drawn(seed, count)
    back = codec.decode(codec.encode(values), count)
    sent = back != 0
    assert int(sent.sum()) == codec.count(count) == min(count, max(1, round(count * share)))
    assert torch.equal(back[sent], values[sent])
    if not bool(sent.all()):
        assert float(values[sent].abs().min()) >= float(values[~sent].abs().max())


@pytest.mark.parametrize("name", ["fp16", "int8", "int4", "a tenth"])
@given(seed=SEEDS, count=COUNTS, rounds=st.integers(1, 8))
def test_what_was_lost_is_sent_later(name: str, seed: int, count: int, rounds: int) -> None:
    """All that was to be sent is what arrived and what is still owed: nothing goes missing."""
    codec = CODECS[name]
    feedback = Feedback(codec, count)
    wanted, arrived = torch.zeros(count), torch.zeros(count)
    for number in range(rounds):
        values = drawn(seed + number, count)
        wanted += values
        arrived += codec.decode(feedback.encode(values), count)
    close = 1e-5 * float(wanted.abs().max() + arrived.abs().max())
    assert float((arrived + feedback.residual - wanted).abs().max()) <= close


def test_a_constant_arrives_in_the_end() -> None:
    """A tenth a round: over many rounds each number has arrived in proportion."""
    codec = TopK(0.1)
    feedback = Feedback(codec, 50)
    values = torch.linspace(0.5, 1.5, 50)
    arrived = torch.zeros(50)
    for _ in range(400):
        arrived += codec.decode(feedback.encode(values), 50)
    assert float((arrived / 400 / values - 1).abs().max()) < 0.1


def test_what_never_arrived_is_owed_again() -> None:
    feedback = Feedback(Blocks(8), 10)
    values = drawn(1, 10)
    feedback.take_back(feedback.encode(values))
    assert torch.allclose(feedback.residual, values)


def test_too_large_for_the_format_is_the_largest() -> None:
    codec = Cast(torch.float16)
    back = codec.decode(codec.encode(torch.tensor([1e9, -1e9, 3.0])), 3)
    assert back.tolist() == [65504.0, -65504.0, 3.0]


def test_nothing_but_zeros() -> None:
    for codec in CODECS.values():
        assert codec.decode(codec.encode(torch.zeros(9)), 9).tolist() == [0.0] * 9


def test_formats_that_are_not() -> None:
    with pytest.raises(ValueError, match="3 bits a number; there are 4 and 8"):
        Blocks(3)
    with pytest.raises(ValueError, match="a block of 7 numbers; an even number is needed"):
        Blocks(4, block=7)
    for share in (0.0, 1.5, -1.0):
        with pytest.raises(ValueError, match="it lies above 0 and up to 1"):
            TopK(share)
