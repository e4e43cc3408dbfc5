"""The files by which supervisors are told and heard, where we and their nodes see one directory."""

import zlib
from collections.abc import Container
from pathlib import Path, PurePath
from typing import TypeVar

import msgspec

from gridloom.base.codec import decode, encode
from gridloom.base.errors import SiteError
from gridloom.base.files import LineTail, cause_of, replace_file
from gridloom.model.event import AnyEvent, TaskEnded
from gridloom.model.life import Outcome
from gridloom.model.reason import Reason, Why
from gridloom.sites.reports import events
from gridloom.wire.agent import (
    LEASE_FILE,
    ORDER_FILE,
    RENDEZVOUS_FILE,
    REPORTS_FILE,
    STOP_FILE,
    LeaseRenewal,
    Rendezvous,
    StopOrder,
    TaskOrder,
    TaskRef,
    task_directory,
)

T = TypeVar("T")


def plane_of(runs: PurePath) -> str:
    """Return what names a control plane among all that may have jobs at the same place."""
    return f"{zlib.crc32(str(runs).encode()):08x}"


def with_given_devices(order: TaskOrder) -> TaskOrder:
    """Return an order whose ranks use the devices that the site's own scheduler gives the task.

    The core counts devices; which of a node's they are, and by what numbers a process there sees
    them, only such a site knows.
    """
    ranks = tuple(msgspec.structs.replace(rank, devices=()) for rank in order.ranks)
    return msgspec.structs.replace(order, ranks=ranks)


class Heard:
    """One task and what its supervisor has said.

    Attributes:
        has_spoken: Whether it has ever said anything.
        end: How the task ended, as its supervisor says, or as it was found out; nothing before.
        is_explained: Whether there is nothing more to be said of the end.
        end_seen_s: When that was first seen, by the clock without jumps.
    """

    def __init__(self, reports: Path) -> None:
        self._tail = LineTail(reports)
        self.has_spoken = False
        self.end: Outcome | None = None
        self.is_explained = False
        self.end_seen_s = 0.0

    def news(self, task: TaskRef, now_s: float) -> list[AnyEvent]:
        """Return what was said since the last look, but not that the task has ended.

        Raises:
            OSError: The directory cannot be read now.
        """
        facts: list[AnyEvent] = []
        for fact in events(task, self._tail.lines()):
            self.has_spoken = True
            if not isinstance(fact, TaskEnded):
                facts.append(fact)
            elif self.end is None:
                self.end, self.end_seen_s = fact.outcome, now_s
        return facts


class TaskFiles:
    """Writes what tasks are told, and reads what they say."""

    def __init__(self, runs: Path) -> None:
        """Speak with the tasks of the runs in ``runs``."""
        self.runs = runs.absolute()
        self._heard: dict[TaskRef, Heard] = {}

    def place(self, task: TaskRef) -> Path:
        """Return the directory of a task."""
        return Path(task_directory(self.runs, task))

    def heard(self, task: TaskRef, speaker: TaskRef | None = None) -> Heard:
        """Return what is known of a task, from its own supervisor or from that of another."""
        if task not in self._heard:
            self._heard[task] = Heard(self.place(speaker or task) / REPORTS_FILE)
        return self._heard[task]

    def forget_all_but(self, tasks: Container[TaskRef]) -> None:
        """Forget what was heard of tasks that nobody asks after any more."""
        self._heard = {task: heard for task, heard in self._heard.items() if task in tasks}

    def stop_of(self, task: TaskRef) -> StopOrder | None:
        """Return the order to stop that a task was given, if it was."""
        return read(self.place(task) / STOP_FILE, StopOrder)

    def order(self, order: TaskOrder, told: TaskOrder | None = None) -> None:
        """Write what a task is to do, and make the places that it writes to.

        Args:
            order: With paths as they are here.
            told: As it is carried out, where that differs.

        Raises:
            OSError: That cannot be done.
        """
        for rank in order.ranks:
            Path(rank.log_file).parent.mkdir(parents=True, exist_ok=True)
        place = self.place(order.task)
        place.mkdir(parents=True, exist_ok=True)
        replace_file(place / ORDER_FILE, encode(told or order))

    def meet(self, task: TaskRef, rendezvous: Rendezvous) -> None:
        """Write where the tasks are; raise ``SiteError`` as all that follow."""
        self._write(task, RENDEZVOUS_FILE, encode(rendezvous), durable=True)

    def renew(self, task: TaskRef, until_s: float) -> None:
        """Write the lease anew."""
        self._write(task, LEASE_FILE, encode(LeaseRenewal(until_s=until_s)), durable=False)

    def stop(self, task: TaskRef, grace_s: float, sentence: str) -> None:
        """Write the order to stop."""
        order = StopOrder(grace_s=grace_s, sentence=sentence)
        self._write(task, STOP_FILE, encode(order), durable=True)

    def _write(self, task: TaskRef, name: str, data: bytes, *, durable: bool) -> None:
        path = self.place(task) / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, data, durable=durable)
        except OSError as error:
            raise SiteError(f"{path}: {error.strerror}") from error


def read(path: Path, type_: type[T]) -> T | None:
    """Return what a file says; nothing if it cannot be read, or says something else."""
    try:
        return decode(path.read_bytes(), type_)
    except (OSError, msgspec.MsgspecError):
        return None


def unwritable(error: OSError) -> Reason:
    """Return why a task is refused whose files cannot be written."""
    return Reason(
        code=Why.IO,
        sentence=f"the task cannot be started: {cause_of(error)}: {error.filename}",
        remedy="make the run directory writable, or free space there",
    )
