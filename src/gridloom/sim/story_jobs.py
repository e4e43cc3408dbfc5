"""The jobs of a story: from what it says of them to what the scheduler and the world are told."""

import math

from gridloom.model.inventory import CPU
from gridloom.model.parallel import ParallelPlan
from gridloom.model.spec import (
    Budget,
    Dependency,
    Forecast,
    GroupNeed,
    JobSpec,
    Option,
    Program,
    RetryPolicy,
    Speed,
)
from gridloom.sim.workload_nouns import Arrival
from gridloom.wire.story_job import UNKNOWN, NeedDocument, SubmitDocument
from gridloom.wire.story_names import Places, names_like

_GPU = "gpu"
_PROGRAM = Program(argv=("train",), workdir="/")
_NEAR = {"island": 0, "node": 1, "site": 3}
"""How near together levels are; those of a site's own lie between node and site."""


def arrivals(
    job: SubmitDocument, at_s: float, origin_s: float, *, places: Places, earlier: list[str]
) -> list[Arrival]:
    """Return the jobs that one ``submit`` stands for.

    Args:
        job: What it says, with the story's defaults.
        at_s: When, in the world's time.
        origin_s: The beginning of the story in the world's time.
        places: The story's nodes and sites.
        earlier: Jobs that were handed in before, or are then.
    """
    spec = _spec(job, origin_s, places, earlier)
    work_s = math.inf if job.duration is None else job.duration
    return [
        Arrival(
            job_id=name,
            submit_s=at_s,
            spec=spec,
            work_s=work_s,
            fail_after_s=job.fails_after or 0.0,
        )
        for name in job.names
    ]


def _spec(job: SubmitDocument, origin_s: float, places: Places, earlier: list[str]) -> JobSpec:
    sizes = job.tasks if job.gang else (1,)
    if job.options:
        options = [_option(job, need, need.tasks or sizes[0]) for need in job.options]
    else:
        options = [_option(job, job, tasks) for tasks in sizes]
    return JobSpec(
        name=job.name,
        program=_PROGRAM,
        options=tuple(options),
        sites=job.sites,
        min_sites=job.min_sites,
        max_sites=job.max_sites or job.min_sites,
        priority=job.priority,
        grace_s=job.grace,
        retry=RetryPolicy(max_restarts=job.retries, on=job.retry_on, backoff_s=job.backoff),
        budget=Budget(cost_max=job.max_cost or 0.0, run_s_max=job.max_time or 0.0),
        queue=job.queue or "",
        forecast=_forecast(job),
        deadline_s=origin_s + job.deadline if job.deadline else 0.0,
        after=tuple(
            Dependency(job_id=name, kind=kind)
            for pattern, kind in job.after
            for name in names_like(pattern, earlier)
        ),
        elastic=len(sizes) > 1 or len({option.plan.world_size for option in options}) > 1,
        preemptible=job.preemptible,
        spares=job.spares,
        on_loss=job.on_loss,
        nodes=tuple(domain for name in job.pin if (domain := places.domain(name))),
        labels=dict(sorted(job.labels.items())),
        ranks_per_node_max=1 if job.one_per_node else job.per_node_max or 0,
        data_sites=job.data,
        data_required=job.data_required,
    )


def _forecast(job: SubmitDocument) -> Forecast:
    duration_s = job.duration if job.forecast is None else job.forecast
    return Forecast(
        duration_s=0.0 if duration_s in (None, UNKNOWN) else duration_s or 0.0,
        spread=job.spread,
        checkpoint_s=job.save,
        restart_s=job.restart,
        checkpoint_every_s=job.checkpoint_every,
    )


def _option(job: SubmitDocument, need: NeedDocument, tasks: int) -> Option:
    kind, devices, host = _devices(need, job)
    return Option(
        accelerator=kind,
        plan=ParallelPlan(data=tasks),
        memory_bytes=int(need.memory or job.memory or 0),
        step_s=need.step or 0.0,
        groups=_groups(job, tasks),
        speeds=_speeds(need),
        rank_devices=devices,
        rank_resources=tuple(sorted(host.items())),
    )


def _devices(need: NeedDocument, job: SubmitDocument) -> tuple[str, int, dict[str, int]]:
    """Return the kind and number of a task's devices, and what it needs of the host."""
    host = {**job.resources, **need.resources}
    if need.devices is not None or need.gpus is not None:
        if need.cpus is not None:
            host["cpus"] = need.cpus
        if need.devices is not None:
            return need.devices.kind, need.devices.least, host
        return _GPU, need.gpus or 1, host
    return CPU, need.cpus or 1, host


def _groups(job: SubmitDocument, tasks: int) -> tuple[GroupNeed, ...]:
    """Return what consecutive ranks need, smallest group first."""
    said = [(level, ranks, True) for level, ranks in (job.together or {}).items()]
    said += [(level, ranks, False) for level, ranks in (job.prefer or {}).items()]
    if job.within is not None:
        said.append((job.within, 0, True))
    needs = [
        GroupNeed(ranks=ranks or tasks, level=level, required=required)
        for level, ranks, required in said
        if ranks <= tasks
    ]
    return tuple(sorted(needs, key=lambda need: (need.ranks, not need.required, _near(need))))


def _near(need: GroupNeed) -> int:
    return _NEAR.get(need.level, 2)


def _speeds(need: NeedDocument) -> tuple[Speed, ...]:
    speeds = [Speed(level=level, step_s=step_s) for level, step_s in need.steps.items()]
    return tuple(sorted(speeds, key=lambda speed: speed.step_s))
