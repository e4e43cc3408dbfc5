"""What is so at one instant of a story: jobs, where they are, and why others wait."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gridloom.core.machine import Machine
from gridloom.model.action import StopTask
from gridloom.model.life import HOLDING, Attempt, Job, JobState
from gridloom.model.reason import Reason
from gridloom.sim.record import JobRow, SimRecord
from gridloom.sim.story import ORIGIN_S
from gridloom.wire.story_names import Places, names_like

Domain = tuple[str, ...]
"""A domain of some level: the site and what leads from there to it."""

_ENDLESS = "grid"


@dataclass
class Memory:
    """What a story remembers that the scheduler does not.

    Attributes:
        ended_s: When jobs were last seen to be over, in the story's time.
        stops: Every request to stop a task, with its time.
    """

    ended_s: dict[str, float] = field(default_factory=dict)
    stops: list[tuple[float, StopTask]] = field(default_factory=list)


@dataclass(frozen=True)
class Rank:
    """One task of a gang.

    Attributes:
        domain: ``site/node``.
        devices: Their numbers on the node.
    """

    domain: str
    devices: tuple[int, ...]


class Scene:
    """The scheduler's state, looked at as a story talks of it.

    Attributes:
        at_s: The instant, in the story's time.
        machine: The scheduler.
        places: The story's nodes and sites by name.
        memory: What was noted on the way.
    """

    def __init__(
        self, at_s: float, machine: Machine, places: Places, memory: Memory, record: SimRecord
    ) -> None:
        self.at_s, self.machine, self.places, self.memory = at_s, machine, places, memory
        self._record = record

    @property
    def jobs(self) -> dict[str, Job]:
        """All jobs that were handed in, by name."""
        return self.machine.state.jobs

    def matching(self, pattern: str) -> list[Job]:
        """Return the jobs that a name stands for, in the order in which they were handed in."""
        return [self.jobs[name] for name in names_like(pattern, self.jobs)]

    def attempt(self, job: Job) -> Attempt | None:
        """Return the attempt by which a job holds devices."""
        return job.attempts[-1] if job.state in HOLDING else None

    def devices(self, job: Job) -> int:
        """Return how many devices a job holds."""
        attempt = self.attempt(job)
        return sum(len(task.devices) for task in attempt.placement.tasks) if attempt else 0

    def nodes(self, job: Job) -> list[str]:
        """Return the nodes on which a job holds devices, in rank order."""
        attempt = self.attempt(job)
        if attempt is None:
            return []
        return list(dict.fromkeys(task.domain for task in attempt.placement.tasks))

    def ranks(self, job: Job) -> list[Rank]:
        """Return where each rank of a job is."""
        attempt = self.attempt(job)
        if attempt is None:
            return []
        each = attempt.placement.option.rank_devices
        return [
            Rank(task.domain, task.devices[first : first + each])
            for task in attempt.placement.tasks
            for first in range(0, len(task.devices), each)
        ]

    def domain(self, rank: Rank, level: str) -> Domain | None:
        """Return the domain of a level that a rank is in; nothing where its site has none."""
        site_name, _, node_name = rank.domain.partition("/")
        if level == _ENDLESS:
            return ()
        if level == "site":
            return (site_name,)
        assert self.machine.state.inventory is not None
        site = self.machine.state.inventory.site(site_name)
        node = next(node for node in site.nodes if node.name == node_name)
        if level in site.levels:
            return (site_name, *node.path[: site.levels.index(level) + 1])
        inside = (site_name, *node.path, node_name)
        if level == "node":
            return inside
        if level == "island":
            size = node.island or node.count
            islands = {device // size for device in rank.devices}
            return (*inside, "+".join(map(str, sorted(islands))))
        return None

    def domains(self, job: Job, level: str) -> list[Domain | None]:
        """Return the domain of every rank of a job."""
        return [self.domain(rank, level) for rank in self.ranks(job)]

    def reason(self, job: Job) -> Reason | None:
        """Return why a job waits, or why it ended."""
        return self.machine.reason(job.job_id)

    def row(self, job: Job) -> JobRow:
        """Return what a job has used, as the world counts it."""
        return self._record.job(job.job_id)

    def started_s(self, job: Job) -> float | None:
        """Return when a job first started."""
        return job.attempts[0].started_s - ORIGIN_S if job.attempts else None

    def free(self) -> int:
        """Return the devices that no job holds."""
        inventory = self.machine.state.inventory
        sites = inventory.sites if inventory else ()
        total = sum(node.count for site in sites for node in site.nodes)
        return total - sum(self.devices(job) for job in self.jobs.values())

    def mark(self, domain: str) -> str:
        """Return how a node, or a site, stands."""
        marks = self.machine.state.marks
        found = marks.get(domain) or marks.get(domain.partition("/")[0])
        return found.mark if found else "well"

    def waiting(self) -> Iterable[Job]:
        """Return the jobs that wait."""
        return [job for job in self.jobs.values() if job.state is JobState.QUEUED]


def where(scene: Scene, job: Job) -> str:
    """Return where a job is, for a person."""
    nodes = scene.nodes(job)
    if not nodes:
        return ""
    shown = ", ".join(node.rpartition("/")[2] for node in nodes[:_SHOWN_MAX])
    if len(nodes) > _SHOWN_MAX:
        shown += f" and {len(nodes) - _SHOWN_MAX} more"
    devices = scene.devices(job)
    return f"{devices} device{'s' if devices != 1 else ''} on {shown}"


_SHOWN_MAX = 6
