"""Laws of all readers: whatever a text holds, it becomes a workload in order, or a clear error."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridloom.base.errors import InputError
from gridloom.sim.workload import FORMATS, ReadOptions, Workload, larger_than, read

JOURNAL = Path(__file__).parents[2] / "journals" / "killed-stopped-resumed.jsonl"
HELIOS_ROW = (
    "{},u,v,1,4,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:02,2020-06-09 18:45:36,1,0"
)
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "a", "namespace": "n", "creationTimestamp": "2026-01-31T12:00:00Z"},
    "spec": {
        "parallelism": 2,
        "template": {
            "spec": {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "8"}}}]}
        },
    },
    "status": {
        "startTime": "2026-01-31T12:00:00Z",
        "completionTime": "2026-01-31T13:00:00Z",
        "conditions": [{"type": "Complete", "status": "True"}],
    },
}
TEXTS = {
    "simple": "id,submit,duration,gpus,gpus_min,gpus_max\na,0,67,1,,\nb,600,68,8,2,32\n",
    "philly": "job_id,submit_local,submit_s,submit_utc_s,duration_s,num_gpus,vc\n"
    "1,2017-11-05 01:32:10,5,5,562,1,vc00\n2,2017-10-06 19:56:38,4,4,562,1,vc00\n",
    "pai": "submit_s,duration_s,units\n0,91469,1\n2077,90466,4\n",
    "swf": "; MaxProcs: 8\n1 0 -1 10 4 -1 -1 4 60 -1 1 1 1 1 1 1 -1 -1\n"
    "2 1 -1 10 4 -1 -1 4 60 -1 1 1 1 1 1 1 1 5\n",
    "slurm": "JobID|Submit|Start|State|Elapsed|Timelimit|AllocTRES\n"
    "1|2026-01-31T12:00:00|2026-01-31T12:00:00|COMPLETED|1-00:00:01|UNLIMITED|gres/gpu:h100=8\n"
    "1.batch|2026-01-31T12:00:00|2026-01-31T12:00:00|COMPLETED|00:01|01:00|gres/gpu=8\n",
    "helios": "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,"
    f"duration,queue\n{HELIOS_ROW.format(1)}\n{HELIOS_ROW.format(2)}\n",
    "acme": "job_id,gpu_num,type,state,submit_time,start_time,end_time,fail_time,duration\n"
    "1,8,Other,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,"
    "2023-05-17 11:01:16+00:00,2023-05-17 11:01:16+00:00,18\n",
    "openb": "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
    "deletion_time,scheduled_time\na,1000,2,1,460,T4|P100,LS,Running,0,9,1.0\n",
    "dlrm": "instance_sn,role,app_name,gpu_request,creation_time,scheduled_time,deletion_time\n"
    "i0,HN,app_0,1,10,12,100\n",
    "sia": "name,time,application,num_replicas,batch_size\nb-1,110.0,bert,8,384\n",
    "kube": json.dumps({"kind": "List", "apiVersion": "v1", "items": [JOB]}, indent=1),
    "journal": JOURNAL.read_text(),
}
TOKENS = (
    "", "-1", "0", "nan", "inf", "1e999", "1e308", "99999999999999999999", "9" * 5000, "1_0", "-",
    ",", "|", '"', "\n", "\t", "\0", "\ufeff", "\u0663", "{", "]", "null", "1e999999999", ":", " ",
    "0001-01-01T00:00:00+14:00", "9999-12-31", "T", "true", "[[", "\u2028", "\ud7ff", "e", ".",
)  # fmt: skip
ALL = ReadOptions(elastic=True, host=True, gang="packed", twins="drop")


def mutated(text: str, edits: list[tuple[int, int, str]]) -> str:
    for at, length, token in edits:
        place = at % (len(text) + 1)
        text = text[:place] + token + text[place + length :]
    return text


def check(workload: Workload) -> None:
    ids = [arrival.job_id for arrival in workload.arrivals]
    assert ids
    assert len(set(ids)) == len(ids)
    keys = [(arrival.submit_s, arrival.row) for arrival in workload.arrivals]
    assert keys == sorted(keys)
    dropped = [row.row for row in workload.dropped]
    assert dropped == sorted(dropped)
    assert all(row.why and row.sentence for row in workload.dropped)
    for arrival in workload.arrivals:
        assert math.isfinite(arrival.submit_s)
        assert 0 < arrival.work_s < math.inf
        assert 0 <= arrival.fail_after_s <= arrival.work_s
        assert arrival.spec.options
        assert min(option.devices for option in arrival.spec.options) >= 1
        for option in arrival.spec.options:
            ranks = [need.ranks for need in option.groups]
            assert all(option.plan.world_size % count == 0 for count in ranks)
    less = larger_than(workload, 4)
    assert len(less.arrivals) + len(less.dropped) == len(ids) + len(dropped)


def read_or_refuse(data: str | bytes, name: str = "", options: ReadOptions | None = None) -> None:
    try:
        workload = read(data, format=name, options=options)
    except InputError as refused:
        told = refused.problems[0].message
        if not told:
            raise
        return
    check(workload)


def test_there_is_a_text_for_each_format() -> None:
    assert TEXTS.keys() == FORMATS.keys()


@pytest.mark.parametrize("name", TEXTS)
def test_the_texts_are_read_as_they_are(name: str) -> None:
    workload = read(TEXTS[name])
    assert workload.format == name
    check(workload)
    assert read(TEXTS[name], format=name) == workload


@pytest.mark.parametrize("name", TEXTS)
@given(
    edits=st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 12), st.sampled_from(TOKENS)),
        min_size=1,
        max_size=6,
    )
)
def test_a_damaged_text_is_read_or_refused(name: str, edits: list[tuple[int, int, str]]) -> None:
    text = mutated(TEXTS[name], edits)
    for options in (ReadOptions(), ALL):
        read_or_refuse(text, name, options)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    read_or_refuse(data)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "0", "5", "7.5", "-1", "nan", "x"]),
            st.sampled_from(["", "0", "1", "60", "-9", "inf"]),
            st.sampled_from(["0", "1", "8", "-2", "2.5"]),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_every_row_is_a_job_or_dropped(cells: list[tuple[str, str, str]]) -> None:
    lines = [f"j{number},{','.join(row)}" for number, row in enumerate(cells)]
    text = "\n".join(["id,submit,duration,gpus", "sure,0,1,1", *lines])
    workload = read(text)
    seen = [a.row for a in workload.arrivals] + [d.row for d in workload.dropped]
    assert sorted(seen) == list(range(2, len(lines) + 3))
