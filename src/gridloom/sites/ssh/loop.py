"""An event loop in a thread of its own, for callers that know nothing of such loops."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_SETTLE_S = 2.0
_TURNS = 3


class LoopThread:
    """Runs coroutines of any threads in one; that does not keep the process from ending."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
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

    def close(self) -> None:
        """End the thread; what it was about to do is not done."""
        with self._starting:
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(_settled(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                run = self._loop.run_forever
                self._thread = threading.Thread(target=run, daemon=True, name="ssh")
                self._thread.start()
            return self._loop


async def _settled() -> None:
    """Cancel all that is under way; return when nothing is, and connections are closed."""
    current = asyncio.current_task()
    tasks = [task for task in asyncio.all_tasks() if task is not current]
    for task in tasks:
        task.cancel()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_SETTLE_S):
            await asyncio.gather(*tasks, return_exceptions=True)
    for _ in range(_TURNS):  # of what a closed connection calls back
        await asyncio.sleep(0)
