"""What a training loop of one's own leaves for the report of its job: a row a training step."""

import contextlib
from pathlib import Path

import msgspec

from gridloom.runtime.records import LinkBytes, RoundMetrics, append_line, metrics_file
from gridloom.runtime.run import Run
from gridloom.runtime.sync_metrics import round_metrics
from gridloom.runtime.updates import Sync


class LoopMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One training step of a loop of one's own at one site, told by ``gl.report``.

    What is not said here is as in ``records.StepMetrics``.

    Attributes:
        attempt: The attempt that ran the step.
        step: As it was told.
        loss: As it was told, if it was.
        tokens_per_s: As it was told, if it was.
        step_s: From the report before to this one; ``None`` in the first of a process.
        optimizer_s: Clipping and update.
        within_site_s: Sums inside the site that the update waited for.
        within_site_hidden_s: Those behind the backward pass; ``None`` where it cannot be told.
        between_site_s: Exchange between sites while the training stood still for it.
        between_site_hidden_s: Travel between sites while the training went on.
        other_s: The rest of ``step_s``: forward, backward, data, and all else that the loop does.
        site: Whose row this is.
        links: By other site, what went over the link since the row before.
        rounds: Outer rounds taken in since the row before.
        now_s: When it was reported, seconds since the Unix epoch.
    """

    attempt: int
    step: int
    loss: float | None
    tokens_per_s: float | None
    step_s: float | None
    optimizer_s: float
    within_site_s: float
    within_site_hidden_s: float | None
    between_site_s: float
    between_site_hidden_s: float
    other_s: float | None
    site: str
    links: dict[str, LinkBytes]
    rounds: tuple[RoundMetrics, ...]
    now_s: float


class Rows:
    """Writes the rows of one site, by its first rank; nothing outside of gridloom."""

    def __init__(self, run: Run, sync: Sync) -> None:
        """Begin now, with what makes the updates."""
        self._run, self._sync = run, sync
        self._before = sync.meter.start
        self._reported_s: float | None = None

    def write(self, step: int, loss: float | None, tokens_per_s: float | None) -> None:
        """Write the row of a training step that is over.

        Its seconds are those since the row before; the first one of a process has none.
        """
        place, clock = self._run.place, self._run.clock
        if not (place.run_dir and place.is_first):
            return
        now_s, start_s = clock.monotonic_s(), self._reported_s
        step_s = None if start_s is None else now_s - start_s
        before, total = self._before, self._sync.meter.total()
        self._reported_s, self._before = now_s, total
        done = total.since(before)
        used_s = done.optimizer_s + done.within_site_s + done.between_site_s
        row = LoopMetrics(
            attempt=place.attempt,
            step=step,
            loss=loss,
            tokens_per_s=tokens_per_s,
            step_s=step_s,
            optimizer_s=done.optimizer_s,
            within_site_s=done.within_site_s,
            within_site_hidden_s=done.within_site_hidden_s,
            between_site_s=done.between_site_s,
            between_site_hidden_s=done.between_site_hidden_s,
            other_s=None if step_s is None else max(0.0, step_s - used_s),
            site=place.site,
            links=dict(done.links),
            rounds=round_metrics(self._sync.unreported()),
            now_s=clock.now_s(),
        )
        with contextlib.suppress(OSError):  # no reason to stop the training
            append_line(Path(place.run_dir) / metrics_file(place.site, place.number), row)
