"""Calls that may last, in threads that nobody waits for."""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonExecutor(Executor):
    """Makes each call in a thread of its own, which does not keep the process from ending."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Begin a call; return where its result will be."""
        future: Future[T] = Future()
        threading.Thread(target=_call, args=(future, fn, args, kwargs), daemon=True).start()
        return future


def _call(future: Future[T], fn: Callable[..., T], args: Any, kwargs: Any) -> None:
    try:
        future.set_result(fn(*args, **kwargs))
    except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
        future.set_exception(error)
