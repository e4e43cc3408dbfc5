"""Options of users' batch scripts as fields for slurmrestd; sbatch beside it asked for the same."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.sites.slurm.orders import order
from tests.unit.sites.slurm.samples import text

from gridloom.base.errors import InputError
from gridloom.model.inventory import SlurmAccess, SlurmRest
from gridloom.model.spec import Batch
from gridloom.sites.slurm.batch import rest_submission
from gridloom.sites.slurm.hand_in import handed_in
from gridloom.sites.slurm.handed_on import handed_on
from gridloom.sites.slurm.options import KNOWN
from gridloom.sites.slurm.rest import submit_body
from gridloom.sites.slurm.sbatch_file import parse

ACCESS = SlurmAccess(
    environment={"PYTHONPATH": "/gl"},
    rest=SlurmRest(url="https://login:6820", user="ann", token_file="/t"),
)
FIELDS: dict[str, dict[str, str]] = {
    api: json.loads(text(f"rest-{api}-properties.json")) for api in ("v0.0.38", "v0.0.42")
}
KINDS: dict[str, type] = {
    "string": str,
    "integer": int,
    "boolean": bool,
    "array": list,
    "object": dict,
}
AS_IT_IS_TAKEN = {
    "nodes": str,
    "no_kill": str,
    "priority": str,
    "wait_all_nodes": int,
    "begin_time": str,
}
"""What slurmrestd 22.05 takes as something else than it says."""


def job(options: str, api: str) -> dict[str, Any]:
    """Return the body of the job that a script with these options becomes."""
    read = parse(f"#!/bin/bash\n#SBATCH {options}\n")
    said = handed_on(read, "train.sbatch").options
    lines = [f"#SBATCH --{name}={shlex.quote(x)}" if x else f"#SBATCH --{name}" for name, x in said]
    script = "\n".join(["#!/bin/bash", *lines, "#SBATCH --comment=ours", ""])
    body = submit_body(rest_submission(script, Batch(options=said), ACCESS), script, api)
    found = body["job"]
    assert isinstance(found, dict)
    assert body["script"] == script
    return found


ALL = (
    "-N 2 -n 4 --ntasks-per-node=2 -c 2 --gres=gpu:a100:2 --gpus=4 --gpus-per-task=a100:1"
    " --gpus-per-socket=1 --cpus-per-gpu=1 --mem-per-gpu=1G --sockets-per-node=1 -m block --nice=5"
    " --priority=7 --use-min-nodes --spread-job -s --hint=nomultithread --wait-all-nodes=1"
    " --threads-per-core=1 --ntasks-per-core=1 --ntasks-per-socket=2 --gpu-bind=closest"
    " --gpu-freq=low --kill-on-invalid-dep=no --wckey=w -S 1 --thread-spec=1 --prefer=ib"
    " --cpu-freq=low --gres-flags=enforce-binding --acctg-freq=30 --bb=x --cluster-constraint=y"
    " --mail-type=ALL,TIME_LIMIT_90 --mail-user=a@b --mcs-label=m --mincpus=2 --time-min=90"
    " -t 2:0:0 -H -k --mem=1G --delay-boot=3 -A acc -q q -C ib -L a:1 --open-mode=append -o o -e e"
    " -a 5 --reservation=r -d singleton --no-requeue"
)


@pytest.mark.parametrize(
    ("api", "more"),
    [
        ("v0.0.38", "--cores-per-socket=2 --mem-bind=local --begin=16:00 --deadline=2028-01-01"),
        (
            "v0.0.42",
            "--contiguous -O --network=n --reboot --tmp=1G --switches=1@10 -w n1 -x n2"
            " --signal=B:USR1@60",
        ),
    ],
)
def test_servers_know_every_field(api: str, more: str) -> None:
    said = job(f"{ALL} {more}", api)
    for name, value in said.items():
        kind = KINDS[FIELDS[api][name]]
        if api == "v0.0.38":
            kind = AS_IT_IS_TAKEN.get(name, kind)
        assert isinstance(value, kind), name
    assert said["comment"] == "ours"


PLAIN = {
    "-N 2": {"nodes": "2", "tasks": 2},
    "-N 1": {"nodes": "1"},
    "-N 2-4 --ntasks-per-node=3": {"nodes": "2", "tasks": 6, "tasks_per_node": 3},
    "-n 3 -c 2": {"tasks": 3, "cpus_per_task": 2},
    "--gpus=10": {"gpus": "10"},
    "--gpus-per-node=a100:2": {"gpus_per_node": "a100:2"},
    "--gres=gpu:2,tmpdisk:1": {"gres": "gpu:2,tmpdisk:1"},
    "--nice": {"nice": 100},
    "-s": {"oversubscribe": True},
    "--hint=compute_bound": {"cpu_binding_hint": "compute_bound"},
    "--hint=nomultithread": {"cpu_binding_hint": "nomultithread", "threads_per_core": 1},
    "--kill-on-invalid-dep=yes": {"kill_on_invalid_dependency": True},
    "--time-min=90:30": {"time_minimum": 91},
    "--signal=USR1@60": {"signal": "USR1@60"},
    "--mail-type=END,FAIL": {"mail_type": "END,FAIL"},
}
NUMBER = {"set": True, "infinite": False}
TYPED = {
    "-N 2": {"nodes": "2", "tasks": 2},
    "--gpus=a100:10": {"tres_per_job": "gres/gpu:a100:10"},
    "--gpus-per-node=2 --gres=tmpdisk:1": {"tres_per_node": "gres/tmpdisk:1,gres/gpu:2"},
    "-c 2 --gpus-per-task=a100:1": {
        "cpus_per_task": 2,
        "tres_per_task": "cpu=2,gres/gpu:a100=1",
        "tres_bind": "gres/gpu:per_task:1",
    },
    "--gpus-per-task=2 --gpu-bind=closest": {
        "tres_per_task": "gres/gpu=2",
        "tres_bind": "gres/gpu:closest",
    },
    "-s": {"shared": ["oversubscribe"]},
    "--exclusive": {"shared": ["none"]},
    "--exclusive=user": {"shared": ["user"]},
    "--hint=nomultithread": {"threads_per_core": 1},
    "--hint=compute_bound": {},
    "--spread-job --use-min-nodes --kill-on-invalid-dep=no --gres-flags=disable-binding": {
        "flags": [
            "SPREAD_JOB", "PREFER_MINIMUM_NODE_COUNT", "NO_KILL_INVALID_DEPENDENCY",
            "GRES_BINDING_DISABLED",
        ]
    },
    "--time-min=2": {"time_minimum": NUMBER | {"number": 2}},
    "--priority=7": {"priority": NUMBER | {"number": 7}},
    "--tmp=1G": {"temporary_disk_per_node": 1024},
    "--delay-boot=3": {"delay_boot": 180},
    "--mail-type=TIME_LIMIT_90,TIME_LIMIT,END": {"mail_type": ["TIME=90%", "TIME=100%", "END"]},
    "--mail-type=NONE": {},
    "--signal=B:USR1@60": {
        "kill_warning_signal": "USR1",
        "kill_warning_delay": NUMBER | {"number": 60},
        "kill_warning_flags": ["BATCH_JOB"],
    },
}  # fmt: skip
ALWAYS = {"name", "comment", "environment", "current_working_directory"}


@pytest.mark.parametrize(
    ("api", "options", "fields"),
    [
        *(("v0.0.38", options, fields) for options, fields in PLAIN.items()),
        *(("v0.0.42", options, fields) for options, fields in TYPED.items()),
        ("v0.0.39", "--exclusive", {"exclusive": ["true"]}),
        ("v0.0.39", "--exclusive=user", {"exclusive": ["user"]}),
        ("v0.0.39", "-s", {"oversubscribe": True}),
        ("v0.0.40", "-c 2 --gpus-per-task=a100:1", {
            "cpus_per_task": 2, "tres_per_task": "gres/gpu:a100:1",
        }),
    ],
)  # fmt: skip
def test_options_as_fields(api: str, options: str, fields: dict[str, Any]) -> None:
    said = job(options, api)
    assert {name: value for name, value in said.items() if name not in ALWAYS} == fields


def variables(options: str, api: str = "v0.0.38") -> dict[str, str]:
    said = job(options, api)["environment"]
    pairs = said if isinstance(said, dict) else dict(one.split("=", 1) for one in said)
    assert pairs.pop("PATH")
    assert pairs.pop("PYTHONPATH") == "/gl"
    return pairs


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("-N 2", {}),
        ("-N 2 --ntasks-per-node=2", {"NTASKS_PER_NODE": "2", "NTASKS": "4", "NPROCS": "4"}),
        ("-n 3 -c 2", {"NTASKS": "3", "NPROCS": "3", "CPUS_PER_TASK": "2"}),
        ("--gpus-per-task=a100:1", {"GPUS_PER_TASK": "a100:1"}),
        ("--gpus-per-node=2 --mem-per-gpu=1G", {"GPUS_PER_NODE": "2", "MEM_PER_GPU": "1024"}),
        ("--hint=nomultithread", {"HINT": "nomultithread", "THREADS_PER_CORE": "1"}),
        ("--hint=compute_bound", {"HINT": "compute_bound"}),
        ("-m cyclic --open-mode=append", {"DISTRIBUTION": "cyclic", "OPEN_MODE": "append"}),
    ],
)
def test_a_script_is_told_what_sbatch_would_tell_it(options: str, found: dict[str, str]) -> None:
    assert variables(options) == {f"SLURM_{name}": value for name, value in found.items()}


def test_newer_releases_tell_of_a_task_otherwise() -> None:
    assert variables("-c 2 --gpus-per-task=a100:1 -N 2 -O", "v0.0.42") == {
        "SLURM_CPUS_PER_TASK": "2",
        "SLURM_TRES_PER_TASK": "cpu=2,gres/gpu:a100=1",
        "SLURM_TRES_BIND": "gres/gpu:per_task:1",
        "SLURM_OVERCOMMIT": "1",
        "SLURM_NTASKS": "2",
        "SLURM_NPROCS": "2",
    }


def test_variables_of_the_script_itself() -> None:
    assert variables("--export=ALL,A=1,B=x=y") == {"A": "1", "B": "x=y"}


@pytest.mark.parametrize(
    ("api", "options", "fields"),
    [
        ("v0.0.38", "--signal=B:USR1@9 -O --reboot", ["--signal", "--overcommit", "--reboot"]),
        ("v0.0.38", "-w n1", ["nodelist"]),
        ("v0.0.38", "--batch=ib", ["--batch"]),
        ("v0.0.42", "--begin=now --ours=1", ["--begin", "--ours"]),
        ("v0.0.42", "--tmp=much --gres-flags=x", ["--tmp", "--gres-flags"]),
        ("v0.0.38", "--nice=low --time-min=soon", ["--nice", "--time-min"]),
        ("v0.0.42", "--time-min=UNLIMITED", ["--time-min"]),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_for_is_told(api: str, options: str, fields: list[str]) -> None:
    with pytest.raises(InputError) as error:
        job(options, api)
    assert [problem.field for problem in error.value.problems] == fields


@pytest.mark.parametrize("api", FIELDS)
def test_every_option_of_sbatch_is_said_or_refused(api: str) -> None:
    """None is passed over without a word."""
    for name, takes in KNOWN.items():
        value = {"nothing": "", "perhaps": ""}.get(takes, "=1")
        try:
            said = job(f"--{name}{value}", api)
        except InputError:
            continue
        silent = {"export", "export-file", "hint", "mail-type", "exclusive", "no-kill", "parsable"}
        silent |= {"chdir", "workdir", "clusters", "cluster", "comment", "wait", "quiet", "verbose"}
        silent |= {"array", "requeue", "no-requeue", "dependency", "job-name"}
        more = {*said} - ALWAYS
        assert more or name in silent, name


def test_ours_gives_way_where_it_cannot_be_said_and_theirs_does_not() -> None:
    batch = Batch(options=(("nodes", "1"),))
    orders = [replace(order(Path("/runs")), batch=batch)]
    handed = handed_in(orders, Path("/runs"), ACCESS, "/py")
    assert "--signal=B:USR1@30" in handed.script, "of ours"
    assert 'HOME="${HOME:-$home}"' in handed.script
    assert handed.asked.comment.startswith("gridloom:")
    assert "signal" not in submit_body(handed.asked, handed.script, "v0.0.38")["job"]
    typed = submit_body(handed.asked, handed.script, "v0.0.42")["job"]
    assert (typed["kill_warning_signal"], typed["kill_warning_flags"]) == ("USR1", ["BATCH_JOB"])
    theirs = Batch(options=(("signal", "B:USR1@30"),))
    handed = handed_in([replace(orders[0], batch=theirs)], Path("/runs"), ACCESS, "/py")
    with pytest.raises(InputError, match=r"--signal: slurmrestd's v0\.0\.38 cannot"):
        submit_body(handed.asked, handed.script, "v0.0.38")
