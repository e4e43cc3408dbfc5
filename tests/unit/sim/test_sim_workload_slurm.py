"""Listings of sacct."""

import pytest

from gridloom.base.errors import InputError
from gridloom.sim.workload import Dropped, ReadOptions, Workload, read

HEADER = (
    "JobID|Account|Partition|User|QOS|Submit|Start|End|Elapsed|Timelimit|State|ReqTRES|AllocTRES"
)
T = "2026-01-31T12:0"
GPUS = "billing=2,cpu=16,gres/gpu=16,mem=128M,node=2"


def line(**cells: str) -> str:
    usual = {
        "JobID": "1", "Account": "physics", "Partition": "gpu", "User": "ann", "QOS": "normal",
        "Submit": f"{T}0:00", "Start": f"{T}1:00", "End": f"{T}2:00", "Elapsed": "00:01:00",
        "Timelimit": "1-00:00:00", "State": "COMPLETED", "ReqTRES": GPUS, "AllocTRES": GPUS,
    }  # fmt: skip
    return "|".join((usual | cells)[name] for name in HEADER.split("|"))


def listing(*lines: str) -> str:
    return "\n".join((HEADER, *lines)) + "\n"


def one(**cells: str) -> Workload:
    return read(listing(line(**cells)))


def test_fields_of_a_job() -> None:
    workload = one()
    (job,) = workload.arrivals
    assert (job.job_id, job.submit_s, job.work_s, job.state) == ("1", 0, 60, "completed")
    assert (job.spec.queue, job.spec.user, job.spec.priority) == ("physics", "ann", 0)
    assert job.spec.forecast.duration_s == 86400
    assert (job.spec.options[0].devices, job.spec.options[0].accelerator) == (16, "gpu")
    assert (workload.format, workload.origin_s) == ("slurm", 1769860800)
    assert "no zone" in workload.notes[0]


@pytest.mark.parametrize(
    ("elapsed", "seconds"),
    [("00:01:00", 60), ("1-02:03:04", 93784), ("05:30", 330), ("100:00:00", 360000)],
)
def test_run_times_as_slurm_writes_them(elapsed: str, seconds: float) -> None:
    assert one(Elapsed=elapsed).arrivals[0].work_s == seconds


@pytest.mark.parametrize(
    ("state", "ended", "fails"),
    [
        ("COMPLETED", "completed", 0), ("FAILED", "failed", 60), ("TIMEOUT", "failed", 60),
        ("OUT_OF_MEMORY", "failed", 60), ("NODE_FAIL", "failed", 60),
        ("CANCELLED by 1000", "cancelled", 0), ("CANCELLED+", "cancelled", 0), ("REVOKED", "", 0),
    ],
)  # fmt: skip
def test_states(state: str, ended: str, fails: float) -> None:
    (job,) = one(State=state).arrivals
    assert (job.state, job.fail_after_s) == (ended, fails)


@pytest.mark.parametrize(
    ("asked", "had", "devices", "kind"),
    [
        ("", "gres/gpu=4", 4, "gpu"),
        ("gres/gpu=4", "", 4, "gpu"),
        ("", "gres/gpu:h100=8,gres/gpu=8", 8, "h100"),
        ("", "gres/gpu:h100=8", 8, "h100"),
        ("", "gres/gpu:h100=8,gres/gpu:a100=4", 12, "gpu"),
        ("gres/gpu=4", "cpu=2,gres/gpu=8", 8, "gpu"),
    ],
)
def test_devices(asked: str, had: str, devices: int, kind: str) -> None:
    option = one(ReqTRES=asked, AllocTRES=had).arrivals[0].spec.options[0]
    assert (option.devices, option.accelerator) == (devices, kind)


def test_cores_are_devices_where_that_is_asked_for() -> None:
    workload = read(
        listing(line(AllocTRES="cpu=4,mem=1G")), options=ReadOptions(accelerators=("cpu",))
    )
    option = workload.arrivals[0].spec.options[0]
    assert (option.devices, option.accelerator) == (4, "cpu")


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [("00:30:00", 1800), ("UNLIMITED", 60), ("Partition_Limit", 60), ("", 60)],
)
def test_the_limit_of_time_is_the_prediction(limit: str, seconds: float) -> None:
    assert one(Timelimit=limit).arrivals[0].spec.forecast.duration_s == seconds


def test_account_or_partition_and_quality_of_service() -> None:
    options = ReadOptions(priorities={"high": 10})
    text = listing(line(Account="", QOS="high"), line(JobID="2"))
    first, second = read(text, options=options).arrivals
    assert (first.spec.queue, first.spec.priority) == ("gpu", 10)
    assert (second.spec.queue, second.spec.priority) == ("physics", 0)


def test_steps_are_part_of_their_job_and_array_tasks_are_jobs() -> None:
    ids = ("6_0", "6_0.batch", "6_0.extern", "6_0.0", "6_1", "7+0", "7+0.interactive")
    workload = read(listing(*(line(JobID=job_id) for job_id in ids)))
    assert [arrival.job_id for arrival in workload.arrivals] == ["6_0", "6_1", "7+0"]
    assert workload.dropped_by_reason() == {"step": 4}
    assert [dropped.row for dropped in workload.dropped] == [3, 4, 5, 8]


def test_a_requeued_job_was_submitted_first_and_ran_last() -> None:
    workload = read(
        listing(
            line(JobID="8", Submit=f"{T}0:00", State="REQUEUED", Elapsed="00:00:10"),
            line(JobID="9", Submit=f"{T}0:30"),
            line(JobID="8", Submit=f"{T}1:00", State="NODE_FAIL", Elapsed="00:00:20"),
            line(JobID="8", Submit=f"{T}2:00", Elapsed="00:00:30"),
        )
    )
    assert [(a.job_id, a.submit_s, a.work_s) for a in workload.arrivals] == [
        ("8", 0, 30), ("9", 30, 60),
    ]  # fmt: skip
    assert [(d.row, d.why) for d in workload.dropped] == [(2, "requeued"), (4, "requeued")]


def test_the_time_of_an_earlier_try_may_be_unknown() -> None:
    again = line(JobID="8", Submit="Unknown", State="REQUEUED")
    workload = read(listing(again, line(JobID="8", Submit=f"{T}2:00")))
    assert [(a.submit_s, workload.origin_s) for a in workload.arrivals] == [(0, 1769860920)]


def test_a_job_that_is_listed_twice_is_one() -> None:
    workload = read(listing(line(), line()))
    assert len(workload.arrivals) == 1
    assert workload.dropped == (
        Dropped(row=3, why="duplicate", sentence="1 is already in row 2"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ({"State": "RUNNING", "End": "Unknown"}, "unfinished"),
        ({"State": "PENDING", "Start": "Unknown", "JobID": "6_[2-3%2]"}, "unfinished"),
        ({"State": "CANCELLED by 0", "Start": "Unknown", "Elapsed": "00:00:00"}, "never_ran"),
        ({"State": "CANCELLED", "Start": "None", "Elapsed": "00:00:00"}, "never_ran"),
        ({"State": "", "Start": "Unknown"}, "never_ran"),
        ({"Elapsed": "00:00:00"}, "zero_duration"),
        ({"Elapsed": "soon"}, "not_a_number"),
        ({"Elapsed": "1e999999999"}, "not_a_number"),
        ({"Submit": "Unknown"}, "not_a_time"),
        ({"Submit": ""}, "missing_field"),
        ({"AllocTRES": "cpu=2,mem=1G"}, "no_devices"),
        ({"AllocTRES": "gres/gpu=many"}, "not_a_number"),
        ({"User": "a|b"}, "field_count"),
    ],
)
def test_wrong_lines_are_dropped(cells: dict[str, str], why: str) -> None:
    workload = read(listing(line(JobID="0"), line(**{"JobID": "1"} | cells)))
    assert [arrival.job_id for arrival in workload.arrivals] == ["0"]
    assert [(d.row, d.why) for d in workload.dropped] == [(3, why)]


def test_raw_columns_and_seconds_since_the_epoch() -> None:
    text = (
        "JobID|Submit|State|ElapsedRaw|Elapsed|TimelimitRaw|Timelimit|AllocTRES|\n"
        "1|1769860800|COMPLETED|7|00:01:00|60|02:00:00|gres/gpu=1|\n"
        "2|1769860810|COMPLETED||00:01:00|UNLIMITED|02:00:00|gres/gpu=1|\n"
    )
    workload = read(text)
    assert [(a.submit_s, a.work_s, a.spec.forecast.duration_s) for a in workload.arrivals] == [
        (0, 7, 3600), (10, 60, 7200),
    ]  # fmt: skip
    assert workload.notes == ()


def test_a_delimiter_of_two_signs() -> None:
    assert len(read(listing(line()).replace("|", "|#")).arrivals) == 1


@pytest.mark.parametrize("missing", ["Elapsed", "State"])
def test_a_missing_column_is_an_error(missing: str) -> None:
    with pytest.raises(InputError, match=missing.lower()):
        read(listing(line()).replace(missing, "What"), format="slurm")


def test_devices_need_a_column() -> None:
    with pytest.raises(InputError, match=r"jobs:1: AllocTRES: .*--format=ALL"):
        read("JobID|Submit|State|Elapsed\n1|2|COMPLETED|00:00:01\n", file="jobs")
