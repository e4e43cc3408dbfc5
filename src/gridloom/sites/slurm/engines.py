"""Which engine asks the Slurm of a site."""

from gridloom.model.inventory import SlurmAccess
from gridloom.sites.slurm.client import SlurmClient
from gridloom.sites.slurm.command_engine import CommandEngine
from gridloom.sites.slurm.engine import SlurmEngine

_Key = tuple[tuple[str, str], ...]
"""What tells one Slurm from another."""


class Engines:
    """The engines of all Slurms, one for each."""

    def __init__(self, client: SlurmClient) -> None:
        """Make engines when they are asked for.

        Args:
            client: Runs Slurm's commands.
        """
        self._client = client
        self._made: dict[_Key, SlurmEngine] = {}

    def of(self, access: SlurmAccess) -> SlurmEngine:
        """Return the engine of a site's Slurm: of sites under one Slurm it is the same."""
        key = tuple(sorted(access.environment.items()))
        if key not in self._made:
            self._made[key] = CommandEngine(self._client, access.environment)
        return self._made[key]
