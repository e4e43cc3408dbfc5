"""Sites that wait for one another, each in a thread, of which one runs at a time: in turn."""

import threading
from collections.abc import Callable


class KilledError(Exception):
    """Raised in a site to end it without a word."""


class Turns:
    """Threads that hand one baton round: the same order, run after run.

    Attributes:
        count: How often the baton was handed on.
    """

    def __init__(self, most: int = 20_000) -> None:
        """Give up after ``most`` turns: somebody waits for ever."""
        self.count = 0
        self._most = most
        self._changed = threading.Condition()
        self._order: list[int] = []
        self._turn = 0
        self._errors: list[BaseException] = []

    def run(self, works: list[Callable[[], None]]) -> None:
        """Do all works, the first one first; return when all are done."""
        self._order, self._turn = list(range(len(works))), 0
        threads = [
            threading.Thread(target=self._work, args=(number, work), daemon=True)
            for number, work in enumerate(works)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def hand_on(self) -> None:
        """Let the next one run, and wait for the own turn."""
        with self._changed:
            self.count += 1
            if self.count > self._most:
                raise AssertionError("a site hangs")
            mine = self._turn
            at = self._order.index(mine)
            self._turn = self._order[(at + 1) % len(self._order)]
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._turn == mine)

    def _work(self, number: int, work: Callable[[], None]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._turn == number)
        try:
            work()
        except KilledError:
            pass
        except BaseException as error:  # noqa: BLE001 - raised by `run`
            self._errors.append(error)
        with self._changed:
            at = self._order.index(number)
            self._order.remove(number)
            if self._order:
                self._turn = self._order[at % len(self._order)]
            self._changed.notify_all()
