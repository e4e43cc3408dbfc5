"""The driver of sites under Slurm, whose nodes see our run directories or have their own."""

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path

from msgspec.structs import replace

from gridloom.base.clock import Clock
from gridloom.base.codec import encode
from gridloom.base.errors import InputError, SiteError
from gridloom.base.files import replace_file
from gridloom.model.event import AnyEvent, NodeMarked, TaskRefused, TaskRunning
from gridloom.model.inventory import Site, SlurmAccess, SshAccess
from gridloom.model.life import Outcome, SiteUse
from gridloom.model.reason import Reason, Why
from gridloom.sites.remote.errors import RemoteError
from gridloom.sites.remote.host import Host
from gridloom.sites.remote.teller import ALWAYS_S
from gridloom.sites.reports import ended
from gridloom.sites.slurm.accounts import Accounts
from gridloom.sites.slurm.engine import AwayError, SlurmEngine
from gridloom.sites.slurm.far import FarGangs, far_places
from gridloom.sites.slurm.gang import (
    ACCESS_FILE,
    JOB_FILE,
    SCRIPT_FILE,
    GangMark,
    Placed,
)
from gridloom.sites.slurm.hand_in import handed_in
from gridloom.sites.slurm.records import Job
from gridloom.sites.slurm.standing import NodeWatch
from gridloom.sites.slurm.tell import Seen, end_of, wait_of, why_asked, why_never
from gridloom.sites.tasks import Heard, TaskFiles, read, unwritable
from gridloom.wire.agent import (
    GANG_FILE,
    LEASE_FILE,
    RENDEZVOUS_FILE,
    STOP_FILE,
    Rendezvous,
    TaskOrder,
    TaskRef,
    gang_directory,
    who,
)

_POLL_S = 1.0
"""Between two looks at the queue of one Slurm: one call for all jobs."""
_POLL_CALLS = 4.0
"""At least so many times as long as the last such call took: a large site is not kept busy."""
_WORDLESS_S = 20.0
"""How long Slurm may take to say why it has asked a task to stop, beyond the grace."""
_FELL_S = 5.0
"""How long it may take to say that it has killed a task."""
_HOPELESS_LOOKS = 3
"""So often in a row Slurm says that a job will never start before it is believed."""
_FRESH_S = 1.5
"""How long a renewal of a lease may wait for its link. The next one is there by then; and where a
node's clock is behind, one that comes late would count from when it has come."""
_ASKED_FILE = "submitting"
"""There as soon as Slurm is about to be asked for a gang."""
_SILENCE_S = 5.0
"""How long an answer may take until it is told that there is none."""


class _Gang:
    """One Slurm job and what is known of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.mark: GangMark | None = None
        self.placed: Placed | None = None
        self.seen = Seen()
        self.over_looks = self.hopeless_looks = 0
        self.stopped = False
        self.refusal: Reason | None = None
        self.cancelled = False

    @property
    def speaker(self) -> TaskRef | None:
        """Of a batch script: the task that runs it, and speaks for those on other nodes."""
        return self.mark.speaker if self.mark is not None else None

    @property
    def grace_s(self) -> float:
        """How long its tasks may take to save."""
        signal = self.mark.submission.signal if self.mark is not None else None
        return signal.before_s if signal is not None else 0.0

    @property
    def is_only_here(self) -> bool:
        """Whether Slurm was not asked for it, and is not being asked now."""
        return self.placed is None and not (self.directory / _ASKED_FILE).exists()

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing more to ask: what tasks said last had a look's time to come."""
        return self.seen.is_over and self.over_looks > 1


class SlurmDriver:
    """Runs tasks as jobs of Slurm.

    Plays `gridloom.ports.driver.Driver`, `Accounting` and `Keeping`.
    """

    chooses_nodes = True

    def __init__(
        self,
        runs: Path,
        clock: Clock,
        engines: Callable[[SlurmAccess], SlurmEngine],
        executor: Executor,
        hosts: Callable[[SshAccess], Host],
    ) -> None:
        """Drive the tasks of the runs in ``runs``.

        Args:
            runs: Directory of all run directories, which nodes see, too, or have copied to them.
            clock: Where the time comes from.
            engines: Returns what asks a site's Slurm, the same one for the same Slurm.
            hosts: Returns the login hosts of sites that are reached over SSH.
            executor: Where it is asked: without an answer that lasts for minutes, and meanwhile the
                leases of all other tasks must be renewed.
        """
        self._files = TaskFiles(runs)
        self._runs = self._files.runs
        self._clock = clock
        self._engines = engines
        self._executor = executor
        self._nodes = NodeWatch(clock, engines, executor)
        self._accounts = Accounts(self._runs, clock, engines, executor)
        self._far = FarGangs(self._files, clock, hosts, executor)
        self._asked: dict[SlurmEngine, Future[None]] = {}
        self._gangs: dict[Path, _Gang] = {}
        self._looked_s: dict[SlurmEngine, float] = {}
        self._took_s: dict[SlurmEngine, float] = {}

    def submit(self, site: Site, orders: Sequence[TaskOrder]) -> Mapping[TaskRef, Reason]:
        """Write down what is to be handed to Slurm as one job: the next look does it."""
        access = site.slurm or SlurmAccess()
        directory = Path(gang_directory(self._runs, orders[0].task))
        try:
            if not (directory / ACCESS_FILE).exists():
                self._write_gang(directory, orders, access)
        except (InputError, OSError) as error:
            reason = _refusal(error)
            return {order.task: reason for order in orders}
        return {}

    def meet(self, task: TaskRef, rendezvous: Rendezvous) -> None:
        """Write where the tasks are."""
        self._files.meet(task, rendezvous)
        self._tell(task, RENDEZVOUS_FILE)

    def renew(self, task: TaskRef, until_s: float) -> None:
        """Write the lease anew."""
        self._files.renew(task, until_s)
        self._tell(task, LEASE_FILE, min(until_s, self._clock.now_s() + _FRESH_S))

    def stop(self, task: TaskRef, grace_s: float, sentence: str) -> None:
        """Write the order to stop; the next look takes a job that waits out of Slurm's queue."""
        self._files.stop(task, grace_s, sentence)
        self._tell(task, STOP_FILE)
        self._gang(Path(gang_directory(self._runs, task))).stopped = True

    def observe(self, tasks: Sequence[TaskRef]) -> list[AnyEvent]:
        """Return what the supervisors reported, and what Slurm says of those that do not."""
        gangs = {task: self._gang(Path(gang_directory(self._runs, task))) for task in tasks}
        self._look(dict.fromkeys([*gangs.values(), *self._left(gangs)]))
        marked = ((task, one.mark) for task, one in gangs.items() if one.mark is not None)
        self._far.look({mark.speaker or task: mark.access for task, mark in marked})
        facts: list[AnyEvent] = []
        for task, one in gangs.items():
            with contextlib.suppress(OSError):  # of what we cannot see now we do not speak now
                facts.extend(self._observe(task, one))
        return facts

    def standing(self, site: Site) -> Sequence[NodeMarked] | None:
        """Return which nodes Slurm keeps from work, as of a look a few seconds ago."""
        return self._nodes.standing(site)

    def used(self, job_id: str) -> Sequence[SiteUse] | None:
        """Return what a job has used, where its Slurms keep accounts of that."""
        return self._accounts.used(job_id)

    def bring(self, job_id: str, attempt: int, sites: Sequence[str]) -> str:
        """Fetch what a job has saved at sites that nobody sees from elsewhere."""
        return self._far.bring(job_id, attempt, sites)

    def free_port(
        self, address: str, ports: tuple[int, int], taken: frozenset[int], count: int = 1
    ) -> int:
        """Raise ``SiteError``: which ports are free is told by those who have come up."""
        raise SiteError(f"which ports of {address} are free is not known before a task is there")

    # ----- what is handed in

    def _write_gang(
        self, directory: Path, orders: Sequence[TaskOrder], access: SlurmAccess
    ) -> None:
        to = far_places(access, orders, self._runs)
        handed = handed_in(orders, self._runs, access, sys.executable, to)
        for order, told in zip(orders, handed.orders, strict=True):
            self._files.order(order, told)
        directory.mkdir(parents=True, exist_ok=True)
        replace_file(directory / GANG_FILE, encode(handed.gang))
        replace_file(directory / SCRIPT_FILE, handed.script.encode())
        speaker = orders[0].task if orders[0].batch else None
        mark = GangMark(access=access, submission=handed.asked, speaker=speaker, places=to)
        replace_file(directory / ACCESS_FILE, encode(mark))

    def _hand_in(self, one: _Gang, engine: SlurmEngine) -> None:
        """Hand a gang's job to Slurm unless that was done, once its files are where it sees them.

        Raises:
            AwayError: Slurm does not answer.
            SiteError: Slurm will not have it.
        """
        if one.placed is not None or one.mark is None:
            return
        waits = self._far.send(one.mark.access, one.directory, one.mark.places)
        one.seen = replace(one.seen, sending=waits, trouble="")
        if waits:
            return
        asked, mark = one.mark.submission, one.directory / _ASKED_FILE
        found = None
        if mark.exists():  # we were killed between asking and noting the answer
            same = (job.job_id for job in engine.jobs() if job.comment == asked.comment)
            found = next(same, None)
        mark.touch()
        if found is None:
            found = engine.hand_in(asked, (one.directory / SCRIPT_FILE).read_text())
        one.placed = Placed(slurm_id=found)
        one.seen = Seen(slurm_id=found)
        replace_file(one.directory / JOB_FILE, encode(one.placed))

    # ----- what is seen

    def _look(self, gangs: Iterable[_Gang]) -> None:
        """Ask each Slurm about all its jobs at once, now and then, and never wait for an answer."""
        by_slurm: dict[SlurmEngine, list[_Gang]] = {}
        for one in gangs:
            if one.mark is not None and not one.is_settled:
                by_slurm.setdefault(self._engines(one.mark.access), []).append(one)
        now_s = self._clock.monotonic_s()
        for engine, those in by_slurm.items():
            asked = self._asked.get(engine)
            if asked is not None and not asked.done():
                if now_s - self._looked_s[engine] >= _SILENCE_S:
                    for one in those:
                        one.seen = replace(one.seen, trouble="it takes long")
                continue
            if asked is not None:
                asked.result()  # a fault of ours is raised here
            pause_s = max(_POLL_S, _POLL_CALLS * self._took_s.get(engine, 0.0))
            if now_s - self._looked_s.get(engine, -pause_s) >= pause_s:
                self._looked_s[engine] = now_s
                self._asked[engine] = self._executor.submit(self._ask, engine, those)

    def _left(self, gangs: Mapping[TaskRef, _Gang]) -> list[_Gang]:
        """Return gangs that nobody asks after any more and that Slurm may have; forget others.

        Of those that were taken for dead while they waited nothing is to stay in the queue.
        """
        asked = set(gangs.values())
        others = [one for one in self._gangs.values() if one not in asked]
        for one in others:
            one.stopped = True
            if one.is_settled or one.is_only_here:
                del self._gangs[one.directory]
        self._files.forget_all_but(gangs)
        return [one for one in others if one.directory in self._gangs]

    def _ask(self, engine: SlurmEngine, gangs: Sequence[_Gang]) -> None:
        """Hand in, cancel and ask, in a thread of its own: it changes what is seen of the gangs."""
        try:
            for one in gangs:
                if one.placed is None and not one.stopped and one.refusal is None:
                    self._try_to_hand_in(one, engine)
            placed = {one.placed.slurm_id: one for one in gangs if one.placed is not None}
            began_s = self._clock.monotonic_s()
            jobs = _whole(engine.jobs(placed)) if placed else {}
            self._took_s[engine] = self._clock.monotonic_s() - began_s
            for slurm_id, one in placed.items():
                self._take_in(one, slurm_id, jobs.get(slurm_id), engine)
        except (SiteError, OSError) as error:
            for one in gangs:
                one.seen = replace(one.seen, trouble=str(error))

    def _take_in(self, one: _Gang, slurm_id: int, job: Job | None, engine: SlurmEngine) -> None:
        one.seen = one.seen.after(job)
        one.over_looks += one.seen.is_over
        never = why_never(one.seen)
        one.hopeless_looks = one.hopeless_looks + 1 if never is not None else 0
        is_hopeless = one.hopeless_looks >= _HOPELESS_LOOKS
        # Where it starts again is decided here: at its site it would find itself started before
        to_end = one.stopped or one.seen.is_put_back
        if (to_end or is_hopeless) and not one.cancelled and one.seen.waits:
            engine.cancel(slurm_id)
            one.cancelled = True
            one.refusal = never if is_hopeless and not to_end else None

    def _try_to_hand_in(self, one: _Gang, engine: SlurmEngine) -> None:
        try:
            self._hand_in(one, engine)
        except AwayError:
            raise
        except (SiteError, InputError, OSError) as error:
            one.refusal = _refusal(error)

    def _observe(self, task: TaskRef, one: _Gang) -> list[AnyEvent]:
        # Of a batch script one supervisor speaks for all its nodes
        known = self._files.heard(task, one.speaker)
        facts = known.news(task, self._clock.monotonic_s())
        stop = self._files.stop_of(task)
        one.stopped = one.stopped or stop is not None  # perhaps before we were started
        if one.mark is not None and self._far.is_bringing(one.mark.access, one.speaker or task):
            return [*facts, TaskRunning(**who(task))] if known.has_spoken else facts
        if known.end is not None:
            return [*facts, *self._end(task, known, one, asked=stop is not None)]
        if one.refusal is not None:
            return [TaskRefused(**who(task), reason=one.refusal)]
        if one.stopped and one.mark is not None and one.placed is None:
            sentence = f"{stop.sentence if stop else 'stopped'}: Slurm had not taken it yet"
            known.end = Outcome(
                code=Why.STOP_REQUESTED, sentence=sentence, ended_s=self._clock.now_s()
            )
            return [ended(task, known.end)]
        if one.is_settled and self._has_all(one, task):
            known.end = end_of(one.seen, stop.sentence if stop else "", self._clock.now_s())
            return [*facts, ended(task, known.end)]
        if not known.has_spoken and one.mark is not None:
            return [wait_of(one.seen, who(task))]
        return facts

    def _end(self, task: TaskRef, known: Heard, one: _Gang, *, asked: bool) -> list[AnyEvent]:
        """Return how a task ended: if its site asked it to stop, once the site has said why.

        Of a batch script once nothing of it is left on any node: no supervisor is on the others.
        """
        assert known.end is not None
        by_site = known.end.code in (Why.STOP_REQUESTED, Why.KILLED) and not asked
        if one.speaker or by_site:
            waited_s = self._clock.monotonic_s() - known.end_seen_s
            # Its neighbours may use their grace to the end, and Slurm says why once all are gone.
            # What was killed may have fallen by itself: then they must be told of it soon.
            fell = known.end.code is Why.KILLED and not one.speaker
            patience_s = _FELL_S if fell else one.grace_s + _WORDLESS_S
            if not one.seen.is_over and waited_s < patience_s:
                return [TaskRunning(**who(task))]
            if not asked:
                known.end = why_asked(known.end, one.seen)
        return [ended(task, known.end)]

    def _has_all(self, one: _Gang, task: TaskRef) -> bool:
        return one.mark is None or self._far.finish(one.mark.access, one.speaker or task)

    def _tell(self, task: TaskRef, name: str, until_s: float = ALWAYS_S) -> None:
        """Have what was written for a task brought to where it is."""
        mark = self._gang(Path(gang_directory(self._runs, task))).mark
        if mark is not None:
            self._far.tell(mark.access, task, name, until_s)

    def _gang(self, directory: Path) -> _Gang:
        """Return what is known of a gang; after a restart that is what was written down."""
        one = self._gangs.get(directory)
        if one is None or one.mark is None:
            one = self._gangs[directory] = _Gang(directory)
            one.mark = read(directory / ACCESS_FILE, GangMark)
            one.placed = read(directory / JOB_FILE, Placed)
            if one.placed is not None:
                one.seen = Seen(slurm_id=one.placed.slurm_id)
        return one


def _whole(told: Sequence[Job]) -> dict[int, Job]:
    """Return jobs by id, of a heterogeneous one its first part: preempted if any part was."""
    jobs: dict[int, Job] = {}
    for job in sorted(told, key=lambda job: job.job_id):
        first = jobs.setdefault(job.het_job_id or job.job_id, job)
        if job.preempted_s and not first.preempted_s:
            jobs[first.het_job_id or first.job_id] = replace(first, preempted_s=job.preempted_s)
    return jobs


def _refusal(error: InputError | SiteError | OSError) -> Reason:
    if isinstance(error, OSError):
        return unwritable(error)
    says = f"Slurm says: {error}"
    remedy = "`slurm:` of the site in the grid file says how jobs are handed in"
    if isinstance(error, RemoteError):
        says, remedy = error.sentence, error.remedy
    elif isinstance(error, InputError):
        said = (dataclasses.replace(problem, remedy="").sentence() for problem in error.problems)
        says = "; ".join(said)
        remedy = "; ".join(filter(None, (problem.remedy for problem in error.problems))) or remedy
    return Reason(code=Why.REFUSED, sentence=f"the task cannot be started: {says}", remedy=remedy)
