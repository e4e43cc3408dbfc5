"""Carries intentions out, once each: actions of the outbox to the drivers of their sites."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

from msgspec.structs import replace

from gridloom.base.codec import decode, encode
from gridloom.base.errors import SiteError
from gridloom.base.files import FULL, cause_of, replace_file
from gridloom.control import meeting, rundir, standing
from gridloom.control.bringing import Bringing
from gridloom.control.orders import Start, task_orders, task_refs
from gridloom.core.state import State, live_tasks, party, tasks_of
from gridloom.core.turn import LeaseTerms
from gridloom.model.action import (
    AnyAction,
    CloseJob,
    OpenRendezvous,
    RenewLease,
    RestartSite,
    StartAttempt,
    StopTask,
)
from gridloom.model.event import AnyEvent, TaskRefused
from gridloom.model.inventory import Inventory, Site
from gridloom.model.life import Attempt, Job, SiteUse, Task, TaskState
from gridloom.model.reason import Reason, Why
from gridloom.ports.driver import Accounting, Driver
from gridloom.ports.journal import Journal
from gridloom.wire.agent import TaskRef, who
from gridloom.wire.launch import ports_of

_CLOSES_MAX = 16
"""Jobs closed at once: each waits for the disk, and meanwhile nobody's lease is renewed."""
_PORT_FILE = "rendezvous.json"


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
        self._bringing = Bringing(drivers.values())
        self.troubles: list[str] = []
        """What could not be carried out at the last try, a sentence each."""
        self.left = False
        """Whether more is to be carried out than was at the last try: of jobs that are over they
        were too many, or their sites' accounts are not complete; or what an attempt goes on from is
        still on its way."""

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
                if isinstance(action, StartAttempt) and self._bringing.holds(state, action):
                    self.left = True
                    continue
                if isinstance(action, CloseJob) and not self._has_used(action.job_id):
                    self.left = True
                    continue
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
        """Return what the drivers saw of all live tasks, and of nodes that are kept from work."""
        by_kind: dict[str, list[TaskRef]] = {kind: [] for kind in self._drivers}
        for job in state.jobs.values():
            attempt = job.attempt
            for task in attempt.tasks.values() if attempt else ():
                if attempt is not None and task.outcome is None:
                    ref = _task_ref(job.job_id, attempt, task)
                    if ref in self._bringing.tasks():
                        continue
                    by_kind.setdefault(self._kind(state, ref.site), []).append(ref)
        seen = [
            fact for kind, refs in by_kind.items() for fact in self._drivers[kind].observe(refs)
        ]
        seen.extend(self._bringing.facts())
        for site in state.inventory.sites if state.inventory is not None else ():
            seen.extend(
                standing.news(state.marks, site.name, self._drivers[site.kind].standing(site))
            )
        return seen

    def _carry_out(self, state: State, action: AnyAction) -> Sequence[AnyEvent]:
        match action:
            case StartAttempt() | RestartSite():
                return self._start(state, action)
            case OpenRendezvous():
                return self._meet(state, action)
            case RenewLease():
                ref = _ref(action)
                self._driver(state, ref).renew(ref, action.lease_until_s)
            case StopTask():
                ref = _ref(action)
                sentence = action.reason.sentence
                self._driver(state, ref).stop(ref, action.grace_s, sentence)
            case CloseJob():
                with _as_site_errors("the summary"):
                    self._close(state.jobs[action.job_id], state.inventory)
        return ()

    def _has_used(self, job_id: str) -> bool:
        """Note what a job has used by its sites' accounts; return whether those are complete."""
        used: list[SiteUse] = []
        for driver in self._drivers.values():
            told = driver.used(job_id) if isinstance(driver, Accounting) else ()
            if told is None:
                return False
            used += told
        if used:
            with _as_site_errors("what the job has used"):
                rundir.write_use(self._runs / job_id, used)
        return True

    def _start(self, state: State, start: Start) -> list[AnyEvent]:
        run_dir = self._runs / start.job_id
        sites = {site.name: site for site in state.inventory.sites} if state.inventory else {}
        gone = {task.site for task in start.placement.tasks} - sites.keys()
        if gone:
            return [_refused(ref, _why_gone(gone)) for ref in task_refs(start)]
        meets = self._meets(sites, start)
        try:
            port = self._master_port(state, start) if meets is None else 0
        except (SiteError, OSError) as error:
            return [_refused(ref, _why_no_port(error)) for ref in task_refs(start)]
        orders = task_orders(
            start,
            state.jobs[start.job_id].spec,
            run_dir,
            master_port=port,
            sites=sites,
            terms=self._terms,
        )
        facts: list[AnyEvent] = []
        for name, group in groupby(orders, key=lambda order: order.task.site):
            # Nodes of one site are neighbours
            together = tuple(replace(order, meets=meets) for order in group)
            refusals = self._drivers[sites[name].kind].submit(sites[name], together)
            facts.extend(_refused(ref, reason) for ref, reason in refusals.items())
        return facts

    def _meets(self, sites: Mapping[str, Site], start: Start) -> tuple[int, int] | None:
        """Return the ports that rank 0 may listen on, if nobody knows yet on which node it will."""
        tasks = start.placement.tasks
        if any(self._drivers[sites[task.site].kind].chooses_nodes for task in tasks):
            return sites[tasks[0].site].ports
        return None

    def _meet(self, state: State, action: OpenRendezvous) -> list[AnyEvent]:
        attempt = state.jobs[action.job_id].attempt
        if attempt is None or attempt.epoch != action.epoch:
            return []
        tasks = party(attempt, action.life, action.site)
        refs = [_task_ref(action.job_id, attempt, task) for task in tasks]
        try:
            port = self._meeting_port(state, action.job_id, attempt)
        except (SiteError, OSError) as error:
            reason = _why_no_port(error)
            for ref in refs:
                self._driver(state, ref).stop(ref, 0.0, reason.sentence)
            return [_refused(ref, reason) for ref in refs]
        told = meeting.rendezvous(attempt, port)
        # Who runs has to find those that are back elsewhere
        running = [one for one in live_tasks(attempt) if one.state is TaskState.RUNNING]
        refs += [_task_ref(action.job_id, attempt, task) for task in running]
        for ref in refs:
            self._driver(state, ref).meet(ref, told)
        return []

    def _meeting_port(self, state: State, job_id: str, attempt: Attempt) -> int:
        """Return the port of an attempt whose tasks have come up: chosen once, then remembered."""
        path = self._port_file(job_id, attempt.number)
        if path.exists():
            return decode(path.read_bytes(), int)
        arrivals = [task.arrival for task in tasks_of(attempt) if task.arrival is not None]
        count = ports_of(len(attempt.placement.site_ranks()))
        port = meeting.common_port(arrivals, self._ports_in_use(state), count, str(self._runs))
        if port is None:
            nodes = ", ".join(dict.fromkeys(arrival.node for arrival in arrivals))
            raise SiteError(f"no row of {count} ports is free on all of {nodes}")
        _remember(path, port)
        return port

    def _master_port(self, state: State, start: Start) -> int:
        """Return the port of an attempt: chosen once, then remembered beside its tasks."""
        path = self._port_file(start.job_id, start.attempt)
        if path.exists():
            return decode(path.read_bytes(), int)
        first = start.placement.tasks[0]
        assert state.inventory is not None
        ports = state.inventory.site(first.site).ports
        driver = self._drivers[self._kind(state, first.site)]
        count = ports_of(len(start.placement.site_ranks()))
        port = driver.free_port(first.address, ports, self._ports_in_use(state), count)
        _remember(path, port)
        return port

    def _ports_in_use(self, state: State) -> frozenset[int]:
        """Ports given to live attempts: their ranks may not listen yet."""
        ports: set[int] = set()
        for job in state.jobs.values():
            if job.attempt is not None:
                path = self._port_file(job.job_id, job.attempt.number)
                if path.exists():
                    port = decode(path.read_bytes(), int)
                    sites = len(job.attempt.placement.site_ranks())
                    ports.update(range(port, port + ports_of(sites)))
        return frozenset(ports)

    def _port_file(self, job_id: str, attempt: int) -> Path:
        return self._runs / job_id / "attempts" / str(attempt) / _PORT_FILE

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


def _task_ref(job_id: str, attempt: Attempt, task: Task) -> TaskRef:
    return TaskRef(
        job_id=job_id,
        attempt=attempt.number,
        epoch=attempt.epoch,
        site=task.placement.site,
        node=task.placement.node,
        life=task.life,
    )


@contextmanager
def _as_site_errors(what: str) -> Iterator[None]:
    """Say of the file system's errors what could not be written."""
    try:
        yield
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise SiteError(f"{place}{what} cannot be written: {error.strerror}") from error


def _remember(path: Path, port: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, encode(port))


def _why_gone(sites: Iterable[str]) -> Reason:
    names = ", ".join(sorted(sites))
    return Reason(
        code=Why.REFUSED,
        sentence=f"not in the grid any more: {names}",
        remedy="put it back into the grid file",
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
    return TaskRefused(**who(ref), reason=reason)
