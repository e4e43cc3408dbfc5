"""Gangs at sites that see nothing of our files: which mirror carries whose, and when."""

import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path

from gridloom.base.clock import Clock
from gridloom.model.inventory import SlurmAccess, SshAccess
from gridloom.sites.remote.bringer import Bringer, FarShelf
from gridloom.sites.remote.ends import Ends
from gridloom.sites.remote.host import Host
from gridloom.sites.remote.mirror import Mirror
from gridloom.sites.remote.places import RUNS, Places, places
from gridloom.sites.remote.sender import SENT_FILE
from gridloom.sites.remote.teller import ALWAYS_S
from gridloom.sites.remote.watched import Watched, watched
from gridloom.sites.slurm.gang import ACCESS_FILE, LOG_FILE, GangMark
from gridloom.sites.tasks import TaskFiles, read
from gridloom.wire.agent import (
    LEASE_FILE,
    ORDER_FILE,
    RENDEZVOUS_FILE,
    STOP_FILE,
    LeaseRenewal,
    TaskOrder,
    TaskRef,
    gang_directory,
)


def far_places(access: SlurmAccess, orders: Sequence[TaskOrder], runs: Path) -> Places | None:
    """Return where everything of a gang is there; nothing where our own files are seen."""
    if access.ssh is None:
        return None
    work, owner = orders[0].workdir, socket.gethostname()
    return places(access.ssh, runs=str(runs), work=work, owner=owner)


class FarGangs:
    """Knows the mirror of each login host, and what of a gang is wanted here."""

    def __init__(
        self,
        files: TaskFiles,
        clock: Clock,
        hosts: Callable[[SshAccess], Host],
        executor: Executor,
    ) -> None:
        """Carry nothing yet.

        Args:
            files: Of the tasks, here.
            clock: Where the time comes from.
            hosts: Returns login hosts; raises ``SiteError`` if there can be none.
            executor: Where files are carried.
        """
        self._files = files
        self._clock, self._hosts, self._executor = clock, hosts, executor
        self._bringer = Bringer(clock, executor)
        self._mirrors: dict[SshAccess, Mirror] = {}
        self._names: dict[TaskRef, Watched] = {}
        self._sent: set[Path] = set()

    def send(self, access: SlurmAccess, gang: Path, to: Places | None) -> str:
        """Return what a gang's files wait for; nothing when all is there. Raise as the sender."""
        mirror = self._mirror(access)
        return mirror.send(gang, to) if mirror is not None and to is not None else ""

    def tell(
        self, access: SlurmAccess, task: TaskRef, name: str, until_s: float = ALWAYS_S
    ) -> None:
        """Send what a task is told, if it is there already; else that is done once it is."""
        mirror = self._mirror(access)
        if mirror is not None and self._is_sent(self._gang(task)):
            mirror.tell(self._files.place(task) / name, until_s)

    def look(self, tasks: Mapping[TaskRef, SlurmAccess]) -> None:
        """Go on carrying what there is to carry for tasks that speak for themselves."""
        of_mirror: dict[Mirror, list[Watched]] = {one: [] for one in self._mirrors.values()}
        live = set()
        for task, access in tasks.items():
            mirror, gang = self._mirror(access), self._gang(task)
            if mirror is not None and self._is_sent(gang):
                live.add(task)
                of_mirror.setdefault(mirror, []).extend(self._watched(task, access))
        self._names = {task: names for task, names in self._names.items() if task in live}
        self._sent &= {self._gang(task) for task in live}
        for mirror, names in of_mirror.items():
            mirror.look(names)

    def is_bringing(self, access: SlurmAccess, task: TaskRef) -> bool:
        """Return whether a task has ended, and what it wrote is still on its way."""
        mirror, names = self._mirror(access), self._names.get(task)
        return mirror is not None and names is not None and mirror.is_bringing(names)

    def finish(self, access: SlurmAccess, task: TaskRef) -> bool:
        """Return whether all is here of a task of which nothing is left there."""
        mirror, names = self._mirror(access), self._names.get(task)
        return mirror is None or names is None or mirror.finish(names)

    def bring(self, job_id: str, attempt: int, sites: Sequence[str]) -> str:
        """As ``gridloom.ports.driver.Keeping.bring``."""
        run_dir = self._files.runs / job_id
        shelves = [
            FarShelf(
                site=site,
                host=partial(self._hosts, mark.access.ssh),
                to=mark.places,
                is_fetched=mark.access.ssh.checkpoints == "fetch",
            )
            for site, mark in _marks(run_dir).items()
            if mark.access.ssh is not None and mark.places is not None
        ]
        return self._bringer.bring(run_dir, attempt, sites, shelves)

    def _is_sent(self, gang: Path) -> bool:
        if gang not in self._sent and (gang / SENT_FILE).exists():
            self._sent.add(gang)
        return gang in self._sent

    def _watched(self, task: TaskRef, access: SlurmAccess) -> list[Watched]:
        if task not in self._names:
            order = read(self._files.place(task) / ORDER_FILE, TaskOrder)
            if order is None or access.ssh is None:
                return []
            log = (self._gang(task) / LOG_FILE).relative_to(self._files.runs)
            self._names[task] = watched(order, _runs(access.ssh), [log.as_posix()])
            self._tell_all(access, task)
        return [self._names[task]]

    def _tell_all(self, access: SlurmAccess, task: TaskRef) -> None:
        """Send what a task was told before it was there, or before we were."""
        place = self._files.place(task)
        lease = read(place / LEASE_FILE, LeaseRenewal)
        if lease is not None:
            self.tell(access, task, LEASE_FILE, lease.until_s)
        for name in (STOP_FILE, RENDEZVOUS_FILE):
            if (place / name).exists():
                self.tell(access, task, name)

    def _mirror(self, access: SlurmAccess) -> Mirror | None:
        ssh = access.ssh
        if ssh is None:
            return None
        if ssh not in self._mirrors:
            host = partial(self._hosts, ssh)
            ends = Ends(self._files.runs, _runs(ssh), host, self._clock, self._executor)
            self._mirrors[ssh] = Mirror(ends)
        return self._mirrors[ssh]

    def _gang(self, task: TaskRef) -> Path:
        return Path(gang_directory(self._files.runs, task))


def _marks(run_dir: Path) -> dict[str, GangMark]:
    """Return what was handed in last at each site where a job has been."""
    files = (run_dir / "attempts").glob(f"**/gang.*/{ACCESS_FILE}")
    by_age = sorted(files, key=lambda file: int(file.relative_to(run_dir).parts[1]))
    found = {file.parent.name.removeprefix("gang."): read(file, GangMark) for file in by_age}
    return {site: mark for site, mark in found.items() if mark is not None}


def _runs(ssh: SshAccess) -> str:
    return f"{ssh.directory}/{RUNS}"
