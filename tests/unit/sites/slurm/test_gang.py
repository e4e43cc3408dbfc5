"""One Slurm job for all tasks that start together at a site."""

from pathlib import Path
from typing import Any

from tests.unit.sites.slurm.orders import order, ref

from gridloom.model.inventory import SlurmAccess, SlurmContainer, SlurmRest
from gridloom.sites.slurm.gang import comment, gang, interpreter, submission, supervisor_argv
from gridloom.sites.slurm.script import render
from gridloom.wire.agent import gang_directory

RUNS = Path("/runs")


def script(*orders: Any, **access: Any) -> list[str]:
    asked = submission(orders, RUNS, SlurmAccess(**access), "plane")
    directory = gang_directory(RUNS, orders[0].task)
    return render(asked, supervisor_argv("/opt/python", directory)).splitlines()


def test_a_gang_is_one_job_with_one_task_a_node() -> None:
    lines = script(order(RUNS, "n1"), order(RUNS, "n2"))
    assert lines[:16] == [
        "#!/bin/bash",
        "#SBATCH --job-name=gridloom-train-abc",
        "#SBATCH --signal=B:USR1@30",
        "#SBATCH --chdir=/runs/train-abc/attempts/2/gang.hpc",
        "#SBATCH --output=/runs/train-abc/attempts/2/gang.hpc/slurm.log",
        "#SBATCH --open-mode=append",
        "#SBATCH --export=ALL",
        "#SBATCH --mail-type=NONE",
        "#SBATCH --no-requeue",
        "#SBATCH --comment=gridloom:plane:train-abc/2/5.1/hpc",
        "#SBATCH --nodes=2",
        "#SBATCH --ntasks=2",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --cpus-per-task=2",
        "",
        "command=(/opt/python -P -m gridloom.agent --gang /runs/train-abc/attempts/2/gang.hpc)",
    ]


def test_what_the_site_wants_is_asked_for() -> None:
    gpus: dict[str, Any] = {"devices": 8, "accelerator": "a100"}
    lines = script(
        order(RUNS, "n1", **gpus),
        order(RUNS, "n2", **gpus),
        account="physics",
        partition="gpu",
        qos="long",
        reservation="week",
        constraint="ib&a100",
        placement="pin",
        time_limit_s=5400.5,
        gres={"a100": "gpu:ampere"},
    )
    asked = {line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH")}
    assert asked >= {
        "account=physics",
        "partition=gpu",
        "qos=long",
        "reservation=week",
        "constraint=ib&a100",
        "nodelist=n[1-2]",
        "time=91",
        "gres=gpu:ampere:8",
    }
    assert not any(line.startswith("cpus-per-task") for line in asked)


def test_devices_have_slurms_usual_name_and_slurm_chooses_the_nodes() -> None:
    lines = script(order(RUNS, "n1", accelerator="h100"))
    assert "#SBATCH --gres=gpu:2" in lines
    assert not any("nodelist" in line for line in lines)


def test_nodes_with_other_numbers_of_devices_are_components_of_their_own() -> None:
    lines = script(order(RUNS, "n1", 4), order(RUNS, "n2", 4), order(RUNS, "n3", 1))
    at = lines.index("#SBATCH hetjob")
    assert "#SBATCH --nodes=2" in lines[:at]
    assert "#SBATCH --cpus-per-task=4" in lines[:at]
    assert "#SBATCH --nodes=1" in lines[at:]
    assert "#SBATCH --cpus-per-task=1" in lines[at:]


def test_a_node_finds_its_task_by_its_number() -> None:
    orders = [order(RUNS, "n1"), order(RUNS, "n2")]
    said = gang(orders, RUNS, SlurmAccess(network="10.0.0.0/8"))
    directories = ("/runs/train-abc/attempts/2/hpc.n1", "/runs/train-abc/attempts/2/hpc.n2")
    assert (said.directories, said.network) == (directories, "10.0.0.0/8")


def test_every_life_of_every_attempt_is_known_by_another_comment() -> None:
    refs = [ref(), ref(epoch=6), ref(life=2), ref(attempt=3), ref(site="b"), ref(job_id="j")]
    assert len({comment("p", one) for one in refs} | {comment("q", refs[0])}) == len(refs) + 1
    assert len({gang_directory(RUNS, one) for one in refs}) == len(refs) - 1, "epochs share one"


def test_through_slurmrestd_jobs_get_the_variables_that_sbatch_would_have_passed_on() -> None:
    environment = {"PATH": "/opt/slurm/bin:/usr/bin"}
    through = SlurmRest(url="https://h", user="me", token_file="/t")
    orders = (order(RUNS, "n1"),)
    by_rest = SlurmAccess(environment=environment, rest=through)
    by_commands = SlurmAccess(environment=environment)
    assert submission(orders, RUNS, by_rest, "p").environment == environment
    assert submission(orders, RUNS, by_commands, "p").environment == {}


def test_nodes_that_are_close_whole_and_large_enough_are_asked_for() -> None:
    more: dict[str, Any] = {"switches": 1, "switches_wait_s": 3000.0, "segment": 4}
    lines = script(order(RUNS, "n1"), exclusive=True, **more)
    asked = {line.removeprefix("#SBATCH --") for line in lines}
    assert asked >= {"switches=1@50", "segment=4", "exclusive", "mem=0"}
    asked = {line.removeprefix("#SBATCH --") for line in script(order(RUNS, "n1"), switches=2)}
    assert "switches=2" in asked
    assert not any(line.startswith(("mem", "exclusive", "segment")) for line in asked)
    lines = script(order(RUNS, "n1"), exclusive=True, memory_bytes=2**39)
    assert "#SBATCH --mem=524288M" in lines


def test_a_container_sees_the_run_directories_and_what_the_site_says() -> None:
    mounts = {"/data": "/scratch/data"}
    pyxis = SlurmContainer(engine="pyxis", image="nvcr.io#nvidia/pytorch:24.10-py3", mounts=mounts)
    (srun,) = (line for line in script(order(RUNS, "n1"), container=pyxis) if "srun " in line)
    assert "'--container-image=nvcr.io#nvidia/pytorch:24.10-py3'" in srun
    assert "--container-mounts=/runs:/runs,/scratch/data:/data" in srun
    apptainer = SlurmContainer(engine="apptainer", image="/images/a.sif", gpus="nvidia")
    lines = script(order(RUNS, "n1"), container=apptainer)
    assert any("apptainer exec --nv --bind=/runs:/runs /images/a.sif" in line for line in lines)
    assert interpreter(SlurmAccess(container=apptainer), "/here/python") == "python3"
    assert interpreter(SlurmAccess(), "/here/python") == "/here/python"
    assert interpreter(SlurmAccess(container=pyxis, python="/opt/p"), "/here/python") == "/opt/p"
