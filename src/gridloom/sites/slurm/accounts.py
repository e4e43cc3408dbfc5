"""What jobs that are over have used, asked of their Slurms' accounts in the background."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from pathlib import Path

import msgspec

from gridloom.base.clock import Clock
from gridloom.base.codec import decode
from gridloom.base.errors import SiteError
from gridloom.model.inventory import SlurmAccess
from gridloom.model.life import SiteUse
from gridloom.sites.slurm.engine import SlurmEngine
from gridloom.sites.slurm.gang import ACCESS_FILE, JOB_FILE, GangMark, Placed
from gridloom.sites.slurm.usage import Used

_EVERY_S = 1.0
"""Between two calls to one Slurm's accounts, each for all jobs that are waited for."""
_PATIENCE_S = 15.0
"""How long accounts may lag behind; then what they say counts."""


class _Job(msgspec.Struct, frozen=True, kw_only=True):
    engine: SlurmEngine
    slurm_id: int
    attempt: int
    site: str


class Accounts:
    """Knows what jobs have used, as far as their Slurms keep accounts."""

    def __init__(
        self,
        runs: Path,
        clock: Clock,
        engines: Callable[[SlurmAccess], SlurmEngine],
        executor: Executor,
    ) -> None:
        """Look for Slurm's ids in the run directories below ``runs``; ask through ``engines``."""
        self._runs = runs
        self._clock = clock
        self._engines = engines
        self._executor = executor
        self._wanted: dict[str, tuple[float, list[_Job]]] = {}
        self._asked: dict[SlurmEngine, Future[Mapping[int, Used]]] = {}
        self._asked_s: dict[SlurmEngine, float] = {}
        self._told: dict[SlurmEngine, dict[int, Used]] = {}
        self._silent: set[SlurmEngine] = set()

    def used(self, job_id: str) -> list[SiteUse] | None:
        """As ``gridloom.ports.driver.Accounting.used``."""
        now_s = self._clock.monotonic_s()
        if job_id not in self._wanted:
            self._wanted[job_id] = (now_s, list(self._jobs(job_id)))
        since_s, jobs = self._wanted[job_id]
        for engine in dict.fromkeys(job.engine for job in jobs):
            self._look(engine, now_s)
        told = [(job, self._told.get(job.engine, {}).get(job.slurm_id)) for job in jobs]
        lacks = [job for job, used in told if used is None or not used.is_over]
        waits = any(job.engine not in self._silent for job in lacks)
        if waits and now_s - since_s < _PATIENCE_S:
            return None
        del self._wanted[job_id]
        for job in jobs:
            self._told.get(job.engine, {}).pop(job.slurm_id, None)
        return [_use(job, used) for job, used in told if used is not None]

    def _look(self, engine: SlurmEngine, now_s: float) -> None:
        """Take in what was answered; ask again about all jobs that are waited for."""
        asked = self._asked.get(engine)
        if asked is not None:
            if not asked.done():
                return
            del self._asked[engine]
            try:
                self._told.setdefault(engine, {}).update(asked.result())
            except SiteError:  # it keeps none, or they cannot be asked now
                self._silent.add(engine)
            return
        if now_s - self._asked_s.get(engine, -_EVERY_S) >= _EVERY_S:
            self._asked_s[engine] = now_s
            self._silent.discard(engine)
            ids = {job.slurm_id for _, jobs in self._wanted.values() for job in jobs}
            self._asked[engine] = self._executor.submit(engine.accounted, sorted(ids))

    def _jobs(self, job_id: str) -> Iterator[_Job]:
        attempts = self._runs / job_id / "attempts"
        for file in sorted(attempts.glob(f"**/gang.*/{JOB_FILE}")):
            try:
                placed = decode(file.read_bytes(), Placed)
                mark = decode((file.parent / ACCESS_FILE).read_bytes(), GangMark)
            except (OSError, msgspec.MsgspecError):
                continue
            yield _Job(
                engine=self._engines(mark.access),
                slurm_id=placed.slurm_id,
                attempt=int(file.relative_to(attempts).parts[0]),
                site=file.parent.name.removeprefix("gang."),
            )


def _use(job: _Job, used: Used) -> SiteUse:
    return SiteUse(
        site=job.site,
        attempt=job.attempt,
        site_job=str(job.slurm_id),
        elapsed_s=used.elapsed_s,
        cpu_s=used.cpu_s,
        max_rss_bytes=used.max_rss_bytes,
        energy_j=used.energy_j,
    )
