"""Which ports of this machine a process could listen on."""

import errno
import ipaddress
import socket
from collections.abc import Iterable

import psutil

from gridloom.base.errors import SiteError


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


def own_address(network: str) -> str:
    """Return an address of this machine by which others reach it.

    Args:
        network: In which, as ``10.0.0.0/8``; empty for the one that its host name stands for.

    Raises:
        SiteError: It has none.
    """
    name = socket.gethostname()
    if not network:
        try:
            return socket.gethostbyname(name)
        except OSError as error:
            raise SiteError(f"the host name {name} stands for no address: {error}") from error
    within = ipaddress.ip_network(network)
    for address in own_addresses():
        if ipaddress.ip_address(address) in within:
            return address
    raise SiteError(f"{name} has no address in {network}")


def own_addresses() -> tuple[str, ...]:
    """Return all addresses of this machine."""
    return tuple(
        str(ipaddress.ip_address(one.address.partition("%")[0]))
        for addresses in psutil.net_if_addrs().values()
        for one in addresses
        if one.family in (socket.AF_INET, socket.AF_INET6)
    )


def rows(ports: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return ascending numbers as rows of neighbours: first and last of each."""
    found: list[tuple[int, int]] = []
    for port in ports:
        if found and found[-1][1] == port - 1:
            found[-1] = (found[-1][0], port)
        else:
            found.append((port, port))
    return tuple(found)
