"""What a stage says and hears, by a clock of its own and connections that are played."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import pytest
import torch
from tests.fakes.clock import FakeClock
from torch import nn

from gridloom.base.errors import InputError
from gridloom.runtime.failure import PeerLostError
from gridloom.runtime.wan.events import Down, LinkFacts, Received, Up
from gridloom.runtime.wan.messages import MessageError
from gridloom.runtime.wan.settings import Address
from gridloom.runtime.wan.stages_accord import AFTER, BEFORE, Accord, Own
from gridloom.runtime.wan.stages_link import Alone, Neighbours, neighbours_of
from gridloom.runtime.wan.stages_messages import (
    Again,
    Agreed,
    AnyMessage,
    Hello,
    Ready,
    Values,
    decode_message,
    encode_message,
)
from gridloom.runtime.wan.stages_talk import Talk
from gridloom.runtime.wan.stages_wire import Snapshot, Wire, dtype_of

HELLO = Hello(done=0, again=0, trained=0, settings="same")


@dataclass
class Played:
    """Connections whose events the test names; waiting for one takes its time."""

    clock: FakeClock
    due: list[Up | Down | Received] = field(default_factory=list)
    sent: list[tuple[str, AnyMessage]] = field(default_factory=list)
    kept: list[tuple[str, set[int]]] = field(default_factory=list)
    bandwidth_bytes_per_s: float | None = None
    is_closed: bool = False

    def send(self, peer: str, header: bytes, body: object = b"", *, urgent: bool = False) -> int:
        message = decode_message(header)
        assert urgent != isinstance(message, Values)
        self.sent.append((peer, message))
        return len(self.sent)

    def outstanding(self, peer: str) -> tuple[int, ...]:
        return tuple(n for n, (name, _) in enumerate(self.sent, 1) if name == peer)

    def discard(self, peer: str, keep: Collection[int] = ()) -> None:
        self.kept.append((peer, set(keep)))

    def meet(self, peer: str, address: Address | None) -> None:
        raise AssertionError(peer)

    def events(self, timeout_s: float) -> Sequence[Up | Down | Received]:
        due, self.due = self.due, []
        if not due:
            self.clock.advance(timeout_s)
        return due

    def links(self) -> dict[str, LinkFacts]:
        facts = LinkFacts(
            up=True, session="", streams=4, rtt_s=0.3, rtt_s_min=0.2,
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s, sent_bytes=0, received_bytes=0,
            queued_bytes=0, silent_s=0.0, trouble="",
        )  # fmt: skip
        return {"south": facts}

    def close(self, timeout_s: float = 0.0) -> None:
        self.is_closed = True

    def hear(self, peer: str, *messages: AnyMessage) -> None:
        self.due += [
            Received(peer, encode_message(message), memoryview(bytearray())) for message in messages
        ]


@dataclass
class Middle:
    """The second of three stages, in the middle of its first step."""

    talk: Talk
    played: Played
    clock: FakeClock

    def wait(self, looks: int) -> None:
        for _ in range(looks):
            self.talk.wait()

    def said(self) -> list[tuple[str, AnyMessage]]:
        said, self.played.sent = self.played.sent, []
        return said


@pytest.fixture
def middle() -> Middle:
    clock = FakeClock()
    played = Played(clock)
    names = neighbours_of(("north", "middle", "south"), "middle")
    accord = Accord(first=False, last=False, settings="same")
    talk = Talk(accord, Neighbours(names, played, clock), clock, (1.0, 10.0))
    for peer in ("north", "south"):
        played.due.append(Up(peer, "first", resumed=False))
        played.hear(peer, HELLO)
    talk.await_neighbours()
    talk.is_trying = True
    made = Middle(talk, played, clock)
    assert made.said() == [("north", HELLO), ("south", HELLO)]
    return made


def values(step: int, again: int, micro_batch: int = 0) -> Values:
    return Values(
        step=step, again=again, micro_batch=micro_batch, is_gradient=False, trains=True, shape=(2,),
        dtype="float32", batch=7,
    )  # fmt: skip


def ready(again: int = 0, squares: float = 9.0) -> Ready:
    return Ready(
        step=1, again=again, loss=2.5, squares=squares, stop=True, delay_s=0.5, period_s=0.1
    )


OWN = Own(loss=0.0, squares=16.0, stop=False, delay_s=0.25, period_s=0.2)


def test_a_link_that_is_down_for_long_makes_the_step_begin_again(middle: Middle) -> None:
    talk, played = middle.talk, middle.played
    talk.neighbours.send(AFTER, values(1, 0))
    played.due.append(Down("south", "silent"))
    middle.wait(10)
    assert talk.accord.stamp == (1, 0)
    middle.wait(30)
    assert talk.accord.stamp == (1, 1)  # once, however long it takes
    again = Again(step=1, again=1)
    assert middle.said() == [("south", values(1, 0)), ("north", again), ("south", again)]
    talk.neighbours.forget_values()
    assert played.kept == [("north", set()), ("south", set())]
    played.due.append(Up("south", "first", resumed=True))
    played.hear("south", Again(step=1, again=1), Again(step=1, again=2))
    talk.await_neighbours()
    assert talk.accord.stamp == (1, 2)
    assert middle.said() == [("north", Again(step=1, again=2))]  # who said it knows it


def test_what_is_said_of_the_step_outlives_its_tensors(middle: Middle) -> None:
    talk = middle.talk
    talk.neighbours.send(AFTER, values(1, 0))
    talk.accord.give_up()
    talk.say()
    talk.neighbours.forget_values()
    assert middle.played.kept == [("north", {2}), ("south", {3})]


def test_a_stage_that_is_ready_waits_for_the_word_of_the_one_before(middle: Middle) -> None:
    talk = middle.talk
    talk.accord.complete(OWN)
    middle.played.hear("south", ready())
    talk.look()
    sum_of_both = Ready(
        step=1, again=0, loss=2.5, squares=25.0, stop=True, delay_s=0.75, period_s=0.2
    )
    assert middle.said() == [("north", sum_of_both)]
    middle.played.due.append(Down("north", "lost"))
    middle.wait(100)
    assert talk.accord.stamp == (1, 0)
    agreed = Agreed(step=1, again=0, loss=2.5, norm=5.0, stop=True)
    middle.played.due.append(Up("north", "first", resumed=True))
    middle.played.hear("north", agreed, values(2, 1))
    talk.look()
    assert talk.accord.outcome == agreed
    assert middle.said() == [("south", agreed)]
    talk.accord.commit()
    assert talk.accord.stamp == (2, 1)  # the next step was begun again before it began here
    assert [one.values for one in talk.values((2, 1))] == [values(2, 1)]


def test_tensors_of_earlier_tries_are_dropped_and_of_later_ones_kept(middle: Middle) -> None:
    talk = middle.talk
    middle.played.hear("north", values(1, 0), values(1, 1, 1), values(1, 0, 2))
    talk.look()
    assert talk.accord.stamp == (1, 1)
    assert [one.values.micro_batch for one in talk.values((1, 1))] == [1]
    assert talk.values((1, 1)) == []


def test_a_word_of_an_earlier_try_is_not_counted(middle: Middle) -> None:
    talk = middle.talk
    talk.accord.give_up()
    talk.accord.complete(OWN)
    middle.played.hear("south", ready(again=0))
    talk.look()
    assert not [said for said in middle.said() if isinstance(said[1], Ready)]


def test_a_process_started_again_in_the_same_step_joins_it(middle: Middle) -> None:
    talk, played = middle.talk, middle.played
    played.due.append(Up("south", "second", resumed=False))
    talk.look()
    assert not talk.neighbours.is_there()
    assert talk.accord.stamp == (1, 1)
    hello = Hello(done=0, again=1, trained=0, settings="same")
    again = Again(step=1, again=1)
    assert middle.said() == [("south", hello), ("north", again), ("south", again)]
    played.hear("south", HELLO)
    talk.await_neighbours()


def test_a_process_started_again_elsewhere_ends_it(middle: Middle) -> None:
    middle.played.due.append(Up("south", "second", resumed=False))
    middle.played.hear("south", Hello(done=4, again=0, trained=4, settings="same"))
    with pytest.raises(PeerLostError, match="started again after step 4, and this site is at 0"):
        middle.talk.look()


def test_a_step_that_is_over_elsewhere_and_given_up_here_ends_it(middle: Middle) -> None:
    middle.talk.accord.complete(OWN)
    middle.played.hear("south", ready())
    middle.talk.look()
    middle.played.due.append(Up("south", "second", resumed=False))
    middle.played.hear("north", Agreed(step=1, again=0, loss=2.5, norm=5.0, stop=False))
    with pytest.raises(PeerLostError, match="is over elsewhere, and was given up here"):
        middle.talk.look()


def test_nobody_waits_for_ever(middle: Middle) -> None:
    middle.wait(150)
    middle.talk.look()  # it has worked in between
    began_s = middle.clock.monotonic_s()
    with pytest.raises(PeerLostError, match="for 10 s; the neighbours are in contact"):
        middle.wait(250)
    assert middle.clock.monotonic_s() - began_s == pytest.approx(10.0, abs=0.2)
    assert middle.talk.waited_s == pytest.approx(17.5, abs=0.3)


def test_who_has_left_is_not_waited_for(middle: Middle) -> None:
    middle.played.due.append(Down("south", "closed"))
    with pytest.raises(PeerLostError, match=r"south \(closed\)"):
        middle.talk.wait()


def test_who_gives_in_says_so_once(middle: Middle) -> None:
    for _ in range(2):
        middle.talk.give_in(KeyError())
    faults = [message for _, message in middle.said()]
    assert [getattr(message, "why", "") for message in faults] == ["KeyError", "KeyError"]
    assert middle.played.is_closed


def test_what_cannot_be_read_is_an_error(middle: Middle) -> None:
    middle.played.due.append(Received("south", b"\xc1", memoryview(bytearray())))
    with pytest.raises(MessageError, match="cannot be read"):
        middle.talk.look()


@pytest.mark.parametrize(("bandwidth", "expected"), [(None, (0.2, 0.0)), (1e6, (2.2, 1.0))])
def test_the_delay_of_a_link_is_as_measured(
    middle: Middle, bandwidth: float | None, expected: tuple[float, float]
) -> None:
    middle.played.bandwidth_bytes_per_s = bandwidth
    assert middle.talk.neighbours.delay_s(10**6) == expected


def test_a_stage_that_is_the_whole_pipeline_has_nobody() -> None:
    alone = Neighbours(neighbours_of(("here",), "here"), Alone(), FakeClock())
    assert alone.is_there()
    assert alone.delay_s(10**6) == (0.0, 0.0)
    assert neighbours_of(("a", "b"), "b") == {BEFORE: "a"}


@pytest.mark.parametrize("bits", [32, 16, 8])
@pytest.mark.parametrize("is_gradient", [False, True])
def test_a_tensor_comes_as_it_went_but_for_its_bits(bits: int, is_gradient: bool) -> None:
    wire = Wire(bits, 1, "north", torch.device("cpu"))
    tensor = torch.randn(3, 40, generator=torch.Generator().manual_seed(1)).bfloat16()
    what = Values(
        step=3, again=0, micro_batch=1, is_gradient=is_gradient, trains=True,
        shape=(3, 40), dtype="bfloat16", batch=0,
    )  # fmt: skip
    payload = wire.pack(what, tensor)
    assert len(payload) == wire.size_bytes(120)
    assert bytes(payload) == bytes(wire.pack(what, tensor))  # begun again or not
    body = memoryview(bytearray(payload))
    came = wire.unpack(what, body)
    assert came.dtype == torch.bfloat16
    assert torch.allclose(came, tensor, rtol=0, atol=0.03 if bits == 8 else 0)
    with pytest.raises(MessageError, match="none"):
        wire.unpack(what, body[:-1])


def test_gradients_of_eight_bits_are_exact_in_the_mean() -> None:
    wire = Wire(8, 1, "north", torch.device("cpu"))
    tensor = torch.randn(64, generator=torch.Generator().manual_seed(1))

    def mean(*, is_gradient: bool) -> torch.Tensor:
        total = torch.zeros(64)
        for step in range(400):
            what = Values(
                step=step, again=0, micro_batch=0, is_gradient=is_gradient, trains=True,
                shape=(64,), dtype="float32", batch=0,
            )  # fmt: skip
            total += wire.unpack(what, memoryview(bytearray(wire.pack(what, tensor))))
        return total / 400

    by_chance, nearest = (mean(is_gradient=one) - tensor for one in (True, False))
    assert by_chance.norm() < 0.3 * nearest.norm()


def test_what_cannot_be_sent_has_no_name() -> None:
    assert dtype_of(torch.zeros(1).double()) is None
    assert dtype_of("text") is None
    with pytest.raises(InputError):
        Wire(4, 1, "north", torch.device("cpu"))


def test_a_forward_pass_can_be_made_as_if_it_had_not_been_made() -> None:
    norm = nn.BatchNorm1d(4)
    module = nn.Sequential(norm, nn.Dropout())
    torch.manual_seed(5)
    kept = Snapshot(module, torch.device("cpu"))
    inputs = torch.arange(8.0).view(2, 4)
    first = module(inputs)
    assert norm.num_batches_tracked == 1
    kept.restore()
    assert norm.num_batches_tracked == 0
    assert torch.equal(module(inputs), first)
