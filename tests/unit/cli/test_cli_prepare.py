"""What is wrong with a job before it is handed in: told at once, with line and remedy."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Answer

from gridloom.cli.workdir import snapshot_of
from gridloom.model.inventory import Inventory

Call = Callable[..., Answer]
RESOURCES = "resources: {accelerators: 'cpu:1'}"
RECIPE = """name: j
recipe: gpt
model: {layers: 1, hidden: 32, heads: 2}
steps: 2
global_batch: 2
sequence_length: 16
resources: {accelerators: 'cpu:1'}
"""


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (f"name: j\nrun: sh missing.sh\n{RESOURCES}\n", 2, "there is no script missing.sh"),
        (f"name: j\nrun: sh x\nworkdir: nowhere\n{RESOURCES}\n", 3, "there is no directory"),
        (f"name: j\nrun: sleep 1\n{RESOURCES}\ngrid: none.yaml\n", 4, "there is no file"),
        ("name: j\nrun: sleep 1\nresources: {accelerators: 'cpu:9999'}\n", 3, "9999"),
        (f"{RECIPE}data: {{text: ['nothing-*.txt']}}\n", 8, "nothing is found at"),
        (f"{RECIPE}data: {{text: nothing.txt}}\n", 8, "nothing is found at"),
        (f"{RECIPE}checkpoint: {{directory: file/x}}\n", 8, "cannot be made"),
    ],
    ids=["script", "workdir", "grid", "too many", "pattern", "text", "checkpoint"],
)
def test_a_job_that_cannot_be_run_is_refused_with_its_line(
    call: Call, home: Path, tmp_path: Path, text: str, line: int, said: str
) -> None:
    (tmp_path / "file").write_text("a file")
    path = tmp_path / "job.yaml"
    path.write_text(text)
    answer = call("run", str(path), "--json")
    assert answer.code == 2
    (problem,) = answer.json()["problems"]
    assert (problem["file"], problem["line"]) == (str(path), line)
    assert said in problem["message"]
    assert problem["remedy"]
    assert not home.exists()


def test_several_problems_are_counted_and_each_is_a_line(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: j\nrun: sleep 1\nbogus: 1\nresources: {accelerators: 'cpu:0'}\n")
    answer = call("run", str(path))
    assert answer.code == 2
    first, *others = answer.err.splitlines()
    assert first == f"{len(others)} problems:"
    assert all(one.startswith(f"error: {path}:") for one in others)


@pytest.mark.parametrize("what", ["job", "grid"])
def test_a_file_that_cannot_be_read_is_named(call: Call, tmp_path: Path, what: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"name: j\nrun: sleep 1\n{RESOURCES}\n")
    words = [str(tmp_path / "no")] if what == "job" else [str(path), "--grid", str(tmp_path / "no")]
    answer = call("run", *words)
    assert answer.code == 2
    assert f"{tmp_path}/no: the {what} file cannot be read: No such file" in answer.err


def test_a_workdir_without_git_has_no_commit(tmp_path: Path) -> None:
    files = snapshot_of(tmp_path, Inventory(sites=()))
    environment = files["environment.json"]
    assert isinstance(environment, dict)
    assert environment["git"] == {"commit": None, "changed": False, "untracked": []}
    assert "msgspec" in environment["packages"]
