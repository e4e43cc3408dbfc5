"""One pass of placing: order, fit, gang, then a start or a reason for waiting."""

from gridloom.core import explain, fit, gang, order
from gridloom.core.capacity import Capacity
from gridloom.core.state import State, move
from gridloom.core.turn import Turn
from gridloom.model.action import StartAttempt
from gridloom.model.inventory import Inventory
from gridloom.model.life import Attempt, Job, JobState, Placement, Task
from gridloom.model.reason import Reason
from gridloom.model.spec import Option

Shape = tuple[tuple[Option, ...], tuple[str, ...], int, int]
View = tuple[Inventory | None, list[tuple[str, Reason | None]], list[int]]


def run(turn: Turn) -> None:
    """Start every job whose turn it is and that fits, and tell the others why they wait.

    A job that waits keeps the nodes that it could use from those behind it: nobody starves.
    """
    inventory = turn.state.inventory
    waiting = order.ready(turn.state.jobs.values(), turn.now)
    if inventory is None:
        for job in waiting:
            job.reason = explain.no_inventory()
        return
    _start_what_fits(turn, inventory, waiting)
    _explain_the_rest(turn, inventory)


def view(state: State) -> View:
    """Return all that the outcome of ``run`` depends on, and what it writes.

    While this is as it was after the last run, another would change nothing.
    """
    jobs = state.jobs.values()
    return (
        state.inventory,
        [(job.job_id, job.reason) for job in order.ready(jobs, state.now_s)],
        [job.attempts[-1].epoch for job in order.holding(jobs)],
    )


def _start_what_fits(turn: Turn, inventory: Inventory, waiting: list[Job]) -> None:
    capacity = Capacity.left_by(turn.state.jobs.values())
    hopeless: set[Shape] = set()  # what did not fit for one does not fit for the next: room shrinks
    for job in waiting:
        if _shape(job) in hopeless:
            continue
        placement = _placement(job, inventory, capacity)
        if placement is None:
            hopeless.add(_shape(job))
            _keep(job, inventory, capacity)
        else:
            capacity.take(placement, job.job_id)
            _start(turn, job, placement)


def _explain_the_rest(turn: Turn, inventory: Inventory) -> None:
    """Give reasons after the last start, so that they tell of the grid as it is left.

    Jobs that ask alike are told alike until more is kept for somebody between them.
    """
    capacity = Capacity.left_by(turn.state.jobs.values())
    kept: set[Shape] = set()
    told: dict[Shape, Reason | None] = {}
    for job in order.ready(turn.state.jobs.values(), turn.now):
        shape = _shape(job)
        if shape not in told:
            told[shape] = _reason(job, inventory, capacity)
        job.reason = told[shape]
        if shape not in kept:
            kept.add(shape)
            _keep(job, inventory, capacity)
            told.clear()


def _shape(job: Job) -> Shape:
    """Return all of a job that decides where it fits."""
    spec = job.spec
    return spec.options, spec.sites, spec.min_sites, spec.max_sites


def _reason(job: Job, inventory: Inventory, capacity: Capacity) -> Reason | None:
    """Return why the job waits; of its shapes the smallest is the nearest to starting."""
    option = fit.easiest(job.spec, inventory)
    if option is None:  # the grid was larger when the job was let in
        return fit.ever_fits(job.spec, inventory)
    seen = fit.survey(job.spec, option, inventory, capacity)
    return explain.waiting(job.spec, option, seen.looks, seen.refusals)


def _placement(job: Job, inventory: Inventory, capacity: Capacity) -> Placement | None:
    """Return a placement of the first option that can be placed now."""
    for option in job.spec.options:
        seen = fit.survey(job.spec, option, inventory, capacity)
        if placement := gang.place(job.spec, option, seen.sites):
            return placement
    return None


def _keep(job: Job, inventory: Inventory, capacity: Capacity) -> None:
    """Keep for a waiting job exactly the nodes that it could use if the grid were empty."""
    for option in job.spec.options:
        whole = fit.survey(job.spec, option, inventory, Capacity())
        for free in gang.usable(job.spec, option, whole.sites):
            for node in free.nodes:
                capacity.hold(f"{free.site.name}/{node.node.name}", job.job_id)


def _start(turn: Turn, job: Job, placement: Placement) -> None:
    state = turn.state
    state.epoch += 1
    lease_until_s = turn.now + turn.terms.lease_s
    attempt = Attempt(
        number=len(job.attempts) + 1,
        epoch=state.epoch,
        placement=placement,
        tasks={
            task.domain: Task(placement=task, lease_until_s=lease_until_s)
            for task in placement.tasks
        },
        started_s=turn.now,
        resumed=bool(job.attempts),
    )
    job.attempts.append(attempt)
    job.reason = None
    move(job, JobState.STARTING)
    turn.actions.append(
        StartAttempt(
            job_id=job.job_id,
            attempt=attempt.number,
            epoch=attempt.epoch,
            placement=placement,
            restart_count=attempt.number - 1,
            lease_until_s=lease_until_s,
        )
    )
