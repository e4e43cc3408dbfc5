"""Standard streams that are closed or full, paths that are no text, Ctrl-C: never a traceback."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Gridloom

from gridloom.base.system import SystemClock

GRIDLOOM = f"{sys.executable} -m gridloom.cli.main"


def shell(text: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-c", text], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("streams", "code"),
    [
        (">&-", 0),
        ("2>&-", 0),
        (">&- 2>&- <&-", 0),
        (">/dev/full", 1),
        (">/dev/full 2>/dev/full", 1),
    ],
)
@pytest.mark.parametrize(
    "words", ["version", pytest.param("ps -a --json", marks=pytest.mark.unmeasured)]
)
def test_streams_that_take_nothing(home: Path, words: str, streams: str, code: int) -> None:
    done = shell(f"{GRIDLOOM} {words} {streams}")
    told = "error: standard output cannot be written: No space left on device\n"
    assert done.returncode == code
    assert done.stderr == (told if streams == ">/dev/full" else "")


def test_a_job_is_run_to_its_end_though_nobody_hears_of_it(gridloom: Gridloom) -> None:
    done = shell(f"{GRIDLOOM} run -y {gridloom.job('exit 0')} <&- >&-")
    assert (done.returncode, done.stderr) == (0, "")
    assert gridloom.state(gridloom.job_id()) == "succeeded"


def test_a_job_that_was_handed_in_is_looked_after_though_nothing_can_be_said(
    gridloom: Gridloom,
) -> None:
    done = shell(f"{GRIDLOOM} run -y --json {gridloom.job('exit 0')} >/dev/full")
    assert done.returncode == 1
    assert done.stderr == "error: standard output cannot be written: No space left on device\n"
    gridloom.wait_for_state(gridloom.job_id(), "succeeded")


def test_nothing_is_handed_in_when_the_plan_cannot_be_shown(gridloom: Gridloom) -> None:
    done = shell(f"{GRIDLOOM} run -y {gridloom.job('exit 0')} >/dev/full")
    assert done.returncode == 1
    assert not (gridloom.home / "runs").exists()


def test_nobody_is_asked_through_a_closed_stream(gridloom: Gridloom) -> None:
    done = shell(f"{GRIDLOOM} run {gridloom.job('exit 0')} <&-")
    assert done.returncode == 2
    assert "add -y to go on without asking" in done.stderr
    assert not (gridloom.home / "runs").exists()


ASCII = ["LC_ALL=C", "PYTHONUTF8=0", "PYTHONCOERCECLOCALE=0"]


@pytest.mark.parametrize(
    ("name", "env"),
    [
        pytest.param(b"caf\xe9", [], id="latin-1"),
        pytest.param("caf\u00e9".encode(), ASCII, id="ascii", marks=pytest.mark.unmeasured),
    ],
)
@pytest.mark.parametrize("flags", ["", "--json"])
def test_a_path_that_is_no_text_is_refused_before_anything_is_written(
    gridloom: Gridloom, name: bytes, env: list[str], flags: str
) -> None:
    job = Path(gridloom.job("exit 0"))
    place = os.path.join(os.fsencode(job.parent), name)
    os.mkdir(place)
    os.rename(job, os.path.join(place, b"job.yaml"))
    words = ["env", *env, *GRIDLOOM.split(), "submit", "job.yaml", *flags.split()]
    done = subprocess.run(words, cwd=place, capture_output=True, check=False, timeout=60)
    assert done.returncode == 2
    said = json.loads(done.stdout)["message"] if flags else done.stderr.decode()
    assert "the path is not UTF-8 in this locale; rename it, or set LC_ALL=C.UTF-8" in said
    assert not (gridloom.home / "runs").exists()


@pytest.mark.unmeasured
@pytest.mark.parametrize(
    ("verb", "after_s"),
    [
        *(("ps", after_s) for after_s in (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)),
        *((verb, after_s) for verb in ("doctor", "version") for after_s in (0.05, 0.2)),
    ],
)
def test_ctrl_c_is_quiet_from_the_first_moment(home: Path, verb: str, after_s: float) -> None:
    program = "import sys; from gridloom.cli.main import main; print(flush=True); sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", program, verb],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "\n"
    SystemClock().sleep(after_s)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    if process.returncode == -signal.SIGINT:  # it came between the line above and our first one
        assert "gridloom" not in err
        return
    assert process.returncode in (0, 130)
    assert err in ("", "no jobs under way; --all lists more\n")
