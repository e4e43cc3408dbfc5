"""Batch scripts for Slurm are rendered as they were."""

import subprocess

import pytest
from tests.golden.slurm_scripts import DIRECTORY, scripts


@pytest.mark.parametrize("name", scripts())
def test_a_script_is_rendered_as_it_was(name: str) -> None:
    assert scripts()[name] == (DIRECTORY / name).read_text(encoding="utf-8")


def test_no_script_is_left_over() -> None:
    assert {path.name for path in DIRECTORY.iterdir()} == set(scripts())


@pytest.mark.parametrize("name", scripts())
def test_a_shell_can_read_it(name: str) -> None:
    done = subprocess.run(["bash", "-n", str(DIRECTORY / name)], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
