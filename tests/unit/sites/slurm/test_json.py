"""Answers in JSON, real ones of 21.08 to 24.11, and what may be wrong with one."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.sites.slurm.samples import raw

from gridloom.base.errors import SiteError
from gridloom.sites.slurm import parse_json
from gridloom.sites.slurm.answer import SlurmError, answer, release, warnings
from gridloom.sites.slurm.records import ExitCode, Gres, Licence


def test_jobs_of_22_05() -> None:
    jobs = {job.job_id: job for job in parse_json.jobs(raw("squeue-22.05.json"))}
    assert sorted(jobs) == list(range(1, 11))
    done, failed, cancelled, running = jobs[1], jobs[2], jobs[3], jobs[5]
    assert (done.name, done.comment, done.states) == ("done", "hi", ("COMPLETED",))
    assert (failed.exit, failed.reason) == (ExitCode(code=3), "NonZeroExitCode")
    assert cancelled.exit == ExitCode(signal=15)
    assert running.nodes == ("siteb-n0", "siteb-n1", "siteb-n2")
    assert running.batch_host == "siteb-n0"
    assert (running.submitted_s, running.started_s, running.ended_s) == (
        1795959493,
        1795959493,
        1795963093,
    )
    assert (running.time_limit_s, running.priority, running.restarts) == (3600, 1000, 0)
    assert running.gres == (Gres(name="gpu", type="h100", count=4),)
    assert (
        running.gres_held == ((Gres(name="gpu", type="h100", count=4, indices=(0, 1, 2, 3)),),) * 3
    )
    assert (running.user, running.account, running.qos, running.partition) == (
        "root",
        "root",
        "normal",
        "low",
    )
    assert running.work_directory == "/data/run"
    pending = jobs[7]
    assert (pending.reason, pending.node_count, pending.nodes) == ("Resources", 4, ())
    assert pending.reason_text.startswith("Nodes required for job are DOWN")
    assert (pending.started_s, pending.priority) == (None, 1000)
    assert [(j.array_job_id, j.array_task_id, j.array_tasks) for j in (jobs[6], jobs[9])] == [
        (6, None, "2-3%2"),
        (6, 0, ""),
    ]
    assert all(job.array_job_id is None for job in (done, running))
    assert all(job.het_job_id is None and job.het_offset is None for job in jobs.values())


def test_jobs_of_24_11() -> None:
    jobs = parse_json.jobs(raw("scontrol-jobs-24.11.json"))
    assert [(job.job_id, job.states, job.restarts) for job in jobs] == [
        (1, ("RUNNING",), 1),
        (2, ("COMPLETED",), 0),
        (3, ("PENDING",), 0),
    ]
    assert jobs[0].gres == (Gres(name="gpu", type="a100", count=8),)
    assert [job.time_limit_s for job in jobs] == [1800, 3600, 3600]
    assert (jobs[2].reason, jobs[2].started_s) == ("Resources", 1795962907)
    assert (jobs[1].exit, jobs[1].derived_exit) == (ExitCode(), ExitCode())
    assert all(job.array_task_id is None for job in jobs)


def test_jobs_of_the_accounts() -> None:
    jobs = parse_json.jobs(raw("sacct-22.05.json"))
    assert [job.job_id for job in jobs] == [1, 2, 3, 4, 5, 7, 9, 10]
    assert (jobs[0].comment, jobs[0].submitted_s, jobs[0].ended_s) == ("hi", 1795959490, 1795959491)
    assert (jobs[0].time_limit_s, jobs[0].user, jobs[0].nodes) == (
        3600,
        "root",
        ("siteb-n0", "siteb-n1"),
    )
    assert [(job.array_job_id, job.array_task_id) for job in jobs[-2:]] == [(6, 0), (6, 1)]
    assert jobs[5].nodes == (), "none is assigned yet"


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("rivos-squeue-out.json", 2),
        ("telegraf-jobs.json", 3),
        ("slurmweb-24.05-slurm-job-failed.json", 1),
        ("slurmweb-24.05-slurm-job-gpus-multi-types.json", 1),
    ],
)
def test_jobs_of_other_clusters(name: str, count: int) -> None:
    jobs = parse_json.jobs(raw(name))
    assert len(jobs) == count
    assert all(job.job_id and job.states and job.submitted_s for job in jobs)


def test_a_job_that_failed_elsewhere() -> None:
    (job,) = parse_json.jobs(raw("slurmweb-24.05-slurm-job-failed.json"))
    assert (job.states, job.exit, job.reason) == (
        ("FAILED",),
        ExitCode(code=1),
        "NonZeroExitCode",
    )


def test_nodes_of_22_05_and_24_11() -> None:
    old = parse_json.nodes(raw("sinfo-22.05.json"))
    assert [node.name for node in old] == [f"siteb-n{n}" for n in range(4)]
    drained = old[3]
    assert (drained.states, drained.reason, drained.reason_by) == (
        ("IDLE", "DRAIN"),
        "bad fan",
        "root",
    )
    assert drained.reason_since_s == 1795959493
    assert (drained.cpus, drained.cpus_allocated, drained.memory_mib) == (32, 0, 65536)
    assert drained.gres == (Gres(name="gpu", type="h100", count=8),)
    assert drained.gres_used == (Gres(name="gpu", type="h100", count=0),)
    assert (drained.features, drained.partitions) == (("h100",), ("low", "high"))
    assert (drained.address, drained.hostname, drained.version) == ("127.0.0.1", "vm", "22.05.8")
    new = parse_json.nodes(raw("scontrol-nodes-24.11.json"))
    assert new[0].states == ("MIXED", "PLANNED")
    assert new[0].reason_since_s is None
    assert new[0].gres_used == (Gres(name="gpu", type="a100", count=8, indices=tuple(range(8))),)


def test_nodes_that_sinfo_tells_together_are_taken_apart() -> None:
    nodes = parse_json.nodes(raw("sinfo-24.11.json"))
    alone = parse_json.nodes(raw("scontrol-nodes-24.11.json"))
    assert [node.name for node in nodes] == [node.name for node in alone]
    for node, other in zip(nodes, alone, strict=True):
        assert (node.cpus, node.memory_mib, node.gres) == (other.cpus, other.memory_mib, other.gres)
        assert (node.states, node.partitions) == (other.states, other.partitions)


def test_nodes_of_other_clusters() -> None:
    assert len(parse_json.nodes(raw("rivos-sinfo-out.json"))) == 4
    (down,) = parse_json.nodes(raw("slurmweb-24.05-slurm-node-down.json"))
    assert (down.states, down.reason) == (("DOWN",), "CPU dead")


def test_partitions() -> None:
    low, high = parse_json.partitions(raw("partitions-22.05.json"))
    assert (low.is_default, high.is_default) == (True, False)
    assert (low.max_time_s, low.default_time_s, low.max_nodes) == (math.inf, 3600, math.inf)
    assert (low.grace_s, low.preempt_mode, high.priority_tier) == (10, ("REQUEUE",), 10)
    assert low.nodes == tuple(f"siteb-n{n}" for n in range(4))
    new = parse_json.partitions(raw("sinfo-24.11.json"))
    assert [(p.name, p.states, p.cpus, p.default_time_s, len(p.nodes)) for p in new] == [
        ("low", ("UP",), 128, 3600, 4),
        ("high", ("UP",), 128, 3600, 4),
    ]
    large = parse_json.partitions(raw("slurmweb-24.05-slurm-partitions.json"))
    assert len(large[0].nodes) == 512
    assert [partition.is_default for partition in large].count(True) <= 1


def test_reservations_and_licences() -> None:
    (found,) = parse_json.reservations(raw("slurmweb-24.05-slurm-reservations.json"))
    assert (found.name, found.partition, found.node_count) == ("training", "batch", 512)
    assert len(found.nodes) == 512
    assert (found.start_s, found.end_s) == (1748250553, 1748336953)
    assert "FLEX" in found.flags
    assert (found.accounts, found.licences) == (("optic",), ())
    assert parse_json.licences(raw("rivos-license-out.json")) == (
        Licence(name="AscentLintBase", total=420, used=213, free=205, reserved=357, is_remote=True),
    )


@pytest.mark.parametrize("name", ["unknown-job-22.05.json", "unknown-job-24.11.json"])
def test_slurms_own_errors(name: str) -> None:
    with pytest.raises(SlurmError) as error:
        parse_json.jobs(raw(name))
    assert error.value.codes == (2017,)
    assert str(error.value).startswith("Slurm error 2017, Invalid job id specified: Unable to ")
    assert "JobId=99999" in str(error.value)


def test_what_an_answer_says_besides() -> None:
    assert release(answer(raw("sinfo-24.11.json"))) == "24.11.5"
    assert release(answer(raw("squeue-22.05.json"))) == "22.05.8"
    assert release({}) == ""
    said = {"warnings": [{"description": "no such field", "source": "job_submit"}, {}], "jobs": []}
    assert warnings(said) == ("Slurm: no such field (job_submit)", "Slurm")
    assert warnings({}) == ()


def test_a_query_that_finds_nothing_is_no_error() -> None:
    said = {"jobs": [], "errors": [{"error_number": 9003, "error": "Nothing found with query"}]}
    assert parse_json.jobs(json.dumps(said)) == ()


def test_several_errors_are_all_told() -> None:
    said = {"errors": [{"error_number": 1, "error": "a"}, {"description": "b"}, "c"]}
    with pytest.raises(SlurmError) as error:
        answer(json.dumps(said))
    assert (str(error.value), error.value.codes) == ("Slurm error 1, a; Slurm: b", (1,))


JOB: dict[str, Any] = {"job_id": 4, "job_state": ["RUNNING"]}


@pytest.mark.parametrize(
    ("read", "said", "message"),
    [
        (parse_json.jobs, "squeue: error: x", "is not JSON"),
        (parse_json.jobs, b"\xff", "is not JSON"),
        (parse_json.jobs, "[1]", "not an object of JSON but list"),
        (parse_json.jobs, '{"nodes": []}', "has no list 'jobs', only nodes"),
        (parse_json.jobs, '{"jobs": [{"name": "x"}]}', "jobs: x: job_id is missing"),
        (parse_json.nodes, '{"nodes": [{"cpus": 1}]}', "nodes: a row: name is missing"),
        (parse_json.partitions, '{"sinfo": [{}]}', "sinfo: a row: name is missing"),
        (
            parse_json.jobs,
            json.dumps({"jobs": [JOB | {"nodes": "n[1-"}]}),
            "jobs: 4: 'n[1-' is not a host list",
        ),
        (parse_json.jobs, json.dumps({"jobs": [JOB | {"priority": "x"}]}), "'x' is not a number"),
        (parse_json.submitted, "{}", "names no job_id"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_what_cannot_be_read_is_told(
    read: Callable[[bytes | str], object], said: bytes | str, message: str
) -> None:
    with pytest.raises(SiteError) as error:
        read(said)
    assert message in str(error.value)


@pytest.mark.parametrize("said", ['{"job_id": 7}', '{"result": {"job_id": 7}, "errors": []}'])
def test_the_job_that_was_handed_in(said: str) -> None:
    assert parse_json.submitted(said) == 7


def test_parts_of_a_heterogeneous_job() -> None:
    (job,) = parse_json.jobs(json.dumps({"jobs": [JOB | {"het_job_id": 3, "het_job_offset": 1}]}))
    assert (job.het_job_id, job.het_offset) == (3, 1)


@pytest.mark.parametrize(("told", "when"), [({}, None), (0, 0.0), (1796071198, 1796071198.0)])
def test_when_a_job_was_preempted(told: Any, when: float | None) -> None:
    row = JOB if told == {} else JOB | {"preempt_time": told}
    (job,) = parse_json.jobs(json.dumps({"jobs": [row]}))
    assert job.preempted_s == when
