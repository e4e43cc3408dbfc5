"""The logs of Helios and Acme. Rows from their READMEs (HeliosData, AcmeTrace, CC-BY-4.0)."""

import pytest

from gridloom.base.errors import InputError
from gridloom.sim.workload import ReadOptions, read

HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1425511,uXBbc,vcJkd,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0
1425512,uVMrF,vchbv,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0
1425513,uzqls,vcpDC,1,1,1,CANCELLED,2020-06-09 18:41:28,2020-06-09 18:41:28,2020-06-17 14:15:21,675233,0
"""  # noqa: E501
KALOS = """\
job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,\
start_time,end_time,fail_time,stop_time,duration,queue,gpu_time
dlctk696s0jbvitv,uf794,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,\
2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,2023-05-17 11:01:16+00:00,,18,10.0,1152.0
dlc1t2ypl09b8qtp,uf794,8,64,960,1000,100.0,Other,CANCELLED,2023-05-17 11:28:42+00:00,\
2023-05-17 11:28:54+00:00,2023-05-17 11:30:04+00:00,,2023-05-17 11:30:04+00:00,82,12.0,5248.0
"""
HEADER = "job_id,user,vc,gpu_num,cpu_num,state,submit_time,start_time,end_time,duration\n"


def test_helios() -> None:
    workload = read(HELIOS)
    assert workload.format == "helios"
    assert [(a.job_id, a.submit_s, a.work_s, a.state) for a in workload.arrivals] == [
        ("1425511", 0, 36848, "completed"), ("1425512", 26, 249, "failed"),
        ("1425513", 27, 675233, "cancelled"),
    ]  # fmt: skip
    second = workload.arrivals[1]
    assert (second.spec.user, second.spec.queue, second.spec.options[0].devices) == (
        "uVMrF", "vchbv", 4,
    )  # fmt: skip
    assert second.fail_after_s == 249
    assert workload.origin_s == 1591728061
    assert workload.notes == ("times have no zone and were taken as UTC",)


def test_kalos_counts_the_wait_into_its_durations() -> None:
    workload = read(KALOS)
    assert workload.format == "acme"
    assert [(a.submit_s, a.work_s, a.fail_after_s) for a in workload.arrivals] == [
        (0, 8, 8), (1664, 70, 0),
    ]  # fmt: skip
    assert workload.arrivals[0].spec.queue == "Other"
    assert workload.notes == ("duration is not end - start in 2 rows; end - start was taken",)


def test_a_failure_before_the_end() -> None:
    text = KALOS.replace("11:01:16+00:00,2023-05-17 11:01:16", "11:01:20+00:00,2023-05-17 11:01:10")
    first = read(text).arrivals[0]
    assert (first.work_s, first.fail_after_s) == (12, 2)


def test_without_times_of_start_and_end_the_duration_counts() -> None:
    text = "job_id,gpu_num,state,submit_time,duration\na,2,COMPLETED,1600000000,5\n"
    workload = read(text)
    assert [(a.work_s, a.spec.user) for a in workload.arrivals] == [(5, "")]
    assert workload.notes == ()
    with pytest.raises(InputError, match="no column duration"):
        read(text.replace("duration", "what"))
    row = "a,u,v,2,2,COMPLETED,2020-06-09 18:41:01,,,9\n"
    assert read(HEADER + row).arrivals[0].work_s == 9


def test_cores_are_devices_where_that_is_asked_for() -> None:
    workload = read(HELIOS, options=ReadOptions(accelerators=("cpu",)))
    assert [a.spec.options[0].devices for a in workload.arrivals] == [1, 16, 1]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("b,u,v,1,1,RUNNING,2020-06-09 18:41:01,2020-06-09 18:41:01,,", "unfinished"),
        ("b,u,v,1,1,CANCELLED,2020-06-09 18:41:01,,,", "never_ran"),
        ("b,u,v,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,,", "missing_field"),
        ("b,u,v,0,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-09 18:42:01,60",
         "no_devices"),
        ("b,u,v,1,1,COMPLETED,yesterday,2020-06-09 18:41:01,2020-06-09 18:42:01,60", "not_a_time"),
        ("b,u,v,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-09 18:40:01,60",
         "negative_time"),
        ("b,u,v,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-09 18:41:01,0",
         "zero_duration"),
        ("b,u,v,1,1,COMPLETED,2020-06-09 18:41:01,0001-01-01 00:00:00+14:00,9999-12-31,0",
         "out_of_range"),
    ],
)  # fmt: skip
def test_wrong_rows_are_dropped(row: str, why: str) -> None:
    good = "a,u,v,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-09 18:42:01,60\n"
    workload = read(HEADER + good + row + "\n")
    assert [arrival.job_id for arrival in workload.arrivals] == ["a"]
    assert [(d.row, d.why) for d in workload.dropped] == [(3, why)]
