"""The commands of a Slurm, as far as the driver needs them."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from gridloom.base.errors import SiteError
from gridloom.sites.slurm.command import ENVIRONMENT
from gridloom.sites.slurm.engine import AwayError, is_away

_TIMEOUT_S = 60.0
_NO_COMMAND = 127
_CONF_VARIABLE = "SLURM_CONF"


class SlurmClient:
    """Runs Slurm's commands."""

    def run(self, argv: Sequence[str], environment: Mapping[str, str], stdin: str = "") -> str:
        """Return what a command prints.

        Args:
            argv: Its words.
            environment: Variables beside those of this process.
            stdin: What it reads.

        Raises:
            AwayError: Slurm does not answer.
            SiteError: The command cannot be run, or says no.
        """
        return self._done(argv, environment, stdin).stdout

    def notes(self, argv: Sequence[str], environment: Mapping[str, str], stdin: str = "") -> str:
        """Return what a command prints where errors go, though it says yes; raise like ``run``."""
        return self._done(argv, environment, stdin).stderr

    def _done(
        self, argv: Sequence[str], environment: Mapping[str, str], stdin: str
    ) -> "subprocess.CompletedProcess[str]":
        file = environment.get(_CONF_VARIABLE, "")
        if file and not Path(file).is_file():  # the command would look elsewhere for a minute
            raise SiteError(f"{_CONF_VARIABLE} is {file}, and there is no such file")
        variables = {**environment, **ENVIRONMENT}
        try:
            done = subprocess.run(  # noqa: S603 - words, not a shell's line
                ["/usr/bin/env", *(f"{name}={value}" for name, value in variables.items()), *argv],
                input=stdin,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise AwayError(f"{argv[0]} has not answered for {_TIMEOUT_S:g} s") from None
        except OSError as error:
            raise SiteError(f"{argv[0]} cannot be run: {error.strerror}") from error
        if done.returncode == 0:
            return done
        if done.returncode == _NO_COMMAND:
            raise SiteError(f"there is no command {argv[0]} here")
        said = (line.strip() for line in done.stderr.splitlines())
        lines = [line for line in said if line and not line.startswith('Try "')]
        last = lines[-1] if lines else f"exit status {done.returncode}"
        if any(map(is_away, lines)):
            raise AwayError(last)
        raise SiteError(last)
