"""Numbers that follow from a secret alone, evenly spread or normally."""

import math

import pytest
import torch
from scipy.stats import kstest

from gridloom.base.errors import InputError
from gridloom.runtime.wan.keystream import KEY_BYTES, Keystream

pytest.importorskip("cryptography", reason="needs gridloom[privacy]")

SECRET = bytes(range(KEY_BYTES))
COUNT = 2**18 * 2 + 7  # more than two pieces of the stream, and not a whole number of pairs


def test_normal_numbers_are_normal() -> None:
    numbers = Keystream(SECRET, "noise").normal(COUNT)
    assert abs(float(numbers.mean())) < 5 / math.sqrt(COUNT)
    assert float(numbers.std()) == pytest.approx(1.0, rel=5 / math.sqrt(2 * COUNT))
    assert kstest(numbers.numpy(), "norm").pvalue > 1e-3
    halves = numbers[: COUNT // 2], numbers[COUNT // 2 : COUNT // 2 * 2]
    assert abs(float((halves[0] * halves[1]).mean())) < 5 / math.sqrt(COUNT // 2)


def test_the_row_goes_on_and_follows_from_secret_and_label() -> None:
    whole = Keystream(SECRET, "a").take(1000)
    stream = Keystream(SECRET, "a")
    assert torch.equal(torch.cat([stream.take(300), stream.take(0), stream.take(700)]), whole)
    for other in (Keystream(SECRET, "b"), Keystream(SECRET[::-1], "a")):
        assert int((other.take(1000) == whole).sum()) <= 1
    first = Keystream(SECRET, "n")
    assert not torch.equal(first.normal(9), first.normal(9))


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(InputError, match="secret: has 3 bytes; give 32"):
        Keystream(b"abc", "a")
