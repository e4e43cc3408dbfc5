"""Made workloads as of those who develop language models, drawn from what Acme published."""

import math
import random
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Literal

import msgspec

from gridloom.base.errors import InputError, Problem
from gridloom.model.spec import Forecast, JobSpec, Option, Program
from gridloom.sim.generate_acme import CLUSTERS
from gridloom.sim.generate_fit import Cell, cells
from gridloom.sim.workload_nouns import Arrival, End, ReadOptions, Workload
from gridloom.sim.workload_shapes import Shapes, Steps

DAY_S = 86_400
_DAY_STEPS = 288  # five minutes each
_TRAINING = frozenset({"pretrain", "sft", "mllm"})
_PROGRAM = Program(argv=(), workdir="/")
_NO_LABELS: dict[str, str] = {}


class GeneratorSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to make.

    Attributes:
        jobs: How many.
        devices: Of the grid; larger jobs are left out.
        cluster: Whose figures: Seren (all kinds of research) or Kalos (mostly pretraining).
        load: Device-time that is asked for, as a share of what the grid has while jobs arrive.
        options: Kind of device, and how jobs sit on nodes.
        day_swing: By how much arrivals go up and down over a day, from 0 to 1.
        peak_h: Hour of the day with most arrivals.
        users: How many; the first submits most (Zipf).
        user_skew: Exponent of that law.
        queues: Users are dealt to them in turn; none for the grid's only one.
        elastic: Share of the training jobs that may run on a quarter to twice their devices.
        scaling: Throughput that twice the devices give, as a share of twice the throughput.
        forecast_spread: Standard deviation of the logarithm of what was predicted over what is.
        checkpoint_every_s: Seconds of training from one checkpoint to the next.
        checkpoint_s: What saving one takes.
        restart_s: What starting from one takes.
        endings: Jobs fail as they did; else all of them complete.
    """

    jobs: int
    devices: int
    cluster: Literal["seren", "kalos"] = "seren"
    load: float = 0.8
    options: ReadOptions = ReadOptions()
    day_swing: float = 0.5
    peak_h: float = 15.0
    users: int = 100
    user_skew: float = 1.1
    queues: tuple[str, ...] = ()
    elastic: float = 0.0
    scaling: float = 0.9
    forecast_spread: float = 0.0
    checkpoint_every_s: float = 1800.0
    checkpoint_s: float = 30.0
    restart_s: float = 120.0
    endings: bool = True


class _Drawn(msgspec.Struct, frozen=True, gc=False):
    """One job before it is known when it arrives."""

    cell: int
    work_s: float
    state: int
    user: int
    elastic: bool
    error: float


def generate(spec: GeneratorSpec, rng: random.Random) -> Workload:
    """Return a workload; the same ``spec`` and state of ``rng`` give the same one.

    Kind, duration, size and ending of a job come from the published figures together, so that
    the few large and long jobs have the share of device-time that they have there. Arrivals are a
    Poisson process whose rate goes up and down over the day, as long as it takes for the wanted
    load.

    Raises:
        InputError: The spec cannot be met.
    """
    _check(spec)
    table = [cell for cell in cells(spec.cluster) if cell.devices <= spec.devices]
    drawn = list(_draw(spec, table, rng))
    device_s = sum(table[job.cell].devices * job.work_s for job in drawn)
    span_s = device_s / (spec.load * spec.devices)
    times = _times(spec, span_s, rng)
    shapes = _Catalogue(spec)
    users = [f"user-{number:03d}" for number in range(1, spec.users + 1)]
    queues = spec.queues or ("",)
    states: list[End] = [_state(ending.state) for ending in CLUSTERS[spec.cluster].endings]
    digits = len(str(spec.jobs))
    arrivals = []
    for number, (job, submit_s) in enumerate(zip(drawn, times, strict=True), start=1):
        cell = table[job.cell]
        state = states[job.state] if spec.endings else "completed"
        name = f"{cell.kind}-{number:0{digits}d}"
        arrivals.append(
            Arrival(
                job_id=name,
                submit_s=submit_s,
                spec=JobSpec(
                    name=name,
                    program=_PROGRAM,
                    options=shapes.options(cell.devices, elastic=job.elastic),
                    queue=queues[job.user % len(queues)],
                    user=users[job.user],
                    forecast=_forecast(spec, cell.kind, job.work_s * job.error),
                    elastic=job.elastic,
                    labels=_NO_LABELS,  # one for all: it is never written to
                ),
                work_s=job.work_s,
                state=state,
                fail_after_s=job.work_s if state == "failed" else 0.0,
                row=number,
            )
        )
    return Workload(
        arrivals=tuple(arrivals),
        notes=(
            f"made from the figures of Acme's {spec.cluster} (InternLM/AcmeTrace, CC-BY-4.0): "
            f"{spec.load:.0%} load of {spec.devices} devices over {span_s / DAY_S:.1f} days",
        ),
        format="generated",
        devices=spec.devices,
    )


class _Catalogue:
    """Options by size, one object for each."""

    def __init__(self, spec: GeneratorSpec) -> None:
        self._spec, self._shapes = spec, Shapes(spec.options)
        self._made: dict[tuple[int, bool], tuple[Option, ...]] = {}

    def options(self, devices: int, *, elastic: bool) -> tuple[Option, ...]:
        """Return the shapes of a job, as asked for first."""
        key = (devices, elastic)
        if key not in self._made:
            self._made[key] = self._shapes.of(
                self._steps(devices) if elastic else ((devices, 0.0),)
            )
        return self._made[key]

    def _steps(self, devices: int) -> Steps:
        """Return a quarter to twice the devices; step times are relative to the job's own."""
        powers = [p for p in (0, -1, -2, 1) if _fits(devices, p, self._spec.devices)]
        return tuple(
            (int(devices * 2.0**power), (2.0 * self._spec.scaling) ** -power) for power in powers
        )


def _fits(devices: int, power: int, most: int) -> bool:
    other = devices * 2.0**power
    return other == int(other) and 1 <= other <= most


def _draw(spec: GeneratorSpec, table: list[Cell], rng: random.Random) -> Iterator[_Drawn]:
    """Draw jobs: a cell, a duration within it, an ending, a user, and an error of prediction."""
    sums = list(accumulate(cell.weight for cell in table))
    ratios = [math.log(cell.high_s / cell.low_s) for cell in table]
    endings = [list(accumulate(cell.endings[:-1])) for cell in table]
    users = list(accumulate(number**-spec.user_skew for number in range(1, spec.users + 1)))
    may = [cell.kind in _TRAINING and cell.devices > 1 for cell in table]
    last, uniform, gauss = len(table) - 1, rng.random, rng.gauss
    for _ in range(spec.jobs):
        cell = min(last, bisect_right(sums, uniform() * sums[-1]))
        work_s = table[cell].low_s * math.exp(ratios[cell] * uniform())
        state = bisect_right(endings[cell], uniform())
        user = min(spec.users - 1, bisect_right(users, uniform() * users[-1]))
        elastic = may[cell] and uniform() < spec.elastic
        error = math.exp(gauss(0.0, spec.forecast_spread)) if spec.forecast_spread else 1.0
        yield _Drawn(cell, max(1.0, round(work_s, 1)), state, user, elastic, error)


def _times(spec: GeneratorSpec, span_s: float, rng: random.Random) -> list[float]:
    """Return times of submission in order: a Poisson process, given how many there are.

    Then they are independent of each other, with the rate for a density; its integral is inverted
    between points five minutes apart.
    """
    step_s = DAY_S / _DAY_STEPS
    turn = 2 * math.pi / DAY_S
    peak_s = spec.peak_h * 3600

    def grown(time_s: float) -> float:
        wave = math.sin(turn * (time_s - peak_s)) + math.sin(turn * peak_s)
        return time_s + spec.day_swing * wave / turn

    day = [grown(step * step_s) for step in range(_DAY_STEPS + 1)]
    whole, rest = divmod(span_s, DAY_S)
    total = whole * DAY_S + grown(rest)
    times = []
    for drawn in sorted(rng.random() * total for _ in range(spec.jobs)):
        days, left = divmod(drawn, DAY_S)
        place = min(_DAY_STEPS - 1, max(0, bisect_right(day, left) - 1))
        share = (left - day[place]) / (day[place + 1] - day[place])
        times.append(round(days * DAY_S + (place + share) * step_s, 3))
    return times


def _forecast(spec: GeneratorSpec, kind: str, duration_s: float) -> Forecast:
    """Return a prediction; only training saves checkpoints."""
    if kind not in _TRAINING:
        return Forecast(duration_s=duration_s, spread=spec.forecast_spread)
    return Forecast(
        duration_s=duration_s,
        spread=spec.forecast_spread,
        checkpoint_s=spec.checkpoint_s,
        restart_s=spec.restart_s,
        checkpoint_every_s=spec.checkpoint_every_s,
    )


def _state(name: str) -> End:
    return "failed" if name == "failed" else "cancelled" if name == "cancelled" else "completed"


def _check(spec: GeneratorSpec) -> None:
    """Raise for values that mean nothing, all of them at once."""
    wrong = [
        ("jobs", spec.jobs, spec.jobs >= 1, "1 or more"),
        ("devices", spec.devices, spec.devices >= 1, "1 or more"),
        ("load", spec.load, 0 < spec.load <= 100, "above 0, as 0.8"),
        ("day_swing", spec.day_swing, 0 <= spec.day_swing <= 1, "from 0 to 1"),
        ("users", spec.users, spec.users >= 1, "1 or more"),
        ("user_skew", spec.user_skew, 0 <= spec.user_skew <= 10, "from 0 to 10"),
        ("elastic", spec.elastic, 0 <= spec.elastic <= 1, "from 0 to 1"),
        ("scaling", spec.scaling, 0.5 <= spec.scaling <= 1, "from 0.5 to 1"),
        ("forecast_spread", spec.forecast_spread, 0 <= spec.forecast_spread <= 5, "from 0 to 5"),
        ("cluster", spec.cluster, spec.cluster in CLUSTERS, f"one of {', '.join(CLUSTERS)}"),
    ]
    problems = [
        Problem(f"{value} makes no workload", f"give {right}", field=field)
        for field, value, fine, right in wrong
        if not fine
    ]
    if problems:
        raise InputError(problems)
