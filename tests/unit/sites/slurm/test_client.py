"""What is made of how a command of Slurm ends."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gridloom.base.errors import SiteError
from gridloom.sites.slurm import client
from gridloom.sites.slurm.client import SlurmClient
from gridloom.sites.slurm.engine import AwayError


@pytest.fixture
def tool(tmp_path: Path) -> Callable[[str], str]:
    def make(body: str) -> str:
        path = tmp_path / "squeue"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return make


def test_a_command_reads_and_prints_in_the_sites_environment(
    tool: Callable[[str], str], tmp_path: Path
) -> None:
    conf = tmp_path / "b.conf"
    command = (tool('echo "$SLURM_CONF $TZ $1"; cat'), "a b")
    with pytest.raises(SiteError, match=r"SLURM_CONF is .*, and there is no such file"):
        SlurmClient().run(command, {"SLURM_CONF": str(conf)}, "script")
    conf.touch()
    said = SlurmClient().run(command, {"SLURM_CONF": str(conf)}, "script")
    assert said == f"{conf} UTC0 a b\nscript"


@pytest.mark.parametrize(
    ("stderr", "kind", "sentence"),
    [
        (
            "sbatch: error: Batch job submission failed: Invalid account",
            SiteError,
            "sbatch: error: Batch job submission failed: Invalid account",
        ),
        (
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
            AwayError,
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        ),
        (
            'sbatch: unrecognized option --frobnicate\nTry "sbatch --help" for more information',
            SiteError,
            "sbatch: unrecognized option --frobnicate",
        ),
        ("", SiteError, "exit status 3"),
    ],
)
def test_a_no_is_told_from_silence(
    tool: Callable[[str], str], stderr: str, kind: type[SiteError], sentence: str
) -> None:
    with pytest.raises(SiteError) as raised:
        SlurmClient().run((tool(f"echo '{stderr}' >&2; exit 3"),), {})
    assert (type(raised.value), str(raised.value)) == (kind, sentence)


def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(SiteError, match="there is no command squeue-of-nobody here"):
        SlurmClient().run(("squeue-of-nobody",), {})


def test_a_command_that_hangs_is_given_up(
    tool: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "TIMEOUT_S", 0.2)
    with pytest.raises(AwayError, match="has not answered for"):
        SlurmClient().run((tool("exec sleep 30"),), {})


def test_a_command_that_cannot_be_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="cannot be run: Argument list too long"):
        SlurmClient().run(("squeue", "x" * 3_000_000), {})
    broken = tmp_path / "squeue"
    broken.write_text("")
    with pytest.raises(SiteError):
        SlurmClient().run((str(broken),), {})
