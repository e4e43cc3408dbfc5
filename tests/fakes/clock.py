"""A clock that only moves when told, and ids that count."""


class FakeClock:
    """Plays `gridloom.base.clock.Clock`; sleeping moves it."""

    def __init__(self, now_s: float = 1_000_000.0) -> None:
        self._now_s = now_s
        self._monotonic_s = 0.0

    def now_s(self) -> float:
        return self._now_s

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def sleep(self, duration_s: float) -> None:
        self.advance(duration_s)

    def advance(self, duration_s: float) -> None:
        self._now_s += duration_s
        self._monotonic_s += duration_s

    def jump(self, by_s: float) -> None:
        """Set the wall clock by ``by_s``; the monotonic clock does not notice."""
        self._now_s += by_s


class CountingIds:
    """Plays `gridloom.base.ids.IdSource`."""

    def __init__(self) -> None:
        self._count = 0

    def new_id(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}-{self._count:06d}"
