"""Asks a Slurm all that a look at a site needs: only questions, nothing is changed."""

import os
import pwd
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby
from pathlib import PurePath
from typing import TypeVar

from msgspec.structs import replace

from gridloom.base.clock import Clock
from gridloom.base.errors import InputError, SiteError
from gridloom.model.inventory import Node, Site, SlurmAccess
from gridloom.sites.slurm import command, facts
from gridloom.sites.slurm.client import SlurmClient
from gridloom.sites.slurm.engine import AwayError, SlurmEngine
from gridloom.sites.slurm.facts import Facts, Trial
from gridloom.sites.slurm.gang import component, of_access
from gridloom.sites.slurm.inventory import Cluster
from gridloom.sites.slurm.parse_queue import squeue
from gridloom.sites.slurm.records import Topology
from gridloom.sites.slurm.relaxed import left_out, relaxed
from gridloom.sites.slurm.script import render
from gridloom.sites.slurm.submission import Submission
from gridloom.sites.slurm.topology import topology

T = TypeVar("T")

_NOWHERE = PurePath("/")


class Commands:
    """What only Slurm's commands tell: their own release, settings, accounts, wiring, trials."""

    def __init__(self, client: SlurmClient, environment: Mapping[str, str]) -> None:
        """Ask the Slurm that the commands find with these variables."""
        self._client = client
        self._environment = dict(environment)

    def says(self, argv: Sequence[str]) -> str | None:
        """Return what a command prints; nothing when it says no."""
        try:
            return self._client.run(argv, self._environment)
        except SiteError:
            return None

    def topology(self) -> Topology:
        """Return how the nodes are wired; nothing where Slurm does not know."""
        try:
            return topology(self.says(command.show("topology")) or "")
        except InputError:  # where there is none, a sentence says so
            return Topology()

    def expected_starts(self) -> dict[int, float]:
        """Return when jobs that wait are expected to start, by id, as far as Slurm knows."""
        said = self.says(command.expected_starts()) or ""
        return {job.job_id: job.started_s for job in squeue(said) if job.started_s is not None}

    def trial(self, asked: Submission, what: str) -> Trial:
        """Return whether Slurm would take a job, and when it could start."""
        nodes = sum(part.nodes for part in asked.components)
        try:
            script, argv = render(asked, ("true",)), command.sbatch(is_tried=True)
            said = self._client.notes(argv, self._environment, script)
        except (InputError, SiteError) as error:
            return Trial(what=what, nodes=nodes, is_taken=False, said=str(error))
        return Trial(what=what, nodes=nodes, is_taken=True, said=said.strip())


def cluster(engine: SlurmEngine, commands: Commands | None) -> Cluster:
    """Return what a Slurm has.

    Args:
        engine: How it is asked.
        commands: Its commands, where they are here: only they tell the wiring.

    Raises:
        SiteError: It does not answer, or says no.
    """
    return Cluster(
        partitions=engine.partitions(),
        nodes=engine.nodes(),
        reservations=engine.reservations(),
        topology=commands.topology() if commands is not None else Topology(),
    )


def gather(site: Site, engine: SlurmEngine, commands: Commands | None, clock: Clock) -> Facts:
    """Return what can be found out about the Slurm of a site; of one that is away, only that.

    Args:
        site: With the nodes that it shall have.
        engine: How it is asked.
        commands: Its commands, where they are here.
        clock: Ours.
    """
    untold: dict[str, str] = {}
    try:
        nodes = _asked(engine.nodes, "nodes", untold)
        partitions = _asked(engine.partitions, "partitions", untold)
        if len(untold) > 1:  # all else goes by these
            return Facts(trouble=untold["nodes"])
        found = Cluster(
            partitions=partitions,
            nodes=nodes,
            reservations=_asked(engine.reservations, "reservations", untold),
            topology=commands.topology() if commands is not None else Topology(),
        )
        known = Facts(
            cluster=found,
            jobs=_asked(engine.jobs, "jobs", untold),
            licences=_asked(engine.licences, "licences", untold),
            untold=untold,
            user=_user(site.slurm, commands),
            release=next((node.version for node in nodes if node.version), ""),
        )
    except AwayError as error:
        return Facts(trouble=str(error))
    return known if commands is None else _told_by_commands(known, commands, clock)


def tried(site: Site, commands: Commands, failed: Collection[str] = ()) -> tuple[Trial, ...]:
    """Return what Slurm would do with jobs for one node of each kind, and for all of the site's.

    Of a job with several faults it names one. So they are tried once more without the settings
    that are known to be wrong.

    Args:
        site: With the nodes that it shall have.
        commands: What is asked.
        failed: Checks by which something must be mended.
    """
    access = site.slurm or SlurmAccess()
    first = _tried(site, access, commands)
    without = left_out(access, failed)
    if not without or "partition" in failed or all(trial.is_taken for trial in first):
        return first
    again = _tried(site, relaxed(access, failed), commands)
    return (*first, *(replace(trial, without=without) for trial in again))


def _asked(
    question: Callable[[], tuple[T, ...]], what: str, untold: dict[str, str]
) -> tuple[T, ...]:
    """Return what Slurm tells; nothing, and why, if it will not.

    Raises:
        AwayError: It does not answer.
    """
    try:
        return question()
    except AwayError:
        raise
    except SiteError as error:
        untold[what] = str(error)
        return ()


def _tried(site: Site, access: SlurmAccess, commands: Commands) -> tuple[Trial, ...]:
    alike = [(key, len([*group])) for key, group in groupby(sorted(map(_device, site.nodes)))]
    sizes = [(key, 1) for key, _ in alike] + [(key, count) for key, count in alike if count > 1]
    found = []
    for (kind, devices), count in sizes:
        part = component(access, kind, devices=devices, nodes=count)
        what = f"{count} node{'s' * (count > 1)} with {devices} {kind}"
        asked = of_access(replace(access, container=None), _NOWHERE)
        asked = replace(asked, components=(part,), name="gridloom-check")
        found.append(replace(commands.trial(asked, what), kind=kind))
    return tuple(found)


def _device(node: Node) -> tuple[str, int]:
    return node.accelerator, node.count


def _user(access: SlurmAccess | None, commands: Commands | None) -> str:
    """Return whose jobs they are; in a container perhaps only a number is known."""
    if access is not None and access.rest is not None:
        return access.rest.user
    if access is not None and access.ssh is not None and commands is not None:
        return access.ssh.user or (commands.says(("id", "-un")) or "").strip()
    number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _told_by_commands(known: Facts, commands: Commands, clock: Clock) -> Facts:
    before_s = clock.now_s()
    settings, told_s = facts.config(commands.says(command.show("config")) or "")
    after_s = clock.now_s()
    accounts = qos = None
    if settings.get("AccountingStorageType", "").endswith("/slurmdbd"):
        said = commands.says(command.sacctmgr("associations", known.user))
        accounts = facts.accounts(said) if said is not None else None
        names = commands.says(command.sacctmgr("qos"))
        qos = tuple(names.split()) if names is not None else None
    return replace(
        known,
        release=settings.get("SLURM_VERSION") or known.release,
        config=settings,
        told_s=told_s,
        asked_s=(before_s, after_s),
        accounts=accounts,
        qos=qos,
    )
