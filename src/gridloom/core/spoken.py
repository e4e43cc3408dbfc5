"""What of the grid is spoken for: no room is made for a job on that, and nobody moves there."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec
import numpy as np

from gridloom.core import budget, progress
from gridloom.core.capacity import Holding
from gridloom.core.demand import Demand
from gridloom.core.index import Index
from gridloom.core.profile import Bools
from gridloom.core.topology import Ints
from gridloom.model.booking import Booking
from gridloom.model.life import Job
from gridloom.model.spec import Option


class Later(msgspec.Struct, frozen=True):
    """The moment at which a promise to a job is to be kept.

    Attributes:
        slack: For each unit the devices that others may have then.
        released: Jobs that run now and are predicted to have ended by then, as ``slack`` counts on.
    """

    slack: Ints
    released: frozenset[str]


class Rest(msgspec.Struct, frozen=True):
    """What others leave to a job.

    Attributes:
        closed: For each unit whether they leave nothing of it.
        later: What they leave when promises to them are due that the job would run into.
    """

    closed: Bools
    later: tuple[Later, ...]

    def of(
        self, available: Ints, freed: Mapping[str, Holding], taken: Iterable[Holding] = ()
    ) -> Ints:
        """Return what the job may have of the available.

        Args:
            available: For each unit.
            freed: What of it those have now who would have to leave, by job.
            taken: What others would have in exchange.
        """
        left = np.where(self.closed, 0, available)
        for later in self.later:
            most = later.slack.copy()
            for job_id, held in freed.items():
                if job_id not in later.released:
                    most[held.units] += held.devices
            for held in taken:
                most[held.units] -= held.devices
            left = np.minimum(left, most)
        return np.maximum(left, 0)

    @property
    def is_all(self) -> bool:
        """Whether they leave everything."""
        return not self.later and not self.closed.any()

    @property
    def key(self) -> object:
        """What is equal for two that leave the same."""
        rows = tuple((later.slack.tobytes(), later.released) for later in self.later)
        return self.closed.tobytes(), rows


class Ahead(Protocol):
    """What is decided in a cycle for those who come before a job."""

    def rest(self, job: Job, end_s: float) -> Rest:
        """Return what they, and bookings, leave to a job that would run until then."""


def rest_for(index: Index, ahead: Ahead, job: Job, demand: Demand, *, start_s: float) -> Rest:
    """Return what others leave to a job of a shape.

    At which levels its groups will meet is not known yet, so the slowest that was foreseen counts.

    Args:
        index: The grid.
        ahead: Who comes before.
        job: The job.
        demand: Its shape.
        start_s: When it could start at the latest.
    """
    run_s = progress.run_s(job, demand.option, _slowest_step_s(demand.option))
    rest = ahead.rest(job, start_s + run_s)
    return Rest(rest.closed | budget.dear_units(index, job, demand), rest.later)


def closed_to(
    index: Index,
    job: Job,
    end_s: float,
    bookings: Sequence[tuple[Booking, Bools]],
    held: Iterable[Bools],
) -> Bools:
    """Return, for each unit, whether it is booked by others before a time, or held for them."""
    closed = np.zeros(len(index.tree.unit_devices), np.bool_)
    for booking, units in bookings:
        if booking.start_s < end_s and job.spec.queue not in booking.queues:
            closed |= units
    for units in held:
        closed |= units
    return closed


def _slowest_step_s(option: Option) -> float:
    return max([option.step_s, *(speed.step_s for speed in option.speeds)])
