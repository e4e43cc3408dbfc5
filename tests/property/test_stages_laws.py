"""Stages of a pipeline under any order of arrivals and give-ups; and how long a step takes."""

import heapq
from collections import deque
from copy import deepcopy
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import at_least

from gridloom.planner.stages_time import StageLink, stages_depth, stages_step_s
from gridloom.runtime.failure import PeerLostError
from gridloom.runtime.wan.stages_accord import AFTER, BEFORE, Accord, Own
from gridloom.runtime.wan.stages_messages import (
    Again,
    Agreed,
    Hello,
    Ready,
    decode_message,
    encode_message,
)
from gridloom.runtime.wan.stages_schedule import Turns, depth_for, layers_of


@dataclass
class Piped:
    """Stages that take turns, and what is on its way between them."""

    stages: list[Turns]
    ways: list[list[tuple[int, str, int]]]
    """What has been sent, by the stage that gets it: from which, which way, which micro-batch."""


def piped(micro_batches: int, depths: list[int]) -> Piped:
    last = len(depths) - 1
    stages = [
        Turns(micro_batches, depth, first=n == 0, last=n == last) for n, depth in enumerate(depths)
    ]
    return Piped(stages, [[] for _ in depths])


@given(
    micro_batches=st.integers(1, 9),
    depths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    data=st.data(),
)
def test_every_micro_batch_goes_forward_and_back_once_whatever_arrives_when(
    micro_batches: int, depths: list[int], data: st.DataObject
) -> None:
    pipe = piped(micro_batches, depths)
    done: list[list[tuple[str, int]]] = [[] for _ in depths]
    last = len(depths) - 1
    arrived = [0] * len(depths)
    while not all(stage.is_over for stage in pipe.stages):
        able = [n for n, stage in enumerate(pipe.stages) if deepcopy(stage).take()]
        moves = [("turn", n) for n in able]
        moves += [("arrival", n) for n, way in enumerate(pipe.ways) if way]
        assert moves, "nobody can go on"
        move, number = data.draw(st.sampled_from(moves))
        stage = pipe.stages[number]
        if move == "arrival":
            way = pipe.ways[number]
            _, kind, micro_batch = way.pop(data.draw(st.integers(0, len(way) - 1)))
            if kind == "forward":
                stage.input_came(micro_batch)
                arrived[number] += 1
            else:
                stage.gradient_came(micro_batch)
            continue
        turn = stage.take()
        assert turn is not None
        done[number].append((turn.kind, turn.micro_batch))
        to = number + (1 if turn.kind == "forward" else -1)
        if 0 <= to <= last:
            pipe.ways[to].append((number, turn.kind, turn.micro_batch))
        assert 0 <= stage.held <= stage.depth
        if number:  # what waits here before its forward is held by the stage before
            forwards = sum(kind == "forward" for kind, _ in done[number])
            assert arrived[number] - forwards + stage.held <= depths[number - 1]
    for order in done:
        assert [m for kind, m in order if kind == "forward"] == list(range(micro_batches))
        assert [m for kind, m in order if kind == "backward"] == list(range(micro_batches))
    assert all(stage.take() is None and stage.held == 0 for stage in pipe.stages)


def simulated_s(
    micro_batches: int, depths: list[int], stage_s: list[float], links: list[StageLink]
) -> float:
    """Return the seconds of a step in which every link carries one micro-batch at a time."""
    pipe = piped(micro_batches, depths)
    free_s = [0.0] * len(depths)
    link_free_s: dict[tuple[int, int], float] = {}
    happens: list[tuple[float, int, int, str, int]] = [
        (0.0, 0, n, "", 0) for n in range(len(depths))
    ]
    tickets, end_s = 0, 0.0
    while happens:
        now_s, _, number, kind, micro_batch = heapq.heappop(happens)
        stage = pipe.stages[number]
        if kind == "forward":
            stage.input_came(micro_batch)
        elif kind == "backward":
            stage.gradient_came(micro_batch)
        if free_s[number] > now_s:
            continue  # it is asked again when it is free
        turn = stage.take()
        if turn is None:
            continue
        share = 1 / 3 if turn.kind == "forward" else 2 / 3
        free_s[number] = end = now_s + share * stage_s[number]
        end_s = max(end_s, end)
        tickets += 1
        heapq.heappush(happens, (end, tickets, number, "", 0))
        to = number + (1 if turn.kind == "forward" else -1)
        if 0 <= to < len(depths):
            link = links[min(number, to)]
            start = max(end, link_free_s.get((number, to), 0.0))
            link_free_s[number, to] = start + link.transfer_s
            there = start + link.transfer_s + link.rtt_s / 2
            tickets += 1
            heapq.heappush(happens, (there, tickets, to, turn.kind, turn.micro_batch))
    assert all(stage.is_over for stage in pipe.stages)
    return end_s


links = st.builds(
    StageLink,
    sent_bytes=st.just(1e5),
    bandwidth_bytes_per_s=st.floats(1e6, 1e9),
    rtt_s=st.floats(0.0, 0.3),
)


@given(
    micro_batches=st.integers(1, 40),
    stage_s=st.lists(st.floats(0.05, 0.06), min_size=2, max_size=3),
    hops=st.lists(links, min_size=2, max_size=2),
)
@at_least(50)
def test_with_the_depth_that_covers_the_links_a_step_takes_what_is_predicted(
    micro_batches: int, stage_s: list[float], hops: list[StageLink]
) -> None:
    hops = hops[: len(stage_s) - 1]
    period_s = max(*stage_s, *(hop.transfer_s for hop in hops))
    delays = [sum(hop.delay_s for hop in hops[n:]) for n in range(len(stage_s))]
    depths = [depth_for(len(stage_s) - n, delays[n], period_s) for n in range(len(stage_s))]
    assert depths[-1] == 1
    assert depths[0] >= stages_depth(stage_s, hops)
    took_s = simulated_s(micro_batches, depths, stage_s, hops)
    predicted_s = stages_step_s(stage_s, hops, micro_batches=micro_batches)
    # a turn that has begun is not broken off for a better one: what is due waits for its end
    slack_s = len(stage_s) * period_s
    assert 0.85 * predicted_s - slack_s <= took_s <= 1.15 * predicted_s + slack_s


@given(micro_batches=st.integers(1, 40), depth=st.integers(1, 6), hop=links)
def test_a_depth_that_is_too_small_costs_what_is_predicted(
    micro_batches: int, depth: int, hop: StageLink
) -> None:
    stage_s = [0.05, 0.05]
    took_s = simulated_s(micro_batches, [depth, 1], stage_s, [hop])
    predicted_s = stages_step_s(stage_s, [hop], micro_batches=micro_batches, depth=depth)
    period_s = max(0.05, hop.transfer_s)
    windows = 1 + (micro_batches - 1) // depth
    assert predicted_s * (1 - 1e-9) <= took_s + windows * period_s
    assert took_s <= predicted_s + (1 + windows) * period_s


@given(stages=st.integers(1, 5), layers=st.integers(5, 20))
def test_stages_share_all_layers_out(stages: int, layers: int) -> None:
    parts = [layers_of(n, stages, layers) for n in range(stages)]
    assert [n for part in parts for n in part] == list(range(layers))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


STEPS = 3


@dataclass
class Party:
    """One stage: its accord, and the try that it has made all passes of."""

    accord: Accord
    passed: tuple[int, int] = (0, 0)
    committed: list[tuple[int, int]] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return self.accord.done == STEPS


class Parties:
    """Stages in a row; every message on a link arrives, in order, at some time."""

    def __init__(self, count: int, give_ups: int) -> None:
        self.all = [
            Party(Accord(first=n == 0, last=n == count - 1, settings="same")) for n in range(count)
        ]
        self.ways: dict[tuple[int, int], deque[bytes]] = {
            (n, n + side): deque() for n in range(count) for side in self.all[n].accord.sides
        }
        self.give_ups = give_ups

    def moves(self) -> list[tuple[str, int, int]]:
        """Return all that may happen next."""
        found = [("message", *way) for way, waiting in self.ways.items() if waiting]
        for n, party in enumerate(self.all):
            if party.is_over:
                continue
            if party.accord.outcome is not None:
                found.append(("commit", n, n))
                continue
            if party.passed != party.accord.stamp and self._may_pass(n):
                found.append(("pass", n, n))
            if self.give_ups and party.accord.may_give_up:
                found.append(("give up", n, n))
        return found

    def play(self, move: str, n: int, to: int) -> None:
        party = self.all[n]
        if move == "message":
            self._deliver(n, to)
        elif move == "commit":
            party.committed.append(party.accord.stamp)
            party.accord.commit()
        elif move == "pass":
            party.passed = party.accord.stamp
            party.accord.complete(Own(1.0, 4.0, stop=n == 1, delay_s=0.1, period_s=0.2))
        else:
            self.give_ups -= 1
            party.accord.give_up()
        for number, one in enumerate(self.all):
            for side, message in one.accord.outbox:
                self.ways[number, number + side].append(encode_message(message))
            one.accord.outbox.clear()

    def _may_pass(self, n: int) -> bool:
        """Return whether stage ``n`` can have all inputs and all gradients of its try."""
        stamp = self.all[n].accord.stamp
        has_inputs = n == 0 or self.all[n - 1].accord.stamp >= stamp
        has_gradients = n + 1 == len(self.all) or self.all[n + 1].passed >= stamp
        return has_inputs and has_gradients

    def _deliver(self, n: int, to: int) -> None:
        message = decode_message(self.ways[n, to].popleft())
        accord, side = self.all[to].accord, BEFORE if n < to else AFTER
        match message:
            case Again():
                accord.heard(side, (message.step, message.again))
            case Ready():
                accord.ready(message)
            case Agreed():
                assert message.norm == 2.0 * len(self.all) ** 0.5
                assert message.stop == (len(self.all) > 1)
                accord.agreed(message)
            case _:
                raise AssertionError(message)


@given(count=st.integers(1, 4), give_ups=st.integers(0, 6), data=st.data())
@at_least(60)
def test_a_step_that_is_over_anywhere_is_over_everywhere(
    count: int, give_ups: int, data: st.DataObject
) -> None:
    parties = Parties(count, give_ups)
    while not all(party.is_over for party in parties.all):
        moves = parties.moves()
        assert moves, "nobody can go on"
        parties.play(*data.draw(st.sampled_from(moves)))
    first = parties.all[0].committed
    assert all(party.committed == first for party in parties.all)
    assert [step for step, _ in first] == list(range(1, STEPS + 1))


def test_a_neighbour_that_was_started_again_at_another_step_ends_it() -> None:
    accord = Accord(first=True, last=False, settings="same")
    accord.go_on_from(2)
    accord.commit(trains=False)  # an evaluation
    accord.met("south", Hello(done=3, again=2, trained=2, settings="same"), before=False)
    assert accord.stamp == (4, 2)
    with pytest.raises(PeerLostError, match=r"after step 1, and this site is at 2"):
        accord.met("south", Hello(done=1, again=0, trained=1, settings="same"), before=True)


def test_that_the_next_step_is_begun_again_is_passed_on_by_a_stage_still_in_this_one() -> None:
    middle = Accord(first=False, last=False, settings="same")
    middle.heard(BEFORE, (2, 1))
    assert middle.outbox == []
    middle.commit()
    assert middle.stamp == (2, 1)
    assert (AFTER, Again(step=2, again=1)) in middle.outbox
