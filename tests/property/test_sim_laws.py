"""Whatever arrives and whatever goes wrong: nothing is lost, and every second is accounted for."""

import hashlib
import math
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import at_least
from tests.fakes.scheduler import FakeScheduler
from tests.fakes.simulated import Played, arrival, grid

from gridloom.base.codec import encode
from gridloom.core.machine import Machine
from gridloom.model.event import (
    AnyEvent,
    CancelRequested,
    EvictRequested,
    ResumeRequested,
    StopRequested,
)
from gridloom.model.inventory import Inventory
from gridloom.model.life import OVER, JobState
from gridloom.model.spec import RetryPolicy
from gridloom.sim.faults import Fault, Hazard, Kind, drawn
from gridloom.sim.simulation import Simulation
from gridloom.sim.terms import SimTerms
from gridloom.sim.workload_nouns import Arrival

SITES = ("a", "b", "c")
KINDS: tuple[Kind, ...] = ("down", "reclaim", "cut", "slow", "maintenance", "kill")
"""All but ``refuse``: a fake that starts at once what is refused at once comes to no end."""
SHAPES = ((4, 4), (2, 2, 2), (8,), (1, 1, 1, 1))


@dataclass
class Story:
    """All that a simulation is given."""

    inventory: Inventory
    arrivals: list[Arrival]
    faults: tuple[Fault, ...]
    wishes: list[tuple[float, AnyEvent]]
    terms: SimTerms
    seed: int


def told(rng: random.Random, *, calm: bool = False) -> Story:
    """Make a story up; a calm one has no faults, wishes or noise."""
    inventory = grid(
        *rng.choice(SHAPES),
        sites=SITES[: rng.randint(1, 3)],
        price_per_accelerator_hour=1.5,
        power_w_per_accelerator=700.0,
    )
    arrivals, at_s = [], rng.choice([0.0, 1e9])
    start_s = at_s
    for number in range(rng.randint(1, 12)):
        at_s += rng.choice([0.0, 0.0, rng.expovariate(1 / 50)])
        arrivals.append(_job(rng, number, at_s, len(inventory.sites)))
    if calm:
        terms = SimTerms(link_share=0.0)
        return Story(inventory, arrivals, (), [], terms, rng.randrange(99))
    faults = tuple(_fault(rng, inventory, start_s) for _ in range(rng.randint(0, 6)))
    wishes = [_wish(rng, len(arrivals), start_s) for _ in range(rng.randint(0, 4))]
    terms = SimTerms(
        start_s=rng.choice([0.0, 3.0]),
        noise=rng.choice([0.0, 0.3]),
        checkpoint_stall=rng.choice([0.0, 0.5, 1.0]),
        report_checkpoints=rng.random() < 0.5,
        detect_s=rng.choice([0.0, 10.0]),
        heartbeat_s=rng.choice([0.0, 0.0, 0.0, 2.0]),
    )
    return Story(inventory, arrivals, faults, wishes, terms, rng.randrange(99))


def _job(rng: random.Random, number: int, at_s: float, sites: int) -> Arrival:
    apart = rng.randint(1, sites) if rng.random() < 0.3 else 1
    return arrival(
        f"j{number}",
        at_s,
        devices=apart * rng.choice([1, 1, 2, 3, 4]),
        work_s=rng.choice([10.0, rng.expovariate(1 / 100), 0.1, 0.0]),
        fail_after_s=rng.choice([0.0, 0.0, 0.0, 20.0]),
        state=rng.choice(["", "", "cancelled"]),
        min_sites=apart,
        max_sites=apart,
        grace_s=rng.choice([0.0, 5.0, 30.0]),
        retry=RetryPolicy(max_restarts=rng.choice([0, 5]), backoff_s=1.0),
        forecast={
            "duration_s": rng.choice([0.0, 60.0]),
            "checkpoint_s": rng.choice([0.0, 4.0, 20.0]),
            "restart_s": rng.choice([0.0, 7.0]),
            "checkpoint_every_s": rng.choice([0.0, 15.0]),
        },
    )


def _fault(rng: random.Random, inventory: Inventory, start_s: float) -> Fault:
    kind: Kind = rng.choice(KINDS)
    sites = [site.name for site in inventory.sites]
    site = rng.choice(sites)
    nodes = [f"{one.name}/{node.name}" for one in inventory.sites for node in one.nodes]
    domain = rng.choice([site, rng.choice(nodes)])
    if kind == "cut":
        domain = rng.choice([site, f"{rng.choice(sites)}|c"])
    duration_s = rng.choice([3.0, 40.0, 400.0])
    if kind == "slow":
        domain = rng.choice([domain, "a|b"])
    return Fault(
        at_s=start_s + rng.choice([0.0, rng.uniform(-20.0, 300.0)]),
        kind=kind,
        domain=domain,
        duration_s=duration_s,
        factor=2.0 if kind == "slow" else 1.0,
        notice_s=rng.choice([0.0, 15.0]) if kind in ("reclaim", "maintenance") else 0.0,
    )


def _wish(rng: random.Random, jobs: int, start_s: float) -> tuple[float, AnyEvent]:
    job_id = f"j{rng.randrange(jobs)}"
    kinds: list[type[CancelRequested | EvictRequested | StopRequested]]
    kinds = [CancelRequested, EvictRequested, EvictRequested, StopRequested]
    return start_s + rng.uniform(0.0, 200.0), rng.choice(kinds)(job_id=job_id)


def play(story: Story, make: "Make", **more: float) -> Played:
    """Run the story under a scheduler."""
    return Played(
        story.inventory,
        story.arrivals,
        *story.wishes,
        faults=story.faults,
        terms=story.terms,
        seed=story.seed,
        machine=make(story.terms),
        watch=in_bounds,
        **more,
    )


def in_bounds(sim: Simulation) -> None:
    """No more is used than there is."""
    point = sim.record.curve()[-1]
    assert 0 <= point.used <= point.available
    assert point.waiting_jobs >= 0
    assert point.waiting_devices >= 0


def fake(_: SimTerms) -> Machine:
    return FakeScheduler()


def core(terms: SimTerms) -> Machine:
    return Machine(terms=terms.lease_terms())


Make = Callable[[SimTerms], Machine]
SCHEDULERS = pytest.mark.parametrize("make", [fake, core])
STORIES = st.integers(0, 2**32 - 1).map(random.Random)


@SCHEDULERS
@settings(deadline=None)
@given(rng=STORIES)
def test_every_device_second_is_accounted_for(make: Make, rng: random.Random) -> None:
    """By three books that do not know each other: of jobs, of stays, and of the whole grid."""
    story = told(rng)
    played = play(story, make)
    stays = Counter[str]()
    for span in played.sim.record.spans():
        stays[span.job_id] += span.devices * (span.end_s - span.start_s)  # type: ignore[assignment]
    total_s = 0.0
    for row in played.sim.record.jobs():
        parts = row.useful_device_s, row.lost_device_s, row.overhead_device_s
        assert min(parts) >= -1e-5
        assert sum(parts) == pytest.approx(row.device_s, abs=1e-5)
        if row.state in OVER:
            assert row.device_s == pytest.approx(stays[row.job_id], abs=1e-4)
        total_s += row.device_s
        hours = row.device_s / 3600
        assert (row.cost, row.energy_kwh) == pytest.approx((1.5 * hours, 0.7 * hours), abs=1e-6)
    held_s = played.sim.record.used_device_s
    assert held_s <= played.sim.record.available_device_s + 1e-6
    if all(row.state in OVER for row in played.sim.record.jobs()):
        assert held_s == pytest.approx(total_s, abs=1e-3)


@SCHEDULERS
@settings(deadline=None)
@given(rng=STORIES)
def test_no_job_is_lost_and_time_does_not_go_back(make: Make, rng: random.Random) -> None:
    story = told(rng)
    played = play(story, make)
    assert [row.job_id for row in played.sim.record.jobs()] == [
        one.job_id for one in story.arrivals
    ]
    assert all(a.now_s <= b.now_s for a, b in pairwise(played.journal))
    assert [record.seq for record in played.journal] == list(range(1, len(played.journal) + 1))
    for row in played.sim.record.jobs():
        assert row.state in OVER or math.isnan(row.end_s)
        assert (row.attempts == 0) == math.isnan(row.first_start_s)
        if row.state is JobState.SUCCEEDED:
            assert row.submit_s <= row.first_start_s <= row.end_s


@SCHEDULERS
@settings(deadline=None)
@given(rng=STORIES)
def test_the_work_of_a_job_that_is_done_adds_up(make: Make, rng: random.Random) -> None:
    """Over all attempts, what was kept is the work, once; where nothing slowed it down."""
    story = told(rng)
    story.terms = SimTerms(start_s=story.terms.start_s, checkpoint_stall=0.5, link_share=0.0)
    story.faults = tuple(one for one in story.faults if one.kind != "slow")
    played = play(story, make)
    for one, row in zip(story.arrivals, played.sim.record.jobs(), strict=True):
        if row.state is JobState.SUCCEEDED:
            work_device_s = one.work_s * row.devices
            assert row.useful_device_s == pytest.approx(work_device_s, abs=1e-4)


@SCHEDULERS
@settings(deadline=None)
@given(rng=STORIES)
def test_without_faults_and_preemption_jobs_run_exactly_for_their_work(
    make: Make, rng: random.Random
) -> None:
    story = told(rng, calm=True)
    for one, row in zip(story.arrivals, play(story, make).sim.record.jobs(), strict=True):
        if row.attempts == 1 and row.preemptions == 0:
            assert row.running_s == min(one.work_s, one.fail_after_s or math.inf)
            assert row.overhead_device_s == 0.0


@at_least(15)
@given(rng=STORIES)
def test_a_journal_repeats_itself(rng: random.Random) -> None:
    """A fresh core that is told the journal's facts wants what the first one wanted."""
    story = told(rng)
    played = play(story, core)
    again = core(story.terms)
    for record in played.journal:
        actions = again.step(record.events, record.now_s, random.Random(record.seed))
        assert tuple(actions) == record.actions


@at_least(15)
@given(rng=STORIES)
def test_a_run_in_pieces_is_the_same_run(rng: random.Random) -> None:
    in_pieces(rng)


@pytest.mark.parametrize("seed", [28, 185, 611, 679])
def test_to_look_at_what_runs_changes_nothing_to_the_last_bit(seed: int) -> None:
    """Stories in which an end moved by a rounding error when rows of live jobs were written."""
    in_pieces(random.Random(seed))


def in_pieces(rng: random.Random) -> None:
    story = told(rng)
    whole = play(story, fake)
    pieces = play(story, fake, until_s=story.arrivals[0].submit_s)
    for _ in range(20):
        pieces.sim.run(pieces.sim.now_s + 13.0)
    pieces.sim.run()
    assert [encode(one) for one in pieces.journal] == [encode(one) for one in whole.journal]
    for one, other in zip(pieces.sim.record.jobs(), whole.sim.record.jobs(), strict=True):
        assert one.device_s == pytest.approx(other.device_s)
        assert (one.state, one.attempts) == (other.state, other.attempts)


def digest(name: str) -> str:
    """Return a hash of the records and journals of some stories."""
    sum_ = hashlib.sha256()
    for seed in range(12):
        story = told(random.Random(seed))
        hazards = [Hazard(kind="down", mtbf_s=300.0, repair_s=30.0)]
        start_s = story.arrivals[0].submit_s
        story.faults += drawn(
            story.inventory, hazards, seed=seed, from_s=start_s, until_s=start_s + 500.0
        )
        played = play(story, core if name == "core" else fake)
        for record in played.journal:
            sum_.update(encode(record))
        for row in played.sim.record.jobs():
            sum_.update(repr(row).encode())
        sum_.update(repr(played.sim.record.spans()).encode())
        sum_.update(repr(played.sim.record.curve()).encode())
    return sum_.hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fake", "core"])
def test_the_same_seed_gives_the_same_record_in_every_process(name: str) -> None:
    told_ = set()
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", f"from {__name__} import digest; print(digest({name!r}))"],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        told_.add(done.stdout.strip())
    assert told_ == {digest(name)}


def test_resuming_is_like_going_on() -> None:
    """A job that is stopped, saved and resumed ends later by exactly the pause."""
    story = told(random.Random(3), calm=True)
    job = arrival("solo", 0.0, work_s=100.0)
    played = Played(
        story.inventory,
        [job],
        (40.0, StopRequested(job_id="solo")),
        (90.0, ResumeRequested(job_id="solo")),
    )
    assert played.job("solo").end_s == 150.0
