"""How far one attempt has come: work done, work kept, and where its seconds went."""

import math

_TOUCH = 1e-9
"""Share of a cycle by which a checkpoint may be early: what sums of seconds are off by."""


class Progress:
    """Work of an attempt under periodic checkpoints, in closed form over any stretch of time.

    Work is counted in seconds of training at the speed of the job's first option. Training goes in
    cycles: ``every_s`` of training, then ``stall_s`` of standing still; ``save_s`` after its begin
    the checkpoint is complete, and holds the work done up to its begin. At most one checkpoint is
    under way: where it takes longer than a cycle, the cycle is as long as it takes.

    Attributes:
        done_s: Work done, with that of the attempts before.
        kept_s: Work that is in a complete checkpoint.
        train_s: Seconds of training in this attempt.
        kept_train_s: Those of them that are in a complete checkpoint.
        still_s: Seconds of standing still for checkpoints.
    """

    __slots__ = (
        "_cycle_s",
        "_every_s",
        "_passed_s",
        "_pending",
        "_save_s",
        "_stall_s",
        "done_s",
        "kept_s",
        "kept_train_s",
        "still_s",
        "train_s",
    )

    def __init__(
        self, kept_s: float, *, every_s: float = 0.0, save_s: float = 0.0, stall_s: float = 0.0
    ) -> None:
        """Begin with the work that is kept.

        Args:
            kept_s: Work that the attempt continues from.
            every_s: Training between two checkpoints; 0 for none.
            save_s: From the begin of a checkpoint until it is complete.
            stall_s: Of that, how long training stands still.
        """
        self.done_s = self.kept_s = kept_s
        self.train_s = self.kept_train_s = self.still_s = 0.0
        self._stall_s = min(stall_s, save_s)
        self._save_s = save_s
        self._every_s = max(every_s, save_s - self._stall_s) if every_s > 0 else 0.0
        self._cycle_s = self._every_s + self._stall_s
        self._passed_s = 0.0  # on the time line of cycles
        self._pending: tuple[int, float, float] | None = None  # number, work, training at its begin

    def advance(self, wall_s: float, rate: float) -> None:
        """Let ``wall_s`` seconds pass in which work goes on at ``rate`` a second of training."""
        if not self._every_s:
            self.done_s += wall_s * rate
            self.train_s += wall_s
            return
        start_s, end_s = self._passed_s, self._passed_s + wall_s
        trained_s = wall_s if not self._stall_s else self._trained(end_s) - self._trained(start_s)
        complete = self._count(end_s - self._save_s)
        if complete > self._count(start_s - self._save_s):
            self._complete(complete, start_s, rate)
        begun = self._count(end_s)
        if begun > complete and (self._pending is None or self._pending[0] < begun):
            self._pending = (begun, *self._at_begin(begun, start_s, rate))
        self.done_s += trained_s * rate
        self.train_s += trained_s
        self.still_s += max(wall_s - trained_s, 0.0)
        self._passed_s = end_s

    def wall_until(self, target_s: float, rate: float) -> float:
        """Return the seconds until ``target_s`` of work are done; infinity when never."""
        train_s = self._left(target_s, rate)
        if not self._stall_s or not self._every_s or train_s == math.inf:
            return train_s
        end_s = self._trained(self._passed_s) + train_s
        stalls = max(math.ceil(end_s / self._every_s - _TOUCH) - 1, 0)
        return max(end_s + stalls * self._stall_s - self._passed_s, train_s)

    def wall_until_complete(self) -> float:
        """Return the seconds of going on until the next checkpoint is complete."""
        if not self._every_s:
            return math.inf
        number = self._count(self._passed_s - self._save_s) + 1
        return max(self._begin(number) + self._save_s - self._passed_s, 0.0)

    def finish(self, target_s: float, rate: float) -> None:
        """Go on until exactly ``target_s`` of work are done."""
        if not self._every_s:
            self.train_s += self._left(target_s, rate)
            self.done_s = target_s
            return
        wall_s, train_s = self.wall_until(target_s, rate), self._left(target_s, rate)
        still_s, trained_s = self.still_s, self.train_s
        self.advance(wall_s, rate)
        self.done_s = target_s
        self.train_s, self.still_s = trained_s + train_s, still_s + (wall_s - train_s)

    def keep_all(self) -> None:
        """Keep all work done, as a checkpoint at a stop does."""
        self.kept_s, self.kept_train_s = self.done_s, self.train_s

    def _left(self, target_s: float, rate: float) -> float:
        left_s = max(target_s - self.done_s, 0.0)
        if left_s == 0:
            return 0.0
        return left_s / rate if rate > 0 else math.inf

    def _trained(self, passed_s: float) -> float:
        whole, rest_s = divmod(passed_s, self._cycle_s)
        return whole * self._every_s + min(rest_s, self._every_s)

    def _count(self, passed_s: float) -> int:
        """Return how many checkpoints have begun by then."""
        since_first_s = passed_s - self._every_s
        return max(math.floor(since_first_s / self._cycle_s + _TOUCH) + 1, 0)

    def _begin(self, number: int) -> float:
        return (number - 1) * self._cycle_s + self._every_s

    def _complete(self, number: int, start_s: float, rate: float) -> None:
        if self._pending and self._pending[0] == number:
            _, self.kept_s, self.kept_train_s = self._pending
        else:
            self.kept_s, self.kept_train_s = self._at_begin(number, start_s, rate)

    def _at_begin(self, number: int, start_s: float, rate: float) -> tuple[float, float]:
        """Return work and training at the begin of a checkpoint that begins in this stretch."""
        since_s = self._trained(self._begin(number)) - self._trained(start_s)
        since_s = max(since_s, 0.0)
        return self.done_s + since_s * rate, self.train_s + since_s
