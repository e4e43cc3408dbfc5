"""Who is next, by table."""

import math
from typing import Any

import pytest
from tests.unit.core.grids import shape, spec

from gridloom.core import order
from gridloom.model.life import Job, JobState
from gridloom.model.policy import Policy
from gridloom.model.spec import Forecast


def job(job_id: str = "j", state: JobState = JobState.QUEUED, **more: Any) -> Job:
    of_job = {
        name: more.pop(name) for name in ("submitted_s", "device_s", "kept_s") if name in more
    }
    forecast = Forecast(duration_s=more.pop("duration_s", 0.0))
    settings: dict[str, Any] = {"submitted_s": 0.0} | of_job
    asked = spec(shape(1), forecast=forecast, **more)
    return Job(job_id=job_id, spec=asked, state=state, **settings)


def sorted_by(policy: Policy, *jobs: Job, now: float = 0.0) -> str:
    return " ".join(one.job_id for one in sorted(jobs, key=lambda one: order.key(one, policy, now)))


def test_the_order_is_total() -> None:
    jobs = [
        job("d", submitted_s=5.0),
        job("c", submitted_s=1.0),
        job("b", submitted_s=5.0),
        job("a", submitted_s=9.0, priority=1),
    ]
    assert [one.job_id for one in order.in_order(jobs)] == ["a", "c", "b", "d"]
    assert order.in_order(reversed(jobs)) == order.in_order(jobs)
    assert sorted_by(Policy(), *jobs) == sorted_by(Policy(), *reversed(jobs)) == "a c b d"


def test_numbers_in_ids_count_by_size() -> None:
    names = ["9", "10", "x", "x2y10", "x2y9", "x10", "-3", "\u0665"]  # the last: an Arabic five
    found = sorted_by(Policy(), *(job(name) for name in names))
    assert found == "-3 9 \u0665 10 x x2y9 x2y10 x10"


def test_jobs_are_told_apart_by_what_they_do() -> None:
    jobs = [job(state.value, state) for state in JobState]
    assert [one.job_id for one in order.queued(jobs)] == ["queued"]
    assert [one.job_id for one in order.holding(jobs)] == ["running", "starting", "stopping"]


@pytest.mark.parametrize(
    ("name", "more", "want"),
    [
        ("submit", {"duration_s": 9.0}, 0.0),
        ("share", {"duration_s": 9.0}, 0.0),
        ("duration", {"duration_s": 9.0, "kept_s": 5.0}, 9.0),
        ("duration", {}, math.inf),
        ("remaining", {"duration_s": 9.0, "kept_s": 5.0}, 4.0),
        ("remaining", {"kept_s": 5.0}, math.inf),
        ("attained", {}, 0.0),
        ("attained", {"device_s": 9.9}, 0.0),
        ("attained", {"device_s": 10.0}, 1.0),
        ("attained", {"device_s": 50.0}, 2.0),
        ("deadline", {"deadline_s": 7.0}, 7.0),
        ("deadline", {"deadline_s": 7.0, "duration_s": 2.0}, 7.0),
        ("deadline", {"deadline_s": 7.0, "duration_s": 3.0}, math.inf),  # it is lost anyway
        ("deadline", {"deadline_s": 7.0, "duration_s": 3.0, "kept_s": 2.0}, 7.0),
        ("deadline", {}, math.inf),
    ],
)
def test_what_jobs_are_ordered_by(name: Any, more: dict[str, Any], want: float) -> None:
    policy = Policy(order=name, attained_steps_s=(10.0, 40.0))
    assert order.value(job(**more), policy, 5.0) == want


def test_priority_comes_before_the_policys_order_and_that_before_submission() -> None:
    jobs = [
        job("a", submitted_s=1.0, duration_s=9.0),
        job("b", submitted_s=2.0, duration_s=3.0),
        job("c", submitted_s=3.0, duration_s=3.0),
        job("d", submitted_s=4.0, duration_s=99.0, priority=1),
    ]
    assert sorted_by(Policy(order="duration"), *jobs) == "d b c a"
    assert sorted_by(Policy(order="submit"), *jobs) == "d a b c"


def test_a_job_gains_on_those_that_are_submitted_an_hour_later() -> None:
    late = job("late", submitted_s=2 * 3600.0, priority=1)
    early = job("early", submitted_s=0.0)
    assert sorted_by(Policy(ageing_per_hour=0.4), early, late) == "late early"
    assert sorted_by(Policy(ageing_per_hour=0.6), early, late) == "early late"
    assert order.key(late, Policy(ageing_per_hour=0.6), 0.0)[0] == pytest.approx(0.2)


def test_of_jobs_that_are_alike_the_numbers_in_their_ids_decide_by_size() -> None:
    jobs = [job(name) for name in ("a_10", "a_9", "b_1", "a_09")]
    assert sorted_by(Policy(), *jobs) == "a_09 a_9 a_10 b_1"


def test_when_a_job_must_start_to_keep_its_deadline() -> None:
    assert order.latest_start_margin_s(job(duration_s=9.0, kept_s=5.0)) == 4.0
    assert order.latest_start_margin_s(job()) == 0.0
    assert not order.keeps_deadline(job(), 0.0)
