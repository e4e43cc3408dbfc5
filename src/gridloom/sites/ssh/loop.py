"""An event loop in a thread of its own, for callers that know nothing of such loops."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines of any threads in one; that does not keep the process from ending."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = threading.Lock()

    def call(self, coroutine: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Return what a coroutine returns.

        Args:
            coroutine: It is cancelled when time is up.
            timeout_s: How long to wait.

        Raises:
            TimeoutError: That was not long enough.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self._running())
        try:
            return future.result(timeout_s)
        except TimeoutError:
            future.cancel()
            raise

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, daemon=True, name="ssh").start()
            return self._loop
