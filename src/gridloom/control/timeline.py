"""The time that the core is told: the wall clock without its jumps."""

from gridloom.base.clock import Clock


class Timeline:
    """Follows the wall clock, but never runs backwards, and waits after a leap forward.

    Leases are kept by two parties, the core and the holder, and each must have the time that it was
    promised. A clock that was set back would let every renewal look like an old one; so time goes
    on by the monotonic clock then. A clock that leapt forward (a machine that slept, a clock that
    was set) makes holders lapse at once, but they still need a moment to be gone; so nothing is
    decided until that moment is over.
    """

    def __init__(
        self, clock: Clock, now_s: float, *, leap_s: float, settle_s: float, settled: bool = True
    ) -> None:
        """Go on from ``now_s``, the last time in the journal.

        Args:
            clock: Where both kinds of time come from.
            now_s: The latest time that was ever told.
            leap_s: A leap forward by this could let a holder live longer than it is thought to.
            settle_s: Seconds after such a leap in which nothing is told.
            settled: Whether there was no leap before the first look.
        """
        self._clock = clock
        self._leap_s = leap_s
        self._settle_s = settle_s
        self._told_s = max(now_s, clock.now_s())
        self._told_at_s = clock.monotonic_s()
        self._settled_at_s = self._told_at_s + (0.0 if settled else settle_s)

    def now_s(self) -> float | None:
        """Return the time, or nothing while a leap settles."""
        monotonic_s = self._clock.monotonic_s()
        expected_s = self._told_s + monotonic_s - self._told_at_s
        now_s = max(expected_s, self._clock.now_s())
        if now_s - expected_s >= self._leap_s:
            self._settled_at_s = monotonic_s + self._settle_s
        self._told_s, self._told_at_s = now_s, monotonic_s
        return None if monotonic_s < self._settled_at_s else now_s
