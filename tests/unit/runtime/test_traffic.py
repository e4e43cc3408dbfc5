"""How the bytes of connections are counted, and what their loss is called."""

import math
import socket
from pathlib import Path

import pytest

from gridloom.base.errors import WorkFailedError
from gridloom.runtime import traffic
from gridloom.runtime.failure import PeerLostError, is_of_lost_peer, peers_guarded
from gridloom.runtime.traffic import Meter, bytes_sent, open_sockets


def test_bytes_are_counted_by_connection() -> None:
    before = set(open_sockets())
    server = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(server.getsockname())
    far = server.accept()[0]
    with server, near, far:
        new = set(open_sockets()) - before
        assert len(new) == 3
        meter = Meter(new)
        near.sendall(b"x" * 5000)
        assert len(far.recv(5000, socket.MSG_WAITALL)) == 5000
        far.sendall(b"y")  # carries the acknowledgement back
        assert near.recv(1) == b"y"
        assert 5000 <= meter.lap() <= 5001
        assert meter.lap() <= 1
    assert bytes_sent(new) == {}
    assert meter.lap() == 0


def test_sockets_that_are_no_tcp_count_nothing() -> None:
    before = set(open_sockets())
    one, other = socket.socketpair()
    with one, other:
        one.sendall(b"x")
        counts = bytes_sent(set(open_sockets()) - before)
        assert counts is not None
        assert list(counts.values()) == [0, 0]


def test_where_the_system_does_not_count_nothing_is_claimed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(traffic, "_DESCRIPTORS", str(tmp_path / "none"))
    meter = Meter(["socket:[1]"])
    assert open_sockets() == {}
    assert math.isnan(meter.lap())


def test_what_a_library_raises_when_a_peer_dies_is_one_line() -> None:
    with (
        pytest.raises(PeerLostError, match=r"^another rank went away: closed by peer$") as raised,
        peers_guarded(),
    ):
        raise RuntimeError("closed by peer\nmore\nand more")
    assert isinstance(raised.value, WorkFailedError)


def test_an_error_of_a_communication_library_is_told_from_others() -> None:
    assert is_of_lost_peer(RuntimeError("[/gloo/transport/tcp/pair.cc:1] Connection closed"))
    assert not is_of_lost_peer(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
