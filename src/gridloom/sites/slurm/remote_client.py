"""Slurm's commands, run at a login host."""

from collections.abc import Callable, Mapping, Sequence

from gridloom.model.inventory import SshAccess
from gridloom.sites.remote.errors import LinkDownError
from gridloom.sites.remote.link import Done, Link
from gridloom.sites.slurm.client import TIMEOUT_S, SlurmClient
from gridloom.sites.slurm.engine import AwayError


class RemoteClient(SlurmClient):
    """Runs Slurm's commands at the other end of a link."""

    def __init__(self, link: Callable[[], Link]) -> None:
        """Run them at the login host whose link is returned, which is asked for with each call."""
        self._link = link

    def _check(self, environment: Mapping[str, str]) -> None:
        """Say nothing of files there."""

    def _lacks(self, name: str) -> str:
        return f"{self._link().place} has no command {name}, where nobody logs in"

    def _execute(self, words: Sequence[str], stdin: str, name: str) -> Done:
        try:
            return self._link().run(words, stdin, timeout_s=TIMEOUT_S)
        except LinkDownError as error:
            raise AwayError(str(error)) from error


def clients(links: Callable[[SshAccess], Link]) -> Callable[[SshAccess | None], SlurmClient]:
    """Return what makes a client for a login host, or for here where there is none.

    Args:
        links: Returns the link of a login host, the same one for the same host.
    """

    def client(access: SshAccess | None) -> SlurmClient:
        return SlurmClient() if access is None else RemoteClient(lambda: links(access))

    return client
