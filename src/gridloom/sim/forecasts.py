"""Who predicts how long jobs run: the log, an oracle, an oracle with errors, one who learns."""

import math
import random
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from gridloom.model.life import JobState
from gridloom.model.spec import Forecast, JobSpec
from gridloom.planner.durations import Method, Rolling
from gridloom.planner.durations_features import Ask, Finished
from gridloom.sim.workload_nouns import Arrival

_TELLING = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})


def exact(arrivals: Iterable[Arrival]) -> tuple[Arrival, ...]:
    """Return jobs whose predicted duration is the true one."""
    return tuple(_told(arrival, _own_s(arrival), 0.0) for arrival in arrivals)


def unknown(arrivals: Iterable[Arrival]) -> tuple[Arrival, ...]:
    """Return jobs of which nobody knows how long they run."""
    return tuple(_told(arrival, 0.0, 0.0) for arrival in arrivals)


def erring(arrivals: Iterable[Arrival], spread: float, seed: int) -> tuple[Arrival, ...]:
    """Return jobs predicted with an error: true over predicted is log-normal, with median 1.

    Each job's error is drawn by its own id, so that other jobs do not change it.

    Args:
        arrivals: Jobs.
        spread: Standard deviation of the logarithm.
        seed: Of the errors.
    """
    return tuple(
        _told(
            arrival,
            _own_s(arrival)
            * math.exp(-spread * random.Random(f"{seed}/forecast/{arrival.job_id}").gauss(0, 1)),
            spread,
        )
        for arrival in arrivals
    )


class Learned:
    """Predicts by the jobs that have ended so far, as they do in the simulation.

    Attributes:
        rolling: The predictor.
    """

    def __init__(self, seed: int, method: Method, now_s: Callable[[], float]) -> None:
        """Begin without experience.

        Args:
            seed: Of the learning.
            method: How it learns.
            now_s: Tells the simulation's time.
        """
        self.rolling = Rolling(seed=seed, method=method)
        self._now_s = now_s
        self._asked: dict[str, Ask] = {}

    def predict_at(self, job_id: str, spec: JobSpec, now_s: float) -> Forecast:
        """Return what is predicted of a job that is submitted now; costs stay as they are told.

        Raises:
            InputError: The method needs a library that is not installed.
        """
        ask = self._asked[job_id] = Ask(
            submit_s=now_s,
            user=spec.user,
            name=spec.name,
            devices=spec.options[0].devices if spec.options else 1,
            queue=spec.queue,
            requested_s=spec.budget.run_s_max,
        )
        found = self.rolling.predict_at(ask, now_s)
        return replace(spec.forecast, duration_s=found.duration_s, spread=found.spread)

    def finished(self, job_id: str, spec: JobSpec, run_s: float, state: JobState) -> None:
        """Learn from a job that came to its end; a stopped one tells nothing."""
        del spec
        ask = self._asked.pop(job_id, None)
        if ask is None or state not in _TELLING or run_s <= 0:
            return
        self.rolling.finished(
            Finished(
                submit_s=ask.submit_s,
                user=ask.user,
                name=ask.name,
                devices=ask.devices,
                queue=ask.queue,
                requested_s=ask.requested_s,
                end_s=self._now_s(),
                duration_s=run_s,
            )
        )


def _own_s(arrival: Arrival) -> float:
    """Return the work that the job does before it ends, well or not."""
    return min(arrival.fail_after_s or arrival.work_s, arrival.work_s)


def _told(arrival: Arrival, duration_s: float, spread: float) -> Arrival:
    forecast: Forecast = replace(arrival.spec.forecast, duration_s=duration_s, spread=spread)
    return replace(arrival, spec=replace(arrival.spec, forecast=forecast))
