"""The guardian: outlives the supervisor, and leaves nothing of its task behind."""

import contextlib
import os
import select
import signal
from collections.abc import Callable, Collection

from gridloom.agent.processes import TaskProcesses, adopt_orphans

_SWEEPS_MAX = 30


def guard(
    token: str,
    patience_s: float,
    supervise: Callable[[TaskProcesses], None],
    handed_on: Collection[int] = (),
    ignored: Collection[int] = (),
) -> None:
    """Fork the supervisor, run ``supervise`` in it, and stand guard until it ends.

    When the supervisor dies in any other way than by returning, or gives no pulse for
    ``patience_s`` (its disk hangs, it was frozen), every process of the task is killed, whatever it
    did to hide: the guardian is the ancestor of all of them. It touches no file itself.

    Must be called by a process with one thread. Returns in the guardian only. Both signals by which
    a batch system warns reach the supervisor as SIGTERM; those ``handed_on`` as they are. To those
    ``ignored`` the processes of the task are deaf unless they say otherwise.
    """
    adopt_orphans()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        os.setsid()  # a signal to the guardian's group does not reach the supervisor
        adopt_orphans()
        os.set_blocking(writer, False)
        supervise(TaskProcesses(token, lambda: _beat(writer), ignored))
        raise SystemExit(0)
    os.close(writer)
    for number in (signal.SIGTERM, signal.SIGUSR1):  # a batch system warns with either
        signal.signal(number, lambda *_: os.kill(pid, signal.SIGTERM))
    for warning in handed_on:
        signal.signal(warning, lambda received, _: os.kill(pid, received))
    stuck = _watch(reader, patience_s)
    for heard in {signal.SIGTERM, signal.SIGUSR1, *handed_on}:
        signal.signal(heard, signal.SIG_IGN)
    os.close(reader)
    if stuck:
        os.kill(pid, signal.SIGKILL)
    elif os.waitpid(pid, 0)[1] == 0:
        return
    everything = TaskProcesses(token, lambda: None)
    for _ in range(_SWEEPS_MAX):
        if not everything.sweep():
            return


def _watch(reader: int, patience_s: float) -> bool:
    """Wait for the supervisor's end, which closes the pipe; return whether it got stuck instead."""
    while select.select([reader], [], [], patience_s)[0]:
        if not os.read(reader, 4096):
            return False
    return True


def _beat(writer: int) -> None:
    with contextlib.suppress(OSError):  # without a guardian the work goes on
        os.write(writer, b".")
