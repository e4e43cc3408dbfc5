"""The best few of a stream of plans, and those that no other plan beats in time and price."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

_MANTISSA_BITS = 36


def rounded(numbers: Numbers) -> Numbers:
    """Return ``numbers`` to about eleven significant digits.

    Plans are compared by rounded figures: those that differ by the rounding of their sums only are
    equal, and the next key of the order decides between them.
    """
    mantissa, exponent = np.frexp(numbers)
    scale = float(2**_MANTISSA_BITS)
    return np.asarray(np.ldexp(np.round(mantissa * scale) / scale, exponent))


@dataclass(frozen=True)
class Entries:
    """Plans with what they are compared by; columns of one length.

    Attributes:
        objective: What is to be smallest, rounded.
        devices: Fewer is better between equals.
        memory_bytes: Less is better between equals after that.
        number: Place in the order of all plans: decides last, so that no two are equal.
        time_s: Time of the whole training.
        price: Of the whole training, or its device-hours.
        step_s: Time of a training step.
    """

    objective: Numbers
    devices: Numbers
    memory_bytes: Numbers
    number: Index
    time_s: Numbers
    price: Numbers
    step_s: Numbers

    def __len__(self) -> int:
        return len(self.number)

    def take(self, index: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> "Entries":
        """Return the entries at ``index``, numbers or a mask."""
        return Entries(*(column[index] for column in vars(self).values()))

    def join(self, other: "Entries") -> "Entries":
        """Return these entries and those of ``other`` behind them."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Entries(*(np.concatenate(pair) for pair in pairs))


def no_entries() -> Entries:
    """Return columns without a row."""
    none = np.empty(0)
    return Entries(none, none, none, np.empty(0, dtype=np.int64), none, none, none)


class Top:
    """The first ``count`` of all entries offered, in order."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.entries = no_entries()

    def offer(self, entries: Entries) -> None:
        """Take what belongs to the first ``count`` of all."""
        if len(entries) > self.count:
            least = np.partition(entries.objective, self.count - 1)[self.count - 1]
            entries = entries.take(entries.objective <= least)
        if len(self.entries) == self.count:
            entries = entries.take(entries.objective <= self.entries.objective[-1])
        if not len(entries):
            return
        found = self.entries.join(entries)
        order = np.lexsort((found.number, found.memory_bytes, found.devices, found.objective))
        self.entries = found.take(order[: self.count])


class Front:
    """The entries offered that no other one beats in time and price, fastest first.

    Of several with the same time and price the one with fewer devices, then less memory, then the
    earlier number stays.
    """

    def __init__(self) -> None:
        self.entries = no_entries()

    def offer(self, entries: Entries) -> None:
        """Take what is beaten by none, and drop what is beaten now."""
        entries = entries.take(self._unbeaten(entries))
        if not len(entries):
            return
        found = self.entries.join(entries)
        time, price = rounded(found.time_s), rounded(found.price)
        keys = (found.number, found.memory_bytes, found.devices, price, time)
        order = np.lexsort(keys)
        price = price[order]
        least = np.minimum.accumulate(price)
        better = np.ones(len(price), dtype=np.bool_)
        better[1:] = price[1:] < least[:-1]
        self.entries = found.take(order[better])

    def _unbeaten(self, entries: Entries) -> npt.NDArray[np.bool_]:
        """Return which of ``entries`` the front so far leaves; equals are decided in ``offer``."""
        if not len(self.entries):
            return np.ones(len(entries), dtype=np.bool_)
        time, price = rounded(entries.time_s), rounded(entries.price)
        place = np.searchsorted(rounded(self.entries.time_s), time, side="right") - 1
        beside = rounded(self.entries.price)[np.maximum(place, 0)]
        return np.asarray((place < 0) | (price <= beside))
