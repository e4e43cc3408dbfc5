"""How far a job is, from the newest lines of its metrics (pure but for the tail that it is fed)."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gridloom.control.metrics import decode_metric, number

_WINDOW = 20
"""Training steps whose mean gives the speed that is shown."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """A glance at a running job.

    Attributes:
        step: Last training step done.
        steps: Of how many; 0 when unknown.
        loss: Of the last step.
        tokens_per_s: Mean of the last steps; of the last one where tokens are not told.
        eta_s: Seconds to the last training step at that speed.
        site_share: Of each site, the share of the step that its ranks compute, 0 to 1.
    """

    step: int = 0
    steps: int = 0
    loss: float | None = None
    tokens_per_s: float | None = None
    eta_s: float | None = None
    site_share: dict[str, float] = msgspec.field(default_factory=dict)


class ProgressMeter:
    """Keeps the newest lines of a job's metrics."""

    def __init__(self, steps: int) -> None:
        """Measure against ``steps`` training steps; 0 when their number is unknown."""
        self._steps = steps
        self._window: deque[Mapping[str, Any]] = deque(maxlen=_WINDOW)

    def feed(self, lines: Iterable[bytes]) -> list[dict[str, Any]]:
        """Take in new lines of ``metrics.jsonl``; return them decoded."""
        fresh = []
        for line in lines:
            metric = decode_metric(line)
            if metric is None:
                continue
            if self._window and metric["attempt"] != self._window[-1]["attempt"]:
                self._window.clear()
            self._window.append(metric)
            fresh.append(metric)
        return fresh

    def now(self) -> Progress:
        """Return where the job stands."""
        if not self._window:
            return Progress(steps=self._steps)
        last = self._window[-1]
        seconds = sum(number(metric["step_s"]) for metric in self._window)
        tokens = sum(number(metric["tokens"]) for metric in self._window)
        left = max(0, self._steps - last["step"])
        return Progress(
            step=last["step"],
            steps=self._steps,
            loss=last["loss"],
            tokens_per_s=tokens / seconds if seconds and tokens else last["tokens_per_s"],
            eta_s=left * seconds / len(self._window) if self._steps and seconds else None,
            site_share={
                name: min(1.0, number(site.get("compute_s")) / last["step_s"])
                for name, site in last["sites"].items()
                if last["step_s"]
            },
        )
