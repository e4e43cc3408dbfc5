"""The watch finds what the laws forbid, whichever way it looks, and nothing in a sound run."""

import random

import pytest
from msgspec.structs import replace
from tests.fakes.simulated import arrival, grid

from gridloom.base.errors import BrokenError
from gridloom.core.machine import Machine
from gridloom.model.event import AnyEvent, InventoryChanged, JobSubmitted
from gridloom.model.policy import combined
from gridloom.ports.journal import Record
from gridloom.sim.faults import Fault
from gridloom.sim.law_watch import law_watch
from gridloom.sim.simulation import Simulation
from gridloom.sim.terms import SimTerms

EMPTY = Record(seq=1, now_s=0.0, seed=0, events=(), actions=())


def two_running() -> tuple[Machine, Record]:
    machine = Machine(terms=SimTerms().lease_terms())
    events: tuple[AnyEvent, ...] = (
        InventoryChanged(inventory=grid(2)),
        *(JobSubmitted(job_id=j, spec=arrival(j).spec, submitted_s=0.0) for j in ("a", "b")),
    )
    actions = machine.step(events, 0.0, random.Random(0))
    return machine, replace(EMPTY, events=events, actions=tuple(actions))


@pytest.mark.parametrize("how", ["full", "incremental"])
def test_a_sound_run_passes(how: str) -> None:
    jobs = [
        arrival(f"j{i}", 7.0 * i, devices=1 + i % 3, work_s=40.0 + i, elastic=i % 2 == 0)
        for i in range(60)
    ]
    machine = Machine(terms=replace(SimTerms().lease_terms(), forget_over=True))
    watch = law_watch(machine, how)
    assert watch is not None
    inventory = replace(grid(4, 2), policy=combined("las"))
    fault = Fault(at_s=60.0, kind="down", domain="s/n1", duration_s=100.0)
    sim = Simulation(inventory, jobs, seed=0, faults=(fault,), machine=machine, journal=watch)
    sim.run()
    assert not machine.state.jobs


def test_off_is_off() -> None:
    assert law_watch(Machine(), "off") is None


@pytest.mark.parametrize("how", ["full", "incremental"])
def test_a_device_held_twice_is_found(how: str) -> None:
    machine = Machine(terms=SimTerms().lease_terms())
    watch = law_watch(machine, how)
    assert watch is not None
    done, record = two_running()
    machine.state, machine.index = done.state, done.index
    placement = machine.state.jobs["b"].attempts[0].placement
    taken = machine.state.jobs["a"].attempts[0].placement.tasks
    machine.state.jobs["b"].attempts[0].placement = replace(placement, tasks=taken)
    with pytest.raises(BrokenError, match="no device is held twice: device 0 of s/n0"):
        watch(record)


def test_what_holds_of_one_job_is_asked_of_those_that_are_named() -> None:
    machine, record = two_running()
    watch = law_watch(machine, "incremental")
    assert watch is not None
    machine.state.jobs["a"].restarts = 99
    watch(replace(record, events=record.events[2:], actions=()))
    with pytest.raises(BrokenError, match="more often than its policy allows"):
        watch(replace(record, events=record.events[1:2], actions=()))
