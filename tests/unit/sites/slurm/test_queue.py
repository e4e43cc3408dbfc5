"""What squeue, sacct and sinfo print in our columns, on a real cluster."""

import pytest
from tests.unit.sites.slurm.samples import text

from gridloom.base.errors import SiteError
from gridloom.sites.slurm import parse_queue, parse_scontrol
from gridloom.sites.slurm.parse_queue import BEFORE, BETWEEN
from gridloom.sites.slurm.records import ExitCode, Gres


def test_squeue() -> None:
    jobs = {job.job_id: job for job in parse_queue.squeue(text("squeue-22.05.txt"))}
    assert len(jobs) == 26
    held, array, task = jobs[15], jobs[14], jobs[18]
    assert (held.states, held.reason, held.priority) == (("PENDING",), "JobHeldUser", 0)
    assert (array.array_job_id, array.array_task_id, array.array_tasks) == (14, None, "2-3%2")
    assert (task.array_job_id, task.array_task_id, task.array_tasks) == (14, 0, "")
    assert [(jobs[n].het_job_id, jobs[n].het_offset) for n in (23, 24)] == [(23, 0), (23, 1)]
    assert all(jobs[n].array_job_id is None for n in (23, 24, 13))
    assert (jobs[20].name, jobs[20].comment) == ("two\nlines", "x\ny=z JobState=FAILED")
    assert (jobs[20].states, jobs[20].gres) == (
        ("PENDING",),
        (Gres(name="gpu", type="a100", count=2),),
    )
    assert (jobs[13].nodes, jobs[13].batch_host) == (
        tuple(f"siteh-n{n}" for n in range(4)),
        "siteh-n0",
    )
    assert (jobs[13].comment, jobs[11].comment, jobs[15].batch_host) == ("a | b", "", "")
    assert jobs[22].dependency == "afterany:13(unfulfilled)"


def test_squeue_and_scontrol_say_the_same() -> None:
    told = {job.job_id: job for job in parse_scontrol.jobs(text("scontrol-jobs-22.05.txt"))}
    read = parse_queue.squeue(text("squeue-22.05.txt"))
    assert {job.job_id for job in read} == set(told)
    for job in read:
        other = told[job.job_id]
        for field in (
            *("array_job_id", "array_task_id", "array_tasks", "het_job_id", "het_offset", "user"),
            *("account", "qos", "partition", "reservation", "states", "reason", "dependency"),
            *("nodes", "node_count", "gres", "submitted_s", "started_s", "ended_s"),
            *("time_limit_s", "batch_host", "priority", "work_directory"),
        ):
            assert getattr(job, field) == getattr(other, field), (job.job_id, field)


def test_expected_starts() -> None:
    jobs = parse_queue.squeue(text("squeue-start-22.05.txt"))
    starts = {job.job_id: job.started_s for job in jobs}
    assert starts[20] == 1796063064
    assert starts[17] is None, "one that never fits has none"


def test_preemptions() -> None:
    said = "7                   2026-11-29T13:38:10           \n8                   N/A\n"
    assert parse_queue.preemptions(said) == {7: 1795959490.0, 8: 0.0}
    for nonsense in ("7\n", "x N/A\n", "7 soon\n"):
        with pytest.raises(SiteError, match="squeue printed no id and time but"):
            parse_queue.preemptions(nonsense)


def test_sacct() -> None:
    jobs = {job.job_id: job for job in parse_queue.sacct(text("sacct-22.05.txt"))}
    assert sorted(jobs) == [1, 2, 3, 4, 5, 7, 9, 10]
    assert jobs[2].exit == ExitCode(code=3), "which the JSON of that release does not tell"
    assert (jobs[3].states, jobs[4].ended_s) == (("CANCELLED",), None)
    assert (jobs[7].nodes, jobs[7].started_s) == ((), None)
    assert [(jobs[n].array_job_id, jobs[n].array_task_id) for n in (9, 10, 1)] == [
        (6, 0),
        (6, 1),
        (None, None),
    ]
    assert (jobs[1].time_limit_s, jobs[1].comment, jobs[1].node_count) == (3600, "hi", 2)


def sacct_line(**columns: str) -> str:
    names = parse_queue.SACCT_FORMAT.split(",")
    told = {"JobIDRaw": "5", "JobID": "5", "State": "RUNNING", "JobName": "x"} | columns
    return BETWEEN.join(told.get(name, "") for name in names) + "\n"


def test_steps_are_left_out_and_text_may_hold_ends_of_lines() -> None:
    said = (
        sacct_line(JobName="a\nb", Comment=f"c{BETWEEN}d\n7 e", TimelimitRaw="UNLIMITED")
        + sacct_line(JobIDRaw="5.batch", JobID="5.batch")
        + sacct_line(JobIDRaw="5.0", JobID="5.0")
        + sacct_line(JobIDRaw="8", JobID="7+1")
        + sacct_line(JobIDRaw="9", JobID="9_[2-5%2]", TimelimitRaw="Partition_Limit")
    )
    whole, part, array = parse_queue.sacct(said)
    assert (whole.name, whole.comment) == ("a\nb", f"c{BETWEEN}d\n7 e")
    assert (part.job_id, part.het_job_id, part.het_offset) == (8, 7, 1)
    assert (array.array_job_id, array.array_task_id, array.array_tasks) == (9, None, "2-5%2")
    assert array.time_limit_s is None


def test_sinfo() -> None:
    nodes = parse_queue.sinfo(text("sinfo-22.05.txt"))
    assert [(node.name, node.states, node.partitions) for node in nodes] == [
        ("siteh-n0", ("MIXED",), ("low", "high")),
        ("siteh-n1", ("MIXED",), ("low", "high")),
        ("siteh-n2", ("MIXED",), ("low", "high")),
        ("siteh-n3", ("DRAINING",), ("low", "high")),
    ]
    assert (nodes[3].reason, nodes[3].reason_by) == ("bad fan: GPU 3, Xid 79", "root")
    assert (nodes[0].reason, nodes[0].reason_by, nodes[0].reason_since_s) == ("", "", None)
    assert (nodes[0].cpus, nodes[0].cpus_allocated, nodes[0].memory_mib) == (32, 3, 65536)
    assert nodes[0].gres == (Gres(name="gpu", type="a100", count=8),)


def test_nothing_is_no_job() -> None:
    assert parse_queue.squeue("") == parse_queue.sacct("\n") == ()


def test_what_cannot_be_read_is_told() -> None:
    with pytest.raises(SiteError, match="squeue printed 1 columns where 24 were asked for: 'a"):
        parse_queue.squeue(f"{BEFORE}a\n")
    with pytest.raises(SiteError, match="sacct: 5: 'x' is not an exit code"):
        parse_queue.sacct(sacct_line(ExitCode="x"))
