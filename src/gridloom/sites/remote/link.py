"""What is needed of a link to a login host: its commands, and how they end."""

from collections.abc import Sequence
from typing import Protocol

import msgspec


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended.

    Attributes:
        code: Its exit status; negative where a signal ended it.
        stdout: What it printed.
        stderr: What it printed where errors go.
    """

    code: int
    stdout: str
    stderr: str


class Link(Protocol):
    """One login host.

    Attributes:
        place: How it is called in sentences.
    """

    place: str

    def run(self, argv: Sequence[str], stdin: str = "", *, timeout_s: float) -> Done:
        """Return how a command ended that was run there.

        Args:
            argv: Its words.
            stdin: What it reads.
            timeout_s: How long it may take. Then nobody listens any more; it may go on there.

        Raises:
            LinkDownError: The link is down, or broke before the command had ended.
            LinkRefusedError: There is no link, and why.
        """
        ...
