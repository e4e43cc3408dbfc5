"""The batch script that Slurm is handed in place of a user's own."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.sites.slurm.orders import order

from gridloom.base.errors import InputError
from gridloom.model.inventory import SlurmAccess
from gridloom.model.spec import Batch
from gridloom.sites.slurm.batch import batch_order, render_batch

RUNS = Path("/runs")
SAID = (("job-name", "my job"), ("partition", "gpu"), ("gpus-per-node", "8"))


def rendered(batch: Batch, access: SlurmAccess, **more: Any) -> str:
    orders = [order(RUNS, node, batch=batch, **more) for node in ("n1", "n2")]
    return render_batch(orders, RUNS, access, "plane", "/py")


def test_it_asks_for_what_the_users_asks_for_and_starts_the_supervisor_in_its_place() -> None:
    access = SlurmAccess(account="physics", partition="other", time_limit_s=90.0)
    assert (
        rendered(Batch(options=SAID, submitted_in="/home/a b"), access)
        == """\
#!/bin/bash
#SBATCH --job-name="my job"
#SBATCH --partition=gpu
#SBATCH --gpus-per-node=8
#SBATCH --account=physics
#SBATCH --time=2
#SBATCH --signal=B:USR1@30
#SBATCH --comment=gridloom:plane:train-abc/2/5.1/hpc
#SBATCH --chdir=/

output=$(readlink /proc/$$/fd/1)
case "$output" in /*) ln -sfn "$output" /runs/train-abc/logs/rank-0.log ;; esac
export SLURM_SUBMIT_DIR='/home/a b'
exec /py -P -m gridloom.agent --gang /runs/train-abc/attempts/2/gang.hpc \
>>/runs/train-abc/attempts/2/gang.hpc/slurm.log 2>&1
"""
    )


def test_pinned_nodes_a_number_in_an_array_a_signal_and_errors_of_its_own() -> None:
    options = (*SAID, ("signal", "B:USR2@9"), ("error", "err.txt"))
    script = rendered(
        Batch(options=options, submitted_in="/", warning="USR2"),
        SlurmAccess(placement="pin"),
        env={"GRIDLOOM_ARRAY_INDEX": "7"},
    )
    lines = script.splitlines()
    assert [line for line in lines if "--signal" in line] == ["#SBATCH --signal=B:USR2@9"]
    assert {"#SBATCH --nodelist=n[1-2]", "#SBATCH --array=7", "#SBATCH --error=err.txt"} <= {*lines}
    assert "export GRIDLOOM_ERRORS=$(readlink /proc/$$/fd/2)" in lines
    named = rendered(Batch(options=(*SAID, ("nodelist", "n9"))), SlurmAccess(placement="pin"))
    assert named.count("nodelist") == 1, "the user's own"


def test_a_script_that_was_started_before_is_told_so() -> None:
    (one,) = [order(RUNS, batch=Batch(options=SAID))]
    (first, *others) = one.ranks
    again = replace(first, rank=replace(first.rank, restart_count=2))
    script = render_batch(
        [replace(one, ranks=(again, *others))], RUNS, SlurmAccess(), "plane", "/py"
    )
    assert "export SLURM_RESTART_COUNT=2\n" in script


def test_its_errors_go_where_it_says_only_if_it_says_so() -> None:
    plain = order(RUNS, batch=Batch(options=SAID))
    assert batch_order(plain) is plain
    apart = batch_order(order(RUNS, batch=Batch(options=(("error", "e"),))))
    assert apart.argv == ("/bin/bash", "-c", 'exec "$@" 2>>"$GRIDLOOM_ERRORS"', "bash", "train")


def test_what_no_line_can_say_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be asked for"):
        rendered(Batch(options=(("job-name", "a\nb"),)), SlurmAccess())
