"""Sites with an emulated WAN between them, or with none, for as long as a ``with`` block lasts.

    with Bed(("a", "b"), ["* delay=20ms rate=100mbit"]) as bed:
        ranks = bed.start_ranks(["python", "train.py"], cores=[0, 1])
        bed.shape("* delay=20ms rate=100mbit", "a b down")
        bed.kill(ranks[1])

Without links the sites stand on one switch in the kernel: the same processes, the same addresses,
no WAN. Needs root; what the emulation costs is told in ``tests/beds/wan/README.md``. However the
block ends, by Ctrl-C and SIGTERM too, every process in the sites is killed and the sites are gone.
"""

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

ROOT = Path(__file__).parents[1]
PATH = os.pathsep.join((str(ROOT), str(ROOT / "src")))
"""Where ranks find what they run: this tree, whatever is installed."""
SCRIPTS = ROOT / "tests" / "beds" / "wan"
INTERFACE = "wan0"
"""What a site's one interface is called, inside the site."""

MASTER_PORT = 29400
_NETWORK = "10.77.0"  # the same in every bed: namespaces keep them apart
_NUMBERS = itertools.count()


class Bed:
    """Two or more sites, each a network namespace.

    Attributes:
        sites: Their names.
        shaped: Whether there is a WAN between them.
        hub_pid: Of the process that carries the frames; ``None`` without a WAN.
    """

    def __init__(
        self, sites: Sequence[str] = ("a", "b"), links: Sequence[str] = (), batch: str = "1ms"
    ) -> None:
        """Describe a bed; it is made when the ``with`` block is entered.

        Args:
            sites: Names, of small letters and digits.
            links: Lines as ``wan_link.py`` reads them; none for a bed without a WAN.
            batch: How long the hub sleeps between two looks: longer takes less of the cores that
                the sites compute on, and frames are up to that late.
        """
        self.sites, self.shaped = tuple(sites), bool(links)
        self.hub_pid: int | None = None
        self._links, self._batch = tuple(links), batch
        self._prefix = f"w{os.getpid()}x{next(_NUMBERS)}"
        self._place = Path()
        self._started: list[subprocess.Popen[Any]] = []
        self._sigterm: Any = None

    def __enter__(self) -> "Bed":
        self._place = Path(tempfile.mkdtemp(prefix="wan-bed-"))
        self._sigterm = signal.signal(signal.SIGTERM, _leave)
        try:
            command = ["--sites", " ".join(self.sites), "--prefix", self._prefix]
            command += ["--net", _NETWORK, "--batch", self._batch]
            self._script("wan_up.sh", *command, *self._link_arguments())
        except BaseException:
            self._down()
            raise
        if self.shaped:
            self.hub_pid = int((self._place / "hub.pid").read_text())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._down()

    def address(self, site: str) -> str:
        """Return a site's address, the same for all its processes."""
        return f"{_NETWORK}.{self.sites.index(site) + 1}"

    def start(
        self,
        site: str,
        command: Sequence[str],
        *,
        core: int | None = None,
        environment: Mapping[str, str] | None = None,
        **popen: Any,
    ) -> subprocess.Popen[Any]:
        """Start a process group in a site.

        Args:
            site: Where.
            command: What, in the folder of the repository unless ``popen`` says otherwise.
            core: The only core that it and its children may run on.
            environment: Added to this process's own.
            popen: More for ``subprocess.Popen``, as where its output goes.
        """
        pinned = [] if core is None else ["taskset", "--cpu-list", str(core)]
        process = subprocess.Popen(
            ["ip", "netns", "exec", f"{self._prefix}-{site}", *pinned, *command],
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            **({"cwd": ROOT} | popen),
        )
        self._started.append(process)
        return process

    def start_ranks(
        self,
        command: Sequence[str],
        *,
        cores: Sequence[int | None],
        environment: Mapping[str, str] | None = None,
        **popen: Any,
    ) -> list[subprocess.Popen[Any]]:
        """Start one rank a site under torchrun's variables; site number n runs on ``cores[n]``."""
        world = {
            "WORLD_SIZE": str(len(self.sites)),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": self.address(self.sites[0]),
            "MASTER_PORT": str(MASTER_PORT),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": INTERFACE,
            **(environment or {}),
        }
        return [
            self.start(site, command, core=core, environment={**world, "RANK": str(rank)}, **popen)
            for rank, (site, core) in enumerate(zip(self.sites, cores, strict=True))
        ]

    def shape(self, *links: str) -> None:
        """Replace all links while traffic flows; a change is seen within a second.

        Raises:
            ValueError: There is no WAN.
        """
        if not self.shaped:
            raise ValueError("this bed has no WAN whose links could change")
        self._links = links
        self._script("wan_up.sh", *self._link_arguments())

    def kill(self, process: subprocess.Popen[Any], sent: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a process and its children, and wait if it is to end them."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sent)
        if sent == signal.SIGKILL:
            process.wait()

    def carried_bytes(self) -> dict[str, int]:
        """Return bytes that the hub has carried by direction (``a>b``), a second old at most."""
        if not self.shaped:
            return {}
        found = json.loads((self._place / "stats.json").read_text())
        return {pair: counts["bytes"] for pair, counts in found.items()}

    def hub_cpu_s(self) -> float:
        """Return the CPU seconds that the hub has used: they are taken from the sites' cores."""
        if self.hub_pid is None:
            return 0.0
        fields = Path(f"/proc/{self.hub_pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _link_arguments(self) -> list[str]:
        if not self.shaped:
            return ["--hub", "bridge"]
        return [word for link in self._links for word in ("--link", link)]

    def _script(self, name: str, *arguments: str) -> None:
        """Run a script of the bed out of reach of Ctrl-C, so that it never stops halfway."""
        subprocess.run(
            [SCRIPTS / name, "--dir", self._place, *arguments],
            check=True,
            timeout=120,
            start_new_session=True,
        )

    def _down(self) -> None:
        with _undisturbed():
            for process in self._started:
                self.kill(process)
            for pid in self._left():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._script("wan_down.sh")
            shutil.rmtree(self._place, ignore_errors=True)
        signal.signal(signal.SIGTERM, self._sigterm)

    def _left(self) -> list[int]:
        """Return the processes in the sites that have left the groups they were started in."""
        pids: list[int] = []
        for site in self.sites:
            command = ["ip", "netns", "pids", f"{self._prefix}-{site}"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            pids += [int(word) for word in done.stdout.split()]
        return pids


def _leave(signum: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + signum)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM off: taking down must come to its end."""
    held = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.SIG_IGN) for number in held]
    try:
        yield
    finally:
        for number, handler in zip(held, before, strict=True):
            signal.signal(number, handler)
