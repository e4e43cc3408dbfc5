"""Three ways to show a job as it goes: a live line, plain lines, JSON lines."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from gridloom.base.clock import Clock
from gridloom.base.units import format_count, format_duration
from gridloom.cli.output import console, emit, say
from gridloom.control.progress import Progress
from gridloom.model.life import HOLDING, Job, JobState

_PLAIN_EVERY_S = 10.0
_STYLES = {
    JobState.RUNNING: "green",
    JobState.SUCCEEDED: "bold green",
    JobState.FAILED: "bold red",
    JobState.STOPPED: "yellow",
    JobState.CANCELLED: "yellow",
}


class JsonDisplay:
    """One JSON object a line, by event: `job`, `step`, `note`, `stopping`, `trouble`."""

    def job(self, job: Job) -> None:
        """Emit the job's state."""
        reason = job.reason
        emit(
            {
                "event": "job",
                "job": job.job_id,
                "state": job.state.value,
                "attempt": len(job.attempts),
                "checkpoint_step": job.checkpoint_step,
                "reason": {"code": reason.code.value, "sentence": reason.sentence}
                if reason
                else None,
            }
        )

    def metric(self, metric: Mapping[str, Any], progress: Progress, job: Job) -> None:
        """Emit the training step as `metrics.jsonl` has it."""
        emit({**metric, "event": "step", "job": job.job_id, "eta_s": progress.eta_s})

    def tick(self, progress: Progress, job: Job | None) -> None:
        """Say nothing."""

    def interrupted(self, job: Job | None) -> None:
        """Emit that the stop was asked for."""
        emit({"event": "stopping"})

    def note(self, sentence: str) -> None:
        """Emit what the program says of where it starts."""
        emit({"event": "note", "message": sentence})

    def trouble(self, sentence: str) -> None:
        """Emit what could not be carried out."""
        emit({"event": "trouble", "message": sentence})

    def close(self) -> None:
        """Do nothing: every line went out at once."""


class PlainDisplay:
    """A line whenever something changes, and every ten seconds of training: for logs and pipes."""

    def __init__(self, clock: Clock) -> None:
        """Measure the ten seconds by ``clock``."""
        self._clock = clock
        self._next_s = 0.0
        self._said = (0, 0)

    def job(self, job: Job) -> None:
        """Print the state."""
        say(job_text(job))

    def metric(self, metric: Mapping[str, Any], progress: Progress, job: Job) -> None:
        """Print the step if the last line is old enough, or if it is the last step."""
        now_s = self._clock.monotonic_s()
        # Training steps that are seen together are told as one
        news = (len(job.attempts), progress.step)
        if news == self._said:
            return
        if now_s >= self._next_s or progress.step == progress.steps:
            self._said = news
            self._next_s = now_s + _PLAIN_EVERY_S
            say(progress_text(progress, job))

    def tick(self, progress: Progress, job: Job | None) -> None:
        """Say nothing."""

    def interrupted(self, job: Job | None) -> None:
        """Say what a second signal does."""
        say(_stopping(job))

    def note(self, sentence: str) -> None:
        """Say what the program says of where it starts."""
        say(Text(f"note: {sentence}", style="yellow"))

    def trouble(self, sentence: str) -> None:
        """Say what could not be carried out."""
        say(Text(sentence, style="yellow"))

    def close(self) -> None:
        """Do nothing: every line went out at once."""


class LiveDisplay:
    """One line that is rewritten while the job trains, under lines for what changed."""

    def __init__(self) -> None:
        """Take over the terminal's last line."""
        self._console: Console = console()
        self._live = Live(console=self._console, refresh_per_second=8, transient=True)
        self._live.start()

    def job(self, job: Job) -> None:
        """Print the state above the live line."""
        self._console.print(job_text(job))

    def metric(self, metric: Mapping[str, Any], progress: Progress, job: Job) -> None:
        """Leave it to the next tick."""

    def tick(self, progress: Progress, job: Job | None) -> None:
        """Rewrite the live line."""
        if job is not None and job.state in HOLDING:
            self._live.update(progress_text(progress, job))

    def interrupted(self, job: Job | None) -> None:
        """Say what a second signal does."""
        self._console.print(_stopping(job))

    def note(self, sentence: str) -> None:
        """Say what the program says of where it starts."""
        self._console.print(Text(f"note: {sentence}", style="yellow"))

    def trouble(self, sentence: str) -> None:
        """Say what could not be carried out."""
        self._console.print(Text(sentence, style="yellow"))

    def close(self) -> None:
        """Give the last line back."""
        self._live.update(Text(""))
        self._live.stop()


def _stopping(job: Job | None) -> Text:
    text = "stopping: the job has not started. Once more to leave at once."
    if job is not None and job.state in HOLDING:
        text = "stopping: the job saves its state. Once more to leave it to do so on its own."
    return Text(text, style="yellow")


def job_text(job: Job) -> Text:
    """Return one line about the job's state, with the reason where there is one."""
    text = Text.assemble((job.state.value, _STYLES.get(job.state, "bold")))
    if job.state in HOLDING and job.attempts:
        text.append(f" attempt {len(job.attempts)}")
    if job.checkpoint_step and job.state in HOLDING:
        text.append(f", checkpoint of step {job.checkpoint_step}")
    if job.reason is not None and job.state is not JobState.SUCCEEDED:
        text.append(f": {job.reason.sentence}")
    return text


def progress_text(progress: Progress, job: Job) -> Text:
    """Return the line of step, loss, speed, sites and time left."""
    if not progress.step:
        if job.spec.recipe is None:
            text = f"{job.state.value}; `gridloom logs -f {job.job_id}` shows its output"
        else:
            text = f"{job.state.value}: waiting for the first training step"
        return Text(text, style="dim", overflow="ellipsis", no_wrap=True)
    of = f"/{progress.steps}" if progress.steps else ""
    parts = [f"step {progress.step}{of}"]
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4f}")
    if progress.tokens_per_s is not None:
        parts.append(f"{format_count(progress.tokens_per_s)} tokens/s")
    parts += [f"{site} {share:.0%}" for site, share in progress.site_share.items()]
    if progress.steps and progress.step >= progress.steps and job.state in HOLDING:
        parts.append("saving and evaluating")
    elif progress.eta_s:
        parts.append(f"{format_duration(progress.eta_s)} left")
    return Text(" · ".join(parts), overflow="ellipsis", no_wrap=True)
