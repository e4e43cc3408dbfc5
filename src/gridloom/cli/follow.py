"""Follows one job to its end: leads the control plane when nobody does, and shows what happens."""

import re
import signal
from collections.abc import Mapping
from types import FrameType
from typing import Any, Protocol, Self

from gridloom.base.files import LineTail
from gridloom.cli.wiring import Plane
from gridloom.control import rundir
from gridloom.control.progress import Progress, ProgressMeter
from gridloom.model.event import StopRequested
from gridloom.model.life import OVER, Job, JobState

_BEAT_S = 0.1
_LOOK_S = 0.5
"""Between two looks at the journal of another process, and two tries to lead."""
_CLOSE_S = 5.0
"""How long to wait for another process to write the summary of the job that is over."""
_DURATION = re.compile(r"\b\d+(?:ms|s|m \d\ds|h \d\dm|d \d\dh)\b")
"""As ``format_duration`` writes it."""
_INTERRUPTED = 128
_ASK_AGAIN = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Display(Protocol):
    """Whoever is told what happens to the job."""

    def job(self, job: Job) -> None:
        """The job is in another state, has another attempt, or waits for another reason."""
        ...

    def metric(self, metric: Mapping[str, Any], progress: Progress, job: Job) -> None:
        """A training step is over."""
        ...

    def tick(self, progress: Progress, job: Job | None) -> None:
        """Time has passed."""
        ...

    def interrupted(self, job: Job | None) -> None:
        """The person asked for a stop of the job, as far as it is known."""
        ...

    def note(self, sentence: str) -> None:
        """The job's program says something of where it starts that a person should know."""
        ...

    def trouble(self, sentence: str) -> None:
        """The control plane could not carry something out."""
        ...

    def close(self) -> None:
        """Nothing more comes."""
        ...


class Interrupts:
    """Notes the signals that ask to stop, from before a job is handed in until it is over."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._note) for number in _ASK_AGAIN}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.numbers.append(number)


def news_of(job: Job) -> tuple[object, ...]:
    """Return what is shown again when it has changed; that time passes is no news."""
    sentence = _DURATION.sub("", job.reason.sentence) if job.reason else ""
    return job.state, len(job.attempts), sentence, job.checkpoint_step


class Follower:
    """One job under one pair of eyes."""

    def __init__(
        self, plane: Plane, job_id: str, steps: int, display: Display, interrupts: Interrupts
    ) -> None:
        """Follow ``job_id``, which is to train ``steps`` steps (0: unknown)."""
        self._plane = plane
        self._job_id = job_id
        self._display = display
        self._signals = interrupts.numbers
        self._meter = ProgressMeter(steps)
        self._tail = LineTail(plane.settings.runs / job_id / rundir.METRICS_FILE)
        self._shown: tuple[object, ...] = ()
        self._next_look_s = 0.0
        self._job: Job | None = None
        self._troubles: set[str] = set()
        self._notes: dict[int, int] = {}
        self._closed_by_s: float | None = None

    def skip_what_is_past(self) -> None:
        """Take the metrics that exist as known, so that only new training steps are shown."""
        self._meter.feed(self._tail.lines())

    def until_over(self) -> tuple[Job | None, int]:
        """Follow until the job is over, or until the person has asked twice to leave.

        Returns:
            The job, and the exit code: 0 succeeded, 1 not, 128 and the signal's number when a
            signal ended it.
        """
        asked = 0
        try:
            while len(self._signals) < 2:
                if len(self._signals) > asked:
                    asked = len(self._signals)
                    self._plane.journal.post([StopRequested(job_id=self._job_id)])
                    self._display.interrupted(self._job)
                if self._turn():
                    break
                self._plane.clock.sleep(_BEAT_S)
        finally:
            self._display.close()
        return self._job, self._exit_code()

    def _turn(self) -> bool:
        """Let everything happen that is due; return whether the job is over."""
        now_s = self._plane.clock.monotonic_s()
        look = now_s >= self._next_look_s
        if look:
            self._next_look_s = now_s + _LOOK_S
            self._plane.try_to_lead()
        self._plane.beat()
        if not (self._plane.leads or look):
            self._show_steps()
            return False
        waiting = self._plane.journal.letters()  # asked first: the state has all others
        self._job = self._plane.state().jobs.get(self._job_id)
        if waiting and self._job is not None and self._job.state in OVER:
            return False  # what it is asked to do, as to go on, comes first
        over = self._show()
        return over and look and self._is_closed(now_s)

    def _is_closed(self, now_s: float) -> bool:
        """Return whether the files of the job that is over are written, or late."""
        if self._plane.leads or self._plane.closed(self._job_id):
            return True
        if self._closed_by_s is None:
            self._closed_by_s = now_s + _CLOSE_S
        return now_s >= self._closed_by_s

    def _show_steps(self) -> None:
        for metric in self._meter.feed(self._tail.lines()):
            if self._job is not None:
                self._display.metric(metric, self._meter.now(), self._job)
        self._display.tick(self._meter.now(), self._job)

    def _show(self) -> bool:
        """Show what changed; return whether the job is over."""
        self._show_steps()
        for sentence in self._plane.troubles():
            if sentence not in self._troubles:
                self._troubles.add(sentence)
                self._display.trouble(sentence)
        job = self._job
        if job is None:
            return False
        for attempt in job.attempts[-1:]:
            for sentence in attempt.notes[self._notes.get(attempt.number, 0) :]:
                self._display.note(sentence)
            self._notes[attempt.number] = len(attempt.notes)
        shown = news_of(job)
        if shown != self._shown:
            self._shown = shown
            self._display.job(job)
        return job.state in OVER

    def _exit_code(self) -> int:
        if self._job is not None and self._job.state is JobState.SUCCEEDED:
            return 0
        return _INTERRUPTED + self._signals[0] if self._signals else 1
