"""Runs a probe as a small job of a Slurm, and takes it out again if it does not start in time."""

import contextlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gridloom.base.clock import Clock
from gridloom.base.codec import decode
from gridloom.base.errors import SiteError
from gridloom.model.inventory import CPU, Site, SlurmAccess
from gridloom.sites.probe import Probed
from gridloom.sites.slurm.engine import SlurmEngine
from gridloom.sites.slurm.gang import LOG_FILE, component, of_access
from gridloom.sites.slurm.reasons import waiting
from gridloom.sites.slurm.records import Job
from gridloom.sites.slurm.script import render
from gridloom.sites.slurm.states import JobPhase, job_end, job_phase
from gridloom.sites.slurm.submission import Submission
from gridloom.wire.probe import ANSWER_FILE, ANSWER_WAIT_S, SEEN_FILE, ProbeSeen

_LOOK_S = 0.1
_ASK_S = 1.0
"""Between two questions to Slurm."""
_LATE_S = 3.0
"""How long what an ended probe wrote may take to be seen here."""
_LIMIT_MIN = 2
_STARTED = (JobPhase.RUNNING, JobPhase.ENDING)


def probe(
    site: Site, engine: SlurmEngine, directory: Path, *, timeout_s: float, clock: Clock
) -> Probed:
    """Return how a probe of a site went; nothing of it is left in the queue.

    Args:
        site: Which.
        engine: How its Slurm is asked.
        directory: New; where the nodes should see what we see. It is removed.
        timeout_s: How long to wait for the probe.
        clock: Ours.

    Raises:
        OSError: The directory cannot be written.
    """
    access = site.slurm or SlurmAccess()
    python = access.python or sys.executable
    directory.mkdir(parents=True)
    try:
        blank = Probed(
            engine="Slurm",
            directory=str(directory.parent),
            python=python,
            submitted_s=clock.now_s(),
            given_up_s=timeout_s,
        )
        argv = (python, "-P", "-m", "gridloom.agent.probe", str(directory), access.network)
        asked = _asked(site, access, directory)
        script = render(asked, [word for word in argv if word])
        try:
            slurm_id = engine.hand_in(asked, script)
        except SiteError as error:
            return replace(blank, refusal=str(error))
        return _watched(_Watch(engine, slurm_id, directory, clock), blank, timeout_s)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _asked(site: Site, access: SlurmAccess, directory: Path) -> Submission:
    """Return a job as those of the site are, but small: one device of one node."""
    kind = site.nodes[0].accelerator if site.nodes else CPU
    return replace(
        of_access(access),
        components=(component(access, kind, devices=1, nodes=1),),
        name="gridloom-probe",
        time_limit_min=_LIMIT_MIN,
        requeue=False,
        directory=str(directory),
        stdout=str(directory / LOG_FILE),
        export="ALL",
        environment=access.environment,
    )


def _watched(watch: "_Watch", blank: Probed, timeout_s: float) -> Probed:
    """Follow a probe, and take it out of the queue whatever happens here."""
    try:
        return watch.follow(blank, timeout_s)
    finally:
        watch.take_out()


class _Watch:
    """Looks at the files and at the queue in turn."""

    def __init__(self, engine: SlurmEngine, slurm_id: int, directory: Path, clock: Clock) -> None:
        self._engine, self._slurm_id = engine, slurm_id
        self._directory, self._clock = directory, clock
        self._asked_s = clock.monotonic_s()
        self._job: Job | None = None

    def follow(self, probed: Probed, timeout_s: float) -> Probed:
        until_s = self._clock.monotonic_s() + timeout_s
        self._wait(lambda: self._seen() is not None or self._over(), until_s)
        if self._seen() is None and self._over():
            self._wait(lambda: self._seen() is not None, self._clock.monotonic_s() + _LATE_S)
        if self._seen() is None:
            return self._silent(probed)
        spoke_s = self._clock.now_s()
        (self._directory / ANSWER_FILE).touch()
        answered_s = self._clock.now_s()
        self._wait(self._has_heard, self._clock.monotonic_s() + ANSWER_WAIT_S)
        heard_s = self._clock.now_s() if self._has_heard() else None
        self._ask()
        return replace(
            probed,
            started_s=self._job.started_s if self._job is not None else None,
            spoke_s=spoke_s,
            answered_s=answered_s,
            heard_s=heard_s,
            seen=self._seen(),
        )

    def take_out(self) -> None:
        with contextlib.suppress(SiteError):  # one that waits when Slurm is away ends by itself
            self._engine.cancel(self._slurm_id)

    def _silent(self, probed: Probed) -> Probed:
        job, file = self._job, self._directory / LOG_FILE
        log = None
        with contextlib.suppress(OSError):
            log = file.read_text(errors="replace")
        if self._over():
            where = f" on {job.nodes[0]}" if job is not None and job.nodes else ""
            states = "+".join(job.states).lower() if job is not None else "gone"
            ended = f"the probe, job {self._slurm_id}{where}, is {states}"
            return replace(probed, ended=ended, log=log)
        if job is None or job_phase(job.states) not in _STARTED:
            reason = waiting(job.reason) if job is not None else None
            help_ = f"; {reason.remedy}" if reason is not None and reason.remedy else ""
            said = f"{reason.sentence}{help_}" if reason is not None else "Slurm does not say why"
            return replace(probed, waits=said)
        return replace(probed, log=log)

    def _wait(self, met: Callable[[], bool], until_s: float) -> None:
        while not met() and self._clock.monotonic_s() < until_s:
            self._clock.sleep(_LOOK_S)

    def _seen(self) -> ProbeSeen | None:
        try:
            return decode((self._directory / SEEN_FILE).read_bytes(), ProbeSeen)
        except (OSError, msgspec.MsgspecError):
            return None

    def _has_heard(self) -> bool:
        seen = self._seen()
        return seen is not None and seen.heard_s is not None

    def _over(self) -> bool:
        """Return whether the job has ended; ask Slurm at times."""
        now_s = self._clock.monotonic_s()
        if now_s - self._asked_s >= _ASK_S:
            self._asked_s = now_s
            self._ask()
        return self._job is not None and job_end(self._job) is not None

    def _ask(self) -> None:
        with contextlib.suppress(SiteError):
            jobs = self._engine.jobs([self._slurm_id])
            self._job = jobs[0] if jobs else self._job
