"""What the driver needs of a Slurm, however it is asked: by its commands or through slurmrestd."""

from collections.abc import Collection, Mapping
from typing import Protocol

from gridloom.base.errors import SiteError
from gridloom.sites.slurm.records import Job, Licence, Node, Partition, Reservation
from gridloom.sites.slurm.submission import Submission
from gridloom.sites.slurm.usage import Used

_AWAY = (
    "Unable to contact slurm controller",
    "Connection refused",
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Communication connection failure",
    "Slurm temporarily unable to accept job",
    "Resource temporarily unavailable",
)
"""What Slurm says while its controller is away or starting; all else is an answer."""


class AwayError(SiteError):
    """The Slurm controller does not answer: the same call may succeed soon."""


def is_away(sentence: str) -> bool:
    """Return whether what Slurm said means that its controller was not there to be asked."""
    return any(words in sentence for words in _AWAY)


class SlurmEngine(Protocol):
    """One Slurm, asked and told.

    Every call may last for minutes while Slurm does not answer. All raise ``AwayError`` then, and
    ``SiteError`` when Slurm says no, or says what cannot be read.
    """

    def hand_in(self, asked: Submission, script: str) -> int:
        """Hand in a job; return Slurm's id of it, of a heterogeneous job that of its first part.

        Args:
            asked: What the job asks for.
            script: The same as a batch script, with what it runs.
        """
        ...

    def jobs(self, slurm_ids: Collection[int] = ()) -> tuple[Job, ...]:
        """Return many jobs by one call: ended ones, too, as long as Slurm remembers them.

        Those that Slurm does not know are left out. Of those that have ended and were asked for by
        id, ``preempted_s`` is told.

        Args:
            slurm_ids: Which; none for everybody's.
        """
        ...

    def cancel(self, slurm_id: int) -> None:
        """Take a job out of the queue; leave it alone if it has started, or is not known."""
        ...

    def accounted(self, slurm_ids: Collection[int]) -> Mapping[int, Used]:
        """Return what jobs have used, of those that the accounts tell of.

        Raises ``SiteError``, too, where no accounts are kept.
        """
        ...

    def nodes(self) -> tuple[Node, ...]:
        """Return all nodes."""
        ...

    def partitions(self) -> tuple[Partition, ...]:
        """Return all partitions."""
        ...

    def reservations(self) -> tuple[Reservation, ...]:
        """Return all reservations."""
        ...

    def licences(self) -> tuple[Licence, ...]:
        """Return all licences."""
        ...
