"""Frames go through the wire unchanged, and no damage passes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridloom.runtime.wan.frames import (
    HEAD_BYTES,
    FrameError,
    Head,
    Holds,
    Kind,
    Lane,
    Part,
    check,
    decode_acks,
    decode_head,
    decode_holds,
    encode,
    encode_acks,
)

NUMBER = st.integers(0, 2**64 - 1)
HEADS = st.builds(
    Head,
    kind=st.sampled_from([Kind.OPEN, Kind.CHUNK]),
    lane=st.sampled_from(Lane),
    number=NUMBER,
    offset=NUMBER,
    total=NUMBER,
)


@given(head=HEADS, payload=st.binary(max_size=100), cut=st.integers(0, 100))
def test_a_frame_is_read_as_it_was_written(head: Head, payload: bytes, cut: int) -> None:
    data = b"".join(encode(head, payload[:cut], memoryview(payload)[cut:]))
    read = decode_head(data[:HEAD_BYTES])
    assert (read.kind, read.lane, read.number) == (head.kind, head.lane, head.number)
    assert (read.offset, read.total, read.length) == (head.offset, head.total, len(payload))
    assert data[HEAD_BYTES:] == payload
    check(read, payload)


@given(head=HEADS, payload=st.binary(max_size=50), where=st.integers(0), bit=st.integers(0, 7))
def test_one_wrong_bit_is_always_found(head: Head, payload: bytes, where: int, bit: int) -> None:
    data = bytearray(b"".join(encode(head, payload)))
    data[where % len(data)] ^= 1 << bit
    with pytest.raises(FrameError):
        check(decode_head(data[:HEAD_BYTES]), data[HEAD_BYTES:])


@given(data=st.binary(min_size=HEAD_BYTES, max_size=HEAD_BYTES))
def test_garbage_is_no_head(data: bytes) -> None:
    with pytest.raises(FrameError):
        decode_head(data)


@pytest.mark.parametrize(
    ("head", "payload", "message"),
    [
        (Head(Kind.PING), b"x", "a frame PING of 1 bytes is too long"),
        (Head(Kind.OPEN), bytes(128 * 1024 + 1), "a frame OPEN of 131073 bytes is too long"),
    ],
)
def test_what_is_too_long_is_refused(head: Head, payload: bytes, message: str) -> None:
    with pytest.raises(FrameError, match=message):
        decode_head(bytes(encode(head, payload)[0]))


def test_an_unknown_kind_is_refused() -> None:
    data = encode(Head(99))[0]  # type: ignore[arg-type]
    with pytest.raises(FrameError, match="not known: 99 is not a valid Kind"):
        decode_head(bytes(data))


@given(acks=st.lists(st.tuples(NUMBER, NUMBER)))
def test_acks_are_read_as_they_were_written(acks: list[tuple[int, int]]) -> None:
    assert decode_acks(encode_acks(acks)) == acks


def test_half_an_ack_is_refused() -> None:
    with pytest.raises(FrameError, match="in the middle of a pair"):
        decode_acks(encode_acks([(1, 2)])[:-1])


def test_what_is_held_is_read_as_it_was_written() -> None:
    parts = [Part(3, Lane.BULK, [(0, 5), (9, 12)]), Part(4, Lane.URGENT, [])]
    holds = decode_holds(Holds([1, 2, 3], parts).encoded())
    assert holds.opened == [1, 2, 3]
    assert holds.parts == parts


@pytest.mark.parametrize("payload", [b"", b"\xc1", Holds([1], []).encoded()])
def test_what_is_held_in_another_shape_is_refused(payload: bytes) -> None:
    with pytest.raises(FrameError):
        decode_holds(payload)
