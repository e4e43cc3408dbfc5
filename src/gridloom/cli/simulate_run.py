"""One run of `simulate`: a policy, a seed, and what is left of it."""

import contextlib
import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from gridloom.base.codec import encode
from gridloom.base.errors import InputError, Problem
from gridloom.base.files import cause_of
from gridloom.base.system import SystemClock
from gridloom.cli.simulate_files import read_faults, read_signals
from gridloom.cli.simulate_flags import World
from gridloom.cli.simulate_forecast import Outlook, on_calendar
from gridloom.cli.simulate_progress import Bar, Stop
from gridloom.cli.simulate_setup import Setup
from gridloom.core.explain import ever_fits
from gridloom.core.machine import Machine
from gridloom.core.state import live_tasks
from gridloom.model.action import CloseJob
from gridloom.model.event import BookingMade
from gridloom.model.life import OVER
from gridloom.model.policy import Policy
from gridloom.ports.journal import Record
from gridloom.sim.gauges import scatter
from gridloom.sim.law_watch import law_watch
from gridloom.sim.record import Span
from gridloom.sim.report import Circumstances, Summary, summarise
from gridloom.sim.report_page import Section, section_of
from gridloom.sim.simulation import Simulation
from gridloom.sim.terms import Forecasts, SimTerms
from gridloom.sim.waits import WaitWatch
from gridloom.sim.workload import Workload

Write = Callable[[Record], None]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All that was asked, read and checked.

    Attributes:
        setup: Grid and jobs.
        policies: Under which rules.
        seeds: With which seeds.
        outlook: Who predicts durations.
        world: Noise, and the names of the scripts of faults and signals.
        until_s: After the first submission; nothing for the end.
        laws: How they are checked.
        drawn: A section of a report is wanted.
    """

    setup: Setup
    policies: tuple[Policy, ...]
    seeds: tuple[int, ...]
    outlook: Outlook
    world: World
    until_s: float | None
    laws: str
    drawn: bool


@dataclass(frozen=True, kw_only=True)
class Done:
    """One run that has come to its end, or to its interruption.

    Attributes:
        summary: Its figures.
        never: Why the first of the jobs that can never run cannot; empty when all can.
        section: Of a report, where one is wanted.
    """

    summary: Summary
    never: str
    section: Section | None


class Run:
    """One policy with one seed, counted by a bar that several runs may share."""

    def __init__(self, plan: Plan, policy: Policy, seed: int, workload: Workload) -> None:
        """Set the stage.

        Raises:
            InputError: A script of faults or signals cannot be used.
        """
        self._plan, self._policy, self._seed, self._workload = plan, policy, seed, workload
        self._arrivals = plan.outlook.told(on_calendar(workload), seed)
        self._ended = 0
        self._stopped = False
        first_s = self._first_s = self._arrivals[0].submit_s
        inventory = replace(plan.setup.inventory, policy=policy)
        terms = SimTerms(noise=plan.world.noise, spans=plan.drawn, keep_over=False)
        alone = not any(arrival.spec.after for arrival in self._arrivals)
        machine = Machine(terms=replace(terms.lease_terms(), forget_over=alone))
        self._laws = law_watch(machine, plan.laws)
        self._waits = WaitWatch() if plan.drawn else None
        self._faults = read_faults(plan.world.faults, inventory, first_s)
        self._inventory = inventory
        self._write: Write | None = None
        self._bar: Bar | None = None
        self._stop: Stop | None = None
        self._before = 0
        self._sim = Simulation(
            inventory,
            self._arrivals,
            seed=seed,
            faults=self._faults,
            terms=terms,
            signals=read_signals(plan.world.signals, inventory, first_s),
            forecasts=self._learner(),
            watch=self._look,
            journal=self._note,
            gauge=scatter(machine),
            machine=machine,
        )
        self._book()

    def go(self, *, bar: Bar, stop: Stop, before: int, write: Write | None) -> Done:
        """Let time pass to the end, or until a person asks to stop.

        Args:
            bar: Told how far it is.
            stop: Tells that a person has seen enough.
            before: Jobs of the runs before, for the bar.
            write: Given the record of each step.
        """
        self._bar, self._stop, self._before, self._write = bar, stop, before, write
        clock = SystemClock()
        began_s, cpu_s = clock.monotonic_s(), _cpu_s()
        until_s = self._plan.until_s
        try:
            self._sim.run(None if until_s is None else self._first_s + until_s)
        except _StoppedError:
            self._sim.run(self._sim.now_s)  # brings the rows up to date
        about = Circumstances(
            policy=self._policy.name,
            seed=self._seed,
            now_s=self._sim.now_s,
            dropped=self._workload.dropped_by_reason(),
            wall_s=clock.monotonic_s() - began_s,
            cpu_s=_cpu_s() - cpu_s,
            interrupted=self._stopped,
        )
        summary = summarise(self._sim.record, self._arrivals, about)
        return Done(summary=summary, never=self._never(summary), section=self._section(summary))

    def _never(self, summary: Summary) -> str:
        """Return why the first job that the grid cannot run is one."""
        if not summary.never_ran:
            return ""
        pairs = zip(self._sim.record.jobs(), self._arrivals, strict=False)
        refused = (arrival for row, arrival in pairs if row.attempts == 0 and row.state in OVER)
        for arrival in refused:
            reason = ever_fits(arrival.spec, self._inventory)
            if reason is not None:
                return f"{arrival.job_id}: {reason.sentence}"
        return ""

    def _section(self, summary: Summary) -> Section | None:
        if self._waits is None:
            return None
        return section_of(
            self._sim.record,
            summary,
            inventory=self._inventory,
            faults=self._faults,
            told=self._waits.told,
            running=list(self._running()),
        )

    def _running(self) -> Iterator[Span]:
        """Yield where attempts are that had not ended when the run did."""
        for job in self._sim.machine.state.jobs.values():
            if job.attempt is None:
                continue
            for task in live_tasks(job.attempt):
                yield Span(
                    job_id=job.job_id,
                    domain=task.placement.domain,
                    devices=len(task.placement.devices),
                    start_s=job.attempt.started_s,
                    end_s=self._sim.now_s,
                )

    def _learner(self) -> Forecasts | None:
        return self._plan.outlook.learner(self._policy, self._seed, lambda: self._sim.now_s)

    def _book(self) -> None:
        """Hand in what is booked, where the log has a calendar."""
        for booking in self._plan.setup.bookings if self._workload.origin_s else ():
            self._sim.inject(BookingMade(booking=booking), self._first_s)

    def _note(self, record: Record) -> None:
        if self._laws is not None:
            self._laws(record)
        self._ended += sum(isinstance(action, CloseJob) for action in record.actions)
        if self._write is not None:
            self._write(record)

    def _look(self, sim: Simulation) -> None:
        if self._waits is not None:
            self._waits.look(sim)
        if self._bar is not None:
            done = self._before + self._ended
            self._bar.tell(self._policy.name, done, sim.now_s - self._first_s)
        if self._stop is not None and self._stop.asked and not self._stopped:
            self._stopped = True
            raise _StoppedError


class _StoppedError(Exception):
    """A person has seen enough."""


@contextlib.contextmanager
def journal_file(path: Path | None) -> Iterator[Write | None]:
    """Yield what writes records into a file, one a line; nothing without a file.

    Raises:
        InputError: It cannot be written.
    """
    if path is None:
        yield None
        return
    try:
        opened = path.open("wb")
    except OSError as error:
        problem = Problem(f"cannot be written: {cause_of(error)}", file=str(path))
        raise InputError([problem]) from error
    with opened:
        yield lambda record: _put(opened.write, record)


def _put(write: Callable[[bytes], int], record: Record) -> None:
    write(encode(record) + b"\n")


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
