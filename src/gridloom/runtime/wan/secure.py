"""TLS contexts for connections between sites: both sides show a certificate of one authority.

Names in certificates are not compared with host names: who holds a certificate of the authority is
of the job, and the greeting proves the token on top. So an authority should serve one grid only.
"""

import contextlib
import dataclasses
import ssl
from pathlib import Path

from gridloom.base.errors import InputError, Problem
from gridloom.runtime.wan.settings import TransportSettings


@dataclasses.dataclass(frozen=True)
class Contexts:
    """The two halves of mutual TLS: for the side that is dialled, and for the one that dials."""

    server: ssl.SSLContext
    client: ssl.SSLContext


def contexts(settings: TransportSettings) -> Contexts | None:
    """Return the contexts that the settings name; ``None`` without TLS.

    Raises:
        InputError: A file is missing, is not PEM, or certificate, key and authority do not fit.
    """
    certificate, key, authority = settings.certificate, settings.key, settings.authority
    if certificate is None or key is None or authority is None:
        return None
    files = {"certificate": certificate, "key": key, "authority": authority}
    problems = [
        Problem("no such file, or it cannot be read", "name a PEM file", file=path, field=field)
        for field, path in files.items()
        if not _readable(Path(path))
    ]
    if problems:
        raise InputError(problems)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        _load(context, certificate, key, authority)
    _try_on_itself(server, client, certificate)
    return Contexts(server, client)


def _readable(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return bool(file.read(1))
    except OSError:
        return False


def _load(context: ssl.SSLContext, certificate: str, key: str, authority: str) -> None:
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        remedy = "certificate and key must be PEM, belong together, and have no password"
        message = f"certificate or key ({key}) cannot be used: {error.reason or error}"
        problem = Problem(message, remedy, file=certificate, field="certificate")
        raise InputError([problem]) from None
    try:
        context.load_verify_locations(authority)
    except ssl.SSLError as error:
        message = f"cannot be used: {error.reason or error}"
        problem = Problem(message, "a PEM certificate", file=authority, field="authority")
        raise InputError([problem]) from None


def _try_on_itself(server: ssl.SSLContext, client: ssl.SSLContext, certificate: str) -> None:
    """Shake hands in memory: no other site would accept what this site itself does not."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    try:
        for _ in range(3):  # a TLS 1.3 handshake has three flights
            for end in ends:
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()
    except ssl.SSLCertVerificationError as error:
        message = f"does not stand up to the authority: {error.verify_message}"
        remedy = "a certificate that the authority has signed and that is valid now"
        problem = Problem(message, remedy, file=certificate, field="certificate")
        raise InputError([problem]) from None
