"""Arrays: what one job file stands for, and which jobs a person means by the beginning of ids."""

from pathlib import PurePath

import pytest
from tests.unit.control.nouns import spec as job_spec

from gridloom.cli.arrays import array_of, array_specs, jobs_of_array
from gridloom.model.life import Job, JobState
from gridloom.model.spec import Dependency, JobSpec
from gridloom.wire.launch import ARRAY_INDEX_VARIABLE
from gridloom.wire.schedule_document import Array


def specs(array: Array, spec: JobSpec | None = None) -> dict[str, JobSpec]:
    return array_specs("sweep-abc234", spec or job_spec(), array, None)


def test_each_index_is_a_job_that_knows_it() -> None:
    found = specs(Array((1, 3, 12)))
    assert list(found) == ["sweep-abc234-1", "sweep-abc234-3", "sweep-abc234-12"]
    indices = [spec.program.env[ARRAY_INDEX_VARIABLE] for spec in found.values()]
    assert indices == ["1", "3", "12"]
    assert all(spec.program.env["A"] == "1" for spec in found.values()), "and what it had"
    assert not any(spec.after for spec in found.values())


@pytest.mark.parametrize("at_once", [1, 2, 3, 9])
def test_each_waits_for_the_one_so_many_places_before_it(at_once: int) -> None:
    first = Dependency(job_id="data-abc234", kind="afterok")
    common = JobSpec(name="j", program=job_spec().program, options=(), after=(first,))
    found = specs(Array((2, 3, 5, 7, 11), at_once), common)
    ids = list(found)
    for place, spec in enumerate(found.values()):
        before = [ids[place - at_once]] if place >= at_once else []
        expected = [Dependency(job_id=job_id, kind="afterany") for job_id in before]
        assert spec.after == (first, *expected)


def test_each_saves_its_state_in_a_place_of_its_own() -> None:
    recipe = job_spec(recipe=True)
    assert recipe.recipe is not None
    in_run = recipe.recipe.checkpoint
    for given, expected in ((None, "/sweep-abc234-4/c"), (PurePath("/mine"), "/mine/4")):
        found = array_specs("sweep-abc234", recipe, Array((4,)), given)["sweep-abc234-4"]
        assert found.recipe is not None
        assert found.recipe.checkpoint.directory == expected
        assert found.recipe.checkpoint.interval_steps == in_run.interval_steps


def jobs() -> dict[str, Job]:
    """An array of three that is under way, one of two that is over, a job by itself."""
    made: dict[str, Job] = {}
    for base, indices, state in (
        ("sweep-abc234", (2, 10, 1), JobState.QUEUED),
        ("sweep-zzz999", (0, 1), JobState.SUCCEEDED),
        ("grid-zzz222", (0, 1), JobState.FAILED),
    ):
        spec = job_spec(name=base.partition("-")[0])
        for job_id, own in array_specs(base, spec, Array(indices), None).items():
            made[job_id] = Job(job_id=job_id, spec=own, submitted_s=1.0, state=state)
    single = Job(job_id="one-222222", spec=job_spec(name="one"), submitted_s=2.0)
    return {**made, "one-222222": single}


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("sweep-abc234", ["sweep-abc234-1", "sweep-abc234-2", "sweep-abc234-10"]),
        ("sweep-zzz999", ["sweep-zzz999-0", "sweep-zzz999-1"]),
        ("sweep", ["sweep-abc234-1", "sweep-abc234-2", "sweep-abc234-10"]),
        ("sweep-a", ["sweep-abc234-1", "sweep-abc234-2", "sweep-abc234-10"]),
        ("grid", ["grid-zzz222-0", "grid-zzz222-1"]),
        ("sweep-", []),
        ("sweep-abc234-1", []),
        ("one", []),
        ("one-222222", []),
        ("nothing", []),
        ("", []),
    ],
)
def test_an_array_is_meant_by_what_its_ids_begin_with(wanted: str, found: list[str]) -> None:
    assert [job.job_id for job in jobs_of_array(jobs(), wanted)] == found


def test_a_name_that_an_array_shares_with_a_job_means_neither() -> None:
    made = jobs()
    made["sweep-222222"] = Job(job_id="sweep-222222", spec=job_spec(name="sweep"), submitted_s=9.0)
    assert jobs_of_array(made, "sweep") == []
    assert len(jobs_of_array(made, "sweep-abc234")) == 3


def test_a_job_knows_its_array() -> None:
    made = jobs()
    assert array_of(made["sweep-abc234-10"]) == "sweep-abc234"
    assert array_of(made["one-222222"]) == ""
    elsewhere = job_spec()
    elsewhere.program.env[ARRAY_INDEX_VARIABLE] = "7"
    assert array_of(Job(job_id="one-8", spec=elsewhere, submitted_s=1.0)) == ""
