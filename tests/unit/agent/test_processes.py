"""Real processes: started to die with their parent, reaped, signalled and swept."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.contract.harness import eventually, is_alive

from gridloom.agent import processes
from gridloom.agent.processes import TaskProcesses, sweep
from gridloom.wire.agent import TASK_VARIABLE

PYTHON = (sys.executable, "-I", "-S", "-c")
HOLD = "import time; time.sleep(600)"


@pytest.fixture
def token() -> Iterator[str]:
    made = f"unit/{os.getpid()}/{os.urandom(4).hex()}"  # noqa: TID251
    yield made
    eventually(lambda: not sweep(made))


def start(token: str, code: str) -> psutil.Process:
    process = subprocess.Popen([*PYTHON, code], env={TASK_VARIABLE: token}, process_group=0)
    process.returncode = 0  # reaped by the sweep, or by the kernel after us
    return psutil.Process(process.pid)


def test_a_sweep_kills_what_carries_the_token_and_nothing_else(token: str) -> None:
    ours = [start(token, HOLD), start(token, f"import signal; signal.signal(15, 1); {HOLD}")]
    other = start(f"{token}0", HOLD)
    eventually(lambda: all(TASK_VARIABLE in process.environ() for process in [*ours, other]))
    assert sweep(token) == 2
    assert not any(map(is_alive, ours))
    assert is_alive(other)
    assert sweep(token) == 0
    assert sweep(f"{token}0") == 1


def test_a_sweep_catches_up_with_what_forks_while_it_looks(token: str) -> None:
    hops = """
import os
for _ in range(2000):
    if os.fork():
        os._exit(0)
    os.setsid()
import time; time.sleep(600)
"""
    for _ in range(3):
        start(token, hops)
    eventually(lambda: not sweep(token))
    assert not [p for p in psutil.process_iter() if carries(p, token)]


def test_one_look_that_finds_nothing_is_no_proof(token: str) -> None:
    """A process is in no list while it replaces one that has just gone."""
    hopper = start(token, HOLD)
    looks: list[list[psutil.Process]] = [[], [hopper], [], []]
    assert processes._sweep(lambda: looks.pop(0)) == 1
    assert not is_alive(hopper)
    assert not looks


def carries(process: psutil.Process, token: str) -> bool:
    try:
        return process.environ().get(TASK_VARIABLE) == token and is_alive(process)
    except psutil.Error:
        return False


SUPERVISOR = """
import os, sys
from pathlib import Path
from gridloom.agent.processes import TaskProcesses, adopt_orphans
adopt_orphans()
log = Path(sys.argv[1])
processes = TaskProcesses("{token}", lambda: None)
env = {{"GRIDLOOM_TASK": "{token}"}}
{body}
"""


def supervisor(token: str, tmp_path: Path, body: str) -> "subprocess.Popen[str]":
    """Start a parent of ranks: what it reaps and sweeps must not be the test's own children."""
    code = SUPERVISOR.format(token=token, body=body)
    argv = [sys.executable, "-c", code, str(tmp_path / "log")]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


def test_a_rank_is_deaf_to_what_it_does_not_know(token: str, tmp_path: Path) -> None:
    log, env = tmp_path / "log", {"PATH": os.defpath}
    deaf = TaskProcesses(token, lambda: None, (signal.SIGUSR1,))
    os.waitpid(deaf.spawn(["sh", "-c", "kill -USR1 $$; echo lives"], "/", env, log), 0)
    assert log.read_text() == "lives\n"
    hears = (
        "import os, signal; signal.signal(10, lambda *_: print('heard')); os.kill(os.getpid(), 10)"
    )
    os.waitpid(deaf.spawn([sys.executable, "-c", hears], "/", env, log), 0)
    assert log.read_text() == "lives\nheard\n", "one that wants to know of it is told"


def test_a_rank_dies_with_its_parent(token: str, tmp_path: Path) -> None:
    body = """
print(processes.spawn(["sleep", "600"], "/", env, log), flush=True)
input()
"""
    with supervisor(token, tmp_path, body) as parent:
        assert parent.stdout is not None
        rank = psutil.Process(int(parent.stdout.readline()))
        assert os.getsid(rank.pid) == rank.pid
        parent.kill()
    eventually(lambda: not is_alive(rank))


def test_a_rank_whose_parent_is_gone_before_it_could_ask_starts_nothing(
    token: str, tmp_path: Path
) -> None:
    """The kernel tells of a parent's death only who has asked before it."""
    body = """
import gridloom.agent.processes as room
pid = os.fork()
if pid == 0:
    room._die_with(os.getppid() + 1)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    with supervisor(token, tmp_path, body) as parent:
        assert parent.stdout is not None
        assert parent.stdout.read() == "1\n"


def test_exits_are_told_once_with_orphans_among_them(token: str, tmp_path: Path) -> None:
    body = """
import time
argv = {
    "code": ["sh", "-c", "echo said; exit 3"],
    "signal": ["sh", "-c", "kill -9 $$"],
    "orphan": ["sh", "-c", "(sh -c 'sleep 0.2; exit 9' &) ; exit 0"],
}
pids = {processes.spawn(a, "/", env, log): name for name, a in argv.items()}
seen = []
while len(seen) < 4:
    seen.extend((pids.get(pid, "adopted"), code) for pid, code in processes.exits().items())
    time.sleep(0.01)
print(sorted(seen), processes.exits(), log.read_text(), end="")
"""
    with supervisor(token, tmp_path, body) as parent:
        assert parent.stdout is not None
        seen = "[('adopted', 9), ('code', 3), ('orphan', 0), ('signal', -9)] {} said\n"
        assert parent.stdout.read() == seen


def test_a_signal_reaches_the_whole_group_and_forgives_one_that_is_gone(
    token: str, tmp_path: Path
) -> None:
    body = """
import signal, time
pid = processes.spawn(["sh", "-c", "sleep 600 & echo $!; wait"], "/", env, log)
while not log.read_text():
    time.sleep(0.01)
processes.signal(pid, signal.SIGTERM)
seen = {}
while len(seen) < 2:
    seen |= processes.exits()
    time.sleep(0.01)
processes.signal(pid, signal.SIGTERM)
print(list(seen.values()))
"""
    with supervisor(token, tmp_path, body) as parent:
        assert parent.stdout is not None
        assert parent.stdout.read() == "[-15, -15]\n"


def test_descriptors_do_not_leak_into_ranks_nor_pile_up(token: str, tmp_path: Path) -> None:
    body = """
kept = open(log)  # as the lock and the pulse are
before = len(os.listdir("/proc/self/fd"))
for _ in range(5):
    pid = processes.spawn(["sh", "-c", "ls /proc/self/fd; echo"], "/", env, log)
    os.waitpid(pid, 0)
print(len(os.listdir("/proc/self/fd")) - before)
print([block.split() for block in log.read_text().strip().split("\\n\\n")][0][:4])
"""
    (tmp_path / "log").touch()
    with supervisor(token, tmp_path, body) as parent:
        assert parent.stdout is not None
        assert parent.stdout.read() == "0\n['0', '1', '2', '3']\n", "3 is of ls itself"


@pytest.mark.parametrize(
    ("argv", "workdir", "error"),
    [
        (["no-such-program"], "/", FileNotFoundError),
        (["true"], "/no/such/place", FileNotFoundError),
        (["/etc/passwd"], "/", PermissionError),
        (["true\0"], "/", ValueError),
    ],
)
def test_what_cannot_be_started_is_told(
    tmp_path: Path, argv: list[str], workdir: str, error: type[Exception]
) -> None:
    task = TaskProcesses("t", lambda: None)
    with pytest.raises(error):
        task.spawn(argv, workdir, {"PATH": "/bin:/usr/bin"}, tmp_path / "log")
    with pytest.raises(FileNotFoundError) as caught:
        task.spawn(["true"], "/", {}, tmp_path / "no" / "log")
    assert str(caught.value.filename) == str(tmp_path / "no" / "log")


def test_a_signal_to_what_never_was_is_forgiven() -> None:
    TaskProcesses("t", lambda: None).signal(2**22 - 1, signal.SIGTERM)
