"""Facts: the closed union of everything that can have happened."""
# house: public 23 because a closed union is read in one place

from typing import Literal

import msgspec

from gridloom.model.booking import Booking
from gridloom.model.inventory import Inventory
from gridloom.model.life import Arrival, Outcome
from gridloom.model.reason import Reason
from gridloom.model.spec import JobSpec


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """Something that happened and cannot be taken back."""


class InventoryChanged(Event, frozen=True, kw_only=True, tag=True):
    """The grid is now this."""

    inventory: Inventory


class JobSubmitted(Event, frozen=True, kw_only=True, tag=True):
    """A user handed in a job."""

    job_id: str
    spec: JobSpec
    submitted_s: float


class StopRequested(Event, frozen=True, kw_only=True, tag=True):
    """A user wants the job stopped with its state saved."""

    job_id: str


class CancelRequested(Event, frozen=True, kw_only=True, tag=True):
    """A user wants the job to end for good, at once."""

    job_id: str


class ResumeRequested(Event, frozen=True, kw_only=True, tag=True):
    """A user wants a stopped or failed job to go on."""

    job_id: str


class EvictRequested(Event, frozen=True, kw_only=True, tag=True):
    """An operator wants the job off its devices, with its state saved, to be placed anew."""

    job_id: str


class NodeMarked(Event, frozen=True, kw_only=True, tag=True):
    """A node's standing has changed.

    Attributes:
        domain: ``site/node``, or ``site`` for all of its nodes.
        mark: ``cordon``: no new work; ``drain``: and what runs there moves; ``taint``: sick, as a
            drain; ``lost``: gone with what ran there; empty: well again.
        sentence: Why, for a person.
        by_site: The site's own scheduler says so. It takes back only what it said itself, does not
            outdo what a person said, and moves only what has come up on that very node.
    """

    domain: str
    mark: Literal["", "cordon", "drain", "taint", "lost"]
    sentence: str = ""
    by_site: bool = False


class BookingMade(Event, frozen=True, kw_only=True, tag=True):
    """Capacity is spoken for from one time to another; a booking of the same name is replaced."""

    booking: Booking


class BookingDropped(Event, frozen=True, kw_only=True, tag=True):
    """A booking is off."""

    name: str


class SignalChanged(Event, frozen=True, kw_only=True, tag=True):
    """A site's price or the carbon of its electricity has changed; nothing: it has not.

    Attributes:
        site: Its name.
        price_per_accelerator_hour: In the grid's currency.
        carbon_g_per_kwh: Grams of CO2.
    """

    site: str
    price_per_accelerator_hour: float | None = None
    carbon_g_per_kwh: float | None = None


class TaskEvent(Event, frozen=True, kw_only=True):
    """Something that happened to one task of one attempt.

    Attributes:
        job_id: The job.
        attempt: The attempt's number.
        epoch: The attempt's fencing number; facts of another epoch are dropped.
        domain: ``site/node``.
        life: Which life of the task; facts of another are dropped.
    """

    job_id: str
    attempt: int
    epoch: int
    domain: str
    life: int = 1


class TaskRefused(TaskEvent, frozen=True, kw_only=True, tag=True):
    """The site will not start the task."""

    reason: Reason


class TaskWaiting(TaskEvent, frozen=True, kw_only=True, tag=True):
    """The task waits in its site's own queue: sent when it enters, then as a sign of life.

    Attributes:
        sentence: What for, in the site's words.
        expected_s: When the site expects to start it, in seconds since the epoch; 0 when unknown.
    """

    sentence: str
    expected_s: float = 0.0


class TaskArrived(TaskEvent, frozen=True, kw_only=True, tag=True):
    """The task's supervisor is on its node: sent when it comes up, then as a sign of life.

    Its ranks start when it is told where those of all tasks are that start together.
    """

    arrival: Arrival


class TaskRunning(TaskEvent, frozen=True, kw_only=True, tag=True):
    """The task's processes are alive: sent at their start, then as a heartbeat."""


class TaskEnded(TaskEvent, frozen=True, kw_only=True, tag=True):
    """The task has no process any more."""

    outcome: Outcome


class TaskReady(TaskEvent, frozen=True, kw_only=True, tag=True):
    """The task's program is set up and trains from now on.

    Attributes:
        resumed_step: Training step of the checkpoint it continues from; 0 for a fresh start.
        notes: What a person should know of where it starts, a sentence each.
        independent_sites: Whether its sites go on without a lost one, and let it in again.
    """

    resumed_step: int
    notes: tuple[str, ...] = ()
    independent_sites: bool = False


class StepReported(TaskEvent, frozen=True, kw_only=True, tag=True):
    """The attempt has done this training step (and those before it)."""

    step: int


class CheckpointSaved(TaskEvent, frozen=True, kw_only=True, tag=True):
    """A checkpoint is complete."""

    step: int


AnyEvent = (
    InventoryChanged
    | JobSubmitted
    | StopRequested
    | CancelRequested
    | ResumeRequested
    | EvictRequested
    | NodeMarked
    | BookingMade
    | BookingDropped
    | SignalChanged
    | TaskRefused
    | TaskWaiting
    | TaskArrived
    | TaskRunning
    | TaskEnded
    | TaskReady
    | StepReported
    | CheckpointSaved
)
