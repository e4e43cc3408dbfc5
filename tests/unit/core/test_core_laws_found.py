"""What the laws of steps have found in the core, as small examples."""

import random

from tests.unit.core.grids import grid, shape, site, spec

from gridloom.core.machine import Machine
from gridloom.core.turn import LeaseTerms
from gridloom.model.action import AnyAction, StartAttempt
from gridloom.model.event import (
    AnyEvent,
    InventoryChanged,
    JobSubmitted,
    NodeMarked,
)
from gridloom.model.inventory import Inventory
from gridloom.model.policy import Policy
from gridloom.model.quota import Queue
from gridloom.model.spec import Forecast


class Try:
    """A machine with leases that last."""

    def __init__(self, inventory: Inventory) -> None:
        self.machine = Machine(terms=LeaseTerms(lease_s=1e6))
        self.now = 0.0
        self.step(InventoryChanged(inventory=inventory))

    def step(self, *events: AnyEvent) -> list[AnyAction]:
        self.now += 1.0
        return self.machine.step(events, self.now, random.Random(0))


def test_those_who_start_together_stay_within_their_quota() -> None:
    queues = (Queue(name="x", nominal={"cpu": 4}),)
    policy = Policy(blocked="conservative")
    world = Try(grid(site("s", "8"), queues=queues, policy=policy))
    job = spec(shape(2), queue="x", forecast=Forecast(duration_s=9.0))
    events = [JobSubmitted(job_id=name, spec=job, submitted_s=1.0) for name in "abc"]
    actions = world.step(*events)
    assert [a.job_id for a in actions if isinstance(a, StartAttempt)] == ["a", "b"]


def test_who_made_room_keeps_no_places_that_are_lost() -> None:
    world = Try(grid(site("s", "4")))
    world.step(JobSubmitted(job_id="a", spec=spec(shape(4)), submitted_s=1.0))
    high = spec(shape(4), priority=1)
    world.step(JobSubmitted(job_id="b", spec=high, submitted_s=2.0))
    world.step(NodeMarked(domain="s/n0", mark="lost"))
    jobs = world.machine.state.jobs
    assert jobs["a"].reservation is None
    assert jobs["b"].reservation is not None


def test_reserved_places_on_other_nodes_are_given_up() -> None:
    """The node comes back with less memory than the job needs."""
    world = Try(grid(site("s", "4", "2")))
    job = spec(shape(4, memory_bytes=9))
    world.step(JobSubmitted(job_id="a", spec=job, submitted_s=1.0))
    world.step(NodeMarked(domain="s/n0", mark="lost"))
    state = world.machine.state
    assert state.jobs["a"].reservation is not None
    world.now += 60.0 if state.jobs["a"].not_before_s > world.now + 60.0 else 2.0
    known = grid(site("s", "4", "2")).sites[0]
    small = type(known.nodes[0])(name="n0", address="", accelerator="cpu", count=4, memory_bytes=8)
    actions = world.step(
        InventoryChanged(inventory=grid(site("s", small))), NodeMarked(domain="s/n0", mark="")
    )
    assert actions == []
    assert state.jobs["a"].reservation is None


def test_an_older_job_is_not_evicted_by_a_younger_one() -> None:
    policy = Policy(ageing_per_hour=3600.0 * 10)
    world = Try(grid(site("s", "4"), policy=policy))
    world.step(JobSubmitted(job_id="a", spec=spec(shape(4)), submitted_s=1.0))
    young = spec(shape(4), priority=1)
    assert world.step(JobSubmitted(job_id="b", spec=young, submitted_s=2.0)) == []
