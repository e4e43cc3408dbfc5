"""Processes of one task: started so that they die with their supervisor, swept until none is left.

Two things bind a process to its task, so that none can hide: the token in its environment, and its
descent. Supervisor and guardian adopt what loses its parent (on Linux), so that a daemon is still
one of theirs after it has forked twice, left its session and overwritten its environment.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import psutil

from gridloom.wire.agent import TASK_VARIABLE

_LIBC = ctypes.CDLL(None)
_LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_ROUNDS = 5
_ROUND_S = 0.2


class TaskProcesses:
    """The children of the supervisor of one task (plays `gridloom.agent.supervise.Processes`)."""

    def __init__(
        self, token: str, pulse: Callable[[], None], ignored: Collection[int] = ()
    ) -> None:
        """Start nothing yet.

        Args:
            token: What every process of the task carries in its environment.
            pulse: Tells the guardian that the supervisor is not stuck.
            ignored: Signals that do nothing to the processes unless they say otherwise.
        """
        self._token = token
        self._ignored = tuple(ignored)
        self.pulse = pulse

    def spawn(
        self, argv: Sequence[str], workdir: str, env: Mapping[str, str], log_file: Path
    ) -> int:
        """Start a process in a session of its own and return its id.

        On Linux the kernel kills it when its parent dies. Its output is appended to ``log_file``.

        Raises:
            OSError: The program, the working directory or the log cannot be used.
            ValueError: The command line or the environment is impossible.
        """
        parent = os.getpid()
        with log_file.open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - running the user's program is the purpose
                list(argv),
                cwd=workdir,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: _prepare(parent, self._ignored),
            )
        process.returncode = 0  # reaped by `exits`, not by Popen's destructor
        return process.pid

    def exits(self) -> dict[int, int]:
        """Return the exit status of ended children, adopted ones too; negative for a signal."""
        ended = {}
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    break
                ended[pid] = os.waitstatus_to_exitcode(status)
        return ended

    def signal(self, pid: int, number: int) -> None:
        """Signal the process group that ``pid``, a child that `exits` never named, leads."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)

    def warn(self, pid: int, number: int) -> None:
        """Signal ``pid``, a child that `exits` never named, and no other of its group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)

    def sweep(self) -> int:
        """Kill what carries the token or descends from us; return how many there were."""
        return _sweep(lambda: [*psutil.Process().children(recursive=True), *_carriers(self._token)])


def sweep(token: str) -> int:
    """Kill every process that carries ``token`` in its environment; return how many there were.

    Takes about a second at most, for a process may take long to die: 0 says that none is left.
    """
    return _sweep(lambda: _carriers(token))


def adopt_orphans() -> None:
    """Become the parent of every descendant that loses its own, where the kernel can do that."""
    if _LINUX:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)


def fresh_signals() -> None:
    """Undo what we inherited, and live through the signals of a terminal.

    A parent may have left signals blocked or ignored, and that would pass to every rank: one that
    cannot hear SIGTERM never saves, and with SIGCHLD ignored no exit status reaches us. The same
    holds for what we ignore, so SIGINT and SIGHUP are handled instead: a rank starts without.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # Python's own
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)


def _sweep(find: Callable[[], Iterable[psutil.Process]]) -> int:
    """Kill until two looks in a row find nothing; give up after about a second.

    One look may miss a process that another started just before it went, or that was between its
    fork and its exec.
    """
    killed: set[int] = set()
    empty = 0
    for _ in range(_ROUNDS):
        found = [process for process in set(find()) if _lives(process)]
        empty = 0 if found else empty + 1
        if empty == 2:
            break
        for process in found:
            killed.add(process.pid)
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(found, timeout=_ROUND_S)
    return len(killed)


def _carriers(token: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(TASK_VARIABLE) == token:
                found.append(process)
    return found


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _prepare(parent: int, ignored: Iterable[int]) -> None:
    """Between fork and exec: ask for death at our parent's, which may have come already."""
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    if _LINUX:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
