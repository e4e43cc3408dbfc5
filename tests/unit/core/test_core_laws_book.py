"""The book of who holds what: devices, islands, host resources, queues."""

from tests.unit.core.grids import grid, node, shape, site, spec

from gridloom.core.laws_book import Book
from gridloom.model.life import Attempt, Job, JobState, Placement, TaskPlacement


def holder(name: str, devices: tuple[int, ...]) -> Job:
    option = shape(len(devices), rank_resources=(("cpus", 1),))
    task = TaskPlacement(site="s", node="n0", address="", devices=devices)
    placement = Placement(option=option, tasks=(task,))
    attempt = Attempt(number=1, epoch=1, placement=placement, tasks={}, started_s=0.0)
    return Job(
        job_id=name,
        spec=spec(option, queue="x"),
        submitted_s=0.0,
        state=JobState.RUNNING,
        attempts=[attempt],
    )


def test_what_is_held_and_free() -> None:
    book = Book()
    book.regrid(grid(site("s", node("5:2", resources={"cpus": 9}))))
    assert list(book.take(holder("a", (0, 1, 2)))) == []
    assert list(book.take(holder("b", (4,)))) == []
    assert [book.free(("s/n0", island)) for island in range(3)] == [0, 1, 0]
    assert book.free(("s/n0", 2), frozenset("b")) == 1
    assert book.host("s/n0", "cpus") == 5
    assert book.host("s/n0", "cpus", frozenset("a")) == 8
    assert book.host("z/n0", "cpus") == 0
    assert book.host("s/n0", "gib") == 0
    assert book.on("s/n0") == ["a", "b"] == book.on("s")
    assert book.use([book.held["b"]]) == ((("x", "cpu"), 3),)
    book.give_back("a")
    assert book.use([book.held["b"]]) == ()
    book.regrid(grid(site("s", "2")))
    assert book.held["b"].units == {}
    assert book.ledger.use("x", "cpu") == 1
