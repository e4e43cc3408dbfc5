"""Jobs and attempts as the tests of control need them."""

from collections.abc import Sequence
from typing import Any

from gridloom.model.action import RestartSite, StartAttempt
from gridloom.model.inventory import Inventory, Node, Site
from gridloom.model.life import Attempt, Job, JobState, Outcome, Placement, Task, TaskPlacement
from gridloom.model.parallel import ParallelPlan
from gridloom.model.reason import Reason, Why
from gridloom.model.recipe import CheckpointPolicy, GptRecipe, GptShape, TextData, Training
from gridloom.model.spec import JobSpec, Option, Program

SHAPE = GptShape(layers=2, hidden=64, heads=4, kv_heads=2, ffn=128)
GRID = Inventory(
    sites=(
        Site(
            name="north",
            kind="fake",
            nodes=(
                Node(name="n1", address="10.0.0.1", accelerator="cpu", count=2),
                Node(name="n2", address="10.0.0.2", accelerator="cpu", count=2),
            ),
            price_per_accelerator_hour=0.5,
            power_w_per_accelerator=10.0,
            ports=(4000, 4009),
        ),
        Site(
            name="south",
            kind="fake",
            nodes=(Node(name="s1", address="10.1.0.1", accelerator="cpu", count=4),),
            power_w_per_accelerator=20.0,
        ),
    ),
    currency="EUR",
)


def task(site: str, node: str, address: str, devices: Sequence[int]) -> TaskPlacement:
    return TaskPlacement(site=site, node=node, address=address, devices=tuple(devices))


TASKS = (
    task("north", "n1", "10.0.0.1", (0, 1)),
    task("north", "n2", "10.0.0.2", (1,)),
    task("south", "s1", "10.1.0.1", (0, 1, 3)),
)


def spec(*, recipe: bool = False, name: str = "job") -> JobSpec:
    return JobSpec(
        name=name,
        program=Program(argv=("python", "train.py"), workdir="/work", env={"A": "1"}),
        options=(Option(accelerator="cpu", plan=ParallelPlan(data=6), memory_bytes=2_000_000),),
        min_sites=2,
        max_sites=2,
        grace_s=12.0,
        recipe=GptRecipe(
            shape=SHAPE,
            data=TextData(),
            training=Training(steps=10, global_batch=6, sequence_length=8),
            checkpoint=CheckpointPolicy(directory="/c"),
        )
        if recipe
        else None,
    )


def placement(tasks: Sequence[TaskPlacement] = TASKS) -> Placement:
    return Placement(option=spec().options[0], tasks=tuple(tasks), price_per_hour=1.5)


def start(attempt: int = 1, epoch: int = 7) -> StartAttempt:
    return StartAttempt(
        job_id="job-1",
        attempt=attempt,
        epoch=epoch,
        placement=placement(),
        restart_count=attempt - 1,
        lease_until_s=1006.0,
    )


def restart(site: str = "south", life: int = 2) -> RestartSite:
    return RestartSite(
        job_id="job-1",
        attempt=1,
        epoch=7,
        placement=placement(),
        site=site,
        life=life,
        restart_count=life - 1,
        lease_until_s=1020.0,
    )


def attempt(number: int = 1, epoch: int = 7, **changes: Any) -> Attempt:
    tasks = {one.domain: Task(placement=one, lease_until_s=1006.0) for one in TASKS}
    return Attempt(
        number=number,
        epoch=epoch,
        placement=placement(),
        tasks=tasks,
        started_s=1000.0,
        **changes,
    )


def ended(number: int, code: Why, sentence: str, **changes: Any) -> Attempt:
    outcome = Outcome(code=code, sentence=sentence, ended_s=1060.0)
    return attempt(number, number, outcome=outcome, ended_s=1060.0, **changes)


def job(
    state: JobState = JobState.STARTING,
    attempts: Sequence[Attempt] | None = None,
    *,
    recipe: bool = False,
    **changes: Any,
) -> Job:
    return Job(
        job_id="job-1",
        spec=spec(recipe=recipe),
        submitted_s=999.0,
        state=state,
        attempts=[attempt()] if attempts is None else list(attempts),
        **changes,
    )


def reason(code: Why = Why.EXITED) -> Reason:
    return Reason(code=code, sentence="rank 0 exited <1>", remedy="look at its log")
