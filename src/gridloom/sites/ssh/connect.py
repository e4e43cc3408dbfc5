"""Opens a connection to a login host, and says in plain words why there is none."""

import os
import socket
from pathlib import Path
from typing import Any

import asyncssh

from gridloom.model.inventory import SshAccess
from gridloom.sites.remote.errors import LinkDownError, LinkRefusedError, RemoteError

_CONNECT_S = 20.0
"""How long TCP, the handshake and the authentication may take in all."""
_KEEPALIVE_S = 5.0
_KEEPALIVES_MAX = 3
"""So many without an answer, and the link is dead."""
_KNOWN_HOSTS = "~/.ssh/known_hosts"
_SSH_PORT = 22


async def connect(access: SshAccess) -> asyncssh.SSHClientConnection:
    """Return a connection that is authenticated; nobody is ever asked for a password.

    What is not said is as in the user's OpenSSH configuration.

    Raises:
        LinkDownError: The host is not reached now.
        LinkRefusedError: It is not the host that is known, or it does not accept us.
    """
    witness = _Witness()
    try:
        return await asyncssh.connect(access.host, **_options(access, witness))
    except (asyncssh.Error, asyncssh.ConfigParseError, asyncssh.KeyImportError) as error:
        raise _of_ssh(error, access, witness) from error
    except (OSError, TimeoutError, ValueError) as error:
        raise _of_system(error, access) from error


def place_of(access: SshAccess) -> str:
    """Return how a login host is called in sentences."""
    port = f":{access.port}" if access.port not in (0, _SSH_PORT) else ""
    return f"{access.host}{port}"


class _Witness(asyncssh.SSHClient):
    """Notes the key of a host that is not known."""

    def __init__(self) -> None:
        self.port = 0
        self.key: asyncssh.SSHKey | None = None
        self.is_changed = False

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        self.port, self.key = port, key
        return False


def _options(access: SshAccess, witness: _Witness) -> dict[str, Any]:
    """Return what is said to asyncssh; whatever is not said is as the configuration has it."""
    said: dict[str, Any] = {
        "port": access.port,
        "username": access.user,
        "known_hosts": _path(access.known_hosts),
        "client_keys": [_path(access.key_file)] if access.key_file else [],
    }
    return {
        **{name: value for name, value in said.items() if value},
        "client_factory": lambda: witness,
        "ignore_encrypted": True,  # the agent may have them open
        "password_auth": False,
        "kbdint_auth": False,
        "connect_timeout": _CONNECT_S,
        "keepalive_interval": _KEEPALIVE_S,
        "keepalive_count_max": _KEEPALIVES_MAX,
        "command": None,
        "request_pty": False,
        "agent_forwarding": False,
        "x11_forwarding": False,
    }


def _path(text: str) -> str:
    return str(Path(text).expanduser()) if text else ""


def _of_ssh(error: Exception, access: SshAccess, witness: _Witness) -> RemoteError:
    place, who = place_of(access), f"{access.user}@{access.host}" if access.user else access.host
    match error:
        case asyncssh.HostKeyNotVerifiable():
            return _of_host_key(error, access, witness)
        case asyncssh.PermissionDenied():
            key = access.key_file or "a key of yours"
            remedy = (
                f"let `ssh-copy-id {_port_words(access)}{who}` add {key} to those it accepts; open"
                " a key that has a passphrase with `ssh-add`, for nobody is asked for it"
            )
            return LinkRefusedError(f"{place} does not let us in: {error.reason}", remedy)
        case asyncssh.ConnectionLost():
            return LinkDownError(f"{place} is not reached: {error.reason}")
        case asyncssh.DisconnectError():
            if error.code == asyncssh.DISC_TOO_MANY_CONNECTIONS:
                return LinkDownError(f"{place} is not reached: {error.reason}")
            remedy = f"does `ssh {_port_words(access)}{who}` work?"
            return LinkRefusedError(f"{place} ends the connection: {error.reason}", remedy)
        case asyncssh.KeyImportError():
            remedy = "name a private key in `key_file:`, not the public one beside it"
            return LinkRefusedError(f"no key can be read for {place}: {error}", remedy)
        case _:
            remedy = "mend it, or write the same at the site"
            return LinkRefusedError(f"~/.ssh/config cannot be used: {error}", remedy)


def _of_host_key(error: Exception, access: SshAccess, witness: _Witness) -> LinkRefusedError:
    place, file = place_of(access), access.known_hosts or _KNOWN_HOSTS
    if witness.key is None:
        remedy = f"mend its line in {file}"
        return LinkRefusedError(f"{place} cannot be told from another host: {error}", remedy)
    key = f"{witness.key.get_algorithm()} {witness.key.get_fingerprint()}"
    if _knows(file, access.host, witness.port):
        return LinkRefusedError(
            f"{place} has another key than the one in {file}: {key}",
            "ask who runs it whether the key was changed; if so, remove the old one with"
            f" `ssh-keygen -R '{_known_name(access.host, witness.port)}' -f {file}`",
        )
    port = f"-p {witness.port} " if witness.port != _SSH_PORT else ""
    return LinkRefusedError(
        f"{place} is not among the known hosts of {file}; its key is {key}",
        "compare that with what the site publishes, then"
        f" `ssh-keyscan {port}{access.host} >> {file}`",
    )


def _of_system(error: OSError | TimeoutError | ValueError, access: SshAccess) -> RemoteError:
    place = place_of(access)
    match error:
        case socket.gaierror():
            found = f"{place} is not reached: no such host is found ({error.strerror})"
            return LinkDownError(found, "correct `host:`, or look at the network here")
        case TimeoutError():
            return LinkDownError(f"{place} has not answered for {_CONNECT_S:g} s")
        case OSError() if error.filename:
            remedy = "name a file that can be read"
            return LinkRefusedError(f"{error.filename} cannot be read: {error.strerror}", remedy)
        case OSError():
            why = os.strerror(error.errno) if error.errno else str(error)
            return LinkDownError(f"{place} is not reached: {why}")
        case _:
            return LinkRefusedError(f"{place} cannot be asked: {error}", "mend `ssh:` of the site")


def _knows(file: str, host: str, port: int) -> bool:
    try:
        found = asyncssh.match_known_hosts(_path(file), host, "", port)
    except (OSError, ValueError):
        return False
    return bool(found[0])


def _known_name(host: str, port: int) -> str:
    return f"[{host}]:{port}" if port != _SSH_PORT else host


def _port_words(access: SshAccess) -> str:
    return f"-p {access.port} " if access.port else ""
