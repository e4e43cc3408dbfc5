"""Which nodes a Slurm keeps from work."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar, cast

import pytest
from tests.fakes.clock import FakeClock

from gridloom.model.event import NodeMarked
from gridloom.model.inventory import Site, SlurmAccess
from gridloom.sites.slurm.engine import AwayError, SlurmEngine
from gridloom.sites.slurm.records import Node
from gridloom.sites.slurm.standing import NodeWatch, marks

P = ParamSpec("P")
T = TypeVar("T")

SITE = Site(name="hpc", kind="slurm", nodes=(), slurm=SlurmAccess(partition="gpu"))


def node(name: str, *states: str, reason: str = "", partitions: tuple[str, ...] = ("gpu",)) -> Node:
    return Node(name=name, states=states, reason=reason, partitions=partitions)


@pytest.mark.parametrize(
    ("states", "mark", "word"),
    [
        (("IDLE", "DRAIN"), "drain", "drained in Slurm: fans"),
        (("MIXED", "DRAIN"), "drain", "drained in Slurm: fans"),
        (("ALLOCATED", "FAIL"), "drain", "drained in Slurm: fans"),
        (("IDLE", "MAINTENANCE"), "cordon", "in maintenance in Slurm: fans"),
        (("DOWN",), "cordon", "down in Slurm: fans"),
        (("DOWN", "DRAIN"), "cordon", "down in Slurm: fans"),
        (("MIXED", "NOT_RESPONDING"), "cordon", "down in Slurm: fans"),
    ],
)
def test_a_node_kept_from_work_is_marked(states: tuple[str, ...], mark: str, word: str) -> None:
    (found,) = marks("hpc", "gpu", [node("n1", *states, reason="fans")])
    assert (found.domain, found.mark, found.sentence) == ("hpc/n1", mark, word)
    assert found.by_site


@pytest.mark.parametrize("states", [("IDLE",), ("MIXED", "PLANNED"), ("RESERVED",), ("FUTURE",)])
def test_a_node_that_works_or_is_not_there_is_not(states: tuple[str, ...]) -> None:
    assert marks("hpc", "gpu", [node("n1", *states)]) == []


def test_only_nodes_of_the_partition_count_if_one_is_named() -> None:
    nodes = [node("n1", "DOWN", partitions=("cpu",)), node("n2", "DOWN", partitions=("gpu", "all"))]
    assert [one.domain for one in marks("hpc", "gpu", nodes)] == ["hpc/n2"]
    assert [one.domain for one in marks("hpc", "", nodes)] == ["hpc/n1", "hpc/n2"]
    assert marks("hpc", "", nodes)[0].sentence == "down in Slurm"


class LaterExecutor(Executor):
    """Makes its calls when it is told to."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        def call() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except AwayError as error:
                future.set_exception(error)

        self.calls.append(call)
        return future

    def answer(self) -> None:
        for call in self.calls:
            call()
        self.calls.clear()


class Engine:
    """Plays as much of an engine as is asked here."""

    def __init__(self) -> None:
        self.told: list[Node] | None = []

    def nodes(self) -> tuple[Node, ...]:
        if self.told is None:
            raise AwayError("Connection refused")
        return tuple(self.told)


def test_it_looks_now_and_then_and_what_was_said_last_stands() -> None:
    clock, engine, later = FakeClock(), Engine(), LaterExecutor()
    watch = NodeWatch(clock, lambda _: cast("SlurmEngine", engine), later)

    def said() -> list[str] | None:
        found = watch.standing(SITE)
        return None if found is None else [one.domain for one in found]

    assert said() is None, "it never waits"
    assert said() is None
    assert len(later.calls) == 1, "one look at a time"
    engine.told = [node("n1", "DOWN")]
    later.answer()
    assert said() == ["hpc/n1"]
    assert later.calls == []
    clock.advance(11.0)
    engine.told = None
    assert said() == ["hpc/n1"]
    later.answer()
    assert said() == ["hpc/n1"], "an engine that is away says nothing new"
    clock.advance(11.0)
    engine.told = []
    said()
    later.answer()
    assert said() == []


def test_a_mark_is_the_fact_that_the_core_takes() -> None:
    assert marks("hpc", "", [node("n1", "DOWN")]) == [
        NodeMarked(domain="hpc/n1", mark="cordon", sentence="down in Slurm", by_site=True)
    ]
