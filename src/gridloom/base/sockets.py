"""Which ports of this machine a process could listen on."""

import errno
import socket
from collections.abc import Iterable


def can_listen(address: str, port: int) -> bool:
    """Return whether a process of this machine could listen there now.

    Raises:
        OSError: The address is none of this machine's.
        UnicodeError: It is none at all.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen()
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            return False
    return True


def rows(ports: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return ascending numbers as rows of neighbours: first and last of each."""
    found: list[tuple[int, int]] = []
    for port in ports:
        if found and found[-1][1] == port - 1:
            found[-1] = (found[-1][0], port)
        else:
            found.append((port, port))
    return tuple(found)
