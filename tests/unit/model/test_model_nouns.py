"""The few nouns that compute something, and the table of legal transitions."""

import pytest

from gridloom.model.inventory import Inventory, Site
from gridloom.model.life import (
    HOLDING,
    JOB_TRANSITIONS,
    OVER,
    Attempt,
    Job,
    JobState,
    Placement,
    TaskPlacement,
)
from gridloom.model.parallel import ParallelPlan
from gridloom.model.reason import INFRASTRUCTURE, Why
from gridloom.model.spec import GroupNeed, JobSpec, Option, Program


def placed(site: str, node: str, *devices: int) -> TaskPlacement:
    return TaskPlacement(site=site, node=node, address="", devices=devices)


def job(state: JobState) -> Job:
    placement = Placement(option=Option(accelerator="cpu", plan=ParallelPlan()), tasks=())
    attempt = Attempt(number=1, epoch=1, placement=placement, tasks={}, started_s=0.0)
    program = Program(argv=(), workdir="/")
    spec = JobSpec(name="j", program=program, options=())
    return Job(job_id="j", spec=spec, submitted_s=0.0, state=state, attempts=[attempt])


def test_a_site_is_found_by_name() -> None:
    north = Site(name="north", kind="local", nodes=())
    south = Site(name="south", kind="local", nodes=())
    inventory = Inventory(sites=(north, south))
    assert inventory.site("south") is south
    with pytest.raises(KeyError, match="west"):
        inventory.site("west")


def test_the_degrees_of_a_plan_multiply() -> None:
    plan = ParallelPlan(tensor=2, pipeline=3, context=5, data=7)
    assert plan.replica_ranks == 30
    assert plan.world_size == 210


def test_a_shape_with_other_copies_keeps_the_shares_of_its_groups() -> None:
    needs = [
        GroupNeed(ranks=ranks, level=level)
        for ranks, level in ((2, "island"), (8, "rack"), (12, "leaf"), (16, "site"))
    ]
    option = Option(
        accelerator="cpu", plan=ParallelPlan(tensor=2, pipeline=2, data=8), groups=tuple(needs)
    )
    half, all_but_one = option.with_copies(4), option.with_copies(7)
    assert (half.devices, all_but_one.devices) == (16, 28)
    assert [(need.ranks, need.level) for need in half.groups] == [
        (2, "island"), (4, "rack"), (8, "site")
    ]  # fmt: skip
    assert [need.ranks for need in all_but_one.groups] == [2]
    assert option.with_copies(8) == option


def test_a_placement_counts_ranks_by_site_in_rank_order() -> None:
    tasks = (placed("south", "a", 0, 1), placed("north", "a", 0), placed("north", "b", 3))
    placement = Placement(option=Option(accelerator="cpu", plan=ParallelPlan()), tasks=tasks)
    assert placement.site_ranks() == (("south", 2), ("north", 2))
    assert [task.domain for task in tasks] == ["south/a", "north/a", "north/b"]


@pytest.mark.parametrize("state", JobState)
def test_only_a_job_that_holds_devices_has_a_current_attempt(state: JobState) -> None:
    assert (job(state).attempt is not None) == (state in HOLDING)


def test_the_table_names_every_state() -> None:
    assert set(JOB_TRANSITIONS) == set(JobState)
    assert not OVER & HOLDING
    assert OVER | HOLDING | {JobState.QUEUED} == set(JobState)


def test_a_job_holds_devices_only_on_the_way_from_the_queue_and_back() -> None:
    for before, followers in JOB_TRANSITIONS.items():
        for after in followers & HOLDING:
            assert before in HOLDING | {JobState.QUEUED}, (before, after)
    assert not JOB_TRANSITIONS[JobState.SUCCEEDED] | JOB_TRANSITIONS[JobState.CANCELLED]


def test_every_state_can_be_reached() -> None:
    reached = {JobState.QUEUED}
    for _ in JobState:
        reached |= {after for before in reached for after in JOB_TRANSITIONS[before]}
    assert reached == set(JobState)


def test_what_the_program_did_itself_is_no_failure_of_the_infrastructure() -> None:
    assert not INFRASTRUCTURE & {Why.EXITED, Why.CONFIG, Why.IO, Why.COMPLETED}
