"""The driver of sites on this machine."""

import contextlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gridloom.base.clock import Clock
from gridloom.base.errors import SiteError
from gridloom.base.files import EXHAUSTED
from gridloom.base.sockets import can_listen
from gridloom.model.event import AnyEvent, NodeMarked, TaskEnded
from gridloom.model.inventory import Site
from gridloom.model.life import Outcome
from gridloom.model.reason import Reason, Why
from gridloom.sites.local.client import SUPERVISOR_LOG, LocalClient
from gridloom.sites.local.render import supervisor_argv
from gridloom.sites.reports import ended, events
from gridloom.sites.tasks import TaskFiles
from gridloom.wire.agent import (
    Rendezvous,
    TaskOrder,
    TaskRef,
)

_START_S = 15.0
"""How long a supervisor may take from its start to its first report."""


class LocalDriver:
    """Runs tasks as process groups on this machine (plays `gridloom.ports.driver.Driver`)."""

    chooses_nodes = False

    def __init__(self, runs: Path, python: str, clock: Clock, sweep: Callable[[str], int]) -> None:
        """Drive the tasks of the runs in ``runs``.

        Args:
            runs: Directory of all run directories.
            python: Interpreter of the supervisors.
            clock: Where the time comes from.
            sweep: Kills every process that carries a task's token; returns how many there were.
        """
        self._files = TaskFiles(runs)
        self._python = python
        self._clock = clock
        self._sweep = sweep
        self._client = LocalClient()
        self._first_look_s: dict[TaskRef, float] = {}
        self._swept: dict[TaskRef, int] = {}
        self._ends: dict[TaskRef, AnyEvent] = {}

    def submit(self, site: Site, orders: Sequence[TaskOrder]) -> Mapping[TaskRef, Reason]:
        """Start a supervisor for each task unless it was started before."""
        refusals = ((order.task, self._submit(order)) for order in orders)
        return {task: reason for task, reason in refusals if reason is not None}

    def meet(self, task: TaskRef, rendezvous: Rendezvous) -> None:
        """Write where the tasks are."""
        self._files.meet(task, rendezvous)

    def renew(self, task: TaskRef, until_s: float) -> None:
        """Write the lease anew."""
        self._files.renew(task, until_s)

    def stop(self, task: TaskRef, grace_s: float, sentence: str) -> None:
        """Write the order to stop."""
        self._files.stop(task, grace_s, sentence)

    def observe(self, tasks: Sequence[TaskRef]) -> list[AnyEvent]:
        """Return what the supervisors reported, and the end of those that are gone."""
        facts: list[AnyEvent] = []
        for task in tasks:
            with contextlib.suppress(OSError):  # of what we cannot see now we do not speak now
                facts.extend(self._observe(task))
        return facts

    def standing(self, site: Site) -> Sequence[NodeMarked]:
        """Nobody but gridloom keeps these nodes from work."""
        return ()

    def free_port(
        self, address: str, ports: tuple[int, int], taken: frozenset[int], count: int = 1
    ) -> int:
        """Return a port of the range that nobody listens on, nor on those behind it.

        Where the search begins depends on the state directory: rank 0 listens only seconds later,
        and two control planes that do not know each other must not both be given the first port.
        """
        first, last = ports
        choices = last - first + 2 - count
        start = zlib.crc32(str(self._files.runs).encode())
        for offset in range(choices):
            port = first + (start + offset) % choices
            row = range(port, port + count)
            try:
                if taken.isdisjoint(row) and all(can_listen(address, one) for one in row):
                    return port
            except (OSError, UnicodeError) as error:
                why = getattr(error, "strerror", None) or error
                raise SiteError(
                    f"no process of this machine can listen at {address}: {why}"
                ) from error
        which = "every port" if count == 1 else f"every row of {count} ports"
        raise SiteError(f"{which} of {first}-{last} at {address} is in use")

    def _submit(self, order: TaskOrder) -> Reason | None:
        directory = self._files.place(order.task)
        try:
            if self._client.started(directory) or self._client.alive(directory):
                return None
            self._files.order(order)
            self._client.start(supervisor_argv(self._python, directory), directory)
        except OSError as error:
            return _refusal(error, directory)
        self._first_look_s[order.task] = self._clock.monotonic_s()
        return None

    def _observe(self, task: TaskRef) -> list[AnyEvent]:
        directory = self._files.place(task)
        # In this order: who has started is alive until all is over, and speaks its last before
        started = self._client.started(directory)
        alive = self._client.alive(directory)
        facts = events(task, self._client.lines(directory))
        self._ends.update((task, fact) for fact in facts if isinstance(fact, TaskEnded))
        if not facts and task in self._ends:
            return [self._ends[task]]
        if not alive and task not in self._ends and self._is_lost(task, directory, started):
            facts.extend(self._lost(task, directory))
        return facts

    def _is_lost(self, task: TaskRef, directory: Path, started: bool) -> bool:  # noqa: FBT001
        if started:
            return True
        first_look_s = self._first_look_s.setdefault(task, self._clock.monotonic_s())
        overdue = self._clock.monotonic_s() - first_look_s >= _START_S
        return overdue and self._client.forbid(directory)

    def _lost(self, task: TaskRef, directory: Path) -> list[AnyEvent]:
        """Return the end of a task whose supervisor is gone, once its processes are, too."""
        left = self._sweep(task.token)
        total = self._swept[task] = self._swept.get(task, 0) + left
        if left:
            return []
        swept = f"; {total} of its processes were killed" if total else ""
        outcome = Outcome(
            code=Why.SUPERVISOR_LOST,
            sentence=f"the supervisor of {task.domain} is gone without a word{swept}",
            remedy=f"see {directory / SUPERVISOR_LOG}",
            ended_s=self._clock.now_s(),
        )
        self._ends[task] = ended(task, outcome)
        return [self._ends[task]]


def _refusal(error: OSError, directory: Path) -> Reason:
    sentence = f"the task cannot be started: {error.strerror}: {error.filename or directory}"
    if error.errno in EXHAUSTED:  # it may be better soon
        remedy = "raise the limits of this machine on processes, files or memory"
        return Reason(code=Why.REFUSED, sentence=sentence, remedy=remedy)
    remedy = "make the run directory writable, or free space there"
    return Reason(code=Why.IO, sentence=sentence, remedy=remedy)
