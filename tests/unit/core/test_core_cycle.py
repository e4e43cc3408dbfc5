"""Who starts, who waits and why, and whose devices are kept."""

import random

from msgspec.structs import replace
from tests.unit.core.grids import must, shape, site
from tests.unit.core.yard import Yard

from gridloom.base.codec import decode, encode
from gridloom.core import laws
from gridloom.core.machine import Machine
from gridloom.core.state import State
from gridloom.model.action import AnyAction, StartAttempt
from gridloom.model.event import (
    AnyEvent,
    InventoryChanged,
    JobSubmitted,
    ResumeRequested,
    StopRequested,
    TaskEnded,
    TaskRunning,
)
from gridloom.model.inventory import Inventory, Node, Site
from gridloom.model.life import JobState, Outcome
from gridloom.model.parallel import ParallelPlan
from gridloom.model.policy import Policy, Preemption
from gridloom.model.quota import Queue
from gridloom.model.reason import Reason, Why
from gridloom.model.spec import JobSpec, Option, Program, RetryPolicy


def grid(**sites: str) -> InventoryChanged:
    """Return sites of nodes written ``kind:count``."""
    return InventoryChanged(
        inventory=Inventory(
            sites=tuple(
                Site(name=name, kind="local", nodes=tuple(map(node, enumerate(text.split()))))
                for name, text in sites.items()
            ),
            policy=Policy(blocked="hold", patience_s=0.0, preemption=Preemption(priority=False)),
        )
    )


def node(numbered: tuple[int, str]) -> Node:
    kind, count = numbered[1].split(":")
    return Node(name=f"n{numbered[0]}", address="", accelerator=kind, count=int(count))


def asks(
    job_id: str,
    ranks: int,
    kinds: str = "cpu",
    at: tuple[int, int] = (1, 1),
    only: str = "",
    priority: int = 0,
) -> JobSubmitted:
    options = tuple(
        Option(accelerator=kind, plan=ParallelPlan(data=ranks)) for kind in kinds.split()
    )
    spec = JobSpec(
        name="j",
        program=Program(argv=(), workdir="/"),
        options=options,
        sites=tuple(only.split()),
        min_sites=at[0],
        max_sites=at[1],
        priority=priority,
    )
    return JobSubmitted(job_id=job_id, spec=spec, submitted_s=1.0)


class Bench:
    """A machine at time 0 whose laws are checked after every step."""

    def __init__(self, *events: AnyEvent) -> None:
        self.machine = Machine()
        self.rng = random.Random(0)
        self.actions: list[AnyAction] = []
        self.step(*events)

    def step(self, *events: AnyEvent, now: float = 0.0) -> list[str]:
        """Return the jobs that were started."""
        self.actions = self.machine.step(events, now, self.rng)
        laws.check(self.machine.state)
        return [a.job_id for a in self.actions if isinstance(a, StartAttempt)]

    def reason(self, job_id: str) -> Reason:
        reason = self.machine.reason(job_id)
        assert reason is not None
        return reason

    def state(self, job_id: str) -> JobState:
        return self.machine.state.jobs[job_id].state

    def ended(self, job_id: str, code: Why = Why.COMPLETED) -> list[TaskEnded]:
        attempt = self.machine.state.jobs[job_id].attempts[-1]
        return [
            TaskEnded(
                job_id=job_id,
                attempt=attempt.number,
                epoch=attempt.epoch,
                domain=task.domain,
                outcome=Outcome(code=code, sentence="ended"),
            )
            for task in attempt.placement.tasks
        ]


def test_a_job_that_fits_starts_at_once_with_all_that_its_site_must_know() -> None:
    bench = Bench(grid(a="cpu:2", b="cpu:2"))
    assert bench.step(asks("x", 4, at=(2, 2)), now=5.0) == ["x"]
    (start,) = bench.actions
    assert isinstance(start, StartAttempt)
    assert (start.attempt, start.epoch, start.restart_count) == (1, 1, 0)
    assert start.lease_until_s == 11.0
    assert [task.domain for task in start.placement.tasks] == ["a/n0", "b/n0"]
    job = bench.machine.state.jobs["x"]
    assert job.state is JobState.STARTING
    assert job.reason is None
    attempt = job.attempts[0]
    assert attempt.started_s == 5.0
    assert not attempt.resumed
    assert list(attempt.tasks) == ["a/n0", "b/n0"]
    assert {task.lease_until_s for task in attempt.tasks.values()} == {11.0}


def test_priority_goes_first_then_submission_then_the_id() -> None:
    bench = Bench()
    bench.step(asks("c", 1), asks("b", 1), asks("d", 1, priority=2), asks("a", 1))
    assert bench.step(grid(a="cpu:3")) == ["d", "a", "b"]
    assert bench.state("c") is JobState.QUEUED


def test_before_the_first_report_of_the_grid_a_job_waits() -> None:
    bench = Bench(asks("x", 1))
    assert bench.reason("x").sentence == "waits until the grid has reported what it has"
    assert bench.step(grid(a="cpu:1")) == ["x"]


def test_the_first_report_decides_over_the_jobs_that_waited_for_it() -> None:
    bench = Bench(asks("x", 2))
    bench.step(grid(a="cpu:1"))
    assert bench.state("x") is JobState.FAILED
    assert bench.reason("x").code is Why.NEVER_FITS


def test_a_grid_that_shrinks_fails_nobody() -> None:
    bench = Bench(grid(a="cpu:2"), asks("x", 2), asks("y", 2), asks("z", 1))
    bench.step(grid(a="cpu:1"), *bench.ended("x"))
    assert bench.state("y") is JobState.QUEUED
    assert bench.reason("y").code is Why.NEVER_FITS
    assert bench.state("z") is JobState.STARTING  # what cannot run keeps nothing from others
    assert bench.step(grid(a="cpu:3")) == ["y"]


def test_the_first_option_that_can_be_placed_is_taken() -> None:
    bench = Bench(grid(a="h100:2 cpu:2"))
    bench.step(asks("x", 2, "tpu h100 cpu"), asks("y", 2, "h100 cpu"), asks("z", 2, "tpu cpu"))
    kinds = [a.placement.option.accelerator for a in bench.actions if isinstance(a, StartAttempt)]
    assert kinds == ["h100", "cpu"]
    assert bench.reason("z").sentence == (
        "waits for 2 cpu at one site: a has 0 of 2 free (job y runs there)"
    )


def test_the_reason_says_what_each_site_has() -> None:
    bench = Bench(grid(north="cpu:2", south="cpu:2", other="h100:8"), asks("x", 2))
    bench.step(asks("y", 4, at=(2, 2)))
    reason = bench.reason("y")
    assert reason.code is Why.IN_USE
    assert reason.sentence == (
        "waits for 4 cpu at 2 sites: north has 0 of 2 free (job x runs there),"
        " south has 2 of 2 free"
    )
    assert [(r.domain, r.code, r.found, r.wanted) for r in reason.refusals] == [
        ("north", Why.IN_USE, 0, 4),
        ("north/n0", Why.IN_USE, 0, 1),
        ("south", Why.TOO_FEW_FREE, 2, 4),
        ("other", Why.WRONG_ACCELERATOR, 0, 4),
        ("other/n0", Why.WRONG_ACCELERATOR, 0, 0),
    ]


def test_the_reason_speaks_of_the_smallest_shape_that_would_do() -> None:
    bench = Bench(grid(a="cpu:4"), asks("x", 3))
    submitted = asks("y", 4)
    sizes = [Option(accelerator="cpu", plan=ParallelPlan(data=data)) for data in (9, 4, 2)]
    spec = replace(submitted.spec, options=tuple(sizes))
    bench.step(replace(submitted, spec=spec))
    assert bench.reason("y").sentence == (
        "waits for 2 cpu at one site: a has 1 of 4 free (job x runs there)"
    )


def test_a_long_sentence_counts_the_rest() -> None:
    bench = Bench(grid(**{f"s{i}": "cpu:1" for i in range(6)}))
    bench.step(*(asks(f"x{i}", 1) for i in range(6)), asks("y", 1))
    assert bench.reason("y").sentence.endswith(
        "s3 has 0 of 1 free (job x3 runs there), and 2 more sites no more"
    )


def test_a_waiting_job_keeps_what_it_could_use_and_only_that() -> None:
    bench = Bench(grid(big="cpu:4 h100:1", small="cpu:1", far="cpu:4"), asks("x", 1, only="big"))
    started = bench.step(
        asks("wide", 4, only="big small", priority=1),
        asks("cpu", 1, only="big"),
        asks("gpu", 1, "h100"),  # another kind
        asks("tiny", 1, only="small"),  # a site that the wide one could never use
        asks("elsewhere", 1, only="far"),  # a site that it may not use
    )
    assert started == ["elsewhere", "gpu", "tiny"]
    assert bench.reason("wide").code is Why.TOO_FEW_FREE
    assert bench.reason("cpu").code is Why.HELD_FOR_EARLIER_JOB
    assert bench.reason("cpu").sentence == (
        "waits for 1 cpu at one site: big has 3 of 4 free (kept for wide, which comes first)"
    )
    assert bench.step(*bench.ended("x")) == ["wide"]


def test_jobs_that_ask_alike_are_told_alike_until_more_is_kept() -> None:
    bench = Bench(grid(a="cpu:1", b="cpu:1"), asks("x", 1, only="a"), asks("y", 1, only="b"))
    bench.step(*(asks(f"a{i}", 1) for i in range(3)), asks("b", 2, at=(2, 2)), asks("c", 1))
    assert bench.reason("a0").code is Why.IN_USE
    assert bench.reason("a1").code is Why.HELD_FOR_EARLIER_JOB
    assert bench.reason("a1") == bench.reason("a2") == bench.reason("c")


def test_a_job_that_backs_off_keeps_nothing_but_its_place() -> None:
    bench = Bench(grid(a="cpu:2"), asks("x", 2))
    bench.step(*bench.ended("x", Why.KILLED))
    assert bench.reason("x").code is Why.BACKING_OFF
    assert bench.step(asks("y", 1)) == ["y"]
    assert bench.step(asks("z", 1), now=2.0) == []  # by now x waits again, before z
    assert bench.reason("z").code is Why.HELD_FOR_EARLIER_JOB
    assert bench.reason("x").code is Why.TOO_FEW_FREE


def test_devices_on_a_node_that_vanished_are_not_given_out_when_it_is_back() -> None:
    bench = Bench(grid(a="cpu:2", b="cpu:1"), asks("x", 2, only="a"))
    bench.step(grid(b="cpu:1"))
    assert bench.state("x") is JobState.STARTING
    assert bench.step(grid(a="cpu:2", b="cpu:1"), asks("y", 1, only="a")) == []
    assert bench.step(*bench.ended("x")) == ["y"]


def test_a_step_without_news_changes_nothing() -> None:
    bench = Bench(grid(a="cpu:2", b="cpu:1"), asks("x", 2), asks("y", 2), asks("z", 1))
    before = encode(bench.machine.state)
    for machine in (bench.machine, Machine(decode(before, State))):
        assert machine.step([], 0.0, bench.rng) == []
        assert encode(machine.state) == before


def test_reasons_tell_of_the_grid_after_the_last_start() -> None:
    """A job behind may start where the one before it could not, and then counts in its reason."""
    bench = Bench(grid(big="cpu:4", small="cpu:2"), asks("x", 3))
    bench.step(asks("y", 3, priority=1), asks("z", 1, only="small"))
    assert bench.reason("y").sentence == (
        "waits for 3 cpu at one site: big has 1 of 4 free (job x runs there),"
        " small has 1 of 2 free (job z runs there)"
    )


def test_a_heartbeat_leaves_reasons_as_they_are() -> None:
    bench = Bench(grid(a="cpu:1"), asks("x", 1), asks("y", 1))
    reason = bench.reason("y")
    beat = TaskRunning(job_id="x", attempt=1, epoch=1, domain="a/n0")
    bench.step(beat, now=1.0)
    assert bench.reason("y") == reason


def test_stopping_and_resuming_in_one_step_leaves_no_old_reason() -> None:
    bench = Bench(grid(a="cpu:1"), asks("x", 1), asks("y", 1))
    before = bench.reason("y")
    bench.step(StopRequested(job_id="y"), ResumeRequested(job_id="y"))
    assert bench.reason("y") == before


# --- spare nodes


def test_an_idle_node_is_kept_beside_a_job_the_nearest_first() -> None:
    yard = Yard(site("a", "r0/2", "r1/2", "r1/2", "r0/2", levels="rack"), site("b", "2"))
    assert yard.asks("x", 2, spares=1, data_sites=("a",)) == ["x"]
    assert yard.where("x") == "a/n0:2"
    assert yard.job("x").spares == ("a/n3",)
    assert yard.asks("y", 2, nodes=("a/n3",)) == []  # nobody else may have it
    assert yard.asks("z", 4, sites=("a",)) == ["z"]
    assert yard.where("z") == "a/n1:2 a/n2:2"
    assert yard.ends("x") == ["y"]
    assert yard.job("x").spares == ()


def test_spares_may_be_at_another_site_if_the_job_may_run_there() -> None:
    yard = Yard(site("a", "2"), site("b", "2"), site("c", "2"))
    yard.asks("x", 2, spares=3, sites=("a", "b"))
    assert yard.job("x").spares == ("b/n0",)


def test_no_more_spares_are_kept_than_are_idle_and_none_that_is_used_in_part() -> None:
    yard = Yard(site("a", "2", "2", "2"))
    yard.asks("other", 1, nodes=("a/n2",))
    yard.asks("x", 2, spares=5)
    assert yard.job("x").spares == ("a/n1",)
    assert yard.asks("small", 1) == ["small"]  # the other half of n2
    assert yard.where("small") == "a/n2:1"


def test_after_a_loss_a_job_goes_on_on_its_spares_whoever_else_waits() -> None:
    yard = Yard(site("a", "2", "2"), preemption=Preemption(priority=False))
    yard.asks("x", 2, spares=1)
    assert yard.asks("y", 2, priority=9) == []
    yard.marks("a/n0", "lost")
    assert yard.step(at=5.0) == ["x"]
    assert yard.where("x") == "a/n1:2"


def test_spares_are_of_no_use_to_a_job_that_waits_for_its_own_places_or_needs_more() -> None:
    yard = Yard(site("a", "2", "2"))
    yard.asks("x", 2, spares=1, on_loss="wait")
    yard.marks("a/n0", "lost")
    assert yard.step(at=5.0) == []
    more = Yard(site("a", "2", "2", "2"))
    more.asks("x", 4, spares=1)
    more.marks("a/n0", "lost")
    more.marks("a/n1", "cordon")
    assert more.step(at=5.0) == []


def test_spares_do_not_stand_in_for_quota() -> None:
    yard = Yard(site("a", "2", "2"), queues=[Queue(name="q", nominal={"cpu": 2})])
    yard.asks("x", 2, spares=1, queue="q")
    yard.marks("a/n0", "lost")
    less = replace(yard.grid, queues=(Queue(name="q", nominal={"cpu": 1}),))
    assert yard.step(InventoryChanged(inventory=less), at=5.0) == []


def test_spares_are_not_the_jobs_devices() -> None:
    yard = Yard(site("a", "2", "2"), queues=[Queue(name="q", nominal={"cpu": 2})])
    assert yard.asks("x", 2, spares=1, queue="q") == ["x"]
    assert yard.machine.index.ledger.use("q", "cpu") == 2


def test_after_a_loss_the_job_goes_on_at_once_on_its_spare() -> None:
    yard = Yard(site("a", "2", "2"), preemption=Preemption(priority=False))
    yard.asks("x", 2, spares=1)
    assert (yard.where("x"), yard.job("x").spares) == ("a/n0:2", ("a/n1",))
    yard.asks("y", 2, priority=9, nodes=("a/n0", "a/n1"))
    yard.marks("a/n0", "lost")
    assert yard.step(at=2.0) == ["x"]
    assert yard.where("x") == "a/n1:2"
    assert yard.job("x").spares == ()  # n0 is lost
    assert yard.marks("a/n0", "") == ["y"]


def test_who_may_have_others_evicted_counts_its_own_spares() -> None:
    """Its hold is over, but the spare is still its own, and the rest comes from a victim."""
    yard = Yard(site("a", "2", "2", "2"), slot_hold_s=10.0)
    yard.asks("x", 4, spares=1, priority=1, retry=RetryPolicy(backoff_s=60.0))
    assert yard.job("x").spares == ("a/n2",)
    yard.marks("a/n0", "lost")
    yard.ends("x", code=Why.PEER_LOST)
    yard.step(at=20.0)
    assert yard.asks("low", 2) == ["low"]
    assert yard.where("low") == "a/n1:2"
    yard.step(at=70.0)
    assert yard.told() == {"low": Why.PREEMPTED}
    assert yard.kept("x") == "a/n1:2 a/n2:2"
    assert yard.goes("low") == ["x"]


# --- reserved places


def test_reserved_places_wait_for_quota_that_was_cut_meanwhile() -> None:
    queues = (Queue(name="q", nominal={"cpu": 4}), Queue(name="free"))
    yard = Yard(site("a", "4"), queues=queues)
    yard.asks("low", 4, queue="free")
    yard.asks("high", 4, queue="q", priority=1)
    assert yard.kept("high") == "a/n0:4"
    less = replace(yard.grid, queues=(replace(queues[0], nominal={"cpu": 2}), queues[1]))
    yard.step(InventoryChanged(inventory=less))
    assert yard.goes("low", at=1.0) == []
    assert yard.kept("high") == "a/n0:4"
    assert yard.step(InventoryChanged(inventory=yard.grid)) == ["high"]


def test_reserved_places_that_are_no_more_what_the_job_needs_are_given_up() -> None:
    """While the victims go, one of the nodes is moved to another rack."""
    before = site("a", "r0/2", "r0/2", "r1/2", "r1/2", levels="rack")
    after = site("a", "r0/2", "r1/2", "r1/2", "r1/2", levels="rack")
    yard = Yard(before)
    yard.asks("keeps", 4, nodes=("a/n2", "a/n3"), preemptible=False)
    yard.asks("low", 4)
    yard.asks("high", options=(shape(4, groups=(must(4, "rack"),)),), priority=1)
    assert yard.kept("high") == "a/n0:2 a/n1:2"
    yard.step(InventoryChanged(inventory=replace(yard.grid, sites=(after,))))
    assert yard.goes("low", at=1.0) == ["low"]  # on the places that it had
    assert yard.kept("high") == "nothing"
    assert yard.ends("keeps", at=2.0) == ["high"]
    assert yard.where("high") == "a/n2:2 a/n3:2"


def test_a_job_that_backs_off_is_not_started_on_its_kept_places_before_its_time() -> None:
    yard = Yard(site("a", "2"), slot_hold_s=100.0)
    yard.asks("x", 2, retry=RetryPolicy(backoff_s=30.0))
    yard.ends("x", code=Why.LEASE_LAPSED)
    assert yard.kept("x") == "a/n0:2"
    assert yard.step(at=20.0) == []
    assert yard.asks("y", 2) == []
    assert yard.step(at=33.0) == ["x"]


def test_under_promises_room_is_made_for_the_first_that_is_blocked() -> None:
    yard = Yard(site("a", "4"), blocked="conservative")
    yard.asks("low", 4, 100.0)
    assert yard.asks("high", 4, 10.0, priority=1) == []
    assert yard.told() == {"low": Why.PREEMPTED}
    assert yard.goes("low", at=5.0) == ["high"]
    assert yard.step(*()) == []
    assert yard.ends("high", at=15.0) == ["low"]


def test_an_elastic_job_shrinks_for_another_under_promises_too() -> None:
    yard = Yard(
        site("a", "4"),
        blocked="conservative",
        elastic=True,
        resize_s_min=0.0,
        preemption=Preemption(priority=False),
    )
    yard.asks("e", 0, 1e4, options=(shape(4), shape(2)), elastic=True)
    yard.runs("e")
    yard.asks("waits", 2, 10.0)
    assert yard.told() == {"e": Why.RESIZED}
    assert sorted(yard.goes("e", at=1.0)) == ["e", "waits"]


def test_what_is_kept_for_a_job_is_given_up_for_a_higher_priority_and_no_more_than_it_needs() -> (
    None
):
    yard = Yard(site("a", "2", "2"), site("b", "2", "2"))
    yard.asks("x", 4, sites=("a",))
    yard.asks("y", 4, sites=("b",), priority=1)
    yard.marks("a/n0", "lost")
    yard.marks("b/n0", "lost")
    yard.goes("x", "y")
    assert yard.kept("x") == "a/n0:2 a/n1:2"
    assert yard.asks("same", 2) == []
    assert yard.asks("higher", 2, priority=2) == ["higher"]
    assert (yard.kept("x"), yard.kept("y")) == ("nothing", "b/n0:2 b/n1:2")
    assert yard.where("higher") == "a/n1:2"


def test_what_is_kept_is_not_given_up_in_vain() -> None:
    yard = Yard(site("a", "2", "2"))
    yard.asks("x", 4)
    yard.marks("a/n0", "lost")
    yard.goes("x")
    assert yard.asks("higher", 4, priority=2) == []
    assert yard.kept("x") == "a/n0:2 a/n1:2"


def test_as_many_give_up_what_is_kept_for_them_as_are_needed() -> None:
    yard = Yard(site("a", "2", "2"), site("b", "2", "2"))
    yard.asks("x", 4, sites=("a",))
    yard.asks("y", 4, sites=("b",))
    yard.marks("a/n0", "lost")
    yard.marks("b/n0", "lost")
    yard.goes("x", "y")
    assert yard.asks("higher", 4, priority=2, min_sites=2, max_sites=2) == ["higher"]
    assert (yard.kept("x"), yard.kept("y")) == ("nothing", "nothing")


def test_a_gang_keeps_no_places_that_somebody_else_is_to_have() -> None:
    yard = Yard(site("a", "2", "2", "2"))
    yard.asks("gang", 4, grace_s=30.0, nodes=("a/n0", "a/n1"))
    yard.asks("low", 2, nodes=("a/n2",))
    yard.runs("gang", "low")
    yard.marks("a/n0", "drain")
    assert yard.told() == {"gang": Why.DRAINED}
    yard.asks("high", 2, priority=1)
    assert yard.told() == {}  # what the gang leaves will do
    assert yard.kept("high") == "a/n1:2"
    assert yard.goes("gang") == ["high"]
    assert yard.kept("gang") == "nothing"
