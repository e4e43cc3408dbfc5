"""What a simulation came to: figures over all jobs, by size and by queue."""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import msgspec

from gridloom.model.life import OVER, JobState
from gridloom.sim.record import JobRow, Point, SimRecord
from gridloom.sim.workload_nouns import Arrival

SIZES: tuple[tuple[str, int], ...] = (
    ("1", 1),
    ("2-8", 8),
    ("9-64", 64),
    ("65-512", 512),
    ("over 512", 1 << 62),
)
"""Classes of jobs by the devices of their first option, with the most that each holds."""

SLOWDOWN_S_MIN = 10.0
"""Shorter jobs count as this long in a slowdown: Feitelson et al. (JSSPP 1997) bound it so."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What came of some jobs; nothing where there are none to take a figure of.

    Times are over the completed ones: those that started and are over, however they ended. A
    percentile is the nearest rank: the least value that so many of them do not exceed.

    Attributes:
        jobs: Submitted.
        completed: Of those, started and over.
        never_ran: Of those, never started.
        jct_mean_s: From submission to end.
        jct_p50_s: As ``jct_mean_s``.
        jct_p90_s: As ``jct_mean_s``.
        jct_p99_s: As ``jct_mean_s``.
        wait_mean_s: From submission to the first start.
        wait_p50_s: As ``wait_mean_s``.
        wait_p90_s: As ``wait_mean_s``.
        wait_p99_s: As ``wait_mean_s``.
        slowdown_p50: Bounded slowdown: time to the end over the job's own time on its first
            option, but at least 10 s; at least 1.
        slowdown_p90: As ``slowdown_p50``.
        device_s: Device-seconds that attempts of all of them held.
        useful_device_s: Of those, training that was kept.
        lost_device_s: Training that was lost.
        overhead_device_s: Starting, restarting, saving, standing still.
        preemptions: Attempts that ended because the scheduler wanted the devices.
        restarts: Attempts after a job's first.
        cost: In the grid's currency.
        energy_kwh: Of devices while they were held.
        carbon_kg: CO2 of that energy.
    """

    jobs: int
    completed: int
    never_ran: int
    jct_mean_s: float | None
    jct_p50_s: float | None
    jct_p90_s: float | None
    jct_p99_s: float | None
    wait_mean_s: float | None
    wait_p50_s: float | None
    wait_p90_s: float | None
    wait_p99_s: float | None
    slowdown_p50: float | None
    slowdown_p90: float | None
    device_s: float
    useful_device_s: float
    lost_device_s: float
    overhead_device_s: float
    preemptions: int
    restarts: int
    cost: float
    energy_kwh: float
    carbon_kg: float


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """What a record does not say of its own run.

    Attributes:
        policy: By its name.
        seed: Of the run.
        now_s: The instant that was reached.
        dropped: Rows of the log that no job was made of, by cause.
        wall_s: What the run took.
        cpu_s: Of a processor.
        interrupted: A person ended it early.
    """

    policy: str
    seed: int
    now_s: float
    dropped: dict[str, int] = {}
    wall_s: float = 0.0
    cpu_s: float = 0.0
    interrupted: bool = False


class Summary(Figures, frozen=True, kw_only=True):
    """What one run came to.

    Attributes:
        policy: By its name.
        seed: Of the run.
        succeeded: Completed jobs by how they ended.
        failed: As ``succeeded``.
        cancelled: As ``succeeded``; stopped ones too.
        unfinished: Jobs that started and are not over.
        makespan_s: From the first submission to the last end.
        utilisation: Share of the available device-seconds that attempts held.
        goodput: Share of the held device-seconds that were training which was kept.
        fragmentation: Of the whole nodes that the free devices would make up, the share that they
            do not, being scattered; over time.
        fairness: Jain's index, (sum x)^2 / (n sum x^2), of the service x of each queue, or of each
            user where there is one queue: the device-seconds that its jobs held, over those that
            they would have held had they held their devices from submission to end.
        fairness_over: ``queue``, ``user``, or nothing where there is only one.
        by_size: By the devices that jobs asked for.
        by_queue: By queue.
        dropped: As in `Circumstances`.
        steps: Calls of the scheduler.
        simulated_s: From the first submission to the instant that was reached.
        wall_s: As in `Circumstances`.
        cpu_s: As in `Circumstances`.
        interrupted: As in `Circumstances`.
    """

    policy: str
    seed: int
    succeeded: int
    failed: int
    cancelled: int
    unfinished: int
    makespan_s: float | None
    utilisation: float | None
    goodput: float | None
    fragmentation: float | None
    fairness: float | None
    fairness_over: str
    by_size: dict[str, Figures]
    by_queue: dict[str, Figures]
    dropped: dict[str, int]
    steps: int
    simulated_s: float
    wall_s: float
    cpu_s: float
    interrupted: bool


def summarise(record: SimRecord, arrivals: Iterable[Arrival], about: Circumstances) -> Summary:
    """Return the figures of a run.

    Args:
        record: What it left behind.
        arrivals: Its jobs, as they were handed in; more than were submitted is fine.
        about: The rest.
    """
    jobs = [_job(*pair, about.now_s) for pair in zip(record.jobs(), arrivals, strict=False)]
    ended = [job for job in jobs if job.completed]
    states = [job.row.state for job in ended]
    succeeded, failed = states.count(JobState.SUCCEEDED), states.count(JobState.FAILED)
    first_s = min((job.row.submit_s for job in jobs), default=about.now_s)
    last_s = max((job.row.end_s for job in ended), default=None)
    whole = figures(jobs)
    fairness, over = _fairness(jobs)
    return Summary(
        policy=about.policy,
        seed=about.seed,
        succeeded=succeeded,
        failed=failed,
        cancelled=len(states) - succeeded - failed,
        unfinished=whole.jobs - whole.completed - whole.never_ran,
        makespan_s=None if last_s is None else last_s - first_s,
        utilisation=_ratio(*record.device_s(about.now_s)),
        goodput=_ratio(whole.useful_device_s, whole.device_s),
        fragmentation=_over_time(record.curve()),
        fairness=fairness,
        fairness_over=over,
        by_size=_grouped(jobs, [size for size, _ in SIZES], lambda job: job.size),
        by_queue=_grouped(jobs, sorted({job.row.queue for job in jobs}), lambda job: job.row.queue),
        dropped=about.dropped,
        steps=record.steps,
        simulated_s=about.now_s - first_s,
        wall_s=about.wall_s,
        cpu_s=about.cpu_s,
        interrupted=about.interrupted,
        **msgspec.structs.asdict(whole),
    )


class _Job(msgspec.Struct, frozen=True, gc=False):
    """A row with what it was asked for."""

    row: JobRow
    size: str
    user: str
    wanted: int
    own_s: float
    until_s: float

    @property
    def completed(self) -> bool:
        return self.row.state in OVER and self.row.attempts > 0


_Key = Callable[[_Job], str]


def figures(jobs: Sequence[_Job]) -> Figures:
    """Return the figures of some of a record's jobs."""
    ended = [job for job in jobs if job.completed]
    waits = sorted(job.row.wait_s for job in ended)
    jcts = sorted(job.row.end_s - job.row.submit_s for job in ended)
    slow = sorted(
        max(1.0, (job.row.end_s - job.row.submit_s) / max(job.own_s, SLOWDOWN_S_MIN))
        for job in ended
    )
    rows = [job.row for job in jobs]
    return Figures(
        jobs=len(rows),
        completed=len(ended),
        never_ran=sum(row.attempts == 0 for row in rows),
        jct_mean_s=_mean(jcts),
        jct_p50_s=nearest_rank(jcts, 50),
        jct_p90_s=nearest_rank(jcts, 90),
        jct_p99_s=nearest_rank(jcts, 99),
        wait_mean_s=_mean(waits),
        wait_p50_s=nearest_rank(waits, 50),
        wait_p90_s=nearest_rank(waits, 90),
        wait_p99_s=nearest_rank(waits, 99),
        slowdown_p50=nearest_rank(slow, 50),
        slowdown_p90=nearest_rank(slow, 90),
        device_s=math.fsum(row.device_s for row in rows),
        useful_device_s=math.fsum(row.useful_device_s for row in rows),
        lost_device_s=math.fsum(row.lost_device_s for row in rows),
        overhead_device_s=math.fsum(row.overhead_device_s for row in rows),
        preemptions=sum(row.preemptions for row in rows),
        restarts=sum(max(row.attempts - 1, 0) for row in rows),
        cost=math.fsum(row.cost for row in rows),
        energy_kwh=math.fsum(row.energy_kwh for row in rows),
        carbon_kg=math.fsum(row.co2_kg for row in rows),
    )


def nearest_rank(ordered: Sequence[float], percent: int) -> float | None:
    """Return the least of ``ordered`` that ``percent`` of them do not exceed; nothing of none."""
    return ordered[max(-(-percent * len(ordered) // 100), 1) - 1] if ordered else None


def size_class(devices: int) -> str:
    """Return the class of a job that asks for so many devices."""
    return next(name for name, most in SIZES if devices <= most)


def _job(row: JobRow, arrival: Arrival, now_s: float) -> _Job:
    wanted = arrival.spec.options[0].devices if arrival.spec.options else row.devices
    own_s = arrival.fail_after_s or arrival.work_s
    return _Job(
        row=row,
        size=size_class(wanted),
        user=arrival.spec.user,
        wanted=wanted,
        own_s=min(own_s, arrival.work_s),
        until_s=row.end_s if row.end_s == row.end_s else now_s,
    )


def _grouped(jobs: Sequence[_Job], names: Sequence[str], key: _Key) -> dict[str, Figures]:
    groups: dict[str, list[_Job]] = {name: [] for name in names}
    for job in jobs:
        groups[key(job)].append(job)
    return {name: figures(group) for name, group in groups.items() if group}


def _fairness(jobs: Sequence[_Job]) -> tuple[float | None, str]:
    """Return Jain's index (Jain, Chiu and Hawe 1984) and over what it was taken."""
    keys: tuple[tuple[str, _Key], ...] = (
        ("queue", lambda job: job.row.queue),
        ("user", lambda job: job.user),
    )
    for over, key in keys:
        held: dict[str, float] = {}
        wanted: dict[str, float] = {}
        for job in jobs:
            name, stay_s = key(job), job.until_s - job.row.submit_s
            held[name] = held.get(name, 0.0) + job.row.device_s
            wanted[name] = wanted.get(name, 0.0) + job.wanted * stay_s
        service = [held[name] / wanted[name] for name in sorted(held) if wanted[name] > 0]
        squares = math.fsum(x * x for x in service)
        if len(service) > 1 and squares > 0:
            return math.fsum(service) ** 2 / (len(service) * squares), over
    return None, ""


def _over_time(points: Sequence[Point]) -> float | None:
    pairs = [
        (now.fragmentation, later.at_s - now.at_s)
        for now, later in pairwise(points)
        if now.fragmentation == now.fragmentation
    ]
    return _ratio(math.fsum(v * s for v, s in pairs), math.fsum(s for _, s in pairs))


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
