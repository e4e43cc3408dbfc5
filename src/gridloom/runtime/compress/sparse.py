"""Only the largest numbers are sent, with their places."""

import math

import torch
from torch import Tensor

from gridloom.runtime.compress.codec import Cast, Codec, require_finite, require_length, viewed
from gridloom.runtime.compress.places import decode_places, encode_places, places_bytes

_FP32 = Cast(torch.float32)

_SAMPLE = 1 << 16
"""Numbers that are looked at to guess the magnitude from which on to send."""

_CHUNK = 1 << 16
"""Numbers that are compared with it at once: their magnitudes stay in the processor's cache."""


class TopK:
    """Only the numbers of largest magnitude, each with its place; the others count as 0.

    Payload: how many (int32), their values, their places (``places``: about 2.5 bits each beyond
    ``log2(1 / share)``). What it decodes to needs no share: any ``TopK`` with the same codec of
    values reads it.
    """

    def __init__(self, share: float, values: Codec = _FP32) -> None:
        """Set how many.

        Args:
            share: Of the numbers, above 0 and up to 1; at least one number is sent.
            values: Codec of the values sent, as ``Cast(torch.bfloat16)`` for half the bytes; as
                they are by default.

        Raises:
            ValueError: Another share.
        """
        if not 0 < share <= 1:
            raise ValueError(f"a share of {share:g} of the numbers; it lies above 0 and up to 1")
        self._share = share
        self._values = values

    def count(self, numbers: int) -> int:
        """Return how many of so many numbers are sent."""
        return min(numbers, max(1, round(numbers * self._share)))

    def size_bytes(self, numbers: int) -> int:
        """As ``Codec``."""
        return self._size_bytes(self.count(numbers), numbers)

    def encode(self, values: Tensor) -> Tensor:
        """As ``Codec``; fewer than 2^31 numbers."""
        require_finite(values)
        places = self.choose(values)
        return self._pack(places, values[places], len(values))

    def take(self, values: Tensor) -> Tensor:
        """As ``Taking``."""
        require_finite(values)
        return self.take_places(values, self.choose(values))

    def choose(self, values: Tensor) -> Tensor:
        """Return the places of the largest magnitudes, increasing, int64 ``[count(n)]``."""
        count = self.count(len(values))
        if values.device.type != "cpu" or count == len(values) or len(values) <= _SAMPLE:
            return values.abs().topk(count, sorted=False).indices.sort().values
        return _largest(values, count)

    def take_places(self, values: Tensor, places: Tensor) -> Tensor:
        """Do as ``take`` with places that were chosen before."""
        chosen = values[places]
        payload = self._pack(places, chosen, len(values))
        sent = payload[4 : 4 + self._values.size_bytes(len(places))]
        values[places] = chosen - self._values.decode(sent, len(places))
        return payload

    def decode(self, payload: Tensor, numbers: int) -> Tensor:
        """As ``Codec``."""
        count = int(viewed(payload[:4], torch.int32)) if len(payload) >= 4 else -1
        if not 0 <= count <= numbers:
            raise ValueError(f"a payload of {count} of {numbers} numbers: it is damaged")
        require_length(payload, self._size_bytes(count, numbers), numbers)
        middle = 4 + self._values.size_bytes(count)
        places = decode_places(payload[middle:], count, numbers)
        values = torch.zeros(numbers, device=payload.device)
        values[places] = self._values.decode(payload[4:middle], count)
        return values

    def _pack(self, places: Tensor, chosen: Tensor, numbers: int) -> Tensor:
        count = torch.tensor([len(places)], dtype=torch.int32, device=places.device)
        parts = (count.view(torch.uint8), self._values.encode(chosen))
        return torch.cat([*parts, encode_places(places, numbers)])

    def _size_bytes(self, count: int, numbers: int) -> int:
        return 4 + self._values.size_bytes(count) + places_bytes(count, numbers)


def _largest(values: Tensor, count: int) -> Tensor:
    """Return the same as ``topk`` of the magnitudes, in a fraction of its time on a CPU.

    A sample says between which two magnitudes the last one to be sent lies. What is above both is
    chosen, what is below both is not, and only the few between are looked at closely. Should the
    sample mislead, all are.
    """
    lower, upper = _bounds(values, count)
    room = torch.empty(min(_CHUNK, len(values)))
    found = []
    for start in range(0, len(values), _CHUNK):
        part = values[start : start + _CHUNK]
        magnitudes = torch.abs(part, out=room[: len(part)])
        found.append((magnitudes >= lower).nonzero().squeeze(1).add_(start))
    places = torch.cat(found)
    magnitudes = values[places].abs_()
    chosen = magnitudes > upper
    missing = count - int(chosen.sum())
    if missing < 0 or len(places) < count:
        return values.abs().topk(count, sorted=False).indices.sort().values
    between = (~chosen).nonzero().squeeze(1)
    chosen[between[magnitudes[between].topk(missing, sorted=False).indices]] = True
    return places[chosen]


def _bounds(values: Tensor, count: int) -> tuple[float, float]:
    """Return magnitudes between which the ``count``-th largest lies, all but surely."""
    sample = values[:: len(values) // _SAMPLE].abs().sort(descending=True).values
    expected = count * len(sample) / len(values)
    spread = 4 * math.sqrt(expected) + 8  # four deviations of the number of them in the sample
    below, above = int(expected + spread), int(expected - spread)
    lower = float(sample[below]) if below < len(sample) else 0.0
    upper = float(sample[above]) if above >= 0 else math.inf
    return lower, upper
