"""The command lines by which Slurm is asked and told, each as its words (pure)."""

from collections.abc import Iterable
from typing import Literal

from gridloom.base.errors import SiteError
from gridloom.sites.slurm.parse_queue import (
    BETWEEN,
    PREEMPTIONS_FORMAT,
    SACCT_FORMAT,
    SINFO_FORMAT,
    SQUEUE_FORMAT,
)
from gridloom.sites.slurm.usage import USAGE_FORMAT

ENVIRONMENT = {"TZ": "UTC0", "SLURM_TIME_FORMAT": "standard", "LC_ALL": "C.UTF-8"}
"""Variables of every command beside its user's own: what it prints is read by these."""

Shown = Literal["job", "node", "partition", "reservation", "lic", "topology", "config"]


def sbatch(*, is_tried: bool = False, is_held: bool = False) -> tuple[str, ...]:
    """Return the command that takes a script from its standard input.

    Args:
        is_tried: Only say whether and when the job could start.
        is_held: The job waits until it is released.
    """
    tried = ("--test-only",) if is_tried else ()
    held = ("--hold",) if is_held else ()
    return ("sbatch", "--parsable", *tried, *held)


def submitted(printed: str) -> int:
    """Return the job's id, of a heterogeneous job its first one, from what ``sbatch`` printed.

    Raises:
        SiteError: It printed something else.
    """
    lines = printed.strip().splitlines()
    job_id = lines[-1].partition(";")[0] if lines else ""  # the cluster stands behind it
    if not (job_id.isascii() and job_id.isdigit()):
        raise SiteError(f"sbatch printed no job id but {printed.strip()[:80]!r}")
    return int(job_id)


def squeue(job_ids: Iterable[int] = (), *, user: str = "") -> tuple[str, ...]:
    """Return the command that tells of many jobs at once, of ended ones as long as Slurm does.

    Those that Slurm does not know are left out.

    Args:
        job_ids: Which; none for all.
        user: Whose; empty for everybody's.
    """
    whose = (f"--user={user}",) if user else ()
    return (*_squeue(job_ids), *whose, f"--format={SQUEUE_FORMAT}")


def preemptions(job_ids: Iterable[int]) -> tuple[str, ...]:
    """Return the command that tells when jobs were preempted, ended ones, too."""
    return (*_squeue(job_ids), f"--Format={PREEMPTIONS_FORMAT}")


def expected_starts(job_ids: Iterable[int] = ()) -> tuple[str, ...]:
    """Return the command that tells, in the same columns, when jobs that wait may start.

    Args:
        job_ids: Which; none for all.
    """
    ids = ",".join(map(str, job_ids))
    which = (f"--jobs={ids}",) if ids else ()
    return ("squeue", "--start", "--noheader", *which, f"--format={SQUEUE_FORMAT}")


def sacct(job_ids: Iterable[int]) -> tuple[str, ...]:
    """Return the command that tells of jobs from the accounts, once for each of their runs."""
    return (
        "sacct",
        "--allocations",
        "--duplicates",
        "--noheader",
        "--parsable2",
        f"--delimiter={BETWEEN}",
        f"--jobs={','.join(map(str, job_ids))}",
        f"--format={SACCT_FORMAT}",
    )


def usage(job_ids: Iterable[int]) -> tuple[str, ...]:
    """Return the command that tells what jobs and their steps have used."""
    ids = ",".join(map(str, job_ids))
    return ("sacct", "--noheader", "--parsable2", f"--jobs={ids}", f"--format={USAGE_FORMAT}")


def sinfo() -> tuple[str, ...]:
    """Return the command that tells of all nodes."""
    return ("sinfo", "--noheader", "--Node", f"--format={SINFO_FORMAT}")


def show(what: Shown, name: str = "") -> tuple[str, ...]:
    """Return the command that tells of one thing, or of all of a kind, in one line each.

    Args:
        what: Of which kind.
        name: Its name or id; empty for all.
    """
    return ("scontrol", "--details", "--oneliner", "show", what, *((name,) if name else ()))


def sacctmgr(what: Literal["associations", "qos"], user: str = "") -> tuple[str, ...]:
    """Return the command that tells what a user may charge, or which qualities of service exist.

    Args:
        what: Account, partition and qualities of each association; or names of qualities.
        user: Whose associations; empty for everybody's.
    """
    columns = {"associations": "account,partition,qos", "qos": "name"}[what]
    whose = (f"user={user}",) if user else ()
    return (
        *("sacctmgr", "--noheader", "--parsable2", "show", what),
        *whose,
        f"format={columns}",
    )


def scancel(
    job_id: int,
    *,
    signal: str = "",
    to: Literal["steps", "batch", "both"] = "steps",
    only_waiting: bool = False,
) -> tuple[str, ...]:
    """Return the command that ends a job, or sends it a signal.

    Args:
        job_id: Which.
        signal: Empty to end it: TERM to its steps, KILL after the site's ``KillWait``.
        to: Whom the signal is for.
        only_waiting: Leave it alone if it has started.
    """
    whom = {"steps": (), "batch": ("--batch",), "both": ("--full",)}[to]
    how = (f"--signal={signal}", *whom) if signal else ()
    which = ("--state=PENDING",) if only_waiting else ()
    return ("scancel", *how, *which, str(job_id))


def _squeue(job_ids: Iterable[int]) -> tuple[str, ...]:
    asked = [*job_ids]
    # To ask for a single one that Slurm does not know is an error, to ask twice for it is none
    ids = ",".join(map(str, asked * 2 if len(asked) == 1 else asked))
    which = (f"--jobs={ids}",) if ids else ()
    return ("squeue", "--noheader", "--states=all", *which)
