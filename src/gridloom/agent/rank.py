"""What one rank of a task is started with: its command line and its environment (pure)."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from gridloom.model.inventory import CPU
from gridloom.wire import launch
from gridloom.wire.agent import TASK_VARIABLE, RankOrder, Rendezvous, TaskOrder

_ACTIVE = ("VIRTUAL_ENV", "CONDA_PREFIX")
_OF_BATCH = (
    "GRIDLOOM_ATTEMPT", "GRIDLOOM_SITE", "GRIDLOOM_RUN_DIR", "GRIDLOOM_REPORT_FILE",
    "GRIDLOOM_GRACE_S",
)  # fmt: skip
"""What of the launch contract a batch script is told."""


def told_where(order: TaskOrder, rendezvous: Rendezvous, file: Path) -> TaskOrder:
    """Return an order whose ranks know where the tasks of their attempt are.

    Args:
        order: The order.
        rendezvous: Where they are.
        file: Where it stands when one of them is elsewhere.
    """
    replace, addresses = msgspec.structs.replace, rendezvous.addresses
    ranks = tuple(
        replace(
            one,
            rank=replace(
                one.rank,
                node_addresses=addresses,
                master_address=addresses[0],
                master_port=rendezvous.port,
                rendezvous_file=str(file),
            ),
        )
        for one in order.ranks
    )
    return replace(order, ranks=ranks)


def rank_environment(
    order: TaskOrder, rank_order: RankOrder, base: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of one rank: the node's, gridloom's, the job's, the contract's."""
    devices = ",".join(str(device) for device in rank_order.devices)
    # Where the site's own scheduler gives out devices it has said which
    visible = {} if order.accelerator == CPU or not devices else {"CUDA_VISIBLE_DEVICES": devices}
    contract = rank_order.rank.environment()
    # From inside a job of an array another job may be handed in, which is none
    base = {name: value for name, value in base.items() if name != launch.ARRAY_INDEX_VARIABLE}
    if order.batch is not None:
        # Who it is among others it would take for itself, and hand to all that it starts
        contract = {name: contract[name] for name in _OF_BATCH}
        return {**base, **order.env, **visible, **contract, TASK_VARIABLE: order.task.token}
    ours = {"PYTHONUNBUFFERED": "1", **_search_path(base)}
    if "OMP_NUM_THREADS" not in base:
        ours["OMP_NUM_THREADS"] = "1"  # as torchrun does: ranks share the node's cores
    return {**base, **ours, **order.env, **visible, **contract, TASK_VARIABLE: order.task.token}


def rank_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command line of a rank; our own training program runs under our interpreter."""
    if tuple(argv) == launch.RECIPE_ARGV:
        return (sys.executable, "-P", *argv[1:])  # no file of the workdir shadows a module
    return tuple(argv)


def _search_path(base: Mapping[str, str]) -> dict[str, str]:
    """Let `python` mean the active environment's, or ours when none is active."""
    if any(base.get(name) for name in _ACTIVE):
        return {}
    ours = str(Path(sys.executable).parent)
    return {"PATH": os.pathsep.join([ours, base.get("PATH", os.defpath)])}
