"""Whether what a story expects is so, and how it is instead."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise

from gridloom.core.state import tasks_of
from gridloom.model.life import HOLDING, OVER, Job, JobState
from gridloom.model.reason import Reason
from gridloom.sim.story import ORIGIN_S
from gridloom.sim.story_scene import Scene, where
from gridloom.wire.story_expect import ConditionDocument, ReasonDocument
from gridloom.wire.story_values import Span

Mismatch = tuple[str, str]
"""What was expected, and what was so."""

_STATES: dict[str, frozenset[JobState]] = {
    "running": frozenset({JobState.STARTING, JobState.RUNNING}),
    "waiting": frozenset({JobState.QUEUED}),
    "stopping": frozenset({JobState.STOPPING}),
    "ended": OVER,
    "succeeded": frozenset({JobState.SUCCEEDED}),
    "failed": frozenset({JobState.FAILED}),
    "cancelled": frozenset({JobState.CANCELLED}),
    "stopped": frozenset({JobState.STOPPED}),
}
_NEAR_S = 0.5
"""Seconds by which times may differ."""


def mismatches(scene: Scene, said: ConditionDocument) -> list[Mismatch]:
    """Return everything that is not as ``said``; nothing when all of it is so."""
    return [found for check in _CHECKS for found in check(scene, said)]


def _each(scene: Scene, patterns: Iterable[str], what: str) -> Iterator[tuple[Job | None, str]]:
    """Yield the jobs that names stand for; nothing, with what was expected, for a name of none."""
    for pattern in patterns:
        jobs = scene.matching(pattern)
        if not jobs:
            yield None, f"{pattern} {what}"
        for job in jobs:
            yield job, f"{job.job_id} {what}"


_ABSENT = "it has not been handed in"


def _states(scene: Scene, said: ConditionDocument) -> Iterator[Mismatch]:
    for field, states in _STATES.items():
        for job, expected in _each(scene, getattr(said, field), f"is {field}"):
            if job is None:
                yield expected, _ABSENT
            elif job.state not in states:
                yield expected, state_of(scene, job)


def _one_of(scene: Scene, said: ConditionDocument) -> Iterator[Mismatch]:
    if said.exactly_one_of is None:
        return
    for field in type(said.exactly_one_of).model_fields:
        patterns = getattr(said.exactly_one_of, field)
        if not patterns:
            continue
        jobs = [job for pattern in patterns for job in scene.matching(pattern)]
        so = [job.job_id for job in jobs if job.state in _STATES[field]]
        if len(so) != 1:
            yield (
                f"exactly one of {', '.join(patterns)} is {field}",
                f"{len(so)} are: {', '.join(so) or 'none'}",
            )


def _holds(scene: Scene, said: ConditionDocument) -> Iterator[Mismatch]:
    for job, expected in _each(scene, said.holds_nothing, "holds nothing"):
        if job is not None and job.state in HOLDING:
            yield expected, f"it holds {where(scene, job)}"
    for name, amount in said.holds.items():
        for job, expected in _each(scene, (name,), f"holds {amount}"):
            nodes, devices = (len(scene.nodes(job)), scene.devices(job)) if job else (0, 0)
            if job is None:
                yield expected, _ABSENT
            elif amount.nodes not in (None, nodes) or amount.devices not in (None, devices):
                yield expected, where(scene, job) or "it holds nothing"


def _counts(scene: Scene, said: ConditionDocument) -> Iterator[Mismatch]:
    for field, (what, count) in _COUNTED.items():
        spans: dict[str, Span] = getattr(said, field)
        for name, span in spans.items():
            for job, expected in _each(scene, (name,), f"{what} {span}"):
                number = count(scene, job) if job is not None else 0
                if job is None:
                    yield expected, _ABSENT
                elif number not in span:
                    yield expected, f"{number}; {state_of(scene, job)}"


def _kept(_: Scene, job: Job) -> int:
    return sum(len(t.devices) for t in job.reservation.tasks) if job.reservation else 0


_COUNTED: dict[str, tuple[str, Callable[[Scene, Job], int]]] = {
    "keeps": ("has devices kept for it:", _kept),
    "tasks": ("runs with a number of tasks of", lambda scene, job: len(scene.ranks(job))),
    "nodes_used": ("is on a number of nodes of", lambda scene, job: len(scene.nodes(job))),
    "attempts": ("was started a number of times of", lambda _, job: len(job.attempts)),
    "evicted": ("was evicted a number of times of", lambda _, job: job.evictions),
    "retries_used": ("has used a number of retries of", lambda _, job: job.restarts),
}


def _sums(scene: Scene, said: ConditionDocument) -> Iterator[Mismatch]:
    for name, span in said.evicted_in_all.items():
        number = sum(job.evictions for job in scene.matching(name))
        if number not in span:
            yield f"{name} were evicted {span} times in all", f"{number} times"
    for name, span in said.used.items():
        number = sum(scene.devices(job) for job in scene.jobs.values() if job.spec.queue == name)
        if number not in span:
            yield f"queue {name} uses {span} devices", f"it uses {number}"
    if said.free is not None and scene.free() not in said.free:
        yield f"{said.free} devices are free", f"{scene.free()} are"
    for name, mark in said.mark.items():
        domain = scene.places.domain(name) or name
        if scene.mark(domain) != mark:
            yield f"{name} is marked {mark}", f"it is {scene.mark(domain)}"


def _places(scene: Scene, said: ConditionDocument) -> Iterator[Mismatch]:
    for name, alternatives in said.nodes_of.items():
        sets = [{scene.places.domain(node) for node in nodes} for nodes in alternatives]
        shown = " or ".join(", ".join(nodes) for nodes in alternatives)
        for job, expected in _each(scene, (name,), f"is on {shown}"):
            if job is None or set(scene.nodes(job)) not in sets:
                yield expected, _whereabouts(scene, job)
    for name, sites in said.sites_of.items():
        for job, expected in _each(scene, (name,), f"is at {', '.join(sites)}"):
            own = {node.partition("/")[0] for node in scene.nodes(job)} if job else set()
            if own != set(sites):
                yield expected, f"at {', '.join(sorted(own)) or 'no site'}"
    for name, kind in said.kind_of.items():
        for job, expected in _each(scene, (name,), f"has {kind}"):
            attempt = scene.attempt(job) if job else None
            own_kind = attempt.placement.option.accelerator if attempt else "nothing"
            if own_kind != kind:
                yield expected, f"it has {own_kind}"


def _levels(scene: Scene, said: ConditionDocument) -> Iterator[Mismatch]:
    for name, level in said.within.items():
        for job, expected in _each(scene, (name,), f"is within one {level}"):
            domains = scene.domains(job, level) if job else []
            if job is None or len(set(domains)) != 1 or domains[0] is None:
                yield expected, _whereabouts(scene, job)
    for name, level in said.ranks_ordered_by.items():
        for job, expected in _each(scene, (name,), f"has consecutive ranks in each {level}"):
            runs = [domain for domain, _ in groupby(scene.domains(job, level) if job else [])]
            if not runs or len(runs) != len(set(runs)):
                yield expected, _whereabouts(scene, job)


def _groups(scene: Scene, said: ConditionDocument) -> Iterator[Mismatch]:
    for name, level, count in _per_level(said.spread_over):
        for job, expected in _each(scene, (name,), f"is in {count} of the level {level}"):
            found = len(set(scene.domains(job, level))) if job else 0
            if found != count:
                yield expected, f"in {found}"
    for name, level, size in _per_level(said.groups_within):
        for job, expected in _each(scene, (name,), f"keeps {size} ranks within a {level}"):
            domains = scene.domains(job, level) if job else []
            split = _split(domains, size or len(domains))
            if not domains or split is not None:
                yield expected, f"ranks {split} do not sit together" if domains else "nowhere"


def _per_level(groups: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[str, str, int]]:
    for name, counts in groups.items():
        for level, count in counts.items():
            yield name, level, count


def _whereabouts(scene: Scene, job: Job | None) -> str:
    return (where(scene, job) or "nowhere") if job is not None else _ABSENT


def _split(domains: Sequence[object], size: int) -> str | None:
    for first in range(0, len(domains), size):
        group = domains[first : first + size]
        if len(set(group)) > 1 or group[0] is None:
            return f"{first} to {first + len(group) - 1}"
    return None


def _reasons(scene: Scene, said: ConditionDocument) -> Iterator[Mismatch]:
    for name, wanted in said.reason.items():
        for job, expected in _each(scene, (name,), f"gives as its reason {_shown(wanted)}"):
            if job is None:
                yield expected, _ABSENT
                continue
            reason = scene.reason(job)
            if reason is None:
                yield expected, f"it gives none; {state_of(scene, job)}"
            elif not _is_like(reason, wanted):
                remedy = f" (remedy: {reason.remedy})" if reason.remedy else ""
                yield expected, f"{reason.code}: {reason.sentence}{remedy}"


def _shown(wanted: ReasonDocument) -> str:
    parts = [wanted.code] if wanted.code else []
    return " with ".join([*parts, *(repr(text) for text in wanted.contains)])


def _is_like(reason: Reason, wanted: ReasonDocument) -> bool:
    text = f"{reason.sentence}; {reason.remedy}"
    right_code = wanted.code in (None, reason.code.value)
    return right_code and all(piece in text for piece in wanted.contains)


def _losses(scene: Scene, said: ConditionDocument) -> Iterator[Mismatch]:
    for job, expected in _each(scene, said.saved, "was stopped with all of its training saved"):
        stopped = job is not None and any(a.stop_sent and a.ended_s for a in job.attempts)
        if job is None or not stopped:
            yield expected, "it was never stopped" if job else _ABSENT
        elif (lost_s := _lost_s(scene, job)) > 0:
            yield expected, f"{lost_s:g} s of training are lost"
    for name, limit_s in said.lost_at_most.items():
        for job, expected in _each(scene, (name,), f"loses at most {limit_s:g} s of training"):
            lost_s = _lost_s(scene, job) if job else 0.0
            if lost_s > limit_s + _NEAR_S:
                yield expected, f"it lost {lost_s:g} s"
    for name, grace_s in said.not_killed_before.items():
        for job, expected in _each(scene, (name,), f"is not killed within {grace_s:g} s of a stop"):
            if job is None:
                yield expected, _ABSENT
            else:
                yield from ((expected, found) for found in _killed(scene, job, grace_s))


def _lost_s(scene: Scene, job: Job) -> float:
    row = scene.row(job)
    return row.lost_device_s / row.devices if row.devices else 0.0


def _killed(scene: Scene, job: Job, grace_s: float) -> Iterator[str]:
    first: dict[int, float] = {}
    for at_s, stop in scene.memory.stops:
        if stop.job_id != job.job_id:
            continue
        told_s = first.setdefault(stop.attempt, at_s)
        if stop.grace_s <= 0 and at_s < told_s + grace_s:
            yield f"attempt {stop.attempt} is to die {at_s - told_s:g} s after the first request"
    for attempt in job.attempts:
        told = first.get(attempt.number)
        if told is None or not attempt.ended_s:
            continue
        after_s = attempt.ended_s - ORIGIN_S - told
        sentences = [task.outcome.sentence for task in tasks_of(attempt) if task.outcome]
        if after_s < grace_s and any(text.endswith("killed") for text in sentences):
            yield f"attempt {attempt.number} was killed {after_s:g} s after the request"
    if not first:
        yield "it was never told to stop"


def _orders(scene: Scene, said: ConditionDocument) -> Iterator[Mismatch]:
    jobs = [job for pattern in said.order for job in scene.matching(pattern)]
    for one, other in pairwise(jobs):
        if _epoch(one) >= _epoch(other):
            yield (
                f"{one.job_id} starts before {other.job_id}",
                f"{_start(scene, one)}, {_start(scene, other)}",
            )
    for first, second in said.before:
        for one in scene.matching(first):
            for other in scene.matching(second):
                if other.attempts and _epoch(one) >= _epoch(other):
                    yield (
                        f"{one.job_id} starts before {other.job_id}",
                        f"{_start(scene, one)}, {_start(scene, other)}",
                    )


def _epoch(job: Job) -> float:
    return job.attempts[0].epoch if job.attempts else float("inf")


def _start(scene: Scene, job: Job) -> str:
    at_s = scene.started_s(job)
    return f"{job.job_id} has not started" if at_s is None else f"{job.job_id} at {at_s:g}"


def _times(scene: Scene, said: ConditionDocument) -> Iterator[Mismatch]:
    for field, (what, exact) in _TIMED.items():
        for name, limit_s in getattr(said, field).items():
            for job, expected in _each(scene, (name,), f"{what} {limit_s:g}"):
                at_s = _time(scene, job, field) if job else None
                late = at_s is None or at_s > limit_s + _NEAR_S
                if late or (exact and at_s is not None and at_s < limit_s - _NEAR_S):
                    yield expected, f"at {at_s:g}" if at_s is not None else "not yet"


_TIMED = {
    "started_at": ("starts at", True),
    "started_by": ("starts by", False),
    "ended_at": ("is over at", True),
    "ended_by": ("is over by", False),
    "promised": ("is promised to start by", True),
}


def _time(scene: Scene, job: Job, field: str) -> float | None:
    if field.startswith("started"):
        return scene.started_s(job)
    if field.startswith("ended"):
        return scene.memory.ended_s.get(job.job_id)
    return job.promised_s - ORIGIN_S if job.promised_s else None


def state_of(scene: Scene, job: Job) -> str:
    """Return in which state a job is, and where or why, for a person."""
    if job.state in HOLDING:
        return f"it is {job.state.value}: {where(scene, job)}"
    reason = scene.reason(job)
    said = f": {reason.code.value}, {reason.sentence}" if reason else ""
    return f"it is {job.state.value}{said}"


_CHECKS: tuple[Callable[[Scene, ConditionDocument], Iterator[Mismatch]], ...] = (
    *(_states, _one_of, _holds, _counts, _sums, _places, _levels, _groups, _reasons),
    *(_losses, _orders, _times),
)
