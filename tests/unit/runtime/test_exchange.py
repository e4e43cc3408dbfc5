"""What rides on the exchange, what it costs, and how its bytes are counted."""

import math
import socket
from pathlib import Path

import pytest
import torch

from gridloom.base.errors import WorkFailedError
from gridloom.runtime import traffic
from gridloom.runtime.failure import PeerLostError, peers_guarded
from gridloom.runtime.mesh import ranks_by_site
from gridloom.runtime.tail import (
    RankSeconds,
    Totals,
    read_tail,
    tail_length,
    whole_or_none,
    write_tail,
)
from gridloom.runtime.traffic import Meter, bytes_sent, open_sockets


def test_sites_are_runs_of_ranks() -> None:
    assert ranks_by_site((("a", 2), ("b", 1), ("c", 3))) == [[0, 1], [2], [3, 4, 5]]


def test_the_tail_adds_up_over_ranks_and_averages_over_a_site() -> None:
    tail = torch.zeros(tail_length(2))
    for site, compute in ((0, 1.0), (0, 3.0), (1, 8.0)):
        own = torch.full((tail_length(2),), 99.0)
        write_tail(own, Totals(10.0, 5, 0.0, 7.0, math.nan), site, RankSeconds(compute, data=0.5))
        tail += own
    totals, sites = read_tail(tail, [2, 1])
    assert (totals.loss_sum, totals.tokens, totals.stop_wishes) == (30.0, 15.0, 0.0)
    assert whole_or_none(totals.within_bytes) == 21
    assert whole_or_none(totals.between_bytes) is None
    assert sites == [RankSeconds(2.0, data=0.5), RankSeconds(8.0, data=0.5)]


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
        assert meter.total() in (5000, 5001)
    assert bytes_sent(new) == 0


def test_sockets_that_are_no_tcp_count_nothing() -> None:
    before = set(open_sockets())
    one, other = socket.socketpair()
    with one, other:
        one.sendall(b"x")
        assert bytes_sent(set(open_sockets()) - before) == 0


def test_where_the_system_does_not_count_nothing_is_claimed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(traffic, "_DESCRIPTORS", str(tmp_path / "none"))
    meter = Meter(["socket:[1]"])
    assert open_sockets() == {}
    assert meter.total() is None
    assert math.isnan(meter.lap())


def test_what_a_library_raises_when_a_peer_dies_is_one_line() -> None:
    with (
        pytest.raises(PeerLostError, match=r"^another rank went away: closed by peer$") as raised,
        peers_guarded(),
    ):
        raise RuntimeError("closed by peer\nmore\nand more")
    assert isinstance(raised.value, WorkFailedError)
