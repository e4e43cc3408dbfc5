"""From the intention to start an attempt to the orders of its tasks (pure)."""

from pathlib import PurePath

from msgspec.structs import replace

from gridloom.model.action import StartAttempt
from gridloom.model.parallel import SiteSync
from gridloom.model.spec import JobSpec
from gridloom.wire.agent import RankOrder, TaskOrder, TaskRef
from gridloom.wire.launch import Rank


def task_refs(start: StartAttempt) -> tuple[TaskRef, ...]:
    """Return the names of the tasks of an attempt, in rank order."""
    return tuple(
        TaskRef(
            job_id=start.job_id,
            attempt=start.attempt,
            epoch=start.epoch,
            site=task.site,
            node=task.node,
        )
        for task in start.placement.tasks
    )


def task_orders(
    start: StartAttempt,
    spec: JobSpec,
    run_dir: PurePath,
    *,
    master_port: int,
    lease_s: float,
    lapse_grace_s: float,
) -> tuple[TaskOrder, ...]:
    """Return what each supervisor of the attempt is told, in rank order.

    Args:
        start: The intention.
        spec: The job.
        run_dir: The job's run directory.
        master_port: Where rank 0 will listen.
        lease_s: How long a renewal lasts.
        lapse_grace_s: Seconds between a lapsed lease and the kill.
    """
    orders = []
    first_rank = 0
    for node_rank, task in enumerate(start.placement.tasks):
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
            for local_rank in range(len(task.devices))
        )
        first_rank += len(task.devices)
        orders.append(
            TaskOrder(
                task=task_refs(start)[node_rank],
                argv=spec.program.argv,
                workdir=spec.program.workdir,
                env=spec.program.env,
                accelerator=start.placement.option.accelerator,
                ranks=ranks,
                lease_s=lease_s,
                lease_until_s=start.lease_until_s,
                lapse_grace_s=lapse_grace_s,
                grace_s=spec.grace_s,
            )
        )
    return tuple(orders)


def log_path(run_dir: PurePath, attempt: int, rank: int) -> PurePath:
    """Return where the output of one rank of one attempt goes."""
    return run_dir / "logs" / f"attempt-{attempt}" / f"rank-{rank}.log"


def _rank(
    start: StartAttempt,
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
    reports, plan = run_dir / "attempts" / str(start.attempt), start.placement.option.plan
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
