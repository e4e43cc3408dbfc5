"""Orders of tasks at a site under Slurm, in few words."""

from pathlib import Path
from typing import Any

from gridloom.model.inventory import CPU
from gridloom.wire.agent import RankOrder, TaskOrder, TaskRef
from gridloom.wire.launch import Rank


def ref(node: str = "n1", **more: Any) -> TaskRef:
    said: dict[str, Any] = {"job_id": "train-abc", "attempt": 2, "epoch": 5, "site": "hpc"}
    return TaskRef(**said | more, node=node)


def order(runs: Path, node: str = "n1", devices: int = 2, **more: Any) -> TaskOrder:
    """Return the order of a task with one rank a device."""
    said: dict[str, Any] = {
        "task": ref(node),
        "argv": ("train",),
        "workdir": "/",
        "env": {},
        "accelerator": CPU,
        "ranks": tuple(_rank(runs, number, devices) for number in range(devices)),
        "lease_s": 6.0,
        "lease_until_s": 1006.0,
        "lapse_grace_s": 2.0,
        "grace_s": 29.5,
        "meets": (29400, 29999),
    }
    return TaskOrder(**said | more)


def _rank(runs: Path, number: int, count: int) -> RankOrder:
    run_dir = runs / "train-abc"
    rank = Rank(
        job_id="train-abc",
        attempt=2,
        epoch=5,
        rank=number,
        world_size=count,
        local_rank=number,
        local_world_size=count,
        node_rank=0,
        node_count=1,
        site="hpc",
        site_ranks=(("hpc", count),),
        node_addresses=("",),
        master_address="",
        master_port=0,
        restart_count=0,
        run_dir=str(run_dir),
        report_file=str(run_dir / f"rank-{number}.jsonl"),
        grace_s=29.5,
    )
    log_file = str(run_dir / "logs" / f"rank-{number}.log")
    return RankOrder(rank=rank, devices=tuple(range(count)), log_file=log_file)
