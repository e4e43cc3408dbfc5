"""Carries intentions out, once each: actions of the outbox to the drivers of their sites."""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from gridloom.base.codec import decode, encode
from gridloom.base.errors import SiteError
from gridloom.base.files import FULL, cause_of, replace_file
from gridloom.control.orders import Start, task_orders, task_refs
from gridloom.core.state import State
from gridloom.core.turn import LeaseTerms
from gridloom.model.action import (
    AnyAction,
    CloseJob,
    RenewLease,
    RestartSite,
    StartAttempt,
    StopTask,
)
from gridloom.model.event import AnyEvent, TaskRefused
from gridloom.model.inventory import Inventory
from gridloom.model.life import Job
from gridloom.model.reason import Reason, Why
from gridloom.ports.driver import Driver
from gridloom.ports.journal import Journal
from gridloom.wire.agent import TaskRef
from gridloom.wire.launch import ports_of

_CLOSES_MAX = 16
"""Jobs closed at once: each waits for the disk, and meanwhile nobody's lease is renewed."""
_RENDEZVOUS_FILE = "rendezvous.json"
_LAPSE_GRACE_SHARE = 0.6
"""Share of the margin after a lapsed lease in which processes may save; then they are killed."""


class Dispatch:
    """Knows the drivers; turns every action of the outbox into calls of them."""

    def __init__(
        self,
        journal: Journal,
        drivers: Mapping[str, Driver],
        runs: Path,
        terms: LeaseTerms,
        close: Callable[[Job, Inventory | None], None],
    ) -> None:
        """Dispatch for one state directory.

        Args:
            journal: Whose outbox is emptied.
            drivers: By kind of site.
            runs: Directory of all run directories.
            terms: How long leases last.
            close: Writes the summary of a job that is over.
        """
        self._journal = journal
        self._drivers = drivers
        self._runs = runs
        self._terms = terms
        self._close = close
        self.troubles: list[str] = []
        """What could not be carried out at the last try, a sentence each."""
        self.left = False
        """Whether more jobs are over than were closed at the last try."""

    def run(self, state: State) -> None:
        """Carry out what is in the outbox; what a site refused is handed in as a fact.

        What cannot be carried out now stays in the outbox for the next time: one run directory
        that cannot be written must not end the control of the other jobs. Neither must many jobs
        that are over at once: of those, some are closed and the others are ``left``.
        """
        facts: list[AnyEvent] = []
        done = []
        self.troubles.clear()
        self.left, closed = False, 0
        for action_id, action in self._journal.outbox():
            if isinstance(action, CloseJob) and closed == _CLOSES_MAX:
                self.left = True
                continue
            try:
                facts.extend(self._carry_out(state, action))
            except SiteError as error:
                self.troubles.append(str(error))
                if not isinstance(action, RenewLease):  # the next renewal makes up for this one
                    continue
            closed += isinstance(action, CloseJob)
            done.append(action_id)
        # Together: a start that was refused, and is carried out again after a crash because nobody
        # noted it as done, may succeed - while the refusal says that nothing runs.
        if done:
            self._journal.done(done, facts)

    def observe(self, state: State) -> list[AnyEvent]:
        """Return what the drivers saw of all live tasks."""
        by_kind: dict[str, list[TaskRef]] = {}
        for job in state.jobs.values():
            attempt = job.attempt
            for task in attempt.tasks.values() if attempt else ():
                if attempt is None or task.outcome is not None:
                    continue
                where = task.placement
                ref = TaskRef(
                    job_id=job.job_id,
                    attempt=attempt.number,
                    epoch=attempt.epoch,
                    site=where.site,
                    node=where.node,
                    life=task.life,
                )
                by_kind.setdefault(self._kind(state, where.site), []).append(ref)
        return [
            fact for kind, refs in by_kind.items() for fact in self._drivers[kind].observe(refs)
        ]

    def _carry_out(self, state: State, action: AnyAction) -> Sequence[AnyEvent]:
        match action:
            case StartAttempt() | RestartSite():
                return self._start(state, action)
            case RenewLease():
                ref = _ref(action)
                self._driver(state, ref).renew(ref, action.lease_until_s)
            case StopTask():
                ref = _ref(action)
                sentence = action.reason.sentence
                self._driver(state, ref).stop(ref, action.grace_s, sentence)
            case CloseJob():
                try:
                    self._close(state.jobs[action.job_id], state.inventory)
                except OSError as error:
                    place = f"{error.filename}: " if error.filename else ""
                    raise SiteError(
                        f"{place}the summary cannot be written: {error.strerror}"
                    ) from error
        return ()

    def _start(self, state: State, start: Start) -> list[AnyEvent]:
        run_dir = self._runs / start.job_id
        refs = task_refs(start)
        try:
            port = self._master_port(state, start)
        except (SiteError, OSError) as error:
            return [_refused(ref, _why_no_port(error)) for ref in refs]
        orders = task_orders(
            start,
            state.jobs[start.job_id].spec,
            run_dir,
            master_port=port,
            lease_s=self._terms.lease_s,
            lapse_grace_s=self._terms.kill_margin_s * _LAPSE_GRACE_SHARE,
        )
        facts: list[AnyEvent] = []
        for _, group in groupby(orders, key=lambda order: order.task.site):
            together = tuple(group)  # nodes of one site are neighbours
            refusals = self._driver(state, together[0].task).submit(together)
            facts.extend(_refused(ref, reason) for ref, reason in refusals.items())
        return facts

    def _master_port(self, state: State, start: Start) -> int:
        """Return the port of an attempt: chosen once, then remembered beside its tasks."""
        path = self._runs / start.job_id / "attempts" / str(start.attempt) / _RENDEZVOUS_FILE
        if path.exists():
            return decode(path.read_bytes(), int)
        first = start.placement.tasks[0]
        assert state.inventory is not None
        ports = state.inventory.site(first.site).ports
        driver = self._drivers[self._kind(state, first.site)]
        count = ports_of(len(start.placement.site_ranks()))
        port = driver.free_port(first.address, ports, self._ports_in_use(state), count)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, encode(port))
        return port

    def _ports_in_use(self, state: State) -> frozenset[int]:
        """Ports given to live attempts: their ranks may not listen yet."""
        ports: set[int] = set()
        for job in state.jobs.values():
            if job.attempt is not None:
                number = str(job.attempt.number)
                path = self._runs / job.job_id / "attempts" / number / _RENDEZVOUS_FILE
                if path.exists():
                    port = decode(path.read_bytes(), int)
                    sites = len(job.attempt.placement.site_ranks())
                    ports.update(range(port, port + ports_of(sites)))
        return frozenset(ports)

    def _driver(self, state: State, ref: TaskRef) -> Driver:
        return self._drivers[self._kind(state, ref.site)]

    def _kind(self, state: State, site: str) -> str:
        assert state.inventory is not None
        try:
            return state.inventory.site(site).kind
        except KeyError:  # the site left the grid while its task ran
            return "local"


def _ref(action: RenewLease | StopTask) -> TaskRef:
    site, _, node = action.domain.partition("/")
    return TaskRef(
        job_id=action.job_id,
        attempt=action.attempt,
        epoch=action.epoch,
        site=site,
        node=node,
        life=action.life,
    )


def _why_no_port(error: SiteError | OSError) -> Reason:
    if isinstance(error, OSError) and error.filename:  # where it is to be remembered
        return Reason(
            code=Why.REFUSED,
            sentence=f"{error.filename} cannot be written: {cause_of(error)}",
            remedy="free space there" if error.errno in FULL else "make it writable",
        )
    return Reason(
        code=Why.REFUSED,
        sentence=f"rank 0 cannot listen: {error}",
        remedy="free a port, or widen `ports` of the site in the grid file",
    )


def _refused(ref: TaskRef, reason: Reason) -> TaskRefused:
    return TaskRefused(
        job_id=ref.job_id,
        attempt=ref.attempt,
        epoch=ref.epoch,
        domain=ref.domain,
        life=ref.life,
        reason=reason,
    )
