"""Supervises one task: starts its ranks, keeps its lease, passes on what they say, and ends it."""

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from gridloom.agent.rank import rank_argv, rank_environment, told_where
from gridloom.agent.report import Reporter
from gridloom.agent.verdict import RankExit, plain, verdict
from gridloom.base.clock import Clock
from gridloom.base.codec import decode
from gridloom.base.errors import SiteError
from gridloom.base.files import EXHAUSTED, LineTail
from gridloom.model.life import Arrival, Outcome
from gridloom.model.reason import Why
from gridloom.wire import launch
from gridloom.wire.agent import (
    LEASE_FILE,
    RENDEZVOUS_FILE,
    REPORTS_FILE,
    STOP_FILE,
    LeaseRenewal,
    RankOrder,
    Rendezvous,
    StopOrder,
    TaskOrder,
)

T = TypeVar("T")

_TICK_S = 0.05
_HEARTBEAT_S = 1.0
_SETTLE_S = 0.4
"""How long to wait for further exits after the first bad one, so that the true cause is seen."""
_SWEEPS_MAX = 30
"""How often to look, about a second each, for processes that take long to die."""
_REPORT_S = 5.0
"""How long to try to write the last report to a disk that is full."""
_REPORT_BYTES = 1 << 20
"""How much of one rank's report file is read in one turn; the lease must not wait for more."""
_LAST_WORDS_BYTES = 4096
_NOTES_MAX = 20


class Processes(Protocol):
    """The processes of one task, as the supervisor needs them."""

    def spawn(
        self, argv: Sequence[str], workdir: str, env: Mapping[str, str], log_file: Path
    ) -> int:
        """Start a process that leads a group of its own; return its id.

        Raises:
            OSError: The program, the working directory or the log cannot be used.
            ValueError: The command line or the environment is impossible.
        """
        ...

    def exits(self) -> Mapping[int, int]:
        """Return the exit status of those that ended since the last call, by id."""
        ...

    def signal(self, pid: int, number: int) -> None:
        """Signal the group of a process that has not ended yet."""
        ...

    def warn(self, pid: int, number: int) -> None:
        """Signal a process that has not ended yet, and no other of its group."""
        ...

    def sweep(self) -> int:
        """Kill every process of the task; return how many there were, 0 when none is left."""
        ...

    def pulse(self) -> None:
        """Tell the guardian that the supervisor is not stuck."""
        ...


class _Child:
    """One rank's process and what is known of it."""

    def __init__(self, order: RankOrder, pid: int, log_bytes: int, *, speaks: bool) -> None:
        self.order = order
        self.pid = pid
        self.log_bytes = log_bytes
        self.lines = LineTail(Path(order.rank.report_file))
        self.speaks = speaks
        self.failure: launch.Failure | None = None
        self.exit_code: int | None = None
        self.ended_s = 0.0

    def ended_badly(self) -> bool:
        good = (launch.EXIT_DONE, launch.EXIT_STOPPED) if self.speaks else (launch.EXIT_DONE,)
        return self.exit_code is not None and self.exit_code not in good

    def exit(self) -> RankExit:
        assert self.exit_code is not None
        return RankExit(
            rank=self.order.rank.rank,
            exit_code=self.exit_code,
            ended_s=self.ended_s,
            failure=self.failure,
            last_words=last_words(Path(self.order.log_file), self.log_bytes),
            speaks=self.speaks,
        )


class Supervisor:
    """The life of one task, from its order to the report that nothing of it is left."""

    def __init__(
        self,
        order: TaskOrder,
        directory: Path,
        environment: Mapping[str, str],
        clock: Clock,
        processes: Processes,
        arrival: Arrival | None = None,
    ) -> None:
        """Start nothing yet; the first lease runs from now on.

        Args:
            order: The task.
            directory: Where its orders and reports are.
            environment: The supervisor's own.
            clock: Where the time comes from.
            processes: Starts, signals and sweeps those of the task.
            arrival: Where this is, if the ranks wait until the tasks know of each other.
        """
        self._order = order
        self._directory = directory
        self._environment = environment
        self._clock = clock
        self._processes = processes
        self._awaits = arrival
        self._reporter = Reporter(directory / REPORTS_FILE, order.task.epoch, clock)
        self._children: list[_Child] = []
        self._ready = False
        self._step = 0
        self._checkpoint = 0
        self._terminated = False
        self._warned = False
        self._asked: StopOrder | None = None
        self._stop: StopOrder | None = None
        self._why = Why.STOP_REQUESTED
        self._kill_at_s: float | None = None
        self._our_hand = ""
        self._settle_until_s: float | None = None
        self._heartbeat_due_s = 0.0
        self._renewal: LeaseRenewal | None = None
        self._lease_until_s = order.lease_until_s
        self._renewed_s = clock.monotonic_s()
        self._outcome: Outcome | None = None

    def run(self) -> Outcome:
        """Carry the task through to its end and return how it ended.

        Raises:
            SiteError: The end could not be reported.
        """
        outcome = self._start()
        while outcome is None:
            outcome = self._tick()
            if outcome is None:
                self._clock.sleep(_TICK_S)
        for _ in range(_SWEEPS_MAX):
            if not self._processes.sweep():
                break
            self._beat(self._clock.monotonic_s())
        self._pass_on_lines(most_bytes=None)
        self._report_end(outcome)
        return outcome

    def ask_to_stop(self) -> None:
        """Stop with the order's own grace, as when the node's operator sends SIGTERM.

        May be called by a signal handler: the next turn takes it up.
        """
        self._terminated = True

    def pass_warning_on(self) -> None:
        """Hand the site's warning on to a batch script that has asked its site for it.

        May be called by a signal handler: the next turn takes it up.
        """
        self._warned = True

    def _start(self) -> Outcome | None:
        self._renewal = _read(self._directory / LEASE_FILE, LeaseRenewal)
        if self._renewal is not None:  # the site took its time
            self._lease_until_s = self._renewal.until_s
        if self._clock.now_s() >= self._lease_until_s:
            sentence = "the lease had lapsed before the task was started"
            return Outcome(code=Why.LEASE_LAPSED, sentence=sentence, ended_s=self._clock.now_s())
        if self._awaits is not None:
            self._beat(self._clock.monotonic_s())
            return None
        return self._start_ranks()

    def _start_ranks(self) -> Outcome | None:
        for order in self._order.ranks:
            log_bytes = _size_bytes(Path(order.log_file))
            try:
                pid = self._processes.spawn(
                    rank_argv(self._order.argv),
                    self._order.workdir,
                    rank_environment(self._order, order, self._environment),
                    Path(order.log_file),
                )
            except (OSError, ValueError) as error:
                return cannot_start(self._order, order, error, self._clock.now_s())
            ours = self._order.argv == launch.RECIPE_ARGV  # whose exit codes need no report line
            self._children.append(_Child(order, pid, log_bytes, speaks=ours))
        self._beat(self._clock.monotonic_s())
        return None

    def _tick(self) -> Outcome | None:
        if self._awaits is not None:
            return self._await_rendezvous()
        self._reap()
        self._pass_on_lines(_REPORT_BYTES)
        now_s = self._clock.monotonic_s()
        if all(child.exit_code is not None for child in self._children):
            self._pass_on_lines(most_bytes=None)
            return self._conclude()
        self._beat(now_s)
        self._read_orders(now_s)
        self._watch_for_bad_exits(now_s)
        if self._kill_at_s is not None and now_s >= self._kill_at_s:
            late = self._stop is not None and self._stop.grace_s > 0
            self._our_hand = "not ended within its grace, so killed" if late else "killed at once"
            self._kill()
        return None

    def _await_rendezvous(self) -> Outcome | None:
        now_s = self._clock.monotonic_s()
        self._beat(now_s)
        self._read_orders(now_s)
        if self._stop is not None:
            sentence = f"{self._stop.sentence}: no rank was started yet"
            return Outcome(code=self._why, sentence=sentence, ended_s=self._clock.now_s())
        told = _read(self._directory / RENDEZVOUS_FILE, Rendezvous)
        if told is None:
            return None
        self._awaits, self._heartbeat_due_s = None, 0.0
        self._order = told_where(self._order, told, self._directory / RENDEZVOUS_FILE)
        return self._start_ranks()

    def _beat(self, now_s: float) -> None:
        if now_s >= self._heartbeat_due_s:
            self._processes.pulse()
            if self._awaits is not None:
                self._reporter.arrived(self._awaits)
            else:
                self._reporter.alive()
            self._heartbeat_due_s = now_s + _HEARTBEAT_S

    def _reap(self) -> None:
        waiting = {child.pid: child for child in self._children if child.exit_code is None}
        for pid, code in self._processes.exits().items():
            if pid in waiting:
                waiting[pid].exit_code = code
                waiting[pid].ended_s = self._clock.now_s()

    def _pass_on_lines(self, most_bytes: int | None) -> None:
        """Report the furthest training step and checkpoint that is news, of all ranks together."""
        step, checkpoint = self._step, self._checkpoint
        for child in self._children:
            for line in _lines(child.lines, most_bytes):
                self._take_in(child, line)
        if self._step > step:
            self._reporter.step(self._step)
        if self._checkpoint > checkpoint:
            self._reporter.checkpoint(self._checkpoint)

    def _take_in(self, child: _Child, line: bytes) -> None:
        try:
            said = launch.LINES.decode(line)
        except (msgspec.MsgspecError, RecursionError):
            return  # the user's program may write what it likes; what we cannot read says nothing
        child.speaks = True
        if isinstance(said, launch.Ready) and not self._ready:
            self._ready = True  # all ranks start from the same place
            notes = tuple(plain(note) for note in said.notes[:_NOTES_MAX])
            self._reporter.ready(msgspec.structs.replace(said, notes=notes))
        elif isinstance(said, launch.StepDone):
            self._step = max(self._step, said.step)
        elif isinstance(said, launch.CheckpointDone):
            self._checkpoint = max(self._checkpoint, said.step)
        elif isinstance(said, launch.Failure):
            child.failure = said

    def _read_orders(self, now_s: float) -> None:
        asked = _read(self._directory / STOP_FILE, StopOrder)
        if asked is not None and asked != self._asked:
            self._asked = asked
            self._begin_stop(asked)
        if self._warned:
            self._warned = False
            self._warn()
        if self._terminated:
            self._terminated = False
            sentence = "the supervisor was asked to stop"
            self._begin_stop(StopOrder(grace_s=self._order.grace_s, sentence=sentence))
        renewal = _read(self._directory / LEASE_FILE, LeaseRenewal)
        if renewal is not None and renewal != self._renewal:
            self._renewal = renewal
            # An earlier end than we knew is news as well: the wall clock was set back
            if renewal.until_s > min(self._lease_until_s, self._clock.now_s()):
                self._lease_until_s = renewal.until_s
                self._renewed_s = now_s
        # Two clocks, whichever lapses first: the control plane's word, and ours since we heard it
        lapsed = (
            self._clock.now_s() >= self._lease_until_s
            or now_s >= self._renewed_s + self._order.lease_s
        )
        if lapsed and self._why is not Why.LEASE_LAPSED:
            self._why = Why.LEASE_LAPSED
            sentence = "the control plane has not renewed the lease"
            self._begin_stop(StopOrder(grace_s=self._order.lapse_grace_s, sentence=sentence))

    def _begin_stop(self, stop: StopOrder) -> None:
        if self._stop is None and not self._warn():
            self._signal_all(signal.SIGTERM)
        self._stop = stop
        kill_at_s = self._clock.monotonic_s() + stop.grace_s
        if self._kill_at_s is None or kill_at_s < self._kill_at_s:  # a later order never prolongs
            self._kill_at_s = kill_at_s

    def _watch_for_bad_exits(self, now_s: float) -> None:
        bad = [child for child in self._children if child.ended_badly()]
        if self._stop is not None or not bad:
            return
        if self._settle_until_s is None:
            self._settle_until_s = now_s + _SETTLE_S
        elif now_s >= self._settle_until_s and self._outcome is None:
            self._outcome = verdict([child.exit() for child in bad])
            self._kill()

    def _signal_all(self, number: int) -> None:
        for child in self._children:
            if child.exit_code is None:
                self._processes.signal(child.pid, number)

    def _warn(self) -> bool:
        """Signal a batch script as it has asked its site to; return whether it has."""
        batch = self._order.batch
        if batch is None or not batch.warning:
            return False
        for child in self._children:
            if child.exit_code is None:
                self._processes.warn(child.pid, signal_number(batch.warning))
        return True

    def _kill(self) -> None:
        self._signal_all(signal.SIGKILL)

    def _conclude(self) -> Outcome:
        if self._outcome is not None:
            return self._outcome
        outcome = verdict([child.exit() for child in self._children])
        if self._stop is None:
            return outcome
        spoke = any(child.speaks for child in self._children)
        if outcome.code is Why.COMPLETED and spoke:
            return outcome  # it was done before the request reached it
        if outcome.code in (Why.CONFIG, Why.IO):
            return outcome  # it could not save: the reader must know
        end = self._our_hand if outcome.code is Why.KILLED and self._our_hand else outcome.sentence
        return msgspec.structs.replace(
            outcome, code=self._why, sentence=f"{self._stop.sentence}: {end}"
        )

    def _report_end(self, outcome: Outcome) -> None:
        self._reporter.ended(outcome)
        given_up_s = self._clock.monotonic_s() + _REPORT_S
        while not self._reporter.flush():
            if self._clock.monotonic_s() >= given_up_s:
                raise SiteError(f"the end of the task cannot be reported: {outcome.sentence}")
            self._processes.pulse()
            self._clock.sleep(_TICK_S)


def signal_number(name: str) -> int:
    """Return the number of a signal that is called as Slurm does: ``USR1`` or ``10``."""
    return int(name) if name.isdigit() else int(signal.Signals[f"SIG{name}"])


def cannot_start(
    order: TaskOrder, rank_order: RankOrder, error: OSError | ValueError, now_s: float
) -> Outcome:
    """Return the outcome of a task one of whose ranks cannot be started."""
    code, remedy = Why.CONFIG, "check `run`, `workdir` and `env` in the job file"
    what = str(error)
    if isinstance(error, OSError):
        what = f"{error.strerror}: {error.filename or order.argv[0]}"
        if error.errno in EXHAUSTED:
            code, remedy = Why.REFUSED, "raise the limits of the node on processes, files or memory"
        elif str(error.filename) == rank_order.log_file:
            code, remedy = Why.IO, "make the run directory writable, or free space there"
    number = rank_order.rank.rank
    return Outcome(
        code=code,
        sentence=f"rank {number} cannot be started: {what}",
        remedy=remedy,
        rank=number,
        ended_s=now_s,
    )


def last_words(log_file: Path, start: int = 0) -> str:
    """Return the last line of a log that is not blank, shortened; empty when there is none.

    Without what would colour or move something on the terminal of who reads it.

    Args:
        log_file: The log.
        start: Where the words of this life begin; those before are of another.
    """
    try:
        with log_file.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(start, file.tell() - _LAST_WORDS_BYTES))
            tail = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = map(plain, reversed(tail.splitlines()))
    return next((line[:200] for line in lines if line), "")


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # there is none yet


def _lines(tail: LineTail, most_bytes: int | None) -> list[bytes]:
    try:
        return tail.lines(most_bytes)
    except OSError:
        return []  # the file is the user's program's to spoil; the exit status still speaks


def _read(path: Path, type_: type[T]) -> T | None:
    try:
        return decode(path.read_bytes(), type_)
    except (OSError, msgspec.MsgspecError):
        return None  # nothing was said; when that goes on, the lease lapses
