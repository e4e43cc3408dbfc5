"""How long collectives of the CPU were on their way while the training went on."""

from collections.abc import Callable

import torch.distributed as dist

from gridloom.runtime.busy import Busy


class Flights:
    """Measures asynchronous collectives: all that were on their way at once count once."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """Begin with none, by a clock that never runs backwards."""
        self._busy, self._exposed_s = Busy(now_s), 0.0

    def left(self, work: dist.Work) -> None:
        """Note that one has begun."""
        self._busy.begin()
        work.get_future().add_done_callback(lambda _: self._busy.end())

    def await_(self, work: dist.Work) -> None:
        """Wait for one."""
        before_s = self._busy.total_s()
        work.wait()
        self._exposed_s += self._busy.total_s() - before_s

    def hidden_s(self) -> float:
        """Return the seconds so far in which some were on their way and nobody waited."""
        return self._busy.total_s() - self._exposed_s
