"""Why a training process gives up, as the exit codes of the launch contract tell it.

GridloomError
└── WorkFailedError
    ├── PeerLostError   another rank went away             EXIT_PEER_LOST
    ├── StorageError    a file could not be written        EXIT_IO
    └── PoisonedError   the loss is no longer a number     EXIT_POISONED
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist

from gridloom.base.errors import WorkFailedError


class RuntimeFailureError(WorkFailedError):
    """A failure that says what would help.

    Attributes:
        message: What went wrong, one sentence.
        remedy: What would help.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message, self.remedy = message, remedy


class PeerLostError(RuntimeFailureError):
    """Another rank went away; this one is a victim, not the cause."""


class StorageError(RuntimeFailureError):
    """A file could not be written; raised on every rank, whichever of them met it."""


class PoisonedError(RuntimeFailureError):
    """The loss is not a finite number, on every rank alike."""


def is_of_lost_peer(error: RuntimeError) -> bool:
    """Return whether a communication library says with an error that a peer is gone.

    For where other things may go wrong as well. Gloo names its own file in what it raises.
    """
    return isinstance(error, dist.DistError) or "gloo" in str(error)


@contextmanager
def peers_guarded() -> Iterator[None]:
    """Turn what a communication library raises when a peer is gone into ``PeerLostError``.

    Gloo and the store raise a bare ``RuntimeError``, NCCL a subclass of it.
    """
    try:
        yield
    except RuntimeError as error:
        first_line = str(error).partition("\n")[0]
        raise PeerLostError(f"another rank went away: {first_line}") from error
