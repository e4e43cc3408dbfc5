"""Secure aggregation by pairwise masks (Bonawitz et al., 2017): only the sum can be read.

Every two sites agree on a secret, expand it to a mask as long as the vector, and one adds it while
the other subtracts it. Vectors are whole numbers modulo 2^32, so the masks cancel exactly in the
sum, and each masked vector by itself is spread evenly over all values.

What this rests on: X25519 for the secrets, HKDF-SHA256 for the key of each round, ChaCha20 (RFC
8439) to expand it; all are cryptographically strong and come from the package `cryptography` (extra
`privacy`). What it does not give:

- Public keys must reach the other sites unchanged, over connections that prove who speaks. Who can
  exchange them on the way can read the vectors.
- Whoever adds up must follow the protocol, as in the paper's first form. The sum itself is not
  hidden: of two sites each learns the other's vector, and all sites but one together learn that
  one's. Noise against that is in ``privacy``.
- A mask must never serve twice: the difference of two vectors under one mask is plain to see. So
  each try of a round has a label of its own. When a site drops out, the others mask the same
  vectors anew under a fresh label, among themselves; no secret of the lost site is ever recovered,
  and none is needed.
- Two sums of the same vectors, with and without one site, would tell that site's. So each vector
  is also *sealed*, by a mask of the site's own, whose seed the site gives away for one try only:
  of each round at most one sum can be opened, whatever arrives late.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gridloom.base.errors import InputError, Problem
from gridloom.runtime.compress.codec import require_finite, require_length, viewed
from gridloom.runtime.wan.keystream import Keystream, checked, cryptography


@dataclass(frozen=True)
class Ring:
    """Numbers from ``-limit`` to ``limit`` as whole numbers whose sum over all sites fits int32.

    All sites must use the same one. What lies beyond the limit is cut off at it.

    Attributes:
        limit: The largest magnitude of a number.
        sites: How many vectors are added at most.
    """

    limit: float
    sites: int

    def __post_init__(self) -> None:
        """Raise ``InputError`` for a ring in which nothing fits."""
        if not (0 < self.limit < float("inf") and 1 <= self.sites <= 2**16):
            text = f"is {self.limit:g} for {self.sites} sites"
            right = "choose a limit above 0, and 1 to 65,536 sites"
            raise InputError([Problem(text, right, field="limit")])

    @property
    def levels(self) -> int:
        """The whole number that stands for the limit."""
        return (2**31 - 1) // self.sites

    def to_whole(self, values: Tensor) -> Tensor:
        """Return fp32 ``values`` as int32, off by half a level at most.

        Raises:
            NotFiniteError: A number is not finite.
        """
        require_finite(values)
        share = (values.to(torch.float64) / self.limit).clamp_(-1, 1)
        return share.mul_(self.levels).round_().to(torch.int32)

    def to_numbers(self, total: Tensor) -> Tensor:
        """Return a sum of such vectors as fp32."""
        return total.to(torch.float64).mul_(self.limit / self.levels).to(torch.float32)


class FixedPoint:
    """Every number as a whole one of 32 bits (plays ``Codec``), for sums under masks.

    A sum is a weighted one, of shares that add up to 1, so that it is no larger than its largest
    part. What lies beyond the limit is cut off, and is for ``Feedback`` to make good.
    """

    def __init__(self, limit: float) -> None:
        """Set the largest magnitude of a number."""
        self._ring = Ring(limit, sites=2)  # one bit to spare, for shares that are rounded up

    def size_bytes(self, numbers: int) -> int:
        """As ``Codec``."""
        return 4 * numbers

    def encode(self, values: Tensor) -> Tensor:
        """As ``Codec``."""
        return self._ring.to_whole(values).view(torch.uint8)

    def decode(self, payload: Tensor, numbers: int) -> Tensor:
        """As ``Codec``."""
        require_length(payload, self.size_bytes(numbers), numbers)
        return self._ring.to_numbers(viewed(payload, torch.int32))


def public_key(private: bytes) -> bytes:
    """Return the public X25519 key of a private one, 32 bytes drawn by chance and used for one run.

    Raises:
        InputError: Not 32 bytes, or the extra is not installed.
    """
    private_key = _x25519().X25519PrivateKey.from_private_bytes(checked(private, "private key"))
    return bytes(private_key.public_key().public_bytes_raw())


def pair_secret(private: bytes, peer_public: bytes) -> bytes:
    """Return the secret that this site and a peer, and nobody else, can compute.

    Raises:
        InputError: A key is not of 32 bytes, or the peer's is one of the few that agree on nothing.
    """
    x25519 = _x25519()
    own = x25519.X25519PrivateKey.from_private_bytes(checked(private, "private key"))
    peer = x25519.X25519PublicKey.from_public_bytes(checked(peer_public, "public key"))
    try:
        return bytes(own.exchange(peer))
    except ValueError as error:
        text = "is a point of small order, on which no secret can be agreed"
        raise InputError(
            [Problem(text, "let the peer draw another", field="public key")]
        ) from error


def masked(vector: Tensor, me: str, secrets: Mapping[str, bytes], label: str) -> Tensor:
    """Return a site's vector under the masks of all its pairs, modulo 2^32.

    Args:
        vector: int32 ``[n]``, from ``Ring.to_whole``.
        me: This site's name.
        secrets: ``pair_secret`` with each other site of this try, by its name.
        label: Of this try of this round; never used before with these secrets.

    Raises:
        InputError: There is no other site, or this one is among the others.
    """
    if not secrets or me in secrets:
        text = f"site {me!r} among {sorted(secrets)!r}"
        right = "name at least one other site, and not the site itself"
        raise InputError([Problem(text, right, field="secrets")])
    total = vector.clone()
    for peer in sorted(secrets):
        first, second = sorted((me, peer))
        mask = _mask(secrets[peer], f"{first!r} {second!r} {label!r}", len(vector))
        # what goes beyond 2^31 comes in again from the other end
        total = total.add_(mask) if me == first else total.sub_(mask)
    return total


def weighed(vector: Tensor, share: float) -> Tensor:
    """Return an int32 vector times a share from 0 to 1, to the nearest whole number."""
    return vector.to(torch.float64).mul_(share).round_().to(torch.int32)


def sealed(vector: Tensor, seed: bytes, label: str) -> Tensor:
    """Return a vector under a mask of the site's own, modulo 2^32.

    Args:
        vector: int32 ``[n]``.
        seed: 32 bytes that nobody else knows until the site gives them away.
        label: Of this try of this round.
    """
    return vector + _mask(seed, _seal(label), len(vector))


def unsealed(total: Tensor, seeds: Iterable[bytes], label: str) -> Tensor:
    """Return a sum of sealed vectors without their seals, modulo 2^32."""
    total = total.clone()
    for seed in seeds:
        total -= _mask(seed, _seal(label), len(total))
    return total


def summed(vectors: Iterable[Tensor]) -> Tensor:
    """Return the sum, modulo 2^32, of the masked vectors of all sites of one try.

    Raises:
        InputError: There is none, or their lengths differ.
    """
    parts = list(vectors)
    lengths = sorted({len(part) for part in parts})
    if len(lengths) != 1:
        text = f"{len(parts)} vectors of lengths {lengths}"
        raise InputError([Problem(text, "add vectors of one length", field="vectors")])
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


def _seal(label: str) -> str:
    return f"seal {label!r}"


def _mask(secret: bytes, label: str, numbers: int) -> Tensor:
    """Return int32 ``[numbers]`` that nobody without the secret can tell from chance."""
    return Keystream(secret, label).take(numbers)


def _x25519() -> Any:
    return cryptography("hazmat.primitives.asymmetric.x25519")
