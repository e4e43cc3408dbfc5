"""What a site makes of messages that nobody should send, and of sites that it cannot train with."""

import math
from contextlib import suppress
from itertools import pairwise

import pytest
from tests.fakes.clock import FakeClock
from tests.fakes.wires import End, Network

from gridloom.base.errors import InputError
from gridloom.runtime.wan.contacts import Contacts, Quorum
from gridloom.runtime.wan.events import LinkFacts
from gridloom.runtime.wan.history import Buffer, Given, History, Past
from gridloom.runtime.wan.meeting import await_done, join
from gridloom.runtime.wan.message_codec import AnyMessage, decode_message, encode_message
from gridloom.runtime.wan.messages import (
    Hello,
    Leave,
    MessageError,
    Offer,
    Open,
    Part,
    Result,
    State,
    Wanted,
)
from gridloom.runtime.wan.outcome import Adopted, Outcome
from gridloom.runtime.wan.peers import Peers
from gridloom.runtime.wan.rounds import RoundPolicy, Rounds

PATIENCE_S = 10.0
SIZE = 8


class World:
    """Sites that are in contact but do nothing of themselves."""

    def __init__(self, names: str = "abc", settings: dict[str, str] | None = None) -> None:
        self.clock, self.network = FakeClock(), Network()
        self.names, self.ends, self.peers = names, dict[str, End](), dict[str, Peers]()
        for name in names:
            self.begin(name, (settings or {}).get(name, "same"))
        self.pump()

    def begin(self, name: str, settings: str = "same", history_bytes: int = 2**20) -> None:
        policy = RoundPolicy(patience_s=PATIENCE_S, history_bytes=history_bytes)
        rounds = Rounds(name, self.names, settings, policy, lambda given: b"together")
        rounds.payload_bytes = lambda number: SIZE
        self.ends[name] = self.network.end(name)
        self.peers[name] = Peers(rounds, self.ends[name], self.clock)

    def pump(self, seconds: float = 0.0, names: str = "") -> None:
        for _ in range(8):
            self.clock.advance(seconds / 8)
            for name in names or self.names:
                self.peers[name].pump()

    def offer(self, names: str) -> None:
        for name in names:
            payload = name.encode() * SIZE
            self.peers[name].rounds.offer(1.0, payload, self.clock.monotonic_s())

    def tell(self, source: str, target: str, header: bytes, body: bytes = b"") -> None:
        self.ends[source].send(target, header, body)
        self.pump(names=target)

    def chains(self, names: str = "") -> set[tuple[int, str]]:
        rounds = [self.peers[name].rounds for name in names or self.names]
        return {(one.version, one.chain) for one in rounds}


def part(size_bytes: int = SIZE, *sites: str) -> Part:
    return Part(sites=sites or ("b",), weight=1.0, size_bytes=size_bytes)


def result(*parts: Part, number: int = 1, before: str = "") -> Result:
    return Result(round=number, before=before, chain="made up", parts=parts)


@pytest.mark.parametrize(
    ("header", "body"),
    [
        (b"", b""),
        (b"\xff\xfe", b""),
        (b'{"kind":"what"}', b""),
        (b'{"kind":"open","round":-1,"chain":""}', b""),
        (b'{"kind":"open","round":0,"chain":""}', b""),
        (b'{"kind":"open","round":1e400,"chain":""}', b""),
        (b'{"kind":"wanted","version":100000000000000000000000000,"chain":""}', b""),
        (b'{"kind":"offer","round":1,"chain":"","weight":-1}', b"x" * SIZE),
        (b'{"kind":"offer","round":1,"chain":"","weight":null}', b"x" * SIZE),
        (encode_message(Offer(round=1, chain="", weight=1.0)), b"short"),
        (encode_message(Offer(round=1, chain="", weight=1.0)), b""),
        (encode_message(Offer(round=7, chain="", weight=1.0)), b"far too long"),
        (b'{"kind":"result","round":1,"before":"","chain":"x","parts":[]}', b""),
        (encode_message(result(part())), b""),
        (encode_message(result(part())), b"x" * SIZE),
        (encode_message(result(part(2**50))), b"x" * SIZE),
        (encode_message(result(part(0, "c"))), b""),
        (encode_message(Open(round=1, chain="x" * 1000)), b""),
    ],
)
def test_who_says_what_cannot_be_meant_is_not_listened_to_and_nobody_else_minds(
    header: bytes, body: bytes
) -> None:
    world = World()
    world.tell("c", "a", header, body)
    rounds = world.peers["a"].rounds
    assert any("c is not listened to any more" in event for event in world.peers["a"].events)
    assert rounds.present() == ["a", "b"]
    world.offer("ab")
    world.pump(2 * PATIENCE_S)  # b, who still hears all, waits for c
    assert rounds.version == 1
    assert [type(one) for one in rounds.settled] == [Outcome]
    world.network.cut("a", "c")
    world.network.join("a", "c")  # a new connection, a new chance
    world.pump(8.0)
    assert rounds.present() == ["a", "b", "c"]
    assert len(world.chains()) == 1


@pytest.mark.parametrize(
    ("message", "body"),
    [
        (Hello(version=2**53, chain="", settings="same", sees=2**53, can_lead=True), b""),
        (Open(round=2**53, chain=""), b""),
        (Offer(round=2**53, chain="", weight=1e30), b"x" * SIZE),
        (Offer(round=1, chain="unheard of", weight=1.0), b"x" * SIZE),
        (result(part(), number=2**53), b"x" * SIZE),
        (result(part(), before="unheard of"), b"x" * SIZE),
        (Wanted(version=2**53, chain=""), b""),
        (Wanted(version=0, chain="unheard of"), b""),
        (State(version=0, chain=""), b"of no use"),
        (State(version=0, chain="other"), b"of no use"),
        (Leave(version=2**53), b""),
    ],
)
def test_strange_numbers_stop_nobody_for_long(message: AnyMessage, body: bytes) -> None:
    world = World()
    world.tell("c", "a", encode_message(message), body)
    for _ in range(6):
        for name in "ab":
            rounds = world.peers[name].rounds
            if not rounds.is_offered() and rounds.leader():
                world.offer(name)
        world.pump(PATIENCE_S)
    world.network.cut("a", "c")  # such a site does not last
    world.network.cut("b", "c")
    for _ in range(4):
        for name in "ab":
            if not world.peers[name].rounds.is_offered():
                world.offer(name)
        world.pump(PATIENCE_S)
    assert len(world.chains("ab")) == 1
    assert world.peers["a"].rounds.version >= 4


def test_sites_that_train_something_else_are_refused_at_the_start() -> None:
    world = World(settings={"c": "other"})
    for name, strange in (("a", "c"), ("c", "a, b")):
        with pytest.raises(InputError, match=f"{strange} and this site do not train the same"):
            join(world.peers[name], lambda: None, PATIENCE_S)


def test_a_newcomer_that_trains_something_else_does_not_stop_those_who_train() -> None:
    world = World()
    world.begin("c", settings="other")
    world.pump()
    for name in "ab":
        assert "c is not listened to: it trains something else" in world.peers[name].events
        assert world.peers[name].rounds.present() == ["a", "b"]
    world.offer("ab")
    world.pump()
    assert world.chains("ab") == {(1, world.peers["a"].rounds.chain)}
    world.begin("c")  # put right
    world.pump(8.0)
    assert len(world.chains()) == 1
    assert world.peers["a"].rounds.strangers == set()


def test_a_restarted_site_is_not_done_because_it_was() -> None:
    world = World()
    for name in "bc":
        world.peers[name].rounds.finish()
    world.pump()
    world.begin("c")
    world.pump()
    assert not world.peers["b"].rounds.all_done()
    world.peers["a"].rounds.finish()
    world.peers["c"].rounds.finish()
    world.pump()
    assert all(world.peers[name].rounds.all_done() for name in "abc")


def test_who_has_left_is_no_member_and_does_not_come_back_with_its_connection() -> None:
    world = World()
    world.peers["b"].rounds.leave()
    world.pump()
    world.network.cut("a", "b")
    world.network.join("a", "b")
    world.pump()
    assert world.peers["a"].rounds.present() == ["a", "c"]
    assert world.peers["b"].rounds.leader() == ""
    world.network.cut("a", "c")
    world.pump()
    assert world.peers["a"].rounds.has_quorum()  # half of the two that are left, with the first
    assert not world.peers["c"].rounds.has_quorum()


def test_a_last_result_may_come_after_the_goodbye() -> None:
    world = World("ab")
    world.network.large_bytes = SIZE - 1
    world.offer("ab")
    world.pump()
    world.network.release()  # b's offer
    world.pump()
    world.peers["a"].rounds.leave()
    world.pump()
    last = world.peers["b"].rounds
    assert (last.version, last.present()) == (0, ["a", "b"])
    world.network.release()  # the result
    world.pump()
    assert (last.version, last.present()) == (1, ["b"])
    assert world.chains("a") == world.chains("b")


def test_who_leaves_and_is_lost_before_its_last_result_came_is_waited_for_no_longer() -> None:
    world = World("ab")
    world.tell("a", "b", encode_message(Leave(version=5)))
    world.network.cut("a", "b")
    world.pump()
    assert world.peers["b"].rounds.present() == ["b"]
    assert world.peers["b"].rounds.has_quorum()


def test_what_is_under_way_is_not_sent_again_after_a_cut() -> None:
    world = World("ab")
    world.begin("b", history_bytes=0)
    world.begin("a", history_bytes=0)
    world.offer("a")
    world.pump(2 * PATIENCE_S)
    world.network.cut("a", "b")
    world.pump()
    world.peers["a"].rounds.offer(1.0, b"x" * SIZE, world.clock.monotonic_s())
    world.pump()
    world.network.join("a", "b")
    world.network.large_bytes = 1
    world.pump(4.0)
    giver = world.peers["a"].rounds
    assert giver.wants_state() == ["b"]
    giver.give_state("b", (b"state",))
    world.pump(4.0)
    for _ in range(3):
        world.network.cut("a", "b")
        world.pump()
        world.network.join("a", "b")
        world.pump(4.0)
        assert giver.wants_state() == []
    world.network.release()
    world.pump()
    assert [type(one) for one in world.peers["b"].rounds.settled][-1:] == [Adopted]
    assert len(world.chains()) == 1


def test_a_state_is_given_to_nobody_who_is_gone() -> None:
    world = World()
    world.peers["a"].rounds.give_state("nobody", (b"state",))
    assert world.peers["a"].rounds.outbox == []
    assert world.peers["a"].rounds.present() == ["a", "b", "c"]


def test_one_who_is_asked_and_does_not_answer_is_not_asked_for_ever() -> None:
    world = World()
    world.offer("ab")
    world.network.cut("a", "c")
    world.network.cut("b", "c")
    world.pump(2 * PATIENCE_S)
    world.network.join("a", "c")
    world.network.join("b", "c")
    world.ends["a"].happened.clear()  # it is stuck: its connections greet, and no more
    chain = world.peers["a"].rounds.chain
    greeting = Hello(version=1, chain=chain, settings="same", sees=3, can_lead=True)
    world.tell("a", "c", encode_message(greeting))
    world.pump(2.0, "bc")
    assert world.peers["c"].rounds.is_behind()
    world.pump(5 * PATIENCE_S, "bc")
    assert world.chains("b") == world.chains("c")
    assert not world.peers["c"].rounds.is_behind()


def test_states_changed_alone_have_names_of_their_own() -> None:
    rounds = [World("ab").peers["b"].rounds for _ in range(2)]
    seen = {""}
    for change in (b"one", b"two", b"two"):
        rounds[0].diverge(change)
        assert rounds[0].chain not in seen
        seen.add(rounds[0].chain)
    for change in (b"one", b"two", b"two"):
        rounds[1].diverge(change)
    assert rounds[0].chain == rounds[1].chain


def test_waiting_for_the_end_lasts_no_longer_than_the_patience() -> None:
    world = World("ab")
    turns = []

    def turn() -> None:
        turns.append(world.clock.monotonic_s())
        world.clock.advance(1.0)

    await_done(world.peers["a"], turn, 5.0)
    assert len(turns) == 6
    world.network.cut("a", "b")
    world.pump()
    assert join(world.peers["a"], turn, 3.0) == ["a"]
    peers, before_s = world.peers["b"], world.clock.monotonic_s()
    peers.close(0.0)
    assert world.clock.monotonic_s() == before_s
    assert peers.links() == {}


def facts(*, trouble: str = "") -> LinkFacts:
    return LinkFacts(
        up=False, session="", streams=0, rtt_s=None, rtt_s_min=None, bandwidth_bytes_per_s=None,
        sent_bytes=0, received_bytes=0, queued_bytes=0, silent_s=None, trouble=trouble,
    )  # fmt: skip


def test_what_training_begins_without_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("abcd")
    world.network.cut("a", "b")
    world.network.cut("a", "c")
    known = {"b": facts(trouble="refused"), "c": facts(), "d": facts()}
    monkeypatch.setattr(world.ends["a"], "links", lambda: known)
    peers, clock = world.peers["a"], world.clock
    world.pump()
    peers.events.clear()
    assert join(peers, lambda: clock.advance(1.0), 3.0) == ["a", "d"]
    assert peers.events == [
        "b was not met in 3 s: refused; training begins without it",
        "c was not met in 3 s: it has not called; training begins without it",
    ]
    peers.events.clear()
    ahead = Hello(version=4, chain="far", settings="same", sees=2, can_lead=True)
    world.tell("d", "a", encode_message(ahead))
    assert join(peers, lambda: clock.advance(1.0), 3.0) == ["a", "d"]
    assert peers.events[-1].startswith("the state of the other sites has not come in 3 s")


def test_what_is_too_large_to_be_sent_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("ab")
    send = world.ends["a"].send

    def small(peer: str, header: bytes, body: Buffer = b"", *, urgent: bool = False) -> int:
        if len(body) > SIZE:
            raise InputError("9 bytes are more than body_bytes_max")
        return send(peer, header, body, urgent=urgent)

    monkeypatch.setattr(world.ends["a"], "send", small)
    world.peers["a"].rounds.give_state("b", (b"x" * SIZE, b"y"))
    world.offer("ab")
    world.pump()
    told = "b does not get what it needs: 9 bytes are more than body_bytes_max"
    assert told in world.peers["a"].events
    assert world.peers["a"].rounds.version == 1


def test_history_keeps_what_fits_and_gives_what_follows() -> None:
    history, chain, pasts = History(3 * SIZE), "", []
    for number in range(1, 6):
        pasts.append(Past.of(number, chain, (Given(("a",), 1.0, b"%d" % number * SIZE),)))
        chain = pasts[-1].result.chain
        history.add(pasts[-1])
    assert history.since(2, pasts[1].result.chain) == pasts[2:]
    assert history.since(1, pasts[0].result.chain) == []
    assert history.since(3, "another") == []
    assert history.since(5, chain) == []
    assert all(one.result.chain == two.result.before for one, two in pairwise(pasts))
    history.clear()
    assert history.since(2, pasts[1].result.chain) == []


def test_numbers_that_are_none_are_no_message() -> None:
    for weight in (math.nan, math.inf, -1.0):
        with pytest.raises(MessageError, match="cannot be read"):
            decode_message(encode_message(Offer(round=1, chain="", weight=weight)))


@pytest.mark.parametrize(
    ("quorum", "expected"),
    [
        ("any", {"abcd": "abcd", "abc": "abc", "ab": "ab", "bc": "bc", "d": "d"}),
        ("all", {"abcd": "abcd", "abc": "", "ab": "", "bc": "", "d": ""}),
        ("majority", {"abcd": "abcd", "abc": "abc", "ab": "ab", "bc": "", "d": ""}),
    ],
)
def test_a_quorum_is_as_many_as_the_policy_says(quorum: Quorum, expected: dict[str, str]) -> None:
    for present, leading in expected.items():
        for me in present:
            contacts = Contacts(me, "abcd", quorum)
            for other in present:
                if other != me:
                    contacts.up(other, resumed=False)
                    contacts.heard(other, 0, "")
            assert contacts.has_quorum() == (me in leading)


def test_who_hears_most_leads_and_need_not_be_heard_by_all() -> None:
    world = World()
    world.network.cut("a", "b")
    world.pump()
    assert {name: world.peers[name].rounds.leader() for name in "abc"} == dict.fromkeys("abc", "c")
    for _ in range(3):
        world.offer("abc")
        world.pump()
    assert world.chains() == {(3, world.peers["a"].rounds.chain)}
    world.network.join("a", "b")
    world.pump()
    assert {name: world.peers[name].rounds.leader() for name in "abc"} == dict.fromkeys("abc", "a")


def test_travel_while_the_training_stands_still_is_exposed_and_all_other_is_hidden() -> None:
    world = World("ab")
    end, peers = world.ends["a"], world.peers["a"]
    end.travelled_s += 1.0
    with peers.exposed():
        end.travelled_s += 2.0
    end.travelled_s += 4.0
    with suppress(InputError), peers.exposed():  # what fails has been waited for all the same
        end.travelled_s += 8.0
        raise InputError("amiss")
    assert (peers.exposed_s(), peers.hidden_s()) == (10.0, 5.0)


@pytest.mark.parametrize("is_leave", [True, False])
def test_a_result_that_others_have_had_is_on_its_way(*, is_leave: bool) -> None:
    world = World()
    rounds = world.peers["c"].rounds
    assert not rounds.is_outdone()
    hello = Hello(version=1, chain="x", settings="same", sees=2, can_lead=False)
    rounds.received("a", Leave(version=1) if is_leave else hello, b"", world.clock.monotonic_s())
    assert rounds.is_outdone()
    assert bool(rounds.leader()) == is_leave
