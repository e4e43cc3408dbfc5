"""Every law of a step catches the fault that it is there for, and lets sound steps pass."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.core.grids import grid, shape, site, spec

from gridloom.base.errors import BrokenError
from gridloom.core.laws_evict import (
    Deal,
    _given_up,
    _kept,
    _lacks,
    _lacks_quota,
    _value,
    barred,
    deals_of,
)
from gridloom.core.laws_place import grid_of
from gridloom.core.laws_step import Laws, StepLaws
from gridloom.core.machine import Machine
from gridloom.core.state import Mark
from gridloom.core.turn import LeaseTerms
from gridloom.model.action import AnyAction, RenewLease, StartAttempt, StopTask
from gridloom.model.booking import Booking
from gridloom.model.event import (
    AnyEvent,
    CancelRequested,
    EvictRequested,
    InventoryChanged,
    JobSubmitted,
    NodeMarked,
    TaskEnded,
    TaskRunning,
)
from gridloom.model.inventory import Inventory
from gridloom.model.life import Job, Outcome, Placement
from gridloom.model.policy import Policy, Preemption
from gridloom.model.quota import Cohort, Queue
from gridloom.model.reason import Reason, Why
from gridloom.model.spec import Forecast, JobSpec, RetryPolicy

TERMS = LeaseTerms(lease_s=1e6, kill_margin_s=4.0)
ONE = grid(site("s", "4"))
TWO = grid(site("s", "4", "4"))


class Scene:
    """A machine and the laws of its steps."""

    def __init__(self, inventory: Inventory = ONE, terms: LeaseTerms = TERMS) -> None:
        self.machine = Machine(terms=terms)
        self.laws = StepLaws(self.machine, reason_every=1)
        self.now = 0.0
        self.does(InventoryChanged(inventory=inventory))

    @property
    def jobs(self) -> dict[str, Job]:
        return self.machine.state.jobs

    def step(self, *events: AnyEvent, later_s: float = 1.0) -> list[AnyAction]:
        """Let the machine take a step that the laws do not see yet."""
        self.now += later_s
        return self.machine.step(events, self.now, random.Random(0))

    def see(self, events: Sequence[AnyEvent], actions: Sequence[AnyAction]) -> None:
        self.laws.observe(self.machine, events, actions, self.now)

    def does(self, *events: AnyEvent, later_s: float = 1.0) -> list[AnyAction]:
        """Take a step that is lawful."""
        actions = self.step(*events, later_s=later_s)
        self.see(events, actions)
        return actions

    def broken(self, law: str, events: Sequence[AnyEvent], actions: Sequence[AnyAction]) -> None:
        with pytest.raises(BrokenError, match=law):
            self.see(events, actions)

    def submit(self, name: str, devices: int = 4, **more: Any) -> JobSubmitted:
        return submitted(name, spec(shape(devices), **more), self.now)

    def starts(self, name: str, devices: int = 4, **more: Any) -> tuple[AnyEvent, StartAttempt]:
        """Let a job start; the laws do not see it yet."""
        event = self.submit(name, devices, **more)
        (start,) = self.step(event)
        assert isinstance(start, StartAttempt)
        return event, start

    def put(self, start: StartAttempt, placement: Placement) -> StartAttempt:
        """Let a job be somewhere else than it was told to."""
        self.jobs[start.job_id].attempts[-1].placement = placement
        attempt = self.jobs[start.job_id].attempts[-1]
        attempt.tasks = {
            task.domain: replace(next(iter(attempt.tasks.values())), placement=task)
            for task in placement.tasks
        }
        return replace(start, placement=placement)

    def ended(self, name: str, code: Why = Why.COMPLETED) -> list[TaskEnded]:
        attempt = self.jobs[name].attempts[-1]
        outcome = Outcome(code=code, sentence="", ended_s=self.now)
        return [
            TaskEnded(
                job_id=name,
                attempt=attempt.number,
                epoch=attempt.epoch,
                domain=domain,
                outcome=outcome,
            )
            for domain in attempt.tasks
        ]

    def told(self, name: str, reason: Reason) -> StopTask:
        attempt = self.jobs[name].attempts[-1]
        return StopTask(
            job_id=name,
            attempt=attempt.number,
            epoch=attempt.epoch,
            domain=next(iter(attempt.tasks)),
            grace_s=1.0,
            reason=reason,
        )


def submitted(name: str, asked: JobSpec, at_s: float) -> JobSubmitted:
    return JobSubmitted(job_id=name, spec=asked, submitted_s=at_s)


def preempted(sentence: str, code: Why = Why.PREEMPTED) -> Reason:
    return Reason(code=code, sentence=sentence)


# --- starts


def test_a_sound_life_passes() -> None:
    scene = Scene(TWO)
    scene.does(scene.submit("a"), scene.submit("b"), scene.submit("c"))
    scene.does(*scene.ended("a"))
    scene.does(CancelRequested(job_id="b"))
    scene.does(NodeMarked(domain="s", mark="lost"))
    scene.does(NodeMarked(domain="s", mark=""))
    assert set(scene.laws.book.held) == set()
    scene.does(later_s=60.0)
    assert set(scene.laws.book.held) == {"c"}
    again = StepLaws(scene.machine)
    again.holds_as(scene.machine.state)


Change = Callable[[Scene, StartAttempt], StartAttempt]


def of_another(scene: Scene, start: StartAttempt) -> StartAttempt:
    return replace(start, job_id="z")


def of_another_number(scene: Scene, start: StartAttempt) -> StartAttempt:
    return replace(start, attempt=2)


def out_of_the_grid(scene: Scene, start: StartAttempt) -> StartAttempt:
    (task,) = start.placement.tasks
    task = replace(task, devices=(0, 1, 2, 4))
    return scene.put(start, replace(start.placement, tasks=(task,)))


def on_a_sick_node(scene: Scene, start: StartAttempt) -> StartAttempt:
    mark = Mark(mark="taint", sentence="", since_s=0.0)
    scene.machine.state.marks[start.placement.tasks[0].domain] = mark
    return start


def too_early(scene: Scene, start: StartAttempt) -> StartAttempt:
    scene.jobs["a"].not_before_s = 1e9
    return start


def into_a_booking(scene: Scene, start: StartAttempt) -> StartAttempt:
    bookings = scene.machine.state.bookings
    far = Booking(name="far", start_s=0.0, end_s=1e9, nodes=("z/n0",))
    bookings["far"], bookings["own"] = far, replace(far, nodes=("s",), queues=("x",))
    bookings["p"] = replace(far, name="p", nodes=("s/n0",))
    return start


def beyond_quota(scene: Scene, start: StartAttempt) -> StartAttempt:
    scene.laws.book.ledger.take("x", "cpu", 4)
    return start


def in_the_past(scene: Scene, start: StartAttempt) -> StartAttempt:
    return replace(start, lease_until_s=scene.now)


@pytest.mark.parametrize(
    ("change", "law"),
    [
        (of_another, "a start is lawful: z does not start"),
        (of_another_number, "a start is lawful: .* is not the one that is known"),
        (out_of_the_grid, "a start is lawful: .* is given devices"),
        (on_a_sick_node, "starts on s/n0, and s/n0 is marked"),
        (too_early, "attempt 1 of a starts before it may"),
        (into_a_booking, "runs into booking p on s/n0"),
        (beyond_quota, "is more than queue `x` may have"),
        (in_the_past, "a right to run ends after now: of attempt 1 of a"),
    ],
)
def test_unlawful_starts(change: Change, law: str) -> None:
    scene = Scene(replace(ONE, queues=(Queue(name="x", nominal={"cpu": 4}),)))
    event, start = scene.starts("a", queue="x")
    scene.broken(law, [event], [change(scene, start)])


def test_an_epoch_that_repeats() -> None:
    scene = Scene()
    (start,) = scene.does(scene.submit("a"))
    scene.broken("attempt 1 of a has epoch 1 after 1", [], [start])


def test_devices_that_somebody_has() -> None:
    scene = Scene(TWO)
    (first,) = scene.does(scene.submit("a"))
    event, start = scene.starts("b")
    assert isinstance(first, StartAttempt)
    scene.broken("device 0 of s/n0, by a and b", [event], [scene.put(start, first.placement)])


def test_who_is_there_at_the_start_is_known() -> None:
    scene = Scene(TWO)
    first, second = scene.does(scene.submit("a"), scene.submit("b"))
    assert isinstance(first, StartAttempt)
    assert isinstance(second, StartAttempt)
    scene.put(second, first.placement)
    with pytest.raises(BrokenError, match="no device is held twice: device 0 of s/n0"):
        StepLaws(scene.machine)


def test_a_host_that_is_used_up() -> None:
    rich = grid(site("s", replace(ONE.sites[0].nodes[0], resources={"cpus": 8})))
    scene = Scene(rich)
    asked = spec(shape(2, rank_resources=(("cpus", 2),)))
    scene.does(submitted("a", asked, 0.0))
    event = submitted("b", asked, 0.0)
    actions = scene.step(event)
    poor = grid(site("s", replace(ONE.sites[0].nodes[0], resources={"cpus": 7})))
    scene.laws.book.grid = grid_of(poor)
    scene.broken("attempt 1 of b has more cpus than s/n0 has", [event], actions)


def test_what_is_kept_for_others_is_not_taken() -> None:
    scene = Scene(grid(site("s", "4", "4", "4")))
    first, _ = scene.does(scene.submit("a"), scene.submit("c"))
    scene.does(scene.submit("b", 12))
    assert isinstance(first, StartAttempt)
    scene.machine.index.reserve(scene.jobs["b"], first.placement, 1e9)
    scene.machine.index.dirty = False
    scene.see([], [])
    event, start = scene.starts("d")
    ended = scene.ended("a")
    scene.laws.book.give_back("a")
    del scene.jobs["a"]
    scene.broken(
        "takes what is kept for others on s/n0",
        [event, *ended],
        [scene.put(start, first.placement)],
    )


# --- what goes on


def test_silence() -> None:
    scene = Scene(terms=LeaseTerms(lease_s=6.0, kill_margin_s=4.0))
    scene.does(scene.submit("a"))
    (task,) = scene.jobs["a"].attempts[-1].tasks.values()
    scene.does(TaskRunning(job_id="a", attempt=1, epoch=1, domain="s/n0"), later_s=5.0)
    scene.does(later_s=6.0)  # the first lease would have lapsed
    scene.now = scene.machine.state.now_s = task.lease_until_s + 4.0
    scene.broken("whoever is silent for too long is given up: a on s/n0", [], [])


def test_a_renewal_for_the_past() -> None:
    scene = Scene()
    scene.does(scene.submit("a"))
    renewal = RenewLease(job_id="a", attempt=1, epoch=1, domain="s/n0", lease_until_s=scene.now)
    scene.broken("a right to run ends after now", [], [renewal])


def test_a_job_keeps_its_place_in_the_queue() -> None:
    scene = Scene()
    scene.does(scene.submit("a"))
    scene.jobs["a"].submitted_s += 1.0
    scene.broken("a job keeps its place in the queue: a", scene.ended("a"), [])


def test_an_eviction_is_no_restart() -> None:
    scene = Scene()
    scene.does(scene.submit("a", retry=RetryPolicy(max_restarts=9)))
    scene.does(EvictRequested(job_id="a"))
    ended = scene.ended("a", Why.KILLED)
    actions = scene.step(*ended)
    scene.jobs["a"].restarts += 1
    scene.broken("an eviction does not count as a restart: a", ended, actions)


def test_whoever_waits_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    scene.does(scene.submit("a"))
    event = scene.submit("b")
    actions = scene.step(event)
    monkeypatch.setattr(scene.machine, "reason", lambda job_id: None)
    scene.broken("whoever waits has a reason: b", [event], actions)


def test_more_is_reserved_than_there_is() -> None:
    scene = Scene()
    (start,) = scene.does(scene.submit("a"))
    assert isinstance(start, StartAttempt)
    scene.does(scene.submit("b"), scene.submit("c"))
    for name in "bc":
        scene.machine.index.reserve(scene.jobs[name], start.placement, 1e9)
    scene.broken("no more is reserved than there is: 8 of s/n0", [], [])


# --- evictions


PAIR = Policy(preemption=Preemption(cooldown_s=50.0))


def evicting(
    policy: Policy = PAIR, inventory: Inventory = ONE, **more: Any
) -> tuple[Scene, list[AnyEvent], list[AnyAction]]:
    """Return a scene in which ``b`` has ``a`` evicted, which the laws do not see yet."""
    scene = Scene(replace(inventory, policy=policy))
    scene.does(scene.submit("a", **more))
    event = scene.submit("b", priority=1)
    actions = scene.step(event, later_s=5.0)
    assert any(isinstance(action, StopTask) for action in actions)
    return scene, [event], actions


def test_an_eviction_for_somebody_passes() -> None:
    scene, events, actions = evicting()
    scene.see(events, actions)
    scene.does(*scene.ended("a", Why.STOP_REQUESTED))
    assert set(scene.laws.book.held) == {"b"}


Fault = Callable[[Scene], None]


def spec_of(name: str, **more: Any) -> Fault:
    def fault(scene: Scene) -> None:
        scene.jobs[name].spec = replace(scene.jobs[name].spec, **more)

    return fault


def policy_of(**more: Any) -> Fault:
    def fault(scene: Scene) -> None:
        inventory = scene.machine.state.inventory
        assert inventory is not None
        preemption = replace(inventory.policy.preemption, **more)
        inventory = replace(inventory, policy=replace(inventory.policy, preemption=preemption))
        scene.machine.state.inventory = inventory
        scene.laws.book.inventory = inventory

    return fault


def nothing_kept(scene: Scene) -> None:
    scene.machine.index.unreserve(scene.jobs["b"])


def the_same_as_before(scene: Scene) -> None:
    places = scene.jobs["b"].reservation
    assert places is not None
    scene.laws._reserved["b"] = places


def other_places(scene: Scene) -> None:
    """Keep for ``b`` what is free anyhow."""
    places = scene.jobs["b"].reservation
    assert places is not None
    (task,) = places.tasks
    there = replace(places, tasks=(replace(task, node="n1"),))
    scene.machine.index.reserve(scene.jobs["b"], there, 1e9)


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (nothing_kept, "a leave for b, for which nothing is kept"),
        (the_same_as_before, "a leave for b, for which the same was kept before"),
        (spec_of("a", preemptible=False), "a must not be evicted"),
        (spec_of("a", priority=2), "a leaves for b, which is of lower priority"),
        (spec_of("a", priority=1), "a leaves for b, which is of the same priority"),
        (policy_of(min_run_s=6.0), "a leaves after 5 s, and may stay for 6 s"),
    ],
)
def test_unlawful_evictions(fault: Fault, law: str) -> None:
    scene, events, actions = evicting()
    fault(scene)
    scene.broken(f"nobody is told to leave for nothing: {law}", events, actions)


def test_places_that_nobody_needs() -> None:
    scene, events, actions = evicting(inventory=grid(site("s", "4", "2")))
    wide = grid(site("s", "4", "4"))
    scene.machine.state.inventory = replace(wide, policy=PAIR)
    scene.machine.index.rebuild()
    scene.laws.book.regrid(scene.machine.state.inventory)
    other_places(scene)
    scene.broken("a leaves for b, which does not need its places", events, actions)


def test_an_equal_is_not_evicted_again_at_once() -> None:
    scene, events, actions = evicting()
    scene.laws._evictions.told(scene.jobs["a"])  # as if it had been told a moment ago
    policy_of(order=True)(scene)
    spec_of("a", priority=1)(scene)
    scene.broken("a leaves again after 0 s", events, actions)


def test_nobody_leaves_for_who_has_left_for_it() -> None:
    scene, events, actions = evicting(Policy(preemption=Preemption(cooldown_s=0.0)))
    policy_of(order=True)(scene)
    spec_of("a", priority=1)(scene)
    scene.see(events, actions)
    laws = scene.laws._evictions
    # the same once more, with the two changed over
    fates = laws._fates["a"].pop("b")
    laws._fates["b"] = {"a": fates}
    scene.laws._reserved.clear()
    scene.broken("a leaves for b, which left for it at 7", events, actions)


def test_who_was_evicted_may_come_back_by_moving_the_other() -> None:
    scene, events, actions = evicting(Policy(preemption=Preemption(cooldown_s=0.0)))
    policy_of(order=True)(scene)
    spec_of("a", priority=1)(scene)
    scene.see(events, actions)
    laws = scene.laws._evictions
    use, values, at_s = laws._fates["a"].pop("b")
    assert isinstance(values, tuple)
    assert values[0] is Why.PREEMPTED
    laws._fates["b"] = {"a": (use, (Why.MOVED, *values[1:]), at_s)}
    scene.laws._reserved.clear()
    scene.see(events, actions)


def test_a_queue_takes_back_what_it_lent() -> None:
    queues = (
        Queue(name="x", cohort="c", nominal={"cpu": 4}),
        Queue(name="y", cohort="c", nominal={"cpu": 0}),
    )
    scene = Scene(grid(site("s", "4"), queues=queues, cohorts=(Cohort(name="c"),)))
    scene.does(scene.submit("a", queue="y", priority=3))
    actions = scene.does(scene.submit("b", queue="x"))
    assert any(isinstance(action, StopTask) for action in actions)


def test_quota_is_enough_of_a_need() -> None:
    """Devices are free, and what stands in the way is what the queue may have."""
    queues = (Queue(name="x", nominal={"cpu": 4}),)
    scene = Scene(replace(TWO, queues=queues, policy=PAIR))
    scene.does(scene.submit("a", queue="x"))
    other = scene.submit("e", 8, queue="x")
    scene.does(other)
    actions = scene.does(scene.submit("b", queue="x", priority=1))
    assert any(isinstance(action, StopTask) for action in actions)


def test_a_host_may_be_what_is_needed() -> None:
    rich = grid(site("s", replace(ONE.sites[0].nodes[0], resources={"cpus": 4})))
    scene = Scene(rich)
    asked = spec(shape(2, rank_resources=(("cpus", 2),)))
    scene.does(submitted("a", asked, 0.0))
    actions = scene.does(submitted("b", replace(asked, priority=1), 0.0))
    assert any(isinstance(action, StopTask) for action in actions)


def test_who_starts_does_not_leave() -> None:
    scene = Scene()
    event, start = scene.starts("a")
    stop = scene.told("a", preempted("makes room for b"))
    scene.broken("a starts and leaves", [event], [start, stop])


def test_who_leaves_leaves_for_somebody() -> None:
    scene = Scene()
    scene.does(scene.submit("a"))
    stop = scene.told("a", preempted("was evicted"))
    scene.broken("a leaves for nobody", [], [stop, replace(stop, domain="s/n1")])
    scene.see([], [replace(stop, epoch=9)])  # of what is over


# --- to change


def grows(scene: Scene) -> StopTask:
    why = preempted("goes on with 8 cpu instead of 4, as nobody waits", Why.RESIZED)
    return scene.told("a", why)


def test_who_grows_has_a_larger_place() -> None:
    policy = Policy(elastic=True, resize_s_min=5.0)
    inventory = replace(TWO, policy=policy)
    elastic = spec(shape(8), shape(4), elastic=True, forecast=Forecast(duration_s=1e6))
    scene = Scene(inventory)
    scene.does(scene.submit("b"))
    scene.does(submitted("a", elastic, 0.0))
    scene.does(TaskRunning(job_id="a", attempt=1, epoch=2, domain="s/n1"))
    scene.does(*scene.ended("b"))
    actions = scene.step(later_s=10.0)
    assert [action for action in actions if isinstance(action, StopTask)]
    scene.laws.book.held["a"].placement = replace(
        scene.laws.book.held["a"].placement, option=shape(8)
    )
    scene.broken("a is to grow, and does not", [], actions)
    scene.laws.book.held["a"].placement = replace(
        scene.laws.book.held["a"].placement, option=shape(4)
    )
    scene.see([], actions)
    scene.jobs["a"].attempts[-1].started_s = scene.now
    for task in scene.jobs["a"].attempts[-1].tasks.values():
        task.lease_until_s = scene.now
    scene.broken("a leaves after 0 s, and may stay for 5 s", [], actions)


def test_who_grows_has_a_place_at_all() -> None:
    scene = Scene()
    scene.does(scene.submit("a"))
    scene.broken("a goes over to nothing", [], [grows(scene)])


# --- promises


CALM = Policy(preemption=Preemption(priority=False))


def promised(policy: Policy = CALM) -> Scene:
    """Return a scene in which ``b`` is to start at 102, after ``a``."""
    scene = Scene(replace(ONE, policy=policy))
    scene.does(scene.submit("a", forecast=Forecast(duration_s=100.0)))
    scene.does(scene.submit("b", forecast=Forecast(duration_s=100.0)))
    assert scene.jobs["b"].promised_s == 102.0
    return scene


def test_a_promise_that_is_kept() -> None:
    scene = promised()
    scene.does(scene.submit("c"))  # comes later
    (beat,) = scene.jobs["a"].attempts[-1].tasks
    scene.does(TaskRunning(job_id="a", attempt=1, epoch=1, domain=beat))
    scene.does(*scene.ended("a"))
    assert "b" in scene.laws.book.held


def test_a_promise_that_gets_later() -> None:
    scene = promised()
    event = scene.submit("c")
    actions = scene.step(event)
    scene.jobs["b"].promised_s = 103.0
    scene.broken("promised starts do not get later: b, from 102 to 103", [event], actions)


def test_a_start_that_comes_late() -> None:
    scene = promised()
    scene.laws._promises._promised["b"] = 50.0
    scene.laws._promises._first_end_s = 1e9
    ended = scene.ended("a")
    actions = scene.step(*ended, later_s=60.0)
    scene.broken("promised starts do not get later: b, at 63 and not at 50", ended, actions)


Unforeseen = Callable[[Scene], Sequence[AnyEvent]]


@pytest.mark.parametrize(
    "what",
    [
        lambda scene: scene.ended("a", Why.KILLED),
        lambda scene: [NodeMarked(domain="z/n0", mark="")],
        lambda scene: [scene.submit("c", priority=1)],
        lambda scene: [EvictRequested(job_id="a")],
        lambda scene: [scene.submit("c", after=()), CancelRequested(job_id="a")],
    ],
    ids=["killed", "well again", "a better right", "an eviction", "a wish"],
)
def test_a_promise_gives_way_to_what_nobody_foresaw(what: Unforeseen) -> None:
    scene = promised()
    events = what(scene)
    actions = scene.step(*events)
    scene.jobs["b"].promised_s = 103.0 if scene.jobs["b"].attempts == [] else 0.0
    scene.see(events, actions)


# --- how much is checked


def test_off_is_off() -> None:
    scene = Scene()
    event, start = scene.starts("a")
    Laws("off", scene.machine).observe([event], [start, start], scene.now)


def test_all_is_checked_where_that_is_wanted() -> None:
    scene = Scene()
    some, all_of = Laws("incremental", scene.machine), Laws("full", scene.machine)
    event, start = scene.starts("a")
    for laws in (some, all_of):
        laws.observe([event], [start], scene.now)
    scene.jobs["a"].attempts[0].epoch = 0
    some.observe([], [], scene.now)
    with pytest.raises(BrokenError, match="epochs only grow"):
        all_of.observe([], [], scene.now)
    scene.jobs["a"].attempts[0].epoch = 1
    all_of.observe([], [], scene.now)
    scene.machine.index.capacity.free[0] = 4
    with pytest.raises(BrokenError, match="what is free is what nobody holds"):
        all_of.observe([], [], scene.now)


def test_who_holds_devices_was_told_so() -> None:
    scene = Scene()
    laws = Laws("full", scene.machine)
    event, _ = scene.starts("a")
    with pytest.raises(BrokenError, match="who holds devices was told so"):
        laws.observe([event], [], scene.now)


# --- more than one culprit, and what each of them lacks


def test_all_who_start_wrongly_are_named() -> None:
    scene = Scene()
    event, start = scene.starts("a")
    del event
    wrong = [replace(start, job_id="y"), replace(start, job_id="z")]
    found = list(scene.laws._starts(scene.machine, wrong))
    assert found == ["y does not start", "z does not start"]


def test_a_deal_for_which_nothing_is_kept_is_not_looked_into() -> None:
    scene, _, actions = evicting()
    deals, wrong = deals_of(scene.laws.book, actions, frozenset())
    assert not wrong
    nothing_kept(scene)
    found = scene.laws._evictions.observe(
        scene.machine.state, scene.laws.book, deals, keepers=(), before={}
    )
    assert list(found) == ["a leave for b, for which nothing is kept"]


def test_a_move_is_for_others_or_for_what_others_leave() -> None:
    """Who is told to move counts by its own new places too; who was told before does not go."""
    scene, _, actions = evicting()
    deals, _ = deals_of(scene.laws.book, actions, frozenset())
    moved = [
        Deal("b", [(held, Reason(code=Why.MOVED, sentence=""))]) for held, _ in deals[0].victims
    ]
    kept: dict[str, dict[tuple[str, int], int]] = {"b": {}}
    state, book = scene.machine.state, scene.laws.book
    assert list(scene.laws._evictions._needless(state, book, moved[0], kept, frozenset())) == []


def test_what_a_queue_lacks_counts_what_is_reserved_for_others() -> None:
    queues = (Queue(name="x", nominal={"cpu": 8}),)
    scene = Scene(grid(site("s", "4", "4", "4"), queues=queues))
    first, second = scene.does(scene.submit("a", queue="x"), scene.submit("b", queue="x"))
    assert isinstance(first, StartAttempt)
    assert isinstance(second, StartAttempt)
    scene.does(scene.submit("c", queue="x"), scene.submit("d", queue="x"))
    c, d = scene.jobs["c"], scene.jobs["d"]
    c.reservation, d.reservation = first.placement, second.placement
    book = scene.laws.book
    everybody = frozenset({"a", "b"})
    assert not _lacks_quota(book, c, everybody, [c, d])
    assert _lacks_quota(book, c, frozenset({"a"}), [c, d])
    assert not _lacks_quota(book, c, frozenset({"a"}), [c])
    assert book.ledger.use("x", "cpu") == 8


def test_a_host_is_what_is_lacking() -> None:
    nodes = [replace(ONE.sites[0].nodes[0], resources={"cpus": 4}, count=8)]
    scene = Scene(grid(site("s", *nodes)))
    asked = spec(shape(2, rank_resources=(("cpus", 2),)))
    (start,) = scene.does(submitted("a", asked, 0.0))
    assert isinstance(start, StartAttempt)
    scene.does(submitted("b", asked, 0.0))
    b, held = scene.jobs["b"], scene.laws.book.held["a"]
    b.reservation = start.placement
    state, book = scene.machine.state, scene.laws.book
    assert _lacks(state, book, b, held, frozenset(), {"b": {}})
    assert not _lacks(state, book, b, held, frozenset("a"), {"b": {}})


def test_spare_nodes_are_kept_whole() -> None:
    scene = Scene(TWO)
    scene.does(scene.submit("a", spares=1))
    assert scene.jobs["a"].spares == ("s/n1",)
    assert _kept(scene.laws.book, scene.jobs["a"]) == {("s/n1", 0): 4}


def test_what_a_job_has_had_by_now() -> None:
    scene = Scene()
    scene.does(scene.submit("a"), scene.submit("b"))
    scene.jobs["b"].device_s = 5.0
    attained = Policy(order="attained")
    assert _value(scene.jobs["a"], attained, scene.now + 2.0) == 8.0
    assert _value(scene.jobs["b"], attained, scene.now + 2.0) == 5.0
    assert _value(scene.jobs["b"], Policy(), scene.now) == 0.0


def test_a_sign_of_life_beside_an_end_changes_nothing() -> None:
    scene = promised()
    beat = TaskRunning(job_id="a", attempt=1, epoch=1, domain="s/n0")
    scene.does(beat, *scene.ended("a"))
    assert "b" in scene.laws.book.held


def test_by_share_somebody_of_higher_priority_may_undo_it() -> None:
    scene, events, actions = evicting()
    nothing_kept(scene)
    inventory = scene.laws.book.inventory
    scene.laws.book.inventory = replace(inventory, policy=Policy(order="share"))
    scene.see(events, actions)


def test_what_is_reserved_leads_to_a_start() -> None:
    scene, _, actions = evicting()
    state = scene.machine.state
    booking = Booking(name="p", start_s=1e9, end_s=2e9, nodes=("s/n0",), queues=("",))
    state.bookings["own"] = booking
    assert list(barred(state, scene.jobs["b"])) == []
    state.bookings["p"] = replace(booking, queues=())
    state.bookings["far"] = replace(booking, nodes=("z",), queues=())
    found = list(barred(state, scene.jobs["b"]))
    assert found == ["b would run into booking p on s/n0"]
    scene.broken("b would run into booking p on s/n0", [], actions)
    scene.jobs["b"].reservation = None
    assert list(barred(state, scene.jobs["b"])) == []


def test_who_moves_for_another_leads_on_too() -> None:
    scene, _, actions = evicting()
    deals, _ = deals_of(scene.laws.book, actions, frozenset())
    held, _ = deals[0].victims[0]
    scene.jobs["a"].reservation = scene.jobs["b"].reservation
    booking = Booking(name="p", start_s=1e9, end_s=2e9, nodes=("s/n0",), queues=("",))
    scene.machine.state.bookings["p"] = booking
    scene.machine.state.jobs["a"].spec = replace(scene.jobs["a"].spec, queue="other")
    deals[0].victims = [(held, Reason(code=Why.MOVED, sentence="room for b"))]
    found = scene.laws._evictions.observe(
        scene.machine.state, scene.laws.book, deals, keepers=("a", "b"), before={}
    )
    assert "a would run into booking p on s/n0" in list(found)


def test_a_start_beyond_the_accelerator_hours() -> None:
    queues = (Queue(name="x", accelerator_hours=1.0, period_s=1e6), Queue(name="y"))
    scene = Scene(replace(TWO, queues=queues))
    scene.does(scene.submit("y", queue="y"))
    event, start = scene.starts("a", queue="x", forecast=Forecast(duration_s=800.0))
    holds = scene.machine.state.allowance.accounts["x"].holds
    holds["a/1"] = replace(holds["a/1"], predicted_s=1000.0)
    scene.broken("attempt 1 of a is more than queue `x` has accelerator-hours", [event], [start])
    scene = Scene(replace(TWO, queues=queues))
    scene.does(scene.submit("a", queue="x", forecast=Forecast(duration_s=900.0)))


def test_who_starts_on_what_is_kept_or_promised_may_have_to_leave_it() -> None:
    scene = Scene()
    assert scene.laws._stays(scene.machine, Job(job_id="a", spec=spec(), submitted_s=0.0))
    scene.laws._kept_for = frozenset("a")
    assert not scene.laws._stays(scene.machine, Job(job_id="a", spec=spec(), submitted_s=0.0))
    scene = Scene(replace(ONE, policy=Policy(blocked="conservative")))
    assert not scene.laws._stays(scene.machine, Job(job_id="a", spec=spec(), submitted_s=0.0))


def test_what_was_kept_for_who_starts_elsewhere_was_kept() -> None:
    scene = Scene(TWO)
    first, second = scene.does(scene.submit("a"), scene.submit("b"))
    assert isinstance(first, StartAttempt)
    assert isinstance(second, StartAttempt)
    before = {"a": second.placement, "b": second.placement, "c": first.placement}
    assert _given_up(scene.laws.book, before) == {"a": {("s/n1", 0): 4}}
