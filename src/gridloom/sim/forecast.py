"""When jobs of a live state start and end: many seeded futures of a copy of it.

In each future every job gets a true duration of its own, drawn from what is predicted of it.
Starts succeed at once, nothing breaks, nobody hands anything in; the scheduler decides the rest.
"""

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypedDict

import msgspec

from gridloom.base.codec import decode, encode
from gridloom.core import progress
from gridloom.core.machine import Machine
from gridloom.core.state import State, live_tasks, tasks_of
from gridloom.core.turn import LeaseTerms
from gridloom.model.action import AnyAction, CloseJob, StartAttempt, StopTask
from gridloom.model.event import (
    AnyEvent,
    CheckpointSaved,
    JobSubmitted,
    TaskEnded,
    TaskReady,
    TaskRunning,
)
from gridloom.model.life import (
    HOLDING,
    OVER,
    Attempt,
    Job,
    Outcome,
    Placement,
    Task,
    TaskState,
)
from gridloom.model.reason import Why
from gridloom.sim.engine import NEVER_S, Agenda, Urgency

RUNS = 40
"""Futures that are looked at, when durations are uncertain."""

_DRAWS_MAX = 200
_OVERRUN = 0.1
"""A job that has outrun its prediction by far is taken to need a tenth more than it has run: as the
scheduler takes it."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one job in one future; infinity for what never happened.

    Attributes:
        start_s: When its next attempt, or the one that runs, was placed.
        end_s: When it was over.
        placement: Where that attempt was placed.
    """

    start_s: float = math.inf
    end_s: float = math.inf
    placement: Placement | None = None


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one job in all futures.

    Attributes:
        seen: One a future.
    """

    seen: tuple[Seen, ...]

    def start_s(self, percent: int) -> float:
        """Return by when it has started in so many percent of the futures; infinity: it has not."""
        return _rank([one.start_s for one in self.seen], percent)

    def end_s(self, percent: int) -> float:
        """Return by when it is over in so many percent of the futures; infinity: it is not."""
        return _rank([one.end_s for one in self.seen], percent)

    def placement(self) -> tuple[Placement | None, float]:
        """Return where it was placed most often, at which sites, and in which share of futures."""
        placed = [one.placement for one in self.seen if one.placement is not None]
        counts: dict[tuple[tuple[str, int], ...], list[Placement]] = {}
        for one in placed:
            counts.setdefault(one.site_ranks(), []).append(one)
        if not counts:
            return None, 0.0
        best = max(sorted(counts), key=lambda sites: len(counts[sites]))
        return counts[best][0], len(counts[best]) / len(self.seen)


class Futures(msgspec.Struct, frozen=True, kw_only=True):
    """Which futures to look at.

    Attributes:
        seed: Of their chance.
        runs: How many; 0 for `RUNS`, or for one where nothing is uncertain.
        durations: Seconds of running on the first option, by job, where more is known than the
            jobs' own forecasts.
        facts: What the scheduler is told at their begin, as a job that is handed in.
        told: Called with how many are done, and of how many.
    """

    seed: int = 0
    runs: int = 0
    durations: dict[str, float] = {}
    facts: tuple[AnyEvent, ...] = ()
    told: Callable[[int, int], None] = lambda _done, _total: None


def outlooks(
    state: State, asked: Sequence[str], now_s: float, futures: Futures
) -> dict[str, Outlook]:
    """Return what becomes of some jobs.

    Args:
        state: What the scheduler knows; it stays as it is.
        asked: The jobs.
        now_s: When the futures begin.
        futures: Which.
    """
    snapshot = encode(state)
    live = [job for job in state.jobs.values() if job.state not in OVER]
    specs = [job.spec for job in live]
    specs += [fact.spec for fact in futures.facts if isinstance(fact, JobSubmitted)]
    uncertain = any(spec.forecast.spread > 0 for spec in specs)
    count = futures.runs or (RUNS if uncertain else 1)
    found: dict[str, list[Seen]] = {job_id: [] for job_id in asked}
    for run in range(count):
        futures.told(run, count)
        future = _Future(decode(snapshot, State), f"{futures.seed}/{run}", futures)
        future.run(now_s, asked)
        for job_id in asked:
            found[job_id].append(future.seen.get(job_id, Seen()))
    return {job_id: Outlook(seen=tuple(seen)) for job_id, seen in found.items()}


def unknown_durations(state: State, durations: Mapping[str, float] | None = None) -> list[Job]:
    """Return the jobs that are not over and of which nobody knows how long they run.

    A job with a limit on its running time is known to end by then.
    """
    return [
        job
        for job in state.jobs.values()
        if job.state not in OVER
        and not (durations or {}).get(job.job_id)
        and not job.spec.forecast.duration_s
        and not job.spec.budget.run_s_max
    ]


class _Names(TypedDict):
    """What a fact about a task begins with."""

    job_id: str
    attempt: int
    epoch: int
    domain: str
    life: int


class _Future:
    """One future."""

    def __init__(self, state: State, seed: str, futures: Futures) -> None:
        for job in state.jobs.values():  # whoever runs goes on running
            if job.state in HOLDING:
                _go_on_as_a_whole(job.attempts[-1])
        self.seen: dict[str, Seen] = {}
        self._machine = Machine(state, LeaseTerms(lease_s=NEVER_S))
        self._seed, self._durations = seed, futures.durations
        self._rng = random.Random(seed)
        self._agenda = Agenda()
        self._facts = list(futures.facts)
        self._stopping: set[int] = set()
        self._kept: dict[str, float] = {}

    def run(self, now_s: float, asked: Sequence[str]) -> None:
        """Let time pass until the asked jobs are over, or nothing happens any more."""
        state = self._machine.state
        now_s = max(now_s, state.now_s)
        self._agenda.run_until(now_s)
        for job in state.jobs.values():
            if job.state in HOLDING:
                self._go_on(job, now_s)
        while self._facts or any(not self._is_over(job_id) for job_id in asked):
            self._act(self._machine.step(self._drained(), now_s, self._rng), now_s)
            if self._facts:
                continue
            timer_s, next_s = self._machine.next_timer_s(), self._agenda.next_s()
            times_s = [at_s for at_s in (timer_s, next_s) if at_s is not None and at_s < NEVER_S]
            if not times_s:
                return
            now_s = max(min(times_s), now_s)
            self._agenda.run_until(now_s)

    def _is_over(self, job_id: str) -> bool:
        job = self._machine.state.jobs.get(job_id)
        return job is None or job.state in OVER

    def _drained(self) -> list[AnyEvent]:
        facts = self._facts.copy()
        self._facts.clear()
        return facts

    def _go_on(self, job: Job, now_s: float) -> None:
        """Let what runs come to its end; what has been told to stop does so within its grace."""
        attempt = job.attempts[-1]
        self._note(job.job_id, attempt.started_s, attempt.placement)
        if attempt.stop_sent:
            self._save(job, attempt.grace_until_s - now_s, now_s)
            return
        done_s = _done_s(job, attempt, now_s)
        total_s = self._total_s(job, done_s)
        placement = attempt.placement
        pace = progress.speed(job, placement.option, placement.step_s)
        self._plan_end(job, attempt, now_s + (total_s - done_s) / pace)

    def _act(self, actions: Sequence[AnyAction], now_s: float) -> None:
        for action in actions:
            job = self._machine.state.jobs[action.job_id]
            match action:
                case StartAttempt():
                    self._start(job, action, now_s)
                case StopTask() if action.epoch not in self._stopping:
                    self._save(job, action.grace_s, now_s)
                case CloseJob():
                    seen = self.seen.get(job.job_id, Seen())
                    self.seen[job.job_id] = msgspec.structs.replace(seen, end_s=now_s)
                case _:
                    pass

    def _start(self, job: Job, action: StartAttempt, now_s: float) -> None:
        attempt, placement = job.attempts[-1], action.placement
        self._note(job.job_id, now_s, placement)
        for task in live_tasks(attempt):
            self._facts.append(TaskRunning(**_of(job, attempt, task)))
        restart_s = job.spec.forecast.restart_s if action.restart_count else 0.0
        self._agenda.put(now_s + restart_s, Urgency.START, self._train, (job, attempt))

    def _train(self, argument: tuple[Job, Attempt]) -> None:
        job, attempt = argument
        if job.attempt is not attempt or attempt.stop_sent:
            return
        placement = attempt.placement
        who = _first(job, attempt)
        self._facts.append(TaskReady(resumed_step=job.checkpoint_step, **who))
        pace = progress.speed(job, placement.option, placement.step_s)
        kept_s = self._kept.get(job.job_id, attempt.kept_s)
        left_s = self._total_s(job, kept_s) - kept_s
        self._plan_end(job, attempt, self._agenda.now_s + left_s / pace)

    def _plan_end(self, job: Job, attempt: Attempt, at_s: float) -> None:
        self._agenda.put(at_s, Urgency.END, self._end, (job, attempt))

    def _end(self, argument: tuple[Job, Attempt]) -> None:
        job, attempt = argument
        if job.attempt is attempt and not attempt.stop_sent:
            self._end_tasks(job, attempt, Why.COMPLETED, "all ranks ended well")

    def _save(self, job: Job, grace_s: float, now_s: float) -> None:
        """Let an attempt that is told to stop save, if it has the time, and stop."""
        attempt = job.attempts[-1]
        self._stopping.add(attempt.epoch)
        save_s = job.spec.forecast.checkpoint_s
        if save_s <= grace_s:
            self._kept[job.job_id] = _done_s(job, attempt, now_s)
        at_s = now_s + max(min(save_s, grace_s), 0.0)
        self._agenda.put(at_s, Urgency.END, self._stop, (job, attempt))

    def _stop(self, argument: tuple[Job, Attempt]) -> None:
        job, attempt = argument
        if job.attempt is not attempt:
            return
        if not attempt.killed and attempt.ready_s > 0:
            step = max(attempt.last_step, attempt.checkpoint_step)
            self._facts.append(CheckpointSaved(step=step, **_first(job, attempt)))
        self._end_tasks(job, attempt, Why.STOP_REQUESTED, "it saved its state and stopped")

    def _end_tasks(self, job: Job, attempt: Attempt, code: Why, sentence: str) -> None:
        outcome = Outcome(code=code, sentence=sentence, ended_s=self._agenda.now_s)
        for task in live_tasks(attempt):
            self._facts.append(TaskEnded(outcome=outcome, **_of(job, attempt, task)))

    def _note(self, job_id: str, start_s: float, placement: Placement) -> None:
        if job_id not in self.seen:
            self.seen[job_id] = Seen(start_s=start_s, placement=placement)

    def _total_s(self, job: Job, done_s: float) -> float:
        """Return how long the job runs in this future, given how much it has done already."""
        forecast = job.spec.forecast
        median_s = self._durations.get(job.job_id) or forecast.duration_s
        if not median_s:
            return NEVER_S
        for factor in _factors(forecast.spread, f"{self._seed}/{job.job_id}"):
            if median_s * factor > done_s:
                return median_s * factor
        return done_s * (1 + _OVERRUN)


def _done_s(job: Job, attempt: Attempt, now_s: float) -> float:
    """Return the work that is done: a program that never says that it trains does since its start.

    The scheduler itself counts none of that, as it must not take for kept what may be lost.
    """
    if attempt.ready_s:
        return progress.done_s(job, attempt, now_s)
    placement = attempt.placement
    pace = progress.speed(job, placement.option, placement.step_s)
    restart_s = job.spec.forecast.restart_s if attempt.resumed else 0.0
    return attempt.kept_s + max(now_s - attempt.started_s - restart_s, 0.0) * pace


def _factors(spread: float, seed: str) -> Iterator[float]:
    """Yield true over predicted durations, log-normal with median 1."""
    if spread <= 0:
        yield 1.0
        return
    rng = random.Random(seed)
    for _ in range(_DRAWS_MAX):
        yield math.exp(rng.gauss(0.0, spread))


def _go_on_as_a_whole(attempt: Attempt) -> None:
    """Let nobody be lost any more: a site that is away for a moment is as good as there."""
    for task in tasks_of(attempt):
        if task.placement.site in attempt.absent and task.outcome is not None:
            task.state, task.outcome = TaskState.RUNNING, None
        task.lease_until_s = NEVER_S
    attempt.absent.clear()


def _first(job: Job, attempt: Attempt) -> _Names:
    return _of(job, attempt, tasks_of(attempt)[0])


def _of(job: Job, attempt: Attempt, task: Task) -> _Names:
    return {
        "job_id": job.job_id,
        "attempt": attempt.number,
        "epoch": attempt.epoch,
        "domain": task.placement.domain,
        "life": task.life,
    }


def _rank(values: Sequence[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[max(-(-percent * len(ordered) // 100), 1) - 1]
