"""The Standard Workload Format."""

import pytest

from gridloom.base.errors import InputError
from gridloom.model.spec import Dependency
from gridloom.sim.workload import ReadOptions, read

HEADER = """; Version: 2.2
; Computer: Example SP2
; UnixStartTime: 1000000000
; MaxProcs: 128
; Note: first note
"""
# Fields: job submit wait run procs cpu mem | wanted limit mem status user group app queue part
# preceding think
LOG = (
    HEADER
    + """\
    1      0   10    100   4  -1 -1    8   3600 -1  1  3  1  2  1 -1 -1 -1
    2     50    0   50.5   4  -1 -1   -1     -1 -1  0 -1 -1 -1  2 -1 -1 -1
    3     60    5    700  16  -1 -1   16     60 -1  5  3  1  2 -1 -1  1 30
"""
)


def test_fields_of_a_job() -> None:
    one, two, three = read(LOG).arrivals
    assert (one.job_id, one.submit_s, one.work_s, one.state) == ("1", 0, 100, "completed")
    assert one.spec.options[0].devices == 8  # as requested, not the 4 that it got
    assert (one.spec.forecast.duration_s, one.spec.user, one.spec.queue) == (
        3600, "user 3", "queue 1",
    )  # fmt: skip
    assert (two.work_s, two.spec.options[0].devices, two.spec.forecast.duration_s) == (
        50.5, 4, 50.5,
    )  # fmt: skip
    assert (two.state, two.fail_after_s, two.spec.user) == ("failed", 50.5, "")
    assert (three.state, three.spec.queue) == ("cancelled", "")
    assert three.spec.after == (Dependency(job_id="1", kind="afterany"),)
    assert (one.row, three.row) == (6, 8)


def test_header_gives_the_machine_and_the_zero() -> None:
    workload = read(LOG)
    assert (workload.format, workload.devices, workload.origin_s) == ("swf", 128, 1000000000)
    assert "think time" in workload.notes[0]
    assert "(1 rows)" in workload.notes[0]
    bare = read(LOG.replace("MaxProcs: 128", "MaxProcs: many").replace("UnixStartTime", "What"))
    assert (bare.devices, bare.origin_s) == (0, 0)


def test_a_job_waits_only_for_one_that_is_there() -> None:
    workload = read(LOG.replace("    1      0", "    9      0"))
    assert workload.arrivals[2].spec.after == ()


def test_priorities_by_queue() -> None:
    options = ReadOptions(priorities={"queue 2": 7})
    assert [a.spec.priority for a in read(LOG, options=options).arrivals] == [0, 7, 0]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("7 0 -1 10 4 -1 -1 4 -1 -1 1 -1 -1 -1 -1 -1 -1", "field_count"),
        ("7 0 -1 10 4 -1 -1 4 -1 -1 1 -1 -1 -1 -1 -1 -1 -1 -1", "field_count"),
        ("7 0 -1 -1 4 -1 -1 4 -1 -1 1 -1 -1 -1 -1 -1 -1 -1", "missing_duration"),
        ("7 0 -1 0 4 -1 -1 4 -1 -1 1 -1 -1 -1 -1 -1 -1 -1", "zero_duration"),
        ("7 0 -1 -7 4 -1 -1 4 -1 -1 1 -1 -1 -1 -1 -1 -1 -1", "negative_time"),
        ("7 -9 -1 7 4 -1 -1 4 -1 -1 1 -1 -1 -1 -1 -1 -1 -1", "negative_time"),
        ("7 0 -1 -1 -1 -1 -1 4 -1 -1 5 -1 -1 -1 -1 -1 -1 -1", "never_ran"),
        ("7 0 -1 9 -1 -1 -1 -1 -1 -1 1 -1 -1 -1 -1 -1 -1 -1", "no_devices"),
        ("7 0 -1 9 4 -1 -1 4 -1 -1 2 -1 -1 -1 -1 -1 -1 -1", "partial"),
        ("7 -1 -1 9 4 -1 -1 4 -1 -1 3 -1 -1 -1 -1 -1 -1 -1", "partial"),
        ("7 0 -1 9 4 -1 -1 4 -1 -1 4 -1 -1 -1 -1 -1 -1 -1", "partial"),
        ("1 0 -1 9 4 -1 -1 4 -1 -1 1 -1 -1 -1 -1 -1 -1 -1", "duplicate"),
        ("7 0 -1 x 4 -1 -1 4 -1 -1 1 -1 -1 -1 -1 -1 -1 -1", "not_a_number"),
        ("7 0 -1 9 4 -1 -1 4.5 -1 -1 1 -1 -1 -1 -1 -1 -1 -1", "not_whole"),
    ],
)
def test_wrong_lines_are_dropped(line: str, why: str) -> None:
    workload = read(LOG + line + "\n")
    assert len(workload.arrivals) == 3
    assert [(d.row, d.why) for d in workload.dropped] == [(9, why)]


def test_a_log_of_comments_has_no_jobs() -> None:
    with pytest.raises(InputError, match=r"log\.swf: has no jobs"):
        read(HEADER, file="log.swf")
