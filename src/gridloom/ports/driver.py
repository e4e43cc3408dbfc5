"""The port that a site is reached through."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from gridloom.model.event import AnyEvent, NodeMarked
from gridloom.model.inventory import Site
from gridloom.model.life import SiteUse
from gridloom.model.reason import Reason
from gridloom.wire.agent import Rendezvous, TaskOrder, TaskRef


class Driver(Protocol):
    """Carries out what the core wants at one site, and tells what happened there.

    Every verb may be called again with the same arguments and must then do no harm: after a crash
    the control plane repeats what it is not sure of. No verb waits for training processes.

    Attributes:
        chooses_nodes: Whether the site chooses where its tasks run: on other nodes, perhaps, than
            the order names. Their ranks then wait for a rendezvous.
    """

    chooses_nodes: bool

    def submit(self, site: Site, orders: Sequence[TaskOrder]) -> Mapping[TaskRef, Reason]:
        """Start the tasks of one site that start together; return those that it will not start.

        Idempotent by ``order.task``: a task that was started before is not started again.

        Args:
            site: The site, as the grid has it now.
            orders: All tasks that an attempt, or a life of it, has at the site, in rank order.
        """
        ...

    def meet(self, task: TaskRef, rendezvous: Rendezvous) -> None:
        """Tell a task that waits for it where the tasks of its attempt are, so that ranks start."""
        ...

    def renew(self, task: TaskRef, until_s: float) -> None:
        """Let the task run on until ``until_s``, in seconds since the epoch."""
        ...

    def stop(self, task: TaskRef, grace_s: float, sentence: str) -> None:
        """Ask the task to stop and kill what is left after ``grace_s``; 0 kills at once."""
        ...

    def observe(self, tasks: Sequence[TaskRef]) -> list[AnyEvent]:
        """Return what happened to ``tasks`` since the last call, oldest first.

        A task whose supervisor is gone is reported as ended, after its processes are.
        Facts may be repeated; none is lost.
        """
        ...

    def standing(self, site: Site) -> Sequence[NodeMarked] | None:
        """Return what keeps nodes of a site from work, as its own scheduler says now.

        Each is marked ``by_site``; of other nodes it says nothing. ``None`` while it is not known.
        Never waits.
        """
        ...

    def free_port(
        self, address: str, ports: tuple[int, int], taken: frozenset[int], count: int = 1
    ) -> int:
        """Return a port of the range ``ports`` on which a process at ``address`` can listen.

        Args:
            address: Of a node.
            ports: First and last one.
            taken: Ports that are given to somebody.
            count: So many in a row, from the one that is returned on, must be free.

        Raises:
            SiteError: All of them are taken.
        """
        ...


@runtime_checkable
class Keeping(Protocol):
    """What a driver can do besides whose sites keep checkpoints where nobody else sees them."""

    def bring(self, job_id: str, attempt: int, sites: Sequence[str]) -> str:
        """Bring here what a job has saved at sites that it leaves, before an attempt elsewhere.

        Returns what the attempt waits for, in a sentence; empty once it may begin. Never waits.

        Args:
            job_id: The job.
            attempt: The attempt's number.
            sites: Where it is to run.
        """
        ...


@runtime_checkable
class Accounting(Protocol):
    """What a driver can do besides whose sites keep accounts."""

    def used(self, job_id: str) -> Sequence[SiteUse] | None:
        """Return what a job that is over has used, as its sites' own accounts say.

        Of sites that keep none it says nothing. ``None`` while accounts that are kept are not
        complete; that is so for some seconds at most. Never waits.
        """
        ...
