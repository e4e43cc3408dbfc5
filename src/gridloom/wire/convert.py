"""Documents to nouns: a job file to what the core and the planner see, a grid file to sites."""

from typing import Any

from msgspec.structs import replace

from gridloom.model.booking import Booking
from gridloom.model.inventory import Inventory, Link, Site
from gridloom.model.parallel import SiteSync
from gridloom.model.policy import Policy, combined
from gridloom.model.quota import Cohort, Queue
from gridloom.model.recipe import CheckpointPolicy, GptRecipe, TextData, Training
from gridloom.model.spec import (
    Budget,
    Dependency,
    Forecast,
    GroupNeed,
    JobSpec,
    Option,
    Program,
    RetryPolicy,
    ShapeRequest,
)
from gridloom.wire.command import Command, parse_command
from gridloom.wire.documents_check import Document
from gridloom.wire.documents_names import node_domains
from gridloom.wire.grid_document import GridDocument, SiteDocument
from gridloom.wire.grid_nodes import GIB, site_levels, site_nodes
from gridloom.wire.job_document import JobDocument, steps_of
from gridloom.wire.kube_document import to_kube_access
from gridloom.wire.launch import RECIPE_ARGV
from gridloom.wire.model_document import to_shape
from gridloom.wire.parallel_document import is_open, to_plan
from gridloom.wire.policy_document import POLICY_NAMES, PolicyDocument
from gridloom.wire.queue_document import CohortDocument, QueueDocument
from gridloom.wire.slurm_document import to_access
from gridloom.wire.sync_document import to_sync

_WARMUP_STEPS_MAX = 20
_PERIOD_S = 30 * 86400.0
_LEASE_S = 30.0
"""Of sites behind a shared file system or a network, whose hitches are no reason to stop."""
_SSH_LEASE_S = 60.0
"""Login hosts and the networks to them are away for longer than those of one machine."""
_NEARNESS = {"island": 0, "node": 1, "site": 3}
"""How near together levels are; those that sites name themselves lie between node and site."""


def to_inventory(grid: GridDocument) -> Inventory:
    """Return what ``grid`` says there is, and by which rules it is shared."""
    return Inventory(
        sites=tuple(_site(name, site) for name, site in grid.sites.items()),
        links=tuple(
            Link(
                between=(link.between[0], link.between[1]),
                bandwidth_bits_per_s=link.bandwidth or 0.0,
                latency_s=link.latency or 0.0,
                loss=link.loss,
            )
            for link in grid.links
        ),
        currency=grid.currency,
        queues=tuple(_queue(name, queue) for name, queue in grid.queues.items()),
        cohorts=tuple(_cohort(name, cohort) for name, cohort in grid.cohorts.items()),
        policy=_policy(grid.policy),
    )


def to_bookings(grid: GridDocument) -> tuple[Booking, ...]:
    """Return what is spoken for in ``grid``, which is handed in as facts of its own."""
    return tuple(
        Booking(
            name=booking.name,
            start_s=booking.start,
            end_s=booking.end,
            nodes=(*booking.sites, *node_domains(booking.nodes)),
            queues=booking.queues,
            sentence=booking.sentence or "",
        )
        for booking in grid.bookings
    )


def to_request(job: JobDocument) -> ShapeRequest:
    """Return what ``job`` says about its shape, for the planner."""
    wanted = job.resources
    return ShapeRequest(
        accelerator=wanted.accelerators.kind,
        count_min=wanted.accelerators.least,
        count_max=wanted.accelerators.most,
        sites=wanted.sites,
        min_sites=wanted.min_sites,
        max_sites=_max_sites(job),
        cut="auto" if job.recipe and is_open(job.parallel) else to_plan(job.parallel),
        data=job.parallel.data,
        sync=to_sync(job.sync),
        shape=to_shape(job.model) if job.model else None,
        training=_training(job) if job.recipe else None,
    )


def to_job_spec(
    job: JobDocument, options: tuple[Option, ...], *, workdir: str, checkpoint_directory: str
) -> JobSpec:
    """Return ``job`` as the core sees it.

    Args:
        job: A document without problems.
        options: What the planner made of ``to_request(job)``; they get the job's ``placement``
            and what its ranks need of their hosts (``with_needs``).
        workdir: Absolute path in which every rank starts.
        checkpoint_directory: Absolute path for the recipe's checkpoints.
    """
    command = Command(RECIPE_ARGV) if job.run is None else parse_command(job.run)
    wanted = job.resources
    return JobSpec(
        name=job.name,
        program=Program(argv=command.argv, workdir=workdir, env=dict(job.env)),
        options=with_needs(options, job),
        sites=wanted.sites,
        min_sites=wanted.min_sites,
        max_sites=_max_sites(job),
        priority=job.priority,
        grace_s=job.grace,
        retry=_retry(job, command),
        budget=Budget(cost_max=job.budget.max_cost or 0.0, run_s_max=job.budget.max_time or 0.0),
        recipe=_recipe(job, checkpoint_directory) if job.recipe else None,
        queue=job.queue or "",
        user=job.user or "",
        forecast=_forecast(job),
        deadline_s=job.deadline.at_s if job.deadline else 0.0,
        after=tuple(Dependency(job_id=other.job, kind=other.when) for other in job.after),
        elastic=job.elastic,
        preemptible=job.preemptible,
        spares=wanted.spares,
        on_loss=job.on_loss,
        nodes=tuple(node_domains(wanted.nodes)),
        labels=dict(sorted(wanted.labels.items())),
        ranks_per_node_max=wanted.ranks_per_node_max or 0,
        data_sites=job.data.sites,
        data_required=job.data.required,
    )


def deadline_s(job: JobDocument, submitted_s: float) -> float:
    """Return when ``job``, handed in at ``submitted_s``, should be done; 0 for no such time.

    ``to_job_spec`` knows only a deadline that is a time; one that is a duration begins with the
    submission, so that whoever hands the job in puts it into the spec.
    """
    return job.deadline.resolved_s(submitted_s) if job.deadline else 0.0


def with_needs(options: tuple[Option, ...], job: JobDocument) -> tuple[Option, ...]:
    """Return ``options`` with what ``job`` says of its groups of ranks and of their hosts.

    What an option already says of a group of as many ranks gives way to the job's own words.
    """
    resources = _rank_resources(job)
    return tuple(
        replace(
            option, groups=_groups(option, job), rank_resources=resources or option.rank_resources
        )
        for option in options
    )


def _max_sites(job: JobDocument) -> int:
    wanted = job.resources
    return wanted.max_sites or max(len(wanted.sites), wanted.min_sites)


def _retry(job: JobDocument, command: Command) -> RetryPolicy:
    if job.retry is not None:
        return RetryPolicy(
            max_restarts=job.retry.max_restarts,
            on=job.retry.on,
            backoff_s=job.retry.backoff,
            backoff_s_max=job.retry.backoff_max,
        )
    if command.max_restarts is not None:
        return RetryPolicy(max_restarts=command.max_restarts, on="any")
    return RetryPolicy()


def _recipe(job: JobDocument, checkpoint_directory: str) -> GptRecipe:
    assert job.model is not None
    sync = to_sync(job.sync)
    return GptRecipe(
        shape=to_shape(job.model),
        data=TextData(text=job.data.text, held_out=job.data.held_out),
        training=_training(job),
        checkpoint=CheckpointPolicy(
            directory=checkpoint_directory,
            interval_steps=job.checkpoint.interval,
            keep=job.checkpoint.keep,
        ),
        sync=SiteSync() if sync == "auto" else sync,
        device_flops=job.device_flops,
    )


def _training(job: JobDocument) -> Training:
    optimizer, batch, length = job.optimizer, job.global_batch or 1, job.sequence_length or 1
    steps = steps_of(job.steps, job.tokens, batch * length)
    least, warmup = optimizer.min_learning_rate, optimizer.warmup_steps
    return Training(
        steps=steps,
        global_batch=batch,
        sequence_length=length,
        micro_batch=job.micro_batch,
        learning_rate=optimizer.learning_rate,
        min_learning_rate=optimizer.learning_rate / 10 if least is None else least,
        warmup_steps=min(_WARMUP_STEPS_MAX, steps // 10) if warmup is None else warmup,
        weight_decay=optimizer.weight_decay,
        beta1=optimizer.beta1,
        beta2=optimizer.beta2,
        clip_norm=optimizer.clip_norm,
        precision=job.precision,
        seed=job.seed,
    )


def _forecast(job: JobDocument) -> Forecast:
    said = job.forecast
    return Forecast(
        duration_s=said.duration or 0.0,
        spread=said.spread,
        checkpoint_s=said.checkpoint_time,
        restart_s=said.restart_time,
        checkpoint_every_s=said.checkpoint_every,
    )


def _rank_resources(job: JobDocument) -> tuple[tuple[str, int], ...]:
    """Return what each rank needs of its host, in order of names; GiB are rounded up."""
    wanted = job.resources
    amounts = dict(wanted.per_rank)
    if wanted.cpus_per_rank:
        amounts["cpus"] = wanted.cpus_per_rank
    if wanted.memory_per_rank:
        amounts["memory_gib"] = -(-int(wanted.memory_per_rank) // GIB)
    return tuple(sorted(amounts.items()))


def _groups(option: Option, job: JobDocument) -> tuple[GroupNeed, ...]:
    """Return what the option's groups of ranks need, smallest first.

    A single rank is always together. Of two needs for equally many ranks the required one stays,
    else the nearer one; both stay for the whole gang, where none includes the other for certain.
    """
    plan, said = option.plan, job.placement
    wishes = (
        (plan.tensor, said.tensor),
        (plan.replica_ranks, said.replica),
        (plan.world_size, said.gang),
    )
    needs = [
        GroupNeed(ranks=ranks, level=group.level, required=group.required)
        for ranks, group in wishes
        if group is not None and ranks * option.rank_devices > 1
    ]
    if not needs:
        return option.groups
    own = {need.ranks for need in needs}
    needs += [need for need in option.groups if need.ranks not in own]
    needs.sort(key=lambda need: (need.ranks, not need.required, _NEARNESS.get(need.level, 2)))
    return tuple(
        need
        for i, need in enumerate(needs)
        if i == 0 or need.ranks != needs[i - 1].ranks or need.ranks == plan.world_size
    )


def _site(name: str, site: SiteDocument) -> Site:
    return Site(
        name=name,
        kind=site.kind,
        nodes=site_nodes(name, site),
        price_per_accelerator_hour=site.price_per_accelerator_hour,
        power_w_per_accelerator=site.power_per_accelerator,
        ports=site.ports,
        levels=site_levels(site),
        queues=site.queues,
        carbon_g_per_kwh=site.carbon,
        lease_s=_lease_s(site),
        slurm=to_access(site.slurm) if site.slurm else None,
        kubernetes=to_kube_access(site.kubernetes) if site.kubernetes else None,
    )


def _lease_s(site: SiteDocument) -> float:
    if site.lease is not None:
        return site.lease
    if site.kind == "local":
        return 0.0
    return _SSH_LEASE_S if site.slurm is not None and site.slurm.ssh is not None else _LEASE_S


def _queue(name: str, queue: QueueDocument) -> Queue:
    return Queue(
        name=name,
        cohort=queue.cohort or "",
        nominal=queue.nominal,
        borrow_max=queue.borrow_max,
        lend_max=queue.lend_max,
        weight=queue.weight,
        order=queue.order,
        reclaim=queue.reclaim,
        accelerator_hours=queue.accelerator_hours or 0.0,
        period_s=queue.period or _PERIOD_S,
    )


def _cohort(name: str, cohort: CohortDocument) -> Cohort:
    return Cohort(
        name=name,
        parent=cohort.parent or "",
        nominal=cohort.nominal or {},
        borrow_max=cohort.borrow_max,
        lend_max=cohort.lend_max,
        weight=cohort.weight,
    )


def _policy(said: PolicyDocument) -> Policy:
    """Return the policy that ``base`` names, with what is said beside it."""
    policy = combined(said.base)
    return replace(
        policy,
        **_said(said),
        weights=replace(policy.weights, **_said(said.weights)),
        preemption=replace(policy.preemption, **_said(said.preemption)),
    )


def _said(section: Document) -> dict[str, Any]:
    """Return what a section of the policy says, by the names of the model."""
    return {
        POLICY_NAMES.get(name, name): getattr(section, name)
        for name in sorted(section.model_fields_set - {"base", "weights", "preemption"})
    }
