"""The commands of a Slurm, as far as the driver needs them."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from gridloom.base.errors import SiteError
from gridloom.sites.remote.link import Done
from gridloom.sites.slurm.command import ENVIRONMENT
from gridloom.sites.slurm.engine import AwayError, is_away
from gridloom.sites.slurm.once import tool

TIMEOUT_S = 60.0
"""How long a command may take."""
_NO_COMMAND = 127
_CONF_VARIABLE = "SLURM_CONF"


class SlurmClient:
    """Runs Slurm's commands here."""

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

    def _done(self, argv: Sequence[str], environment: Mapping[str, str], stdin: str) -> Done:
        variables = {**environment, **ENVIRONMENT}
        words = ("/usr/bin/env", *(f"{name}={value}" for name, value in variables.items()), *argv)
        self._check(environment)
        done = self._execute(words, stdin, tool(argv))
        if done.code == 0:
            return done
        if done.code == _NO_COMMAND:
            raise SiteError(self._lacks(tool(argv)))
        said = (line.strip() for line in done.stderr.splitlines())
        lines = [line for line in said if line and not line.startswith('Try "')]
        last = lines[-1] if lines else f"exit status {done.code}"
        if any(map(is_away, lines)):
            raise AwayError(last)
        raise SiteError(last)

    def _check(self, environment: Mapping[str, str]) -> None:
        file = environment.get(_CONF_VARIABLE, "")
        if file and not Path(file).is_file():  # the command would look elsewhere for a minute
            raise SiteError(f"{_CONF_VARIABLE} is {file}, and there is no such file")

    def _lacks(self, name: str) -> str:
        return f"there is no command {name} here"

    def _execute(self, words: Sequence[str], stdin: str, name: str) -> Done:
        """Return how a command ended; ``name`` is what it is called in errors.

        Raises:
            AwayError: It does not answer.
            SiteError: It cannot be run.
        """
        try:
            done = subprocess.run(  # noqa: S603 - words, not a shell's line
                words,
                input=stdin,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise AwayError(f"{name} has not answered for {TIMEOUT_S:g} s") from None
        except OSError as error:
            raise SiteError(f"{name} cannot be run: {error.strerror}") from error
        return Done(code=done.returncode, stdout=done.stdout, stderr=done.stderr)
