"""The only place that joins ports to implementations."""

import contextlib
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gridloom.agent.processes import sweep
from gridloom.base.clock import Clock
from gridloom.base.errors import SiteError, StaleWriterError
from gridloom.base.system import SystemClock
from gridloom.cli.settings import Settings
from gridloom.control.close import close_job
from gridloom.control.dispatch import Dispatch
from gridloom.control.intake import Intake
from gridloom.control.leader import Leadership
from gridloom.control.loop import ControlLoop
from gridloom.control.restore import catch_up, restore
from gridloom.core.machine import Machine
from gridloom.core.state import State
from gridloom.core.turn import LeaseTerms
from gridloom.model.action import CloseJob
from gridloom.model.inventory import Inventory, Site, SlurmAccess, SshAccess
from gridloom.model.life import Job
from gridloom.ports.driver import Driver
from gridloom.sites.local.driver import LocalDriver
from gridloom.sites.threads import DaemonExecutor
from gridloom.store.journal import SqlJournal

if TYPE_CHECKING:
    from gridloom.sites.kube.api import Api, Place
    from gridloom.sites.kube.client import KubeClient
    from gridloom.sites.remote.host import Host
    from gridloom.sites.slurm.engine import SlurmEngine
    from gridloom.sites.slurm.gather import Commands
    from gridloom.sites.ssh.hosts import SshHosts

_ROUTINE_S = 2.0
"""Between two renewals of a lease: a third of it, so that two in a row may go missing."""

_BEAT_S = 0.1
_HEIR_S = 10.0
"""How long to lead on until the process that is to take over is ready."""


class LoginHosts:
    """Login hosts, the same one for the same; their library is not everybody's, and loads long."""

    def __init__(self, clock: Clock) -> None:
        """Reach none yet."""
        self._clock = clock
        self._hosts: SshHosts | None = None

    def of(self, access: SshAccess) -> "Host":
        """Return a login host.

        Raises:
            SiteError: The library is not there.
        """
        if self._hosts is None:
            try:
                from gridloom.sites.ssh.hosts import SshHosts
            except ImportError as error:
                raise SiteError(
                    f"{error}; sites over SSH need `pip install 'gridloom[ssh]'`"
                ) from error
            self._hosts = SshHosts(self._clock)
        return self._hosts.of(access)

    def close(self) -> None:
        """End all connections."""
        if self._hosts is not None:
            self._hosts.close()


def slurm_of(site: Site, hosts: LoginHosts) -> "tuple[SlurmEngine, Commands | None]":
    """Return how the Slurm of a site is asked, and its commands where they are what is used.

    Args:
        site: Which.
        hosts: Login hosts, should its commands be run at one.
    """
    from gridloom.sites.slurm.engines import Engines
    from gridloom.sites.slurm.gather import Commands
    from gridloom.sites.slurm.remote_client import clients

    access = site.slurm or SlurmAccess()
    client = clients(lambda access: hosts.of(access).link)
    commands = None if access.rest else Commands(client(access.ssh), access.environment)
    return Engines(client, SystemClock()).of(access), commands


def kube_client(place: "Place", clock: Clock) -> "KubeClient":
    """Return the client of a cluster; its library is not everybody's, and takes long to load.

    Raises:
        SiteError: There is none.
    """
    try:
        from gridloom.sites.kube.client import KubeClient
    except ImportError as error:
        raise SiteError(
            f"{error}; sites under Kubernetes need `pip install 'gridloom[kube]'`"
        ) from error
    return KubeClient(place, clock)


class Plane:
    """The embedded control plane over one state directory, led by this process or by another."""

    def __init__(self, settings: Settings) -> None:
        """Open the state directory, making it when it is missing.

        Raises:
            SiteError: It cannot be opened.
        """
        self.settings = settings
        self.clock = SystemClock()
        self.journal = SqlJournal(settings.journal)
        self._leadership = Leadership(settings.lock)
        self._loop: ControlLoop | None = None
        self._seen: tuple[Machine, int] | None = None
        self._background: subprocess.Popen[bytes] | None = None

    @property
    def leads(self) -> bool:
        """Whether this process is the one writer."""
        return self._loop is not None

    def led(self) -> bool:
        """Return whether any process is the one writer now."""
        return self._leadership.taken()

    def try_to_lead(self) -> bool:
        """Become the one writer unless somebody is; return whether this process is it now."""
        if self._loop is None and self._leadership.acquire():
            try:
                self._loop = self._build_loop()
            finally:
                if self._loop is None:
                    self._leadership.release()
        return self._loop is not None

    def beat(self) -> None:
        """Take one turn of the control loop; nothing when another process leads.

        Raises:
            SiteError: The state directory cannot be used any more.
        """
        if self._loop is None:
            return
        if not self._leadership.intact():
            raise SiteError(
                f"{self.settings.home} was removed or replaced while a control plane ran over it; "
                "its jobs end when their leases lapse"
            )
        self._loop.beat()

    def troubles(self) -> Sequence[str]:
        """Return what this process, as the one writer, could not carry out, a sentence each."""
        return self._loop.troubles if self._loop is not None else ()

    def idle(self) -> bool:
        """Return whether the control loop has nothing left to do."""
        return self._loop is None or self._loop.idle()

    def state(self) -> State:
        """Return what the scheduler knows, ours or as the journal has it, and why jobs wait."""
        if self._loop is not None:
            self._seen = None
            return self._loop.told()
        if self._seen is None:
            self._seen = restore(self.journal)
        else:
            machine, seq = self._seen
            self._seen = machine, catch_up(machine, seq, self.journal)
        return self._seen[0].told()

    def closed(self, job_id: str) -> bool:
        """Return whether everything was written that is to be written of a job that is over."""
        outbox = self.journal.outbox()
        return not any(isinstance(a, CloseJob) and a.job_id == job_id for _, a in outbox)

    def abandon(self) -> None:
        """Stop being the one writer and hand nothing over: it could not be gone on with."""
        self._loop = None
        self._leadership.release()

    def end(self) -> None:
        """Stop being the one writer, and leave a snapshot: whoever leads next starts from it."""
        if self._loop is not None and self._leadership.intact():
            # Without the snapshot, only a version with other rules could not go on
            with contextlib.suppress(SiteError, StaleWriterError):
                self._loop.leave()
        self._loop = None
        self._leadership.release()

    def release(self) -> None:
        """Stop being the one writer; hand what is still under way to a background process.

        Leases are renewed until that process is ready: on a busy machine its start may take longer
        than they last.
        """
        if self._loop is None:
            return
        idle = self._loop.idle()
        if not idle:
            self._spawn()
            self._lead_until_heir()
        self.end()
        if not idle or self.journal.letters():
            self.start_background()

    def start_background(self) -> None:
        """Start a control plane that runs until nothing is left to do, unless one runs already."""
        starting = self._background is not None and self._background.poll() is None
        if not starting and not self.led():
            self._spawn()

    def _lead_until_heir(self) -> None:
        heir = Leadership(self.settings.heir_lock)
        until_s = self.clock.monotonic_s() + _HEIR_S
        while not heir.taken() and self.clock.monotonic_s() < until_s:
            self.beat()
            self.clock.sleep(_BEAT_S)

    def _spawn(self) -> None:
        with self.settings.control_log.open("ab") as log:
            self._background = subprocess.Popen(
                # -P: what lies in the user's directory must not be imported for what we mean
                [sys.executable, "-P", "-m", "gridloom.cli.main", "control", "--until-idle"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _build_loop(self) -> ControlLoop:
        # Only who leads needs them: what is looked at by the other commands is there in a blink
        from gridloom.sites.kube.driver import KubeDriver
        from gridloom.sites.slurm.driver import SlurmDriver
        from gridloom.sites.slurm.engines import Engines
        from gridloom.sites.slurm.remote_client import clients

        hosts = LoginHosts(self.clock)
        runs = self.settings.runs
        terms = LeaseTerms()
        drivers: dict[str, Driver] = {
            "local": LocalDriver(runs, sys.executable, self.clock, sweep),
            "slurm": SlurmDriver(
                runs,
                self.clock,
                Engines(clients(lambda access: hosts.of(access).link), self.clock).of,
                DaemonExecutor(),
                hosts.of,
            ),
            "kubernetes": KubeDriver(runs, self.clock, self._kube, DaemonExecutor()),
        }
        dispatch = Dispatch(self.journal, drivers, runs, terms, close=self._close)
        return ControlLoop(
            self.journal, Intake(self.journal, self.clock, _ROUTINE_S), dispatch, self.clock
        )

    def _kube(self, place: "Place") -> "Api":
        return kube_client(place, self.clock)

    def _close(self, job: Job, inventory: Inventory | None) -> None:
        close_job(self.settings.runs, job, inventory, self.journal)
