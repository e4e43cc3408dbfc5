"""What the core knows, as one record that can be written down and read back."""

import msgspec

from gridloom.base.errors import BrokenError
from gridloom.model.inventory import Inventory
from gridloom.model.life import JOB_TRANSITIONS, Attempt, Job, JobState, Task, TaskState


class State(msgspec.Struct, kw_only=True):
    """Everything that decisions depend on; encoded, it is a snapshot.

    Encoding sorts the keys of dictionaries, so nothing in the core may depend on their order:
    jobs are walked in the order of the queue, tasks in the order of their placement.

    Attributes:
        inventory: What there is; nothing until the first report.
        jobs: All jobs ever submitted, by id.
        epoch: The last fencing number given.
        now_s: The latest time seen; time never runs backwards in here.
    """

    inventory: Inventory | None = None
    jobs: dict[str, Job] = msgspec.field(default_factory=dict)
    epoch: int = 0
    now_s: float = 0.0


def move(job: Job, to: JobState) -> None:
    """Let ``job`` enter the state ``to``: the only place where a job's state changes.

    Raises:
        BrokenError: The table of transitions has no such step.
    """
    if to not in JOB_TRANSITIONS[job.state]:
        raise BrokenError(f"job {job.job_id} cannot go from {job.state} to {to}")
    job.state = to


def tasks_of(attempt: Attempt) -> list[Task]:
    """Return the attempt's tasks in rank order."""
    return [attempt.tasks[placed.domain] for placed in attempt.placement.tasks]


def live_tasks(attempt: Attempt) -> list[Task]:
    """Return the attempt's tasks that have not ended, in rank order."""
    return [task for task in tasks_of(attempt) if task.state is not TaskState.ENDED]
