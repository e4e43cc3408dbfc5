"""Entry of the supervisor's process.

``python -m gridloom.agent TASK_DIRECTORY`` supervises that task. ``python -m gridloom.agent --gang
GANG_DIRECTORY`` is what each node of a batch job runs: one task of a gang, by the node's number.
"""

import fcntl
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from gridloom.agent.guard import guard
from gridloom.agent.processes import TaskProcesses, fresh_signals
from gridloom.agent.supervise import Supervisor, signal_number
from gridloom.base.clock import Clock
from gridloom.base.codec import decode
from gridloom.base.files import sync_directory
from gridloom.base.sockets import can_listen, own_address, rows
from gridloom.base.system import SystemClock
from gridloom.model.life import Arrival
from gridloom.wire.agent import (
    ADDRESS_VARIABLE,
    GANG_FILE,
    INDEX_VARIABLES,
    LOCK_FILE,
    NODE_VARIABLES,
    ORDER_FILE,
    REPORTS_FILE,
    Gang,
    TaskOrder,
)

_LOCK_TRIES = 250
_LOCK_WAIT_S = 0.02


def main() -> int:
    """Supervise the task of one directory; do nothing when somebody does or did."""
    directory, network = _place(sys.argv[1:], os.environ)
    clock = SystemClock()
    # Held by the supervisor and by its guardian, so that a free lock means: nobody is left.
    lock = _lock(directory, clock)
    started = directory / REPORTS_FILE
    if lock is None or started.exists():
        return 0
    order = decode((directory / ORDER_FILE).read_bytes(), TaskOrder)
    # The mark that this task was started, before anything of it is: from here on never again
    started.touch()
    sync_directory(directory)
    fresh_signals()
    asked = order.batch.warning if order.batch is not None else ""
    warnings = (signal_number(asked),) if asked else ()

    def supervise(processes: TaskProcesses) -> None:
        arrival = _arrival(order, network)
        supervisor = Supervisor(order, directory, os.environ, clock, processes, arrival)
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, lambda *_: supervisor.ask_to_stop())
        for warning in warnings:  # it may be one of these
            signal.signal(warning, lambda *_: supervisor.pass_warning_on())
        supervisor.run()

    # Slurm's warning reaches all processes of a step; a program that does not know it would die
    deaf = (signal.SIGUSR1,) if network is not None and order.batch is None else ()
    guard(order.task.token, order.lease_s + order.lapse_grace_s, supervise, warnings, deaf)
    return 0


def _place(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[Path, str | None]:
    """Return the directory of the task that is ours, and the network of a gang's nodes."""
    if arguments[0] != "--gang":
        return Path(arguments[0]), None
    gang = decode((Path(arguments[1]) / GANG_FILE).read_bytes(), Gang)
    index = next(environment[name] for name in INDEX_VARIABLES if name in environment)
    return Path(gang.directories[int(index)]), gang.network


def _arrival(order: TaskOrder, network: str | None) -> Arrival | None:
    """Return where this is, if the ranks are to wait until the tasks know of each other."""
    if order.meets is None:
        return None
    rank = order.ranks[0].rank
    node, address = order.task.node, rank.node_addresses[rank.node_rank]
    if network is not None:
        node = next((os.environ[name] for name in NODE_VARIABLES if name in os.environ), node)
        told = "" if network else os.environ.get(ADDRESS_VARIABLE, "")
        address = told or own_address(network)
    first, last = order.meets
    free = (port for port in range(first, last + 1) if can_listen(address, port))
    return Arrival(node=node, address=address, free_ports=rows(free))


def _lock(directory: Path, clock: Clock) -> IO[bytes] | None:
    """Take the directory's lock; nothing when another supervisor has it.

    A driver that looks whether we live holds it for a moment: that is no reason to give up.
    """
    lock = (directory / LOCK_FILE).open("ab")
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if (directory / REPORTS_FILE).exists():
                break
            clock.sleep(_LOCK_WAIT_S)
        else:
            return lock
    lock.close()
    return None


if __name__ == "__main__":
    raise SystemExit(main())
