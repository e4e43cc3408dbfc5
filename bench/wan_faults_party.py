"""Sites that train together on a bed, what they print, and what can be done to them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.wan_bed import PATH, Bed

from gridloom.wire.launch import Rank

_POLL_S = 0.05
_COMMAND = (sys.executable, "-m", "bench.wan_faults_site")


@dataclass(frozen=True)
class Step:
    """One training step of a site.

    Attributes:
        number: From 1.
        at_s: When it was over, by the machine's monotonic clock.
        seconds: Since the step before of the same process; 0 for its first.
        loss: Before the update, nats a token.
        alone: Without ``Sync``.
        rounds: Numbers of the rounds taken in, with how many sites were in each.
        pid: The process.
    """

    number: int
    at_s: float
    seconds: float
    loss: float
    alone: bool
    rounds: tuple[tuple[int, int], ...]
    pid: int


@dataclass
class Site:
    """What the processes of a site have printed, one after the other.

    Attributes:
        name: Of the site.
        steps: In order.
        events: What happened to its connections, a sentence each.
        end: The last line of a process that came to its end.
        errors: The end of what its processes wrote to stderr.
        process: The one that runs, or ran last.
    """

    name: str
    steps: list[Step] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)
    errors: str = ""
    process: "subprocess.Popen[str] | None" = None

    def take(self, line: dict[str, Any]) -> None:
        """Note a line."""
        if line["kind"] == "end":
            self.end = line
            self.events += line["events"]
        if line["kind"] != "step":
            return
        before = self.steps[-1] if self.steps and self.steps[-1].pid == line["pid"] else None
        seconds = line["at_s"] - before.at_s if before else 0.0
        rounds = tuple((number, count) for number, count in line["rounds"])
        self.events += line["events"]
        self.steps.append(
            Step(
                line["step"], line["at_s"], seconds, line["loss"], line["alone"], rounds,
                line["pid"],
            )
        )  # fmt: skip


class Party:
    """All sites of a bed, each a process that trains until it is told to stop.

    Attributes:
        sites: By name.
    """

    def __init__(self, bed: Bed, options: Sequence[str], patience_s: float = 60.0) -> None:
        """Start all sites, each on a core of its own as far as there are any.

        Args:
            bed: Where.
            options: Of ``bench/wan_faults_site.py``.
            patience_s: How long to wait for a process to begin or to end.
        """
        self._bed, self._options, self._patience_s = bed, tuple(options), patience_s
        self._readers: list[threading.Thread] = []
        self.sites = {name: Site(name) for name in bed.sites}
        for name in bed.sites:
            self.start(name)

    @property
    def steps(self) -> int:
        """Training steps of all sites so far, with those of processes that were killed."""
        return sum(len(site.steps) for site in self.sites.values())

    def start(self, name: str) -> None:
        """Start a site's process; its steps are counted on from the furthest site's."""
        steps = [site.steps[-1].number for site in self.sites.values() if site.steps]
        first = max(steps, default=0) + 1
        number, site = self._bed.sites.index(name), self.sites[name]
        process = self._bed.start(
            name,
            [*_COMMAND, *self._options, f"--first-step={first}"],
            core=number % (os.cpu_count() or 1),
            environment={**self._contract(number), "OMP_NUM_THREADS": "1", "PYTHONPATH": PATH},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        site.process = process
        for read in (_read_lines, _read_errors):
            reader = threading.Thread(target=read, args=(process, site), daemon=True)
            reader.start()
            self._readers.append(reader)

    def kill(self, name: str) -> None:
        """End a site's process as a power cut does, and wait until it is gone."""
        process = self.sites[name].process
        if process is not None:
            self._bed.kill(process)

    def restart(self, name: str) -> None:
        """Start a process anew, and wait until it has trained."""
        before = len(self.sites[name].steps)
        self.start(name)
        self.until(lambda: len(self.sites[name].steps) > before, f"{name} trains again")

    def stop(self) -> None:
        """Ask all sites to end, and wait until they have.

        Raises:
            TimeoutError: One hangs.
        """
        running = [site.process for site in self.sites.values() if site.process is not None]
        for process in running:
            self._bed.kill(process, signal.SIGTERM)
        self.until(lambda: all(p.poll() is not None for p in running), "all sites have ended")
        for reader in self._readers:
            reader.join(self._patience_s)

    def until(self, holds: Callable[[], bool], what: str, limit_s: float | None = None) -> None:
        """Wait until something holds.

        Raises:
            TimeoutError: It did not in time.
            RuntimeError: A site failed meanwhile.
        """
        deadline_s = time.monotonic() + (limit_s or self._patience_s)
        while not holds():
            self._check()
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"not in time: {what}\n{self.told()}")
            time.sleep(_POLL_S)
        self._check()

    def told(self) -> str:
        """Return what helps to find out what went wrong."""
        return "\n".join(
            f"{site.name}: {len(site.steps)} steps, {site.events[-5:]} {site.errors[-2000:]}"
            for site in self.sites.values()
        )

    @contextlib.contextmanager
    def slowed(self, name: str, factor: float, period_s: float = 0.3) -> Iterator[None]:
        """Let a site run for one part in ``factor`` of the time, while the block lasts.

        All its threads are stopped for the rest, as by a quota: a connection that it owes an
        answer waits too.
        """
        over, process = threading.Event(), self.sites[name].process
        if process is None:
            raise ValueError(f"{name} does not run")

        def tread() -> None:
            while not over.is_set():
                self._bed.kill(process, signal.SIGSTOP)
                over.wait(period_s * (1 - 1 / factor))
                self._bed.kill(process, signal.SIGCONT)
                over.wait(period_s / factor)

        thread = threading.Thread(target=tread, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _check(self) -> None:
        for site in self.sites.values():
            code = site.process.poll() if site.process is not None else None
            if code not in (None, 0, -signal.SIGKILL):
                raise RuntimeError(f"{site.name} ended with {code}\n{self.told()}")

    def _contract(self, number: int) -> dict[str, str]:
        """Return the launch contract of a site of one rank."""
        names = self._bed.sites
        addresses = tuple(self._bed.address(name) for name in names)
        rank = Rank(
            job_id="bench", attempt=1, epoch=1, rank=number, world_size=len(names), local_rank=0,
            local_world_size=1, node_rank=number, node_count=len(names), site=names[number],
            site_ranks=tuple((name, 1) for name in names), node_addresses=addresses,
            master_address=addresses[0], master_port=29500, restart_count=0, run_dir="",
            report_file="", grace_s=30.0, node_ranks=(1,) * len(names),
        )  # fmt: skip
        return rank.environment()


def _read_lines(process: "subprocess.Popen[str]", site: Site) -> None:
    if process.stdout is not None:
        with process.stdout as lines:
            for text in lines:
                with contextlib.suppress(ValueError):  # the last line of one that was killed
                    site.take(json.loads(text))


def _read_errors(process: "subprocess.Popen[str]", site: Site) -> None:
    if process.stderr is not None:
        with process.stderr as lines:
            for text in lines:
                site.errors += text
