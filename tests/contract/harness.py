"""What the contract of drivers needs to know of each kind of site, and who plays the control plane.

A new kind of site adds a class beside `LocalHarness` and its name to ``HARNESSES`` in ``conftest``.
"""

import contextlib
import itertools
import os
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import psutil
from tests.contract import control_plane
from tests.contract.control_plane import driver_of
from tests.fakes.kube_api.account import POD_ENVIRONMENT, kubeconfig
from tests.fakes.kube_api.cluster import Cluster
from tests.fakes.kube_api.controllers.kubelet import Play

from gridloom.agent.processes import sweep
from gridloom.base.codec import encode
from gridloom.base.system import SystemClock
from gridloom.model.event import AnyEvent, TaskArrived, TaskEnded, TaskRunning
from gridloom.model.inventory import CPU, KubeAccess, Site
from gridloom.model.life import Outcome
from gridloom.ports.driver import Driver
from gridloom.wire.agent import RankOrder, TaskOrder, TaskRef, gang_directory, task_directory
from gridloom.wire.launch import Rank

T = TypeVar("T")

CLOCK = SystemClock()
PATIENCE_S = 40.0
"""How long a busy machine may take for what is done in a second otherwise."""
LONG_S = 300.0
_COUNT = itertools.count(1)


def eventually(look: Callable[[], T], within_s: float = PATIENCE_S) -> T:
    """Return the first true value of ``look``."""
    until_s = CLOCK.monotonic_s() + within_s
    while not (seen := look()):
        assert CLOCK.monotonic_s() < until_s, f"did not come to pass within {within_s:g} s"
        CLOCK.sleep(0.05)
    return seen


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


class DriverHarness(ABC):
    """One kind of site, and what a test must be able to do there behind the driver's back."""

    site: Site

    def __init__(self, home: Path) -> None:
        self.home = home
        self.runs = home / "runs"
        self._tokens: set[str] = set()

    outlives_guardian = True
    """Whether the rest of a task lives on when the outermost of those that watch it is killed."""

    def driver(self) -> Driver:
        """Return a driver that remembers nothing, as after a restart of the control plane."""
        return driver_of(self.site, self.runs, CLOCK)

    @abstractmethod
    def watched(self, task: TaskRef) -> str:
        """Return what the processes that watch over a task are told to look after."""

    def guards(self, task: TaskRef) -> list[psutil.Process]:
        """Return the processes that watch over the task, the outermost first."""
        return outermost_first(agents(self.watched(task)))

    def plane(self, order: TaskOrder) -> list[str]:
        """Return the command line of a control plane that submits the order."""
        files = {"order.json": order, "site.json": self.site}
        for name, content in files.items():
            (self.home / name).write_bytes(encode(content))
        paths = (self.runs, *(self.home / name for name in files))
        return [sys.executable, control_plane.__file__, *map(str, paths)]

    def spoil(self, order: TaskOrder) -> None:
        """Make the site refuse the order."""
        directory = task_directory(self.runs, order.task)
        Path(directory.parent).parent.mkdir(parents=True)
        Path(directory.parent).write_text("a file where a directory should be")

    def order(
        self,
        argv: Iterable[str],
        *,
        ranks: int = 1,
        lease_s: float = LONG_S,
        lapse_grace_s: float = 0.3,
        grace_s: float = LONG_S,
        workdir: str = "/",
        env: Mapping[str, str] | None = None,
        meets: tuple[int, int] | None = None,
    ) -> TaskOrder:
        """Return an order for a task that no other test has."""
        job_id = f"contract-{os.getpid()}-{next(_COUNT)}"
        run_dir = self.runs / job_id
        marks = self.home / "marks" / job_id
        marks.mkdir(parents=True)
        task = TaskRef(job_id=job_id, attempt=1, epoch=7, site="here", node="n1")
        self._tokens.add(task.token)
        return TaskOrder(
            task=task,
            argv=tuple(argv),
            workdir=workdir,
            # Ranks are no business of the coverage of a test run
            env={"MARKS": str(marks), "COVERAGE_PROCESS_CONFIG": "", **(env or {})},
            accelerator=CPU,
            ranks=tuple(self._rank(job_id, run_dir, number, ranks) for number in range(ranks)),
            lease_s=lease_s,
            lease_until_s=CLOCK.now_s() + max(lease_s, PATIENCE_S),
            lapse_grace_s=lapse_grace_s,
            grace_s=grace_s,
            meets=meets,
        )

    def look(self, order: TaskOrder) -> None:  # noqa: B027 - most sites start it by themselves
        """Do what a control plane does all the time, where an order needs that to be started."""

    def marks(self, order: TaskOrder, *names: str) -> list[psutil.Process]:
        """Wait until processes of these names have noted themselves; return them."""
        files = [Path(order.env["MARKS"]) / name for name in names]

        def all_there() -> bool:
            self.look(order)
            return all(file.exists() for file in files)

        eventually(all_there)
        return [psutil.Process(int(file.read_text())) for file in files]

    def go(self, order: TaskOrder) -> None:
        """Let a program go on that waits for it."""
        (Path(order.env["MARKS"]) / "go").touch()

    def close(self) -> None:
        """Leave nothing behind, even of a test that failed."""
        for token in self._tokens:
            job_id = token.partition("/")[0]
            for process in agents(f"/{job_id}/"):
                with contextlib.suppress(psutil.Error):
                    process.kill()
            eventually(lambda token=token: not sweep(token))  # type: ignore[misc]

    def _rank(self, job_id: str, run_dir: Path, number: int, count: int) -> RankOrder:
        rank = Rank(
            job_id=job_id,
            attempt=1,
            epoch=7,
            rank=number,
            world_size=count,
            local_rank=number,
            local_world_size=count,
            node_rank=0,
            node_count=1,
            site="here",
            site_ranks=(("here", count),),
            node_addresses=("127.0.0.1",),
            master_address="127.0.0.1",
            master_port=29400,
            restart_count=0,
            run_dir=str(run_dir),
            report_file=str(run_dir / "attempts" / "1" / f"rank-{number}.jsonl"),
            grace_s=30.0,
        )
        log_file = run_dir / "logs" / "attempt-1" / f"rank-{number}.log"
        return RankOrder(rank=rank, devices=(number,), log_file=str(log_file))


class LocalHarness(DriverHarness):
    """This machine."""

    site = Site(name="here", kind="local", nodes=())

    def watched(self, task: TaskRef) -> str:
        return str(task_directory(self.runs, task))


class KubeHarness(DriverHarness):
    """A pretended Kubernetes whose pods are real processes, with the rights of the role alone."""

    outlives_guardian = False

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.cluster = Cluster(plays=lambda _: Play(real=True), folder=home / "pods")
        self.cluster.__enter__()
        self.cluster.kubelet.add_node("k1", {"cpu": "64"})
        access = KubeAccess(
            kubeconfig=str(kubeconfig(self.cluster.api, home, namespace="team")),
            namespace="team",
            image="registry.example/gridloom:1",
            python=sys.executable,
            environment=POD_ENVIRONMENT,
        )
        self.site = Site(name="here", kind="kubernetes", nodes=(), kubernetes=access)

    def watched(self, task: TaskRef) -> str:
        return str(gang_directory(self.runs, task))

    def close(self) -> None:
        super().close()
        self.cluster.__exit__()


class Control:
    """Plays the control plane for one task: observes, and renews what it hears of."""

    def __init__(self, driver: Driver, order: TaskOrder, *, renews: bool = True) -> None:
        self.driver = driver
        self.order = order
        self.facts: list[AnyEvent] = []
        self._renews = renews

    def beat(self) -> list[AnyEvent]:
        news = self.driver.observe([self.order.task])
        self.facts.extend(news)
        if self._renews and any(isinstance(fact, TaskRunning | TaskArrived) for fact in news):
            self.driver.renew(self.order.task, CLOCK.now_s() + self.order.lease_s)
        return news

    def sees(self, kind: type[T]) -> T:
        """Return the first fact of this kind, waiting for it."""

        def look() -> list[T]:
            self.beat()
            return [fact for fact in self.facts if isinstance(fact, kind)]

        return eventually(look)[0]

    def end(self) -> Outcome:
        """Return how the task ends, waiting for it."""
        return self.sees(TaskEnded).outcome


def signal_all(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        process.send_signal(number)


def agents(part: str) -> list[psutil.Process]:
    """Return processes of the agent whose directory contains ``part``."""
    found = []
    for process in psutil.process_iter():
        try:
            argv = process.cmdline()
        except psutil.Error:
            continue
        if argv[1:4] == ["-P", "-m", "gridloom.agent"] and part in argv[-1] and is_alive(process):
            found.append(process)
    return found


def outermost_first(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return processes that have not ended meanwhile, those first whose parent is none of them."""
    parents: dict[psutil.Process, int] = {}
    for process in processes:
        with contextlib.suppress(psutil.Error):
            parents[process] = process.ppid()
    pids = {process.pid for process in parents}
    return sorted(parents, key=lambda process: parents[process] in pids)
