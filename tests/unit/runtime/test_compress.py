"""What is sent over slow links arrives as the codec says, and what it loses comes later."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gridloom.runtime.compress import (
    Blocks,
    Cast,
    Codec,
    Feedback,
    Joined,
    LowRank,
    NotFiniteError,
    TopK,
    seeded,
)

SEEDS = st.integers(0, 2**31)
COUNTS = st.integers(1, 700)
EXPONENTS = st.floats(-30, 30)
SPAN = 64 * 1024
GRIDS = {
    4: torch.arange(-7.0, 8.0),
    8: torch.arange(-127.0, 128.0),
}


def drawn(seed: int, count: int, exponent: float = 0.0) -> torch.Tensor:
    """Return numbers of many magnitudes."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(count, generator=generator)
    return values * torch.exp(2 * torch.randn(count, generator=generator)) * 2**exponent


def sent(codec: Codec, values: torch.Tensor) -> torch.Tensor:
    return codec.decode(codec.encode(values), len(values))


def relative_error(codec: Codec, values: torch.Tensor) -> float:
    return float((sent(codec, values) - values).norm() / values.norm())


def steps_told(payload: torch.Tensor, count: int, block: int) -> torch.Tensor:
    """Return the step of every block, read from a payload by hand."""
    blocks = math.ceil(count / block)
    spans = math.ceil(blocks / 1024)
    bases = [
        int.from_bytes(bytes(payload[4 * i : 4 * i + 4].tolist()), "little") for i in range(spans)
    ]
    codes = payload[4 * spans : 4 * spans + blocks].tolist()
    # 4 bits of mantissa, above them the exponent of an fp32 number
    told = [bases[number // 1024] + code for number, code in enumerate(codes)]
    return torch.tensor([2.0 ** (bits // 16 - 127) * (1 + bits % 16 / 16) for bits in told])


@pytest.mark.parametrize("bits", [8, 4])
@given(seed=SEEDS, count=COUNTS, exponent=EXPONENTS, half=st.integers(1, 40))
def test_every_number_becomes_the_nearest_level(
    bits: int, seed: int, count: int, exponent: float, half: int
) -> None:
    codec = Blocks(bits, block=2 * half)
    values = drawn(seed, count, exponent)
    payload = codec.encode(values)
    check_nearest(payload, values, bits, 2 * half)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("count", [SPAN, 2 * SPAN + 101])
def test_spans_have_bases_of_their_own(bits: int, count: int) -> None:
    values = drawn(1, count)
    values[SPAN : 2 * SPAN] *= 1e-6
    values[64:128] *= 1e-12  # far below the largest block of its span
    values[128:192] = 0
    codec = Blocks(bits)
    payload = codec.encode(values)
    check_nearest(payload, values, bits, 64)
    back = codec.decode(payload, count)
    assert not bool(back[128:192].any())


def check_nearest(payload: torch.Tensor, values: torch.Tensor, bits: int, block: int) -> None:
    back = Blocks(bits, block=block).decode(payload, len(values))
    steps = steps_told(payload, len(values), block)
    step = steps.repeat_interleave(block)[: len(values)]
    for start in range(0, len(values), 4096):
        part = slice(start, start + 4096)
        levels = step[part, None] * GRIDS[bits]
        best = (levels - values[part, None]).abs().amin(dim=1)
        off = (back[part] - values[part]).abs()
        assert bool((off <= best + 1e-5 * values[part].abs()).all())
        assert bool(
            ((levels - back[part, None]).abs().amin(dim=1) <= 1e-6 * back[part].abs()).all()
        )


@pytest.mark.parametrize(("bits", "most"), [(8, 127), (4, 7)])
@given(seed=SEEDS, count=COUNTS, exponent=EXPONENTS)
def test_no_step_is_wider_than_a_block_needs(
    bits: int, most: int, seed: int, count: int, exponent: float
) -> None:
    values = drawn(seed, count, exponent)
    steps = steps_told(Blocks(bits).encode(values), count, 64)
    largest = float(values.abs().max())
    for number, step in enumerate(steps.tolist()):
        peak = float(values[64 * number : 64 * number + 64].abs().max())
        assert step <= max(17 / 16 * peak / most, 2**-15.9 * largest / most)
        assert step * (most + 0.5) >= peak


def even_error(values: torch.Tensor, most: int, block: int) -> float:
    """Return the relative error of an even grid with exact steps."""
    blocks = values.view(-1, block)
    steps = blocks.abs().amax(dim=1, keepdim=True) / most
    return float(((blocks / steps).round() * steps - blocks).norm() / blocks.norm())


def test_four_bits_beat_those_with_whole_scales() -> None:
    """An fp32 scale every 64 numbers takes 4.5 bits."""
    count = 2**18
    normal = torch.randn(count, generator=seeded(1, 0, 0))
    parts = torch.randn(4, count, generator=seeded(2, 0, 0))
    student = parts[0] / (parts[1:] ** 2).mean(dim=0).sqrt()  # 3 degrees of freedom
    codec = Blocks(4)
    assert relative_error(codec, normal) < 0.98 * even_error(normal, 7, 64)
    assert relative_error(codec, student) < 0.99 * even_error(student, 7, 64)
    assert 8 * codec.size_bytes(count) / count < 4.13
    assert 4 * count / codec.size_bytes(count) >= 7.6


def test_eight_bits_beat_an_even_grid_of_as_many() -> None:
    """An fp32 scale every 256 numbers takes 8.125 bits as well."""
    count = 2**18
    values = torch.randn(count, generator=seeded(1, 0, 0))
    codec = Blocks(8)
    assert relative_error(codec, values) < 0.90 * even_error(values, 127, 256)
    assert 8 * codec.size_bytes(count) / count < 8.13


@pytest.mark.parametrize("bits", [4, 8])
def test_chance_keeps_to_the_two_levels_beside(bits: int) -> None:
    values = drawn(3, SPAN + 1000)
    codec = Blocks(bits, generator=seeded(1, "north", 0))
    payload = codec.encode(values)
    back = codec.decode(payload, len(values))
    step = steps_told(payload, len(values), 64).repeat_interleave(64)[: len(values)]
    levels = GRIDS[bits]
    place = torch.searchsorted(levels, (values / step).contiguous()).clamp(1, len(levels) - 1)
    below, above = levels[place - 1] * step, levels[place] * step
    off = torch.minimum((back - below).abs(), (back - above).abs())
    assert bool((off <= 1e-5 * back.abs()).all())


def test_chance_repeats_and_is_no_other_sites() -> None:
    values = drawn(4, 5000)
    payloads = [
        Blocks(4, generator=seeded(seed, site, slot)).encode(values)
        for seed, site, slot in [(7, "a", 1), (7, "a", 1), (8, "a", 1), (7, "b", 1), (7, "a", 2)]
    ]
    assert torch.equal(payloads[0], payloads[1])
    assert not any(torch.equal(payloads[0], other) for other in payloads[2:])


def test_chance_goes_on_from_where_it_stood() -> None:
    values = drawn(5, 300)
    first = Feedback(Blocks(4, generator=seeded(1, 1, 1)), 300)
    first.encode(values)
    state = first.state_dict()
    expected = first.encode(values)
    second = Feedback(Blocks(4, generator=seeded(1, 1, 1)), 300)
    second.load_state_dict(state)
    assert torch.equal(second.encode(values), expected)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
@pytest.mark.parametrize("codec", [Blocks(4), Blocks(8), TopK(0.01), Cast(torch.bfloat16)])
def test_an_accelerator_and_a_processor_read_each_other(codec: Codec) -> None:
    values = drawn(9, 3 * SPAN + 77)
    there = codec.encode(values.cuda())
    assert torch.equal(
        codec.decode(there.cpu(), len(values)), codec.decode(there, len(values)).cpu()
    )
    here = sent(codec, values)
    assert float((codec.decode(there.cpu(), len(values)) - here).norm()) <= 1e-3 * float(
        here.norm()
    )


def test_stretches_have_codecs_of_their_own() -> None:
    codec = Joined([(TopK(0.1), 100), (Blocks(4), 70), (Cast(torch.float32), 3), (Blocks(8), 0)])
    values = drawn(6, 173)
    back = sent(codec, values)
    assert int((back[:100] != 0).sum()) == 10
    assert torch.equal(back[100:170], sent(Blocks(4), values[100:170]))
    assert torch.equal(back[170:], values[170:])
    with pytest.raises(ValueError, match="172 numbers; the codecs are for 173"):
        codec.encode(values[:172])
    assert len(Joined([]).encode(values[:0])) == len(Joined([]).decode(values[:0], 0)) == 0


def test_stretches_remember_each_what_it_must() -> None:
    def built() -> Feedback:
        chance = Blocks(8, generator=seeded(1, 1, 1))
        parts: list[tuple[Codec, int]] = [
            (LowRank([(8, 6)], 1), 48),
            (Cast(torch.float16), 5),
            (chance, 20),
        ]
        return Feedback(Joined(parts), 73)

    first, second = built(), built()
    first.encode(drawn(1, 73))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first.encode(drawn(2, 73)), second.encode(drawn(2, 73)))
    assert torch.equal(first.residual, second.residual)


def test_a_refusal_reaches_no_codec_of_the_others() -> None:
    chance = seeded(1, 1, 1)
    before = chance.get_state()
    codec = Joined([(Blocks(8, generator=chance), 64), (Cast(torch.float32), 2)])
    values = torch.ones(66)
    values[65] = math.nan
    with pytest.raises(NotFiniteError, match="1 of 66 numbers"):
        codec.encode(values)
    assert torch.equal(chance.get_state(), before)


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
    assert sent(codec, torch.tensor([1e9, -1e9, 3.0])).tolist() == [65504.0, -65504.0, 3.0]


def test_a_payload_is_no_window_on_what_it_was_made_of() -> None:
    values = torch.ones(3)
    payload = Cast(torch.float32).encode(values)
    values.zero_()
    assert Cast(torch.float32).decode(payload, 3).tolist() == [1.0] * 3


def test_formats_that_are_not() -> None:
    with pytest.raises(ValueError, match="3 bits a number; there are 4 and 8"):
        Blocks(3)
    for block in (7, 0, -2):
        with pytest.raises(ValueError, match=f"a block of {block} numbers; an even number"):
            Blocks(4, block=block)
