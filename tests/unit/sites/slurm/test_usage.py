"""What jobs have used, as the accounts of a real Slurm 22.05 told it; one has two parts."""

import json
from typing import Any

import pytest

from gridloom.base.errors import SiteError
from gridloom.sites.slurm import usage
from gridloom.sites.slurm.usage import Used

SACCT = """\
52|COMPLETED|9|00:03.514||0
52.batch|COMPLETED|9|00:00.013|10972K|0
52.0|COMPLETED|9|00:03.500|111148K|0
53+0|COMPLETED|7|00:00.022||0
53+0.batch|COMPLETED|7|00:00.019|13808K|0
53+0.0|COMPLETED|7|00:00.002|1556K|0
53+1|COMPLETED|7|00:00.002||0
53+1.0|COMPLETED|7|00:00.002|1580K|0
"""


def step(
    name: str, seconds: int, microseconds: int, memory: int, energy: Any = 0
) -> dict[str, Any]:
    return {
        "step": {"name": name},
        "time": {"total": {"seconds": seconds, "microseconds": microseconds}},
        "statistics": {"energy": {"consumed": energy}},
        "tres": {
            "requested": {"max": [{"type": "cpu", "count": 7}, {"type": "mem", "count": memory}]}
        },
    }


def job(job_id: int, het: int, *steps: dict[str, Any], state: Any = "COMPLETED") -> dict[str, Any]:
    return {
        "job_id": job_id,
        "het": {"job_id": het},
        "state": {"current": state},
        "time": {"elapsed": 9},
        "steps": [*steps],
    }


def test_sacct() -> None:
    assert usage.sacct(SACCT) == {
        52: Used(is_over=True, elapsed_s=9, cpu_s=3.514, max_rss_bytes=111148 * 1024),
        53: Used(is_over=True, elapsed_s=7, cpu_s=0.024, max_rss_bytes=13808 * 1024),
    }
    assert usage.sacct("") == {}


def test_what_still_runs_will_have_used_more() -> None:
    (used,) = usage.sacct("7|RUNNING|5|1-02:03:04||\n7.0|RUNNING|5|02:03:04||2000\n").values()
    assert (used.is_over, used.cpu_s, used.max_rss_bytes) == (False, 93784.0, 0)
    (used,) = usage.sacct("7|COMPLETED|5|||\n7+1|RUNNING|5|||9223372036854775808\n").values()
    assert (used.is_over, used.energy_j) == (False, 0.0)


@pytest.mark.parametrize("line", ["7|COMPLETED", "x|COMPLETED|1|0:1||", "7|COMPLETED|1|soon||"])
def test_a_line_that_cannot_be_read_is_told(line: str) -> None:
    with pytest.raises(SiteError, match="sacct: "):
        usage.sacct(line)


def test_slurmdbd() -> None:
    told = {
        "jobs": [
            job(52, 0, step("batch", 0, 13985, 11235328, 5), step("a", 3, 500357, 113815552, 3600)),
            job(53, 53, step("batch", 0, 19660, 14139392), step("b", 0, 2359, 1593344)),
            job(54, 53, step("b", 0, 2394, 1617920), state=["COMPLETED"]),
        ]
    }
    found = usage.rest(json.dumps(told).encode())
    assert found == {
        52: Used(
            is_over=True,
            elapsed_s=9,
            cpu_s=3 + 500357 / 1e6 + 13985 / 1e6,
            max_rss_bytes=113815552,
            energy_j=3600.0,
        ),
        53: Used(is_over=True, elapsed_s=9, cpu_s=0.022019 + 0.002394, max_rss_bytes=14139392),
    }


def test_what_nobody_has_looked_at_is_nothing() -> None:
    bare = {"job_id": 7, "state": {"current": "RUNNING"}, "steps": [{"step": {}}, None]}
    assert usage.rest(json.dumps({"jobs": [bare]}).encode()) == {7: Used(is_over=False)}
