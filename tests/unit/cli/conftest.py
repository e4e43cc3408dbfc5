"""The command line over a state directory of the test's own, in this process and in others."""

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gridloom.base.system import SystemClock
from gridloom.cli.main import main
from gridloom.control.leader import Leadership
from gridloom.control.restore import restore
from gridloom.store.journal import SqlJournal

PATIENCE_S = 45.0
"""Deadline of everything that is waited for: a busy machine is slow, a hang is for ever."""

ENDLESS = "echo started\ntrap 'exit 0' TERM\nwhile :; do sleep 0.05; done"
"""Runs until it is asked to stop."""

ENDS_AT_SECOND = f'[ "$GRIDLOOM_RESTART_COUNT" -ge 1 ] && exit 0\n{ENDLESS}'


class Answer:
    """What one call of the command line came to."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def json(self) -> Any:
        (line,) = self.lines()
        return line

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


COMMAND_LINE = ("-m", "gridloom.cli.main")
_LOOKS = frozenset({"doctor", "node", "ps", "status", "why"})


def here(*words: str) -> Answer:
    """Run a command in this process, which spares the second that a process takes to start."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    return Answer(code, out.getvalue(), err.getvalue())


class Gridloom:
    """The command line in processes of its own, over one state directory."""

    def __init__(self, home: Path, files: Path) -> None:
        self.home = home
        self.files = files
        self._clock = SystemClock()
        self._started: list[subprocess.Popen[str]] = []

    def job(self, script: str, name: str = "job", **fields: str) -> str:
        """Write a job file whose rank runs ``script`` under sh; return its path."""
        self.files.mkdir(parents=True, exist_ok=True)
        (self.files / f"{name}.sh").write_text(script + "\n")
        lines = [
            f"name: {name}",
            f"run: sh {name}.sh",
            "resources: {accelerators: 'cpu:1'}",
            *(f"{field}: {value}" for field, value in fields.items()),
        ]
        path = self.files / f"{name}.yaml"
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    def start(self, *words: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "gridloom.cli.main", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def end(self, process: "subprocess.Popen[str]") -> Answer:
        out, err = process.communicate(timeout=PATIENCE_S)
        return Answer(process.returncode, out, err)

    def call(self, *words: str) -> Answer:
        """Run a command to its end; one that only looks, or hands in a fact, in this process."""
        return here(*words) if words[0] in _LOOKS else self.end(self.start(*words))

    def wait(self, met: Callable[[], bool], what: str) -> None:
        deadline_s = self._clock.monotonic_s() + PATIENCE_S
        while not met():
            assert self._clock.monotonic_s() < deadline_s, f"not in time: {what}"
            self._clock.sleep(0.1)

    def job_id(self, name: str = "job") -> str:
        """Wait for the run directory of a job and return its id."""
        found: list[str] = []

        def there() -> bool:
            found[:] = [path.name for path in (self.home / "runs").glob(f"{name}-??????")]
            return bool(found)

        self.wait(there, f"a run directory of {name}")
        return found[0]

    def wait_for_output(self, name: str = "job", attempt: int = 1) -> str:
        """Wait until the first rank of a job prints something; return the job's id."""
        job_id = self.job_id(name)
        log = self.home / "runs" / job_id / "logs" / f"attempt-{attempt}" / "rank-0.log"
        self.wait(lambda: log.exists() and log.stat().st_size > 0, f"output of {job_id}")
        return job_id

    def state(self, job_id: str) -> str:
        """Look at the journal from this process, which costs less than a command."""
        machine, _ = restore(SqlJournal(self.home / "journal.sqlite"))
        job = machine.state.jobs.get(job_id)
        return job.state.value if job else ""

    def wait_for_state(self, job_id: str, *states: str) -> None:
        self.wait(lambda: self.state(job_id) in states, f"{job_id} to be {states}")

    def led(self) -> bool:
        return Leadership(self.home / "control.lock").taken()

    def kill_all(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty state directory that the settings name."""
    path = tmp_path / "home"
    monkeypatch.setenv("GRIDLOOM_HOME", str(path))
    monkeypatch.delenv("GRIDLOOM_GRID", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    return path


@pytest.fixture
def gridloom(home: Path, tmp_path: Path) -> Iterator[Gridloom]:
    made = Gridloom(home, tmp_path / "files")
    yield made
    made.kill_all()


METRIC = (
    '{"attempt": 1, "step": %d, "loss": 2.5, "tokens": 10, "tokens_per_s": 100.0, "step_s": 0.1}'
)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gridloom]:
    """A state directory with a job that succeeded (`good`) and one that failed (`bad`)."""
    files = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRIDLOOM_HOME", str(files / "home"))
        patch.delenv("GRIDLOOM_GRID", raising=False)
        made = Gridloom(files / "home", files / "files")
        lines = "".join(f"{METRIC % step}\\n" for step in (1, 2))
        script = f"echo hello\nprintf 'no end'\nprintf '{lines}' > $GRIDLOOM_RUN_DIR/metrics.jsonl"
        good = made.start("run", made.job(script, "good"), "-y")
        made.job_id("good")
        bad = made.start("run", made.job("echo broken >&2\nexit 3", "bad"), "-y", "--json")
        made.good, made.bad = made.end(good), made.end(bad)  # type: ignore[attr-defined]
        yield made
        made.kill_all()


@pytest.fixture
def over(finished: Gridloom, monkeypatch: pytest.MonkeyPatch) -> Gridloom:
    """The finished state directory, named by the settings of this process."""
    monkeypatch.setenv("GRIDLOOM_HOME", str(finished.home))
    monkeypatch.delenv("GRIDLOOM_GRID", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    return finished


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Call the command line in this process."""

    def run(*words: str) -> Answer:
        capsys.readouterr()
        code = main(words)
        out, err = capsys.readouterr()
        return Answer(code, out, err)

    return run


def plain(text: str) -> str:
    """Return what was written to a terminal, without its codes, each rewritten line apart."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r\n", "\n").replace("\r", "\n")


def run_in_terminal(
    columns: int, words: Sequence[str], typed: str = "", program: Sequence[str] = COMMAND_LINE
) -> tuple[int, str]:
    """Run the command line on a terminal of that width; return its code and what it wrote."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen(
        # pytest sets COLUMNS and LINES
        [
            *("env", "-u", "COLUMNS", "-u", "LINES", "TERM=xterm-256color"),
            *(sys.executable, *program, *words),
        ],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    if typed:
        os.write(master, typed.encode())
    written = b""
    try:
        while block := os.read(master, 65536):
            written += block
    except OSError:  # the other end is closed: the process has ended
        pass
    finally:
        os.close(master)
    return process.wait(PATIENCE_S), written.decode()
