"""Bytes that this process's own TCP connections have carried, as the kernel counts them.

Every process group has connections of its own, so the connections that appear while a group is
built are that group's. Linux only; elsewhere nothing is measured.
"""

import math
import os
import socket
import struct
from collections.abc import Iterable

_BYTES_ACKED_OFFSET = 120  # tcpi_bytes_acked in struct tcp_info, linux/tcp.h, since Linux 4.1
_TCP_INFO_BYTES = 136
_DESCRIPTORS = "/proc/self/fd"


def open_sockets() -> dict[str, int]:
    """Return this process's open sockets: the kernel's name of each, and its descriptor."""
    sockets = {}
    try:
        descriptors = os.listdir(_DESCRIPTORS)
    except OSError:
        return {}
    for descriptor in descriptors:
        try:
            target = os.readlink(f"{_DESCRIPTORS}/{descriptor}")
        except OSError:  # the descriptor of the listing itself is gone by now
            continue
        if target.startswith("socket:"):
            sockets[target] = int(descriptor)
    return sockets


def bytes_sent(names: Iterable[str]) -> dict[str, int] | None:
    """Return bytes sent and acknowledged over the sockets named that are open still.

    Counts payload and the library's own headers, not those of TCP, and no byte sent twice. Returns
    ``None`` where the system does not count.
    """
    if not (hasattr(socket, "TCP_INFO") and os.path.isdir(_DESCRIPTORS)):
        return None
    now_open = open_sockets()
    return {name: _acknowledged(now_open[name]) for name in names if name in now_open}


class Meter:
    """Bytes sent over one group's connections since the meter was made."""

    def __init__(self, names: Iterable[str]) -> None:
        self._seen = bytes_sent(names)

    def lap(self) -> float:
        """Return bytes sent since the last lap; NaN if not measurable.

        What is sent over a connection that has been closed since is not seen.
        """
        now = None if self._seen is None else bytes_sent(self._seen)
        if self._seen is None or now is None:
            return math.nan
        sent = sum(count - self._seen[name] for name, count in now.items())
        self._seen = now
        return float(sent)


def _acknowledged(descriptor: int) -> int:
    """Return the count of one socket; 0 if it is not of TCP, or only listens."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as copy:
            if copy.family not in (socket.AF_INET, socket.AF_INET6):
                return 0
            info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    except OSError:
        return 0
    return int(struct.unpack_from("Q", info, _BYTES_ACKED_OFFSET)[0])
