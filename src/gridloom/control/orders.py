"""From the intention to start an attempt, or a site of one, to the orders of its tasks (pure)."""

from collections.abc import Mapping
from pathlib import PurePath

from msgspec.structs import replace

from gridloom.core.turn import LeaseTerms
from gridloom.model.action import RestartSite, StartAttempt
from gridloom.model.inventory import Site
from gridloom.model.life import TaskPlacement
from gridloom.model.parallel import SiteSync
from gridloom.model.spec import JobSpec
from gridloom.wire.agent import BATCH_FILE, RankOrder, TaskOrder, TaskRef, life_directory
from gridloom.wire.launch import Rank

Start = StartAttempt | RestartSite
"""What starts: all tasks of an attempt, or those of one site of it."""
_LAPSE_GRACE_SHARE = 0.6
"""Share of the margin after a lapsed lease in which processes may save; then they are killed."""


def task_refs(start: Start) -> tuple[TaskRef, ...]:
    """Return the names of the tasks that are to start, in rank order."""
    return tuple(_ref(start, task) for task in start.placement.tasks if _starts(start, task))


def task_orders(
    start: Start,
    spec: JobSpec,
    run_dir: PurePath,
    *,
    master_port: int,
    sites: Mapping[str, Site],
    terms: LeaseTerms,
) -> tuple[TaskOrder, ...]:
    """Return what each supervisor that is to start is told, in rank order.

    Args:
        start: The intention.
        spec: The job.
        run_dir: The job's run directory.
        master_port: Where rank 0 will listen.
        sites: The grid's, by name; some have leases of their own.
        terms: How long leases last elsewhere.
    """
    orders = []
    first_rank = 0
    for node_rank, task in enumerate(start.placement.tasks):
        if not _starts(start, task):
            first_rank += len(task.devices)
            continue
        ranks = tuple(
            RankOrder(
                rank=_rank(
                    start,
                    run_dir,
                    node_rank=node_rank,
                    local_rank=local_rank,
                    master_port=master_port,
                    grace_s=spec.grace_s,
                ),
                # Every rank sees all devices of its task and picks by LOCAL_RANK, as under torchrun
                devices=task.devices,
                log_file=str(log_path(run_dir, start.attempt, first_rank + local_rank)),
            )
            for local_rank in range(1 if spec.batch is not None else len(task.devices))
        )
        first_rank += len(task.devices)
        lease_s = sites[task.site].lease_s or terms.lease_s
        orders.append(
            TaskOrder(
                task=_ref(start, task),
                argv=_argv(spec, run_dir),
                workdir=spec.program.workdir,
                env=spec.program.env,
                accelerator=start.placement.option.accelerator,
                ranks=ranks,
                lease_s=lease_s,
                lease_until_s=start.lease_until_s - terms.lease_s + lease_s,
                lapse_grace_s=terms.kill_margin_s * _LAPSE_GRACE_SHARE,
                grace_s=spec.grace_s,
                batch=spec.batch,
            )
        )
    return tuple(orders)


def log_path(run_dir: PurePath, attempt: int, rank: int) -> PurePath:
    """Return where the output of one rank of one attempt goes."""
    return run_dir / "logs" / f"attempt-{attempt}" / f"rank-{rank}.log"


def _argv(spec: JobSpec, run_dir: PurePath) -> tuple[str, ...]:
    script = () if spec.batch is None else (str(run_dir / BATCH_FILE),)
    return (*spec.program.argv, *script)


def _starts(start: Start, task: TaskPlacement) -> bool:
    return isinstance(start, StartAttempt) or task.site == start.site


def _life(start: Start) -> int:
    return start.life if isinstance(start, RestartSite) else 1


def _ref(start: Start, task: TaskPlacement) -> TaskRef:
    return TaskRef(
        job_id=start.job_id,
        attempt=start.attempt,
        epoch=start.epoch,
        site=task.site,
        node=task.node,
        life=_life(start),
    )


def _rank(
    start: Start,
    run_dir: PurePath,
    *,
    node_rank: int,
    local_rank: int,
    master_port: int,
    grace_s: float,
) -> Rank:
    tasks = start.placement.tasks
    task = tasks[node_rank]
    number = sum(len(one.devices) for one in tasks[:node_rank]) + local_rank
    reports = life_directory(run_dir, start.attempt, _life(start))
    plan = start.placement.option.plan
    return Rank(
        job_id=start.job_id,
        attempt=start.attempt,
        epoch=start.epoch,
        rank=number,
        world_size=sum(len(one.devices) for one in tasks),
        local_rank=local_rank,
        local_world_size=len(task.devices),
        node_rank=node_rank,
        node_count=len(tasks),
        site=task.site,
        site_ranks=start.placement.site_ranks(),
        node_addresses=tuple(one.address for one in tasks),
        node_ranks=tuple(len(one.devices) for one in tasks),
        master_address=tasks[0].address,
        master_port=master_port,
        restart_count=start.restart_count,
        run_dir=str(run_dir),
        report_file=str(reports / f"rank-{number}.jsonl"),
        grace_s=grace_s,
        sync=plan.site_sync,
        plan=replace(plan, site_sync=SiteSync()),
    )
