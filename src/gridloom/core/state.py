"""What the core knows, as one record that can be written down and read back."""

from typing import Final, Literal

import msgspec

from gridloom.core.allowance import Allowance
from gridloom.model.booking import Booking
from gridloom.model.inventory import Inventory
from gridloom.model.life import Attempt, Job, Task, TaskState

_ENDED: Final = TaskState.ENDED  # Python 3.11 takes 0.2 us to look a member of an enum up


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Why a node takes no new work.

    Attributes:
        mark: As in ``NodeMarked``.
        sentence: Why, for a person.
        since_s: Since when.
        by_core: The core came to it by itself, and forgets it after a while.
        by_site: The site's own scheduler says so, and will say when it is over.
    """

    mark: Literal["cordon", "drain", "taint", "lost"]
    sentence: str
    since_s: float
    by_core: bool = False
    by_site: bool = False


class Signals(msgspec.Struct, kw_only=True):
    """What changes at a site from hour to hour, by its name.

    Attributes:
        prices: Of an accelerator-hour.
        carbon: Grams of CO2 a kWh.
    """

    prices: dict[str, float] = msgspec.field(default_factory=dict)
    carbon: dict[str, float] = msgspec.field(default_factory=dict)


class State(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Everything that decisions depend on; encoded, it is a snapshot.

    Encoding sorts the keys of dictionaries, so nothing in the core may depend on their order:
    jobs are walked in the order of the queue, tasks in the order of their placement.

    Attributes:
        inventory: What there is; nothing until the first report.
        jobs: All jobs ever submitted, by id, but those that were to be forgotten once over.
        epoch: The last fencing number given.
        now_s: The latest time seen; time never runs backwards in here.
        marks: Nodes and sites that take no new work, by ``site/node`` or ``site``.
        failures: Jobs in a row that failed on a node, by ``site/node``.
        bookings: By name.
        signals: Prices and carbon of the moment, where they differ from the inventory's.
        allowance: What queues have used of their accelerator-hours.
        again: Times at which a cycle is due although nothing happens; a heap.
        promises_due_s: The first time at which promised starts are to be looked at; 0 for never.
        settled: Nothing has happened since the last cycle that another could answer.
    """

    inventory: Inventory | None = None
    jobs: dict[str, Job] = msgspec.field(default_factory=dict)
    epoch: int = 0
    now_s: float = 0.0
    marks: dict[str, Mark] = msgspec.field(default_factory=dict)
    failures: dict[str, list[str]] = msgspec.field(default_factory=dict)
    bookings: dict[str, Booking] = msgspec.field(default_factory=dict)
    signals: Signals = msgspec.field(default_factory=Signals)
    allowance: Allowance = msgspec.field(default_factory=Allowance)
    again: list[float] = msgspec.field(default_factory=list)
    promises_due_s: float = 0.0
    settled: bool = False


def tasks_of(attempt: Attempt) -> list[Task]:
    """Return the attempt's tasks in rank order."""
    return [attempt.tasks[placed.domain] for placed in attempt.placement.tasks]


def party(attempt: Attempt, life: int, site: str) -> list[Task]:
    """Return the tasks that start together, in rank order.

    Args:
        attempt: Whose.
        life: Which life of them.
        site: The site that starts anew; empty: all of the attempt's start.
    """
    return [
        task
        for task in tasks_of(attempt)
        if task.life == life and site in ("", task.placement.site)
    ]


def stands_on(task: Task) -> str:
    """Return the node, as ``site/node``, on which a task is, or was to come up."""
    placed = task.placement
    return placed.domain if task.arrival is None else f"{placed.site}/{task.arrival.node}"


def all_ended(attempt: Attempt) -> bool:
    """Return whether the attempt has no task any more."""
    ended = [task.state is _ENDED for task in attempt.tasks.values()]
    return all(ended)


def live_tasks(attempt: Attempt) -> list[Task]:
    """Return the attempt's tasks that have not ended, in rank order."""
    return [task for task in tasks_of(attempt) if task.state is not _ENDED]
