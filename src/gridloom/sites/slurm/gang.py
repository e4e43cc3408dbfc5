"""From the orders of the tasks that start together at a site to one job of its Slurm (pure).

All of them are one Slurm job with one task on each node. Which of ours a node gets is decided when
it is there, by its number in the step.
"""

import math
from collections.abc import Sequence
from itertools import groupby
from pathlib import PurePath

import msgspec
from msgspec.structs import replace

from gridloom.model.inventory import CPU, SlurmAccess, SlurmContainer
from gridloom.sites.remote.places import Places
from gridloom.sites.slurm.records import Gres
from gridloom.sites.slurm.submission import (
    Component,
    Container,
    Memory,
    Mount,
    Signal,
    Submission,
    Switches,
)
from gridloom.wire.agent import Gang, TaskOrder, TaskRef, gang_directory, task_directory

SCRIPT_FILE = "batch.sh"
JOB_FILE = "job.json"
ACCESS_FILE = "access.json"
LOG_FILE = "slurm.log"
_NAME_MAX = 60
_MIB = 2**20


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """Which Slurm job a gang is.

    Attributes:
        slurm_id: Slurm's id of it.
    """

    slurm_id: int


class GangMark(msgspec.Struct, frozen=True, kw_only=True):
    """What was to be handed in, and where.

    Attributes:
        access: How the site's Slurm is reached.
        submission: What it is asked for; its comment tells the job from all others.
        speaker: Of a batch script: the task that runs it.
        places: Where everything is at a site that sees nothing of ours.
    """

    access: SlurmAccess
    submission: Submission
    speaker: TaskRef | None = None
    places: Places | None = None


def comment(plane: str, task: TaskRef) -> str:
    """Return the comment by which the Slurm job of a task's gang is known again.

    Args:
        plane: Names the control plane among all whose jobs the site may have.
        task: Any of the gang's.
    """
    return f"gridloom:{plane}:{task.job_id}/{task.attempt}/{task.epoch}.{task.life}/{task.site}"


def gang(orders: Sequence[TaskOrder], runs: PurePath, access: SlurmAccess) -> Gang:
    """Return what the supervisors on the nodes must know to tell which of the tasks is theirs."""
    directories = tuple(str(task_directory(runs, order.task)) for order in orders)
    return Gang(directories=directories, network=access.network)


def submission(
    orders: Sequence[TaskOrder], runs: PurePath, access: SlurmAccess, plane: str
) -> Submission:
    """Return what Slurm is asked for.

    Nodes with as many devices each are one component; more than one make a heterogeneous job.
    """
    first = orders[0]
    alike = groupby(orders, key=lambda order: len(order.ranks[0].devices))
    directory = gang_directory(runs, first.task)
    return replace(
        of_access(access, runs),
        components=tuple(_component(tuple(part), access) for _, part in alike),
        name=f"gridloom-{first.task.job_id}"[:_NAME_MAX],
        comment=comment(plane, first.task),
        signal=Signal(before_s=math.ceil(first.grace_s)),
        requeue=False,  # whether and where it starts again is gridloom's to decide
        directory=str(directory),
        stdout=str(directory / LOG_FILE),
        open_mode="append",
        export="ALL",
        # With sbatch jobs get what its own process has; through slurmrestd what they are given
        environment=access.environment if access.rest else {},
    )


def of_access(access: SlurmAccess, place: PurePath) -> Submission:
    """Return what every job of a site asks for, whatever it runs on.

    Args:
        access: How jobs are handed in there.
        place: Where its files are, which a container must see, too.
    """
    return Submission(
        account=access.account,
        qos=access.qos,
        reservation=access.reservation,
        time_limit_min=math.ceil(access.time_limit_s / 60) or None,
        container=_container(access.container, str(place)) if access.container else None,
    )


def interpreter(access: SlurmAccess, here: str) -> str:
    """Return the Python that runs gridloom there: as was said, the site's own, or as ``here``."""
    return access.python or ("python3" if access.container or access.ssh else here)


def _container(said: SlurmContainer, place: str) -> Container:
    mounts = {place: place} | said.mounts
    return Container(
        engine=said.engine,
        image=said.image,
        mounts=tuple(Mount(source=source, target=target) for target, source in mounts.items()),
        gpus=said.gpus,
    )


def component(
    access: SlurmAccess, accelerator: str, *, devices: int, nodes: int, nodelist: Sequence[str] = ()
) -> Component:
    """Return nodes that are all alike, as a site's jobs ask for them.

    Args:
        access: How jobs are handed in there.
        accelerator: Kind of the devices.
        devices: How many of them on each node.
        nodes: How many nodes.
        nodelist: Which; none for whichever Slurm chooses.
    """
    gres: tuple[Gres, ...] = ()
    if accelerator != CPU:
        name, _, kind = access.gres.get(accelerator, "gpu").partition(":")
        gres = (Gres(name=name, type=kind, count=devices),)
    wait_min = math.ceil(access.switches_wait_s / 60) or None
    # Alone on a node a job would still have no more than the usual share of its memory
    mib = access.memory_bytes // _MIB if access.memory_bytes else 0 if access.exclusive else None
    return Component(
        nodes=nodes,
        partition=access.partition,
        constraint=access.constraint,
        memory=Memory(mib=mib) if mib is not None else None,
        switches=Switches(count=access.switches, wait_min=wait_min) if access.switches else None,
        segment=access.segment or None,
        exclusive="node" if access.exclusive else "",
        nodelist=tuple(nodelist),
        gres=gres,
        cpus_per_task=devices if accelerator == CPU else None,
    )


def _component(orders: Sequence[TaskOrder], access: SlurmAccess) -> Component:
    first = orders[0]
    pinned = [order.task.node for order in orders] if access.placement == "pin" else []
    return component(
        access,
        first.accelerator,
        devices=len(first.ranks[0].devices),
        nodes=len(orders),
        nodelist=pinned,
    )


def supervisor_argv(python: str, directory: PurePath) -> tuple[str, ...]:
    """Return what each node runs: the supervisor of whichever task of the gang is its own."""
    return (python, "-P", "-m", "gridloom.agent", "--gang", str(directory))
