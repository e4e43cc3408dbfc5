"""Five hundred jobs in the queue of a real Slurm, which is asked once a look for all of them."""

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.slurm import Watch, cluster

from gridloom.model.event import TaskWaiting

pytestmark = [pytest.mark.bed, pytest.mark.timeout(180)]

JOBS, LOOKS = 500, 3


@pytest.fixture(scope="module")
def watch() -> Iterator[Watch]:
    with cluster() as bed, tempfile.TemporaryDirectory() as name:
        yield Watch(bed, Path(name) / "runs", JOBS)


@pytest.mark.parametrize(
    ("way", "requests"),
    [
        ("commands", {"REQUEST_JOB_INFO": LOOKS, "REQUEST_PARTITION_INFO": LOOKS}),
        ("slurmrestd", {"REQUEST_JOB_INFO": LOOKS}),
    ],
)
def test_one_call_a_look(watch: Watch, way: str, requests: dict[str, int]) -> None:
    driver = watch.driver(way)
    watch.cycle(driver)
    asked: Counter[str] = Counter()
    with watch.bed.counted(asked):
        for _ in range(LOOKS):
            facts = watch.cycle(driver)
            assert len(facts) == JOBS
            assert all(
                isinstance(fact, TaskWaiting) and fact.sentence.startswith("Slurm job ")
                for fact in facts
            )
    assert asked == requests
