"""Whatever names a file of ours names the same file at the other end."""

from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.sites.slurm.orders import order

from gridloom.model.inventory import SshAccess
from gridloom.model.recipe import CheckpointPolicy, GptRecipe, GptShape, TextData, Training
from gridloom.model.spec import Batch
from gridloom.sites.remote.places import Places, moved_order, moved_recipe, places

SSH = SshAccess(host="login", directory="/scratch/me")
TO = Places(
    runs="/home me/state/runs",
    runs_there="/scratch/me/runs",
    work="/home me/project",
    work_there="/scratch/me/copies/project-1",
)


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("/home me/project", "/scratch/me/copies/project-1"),
        ("/home me/project/a b.py", "/scratch/me/copies/project-1/a b.py"),
        ("--data=/home me/project/d", "--data=/scratch/me/copies/project-1/d"),
        ("/bin:/home me/project/bin:/x", "/bin:/scratch/me/copies/project-1/bin:/x"),
        ("x='/home me/state/runs/j'", "x='/scratch/me/runs/j'"),
        ("python train.py", "python train.py"),
        ("/home me/projects", "/home me/projects"),
        ("/mnt/home me/project", "/mnt/home me/project"),
        ("/home me/state", "/home me/state"),
        ("", ""),
    ],
)
def test_paths_of_ours_are_moved_and_no_others(here: str, there: str) -> None:
    assert TO.there(here) == there


def test_the_inner_of_two_directories_goes_its_own_way() -> None:
    nested = replace(TO, work="/home me/state", work_there="/w")
    assert nested.there("/home me/state/runs/j") == "/scratch/me/runs/j"
    assert nested.there("/home me/state/train.py") == "/w/train.py"
    around = replace(TO, runs="/p/state/runs", work="/p/state/runs/work", work_there="/w")
    assert around.there("/p/state/runs/work/x") == "/w/x"


def test_the_root_is_no_directory_of_ours() -> None:
    assert replace(TO, work="/").there("/etc/passwd") == "/etc/passwd"
    assert replace(TO, work="/", runs="/").there("/home") == "/home"


@given(st.text(alphabet="/ab .=:", max_size=20))
def test_what_names_nothing_of_ours_stays(text: str) -> None:
    assert TO.there(text) == text


def test_a_copy_of_a_working_directory_has_a_place_of_its_own() -> None:
    def place(work: str, owner: str = "desk", **more: Any) -> str:
        return places(replace(SSH, **more), runs="/r", work=work, owner=owner).work_there

    found = [place("/a/my project"), place("/b/my project"), place("/a/my project", "other")]
    assert len({*found}) == 3
    assert all(PurePosixPath(one).parent == PurePosixPath("/scratch/me/work") for one in found)
    assert all(PurePosixPath(one).name.startswith("my-project-") for one in found)
    assert place("/").startswith("/scratch/me/work/root-")
    assert place("/a", workdir="/proj") == "/proj"


def test_what_is_there_already_is_not_copied() -> None:
    assert places(SSH, runs="/r", work="/w", owner="").is_copied
    assert not places(replace(SSH, workdir="/p"), runs="/r", work="/w", owner="").is_copied


def test_an_order_is_carried_out_there(tmp_path: Any) -> None:
    runs = tmp_path / "runs"
    to = replace(TO, runs=str(runs))
    batch = Batch(
        options=(("output", f"{TO.work}/out"), ("nodes", "2")), submitted_in=f"{TO.work}/sub"
    )
    here = order(
        runs,
        argv=("python", f"{TO.work}/train.py", f"--kept={runs}/j"),
        workdir=f"{TO.work}/sub",
        env={"DATA": f"{TO.work}/d", "N": "1"},
        batch=batch,
    )
    there = moved_order(here, to)
    assert there.argv == ("python", f"{TO.work_there}/train.py", "--kept=/scratch/me/runs/j")
    assert there.workdir == f"{TO.work_there}/sub"
    assert there.env == {"DATA": f"{TO.work_there}/d", "N": "1"}
    rank = there.ranks[1]
    assert rank.log_file == "/scratch/me/runs/train-abc/logs/rank-1.log"
    assert rank.rank.run_dir == "/scratch/me/runs/train-abc"
    assert rank.rank.report_file == "/scratch/me/runs/train-abc/rank-1.jsonl"
    assert there.batch is not None
    assert there.batch.options == (("output", f"{TO.work_there}/out"), ("nodes", "2"))
    assert there.batch.submitted_in == f"{TO.work_there}/sub"
    assert replace(there, argv=here.argv, workdir=here.workdir, env=here.env, ranks=here.ranks,
                   batch=here.batch) == here  # fmt: skip
    assert moved_order(replace(here, batch=None), to).batch is None


def test_a_recipe_names_its_files_there() -> None:
    recipe = GptRecipe(
        shape=GptShape(layers=1, hidden=8, heads=1, kv_heads=1, ffn=8),
        data=TextData(text=("python-stdlib", "text", f"{TO.work}/more", "/data/all")),
        training=Training(steps=1, global_batch=1, sequence_length=8, learning_rate=1e-3),
        checkpoint=CheckpointPolicy(directory=f"{TO.runs}/j/checkpoints", interval_steps=1),
    )
    moved = moved_recipe(recipe, TO)
    assert moved.data.text == ("python-stdlib", "text", f"{TO.work_there}/more", "/data/all")
    assert moved.checkpoint.directory == "/scratch/me/runs/j/checkpoints"
    assert moved.shape == recipe.shape
