"""Transports on this machine's own address: messages, restarts, broken and silent connections."""

import contextlib
import dataclasses
import socket
import threading
from collections.abc import Callable

import pytest
from tests.unit.runtime.wan.conftest import HOST, IMPATIENT, QUICK, WAIT_S, Open, Proxy, Site

from gridloom.base.errors import BrokenError, InputError
from gridloom.base.system import SystemClock, SystemIds
from gridloom.runtime.wan.events import Down, LinkFacts, Up
from gridloom.runtime.wan.settings import Address, CapWindow, Endpoint, TransportSettings
from gridloom.runtime.wan.transport import Transport

MakeProxy = Callable[[Address], Proxy]
BODY = bytes(range(251)) * 12_000  # 3 MB, no two chunks alike


def pair(site: Open, settings: TransportSettings = QUICK) -> tuple[Site, Site]:
    south = site("south", {"north": None}, settings)
    north = site("north", {"south": south.transport.address}, settings)
    return north, south


def through(
    site: Open, proxy: MakeProxy, settings: TransportSettings = QUICK
) -> tuple[Site, Site, Proxy]:
    south = site("south", {"north": None}, settings)
    assert south.transport.address
    between = proxy(south.transport.address)
    north = site("north", {"south": between.address}, settings)
    return north, south, between


def up(site: Site) -> Up:
    event = site.until(Up)[0]
    assert isinstance(event, Up)
    return event


def why(site: Site) -> str:
    event = site.until(Down)[0]
    assert isinstance(event, Down)
    return event.why


def facts_once(site: Site, peer: str, true: Callable[[LinkFacts], object]) -> LinkFacts:
    """Return the facts of a link as soon as they are as wanted."""
    clock = SystemClock()
    until_s = clock.monotonic_s() + WAIT_S
    while not true(facts := site.transport.links()[peer]):
        assert clock.monotonic_s() < until_s, facts
        clock.sleep(0.01)
    return facts


def test_messages_go_both_ways_whole_and_in_order(site: Open) -> None:
    north, south = pair(site)
    assert north.transport.send("south", b"first", b"queued before anybody was met") == 1
    assert up(north) == Up("south", south.transport.session, resumed=False)
    assert up(south) == Up("north", north.transport.session, resumed=False)
    assert south.received() == [(b"first", b"queued before anybody was met")]
    for index in range(5):
        north.transport.send("south", b"%d" % index, BODY[index:])
        south.transport.send("north", b"back %d" % index, b"")
    assert south.received(5) == [(b"%d" % index, BODY[index:]) for index in range(5)]
    assert north.received(5) == [(b"back %d" % index, b"") for index in range(5)]
    assert north.transport.flush(WAIT_S)
    assert north.transport.outstanding("south") == ()
    facts = facts_once(north, "south", lambda facts: facts.streams == 4 and facts.rtt_s)
    assert facts.up
    assert facts.session == south.transport.session
    assert facts.queued_bytes == 0
    assert facts.bandwidth_bytes_per_s
    assert facts.rtt_s_min is not None
    assert facts.silent_s is not None
    framing = 1.01
    assert 5 * len(BODY) - 10 < facts.sent_bytes < 5 * len(BODY) * framing
    facts_there = south.transport.links()["north"]
    assert 5 * len(BODY) - 10 < facts_there.received_bytes < 5 * len(BODY) * framing


def test_three_sites_meet_whoever_comes_first_or_later(site: Open) -> None:
    south = site("south", {"north": None, "west": None})
    west = site("west", {"south": south.transport.address, "north": None}, port=None)
    north = site("north", {"south": south.transport.address})
    assert up(north).peer == "south"
    north.transport.meet("west", None)  # north listens; west, which does not, dials
    west.transport.meet("north", north.transport.address)
    for each, others in ((north, "west"), (west, "north south"), (south, "north west")):
        each.until(Up, len(others.split()))
    for sender in (north, south, west):
        for peer in sender.transport.links():
            sender.transport.send(peer, sender.transport.session.encode(), BODY)
    for each, first, second in ((north, south, west), (south, north, west), (west, north, south)):
        headers = {header for header, _ in each.received(2)}
        assert headers == {one.transport.session.encode() for one in (first, second)}


def test_a_restarted_peer_gets_a_fresh_start(site: Open) -> None:
    north, south = pair(site)
    up(north)
    address = south.transport.address
    assert address
    south.transport.close()
    assert why(north) == "closed"
    north.transport.send("south", b"for the old process", BODY)
    again = site("south", {"north": None}, port=address[1])
    event = up(north)
    assert (event.session, event.resumed) == (again.transport.session, False)
    assert north.transport.outstanding("south") == ()
    north.transport.send("south", b"for the new one", BODY)
    assert again.received() == [(b"for the new one", BODY)]


def test_a_dialler_that_was_restarted_is_met_anew(site: Open) -> None:
    north, south = pair(site)
    up(south)
    up(north)
    north.transport.close()
    assert why(south) == "closed"
    again = site("north", {"south": south.transport.address})
    assert up(south) == Up("north", again.transport.session, resumed=False)
    south.transport.send("north", b"h", BODY)
    assert again.received() == [(b"h", BODY)]


def test_after_a_cut_only_what_is_missing_is_sent_again(site: Open, proxy: MakeProxy) -> None:
    settings = dataclasses.replace(QUICK, streams=2, chunk_bytes=16 * 1024)
    north, south, between = through(site, proxy, settings)
    up(north)
    up(south)
    between.limit_bytes = 20_000_000
    body = BODY * 10
    north.transport.send("south", b"large", body)
    north.transport.send("south", b"next", BODY)
    assert why(north) == why(south) == "lost"
    assert up(north).resumed
    assert up(south).resumed
    assert south.received(2) == [(b"large", body), (b"next", BODY)]
    assert north.transport.flush(WAIT_S)
    # What was on its way, in buffers of kernels and of the proxy, is sent twice; what had arrived
    # is not. The cut came after 20 of 33 MB.
    sent = north.transport.links()["south"].sent_bytes
    assert len(body) + len(BODY) < sent < len(body) + len(BODY) + 15_000_000


def test_what_is_sent_while_a_peer_is_away_comes_when_it_is_back(
    site: Open, proxy: MakeProxy
) -> None:
    north, south, between = through(site, proxy)
    up(north)
    between.refuse = True
    between.cut()
    assert why(north) == why(south) == "lost"
    north.transport.send("south", b"1", BODY)
    south.transport.send("north", b"2", b"small")
    assert facts_once(north, "south", lambda facts: facts.trouble).silent_s is None
    between.refuse = False
    assert up(north).resumed
    assert south.received() == [(b"1", BODY)]
    assert north.received() == [(b"2", b"small")]
    assert north.transport.links()["south"].trouble == ""


def test_a_silent_link_is_down_and_comes_back(site: Open, proxy: MakeProxy) -> None:
    north, south, between = through(site, proxy, IMPATIENT)
    up(north)
    up(south)
    between.limit_bytes = 1_000_000
    between.at_limit = lambda: setattr(between, "stalled", True)
    north.transport.send("south", b"h", BODY)
    assert why(north) == why(south) == "silent"
    between.stalled = False
    assert up(north).resumed
    assert south.received() == [(b"h", BODY)]


def test_a_damaged_chunk_breaks_its_stream_only_and_is_sent_again(
    site: Open, proxy: MakeProxy
) -> None:
    north, south, between = through(site, proxy)
    up(north)
    facts_once(south, "north", lambda facts: facts.streams == 4)
    between.damage = True
    north.transport.send("south", b"h", BODY)
    assert south.received() == [(b"h", BODY)]
    assert not between.damage
    assert south.seen == [south.until(Up)[0]]  # and nothing else happened
    facts_once(south, "north", lambda facts: facts.streams == 4)


def test_discarded_messages_are_forgotten_on_both_sides(site: Open, proxy: MakeProxy) -> None:
    north, south, between = through(site, proxy, IMPATIENT)
    up(north)
    between.limit_bytes = 500_000
    between.at_limit = lambda: setattr(between, "stalled", True)
    first = north.transport.send("south", b"half there", BODY)
    kept = north.transport.send("south", b"kept", BODY)
    assert why(north) == "silent"
    assert north.transport.outstanding("south") == (first, kept)
    north.transport.discard("south", keep=[kept])
    assert north.transport.outstanding("south") == (kept,)
    between.stalled = False
    assert south.received() == [(b"kept", BODY)]
    north.transport.send("south", b"last", b"")
    assert south.received() == [(b"last", b"")]


def test_discarding_while_the_link_is_up_lets_the_next_message_through(site: Open) -> None:
    closed = dataclasses.replace(QUICK, caps={"south": 200_000.0})
    south = site("south", {"north": None})
    north = site("north", {"south": south.transport.address}, closed)
    up(north)
    north.transport.send("south", b"slow", BODY)
    facts_once(south, "north", lambda facts: facts.received_bytes > 100_000)
    north.transport.discard("south")
    north.transport.send("south", b"next", b"x")
    assert south.received() == [(b"next", b"x")]
    assert north.transport.flush(WAIT_S)


def test_a_cap_of_zero_holds_all_but_urgent_messages(site: Open) -> None:
    closed = dataclasses.replace(QUICK, windows=(CapWindow("00:00", "24:00", 0.0),))
    north, south = pair(site, closed)
    up(north)
    north.transport.send("south", b"bulk", BODY)
    north.transport.send("south", b"small")
    north.transport.send("south", b"urgent", BODY, urgent=True)
    north.transport.send("south", b"urgent and small", urgent=True)
    assert south.received(2) == [(b"urgent", BODY), (b"urgent and small", b"")]
    assert not north.transport.flush(0.2)
    assert north.transport.outstanding("south") == (1, 2)


def test_a_cap_is_kept(site: Open) -> None:
    cap = 4_000_000.0
    north, south = pair(site, dataclasses.replace(QUICK, cap_bytes_per_s=cap))
    up(north)
    clock = SystemClock()
    facts_once(north, "south", lambda facts: facts.streams == 4)
    start_s = clock.monotonic_s()
    north.transport.send("south", b"h", BODY)
    assert south.received() == [(b"h", BODY)]
    # A burst of 0.1 s and the last chunk are free: see `pace.Bucket`.
    least_s = (len(BODY) - cap * 0.1 - QUICK.chunk_bytes) / cap
    assert clock.monotonic_s() - start_s >= least_s


def test_bulk_is_not_read_while_too_much_is_unread(site: Open) -> None:
    narrow = dataclasses.replace(QUICK, unread_bytes_max=1000)
    north, south = pair(site, narrow)
    up(south)
    for index in range(20):
        north.transport.send("south", b"%d" % index, BODY)
    assert not north.transport.flush(1.0)
    north.transport.send("south", b"small ones pass")
    before = south.transport.links()["north"].received_bytes
    assert before < 15 * len(BODY)
    got = south.received(21)
    assert sorted(header for header, _ in got) == sorted(
        [b"small ones pass", *(b"%d" % index for index in range(20))]
    )
    assert north.transport.flush(WAIT_S)


def test_a_stranger_with_another_token_is_turned_away_and_disturbs_nobody(site: Open) -> None:
    north, south = pair(site)
    up(north)
    facts_once(north, "south", lambda facts: facts.streams == 4)
    stranger = site("east", {"south": south.transport.address}, token="guessed")
    impostor = site("north", {"south": south.transport.address}, token="guessed")
    for one in (stranger, impostor):
        trouble = facts_once(one, "south", lambda facts: facts.trouble).trouble
        assert "is its token the same?" in trouble
        assert one.transport.events(0) == []
    assert south.transport.strangers >= 2
    north.transport.send("south", b"h", BODY)
    assert south.received() == [(b"h", BODY)]
    assert north.transport.events(0) == []


def test_one_who_knows_the_token_but_is_not_awaited_is_turned_away(site: Open) -> None:
    south = site("south", {"north": None})
    site("east", {"south": south.transport.address})
    other = site("north", {"west": south.transport.address})  # south answers for west
    assert "hung up" in facts_once(other, "west", lambda facts: facts.trouble).trouble
    assert south.transport.events(0.2) == []


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: south\r\n\r\n" + bytes(100),
        bytes(64),
        b"gridloom-wan\xff\xff\x00\x10" + bytes(64),  # another version
        b"gridloom-wan\x00\x01\xff\xff" + bytes(64),  # too long
        b"gridloom-wan\x00\x01\x00\x10" + bytes(64),  # no hello in it
    ],
)
def test_garbage_is_hung_up_on(site: Open, garbage: bytes) -> None:
    south = site("south", {"north": None}, IMPATIENT)
    assert south.transport.address
    with socket.create_connection(south.transport.address, timeout=WAIT_S) as sock:
        sock.sendall(garbage)
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(100) == b""
    assert not facts_once(south, "north", lambda _: south.transport.strangers == 1).up


def test_one_who_says_nothing_is_hung_up_on(site: Open) -> None:
    south = site("south", {"north": None}, IMPATIENT)
    assert south.transport.address
    with socket.create_connection(south.transport.address, timeout=WAIT_S) as sock:
        assert sock.recv(100) == b""


def test_many_threads_may_send(site: Open) -> None:
    north, south = pair(site)

    def send_some(name: int) -> None:
        for index in range(50):
            north.transport.send("south", b"%d %d" % (name, index), bytes(index * 1000))

    threads = [threading.Thread(target=send_some, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    got = south.received(200)
    for thread in threads:
        thread.join()
    assert len({header for header, _ in got}) == 200
    assert all(len(body) == int(header.split()[1]) * 1000 for header, body in got)


def make(me: str = "north", **peers: Address | None) -> Transport:
    endpoint = Endpoint(me, (HOST, 0), "token")
    settings = TransportSettings(body_bytes_max=1000)
    return Transport(endpoint, peers, settings=settings, clock=SystemClock(), ids=SystemIds())


def test_what_cannot_be_sent_is_refused() -> None:
    transport = make(south=None)
    with pytest.raises(InputError, match="no peer is called 'east'; known: south"):
        transport.send("east", b"")
    with pytest.raises(InputError, match="65537 bytes are more") as caught:
        transport.send("south", bytes(65537), bytes(1001))
    assert "1001 bytes are more than body_bytes_max" in str(caught.value)
    with pytest.raises(InputError, match="'north' is this site itself"):
        make(north=None)


def test_a_body_of_other_numbers_is_sent_as_bytes(site: Open) -> None:
    north, south = pair(site)
    numbers = memoryview(bytes(range(24))).cast("i")
    north.transport.send("south", b"h", numbers)
    assert south.received() == [(b"h", bytes(range(24)))]


def test_a_peer_that_has_moved_is_found_where_it_is_now(site: Open) -> None:
    south = site("south", {"north": None})
    now: dict[str, Address] = {}
    gone = socket.create_server((HOST, 0))
    settings = dataclasses.replace(QUICK, backoff_s_max=0.1)
    north = Transport(
        Endpoint("north", (HOST, 0), "token"),
        {"south": gone.getsockname()[:2]},
        settings=settings,
        clock=SystemClock(),
        ids=SystemIds(),
        where=now.get,
    )
    gone.close()
    north.start()
    try:
        north.send("south", b"h", b"kept")
        assert not north.flush(0.3), "nobody knows where it is"
        assert south.transport.address
        now["south"] = south.transport.address
        assert south.received() == [(b"h", b"kept")]
    finally:
        north.close()


def test_a_port_in_use_is_told(site: Open) -> None:
    south = site("south", {})
    assert south.transport.address
    taken = Transport(
        Endpoint("north", south.transport.address, "token"),
        {},
        settings=QUICK,
        clock=SystemClock(),
        ids=SystemIds(),
    )
    with pytest.raises(InputError, match="cannot be listened on: Address already in use"):
        taken.start()


def test_a_transport_that_was_never_started_or_was_closed_stays_quiet(site: Open) -> None:
    transport = make(south=None)
    transport.close()
    assert transport.address is None
    transport.start()
    transport.close(timeout_s=WAIT_S)
    transport.close()
    assert transport.send("south", b"kept for nobody") == 1
    assert not transport.flush(0)
    assert transport.events(0) == []


def test_closing_may_wait_for_what_is_queued(site: Open) -> None:
    north, south = pair(site)
    north.transport.send("south", b"h", BODY)
    north.transport.close(timeout_s=WAIT_S)
    assert south.received() == [(b"h", BODY)]
    assert why(south) == "closed"


def test_a_fault_of_ours_is_told_and_not_hidden() -> None:
    class StoppedClock(SystemClock):
        """A clock that fails when a link asks it for the time."""

        def monotonic_s(self) -> float:
            if threading.current_thread().name == "gridloom-wan":
                raise RuntimeError("the clock has stopped")
            return super().monotonic_s()

    me = Endpoint("north", None, "token")
    transport = Transport(
        me, {"south": None}, settings=QUICK, clock=StoppedClock(), ids=SystemIds()
    )
    transport.start()
    with pytest.raises(BrokenError, match="the transport between sites failed"):
        transport.events(WAIT_S)
    transport.close()


@pytest.mark.parametrize("address", [("", 1), (HOST, -1), (HOST, 65536)])
def test_an_address_that_cannot_be_is_refused(address: Address) -> None:
    with pytest.raises(InputError, match="listen: "):
        Endpoint("north", address, "token")
    with pytest.raises(InputError, match=r"peers\.south: "):
        make(south=address)


def test_the_time_in_which_messages_are_on_their_way_is_counted(
    site: Open, proxy: MakeProxy
) -> None:
    clock, rate = SystemClock(), 10e6
    slow = dataclasses.replace(QUICK, cap_bytes_per_s=rate)
    north, south, between = through(site, proxy, slow)
    up(north), up(south)
    assert north.transport.flush(WAIT_S)
    before_s = [one.transport.busy_s() for one in (north, south)]
    clock.sleep(0.1)
    assert [one.transport.busy_s() for one in (north, south)] == before_s  # nothing is
    start_s = clock.monotonic_s()
    north.transport.send("south", b"", BODY)
    south.received()
    assert north.transport.flush(WAIT_S)
    took_s = clock.monotonic_s() - start_s
    least_s = len(BODY) / rate - 0.13  # what an idle bucket saves up, and a piece, leave at once
    for one, past_s in zip((north, south), before_s, strict=True):
        assert least_s <= one.transport.busy_s() - past_s <= took_s
    between.close()
    why(north)
    past_s = north.transport.busy_s()
    north.transport.send("south", b"", BODY)
    clock.sleep(0.1)
    assert north.transport.busy_s() == past_s  # it waits for the link
