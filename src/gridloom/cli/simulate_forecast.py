"""Who predicts durations in `simulate`: read from the flag, and given to a run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from gridloom.base.errors import InputError, Problem
from gridloom.model.policy import Policy
from gridloom.planner.durations import best_method
from gridloom.sim.forecasts import Learned, erring, exact, unknown
from gridloom.sim.terms import Forecasts
from gridloom.sim.workload import Arrival, Workload

_ORIGIN_S = 700 * 30 * 86400.0
"""A beginning of the usual period of allowances, 30 days."""

_SPREAD = "spread="
_SPREAD_MAX = 5.0
_RIGHT = "write user, exact, none, learned, or spread=0.5"


@dataclass(frozen=True)
class Outlook:
    """Who predicts.

    Attributes:
        way: ``user``: what the log says.
        spread: Of the errors, for ``spread``.
    """

    way: Literal["user", "exact", "none", "learned", "spread"] = "user"
    spread: float = 0.0

    def told(self, workload: Workload, seed: int) -> tuple[Arrival, ...]:
        """Return the jobs with what is predicted of them at first."""
        match self.way:
            case "exact":
                return exact(workload.arrivals)
            case "none":
                return unknown(workload.arrivals)
            case "spread":
                return erring(workload.arrivals, self.spread, seed)
            case _:
                return workload.arrivals

    def learner(self, policy: Policy, seed: int, now_s: Callable[[], float]) -> Forecasts | None:
        """Return who learns from the jobs that end; nothing when nobody does."""
        if self.way != "learned" and not policy.predict:
            return None
        return Learned(seed, best_method(), now_s)


def read_outlook(text: str) -> Outlook:
    """Return what ``--forecast`` says.

    Raises:
        InputError: It says nothing that is known.
    """
    match text.strip():
        case "" | "user":
            return Outlook()
        case "exact":
            return Outlook("exact")
        case "none":
            return Outlook("none")
        case "learned":
            return Outlook("learned")
        case other:
            return Outlook("spread", _spread(other))


def on_calendar(workload: Workload) -> Workload:
    """Return the workload in seconds since the epoch; one without a calendar far from zero.

    In the scheduler's records a time of 0 stands for none, so that no job may start then.
    """
    by_s = workload.origin_s or _ORIGIN_S
    return replace(workload, arrivals=tuple(_later(arrival, by_s) for arrival in workload.arrivals))


def _later(arrival: Arrival, by_s: float) -> Arrival:
    spec = arrival.spec
    if spec.deadline_s:
        spec = replace(spec, deadline_s=spec.deadline_s + by_s)
    return replace(arrival, submit_s=arrival.submit_s + by_s, spec=spec)


def _spread(text: str) -> float:
    try:
        spread = float(text.removeprefix(_SPREAD)) if text.startswith(_SPREAD) else -1.0
    except ValueError:
        spread = -1.0
    if not 0 <= spread <= _SPREAD_MAX:
        problem = Problem(f"{text!r} is not known", _RIGHT, field="--forecast")
        raise InputError([problem])
    return spread
