"""Which engine asks the Slurm of a site."""

from collections.abc import Callable

from gridloom.base.clock import Clock
from gridloom.model.inventory import SlurmAccess, SlurmRest, SshAccess
from gridloom.sites.slurm.client import SlurmClient
from gridloom.sites.slurm.command_engine import CommandEngine
from gridloom.sites.slurm.engine import SlurmEngine
from gridloom.sites.slurm.rest_client import RestClient
from gridloom.sites.slurm.rest_engine import RestEngine

_Key = SlurmRest | tuple[SshAccess | None, tuple[tuple[str, str], ...]]
"""What tells one Slurm from another."""


class Engines:
    """The engines of all Slurms, one for each."""

    def __init__(self, clients: Callable[[SshAccess | None], SlurmClient], clock: Clock) -> None:
        """Make engines when they are asked for.

        Args:
            clients: Returns what runs Slurm's commands: at a login host, or here.
            clock: For the age of tokens.
        """
        self._clients = clients
        self._clock = clock
        self._made: dict[_Key, SlurmEngine] = {}

    def of(self, access: SlurmAccess) -> SlurmEngine:
        """Return the engine of a site's Slurm: of sites under one Slurm it is the same."""
        key = access.rest or (access.ssh, tuple(sorted(access.environment.items())))
        if key not in self._made:
            self._made[key] = self._new(access)
        return self._made[key]

    def _new(self, access: SlurmAccess) -> SlurmEngine:
        if access.rest is not None:
            return RestEngine(RestClient(access.rest, self._clock))
        client = self._clients(access.ssh)
        return CommandEngine(client, access.environment, is_far=access.ssh is not None)
