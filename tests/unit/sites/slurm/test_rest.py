"""Bodies for slurmrestd, beside the fields that slurmrestd 22.05 says it takes."""

import json
from typing import Any

import pytest
from tests.unit.sites.slurm.samples import text

from gridloom.base.errors import InputError
from gridloom.sites.slurm.records import Gres
from gridloom.sites.slurm.rest import submit_body
from gridloom.sites.slurm.submission import Component, Memory, Signal, Submission, Switches

FIELDS: dict[str, str] = json.loads(text("rest-v0.0.38-properties.json"))
TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "boolean": bool,
    "array": list,
    "object": dict,
}
PART = Component(
    nodes=4,
    partition="gpu",
    constraint="ib",
    gres=(Gres(name="gpu", type="h100", count=8),),
    cpus_per_task=16,
    memory=Memory(mib=1024),
    licences=("a:2",),
    exclusive="node",
)
FULL = Submission(
    components=(PART,),
    name="x",
    comment="c",
    account="ml",
    qos="high",
    reservation="r",
    time_limit_min=60,
    dependency="afterok:1",
    array="0-1",
    signal=Signal(before_s=90),
    requeue=False,
    no_kill=True,
    directory="/d",
    stdout="/d/o",
    stderr="/d/e",
    open_mode="append",
    environment={"A": "1"},
)
NUMBER = {"set": True, "infinite": False}


@pytest.mark.parametrize("submission", [FULL, Submission()], ids=["full", "smallest"])
def test_old_servers_take_every_field(submission: Submission) -> None:
    body = submit_body(submission, "#!/bin/bash\n", "v0.0.38")
    assert body["script"] == "#!/bin/bash\n"
    for name, value in body["job"].items():
        assert name in FIELDS, name
        # A real server refuses the boolean that it says it takes, and forgets the list
        kind = "string" if name in ("no_kill", "nodes") else FIELDS[name]
        assert isinstance(value, TYPES[kind]), name
    assert "environment" in body["job"], "which is required"
    assert "PATH" in body["job"]["environment"]


def test_the_body_for_old_servers() -> None:
    assert submit_body(FULL, "s", "v0.0.37") == submit_body(FULL, "s", "v0.0.38")
    job = submit_body(FULL, "s", "v0.0.38")["job"]
    said: dict[str, Any] = {
        "nodes": "4",
        "tasks": 4,
        "tasks_per_node": 1,
        "time_limit": 60,
        "gres": "gpu:h100:8",
        "memory_per_node": 1024,
        "signal": "USR1@90",
        "exclusive": "exclusive",
        "open_mode": "append",
        "no_kill": "set",
        "requeue": False,
        "licenses": "a:2",
    }
    assert {key: job[key] for key in said} == said
    assert job["environment"]["A"] == "1"


def test_the_body_for_new_servers() -> None:
    part = Component(
        nodes=2,
        gres=PART.gres,
        nodelist=("n1", "n2"),
        memory=Memory(mib=512, per="cpu"),
        switches=Switches(count=1, wait_min=5),
        segment=2,
        exclusive="user",
    )
    asked = Submission(
        components=(part,),
        exclude=("n9",),
        time_limit_min=60,
        signal=Signal(before_s=90),
        no_kill=True,
        open_mode="append",
        environment={"A": "1", "PATH": "/bin"},
    )
    job = submit_body(asked, "s", "v0.0.41")["job"]
    assert job == {
        "current_working_directory": "/",
        "tasks": 2,
        "tasks_per_node": 1,
        "environment": ["A=1", "PATH=/bin"],
        "nodes": "2",
        "time_limit": NUMBER | {"number": 60},
        "tres_per_node": "gres/gpu:h100:8",
        "memory_per_cpu": NUMBER | {"number": 512},
        "shared": ["user"],
        "required_nodes": ["n1", "n2"],
        "excluded_nodes": ["n9"],
        "required_switches": NUMBER | {"number": 1},
        "wait_for_switch": 300,
        "segment_size": NUMBER | {"number": 2},
        "open_mode": ["APPEND"],
        "kill_on_node_fail": False,
        "kill_warning_signal": "USR1",
        "kill_warning_delay": NUMBER | {"number": 90},
        "kill_warning_flags": ["BATCH_JOB"],
    }


def test_memory_of_each_device_and_a_signal_to_the_steps() -> None:
    part = Component(memory=Memory(mib=512, per="gpu"), switches=Switches(count=2))
    asked = Submission(components=(part,), signal=Signal(to_batch=False))
    new = submit_body(asked, "s", "v0.0.40")["job"]
    assert new["memory_per_tres"] == "gres/gpu:512"
    assert "memory_per_gpu" not in new
    assert "wait_for_switch" not in new
    assert "kill_warning_flags" not in new
    plain = Submission(components=(Component(memory=Memory(mib=512, per="gpu")),))
    assert submit_body(plain, "s", "v0.0.38")["job"]["memory_per_gpu"] == 512


@pytest.mark.parametrize("api", ["v0.0.38", "v0.0.42"])
def test_a_heterogeneous_job_is_a_list(api: str) -> None:
    body = submit_body(Submission(components=(Component(nodes=2), Component())), "s", api)
    assert [job["tasks"] for job in body["jobs"]] == [2, 1]
    assert "job" not in body


def test_what_old_servers_cannot_be_asked_for() -> None:
    part = Component(nodelist=("n1",), switches=Switches(count=1), segment=2)
    with pytest.raises(InputError) as error:
        submit_body(Submission(exclude=("n2",), components=(part,)), "s", "v0.0.38")
    assert [problem.field for problem in error.value.problems] == [
        "exclude",
        "nodelist",
        "switches",
        "segment",
    ]
    assert (
        "exclude: slurmrestd's v0.0.38 cannot be asked for this; hand the job in with sbatch"
        in (str(error.value))
    )


@pytest.mark.parametrize("api", ["", "v1", "38", "v0.0.4"])
def test_what_is_no_version(api: str) -> None:
    with pytest.raises(InputError, match="is no version"):
        submit_body(Submission(), "s", api)
