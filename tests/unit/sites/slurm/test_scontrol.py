"""What scontrol prints, of real clusters, and what may be wrong with it."""

import math

import pytest
from tests.unit.sites.slurm.samples import raw, text

from gridloom.base.errors import SiteError
from gridloom.sites.slurm import parse_json, parse_scontrol
from gridloom.sites.slurm.records import ExitCode, Gres, Licence


def test_jobs_are_the_same_as_in_json() -> None:
    told = {job.job_id: job for job in parse_json.jobs(raw("squeue-22.05.json"))}
    read = parse_scontrol.jobs(text("scontrol-jobs-accounts-22.05.txt"))
    assert len(read) == len(told) == 10
    for job in read:
        other = told[job.job_id]
        for field in (
            *("array_job_id", "array_task_id", "array_tasks", "name", "comment", "user", "account"),
            *("qos", "partition", "reservation", "states", "reason", "dependency", "nodes"),
            *("node_count", "gres", "submitted_s", "started_s", "ended_s", "time_limit_s", "exit"),
            *("restarts", "batch_host", "priority", "work_directory"),
        ):
            assert getattr(job, field) == getattr(other, field), (job.job_id, field)


def test_details_tell_the_devices_of_each_node() -> None:
    (job,) = parse_scontrol.jobs(text("scontrol-job-lines-22.05.txt"))
    (other,) = (j for j in parse_json.jobs(raw("squeue-22.05.json")) if j.job_id == 5)
    assert job.gres_held == other.gres_held
    assert len(job.gres_held) == len(job.nodes) == 3
    assert job.derived_exit == ExitCode()


def test_jobs_with_names_of_several_words() -> None:
    jobs = {job.job_id: job for job in parse_scontrol.jobs(text("scontrol-jobs-22.05.txt"))}
    assert jobs[1].name == "one # two"
    assert jobs[1].comment == 'he said "hi" \\ back, x=y JobState=DONE'
    assert (jobs[1].states, jobs[1].exit) == (("FAILED",), ExitCode(code=137))
    assert (jobs[23].name, jobs[23].het_job_id, jobs[23].het_offset) == ("het", 23, 0)
    assert (jobs[24].het_job_id, jobs[24].het_offset) == (23, 1)
    assert [(j, jobs[j].reason) for j in (14, 15, 16, 17, 22)] == [
        (14, "JobArrayTaskLimit"),
        (15, "JobHeldUser"),
        (16, "BeginTime"),
        (17, "PartitionNodeLimit"),
        (22, "Dependency"),
    ]
    assert jobs[22].dependency == "afterany:13(unfulfilled)"
    assert jobs[13].comment == "a | b"


def test_nodes_are_the_same_as_in_json() -> None:
    assert parse_scontrol.nodes(text("scontrol-nodes-lines-22.05.txt")) == parse_json.nodes(
        raw("sinfo-22.05.json")
    )


def test_a_reason_of_several_words() -> None:
    node = parse_scontrol.nodes(text("scontrol-nodes-22.05.txt"))[3]
    assert node.states == ("MIXED", "DRAIN")
    assert (node.reason, node.reason_by) == ("bad fan: GPU 3, Xid 79", "root")
    assert node.reason_since_s == 1796061266


def test_nodes_in_a_cloud() -> None:
    nodes = parse_scontrol.nodes(text("pcluster-nodes.txt"))
    assert [node.states[0] for node in nodes] == ["MIXED", "IDLE", "IDLE", "DOWN"]
    assert nodes[3].states == ("DOWN", "CLOUD", "MAINTENANCE", "POWERED_DOWN", "RESERVED")
    assert (nodes[3].reason, nodes[3].reservation) == ("test", "root_6")


@pytest.mark.parametrize(
    ("line", "used"),
    [
        ("Gres=gpu:a:8 CfgTRES=cpu=1,gres/gpu=8 AllocTRES=cpu=1,gres/gpu=5", [("gpu", "", 5)]),
        ("CfgTRES=gres/gpu=8 AllocTRES=gres/gpu=5,gres/gpu:a=5", [("gpu", "a", 5)]),
        ("CfgTRES=gres/gpu=8 AllocTRES=", []),
        ("CfgTRES=cpu=8 AllocTRES=cpu=1", None),
        ("", None),
    ],
)
def test_devices_in_use_without_details(line: str, used: list[tuple[str, str, int]] | None) -> None:
    (node,) = parse_scontrol.nodes(f"NodeName=n1 {line}\n")
    found = None if used is None else tuple(Gres(name=n, type=t, count=c) for n, t, c in used)
    assert node.gres_used == found


def test_a_reason_without_who_and_when() -> None:
    (node,) = parse_scontrol.nodes("NodeName=n1 State=DOWN Reason=Not responding\n")
    assert (node.reason, node.reason_by, node.reason_since_s) == ("Not responding", "", None)


def test_partitions() -> None:
    low, high = parse_scontrol.partitions(text("scontrol-partitions-22.05.txt"))
    json_low, json_high = parse_json.partitions(raw("partitions-22.05.json"))
    assert low == json_low
    assert (high.name, high.preempt_mode) == ("high", ("OFF",))
    assert json_high.preempt_mode == ("DISABLED",)
    large = parse_scontrol.partitions(text("gcm-partitions.txt"))
    assert [len(partition.nodes) for partition in large] == [3140, 1469, 3140]
    assert [partition.max_time_s for partition in large] == [259200, 1209600, 259200]
    limits = "PartitionName=p MaxNodes=4 MaxTime=UNLIMITED AllowAccounts=a,b DenyAccounts=c QoS=q"
    (small,) = parse_scontrol.partitions(limits)
    assert (small.max_nodes, small.max_time_s, small.qos) == (4, math.inf, "q")
    assert (small.accounts, small.accounts_denied) == (("a", "b"), ("c",))


def test_reservations() -> None:
    (found,) = parse_scontrol.reservations(text("scontrol-reservations-22.05.txt"))
    assert (found.name, found.nodes, found.users) == ("maint1", ("siteh-n0", "siteh-n1"), ("root",))
    assert found.flags == ("MAINT", "IGNORE_JOBS", "SPEC_NODES")
    assert (found.start_s, found.end_s) == (1796064873, 1796068473)
    assert parse_scontrol.reservations("No reservations in the system\n") == ()


def test_licences() -> None:
    said = "LicenseName=a@flex Total=100 Used=20 Free=80 Reserved=5 Remote=yes LastConsumed=0\n"
    assert parse_scontrol.licences(said * 1 + said.replace("a@flex", "b").replace("yes", "no")) == (
        Licence(name="a@flex", total=100, used=20, free=80, reserved=5, is_remote=True),
        Licence(name="b", total=100, used=20, free=80, reserved=5),
    )
    assert parse_scontrol.licences("No licenses configured in Slurm.\n") == ()


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("slurm_load_jobs error: Invalid job id", "printed no record but 'slurm_load_jobs error"),
        ("JobId=4 JobName=x\n", "JobId=4: 'JobState' is missing"),
        ("JobId=x JobState=RUNNING\n", "JobId=x: 'x' is not a number"),
        ("JobId=4 JobState=RUNNING NodeList=n[1-\n", "JobId=4: 'n[1-' is not a host list"),
    ],
)
def test_what_cannot_be_read_is_told(said: str, message: str) -> None:
    with pytest.raises(SiteError) as error:
        parse_scontrol.jobs(said)
    assert message in str(error.value)


def test_nothing_is_no_record() -> None:
    assert parse_scontrol.jobs("") == ()
    assert parse_scontrol.nodes("\n") == ()


def test_a_long_word_without_end_is_read_in_time() -> None:
    (job,) = parse_scontrol.jobs(f"JobId=1 JobState=RUNNING Comment={'A' * 100_000}\n")
    assert len(job.comment) == 100_000
