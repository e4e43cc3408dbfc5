"""Asks a slurmrestd over HTTP, as a user with a token."""

import http.client
import json
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gridloom.base.clock import Clock
from gridloom.base.errors import SiteError
from gridloom.base.files import cause_of
from gridloom.model.inventory import SlurmRest
from gridloom.sites.slurm.engine import AwayError
from gridloom.sites.slurm.token import claims, complaint, read_token

_TIMEOUT_S = 60.0
_COMMAND_TIMEOUT_S = 60.0
_EARLY_S = 60.0
"""So long before a token expires another one is fetched."""
_OLD_S = 30.0
"""A token that seems not to be taken is fetched again when it is as old as this."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What slurmrestd answered.

    Attributes:
        status: Of HTTP.
        body: What it says.
    """

    status: int
    body: bytes


class Tokens:
    """Where a user's tokens come from: a file that somebody renews, or a command."""

    def __init__(self, rest: SlurmRest, clock: Clock) -> None:
        self._rest = rest
        self._clock = clock
        self._printed = ""
        self._printed_s = 0.0

    @property
    def source(self) -> str:
        """What they are read from."""
        return self._rest.token_file or f"`{self._rest.token_command[0]}`"

    def get(self) -> str:
        """Return the token: the file's present one, or the command's unless that is at its end.

        Raises:
            SiteError: There is none.
        """
        if self._rest.token_file:
            try:
                text = Path(self._rest.token_file).expanduser().read_text(errors="replace")
            except OSError as error:
                raise SiteError(
                    f"the token in {self._rest.token_file} cannot be read: {cause_of(error)}"
                ) from error
            return read_token(text, self.source)
        if self._printed and claims(self._printed).is_over(self._clock.now_s() + _EARLY_S):
            self._printed = ""
        if not self._printed:
            self._printed = read_token(_output(self._rest.token_command), self.source)
            self._printed_s = self._clock.monotonic_s()
        return self._printed

    def doubt(self) -> None:
        """Fetch another one when it is needed, unless this one is quite new."""
        if self._clock.monotonic_s() - self._printed_s >= _OLD_S:
            self._printed = ""


class RestClient:
    """One slurmrestd and one user."""

    def __init__(self, rest: SlurmRest, clock: Clock) -> None:
        """Ask ``rest``; nothing is sent yet.

        Args:
            rest: Where it is.
            clock: For the age of tokens.
        """
        self._rest = rest
        self._clock = clock
        self._tokens = Tokens(rest, clock)
        self._url = urlsplit(rest.url)

    def call(self, method: str, path: str, body: Any = None) -> Answer:
        """Return the answer to one request, whatever it is.

        Args:
            method: Of HTTP.
            path: Behind the server's address, with a slash first.
            body: What is sent, as JSON; nothing for no body.

        Raises:
            AwayError: Nobody answers, or only because the token has expired.
            SiteError: The server's certificate or the token is not accepted, or there is none.
        """
        token = self._tokens.get()
        said = self._send(method, path, body, token)
        if said.status == http.HTTPStatus.UNAUTHORIZED:
            self._tokens.doubt()
            if (other := self._tokens.get()) != token:
                said = self._send(method, path, body, other)
        if said.status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
            raise self.rejected(f"HTTP {said.status}")
        if said.status in (502, 503, 504):  # of what stands before it
            raise AwayError(f"slurmrestd at {self._rest.url} answers HTTP {said.status}")
        return said

    def rejected(self, said: str) -> SiteError:
        """Return why the token is not accepted: only if it has expired, another may be there soon.

        Args:
            said: How that was told.
        """
        return self._complaint() or SiteError(
            f"slurmrestd at {self._rest.url} does not accept user {self._rest.user} with the "
            f"token of {self._tokens.source} ({said})"
        )

    def away(self, said: SiteError) -> SiteError:
        """Return why Slurm seems to be away: its answer, unless the token is the likelier cause.

        Args:
            said: What it said.
        """
        return self._complaint() or AwayError(
            f"{said}: the controller is away, or does not accept the token of {self._tokens.source}"
        )

    def _complaint(self) -> SiteError | None:
        """Return what the token itself says is wrong with it; ``None`` for nothing."""
        self._tokens.doubt()
        try:
            claimed = claims(self._tokens.get())
        except SiteError as error:
            return error
        wrong = complaint(claimed, self._rest.user, self._tokens.source, self._clock.now_s())
        return AwayError(wrong) if wrong else None

    def _send(self, method: str, path: str, body: Any, token: str) -> Answer:
        headers = {
            "X-SLURM-USER-NAME": self._rest.user,
            "X-SLURM-USER-TOKEN": token,
            "Accept": "application/json",
            **({} if body is None else {"Content-Type": "application/json"}),
        }
        data = None if body is None else json.dumps(body).encode()
        connection = self._connection()
        try:
            connection.request(method, self._url.path + path, data, headers)
            response = connection.getresponse()
            return Answer(status=response.status, body=response.read())
        except ssl.SSLCertVerificationError as error:
            raise SiteError(
                f"the certificate of {self._rest.url} is not accepted: {error.verify_message}: "
                "`rest.ca_file` names the certificates of those who vouch for it"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise AwayError(f"slurmrestd at {self._rest.url}: {_reason(error)}") from error
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
        ca_file = self._rest.ca_file
        try:
            trusted = str(Path(ca_file).expanduser()) if ca_file else None
            context = ssl.create_default_context(cafile=trusted)
        except OSError as error:  # of which SSLError is one
            raise SiteError(
                f"no certificates can be read from {ca_file}: {_reason(error)}"
            ) from error
        return http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=context)


def _output(argv: Sequence[str]) -> str:
    """Return what the command of a token prints; its errors do not repeat that."""
    try:
        done = subprocess.run(  # noqa: S603 - the grid file's own words, no shell
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise AwayError(f"`{argv[0]}` has printed no token for {_COMMAND_TIMEOUT_S:g} s") from None
    except OSError as error:
        raise SiteError(f"`{argv[0]}` cannot be run for a token: {error.strerror}") from error
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        why = f": {lines[-1]}" if lines else ""
        raise AwayError(f"`{argv[0]}` for a token ended with {done.returncode}{why}")
    return done.stdout


def _reason(error: Exception) -> str:
    """Return why in the words of the system: of some errors their kind is all there is."""
    said = error.strerror if isinstance(error, OSError) else ""
    return said or str(error) or type(error).__name__
