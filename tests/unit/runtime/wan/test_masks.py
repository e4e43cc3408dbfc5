"""Masked vectors: their sum is the plain one to the bit, and one alone says nothing."""

import hashlib
import itertools
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gridloom.base.errors import InputError
from gridloom.runtime.compress import NotFiniteError, seeded
from gridloom.runtime.wan.masks import (
    FixedPoint,
    Ring,
    masked,
    pair_secret,
    public_key,
    sealed,
    summed,
    unsealed,
    weighed,
)

pytest.importorskip("cryptography", reason="needs gridloom[privacy]")

NAMES = ["north", "south", "east", "west", "up", "down"]


def private(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def secrets_of(me: str, sites: list[str]) -> dict[str, bytes]:
    own = private(me)
    return {peer: pair_secret(own, public_key(private(peer))) for peer in sites if peer != me}


def masked_all(vectors: dict[str, torch.Tensor], label: str = "1") -> dict[str, torch.Tensor]:
    sites = list(vectors)
    return {me: masked(v, me, secrets_of(me, sites), label) for me, v in vectors.items()}


def whole(seed: int, count: int) -> torch.Tensor:
    ends = (-(2**31), 2**31)
    numbers = torch.randint(*ends, (count,), generator=seeded(seed, 0, 0), dtype=torch.int64)
    return numbers.to(torch.int32)


@settings(max_examples=20)
@given(sites=st.integers(2, 6), count=st.integers(0, 300), seed=st.integers(0, 99))
def test_the_sum_of_masked_is_the_sum_of_plain(sites: int, count: int, seed: int) -> None:
    vectors = {name: whole(seed + place, count) for place, name in enumerate(NAMES[:sites])}
    total = summed(masked_all(vectors).values())
    plain = torch.stack([v.to(torch.int64) for v in vectors.values()]).sum(dim=0)
    assert torch.equal(total.to(torch.int64) % 2**32, plain % 2**32)


@settings(max_examples=20)
@given(sites=st.integers(2, 6), count=st.integers(1, 100), seed=st.integers(0, 99))
def test_numbers_come_back_as_their_sum(sites: int, count: int, seed: int) -> None:
    ring = Ring(limit=4.0, sites=sites)
    numbers = [torch.randn(count, generator=seeded(seed, site, 0)) for site in range(sites)]
    numbers[0][0] = 4.0
    vectors = {n: ring.to_whole(v) for n, v in zip(NAMES, numbers, strict=False)}
    total = ring.to_numbers(summed(masked_all(vectors).values()))
    expected = torch.stack(numbers).to(torch.float64).clamp(-4, 4).sum(dim=0)
    level = 4.0 * sites / 2**31
    assert bool(((total - expected).abs() <= sites * level + 2**-23 * expected.abs()).all())


@pytest.mark.parametrize("sites", [1, 2, 3, 1000])
def test_the_largest_sum_fits(sites: int) -> None:
    ring = Ring(limit=0.5, sites=sites)
    for sign in (1.0, -1.0):
        level = int(ring.to_whole(torch.tensor([sign * 1e30])))
        assert -(2**31) <= sites * level < 2**31
        assert float(ring.to_numbers(torch.tensor([sites * level]))) == pytest.approx(
            sign * sites / 2
        )


def test_one_masked_vector_looks_like_chance() -> None:
    """Of a constant vector: every byte value as often, every bit half the time, no echo."""
    count = 200_000
    vectors = {"north": torch.zeros(count, dtype=torch.int32), "south": whole(1, count)}
    seen = masked_all(vectors)["north"]
    counts = torch.bincount(seen.view(torch.uint8).to(torch.int64), minlength=256).to(torch.float64)
    expected = 4 * count / 256
    chi_squared = float(((counts - expected) ** 2 / expected).sum())
    assert 150 < chi_squared < 380  # 255 degrees of freedom: 255 and 23 a deviation
    bits = torch.stack([(seen >> bit) & 1 for bit in range(32)]).to(torch.float64)
    assert float((bits.mean(dim=1) - 0.5).abs().max()) < 5 * 0.5 / count**0.5
    signs = seen.sign().to(torch.float64)
    for shift in (1, 2, 64, 65_536, 2**18 // 4):
        echo = float((signs[shift:] * signs[:-shift]).mean())
        assert abs(echo) < 5 / (count - shift) ** 0.5
    other = masked_all({"north": vectors["north"], "south": whole(2, count)}, "2")["north"]
    assert abs(float((signs * other.sign()).mean())) < 5 / count**0.5


def test_long_masks_do_not_repeat() -> None:
    count = 2 * 2**18 + 5  # more than two pieces of the stream
    seen = masked_all({"a": torch.zeros(count, dtype=torch.int32), "b": whole(1, count)})["a"]
    assert int((seen[: 2**18] == seen[2**18 : 2**19]).sum()) < 5


def test_a_wrong_secret_does_not_cancel() -> None:
    sites = NAMES[:3]
    vectors = {name: whole(place, 1000) for place, name in enumerate(sites)}
    parts = masked_all(vectors)
    stranger = secrets_of("north", sites) | {
        "south": pair_secret(private("x"), public_key(b"y" * 32))
    }
    parts["north"] = masked(vectors["north"], "north", stranger, "1")
    plain = summed(vectors.values())
    assert int((summed(parts.values()) == plain).sum()) <= 1


def test_another_label_and_other_names_give_other_masks() -> None:
    zero = torch.zeros(1000, dtype=torch.int32)
    secret = secrets_of("a", ["a", "b"])
    masks = [
        masked(zero, "a", secret, "1"),
        masked(zero, "a", secret, "2"),
        masked(zero, "a", {"c": secret["b"]}, "1"),
    ]
    for one, other in itertools.combinations(masks, 2):
        assert int((one == other).sum()) <= 1


def test_who_is_left_repeats_the_round() -> None:
    """South drops out after the others have masked: their parts are of no use, a new try is."""
    vectors = {name: whole(place, 500) for place, name in enumerate(NAMES[:4])}
    first = masked_all(vectors, "round 8, try 1")
    left = {name: v for name, v in vectors.items() if name != "south"}
    incomplete = summed(part for name, part in first.items() if name != "south")
    assert int((incomplete == summed(left.values())).sum()) <= 1
    again = masked_all(left, "round 8, try 2")
    assert torch.equal(summed(again.values()), summed(left.values()))
    assert not torch.equal(again["north"], first["north"])


@settings(max_examples=20)
@given(sites=st.integers(3, 6), left=st.sets(st.integers(0, 5)), seed=st.integers(0, 99))
def test_sealed_and_masked_sums_are_exact_for_whoever_is_left(
    sites: int, left: set[int], seed: int
) -> None:
    there = [name for place, name in enumerate(NAMES[:sites]) if place not in left]
    if len(there) < 2:
        return
    vectors = {name: whole(seed + place, 40) for place, name in enumerate(there)}
    seeds = {name: private(f"seed of {name}") for name in there}
    sealed_ones = {name: sealed(vectors[name], seeds[name], "7") for name in there}
    total = summed(masked_all(sealed_ones, "7").values())
    assert torch.equal(unsealed(total, seeds.values(), "7"), summed(vectors.values()))
    one_short = unsealed(total, list(seeds.values())[1:], "7")
    assert int((one_short == summed(vectors.values())).sum()) <= 1


@given(
    tokens=st.lists(st.floats(0.0, 1e9), min_size=2, max_size=6).filter(lambda t: sum(t) > 0),
    seed=st.integers(0, 99),
)
def test_a_weighted_sum_of_whole_numbers_is_the_mean_and_fits(
    tokens: list[float], seed: int
) -> None:
    codec = FixedPoint(4.0)
    numbers = [
        torch.randn(50, generator=seeded(seed, place, 0)).clamp(-4, 4)
        for place in range(len(tokens))
    ]
    for values in numbers:
        values[0] = 4.0  # the largest everywhere: the sum must not be larger
    parts = [codec.encode(values).view(torch.int32) for values in numbers]
    shares = [one / sum(tokens) for one in tokens]
    total = summed([weighed(part, share) for part, share in zip(parts, shares, strict=True)])
    mean = torch.stack([v * s for v, s in zip(numbers, shares, strict=True)]).sum(dim=0)
    back = codec.decode(total.view(torch.uint8), 50)
    assert bool(((back - mean).abs() <= len(tokens) * 4.0 / 2**30 + 2**-21).all())


def test_fixed_point_numbers_have_their_size() -> None:
    codec = FixedPoint(1.0)
    values = torch.tensor([0.0, 0.5, -1.0, 3.0])
    payload = codec.encode(values)
    assert payload.shape == (codec.size_bytes(4),)
    torch.testing.assert_close(codec.decode(payload, 4), values.clamp(-1, 1), atol=2**-30, rtol=0)
    with pytest.raises(ValueError, match="a payload of 16 bytes"):
        codec.decode(payload, 3)


def test_both_ends_of_a_pair_agree() -> None:
    assert secrets_of("a", ["a", "b"])["b"] == secrets_of("b", ["a", "b"])["a"]


def test_keys_agree_as_in_the_standard() -> None:
    """RFC 7748, section 6.1."""
    alice = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    bob = bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
    public = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    shared = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
    assert public_key(alice).hex() == public
    assert pair_secret(alice, bob).hex() == shared


def test_what_is_refused() -> None:
    vector = torch.zeros(3, dtype=torch.int32)
    with pytest.raises(InputError, match="private key: has 3 bytes; give 32"):
        public_key(b"abc")
    with pytest.raises(InputError, match="public key: is a point of small order"):
        pair_secret(private("a"), bytes(32))
    with pytest.raises(InputError, match="name at least one other site"):
        masked(vector, "a", {}, "1")
    with pytest.raises(InputError, match="not the site itself"):
        masked(vector, "a", {"a": private("s")}, "1")
    with pytest.raises(InputError, match="secret: has 1 bytes"):
        masked(vector, "a", {"b": b"s"}, "1")
    with pytest.raises(InputError, match="2 vectors of lengths"):
        summed([vector, vector[:2]])
    with pytest.raises(InputError, match="0 vectors"):
        summed([])
    for limit, sites in ((0.0, 2), (float("inf"), 2), (1.0, 0), (1.0, 2**16 + 1)):
        with pytest.raises(InputError, match="choose a limit above 0"):
            Ring(limit, sites)
    with pytest.raises(NotFiniteError):
        Ring(1.0, 2).to_whole(torch.tensor([float("nan")]))


def test_the_extra_is_named_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "cryptography.hazmat.primitives.asymmetric.x25519"
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r"cryptography; pip install 'gridloom\[privacy\]'"):
        public_key(private("a"))
