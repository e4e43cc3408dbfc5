"""Schedulers of one counted pool of devices, written once more without any of the core's parts.

``Pool`` plays jobs of whole seconds under rules that may evict. Saving and starting anew cost
nothing, predictions are exact, and the pool has no shape: devices are a number. What happens at one
instant happens in rounds: jobs end, come, or go as they were told; those start for whom they went;
then whoever waits has a turn, in order, and starts, has others told to go, or is passed.
"""

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Literal, NamedTuple

_NEVER_S = -(10**12)


class Row(NamedTuple):
    """Submission and duration in seconds, devices, and the number of the queue."""

    submit_s: int
    duration_s: int
    devices: int
    queue: int = 0


class Rules(NamedTuple):
    """By what jobs are ordered, what a blocked one means, and who may have whom evicted.

    Attributes:
        order: ``remaining``, ``attained`` (classes of device time had), or ``share`` of the queue.
        evicts: The order evicts, too.
        easy: A blocked job's start is promised; else all may pass it.
        gain_min: By which share a remaining time must be shorter to evict.
        cooldown_s: Nobody is evicted twice within that time.
        min_run_s: Nobody is evicted earlier than this after a start.
        steps: Device-seconds at which the classes of ``attained`` begin.
        weights: Of the queues, for ``share``.
        told: The scheduler hears what an evicted job saved; else it takes it that all is lost.
    """

    order: Literal["remaining", "attained", "share"]
    evicts: bool = True
    easy: bool = False
    gain_min: float = 0.0
    cooldown_s: int = 0
    min_run_s: int = 0
    steps: tuple[int, ...] = ()
    weights: tuple[int, ...] = (1,)
    told: bool = True


class Job:
    """One job: what is left of it, and what it has had."""

    def __init__(self, number: int, row: Row) -> None:
        self.number, self.row = number, row
        self.left_s = row.duration_s
        self.saved_s = 0
        self.had = 0
        self.began_s = -1
        self.turn = 0
        self.evicted_s = _NEVER_S
        self.runs: list[tuple[int, int]] = []

    def run_s(self, now: int) -> int:
        """Return how long it runs by now."""
        return now - self.began_s if self.began_s >= 0 else 0

    def end_s(self) -> int:
        """Return when it ends if it is left alone."""
        return self.began_s + self.left_s

    def rest_s(self, now: int, *, told: bool) -> int:
        """Return what the scheduler thinks is left."""
        return self.row.duration_s - self.saved_s * told - self.run_s(now)

    def stop(self, now: int) -> None:
        """Save, and be off; runs that touch are one, and those of no length none."""
        ran_s = self.run_s(now)
        self.left_s -= ran_s
        self.saved_s += ran_s
        self.had += ran_s * self.row.devices
        if self.runs and self.runs[-1][1] == self.began_s:
            self.runs[-1] = (self.runs[-1][0], now)
        elif ran_s:
            self.runs.append((self.began_s, now))
        self.began_s = -1


class Pool:
    """Jobs on ``devices`` that are all alike."""

    def __init__(self, devices: int, rows: Sequence[Row], rules: Rules) -> None:
        self.devices, self.rules = devices, rules
        self.jobs = [Job(number, row) for number, row in enumerate(rows)]
        self.now = self.turns = 0
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.going: list[Job] = []
        self.kept_for: list[Job] = []
        self.promise_s, self.slack = math.inf, 0

    def play(self) -> list[list[tuple[int, int]]]:
        """Return when each job ran."""
        coming = sorted(self.jobs, key=lambda job: (job.row.submit_s, job.number))
        while coming or self.running:
            self.now = min([job.row.submit_s for job in coming[:1]] + self._wakes())
            for job in [job for job in self.running if job.end_s() == self.now]:
                self.running.remove(job)
                job.stop(self.now)
            while coming and coming[0].row.submit_s == self.now:
                self.waiting.append(coming.pop(0))
            self._round()
            while self.going or self.kept_for:
                self._leave()
                self._round()
        return [job.runs for job in self.jobs]

    def _wakes(self) -> list[int]:
        """Return when somebody ends, or may be evicted who could not be before."""
        rules, found = self.rules, []
        for job in self.running:
            found.append(job.end_s())
            found.append(job.evicted_s + rules.cooldown_s)
            found.append(job.began_s + rules.min_run_s)
            found += [job.began_s - (job.had - step) // job.row.devices for step in rules.steps]
        return [at_s for at_s in found if at_s > self.now]

    def _leave(self) -> None:
        """Let those who were told to go wait again, and those start for whom they went."""
        for job in self.going:
            self.running.remove(job)
            job.stop(self.now)
            job.evicted_s = self.now
            self.waiting.append(job)
        starting, self.going, self.kept_for = self.kept_for, [], []
        for job in sorted(starting, key=lambda job: (job.row.submit_s, job.number)):
            self._start(job)

    def _start(self, job: Job) -> None:
        self.turns += 1
        self.waiting.remove(job)
        self.running.append(job)
        job.began_s, job.turn = self.now, self.turns

    def _round(self) -> None:
        """Give everybody who waits a turn, but who stands behind one of its like that has no place.

        Alike are those of one queue and size: where nothing is free for the first of them, and
        nobody goes for it, the others wait with it.
        """
        self.promise_s, self.slack = math.inf, 0
        full: set[tuple[int, int]] = set()
        for job in self._line():
            alike = job.row.queue, job.row.devices
            if alike in full:
                continue
            late = self.now + job.left_s > self.promise_s
            if job.row.devices <= self._free() and not (late and job.row.devices > self.slack):
                self._start(job)
                self.slack -= job.row.devices * late
            elif (victims := self._victims(job)) is not None:
                self.going += victims
                self.kept_for.append(job)
                self.slack += self._later(victims) - job.row.devices * self._runs_into(job)
            else:
                if job.row.devices > self._free():
                    full.add(alike)
                if self.rules.easy and self.promise_s == math.inf:
                    self.promise_s, self.slack = self._promise(job)

    def _line(self) -> Iterator[Job]:
        """Yield who waits, in order; shares change as jobs start."""
        left = sorted(self.waiting, key=self._place)
        while left:
            yield left.pop(0)
            if self.rules.order == "share":
                left.sort(key=self._place)

    def _free(self, gone: Sequence[Job] = ()) -> int:
        held = sum(job.row.devices for job in (*self.running, *self.kept_for))
        return self.devices - held + sum(job.row.devices for job in gone)

    def _place(self, job: Job) -> tuple[Fraction | int, int, int, int]:
        rules, row = self.rules, job.row
        share: Fraction | int = 0
        value = 0
        match rules.order:
            case "remaining":
                value = job.rest_s(self.now, told=rules.told)
            case "attained":
                value = self._class(job)
            case "share":
                share = self._share(row.queue, self._use(()))
        return share, value, row.submit_s, job.number

    def _class(self, job: Job) -> int:
        had = job.had + job.run_s(self.now) * job.row.devices
        return sum(had >= step for step in self.rules.steps)

    def _use(self, gone: Sequence[Job]) -> list[int]:
        use = [0] * len(self.rules.weights)
        for job in (*self.running, *self.kept_for):
            use[job.row.queue] += job.row.devices * (job not in gone)
        return use

    def _share(self, queue: int, use: Sequence[int]) -> Fraction:
        return Fraction(use[queue], self.rules.weights[queue])

    def _victims(self, job: Job) -> list[Job] | None:
        """Return whom to tell to go; nothing when the job would not fit even so.

        Of those who may be told, by size from below and from above and the latest started first:
        the least beginning that is enough, and of that nobody who can be spared, from its end. Of
        the two the one with fewer devices, then fewer jobs.
        """
        may_go = [other for other in self.running if self._may_evict(job, other)]
        best: tuple[int, int, tuple[int, ...], list[Job]] | None = None
        for sign in (1, -1):
            ordered = sorted(may_go, key=lambda other: (sign * other.row.devices, -other.turn))
            if (chosen := self._beginning(job, ordered)) is None:
                continue
            for other in reversed(chosen.copy()):
                rest = [one for one in chosen if one is not other]
                if self._fits(job, rest):
                    chosen = rest
            names = tuple(other.number for other in chosen)
            found = sum(other.row.devices for other in chosen), len(chosen), names, chosen
            best = found if best is None or found[:3] < best[:3] else best
        return best[3] if best and may_go else None

    def _beginning(self, job: Job, ordered: Sequence[Job]) -> list[Job] | None:
        chosen: list[Job] = []
        for other in ordered:
            if self._fits(job, chosen):
                break
            if self.rules.order != "share" or self._stays_above(job, other, chosen):
                chosen.append(other)
        return chosen if self._fits(job, chosen) else None

    def _fits(self, job: Job, gone: Sequence[Job]) -> bool:
        if job.row.devices > self._free([*self.going, *gone]):
            return False
        return not self._runs_into(job) or job.row.devices <= self.slack + self._later(gone)

    def _runs_into(self, job: Job) -> bool:
        """Return whether a job that starts right after others have gone runs into the promise."""
        return self.now + job.left_s >= self.promise_s

    def _later(self, gone: Sequence[Job]) -> int:
        """Return what they would have held at the promised start."""
        return sum(one.row.devices for one in gone if one.end_s() > self.promise_s)

    def _stays_above(self, job: Job, other: Job, gone: Sequence[Job]) -> bool:
        """Return whether the other's queue, once it went, has no less than the job's, with it."""
        use = self._use([*self.going, *gone, other])
        use[job.row.queue] += job.row.devices
        return self._share(job.row.queue, use) <= self._share(other.row.queue, use)

    def _may_evict(self, job: Job, other: Job) -> bool:
        rules, now = self.rules, self.now
        if not rules.evicts or other in self.going:
            return False
        if now - other.began_s < rules.min_run_s or now - other.evicted_s < rules.cooldown_s:
            return False
        match rules.order:
            case "remaining":
                rest_s = other.rest_s(now, told=rules.told)
                return job.rest_s(now, told=rules.told) < (1 - rules.gain_min) * rest_s
            case "attained":
                return self._class(job) < self._class(other)
            case "share":
                return job.row.queue != other.row.queue

    def _promise(self, job: Job) -> tuple[float, int]:
        """Return when a blocked job will start, and what it then leaves to others."""
        ends = [(job.end_s(), job.row.devices) for job in self.running if job not in self.going] + [
            (self.now + job.left_s, job.row.devices) for job in self.kept_for
        ]
        free = self._free(self.going)
        at_s: float = self.now
        for end_s, devices in sorted(ends):
            if free >= job.row.devices and end_s > at_s:
                break
            at_s, free = end_s, free + devices
        return at_s, free - job.row.devices
