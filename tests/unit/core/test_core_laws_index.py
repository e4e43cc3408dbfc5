"""What is derived is compared with the state: each number that is wrong is found."""

import random
from collections.abc import Callable

import numpy as np
import pytest
from tests.unit.core.grids import grid, shape, site, spec

from gridloom.base.errors import BrokenError
from gridloom.core.index import Index
from gridloom.core.laws_index import _kept, check_index
from gridloom.core.machine import Machine
from gridloom.core.state import Mark
from gridloom.model.event import InventoryChanged, JobSubmitted

Fault = Callable[[Index], None]


def machine() -> Machine:
    """Return one in which ``a`` runs with a spare node, ``b`` has a reservation and ``c`` waits."""
    made = Machine()
    asked = {"a": spec(shape(4), spares=1), "b": spec(shape(8)), "c": spec(shape(8))}
    events = [JobSubmitted(job_id=name, spec=asked[name], submitted_s=0.0) for name in "abc"]
    inventory = grid(site("s", "4:2", "2", "2"))
    made.step([InventoryChanged(inventory=inventory), *events], 1.0, random.Random(0))
    jobs = made.state.jobs
    made.index.reserve(jobs["b"], jobs["a"].attempts[0].placement, 100.0)
    return made


def test_a_sound_index_passes() -> None:
    made = machine()
    check_index(made.index)
    check_index(Index(made.state))
    check_index(Machine().index)
    made.state.marks["s/n1"] = Mark(mark="cordon", sentence="", since_s=0.0)
    made.index.reopen()
    check_index(made.index)


def free(index: Index) -> None:
    index.capacity.free[0] += 1


def kept_for_nobody(index: Index) -> None:
    index.capacity.keep("z", np.array([0]), np.array([1]))


def kept_elsewhere(index: Index) -> None:
    index.capacity.keep("b", np.array([0]), np.array([1]))


def available(index: Index) -> None:
    index.capacity.available[-1] += 1


def total(index: Index) -> None:
    index.capacity.total += 1


def marked(index: Index) -> None:
    index.state.marks["s"] = Mark(mark="cordon", sentence="", since_s=0.0)


def use(index: Index) -> None:
    index.ledger.take("", "cpu", 1)


def unknown_holder(index: Index) -> None:
    index.holdings["z"] = index.holdings["a"]


def priorities(index: Index) -> None:
    index.running_at[7] = 1


def waits_twice(index: Index) -> None:
    bucket = index.bucket(index.state.jobs["c"])
    assert bucket is not None
    index.buckets[("again",)] = bucket


def does_not_wait(index: Index) -> None:
    job = index.state.jobs["c"]
    bucket = index.bucket(job)
    assert bucket is not None
    bucket.drop(job)


def not_in_order(index: Index) -> None:
    bucket = index.bucket(index.state.jobs["c"])
    assert bucket is not None
    bucket._keys.reverse()


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (free, "what is free is what nobody holds: 1 free of s/n0, and not 0"),
        (kept_for_nobody, r"what is kept is what is reserved and spare: for \['z'\]"),
        (kept_elsewhere, "what is kept is what is reserved and spare: .* for b, and not"),
        (available, "what is available is free, not kept and well: 3 of s/n2, and not 2"),
        (total, "what is available is free, not kept and well: 3 in all"),
        (marked, "what is available is free, not kept and well: 2 of s/n2, and not 0"),
        (use, "queues are charged for .*: 9 cpu of queue ``"),
        (unknown_holder, r"whoever holds devices is known to: \['a', 'z'\] hold devices"),
        (priorities, "whoever holds devices is known to: .* run at these priorities"),
        (waits_twice, "waits in one bucket of the own queue: .* waits twice"),
        (does_not_wait, r"waits in one bucket of the own queue: \[\('c', ''\)\]"),
        (not_in_order, "those of queue `` are not in order"),
    ],
)
def test_each_fault_is_named(fault: Fault, law: str) -> None:
    index = machine().index
    fault(index)
    with pytest.raises(BrokenError, match=law):
        check_index(index)


def test_who_keeps_something_is_asked_first() -> None:
    index = machine().index
    kept_for_nobody(index)
    assert list(_kept(index)) == ["for ['z']"]
