"""Which devices are free: the shape of the grid at one moment, on which trials can be undone."""

from collections.abc import Iterable

from gridloom.base.errors import BrokenError
from gridloom.core.order import holding
from gridloom.model.inventory import Node
from gridloom.model.life import Job, Placement


class Capacity:
    """Devices in use by number, and nodes kept for a waiting job; nodes are named ``site/node``.

    Built from what runs, not from what the inventory lists: a node that vanishes and comes back
    still has its devices in use while their attempt lasts.
    """

    def __init__(self) -> None:
        self._users: dict[str, dict[int, str]] = {}
        self._held: dict[str, str] = {}

    @classmethod
    def left_by(cls, jobs: Iterable[Job]) -> "Capacity":
        """Return what the attempts of ``jobs`` leave free."""
        capacity = cls()
        for job in holding(jobs):
            capacity.take(job.attempts[-1].placement, job.job_id)
        return capacity

    def take(self, placement: Placement, job_id: str) -> None:
        """Give the placement's devices to the job; ``give_back`` undoes it exactly.

        Raises:
            BrokenError: Another job has one of them.
        """
        for task in placement.tasks:
            users = self._users.setdefault(task.domain, {})
            for device in task.devices:
                if device in users:
                    raise BrokenError(
                        f"device {device} of {task.domain} is used by {users[device]}"
                        f" and cannot go to {job_id}"
                    )
                users[device] = job_id

    def give_back(self, placement: Placement) -> None:
        """Undo ``take``."""
        for task in placement.tasks:
            for device in task.devices:
                del self._users[task.domain][device]

    def free(self, domain: str, node: Node) -> tuple[int, ...]:
        """Return the numbers of the node's free devices, ascending."""
        users = self._users.get(domain, {})
        return tuple(device for device in range(node.count) if device not in users)

    def users(self, domain: str) -> tuple[str, ...]:
        """Return the jobs that use devices of the node, each once."""
        return tuple(dict.fromkeys(self._users.get(domain, {}).values()))

    def hold(self, domain: str, job_id: str) -> None:
        """Keep the node for a waiting job; whoever came first keeps it."""
        self._held.setdefault(domain, job_id)

    def held_for(self, domain: str) -> str:
        """Return the waiting job for which the node is kept; empty for none."""
        return self._held.get(domain, "")
