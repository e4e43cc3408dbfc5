"""How far a transfer is, told in few words that change seldom: whoever is told writes them down."""

from gridloom.base.units import format_bytes


class Sending:
    """Counts bytes on their way."""

    def __init__(self, what: str) -> None:
        """Begin with nothing of ``what`` being there."""
        self._what = what
        self._total = self._done = 0

    @property
    def has_begun(self) -> bool:
        """Whether anything has arrived."""
        return self._done > 0

    def begin(self, total: int, what: str = "") -> None:
        """Begin anew with so many bytes for all, perhaps of something else."""
        self._total, self._done, self._what = total, 0, what or self._what

    def __call__(self, more: int) -> None:
        """Note that more bytes are there."""
        self._done += more

    def sentence(self) -> str:
        """Return how far it is, in tenths."""
        if not self._total:
            return self._what
        tenths = min(10, 10 * self._done // self._total)
        return f"{self._what}: {10 * tenths} % of {format_bytes(self._total)}"
