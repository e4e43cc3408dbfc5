"""Which engine asks the Slurm of a site."""

from gridloom.base.clock import Clock
from gridloom.model.inventory import SlurmAccess, SlurmRest
from gridloom.sites.slurm.client import SlurmClient
from gridloom.sites.slurm.command_engine import CommandEngine
from gridloom.sites.slurm.engine import SlurmEngine
from gridloom.sites.slurm.rest_client import RestClient
from gridloom.sites.slurm.rest_engine import RestEngine

_Key = SlurmRest | tuple[tuple[str, str], ...]
"""What tells one Slurm from another."""


class Engines:
    """The engines of all Slurms, one for each."""

    def __init__(self, client: SlurmClient, clock: Clock) -> None:
        """Make engines when they are asked for.

        Args:
            client: Runs Slurm's commands.
            clock: For the age of tokens.
        """
        self._client = client
        self._clock = clock
        self._made: dict[_Key, SlurmEngine] = {}

    def of(self, access: SlurmAccess) -> SlurmEngine:
        """Return the engine of a site's Slurm: of sites under one Slurm it is the same."""
        rest = access.rest
        key = rest or tuple(sorted(access.environment.items()))
        if key not in self._made:
            self._made[key] = (
                RestEngine(RestClient(rest, self._clock))
                if rest
                else CommandEngine(self._client, access.environment)
            )
        return self._made[key]
