"""Why a job waits, or can never run: the cycle's own rules, asked again for one job."""

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec.structs import replace

from gridloom.core import order, pending, sentences, standing
from gridloom.core.allowance import Allowance
from gridloom.core.bucket import Bucket
from gridloom.core.dependencies import unmet_dependencies
from gridloom.core.fit import Ground, survey
from gridloom.core.gang import Spot
from gridloom.core.index import Index
from gridloom.core.queueing import Block, Line, Pass
from gridloom.core.shortage import Shortage
from gridloom.core.state import State
from gridloom.model.inventory import Inventory
from gridloom.model.life import Job, JobState
from gridloom.model.reason import Reason, Why
from gridloom.model.spec import JobSpec, Option


def reason(index: Index, job: Job) -> Reason | None:
    """Return why a queued job waits; nothing if it would start at the next step."""
    bucket = index.bucket(job)
    if bucket is None or index.state.inventory is None:
        return _apart(index, job)
    return next((why for other, why in _walk(index, {job.job_id: job}) if other is job), None)


def reasons(index: Index) -> dict[str, Reason | None]:
    """Return why each queued job waits, by its id; jobs that ask alike are told alike."""
    queued = order.queued(index.state.jobs.values())
    told = {job.job_id: _apart(index, job) for job in queued if index.bucket(job) is None}
    if index.state.inventory is None:
        return {job.job_id: sentences.no_inventory() for job in queued}
    waiting = {job.job_id: job for job in queued if index.bucket(job) is not None}
    return told | {job.job_id: why for job, why in _walk(index, waiting)}


def _apart(index: Index, job: Job) -> Reason | None:
    """Return why a job waits that does not wait for devices."""
    if index.state.inventory is None:
        return sentences.no_inventory()
    if job.not_before_s > index.state.now_s:
        return job.reason
    others = unmet_dependencies(index.state, job)
    jobs = index.state.jobs
    return pending.depends(others, [one for one in others if jobs[one].state is JobState.STOPPED])


def _walk(index: Index, asked: Mapping[str, Job]) -> Iterator[tuple[Job, Reason | None]]:
    """Yield why each of the asked jobs waits, as the cycle comes to them."""
    if index.policy.blocked == "conservative":
        for job, block in standing.told(index, asked):
            ground = Ground(index.capacity.available_to(job.job_id), {})
            yield job, _of_block(index, Pass(index, index.state.now_s), job, block, ground)
        return
    buckets = {id(index.bucket(job)) for job in asked.values()}
    ahead = Pass(index, index.state.now_s)
    line = Line(index)
    told: dict[int, Reason | None] = {}
    while (seen := line.next()) is not None:
        bucket, head = seen.bucket, seen.job
        decided = ahead.decide(bucket, head)
        if isinstance(decided, Spot):
            yield from _passed(index, bucket, asked)
            continue
        before = Ground(ahead.unheld(head), ahead.held_nodes())
        ahead.blocked(bucket, head, decided)
        line.blocked(seen, decided.limit_s)
        if id(bucket) in buckets and head.job_id in asked:
            yield head, _of_block(index, ahead, head, decided, before)
        if id(bucket) not in buckets or id(bucket) in told:
            continue
        # those behind are judged alike: one of their like comes first, and may keep what they want
        ground = Ground(ahead.unheld(head), ahead.held_nodes())
        told[id(bucket)] = None
        for key, job in bucket.jobs():
            if key > seen.key and job.job_id in asked:
                if told[id(bucket)] is None or job.reservation is not None:
                    told[id(bucket)] = _of_block(index, ahead, job, decided, ground)
                yield job, told[id(bucket)]


def _passed(
    index: Index, bucket: Bucket, asked: Mapping[str, Job]
) -> Iterator[tuple[Job, Reason | None]]:
    """Yield why those wait who could start by now, unless nobody has looked at them yet.

    What was decided after their turn has left them a place.
    """
    if not index.dirty:
        waiting = (job for _, job in bucket.jobs() if job.job_id in asked)
        yield from ((job, sentences.next_look()) for job in waiting)


def never(index: Index, spec: JobSpec) -> Reason | None:
    """Return nothing if the job can run on the empty grid, else why it never can."""
    shape = index.shape(spec)
    if not spec.options:
        return sentences.shapeless()
    short: Shortage | None = None
    for demand in shape.possible:
        option = demand.option
        short = index.ledger.ever(spec.queue, option.accelerator, option.devices) or _too_long(
            index, spec, option
        )
        if short is None:
            return None
    if short is not None:
        return Reason(code=Why.NEVER_FITS, sentence=short.sentence, remedy=short.remedy)
    smallest = min(shape.demands, key=lambda demand: demand.option.plan.world_size)
    seen = survey(index, smallest, _empty(index))
    return Reason(
        code=Why.NEVER_FITS,
        sentence=sentences.never_fits(spec, smallest.option, seen.looks),
        remedy=next(_remedies(index, spec, smallest.option)),
        refusals=seen.refusals,
    )


def ever_fits(spec: JobSpec, inventory: Inventory) -> Reason | None:
    """Return nothing if the job can run on the empty grid, else why it never can."""
    return never(Index(State(inventory=inventory)), spec)


def _of_block(index: Index, ahead: Pass, job: Job, decided: Block, ground: Ground) -> Reason | None:
    if job.reservation is not None:
        return pending.reserved(job, index.state.now_s)
    if decided.code is Why.BEHIND_STRICT and decided.by != job.job_id:
        return pending.behind(decided.by)
    if decided.shortage is not None:
        return Reason(
            code=decided.code,
            sentence=f"waits for quota: {decided.shortage.sentence}",
            remedy=decided.shortage.remedy,
        )
    shape = index.shape(job.spec)
    smallest = min(shape.possible, key=lambda demand: demand.option.plan.world_size, default=None)
    if smallest is None:  # the grid was larger when the job was let in
        return never(index, job.spec)
    seen = survey(index, smallest, ground)
    told = sentences.waiting(job.spec, smallest.option, seen.looks, seen.refusals)
    if decided.code in {Why.WOULD_DELAY, Why.BOOKED}:
        told = pending.kept_back(
            told, decided.code, decided.by, decided.start_s - index.state.now_s
        )
    if job.promised is not None:
        return pending.promised(told, job.promised_s - index.state.now_s)
    if decided.code in {Why.WOULD_DELAY, Why.BOOKED}:
        return told
    if decided.code is Why.OVER_BUDGET:
        return pending.over_budget(told, job, index.state.inventory)
    start_s = next((p.start_s for p in ahead.promises if p.job_id == job.job_id), None)
    return told if start_s is None else pending.promised(told, start_s - index.state.now_s)


def _too_long(index: Index, spec: JobSpec, option: Option) -> Shortage | None:
    """Return what is short if the job needs more accelerator-hours than its queue ever has."""
    queue = index.queues.get(spec.queue)
    if queue is None or not queue.accelerator_hours:
        return None
    return Allowance().shortage(
        queue,
        devices=option.devices,
        predicted_s=min(spec.forecast.duration_s, queue.period_s),
        now=0.0,
    )


def _empty(index: Index) -> Ground:
    return Ground(np.asarray(index.tree.unit_devices), {}, empty=True)


def _remedies(index: Index, spec: JobSpec, option: Option) -> Iterator[str]:
    """Yield changes that would let the job run, smallest first; each but the last was tried."""
    sites = index.state.inventory.sites if index.state.inventory else ()
    changes = [
        *(
            (replace(spec, max_sites=count), f"let it use up to {count} sites")
            for count in range(spec.max_sites + 1, len(sites) + 1)
        ),
        *(
            (
                replace(spec, min_sites=count),
                f"let it run at {sentences.number_of_sites(count)}",
            )
            for count in range(spec.min_sites - 1, 0, -1)
        ),
        (replace(spec, sites=()), "let it use every site"),
        (replace(spec, nodes=()), "let it use every node"),
        (replace(spec, labels={}), "let it use nodes with other labels"),
        (replace(spec, data_required=False), "let it run away from its data"),
        (
            replace(spec, options=(replace(option, memory_bytes=0),)),
            "cut the model further, so that a rank needs less memory",
        ),
        (
            replace(spec, options=(replace(option, groups=()),)),
            "let its groups sit further apart",
        ),
        (
            replace(spec, options=(replace(option, rank_resources=()),)),
            "ask for less of the host for each rank",
        ),
        (replace(spec, ranks_per_node_max=0), "let more of its ranks share a node"),
        *_smaller(index, spec, option),
    ]
    yield from (
        remedy for changed, remedy in changes if changed != spec and index.shape(changed).possible
    )
    kinds = dict.fromkeys(node.accelerator for site in sites for node in site.nodes)
    yield f"add nodes with {option.accelerator}; the grid has {', '.join(kinds) or 'no nodes'}"


def _smaller(index: Index, spec: JobSpec, option: Option) -> Iterator[tuple[JobSpec, str]]:
    """Yield the same job with fewer replica groups: as many as its sites have room for."""
    plan = option.plan
    demand = next(demand for demand in index.shape(spec).demands if demand.option == option)
    looks = survey(index, demand, _empty(index)).looks
    found = sorted((look.found for look in looks), reverse=True)[: max(spec.max_sites, 0)]
    data = sum(found) // (plan.replica_ranks * option.rank_devices)
    if data:
        smaller = option.with_copies(data)
        yield (
            replace(spec, options=(smaller,)),
            f"ask for at most {smaller.devices} {option.accelerator}",
        )
