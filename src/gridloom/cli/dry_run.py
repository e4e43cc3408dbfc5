"""What each site's scheduler would be handed for a job, without handing it in."""

import shlex
import sys
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gridloom.base.errors import InputError
from gridloom.cli.handin import expected_start
from gridloom.cli.prepare import Prepared
from gridloom.cli.settings import Settings
from gridloom.control.orders import task_orders
from gridloom.core.turn import LeaseTerms
from gridloom.model.inventory import Site, SlurmAccess
from gridloom.sites.kube.gang import FORMS
from gridloom.sites.kube.gang import submission as kube_submission
from gridloom.sites.kube.render import manifests, to_yaml
from gridloom.sites.local.render import supervisor_argv
from gridloom.sites.slurm import command
from gridloom.sites.slurm.far import far_places
from gridloom.sites.slurm.hand_in import handed_in
from gridloom.wire.agent import TaskOrder, task_directory


class Handout(msgspec.Struct, frozen=True, kw_only=True):
    """What one site's scheduler would be handed.

    Attributes:
        site: The site.
        kind: Its kind.
        nodes: Those that gridloom would choose; the site may choose others of the same kind.
        through: What it would be handed to.
        commands: What would be run here, each as its words.
        text: What the command reads, or the API gets; empty for nothing.
    """

    site: str
    kind: str
    nodes: tuple[str, ...]
    through: str
    commands: tuple[tuple[str, ...], ...] = ()
    text: str = ""


def handouts(prepared: Prepared, settings: Settings, python: str = "") -> tuple[Handout, ...]:
    """Return what each site would be handed if the job had the grid to itself.

    Args:
        prepared: The job.
        settings: Where run directories would be.
        python: The interpreter that runs here; empty for our own.

    Raises:
        InputError: A site cannot be asked for what the job needs.
    """
    start = expected_start(prepared)
    sites = {site.name: site for site in prepared.grid.inventory.sites}
    first = sites[start.placement.tasks[0].site]
    orders = task_orders(
        start,
        prepared.spec,
        settings.runs / prepared.job_id,
        master_port=first.ports[0],
        sites=sites,
        terms=LeaseTerms(),
    )
    makers: dict[str, _Maker] = {"local": _local, "slurm": _slurm, "kubernetes": _kubernetes}
    found = []
    for name, group in groupby(orders, key=lambda order: order.task.site):
        together = tuple(group)
        made = makers[sites[name].kind](
            sites[name], together, settings.runs.absolute(), python or sys.executable
        )
        found.append(replace(made, nodes=tuple(order.task.node for order in together)))
    return tuple(found)


def as_text(handout: Handout) -> str:
    """Return it for a person: what is said about it is a comment, the rest is what it is."""
    about = f"# {handout.site} ({handout.kind}), through {handout.through}"
    lines = [about, f"# nodes: {', '.join(handout.nodes)}", *map(shlex.join, handout.commands)]
    return "\n".join(lines) + "\n" + handout.text


_Maker = Callable[[Site, Sequence[TaskOrder], Path, str], Handout]


def _local(site: Site, orders: Sequence[TaskOrder], runs: Path, python: str) -> Handout:
    places = [task_directory(runs, order.task) for order in orders]
    commands = tuple(supervisor_argv(python, place) for place in places)
    return Handout(
        site=site.name, kind=site.kind, nodes=(), through="this machine", commands=commands
    )


def _slurm(site: Site, orders: Sequence[TaskOrder], runs: Path, python: str) -> Handout:
    access = site.slurm or SlurmAccess()
    script = handed_in(orders, runs, access, python, far_places(access, orders, runs)).script
    variables = [f"{name}={value}" for name, value in access.environment.items()]
    words = (*(("env", *variables) if variables else ()), *command.sbatch())
    far = f" at {access.ssh.host}" if access.ssh is not None else ""
    return Handout(
        site=site.name,
        kind=site.kind,
        nodes=(),
        through=access.rest.url if access.rest else f"sbatch{far}",
        commands=() if access.rest else (words,),
        text=script,
    )


def _kubernetes(site: Site, orders: Sequence[TaskOrder], runs: Path, _: str) -> Handout:
    access = site.kubernetes
    if access is None:
        raise InputError(f"site {site.name} does not say how jobs are handed in")
    objects = manifests(kube_submission(orders, runs, access), FORMS[access.workload])
    return Handout(
        site=site.name,
        kind=site.kind,
        nodes=(),
        through=f"namespace {access.namespace} of {access.context or 'the current context'}",
        text=to_yaml(objects),
    )
