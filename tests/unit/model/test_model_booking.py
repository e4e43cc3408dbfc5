"""Bookings as they are written down."""

from gridloom.base.codec import decode, encode
from gridloom.model.booking import Booking
from gridloom.model.event import AnyEvent, BookingDropped, BookingMade


def test_a_booking_of_which_no_queue_is_said_is_for_nobody() -> None:
    booking = Booking(name="b", start_s=1.0, end_s=2.0, nodes=("a/n0", "b"))
    assert booking.queues == ()
    assert booking.sentence == ""


def test_bookings_are_facts_that_can_be_read_back() -> None:
    booking = Booking(
        name="b", start_s=1.0, end_s=2.0, nodes=("a",), queues=("crew",), sentence="new disks"
    )
    events: tuple[AnyEvent, ...] = (BookingMade(booking=booking), BookingDropped(name="b"))
    for event in events:
        assert decode(encode(event), type(event)) == event
