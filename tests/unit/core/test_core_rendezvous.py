"""Tasks of sites that choose their nodes themselves: they wait there, come up, and are to meet."""

from typing import Any

from msgspec.structs import replace
from tests.unit.core.bench import GRID, STOP, A, B, Bench, renewed, stops

from gridloom.core import budget
from gridloom.core.state import Mark
from gridloom.model.action import AnyAction, OpenRendezvous
from gridloom.model.event import (
    InventoryChanged,
    NodeMarked,
    TaskArrived,
    TaskReady,
    TaskRefused,
    TaskWaiting,
)
from gridloom.model.life import Arrival, JobState, Task, TaskState
from gridloom.model.quota import Queue
from gridloom.model.reason import Reason, Why
from gridloom.model.spec import Budget, Forecast, RetryPolicy

NODE = Arrival(node="n7", address="10.0.0.7", free_ports=((4000, 4009),))


def waits(bench: Bench, domain: str, sentence: str = "Priority", **more: Any) -> TaskWaiting:
    return TaskWaiting(**bench.about(domain), sentence=sentence, **more)


def comes(bench: Bench, domain: str, arrival: Arrival = NODE) -> TaskArrived:
    return TaskArrived(**bench.about(domain), arrival=arrival)


def opened(actions: list[AnyAction]) -> list[tuple[str, int]]:
    return [(one.site, one.life) for one in actions if isinstance(one, OpenRendezvous)]


def task(bench: Bench, domain: str) -> Task:
    return bench.job.attempts[-1].tasks[domain]


def test_a_task_may_wait_in_its_sites_queue_as_long_as_it_is_heard_of() -> None:
    bench = Bench()
    for _ in range(20):
        actions = bench.step(
            waits(bench, A, expected_s=900.0), waits(bench, B, "Resources"), after=5.0
        )
        assert renewed(actions) == [(A, bench.now + 6.0), (B, bench.now + 6.0)]
    assert bench.job.state is JobState.STARTING
    assert (task(bench, A).waits, task(bench, A).expected_s) == ("Priority", 900.0)
    assert (task(bench, B).waits, task(bench, B).expected_s) == ("Resources", 0.0)
    bench.step(after=10.0)
    assert bench.job.attempts[-1].outcome is not None
    assert bench.job.attempts[-1].outcome.code is Why.LEASE_LAPSED


def test_the_last_to_come_up_opens_the_rendezvous_once() -> None:
    bench = Bench()
    actions = bench.step(comes(bench, A), waits(bench, B))
    assert opened(actions) == []
    assert renewed(actions) == [(A, 106.0), (B, 106.0)]
    assert opened(bench.step(comes(bench, A), comes(bench, B), after=1.0)) == [("", 1)]
    assert (task(bench, B).waits, task(bench, B).arrival) == ("", NODE)
    assert bench.job.state is JobState.STARTING
    actions = bench.step(comes(bench, A), comes(bench, B), after=1.0)
    assert opened(actions) == [], "they say it again, and nothing else"
    assert renewed(actions) == [(A, 108.0), (B, 108.0)]
    bench.step(*bench.runs(A, B), after=1.0)
    assert bench.job.state.value == "running"
    assert bench.step(comes(bench, A)) == [], "it has long begun"
    assert task(bench, A).state is TaskState.RUNNING


def test_what_has_come_up_does_not_wait_whatever_its_site_says() -> None:
    bench = Bench()
    bench.step(comes(bench, A))
    assert renewed(bench.step(waits(bench, A), after=2.0)) == [(A, 108.0)]
    assert (task(bench, A).waits, task(bench, A).arrival) == ("", NODE)


def test_who_comes_up_elsewhere_must_be_told_of_again() -> None:
    bench = Bench()
    bench.step(comes(bench, A), comes(bench, B))
    moved = Arrival(node="n8", address="10.0.0.8")
    assert opened(bench.step(comes(bench, A, moved))) == [("", 1)]


def test_nobody_meets_to_stop() -> None:
    bench = Bench()
    bench.step(comes(bench, A))
    assert stops(bench.step(STOP)) == [(A, 20.0, Why.STOP_REQUESTED), (B, 20.0, Why.STOP_REQUESTED)]
    assert opened(bench.step(comes(bench, B))) == []
    assert task(bench, B).arrival == NODE


def test_a_task_deemed_dead_neither_waits_nor_comes_up() -> None:
    bench = Bench()
    actions = bench.step(waits(bench, A), comes(bench, B), after=10.0)
    assert renewed(actions) == []
    assert opened(actions) == []
    assert bench.job.state is JobState.QUEUED


def test_a_site_that_starts_again_meets_by_itself() -> None:
    bench = Bench()
    bench.step(comes(bench, A), comes(bench, B))
    bench.step(*bench.runs(A, B))
    bench.step(TaskReady(**bench.about(A), resumed_step=0, independent_sites=True))
    bench.step(*bench.ends(Why.KILLED, B))
    for _ in range(40):
        bench.step(*bench.runs(A), after=3.0)
        if task(bench, B).life == 2:
            break
    assert (task(bench, B).waits, task(bench, B).arrival) == ("", None)
    again = TaskArrived(**bench.about(B) | {"life": 2}, arrival=NODE)
    assert opened(bench.step(again)) == [("b", 2)]


# ----- what such a site says of its nodes


def says(domain: str, mark: Any, sentence: str = "fans", **more: Any) -> NodeMarked:
    return NodeMarked(domain=domain, mark=mark, sentence=sentence, by_site=True, **more)


def test_a_site_that_drains_a_node_moves_what_has_come_up_there() -> None:
    bench = Bench()
    bench.step(comes(bench, A), comes(bench, B, Arrival(node="n8", address="10.0.0.8")))
    bench.step(*bench.runs(A, B))
    assert stops(bench.step(says(A, "drain"))) == [], "it came up on n7 and not on n0"
    assert stops(bench.step(says("b/n7", "drain"))) == [], "n7 is of the other site"
    assert stops(bench.step(says("a/n7", "drain"))) == [
        (A, 20.0, Why.DRAINED),
        (B, 20.0, Why.DRAINED),
    ]


def test_what_waits_in_a_sites_queue_is_on_no_node_yet() -> None:
    bench = Bench()
    bench.step(waits(bench, A), waits(bench, B))
    assert stops(bench.step(says(A, "drain"))) == []
    assert stops(bench.step(NodeMarked(domain=A, mark="drain"))) != []


def test_a_person_drains_the_node_where_a_task_stands() -> None:
    bench = Bench()
    bench.step(comes(bench, A), comes(bench, B))
    assert stops(bench.step(NodeMarked(domain=A, mark="drain"))) == []
    assert len(stops(bench.step(NodeMarked(domain="a/n7", mark="drain")))) == 2


def test_a_site_takes_back_what_it_said_and_nothing_else() -> None:
    bench = Bench()
    marks = bench.machine.state.marks
    bench.step(says(A, "cordon"))
    assert marks[A].by_site
    bench.step(says(A, "drain", "more fans"))
    assert (marks[A].mark, marks[A].sentence) == ("drain", "more fans")
    bench.step(says(A, ""))
    assert marks == {}
    bench.step(NodeMarked(domain=A, mark="cordon", sentence="mine"))
    bench.step(says(A, "drain"), says(A, ""))
    assert (marks[A].sentence, marks[A].by_site) == ("mine", False)
    bench.step(NodeMarked(domain=A, mark=""), says(A, ""))
    assert marks == {}


def test_a_site_knows_better_than_the_core_guesses() -> None:
    bench = Bench()
    marks = bench.machine.state.marks
    marks[A] = Mark(mark="taint", sentence="3 jobs failed", since_s=1.0, by_core=True)
    bench.step(says(A, ""))
    assert marks[A].by_core
    bench.step(says(A, "drain"))
    assert (marks[A].mark, marks[A].by_site) == ("drain", True)


def test_what_a_site_refuses_or_loses_in_its_queue_says_nothing_of_a_node() -> None:
    bench = Bench(retry=RetryPolicy(max_restarts=5, backoff_s=1.0))
    bench.step(waits(bench, A, "is being handed to Slurm"))
    reason = Reason(code=Why.REFUSED, sentence="no such partition")
    bench.step(TaskRefused(**bench.about(A), reason=reason), *bench.ends(Why.STOP_REQUESTED, B))
    assert bench.machine.state.failures == {}


def test_a_lost_task_speaks_against_the_node_where_it_stood() -> None:
    bench = Bench()
    bench.step(comes(bench, A), comes(bench, B, Arrival(node="n8", address="10.0.0.8")))
    bench.step(*bench.runs(A, B))
    bench.step(*bench.ends(Why.SUPERVISOR_LOST, A))
    bench.step(*bench.ends(Why.PEER_LOST, B))
    assert bench.machine.state.failures == {"a/n7": ["x"]}


# --- the time in a queue


def queued(bench: Bench, for_s: float) -> None:
    """Let both tasks wait so long, and be heard of all the time."""
    bench.step(waits(bench, A), waits(bench, B))
    for _ in range(round(for_s / 5.0)):
        bench.step(waits(bench, A), waits(bench, B), after=5.0)


def test_nobody_pays_for_the_time_in_a_queue() -> None:
    bench = Bench(budget=Budget(run_s_max=30.0, cost_max=1000.0))
    queued(bench, 100.0)
    assert budget.used(bench.job, bench.now) == (0.0, 0.0)
    bench.step(comes(bench, A), waits(bench, B))  # from here on a's devices are held, and paid
    for _ in range(2):
        bench.step(comes(bench, A), waits(bench, B), after=5.0)
    assert bench.job.attempts[-1].begun_s == 200.0
    bench.step(*bench.runs(A, B))
    assert budget.used(bench.job, bench.now) == (10.0, 10.0)  # four devices, a quarter a second
    for _ in range(3):
        assert bench.job.state is JobState.RUNNING
        bench.step(*bench.runs(A, B), after=5.0)
    assert stops(bench.step(*bench.runs(A, B), after=5.0))[0][2] is Why.BUDGET_SPENT
    bench.step(*bench.ends(Why.STOP_REQUESTED, A, B))
    assert (bench.job.run_s, bench.job.device_s) == (30.0, 120.0)


def test_what_ends_in_a_queue_has_cost_nothing() -> None:
    bench = Bench()
    queued(bench, 50.0)
    bench.step(STOP)
    bench.step(*bench.ends(Why.STOP_REQUESTED, A, B), after=1.0)
    assert (bench.job.run_s, bench.job.cost, bench.job.device_s) == (0.0, 0.0, 0.0)
    assert bench.job.attempts[-1].ended_s == bench.now


def test_a_script_runs_without_a_word_of_where_it_came_up() -> None:
    bench = Bench(forecast=Forecast(duration_s=40.0))
    queued(bench, 50.0)
    bench.step(*bench.runs(A))
    assert bench.machine.index.ends == [(190.0, "x")], "it is predicted to end so long after that"
    assert bench.job.attempts[-1].held_s(bench.now + 7.0) == 7.0


def test_a_queue_of_ours_is_charged_for_what_was_held_only() -> None:
    ours = Queue(name="q", accelerator_hours=1.0)
    grid = InventoryChanged(inventory=replace(GRID.inventory, queues=(ours,)))
    bench = Bench(grid, queue="q", forecast=Forecast(duration_s=40.0))
    queued(bench, 50.0)
    allowance = bench.machine.state.allowance
    bench.step(comes(bench, A), comes(bench, B))
    assert allowance.used_s(ours, bench.now) == 0.0
    bench.step(*bench.runs(A, B), after=5.0)
    assert allowance.used_s(ours, bench.now) == 20.0
    bench.step(*bench.ends(Why.KILLED, A, B))
    bench.step(after=60.0)
    queued(bench, 50.0)
    bench.step(STOP)
    bench.step(*bench.ends(Why.STOP_REQUESTED, A, B))
    assert allowance.used_s(ours, bench.now) == 20.0


# --- leases


def test_a_site_may_have_a_longer_lease_than_others() -> None:
    sites = [replace(one, lease_s=30.0 if one.name == "b" else 0.0) for one in GRID.inventory.sites]
    bench = Bench(InventoryChanged(inventory=replace(GRID.inventory, sites=tuple(sites))))
    assert task(bench, A).lease_until_s == 106.0
    assert task(bench, B).lease_until_s == 130.0
    assert renewed(bench.step(*bench.runs(A, B), after=5.0)) == [(A, 111.0), (B, 135.0)]
    for _ in range(6):
        bench.step(*bench.runs(A), after=5.0)
    assert bench.job.attempts[-1].outcome is None, "b has been silent for no longer than its lease"
    bench.step(*bench.runs(A), after=4.0)
    (lost,) = [one.outcome for one in bench.job.attempts[-1].tasks.values() if one.outcome]
    assert lost.code is Why.LEASE_LAPSED
