"""Matrices as thin factors: what arrives, what it costs, and that rounds make it better."""

import pytest
import torch

from gridloom.runtime.compress import Blocks, Cast, Feedback, LowRank, seeded

SHAPES = [(40, 30), (30,), (8, 3, 5, 2), (), (2, 2), (0, 7)]
NUMBERS = 1200 + 30 + 240 + 1 + 4
DTYPES = [torch.float32, torch.bfloat16]


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=seeded(seed, 0, 0))


def of_rank(rank: int, rows: int, columns: int, seed: int = 1) -> torch.Tensor:
    return drawn(seed, rows, rank) @ drawn(seed + 1, rank, columns)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_payload_holds_factors_and_the_rest(dtype: torch.dtype) -> None:
    codec = LowRank(SHAPES, 2, factors=dtype)
    values = drawn(1, NUMBERS)
    payload = codec.encode(values)
    factors = 2 * (40 + 30) + 2 * (8 + 30)
    assert len(payload) == codec.size_bytes(NUMBERS)
    assert len(payload) == 2 * 4 + factors * dtype.itemsize + 4 * (30 + 1 + 4)
    back = codec.decode(payload, NUMBERS)
    assert torch.equal(back[1200:1230], values[1200:1230]), "a vector"
    assert torch.equal(back[1470:], values[1470:]), "a number, and a matrix that is too small"
    for start, stop in ((0, 1200), (1230, 1470)):
        lost = (back - values)[start:stop].norm()
        assert 0 < float(lost) < float(values[start:stop].norm())


@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
def test_a_matrix_of_the_rank_arrives_whole(dtype: torch.dtype, close: float) -> None:
    matrix = of_rank(3, 50, 60)
    codec = LowRank([(50, 60)], 3, factors=dtype)
    back = codec.decode(codec.encode(matrix.flatten()), 3000).view(50, 60)
    assert float((back - matrix).norm() / matrix.norm()) < close


def test_what_is_lost_holds_nothing_of_what_was_sent() -> None:
    matrix = drawn(3, 50, 60)
    codec = LowRank([(50, 60)], 4)
    back = codec.decode(codec.encode(matrix.flatten()), 3000).view(50, 60)
    lost = matrix - back
    assert float((back.T @ lost).abs().max()) < 1e-4
    assert float(back.norm() ** 2 + lost.norm() ** 2) == pytest.approx(float(matrix.norm() ** 2))


def test_rounds_find_the_best_directions() -> None:
    values = torch.linspace(1, 0.01, 30) ** 2
    left, right = (torch.linalg.qr(drawn(seed, 30, 30)).Q for seed in (1, 2))
    matrix = left @ values.diag() @ right
    codec = LowRank([(30, 30)], 4)
    errors = [
        float((codec.decode(codec.encode(matrix.flatten()), 900).view(30, 30) - matrix).norm())
        for _ in range(30)
    ]
    best = float(values[4:].norm())
    assert best <= errors[-1] < 1.001 * best
    assert errors[0] > 1.1 * best


@pytest.mark.parametrize(
    ("sites", "dtype"), [(2, torch.float32), (3, torch.bfloat16), (16, torch.float32)]
)
def test_the_mean_of_the_sites_arrives_over_the_rounds(sites: int, dtype: torch.dtype) -> None:
    """Every site sends its own factors; with feedback nothing of any of them goes missing."""
    shapes = [(24, 16), (16,)]
    numbers = 24 * 16 + 16
    codecs = [LowRank(shapes, 2, factors=dtype) for _ in range(sites)]
    feedbacks = [Feedback(codec, numbers) for codec in codecs]
    reader = LowRank(shapes, 2, factors=dtype, seed=99)  # decoding asks for no state
    common = drawn(7, numbers)
    values = [common + 0.3 * drawn(100 + site, numbers) for site in range(sites)]
    mean = torch.stack(values).mean(dim=0)
    arrived = torch.zeros(numbers)
    off = []
    for round_ in range(1, 41):
        payloads = [f.encode(v) for f, v in zip(feedbacks, values, strict=True)]
        arrived += torch.stack([reader.decode(p, numbers) for p in payloads]).mean(dim=0)
        off.append(float((arrived / round_ - mean).norm() / mean.norm()))
    assert off[39] < 0.2
    assert off[39] < 0.7 * off[19] < 0.7 * off[0]


def test_the_mean_of_sites_has_more_rank_than_each() -> None:
    matrices = [of_rank(2, 30, 30, seed) for seed in (1, 5, 9)]
    codecs = [LowRank([(30, 30)], 2) for _ in matrices]
    backs = [c.decode(c.encode(m.flatten()), 900) for c, m in zip(codecs, matrices, strict=True)]
    mean = torch.stack(backs).mean(dim=0).view(30, 30)
    assert torch.allclose(mean, torch.stack(matrices).mean(dim=0), atol=1e-4)
    assert int(torch.linalg.matrix_rank(mean, atol=1e-3)) == 6


def test_zeros_teach_no_direction() -> None:
    matrix = of_rank(2, 20, 30)
    codec, fresh = LowRank([(20, 30)], 2), LowRank([(20, 30)], 2)
    assert not bool(codec.decode(codec.encode(torch.zeros(600)), 600).any())
    assert torch.equal(codec.encode(matrix.flatten()), fresh.encode(matrix.flatten()))


def test_the_largest_and_the_smallest_matrices() -> None:
    for scale in (3e38, 1e-38, 1e-44):
        matrix = scale * torch.ones(20, 30)
        matrix[3, 4] = -scale
        codec = LowRank([(20, 30)], 1)
        back = codec.decode(codec.encode(matrix.flatten()), 600)
        assert bool(torch.isfinite(back).all())
        assert float(back.mean()) == pytest.approx(float(matrix.mean()), rel=0.2)


def test_it_goes_on_from_where_it_stood() -> None:
    def built() -> Feedback:
        rest = Blocks(8, generator=seeded(1, 1, 1))
        return Feedback(LowRank(SHAPES, 2, rest=rest), NUMBERS)

    first, second = built(), built()
    first.encode(drawn(1, NUMBERS))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first.encode(drawn(2, NUMBERS)), second.encode(drawn(2, NUMBERS)))


def test_nothing_but_matrices_and_nothing_but_the_rest() -> None:
    for shapes, numbers in (([(20, 20)], 400), ([(7,), (2, 3)], 13), ([], 0)):
        codec = LowRank(shapes, 1, rest=Cast(torch.float16))
        values = drawn(1, numbers)
        assert codec.decode(codec.encode(values), numbers).shape == values.shape


def test_what_it_refuses() -> None:
    for rank in (0, 65):
        with pytest.raises(ValueError, match=f"a rank of {rank}; it lies from 1 to 64"):
            LowRank([(3, 3)], rank)
    codec = LowRank([(20, 20)], 1)
    with pytest.raises(ValueError, match="399 numbers; the shapes hold 400"):
        codec.encode(torch.zeros(399))
    with pytest.raises(ValueError, match="a payload of 3 bytes; 400 numbers take 164"):
        codec.decode(torch.zeros(3, dtype=torch.uint8), 400)
