"""The three standard streams, whatever state they were handed over in."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TextIO

STANDARD_OUTPUT, STANDARD_ERROR = "standard output", "standard error"


def make_ready() -> None:
    """Let closed streams be `/dev/null`, and let no text fail for want of a character.

    A closed descriptor must not stay free: the next file that is opened, as the journal, would get
    its number and then be printed into.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, "r")
    sys.stdout = _Output(1, sys.stdout, STANDARD_OUTPUT)
    sys.stderr = _Output(2, sys.stderr, STANDARD_ERROR)
    sys.unraisablehook = _unraisable


class _Output(io.TextIOWrapper):
    """A standard stream whose faults say that they are its own."""

    def __init__(self, descriptor: int, before: TextIO | None, name: str) -> None:
        super().__init__(
            open(descriptor, "wb", closefd=False),  # noqa: SIM115 - open as long as the process
            encoding=before.encoding if before else None,
            errors="backslashreplace",
            line_buffering=os.isatty(descriptor) or name == STANDARD_ERROR,
        )
        self._called = name

    def write(self, text: str, /) -> int:
        with self._own_faults():
            return super().write(text)

    def flush(self) -> None:
        with self._own_faults():
            super().flush()

    @contextlib.contextmanager
    def _own_faults(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            error.filename = self._called
            raise


def discard(stream: TextIO) -> None:
    """Let what is left in the stream, and all that follows, go nowhere."""
    with contextlib.suppress(OSError):  # it has no descriptor
        descriptor = stream.fileno()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, descriptor)
        os.close(null)


def _unraisable(found: "sys.UnraisableHookArgs") -> None:
    """Keep quiet about Ctrl-C where Python cannot raise it, as while a module is imported."""
    if not isinstance(found.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(found)
