"""Calls that are made at once, or when a test says so."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Now(Executor):
    """Makes calls at once, or when it is told to."""

    def __init__(self) -> None:
        self.is_slow = False
        self.left: list[Callable[[], None]] = []

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        def call() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:  # noqa: BLE001 - it is raised where the result is asked for
                future.set_exception(error)

        self.left.append(call)
        if not self.is_slow:
            self.answer()
        return future

    def answer(self) -> None:
        """Make the calls that were put off."""
        while self.left:
            self.left.pop(0)()
