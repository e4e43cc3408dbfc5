"""What it costs to watch many jobs of a Slurm and to hand one in, beside Slurm's own commands.

    sudo python -m bench.slurm [JOBS [ROUNDS]]

A Slurm of this machine's own is brought up (``tests/beds/slurm``), so that this needs root. JOBS
jobs wait in its queue, handed in and observed by the driver that ``gridloom`` uses, with either way
of asking; squeue, which tells of the same jobs, takes turns with it. Then one small job at a time
is handed in with sbatch, by the driver, and by ``gridloom submit``, in turn: seconds until its
program runs.
"""

import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from msgspec.structs import replace

from gridloom.base.system import SystemClock
from gridloom.model.event import AnyEvent, TaskEnded, TaskRefused
from gridloom.model.inventory import CPU, Site, SlurmAccess, SlurmRest
from gridloom.sites.slurm.client import SlurmClient
from gridloom.sites.slurm.driver import SlurmDriver
from gridloom.sites.slurm.engine import SlurmEngine
from gridloom.sites.slurm.engines import Engines
from gridloom.sites.ssh.hosts import SshHosts
from gridloom.sites.threads import DaemonExecutor
from gridloom.wire.agent import RankOrder, TaskOrder, TaskRef
from gridloom.wire.launch import Rank

P = ParamSpec("P")
T = TypeVar("T")

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "tests" / "beds" / "slurm"
PATH = os.pathsep.join((str(ROOT), str(ROOT / "src")))
PORT = 21500
NAME = "many"
CYCLES = 10
CLOCK = SystemClock()
_RPC = re.compile(r"^\s+(REQUEST_\w+)\s*\(\s*\d+\) count:(\d+)", re.MULTILINE)


class Cluster:
    """A Slurm with two nodes and a slurmrestd, in a directory of its own."""

    def __init__(self, place: Path) -> None:
        self.place = place / NAME
        conf = str(self.place / "etc" / "slurm.conf")
        self.environment = {"SLURM_CONF": conf, "PYTHONPATH": PATH}
        token = place / "token"
        up = ["--dir", self.place, "--name", NAME, "--base-port", PORT, "--nodes", 2]
        up += ["--gpus-per-node", 0, "--cpus-per-node", 16]
        try:
            subprocess.run([SCRIPTS / "slurm_up.sh", *map(str, up)], check=True)
        except BaseException:
            self.close()
            raise
        token.write_text(self.says("scontrol", "token", "lifespan=36000"))
        url = f"http://127.0.0.1:{PORT + 3}"
        rest = SlurmRest(url=url, user="root", token_file=str(token))
        by_commands = SlurmAccess(
            network="127.0.0.0/8", partition="low", environment=self.environment
        )
        self.ways = {
            "commands": by_commands,
            "slurmrestd": replace(by_commands, rest=rest),
        }

    def says(self, *argv: str) -> str:
        done = subprocess.run(
            argv, env=os.environ | self.environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    def engine(self, way: str) -> SlurmEngine:
        return Engines(lambda _: SlurmClient(), CLOCK).of(self.ways[way])

    @contextmanager
    def counted(self, into: Counter[str]) -> Iterator[None]:
        """Count what its controller is asked in a ``with`` block, by kind of request."""
        before = self._asked()
        yield
        into.update(self._asked() - before)

    def _asked(self) -> Counter[str]:
        told = {name: int(count) for name, count in _RPC.findall(self.says("sdiag"))}
        return Counter({name: n for name, n in told.items() if name != "REQUEST_STATS_INFO"})

    def close(self) -> None:
        down = [str(SCRIPTS / "slurm_down.sh"), "--dir", str(self.place), "--purge"]
        subprocess.run(down, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)  # slurmrestd will not be root
        made = Cluster(place)
        try:
            yield made
        finally:
            made.close()


def order(runs: Path, job_id: str, argv: Sequence[str]) -> TaskOrder:
    """Return the order of a task with one rank on one node."""
    run_dir = runs / job_id
    rank = Rank(
        job_id=job_id,
        attempt=1,
        epoch=1,
        rank=0,
        world_size=1,
        local_rank=0,
        local_world_size=1,
        node_rank=0,
        node_count=1,
        site="here",
        site_ranks=(("here", 1),),
        node_addresses=("127.0.0.1",),
        master_address="127.0.0.1",
        master_port=29400,
        restart_count=0,
        run_dir=str(run_dir),
        report_file=str(run_dir / "rank-0.jsonl"),
        grace_s=30.0,
    )
    return TaskOrder(
        task=TaskRef(job_id=job_id, attempt=1, epoch=1, site="here", node="n1"),
        argv=tuple(argv),
        workdir="/",
        env={},
        accelerator=CPU,
        ranks=(RankOrder(rank=rank, devices=(0,), log_file=str(run_dir / "rank-0.log")),),
        lease_s=300.0,
        lease_until_s=CLOCK.now_s() + 3600.0,
        lapse_grace_s=1.0,
        grace_s=30.0,
        meets=None,
    )


class Inline(Executor):
    """Makes calls at once."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        done: Future[T] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class Ahead(SystemClock):
    """A clock that can be put forward: the driver looks when it thinks that it is time."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_s


class Watch:
    """The driver with many jobs in the queue of a Slurm whose nodes somebody else has."""

    def __init__(self, bed: Cluster, runs: Path, jobs: int) -> None:
        self.bed, self.runs, self.clock = bed, runs, Ahead()
        bed.says("sbatch", "--nodes=2", "--exclusive", "--partition=high", "--wrap=sleep 9999",
                 "--output=/dev/null")  # fmt: skip
        self.tasks: list[TaskRef] = []
        driver = self.driver("slurmrestd")
        site = Site(name="here", kind="slurm", nodes=(), slurm=bed.ways["slurmrestd"])
        for number in range(jobs):
            one = order(runs, f"many-{number}", ["true"])
            if driver.submit(site, [one]):
                sys.exit("the driver refuses a job")
            self.tasks.append(one.task)
        self.cycle(driver)
        queue = bed.says("squeue", "--noheader", "--states=PENDING").splitlines()
        if len(queue) != jobs:
            sys.exit(f"{len(queue)} jobs wait instead of {jobs}")

    def driver(self, way: str, engine: SlurmEngine | None = None) -> SlurmDriver:
        """Return one that remembers nothing; it takes over what was handed in, whatever way."""
        asked = engine or self.bed.engine(way)
        return SlurmDriver(self.runs, self.clock, lambda _: asked, Inline(), SshHosts(CLOCK).of)

    def cycle(self, driver: SlurmDriver) -> list[AnyEvent]:
        """Let the driver look once, here and not in a thread of its own; return what it tells."""
        self.clock.ahead_s += 60.0
        return driver.observe(self.tasks)


def cpu_s() -> tuple[float, float]:
    """Return the CPU seconds of this process, and of commands that it ran."""
    mine, theirs = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return mine.ru_utime + mine.ru_stime, theirs.ru_utime + theirs.ru_stime


def timed(call: Callable[[], object]) -> dict[str, float]:
    """Return what one call takes: seconds, and CPU seconds of this process and its commands."""
    before, began_s = cpu_s(), CLOCK.monotonic_s()
    call()
    took_s, after = CLOCK.monotonic_s() - began_s, cpu_s()
    return {"s": took_s, "own_cpu_s": after[0] - before[0], "child_cpu_s": after[1] - before[1]}


def spread(rows: Sequence[dict[str, float]], key: str) -> str:
    """Return median and range in milliseconds."""
    found = [row[key] * 1000 for row in rows]
    return f"{statistics.median(found):.0f} ms ({min(found):.0f} to {max(found):.0f})"


def observe(bed: Cluster, runs: Path, jobs: int) -> None:
    watch = Watch(bed, runs, jobs)
    told: dict[str, list[dict[str, float]]] = {}
    asked: dict[str, Counter[str]] = {}
    drivers = {way: watch.driver(way) for way in bed.ways}
    engines = {way: bed.engine(way) for way in bed.ways}
    ids = [job.job_id for job in engines["commands"].jobs() if "many-" in job.name]
    for driver in drivers.values():
        watch.cycle(driver)
    for _ in range(CYCLES):
        for way, driver in drivers.items():
            with bed.counted(asked.setdefault(way, Counter())):
                told.setdefault(f"a cycle by {way}", []).append(timed(partial(watch.cycle, driver)))
            told.setdefault(f"the call by {way}", []).append(timed(partial(engines[way].jobs, ids)))
        told.setdefault("squeue", []).append(timed(lambda: bed.says("squeue")))
    print(f"{jobs} jobs that wait, {CYCLES} rounds: median (range)")
    for what, rows in told.items():
        print(f"  {what}: " + ", ".join(f"{key} {spread(rows, key)}" for key in rows[0]))
    for way, counted in asked.items():
        print(f"  what the controller was asked in {CYCLES} cycles by {way}: {dict(counted)}")
    bed.says("scancel", "--user=root")


def hand_in(bed: Cluster, place: Path, rounds: int) -> None:
    """Print how long it takes until a program runs, by each way of handing it in."""
    ways: dict[str, Callable[[Path], None]] = {
        "sbatch": partial(_by_sbatch, bed),
        **{way: partial(_by_driver, bed, place, way) for way in bed.ways},
        "gridloom submit": partial(_by_gridloom, bed, place),
    }
    took: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way, start in ways.items():
            mark = place / f"mark-{number}-{way.replace(' ', '-')}"
            began_s = time.time()
            start(mark)
            if number:
                took[way].append(float(mark.read_text()) - began_s)
            while bed.says("squeue", "--noheader"):
                CLOCK.sleep(0.2)
    print(f"seconds until the program runs, {rounds} rounds: median (range), ratio to sbatch")
    for way, seconds in took.items():
        ratios = [s / bare for s, bare in zip(seconds, took["sbatch"], strict=True)]
        more = [s - bare for s, bare in zip(seconds, took["sbatch"], strict=True)]
        print(
            f"  {way}: {statistics.median(seconds):.2f} s ({min(seconds):.2f} to "
            f"{max(seconds):.2f}), {statistics.median(more):+.2f} s, ratio "
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        )


def _program(mark: Path) -> list[str]:
    code = f"import os, time; open('{mark}.new', 'w').write(str(time.time()))"
    code += f"; os.rename('{mark}.new', '{mark}')"
    return [sys.executable, "-I", "-S", "-c", code]


def _appears(mark: Path) -> None:
    until_s = CLOCK.monotonic_s() + 120.0
    while not mark.exists():
        if CLOCK.monotonic_s() > until_s:
            sys.exit(f"{mark} does not appear")
        CLOCK.sleep(0.02)


def _by_sbatch(bed: Cluster, mark: Path) -> None:
    words = " ".join(f'"{word}"' for word in _program(mark))
    bed.says("sbatch", "--partition=low", "--output=/dev/null", f"--wrap=srun {words}")
    _appears(mark)


def _by_driver(bed: Cluster, place: Path, way: str, mark: Path) -> None:
    engines, hosts = Engines(lambda _: SlurmClient(), CLOCK), SshHosts(CLOCK)
    driver = SlurmDriver(place / "runs", CLOCK, engines.of, DaemonExecutor(), hosts.of)
    one = order(place / "runs", mark.name, _program(mark))
    driver.submit(Site(name="here", kind="slurm", nodes=(), slurm=bed.ways[way]), [one])
    while not mark.exists():
        if any(isinstance(fact, TaskEnded | TaskRefused) for fact in driver.observe([one.task])):
            sys.exit(f"{mark.name}: its program did not run")
        CLOCK.sleep(0.1)  # a beat of the control loop


def _by_gridloom(bed: Cluster, place: Path, mark: Path) -> None:
    slurm = {"network": "127.0.0.0/8", "partition": "low", "environment": bed.environment}
    node = {f"{NAME}-n[0-1]": {"accelerators": "cpu:1"}}
    sites = {"hpc": {"kind": "slurm", "nodes": node, "slurm": slurm}}
    (place / "grid.yaml").write_text(json.dumps({"sites": sites}))
    code = _program(mark)[-1]
    job = {
        "name": "one", "grid": "grid.yaml", "workdir": "/",
        "run": f'{sys.executable} -I -S -c "{code}"', "resources": {"accelerators": "cpu:1"},
    }  # fmt: skip
    (place / "job.yaml").write_text(json.dumps(job))
    environment = os.environ | {"GRIDLOOM_HOME": str(place / "home"), "PYTHONPATH": PATH}
    submit = [sys.executable, "-P", "-m", "gridloom.cli.main", "submit", str(place / "job.yaml")]
    subprocess.run(submit, env=environment, check=True, capture_output=True)
    _appears(mark)


def main() -> None:
    jobs, rounds = (int(word) for word in (*sys.argv[1:], "500", "7")[:2])
    with cluster() as bed, tempfile.TemporaryDirectory() as name:
        place = Path(name)
        if jobs:
            observe(bed, place / "runs", jobs)
        if rounds:
            hand_in(bed, place, rounds)


if __name__ == "__main__":
    main()
