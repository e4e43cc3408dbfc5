"""What is known of a Slurm when a site is looked at, and how its commands tell it (pure)."""

import re

import msgspec

from gridloom.sites.slurm.inventory import Cluster
from gridloom.sites.slurm.records import Job, Licence
from gridloom.sites.slurm.values import text, time_s, words


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """One association: whom a user may charge, and with which quality of service.

    Attributes:
        name: The account.
        partition: Where only; empty for everywhere.
        qos: Which may be named.
    """

    name: str
    partition: str = ""
    qos: tuple[str, ...] = ()


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What Slurm answered when it was asked whether it would take a job.

    Attributes:
        what: What was asked for, as ``1 node with 8 a100``.
        nodes: How many nodes.
        kind: Of their devices.
        is_taken: Whether it would.
        said: When and where the job could start, or why not, in Slurm's words.
        without: Settings of the site, wrong ones, that were left out to see what else is.
    """

    what: str
    nodes: int
    kind: str = ""
    is_taken: bool
    said: str
    without: tuple[str, ...] = ()


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What was found out about a Slurm.

    Attributes:
        trouble: Why Slurm could not be asked; empty when it could, and else nothing else is known.
        untold: Why Slurm does not tell its ``reservations`` or the like, by what it is.
        release: Of Slurm, as ``22.05.8``.
        cluster: Its nodes, partitions, reservations and wiring.
        config: Settings by name, as far as they are told.
        told_s: Slurm's own time when it was asked; ``None`` if it does not tell.
        asked_s: Our time then: before and after the question.
        accounts: What the user may charge; ``None`` where that is not told.
        qos: Which qualities of service there are; ``None`` where that is not told.
        user: Who asks.
        trials: What Slurm would do with jobs like those of the site.
        jobs: All that wait or run.
        licences: All of them.
    """

    trouble: str = ""
    untold: dict[str, str] = {}
    release: str = ""
    cluster: Cluster = Cluster()
    config: dict[str, str] = {}
    told_s: float | None = None
    asked_s: tuple[float, float] = (0.0, 0.0)
    accounts: tuple[Account, ...] | None = None
    qos: tuple[str, ...] | None = None
    user: str = ""
    trials: tuple[Trial, ...] = ()
    jobs: tuple[Job, ...] = ()
    licences: tuple[Licence, ...] = ()


_AS_OF = re.compile(r"Configuration data as of (\S+)")
_SETTING = re.compile(r"(\w+)\s*=\s?(.*)")


def config(said: str) -> tuple[dict[str, str], float | None]:
    """Return the settings of ``scontrol show config``, and the time that Slurm gives with them."""
    as_of = _AS_OF.search(said)
    pairs = (_SETTING.fullmatch(line.strip()) for line in said.splitlines())
    told = {match[1]: text(match[2]) for match in pairs if match is not None}
    return told, time_s(as_of[1]) if as_of else None


def accounts(said: str) -> tuple[Account, ...]:
    """Return the associations of ``sacctmgr``, told as account, partition and qualities."""
    rows = (line.split("|") for line in said.splitlines() if line.count("|") >= 2)
    return tuple(
        Account(name=row[0], partition=row[1], qos=words(row[2])) for row in rows if row[0]
    )
