"""Batch scripts for Slurm, as they are rendered.

`python -m tests.golden.slurm_scripts` writes them.
"""

from pathlib import Path

from gridloom.sites.slurm.records import Gres
from gridloom.sites.slurm.script import render
from gridloom.sites.slurm.submission import (
    Component,
    Container,
    Memory,
    Mount,
    Signal,
    Submission,
    Switches,
)

DIRECTORY = Path(__file__).parent / "slurm"
COMMAND = ("python3", "-P", "-m", "gridloom.agent", "/scratch/runs/a run/it's")
GPUS = (Gres(name="gpu", type="h100", count=8),)
MOUNTS = (
    Mount(source="/scratch", target="/scratch"),
    Mount(source="/opt/data", target="/data", is_read_only=True),
)

SUBMISSIONS = {
    "smallest": Submission(),
    "everything": Submission(
        name="train #1",
        comment='job 17, attempt 2 "retry" \\ again',
        account="ml",
        qos="high",
        reservation="training",
        exclude=("n007", "n009"),
        time_limit_min=2880,
        dependency="afterok:17",
        array="0-3%2",
        signal=Signal(name="USR2", before_s=120),
        requeue=False,
        no_kill=True,
        directory="/scratch/runs/a run",
        stdout="/scratch/runs/a run/%x-%j.log",
        stderr="/scratch/runs/a run/%x-%j.err",
        open_mode="append",
        export="NIL",
        environment={"GRIDLOOM_SITE": "ours", "NOTE": "two\nlines and $HOME"},
        components=(
            Component(
                nodes=4,
                partition="gpu",
                constraint="ib&hdr",
                nodelist=("n001", "n002"),
                gres=(*GPUS, Gres(name="nic", count=2)),
                cpus_per_task=64,
                memory=Memory(mib=0),
                switches=Switches(count=1, wait_min=30),
                segment=2,
                licences=("ansys:2", "fluent"),
                exclusive="node",
            ),
        ),
    ),
    "two-kinds": Submission(
        name="both",
        account="ml",
        time_limit_min=60,
        signal=Signal(),
        requeue=True,
        components=(
            Component(nodes=2, partition="h100", gres=GPUS, cpus_per_task=32),
            Component(
                nodes=4,
                partition="a100",
                gres=(Gres(name="gpu", type="a100", count=4),),
                cpus_per_task=16,
                memory=Memory(mib=4096, per="cpu"),
                exclusive="user",
            ),
        ),
    ),
    "pyxis": Submission(
        components=(Component(nodes=2, gres=GPUS),),
        container=Container(
            engine="pyxis",
            image="nvcr.io#nvidia/pytorch:24.10-py3",
            mounts=MOUNTS,
            directory="/scratch",
        ),
    ),
    "apptainer": Submission(
        components=(Component(nodes=2, gres=GPUS, memory=Memory(mib=8192, per="gpu")),),
        container=Container(
            engine="apptainer",
            image="/images/torch 2.sif",
            mounts=MOUNTS,
            directory="/scratch",
            gpus="nvidia",
        ),
    ),
}


def scripts() -> dict[str, str]:
    """Return each script by the name of its file."""
    return {f"{name}.sh": render(asked, COMMAND) for name, asked in SUBMISSIONS.items()}


if __name__ == "__main__":
    DIRECTORY.mkdir(exist_ok=True)
    for name, script in scripts().items():
        (DIRECTORY / name).write_text(script, encoding="utf-8")
