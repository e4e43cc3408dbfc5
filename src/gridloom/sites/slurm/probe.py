"""Runs a probe as a small job of a Slurm, and takes it out again if it does not start in time."""

import contextlib
import sys
from pathlib import Path, PurePath, PurePosixPath

from msgspec.structs import replace

from gridloom.base.clock import Clock
from gridloom.base.errors import SiteError
from gridloom.model.inventory import CPU, Site, SlurmAccess
from gridloom.sites.probe import Probed
from gridloom.sites.probing import OwnPlace, ProbePlace, follow
from gridloom.sites.remote.host import Host
from gridloom.sites.remote.place import FarPlace
from gridloom.sites.remote.places import RUNS
from gridloom.sites.slurm.engine import SlurmEngine
from gridloom.sites.slurm.gang import LOG_FILE, component, interpreter, of_access
from gridloom.sites.slurm.reasons import waiting
from gridloom.sites.slurm.records import Job
from gridloom.sites.slurm.script import render
from gridloom.sites.slurm.states import JobPhase, job_end, job_phase
from gridloom.sites.slurm.submission import Submission

_LIMIT_MIN = 2
_STARTED = (JobPhase.RUNNING, JobPhase.ENDING)


def probe(
    site: Site,
    engine: SlurmEngine,
    directory: Path,
    *,
    timeout_s: float,
    clock: Clock,
    host: Host | None = None,
) -> Probed:
    """Return how a probe of a site went; nothing of it is left in the queue.

    Args:
        site: Which.
        engine: How its Slurm is asked.
        directory: New; where the nodes should see what we see. It is removed.
        timeout_s: How long to wait for the probe.
        clock: Ours.
        host: Its login host, where that has a directory of the same name instead.

    Raises:
        OSError: The directory cannot be written.
    """
    access, here = site.slurm or SlurmAccess(), OwnPlace(directory)
    there: PurePath = directory
    place: ProbePlace = here
    if host is not None and access.ssh is not None:
        there = PurePosixPath(access.ssh.directory, RUNS, directory.name)
        place = FarPlace(host, str(there))
    python = interpreter(access, sys.executable)
    blank = Probed(
        engine="Slurm",
        directory=str(there.parent),
        python=python,
        is_far=place is not here,
        submitted_s=clock.now_s(),
        given_up_s=timeout_s,
    )
    try:
        place.make()
        argv = (python, "-P", "-m", "gridloom.agent.probe", str(there), access.network)
        asked = _asked(site, access, there)
        script = render(asked, [word for word in argv if word])
        job = _SlurmJob(engine, engine.hand_in(asked, script), place)
        try:
            return follow(job, place, blank, timeout_s=timeout_s, clock=clock)
        finally:
            job.take_out()
    except SiteError as error:
        return replace(blank, refusal=str(error))
    finally:
        place.clear()


def _asked(site: Site, access: SlurmAccess, directory: PurePath) -> Submission:
    """Return a job as those of the site are, but small: one device of one node."""
    kind = site.nodes[0].accelerator if site.nodes else CPU
    part = component(access, kind, devices=1, nodes=1)
    return replace(
        of_access(access, directory),
        components=(replace(part, exclusive="", memory=None),),
        name="gridloom-probe",
        time_limit_min=_LIMIT_MIN,
        requeue=False,
        directory=str(directory),
        stdout=str(directory / LOG_FILE),
        export="ALL",
        environment=access.environment,
    )


class _SlurmJob:
    """Plays `gridloom.sites.probing.ProbeJob`."""

    def __init__(self, engine: SlurmEngine, slurm_id: int, place: ProbePlace) -> None:
        self._engine, self._slurm_id, self._place = engine, slurm_id, place
        self._job: Job | None = None

    def look(self) -> None:
        with contextlib.suppress(SiteError):
            jobs = self._engine.jobs([self._slurm_id])
            self._job = jobs[0] if jobs else self._job

    def is_over(self) -> bool:
        return self._job is not None and job_end(self._job) is not None

    def has_run(self) -> bool:
        return self._job is not None and bool(self._job.nodes)

    def started_s(self) -> float | None:
        return self._job.started_s if self._job is not None else None

    def told(self, probed: Probed) -> Probed:
        job, said = self._job, self._place.read(LOG_FILE)
        log = said.decode(errors="replace") if said is not None else None
        if job is not None and self.is_over():
            where = f" on {job.nodes[0]}" if job.nodes else ""
            ended = f"the probe, job {self._slurm_id}{where}, is {'+'.join(job.states).lower()}"
            return replace(probed, ended=ended, log=log)
        if job is None or job_phase(job.states) not in _STARTED:
            reason = waiting(job.reason) if job is not None else None
            help_ = f"; {reason.remedy}" if reason is not None and reason.remedy else ""
            why = f"{reason.sentence}{help_}" if reason is not None else "Slurm does not say why"
            return replace(probed, waits=why)
        return replace(probed, log=log)

    def take_out(self) -> None:
        with contextlib.suppress(SiteError):  # one that waits when Slurm is away ends by itself
            self._engine.cancel(self._slurm_id)
