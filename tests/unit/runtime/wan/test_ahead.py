"""Beginnings of bodies that go ahead: whatever comes in whichever order, the message is whole."""

import pytest

from gridloom.runtime.wan.ahead import Incoming, Outgoing
from gridloom.runtime.wan.history import Buffer
from gridloom.runtime.wan.message_codec import AnyMessage
from gridloom.runtime.wan.messages import Ahead, Done, MessageError, Offer, Open

OFFER = Offer(round=1, chain="", weight=3.0)
WHOLE = bytearray(b"abcdefghij")
PARTS = [memoryview(WHOLE)[0:3], memoryview(WHOLE)[3:7]]
MOST = 10


def begun(outgoing: Outgoing, peer: str = "b") -> list[tuple[AnyMessage, Buffer]]:
    """Send both parts ahead; return what goes over the wire."""
    outgoing.begin()
    told = [(outgoing.add(peer, part), part) for part in PARTS]
    return [(message, part) for message, part in told if message is not None]


def test_the_rest_is_sent_with_the_message() -> None:
    outgoing, incoming = Outgoing(), Incoming()
    wire = begun(outgoing)
    outgoing.complete(WHOLE)
    message, rest = outgoing.shortened("b", OFFER, (WHOLE,))
    assert [bytes(part) for part in rest] == [b"hij"]
    assert [incoming.take(told, part, MOST) for told, part in wire] == [None, None]
    found = incoming.take(message, rest[0], MOST)
    assert found == (message, WHOLE)
    assert isinstance(found[1], bytearray)  # of its own, as what comes whole


@pytest.mark.parametrize("order", [(2, 0, 1), (1, 2, 0), (1, 0, 2)])
def test_small_messages_may_overtake_large_ones(order: tuple[int, ...]) -> None:
    outgoing, incoming = Outgoing(), Incoming()
    wire = begun(outgoing)
    outgoing.complete(WHOLE)
    message, rest = outgoing.shortened("b", OFFER, (WHOLE,))
    wire.append((message, rest[0]))
    found = [incoming.take(*wire[number], MOST) for number in order]
    assert found == [None, None, (message, WHOLE)]


def test_a_site_that_has_got_nothing_or_is_another_process_is_sent_the_whole() -> None:
    outgoing = Outgoing()
    begun(outgoing, "b")
    outgoing.forget("b")
    assert outgoing.add("b", b"hij") is None
    outgoing.complete(WHOLE)
    for peer in ("b", "c"):
        assert outgoing.shortened(peer, OFFER, (WHOLE,)) == (OFFER, (WHOLE,))


def test_a_site_that_was_not_sent_the_first_part_is_sent_no_later_one() -> None:
    outgoing = Outgoing()
    outgoing.begin()
    assert outgoing.add("", PARTS[0]) is None  # there was nobody to send it to
    assert outgoing.add("b", PARTS[1]) is None


def test_what_was_sent_ahead_is_made_use_of_once() -> None:
    outgoing = Outgoing()
    begun(outgoing)
    outgoing.complete(WHOLE)
    assert outgoing.shortened("b", OFFER, (WHOLE,))[1] != (WHOLE,)
    assert outgoing.shortened("b", OFFER, (WHOLE,)) == (OFFER, (WHOLE,))


def test_a_body_that_turned_out_otherwise_is_sent_whole() -> None:
    outgoing, incoming = Outgoing(), Incoming()
    wire = begun(outgoing)
    other = bytearray(b"abcdefgHij")
    other[1] = 0
    outgoing.complete(other)
    assert outgoing.shortened("b", OFFER, (other,)) == (OFFER, (other,))
    for told, part in wire:
        assert incoming.take(told, part, MOST) is None
    assert incoming.take(OFFER, other, MOST) == (OFFER, other)


@pytest.mark.parametrize("body", [(WHOLE, WHOLE), (bytearray(WHOLE),), ()])
def test_other_messages_go_as_they_are(body: tuple[Buffer, ...]) -> None:
    outgoing = Outgoing()
    begun(outgoing)
    outgoing.complete(WHOLE)
    assert outgoing.shortened("b", OFFER, body) == (OFFER, body)
    done = Done(version=3)
    assert outgoing.shortened("b", done, (WHOLE,)) == (done, (WHOLE,))


def test_bodies_that_were_given_up_are_let_go_of() -> None:
    outgoing, incoming = Outgoing(), Incoming()
    for _ in range(5):
        wire = begun(outgoing)
        for told, part in wire:
            assert incoming.take(told, part, MOST) is None
    outgoing.complete(WHOLE)
    message, rest = outgoing.shortened("b", OFFER, (WHOLE,))
    assert incoming.take(message, rest[0], MOST) == (message, WHOLE)
    opened = Open(round=2, chain="")
    assert incoming.take(opened, b"", MOST) == (opened, b"")


def test_more_than_a_payload_ahead_is_refused() -> None:
    incoming = Incoming()
    assert incoming.take(Ahead(series=1, start=0), bytes(8), MOST) is None
    with pytest.raises(MessageError, match="more than 10 bytes"):
        incoming.take(Ahead(series=1, start=8), bytes(8), MOST)
