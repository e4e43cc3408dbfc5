"""Jobs under faults, in simulated time: they end as they should, and no two attempts overlap."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.clock import FakeClock
from tests.fakes.driver import Fault, Program, World
from tests.fakes.journal import MemoryJournal, Tripwire
from tests.world.stage import Stage, Wish, job_spec

from gridloom.core.state import State
from gridloom.model.event import CancelRequested, ResumeRequested, StopRequested
from gridloom.model.life import JobState
from gridloom.model.reason import Why
from gridloom.ports.journal import Journal
from gridloom.store.journal import SqlJournal

SHM = Path("/dev/shm")


@pytest.fixture
def quick_dir() -> Iterator[Path]:
    """A directory in memory where there is one: a crash of ours needs no disk to be survived."""
    made = Path(tempfile.mkdtemp(dir=SHM if SHM.is_dir() else None))
    yield made
    shutil.rmtree(made)


def stage_of(
    faults: list[Fault],
    runs: Path,
    *,
    program: Program | None = None,
    wire: Tripwire | None = None,
    journal: Journal | None = None,
) -> Stage:
    world = World(FakeClock(), program, faults)
    return Stage(journal or MemoryJournal(), runs, world, wire=wire)


def codes(stage: Stage) -> list[Why]:
    return [attempt.outcome.code for attempt in stage.job().attempts if attempt.outcome]


def runs_attempt(number: int, step: int) -> Callable[[State], bool]:
    def reached(state: State) -> bool:
        job = state.jobs.get("j-1")
        attempt = job.attempt if job else None
        return attempt is not None and attempt.number == number and attempt.last_step >= step

    return reached


def is_stopped(state: State) -> bool:
    return state.jobs["j-1"].state is JobState.STOPPED


def test_an_undisturbed_job_takes_one_attempt_and_saves_its_checkpoints(quick_dir: Path) -> None:
    stage = stage_of([], quick_dir, journal=SqlJournal(quick_dir / "journal.sqlite"))
    stage.submit("j-1")
    stage.run(60)
    stage.check_end()
    assert codes(stage) == [Why.COMPLETED]
    assert (stage.job().state, stage.job().checkpoint_step) == (JobState.SUCCEEDED, 12)
    assert stage.closed == ["j-1"]


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (Fault("kill", 2.0), Why.KILLED),
        (Fault("lose", 2.0), Why.SUPERVISOR_LOST),
        (Fault("cut", 2.0, for_s=30.0), Why.LEASE_LAPSED),
        (Fault("refuse", 0.0, for_s=1.0), Why.REFUSED),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_a_job_outlives_one_fault(quick_dir: Path, fault: Fault, cause: Why) -> None:
    stage = stage_of([fault], quick_dir)
    spec = job_spec(max_restarts=99)
    stage.submit("j-1", spec=spec)
    stage.run(120)
    stage.check_end()
    assert stage.job().state is JobState.SUCCEEDED
    assert codes(stage)[0] is cause
    assert codes(stage)[-1] is Why.COMPLETED


@pytest.mark.parametrize("queue_s", [0.0, 1.0, 60.0])
def test_a_job_waits_in_its_sites_queues_and_meets_there(quick_dir: Path, queue_s: float) -> None:
    stage = stage_of([], quick_dir, program=Program(queue_s=queue_s))
    stage.submit("j-1")
    stage.run(120)
    stage.check_end()
    assert codes(stage) == [Why.COMPLETED]
    assert len({task.told for task in stage.world.tasks.values()}) == 1


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (Fault("kill", 8.0), Why.KILLED),
        (Fault("lose", 8.0), Why.SUPERVISOR_LOST),
        (Fault("cut", 2.0, for_s=30.0), Why.LEASE_LAPSED),
        (Fault("cut", 4.9, for_s=1.5), Why.COMPLETED),
        (Fault("refuse", 0.0, for_s=1.0), Why.REFUSED),
    ],
    ids=["killed", "lost", "cut off in the queue", "cut off when it comes up", "refused"],
)
def test_a_job_at_sites_with_queues_outlives_one_fault(
    quick_dir: Path, fault: Fault, cause: Why
) -> None:
    stage = stage_of([fault], quick_dir, program=Program(queue_s=5.0))
    stage.submit("j-1", spec=job_spec(max_restarts=99))
    stage.run(160)
    stage.check_end()
    assert stage.job().state is JobState.SUCCEEDED
    assert (codes(stage)[0], codes(stage)[-1]) == (cause, Why.COMPLETED)


def test_what_waits_in_a_sites_queue_is_taken_out_of_it(quick_dir: Path) -> None:
    stage = stage_of([], quick_dir, program=Program(queue_s=60.0))
    stage.submit("j-1")
    stage.run(30, [(runs_attempt(1, 0), CancelRequested(job_id="j-1"))])
    stage.check_end()
    assert stage.job().state is JobState.CANCELLED
    assert codes(stage) == [Why.STOP_REQUESTED]


@pytest.mark.parametrize("call", range(1, 16))
def test_a_control_plane_that_dies_at_any_call_costs_a_queued_job_nothing(
    quick_dir: Path, call: int
) -> None:
    stage = stage_of([], quick_dir, program=Program(queue_s=2.0), wire=Tripwire(call))
    stage.submit("j-1")
    stage.run(60)
    stage.check_end()
    assert codes(stage) == [Why.COMPLETED]


def test_a_short_silence_costs_nothing(quick_dir: Path) -> None:
    stage = stage_of([Fault("cut", 2.0, for_s=1.5)], quick_dir)
    stage.submit("j-1")
    stage.run(60)
    stage.check_end()
    assert codes(stage) == [Why.COMPLETED]


def test_repeated_and_reordered_facts_change_nothing(quick_dir: Path) -> None:
    faults = [
        Fault(kind, 0.0, domain=domain, for_s=60.0)
        for kind in ("repeat", "mix")
        for domain in ("a/n", "b/n")
    ]
    stage = stage_of(faults, quick_dir)
    stage.submit("j-1")
    stage.run(60)
    stage.check_end()
    assert codes(stage) == [Why.COMPLETED]


def test_a_task_that_hangs_is_killed_when_its_grace_is_over(quick_dir: Path) -> None:
    stage = stage_of([Fault("hang", 0.0, for_s=99.0)], quick_dir)
    stage.submit("j-1")
    stage.run(60, [(runs_attempt(1, 2), StopRequested(job_id="j-1"))])
    stage.check_end()
    assert stage.job().state is JobState.STOPPED


def test_no_port_at_the_site_of_rank_0_is_a_refusal_with_a_remedy(quick_dir: Path) -> None:
    stage = stage_of([], quick_dir)
    stage.world.ports_free = False
    stage.submit("j-1", spec=job_spec(max_restarts=1))
    stage.run(30)
    stage.check_end()
    job = stage.job()
    assert (job.state, codes(stage)) == (JobState.FAILED, [Why.REFUSED, Why.REFUSED])
    assert job.reason is not None
    assert "ports" in job.reason.remedy


def test_a_control_plane_that_stays_away_too_long_costs_an_attempt(quick_dir: Path) -> None:
    stage = stage_of([], quick_dir, program=Program(steps=40))
    stage.submit("j-1")
    stage.run(3)
    stage.crash()
    stage.world.advance(20)
    assert not stage.world.live()
    stage.run(60)
    stage.check_end()
    assert codes(stage) == [Why.LEASE_LAPSED, Why.COMPLETED]


@pytest.mark.parametrize("by_s", [-3600.0, -5.0, 1.0])
def test_a_clock_that_is_set_back_or_a_little_forward_costs_nothing(
    quick_dir: Path, by_s: float
) -> None:
    stage = stage_of([Fault("jump", 2.1, by_s=by_s)], quick_dir, program=Program(steps=40))
    stage.submit("j-1")
    stage.run(120)
    stage.check_end()
    assert codes(stage) == [Why.COMPLETED]


@pytest.mark.parametrize("by_s", [5.0, 8.0, 3600.0, 1e6])
def test_a_clock_that_leaps_forward_costs_one_attempt_and_never_two_at_once(
    quick_dir: Path, by_s: float
) -> None:
    faults = [Fault("jump", 2.1, by_s=by_s), Fault("hang", 0.0, for_s=99.0)]
    stage = stage_of(faults, quick_dir, program=Program(steps=40))
    stage.submit("j-1")
    stage.run(120)
    stage.check_end()
    assert codes(stage) == [Why.LEASE_LAPSED, Why.COMPLETED]


def test_two_jobs_share_the_grid_and_a_third_waits_its_turn(quick_dir: Path) -> None:
    stage = stage_of([Fault("kill", 2.0, domain="b/n")], quick_dir)
    stage.submit("j-1", "j-2", "j-3")
    stage.run(120)
    stage.check_end()
    assert {job.state for job in stage.state.jobs.values()} == {JobState.SUCCEEDED}
    assert sorted(stage.closed) == ["j-1", "j-2", "j-3"]


@pytest.mark.parametrize("domain", ["a/n", "b/n"])
@pytest.mark.parametrize("fault", ["kill", "lose", "cut"])
def test_a_lost_site_comes_back_to_the_other(quick_dir: Path, fault: str, domain: str) -> None:
    program = Program(steps=80, independent=True)
    stage = stage_of([Fault(fault, 2.0, domain, for_s=8.0)], quick_dir, program=program)
    stage.submit("j-1")
    stage.run(120)
    stage.check_end()
    assert codes(stage) == [Why.COMPLETED]
    assert sorted((ref.domain, ref.life) for ref in stage.world.started) == sorted(
        [("a/n", 1), ("b/n", 1), (domain, 2)]
    )
    assert stage.job().restarts == 1


def test_a_crash_while_a_site_comes_back_loses_nothing(quick_dir: Path) -> None:
    def story(wire: Tripwire) -> Stage:
        program = Program(steps=24, step_s=0.3, independent=True)
        runs = quick_dir / str(wire.at)
        stage = stage_of([Fault("kill", 2.0, "b/n")], runs, program=program, wire=wire)
        stage.submit("j-1")
        stage.run(60)
        stage.check_end()
        assert codes(stage) == [Why.COMPLETED]
        assert len(stage.world.started) == 3
        return stage

    undisturbed = Tripwire()
    story(undisturbed)
    for call in range(1, undisturbed.calls + 1):
        assert story(Tripwire(call)).crashes == 1, call


STORY: list[Wish] = [
    (runs_attempt(2, 6), StopRequested(job_id="j-1")),
    (is_stopped, ResumeRequested(job_id="j-1")),
]


def story(runs: Path, wire: Tripwire, journal: Journal) -> Stage:
    """Submit, run, lose a rank, retry, stop, resume, end."""
    program = Program(steps=24, step_s=0.3, killed_at=3)
    stage = stage_of([], runs, program=program, wire=wire, journal=journal)
    stage.submit("j-1")
    stage.run(60, STORY)
    return stage


def check_story(stage: Stage) -> None:
    stage.check_end()
    assert stage.job().state is JobState.SUCCEEDED
    assert codes(stage) == [Why.KILLED, Why.STOP_REQUESTED, Why.COMPLETED]
    assert set(stage.closed) == {"j-1"}
    assert len(stage.closed) >= 2  # stopped, and succeeded; a crash may repeat a summary
    assert len(stage.world.started) == 6  # three attempts at two sites, each task once
    assert not stage.journal.outbox()


PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
def test_a_crash_between_any_two_calls_loses_nothing(quick_dir: Path, part: int) -> None:
    undisturbed = Tripwire()
    check_story(story(quick_dir / "0", undisturbed, SqlJournal(quick_dir / "0" / "j.sqlite")))
    assert undisturbed.calls > 30
    for call in range(1 + part, undisturbed.calls + 1, PARTS):
        runs = quick_dir / str(call)
        stage = story(runs, Tripwire(call), SqlJournal(runs / "j.sqlite"))
        assert stage.crashes == 1, call
        check_story(stage)


@pytest.mark.parametrize("domain", ["a/n", "b/n"])
def test_a_refusal_is_not_handed_in_while_its_start_is_carried_out_again(
    quick_dir: Path, domain: str
) -> None:
    # A site refuses, the control plane dies, and the next one's try succeeds: whichever call dies,
    # the task that runs is not taken for one that was refused.
    for call in range(1, 21):
        stage = stage_of(
            [Fault("cut", 0.0, domain, 0.5)], quick_dir / str(call), wire=Tripwire(call)
        )
        stage.submit("j-1", "j-2", spec=job_spec(max_restarts=2))
        stage.run(200)
        stage.check_end()


DOMAINS = st.sampled_from(["a/n", "b/n"])
TIMES = st.floats(0.0, 20.0).map(lambda at_s: round(at_s, 2))
FAULTS = st.lists(
    st.builds(
        Fault,
        kind=st.sampled_from(["kill", "lose", "cut", "refuse", "hang", "repeat", "mix", "jump"]),
        at_s=TIMES,
        domain=DOMAINS,
        for_s=st.sampled_from([0.5, 2.0, 7.0, 15.0]),
        by_s=st.sampled_from([-3600.0, -1.0, 1.0, 30.0, 3600.0]),
    ),
    max_size=6,
)
WISHES = st.lists(
    st.sampled_from([StopRequested, ResumeRequested, CancelRequested]), max_size=3
).map(lambda kinds: [kind(job_id="j-1") for kind in kinds])


@given(
    faults=FAULTS,
    crashes=st.lists(st.integers(1, 120), max_size=3),
    wishes=WISHES,
    at_step=st.integers(0, 8),
    independent=st.booleans(),
    queue_s=st.sampled_from([None, 0.0, 3.0, 12.0]),
)
def test_whatever_happens_the_laws_hold_and_every_job_ends(
    faults: list[Fault],
    crashes: list[int],
    wishes: list[StopRequested],
    at_step: int,
    *,
    independent: bool,
    queue_s: float | None,
) -> None:
    wires = sorted(set(crashes))
    wire = Tripwire(wires.pop(0) if wires else 0)
    with tempfile.TemporaryDirectory(dir=SHM if SHM.is_dir() else None) as made:
        program = Program(independent=independent, queue_s=queue_s)
        stage = stage_of(faults, Path(made), program=program, wire=wire)
        stage.submit("j-1", "j-2", spec=job_spec(max_restarts=2))
        uttered: list[Wish] = [(runs_attempt(1, at_step), wish) for wish in wishes[:1]]
        stage.run(45, uttered)
        while wires:
            wire.at = max(wires.pop(0), wire.calls + 1)
            stage.run(45)
        stage.journal.post(wishes[1:])
        stage.run(200)
        stage.check_end()


def test_a_node_that_its_site_drains_loses_no_training(quick_dir: Path) -> None:
    queued = Program(queue_s=0.5, checkpoint_every=1)
    stage = stage_of([Fault("drain", 4.0, "a/somewhere", for_s=3.0)], quick_dir, program=queued)
    stage.submit("j-1", spec=job_spec(max_restarts=0))
    stage.run(90)
    stage.check_end()
    assert codes(stage) == [Why.STOP_REQUESTED, Why.COMPLETED], "asked to move, at no cost"
    first = stage.job().attempts[0]
    assert stage.job().state is JobState.SUCCEEDED
    assert first.checkpoint_step == first.last_step > 0
    assert stage.state.marks == {}, "the site has said that it works again"
