"""Buckets of gradients, and when a backward pass has completed them."""

import pytest
import torch
from torch import nn

from gridloom.runtime.wan.backward import Backward, InOrder
from gridloom.runtime.wan.buckets import Buckets, gradient_of

NET_BYTES = [4 * 4 * 4, 4 * 4, 4 * 4 * 2, 2 * 4]


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))


@pytest.mark.parametrize(
    ("most_bytes", "sizes"),
    [(0, [30]), (10_000, [30]), (40, [10, 4, 16]), (56, [14, 16]), (1, [2, 8, 4, 16])],
)
def test_buckets_are_cut_from_the_end_at_whole_parameters(
    most_bytes: int, sizes: list[int]
) -> None:
    parameters = list(net().parameters())
    buckets = Buckets(parameters, [True] * 4, most_bytes)
    assert [weights.numbers(0) for weights in buckets.weights] == sizes
    assert len(buckets) == len(sizes)
    assert not buckets.are_cut()
    flat = torch.cat([weights.read(0) for weights in buckets.weights])
    torch.testing.assert_close(flat, torch.cat([p.flatten() for p in reversed(parameters)]))


def test_what_others_own_is_in_no_bucket_but_is_waited_for() -> None:
    parameters = list(net().parameters())
    buckets = Buckets(parameters, [True, False, False, True], 40)
    assert [weights.numbers(0) for weights in buckets.weights] == [2, 0, 16]
    assert [len(bucket) for bucket in buckets.parameters] == [2, 1, 1]
    assert buckets.shapes(2) == [(4, 4)]
    buckets.fill_up(5)
    buckets.fill_up(2)
    assert len(buckets) == len(buckets.weights) == 5
    assert buckets.gradients(4).numbers(0) == 0


def test_gradients_are_read_and_written_where_they_are_now() -> None:
    parameters = list(net().parameters())
    buckets = Buckets(parameters, [True] * 4, 40)
    assert not buckets.gradients(1).read(0).any()  # none yet
    parameters[1].grad = torch.ones(4)
    assert buckets.gradients(1).read(0).tolist() == [1.0] * 4
    buckets.gradients(1).write(0, torch.arange(4.0))
    assert gradient_of(parameters[1]).tolist() == [0.0, 1.0, 2.0, 3.0]


class Listener:
    """Notes the buckets that are ready, in the midst of the backward pass or after it."""

    def __init__(self, model: nn.Sequential, most_bytes: int) -> None:
        self.model, self.ready = model, list[tuple[int, bool]]()
        parameters = list(model.parameters())
        buckets = Buckets(parameters, [True] * len(parameters), most_bytes)
        self.first = parameters[0]
        self.order = InOrder(buckets.parameters, self.note)
        self.backward = Backward(parameters, self.order.came)

    def note(self, bucket: int) -> None:
        self.ready.append((bucket, self.first.grad is not None))

    def step(self, passes: int = 1, *, only_last: bool = False) -> list[tuple[int, bool]]:
        self.model.zero_grad()
        for _ in range(passes):
            given = torch.ones(3, 4)
            part = self.model[2] if only_last else self.model
            part(given).sum().backward()
        ready, self.ready = self.ready, []
        self.order.restart(self.backward.end_step())
        return ready


def test_buckets_are_ready_while_the_backward_goes_on_from_the_second_step() -> None:
    listener = Listener(net(), 40)
    assert listener.step() == []
    for _ in range(2):
        numbers, is_over = zip(*listener.step(), strict=True)
        assert numbers == (0, 1, 2)
        assert not is_over[0]
    listener.backward.stop()
    assert listener.step() == []


def test_gradients_that_are_added_to_several_times_are_ready_with_the_last() -> None:
    listener = Listener(net(), 40)
    listener.step(passes=3)
    assert listener.step(passes=2) == []  # fewer than were expected
    assert len(listener.step(passes=2)) == 3
    assert len(listener.step(passes=5)) == 3  # too early: whoever is told looks again


def test_parameters_that_take_no_part_are_not_waited_for() -> None:
    listener = Listener(net(), 40)
    listener.step(only_last=True)
    assert [number for number, _ in listener.step(only_last=True)] == [0, 1, 2]
    assert [number for number, _ in listener.step()] == [0, 1, 2]
    assert [number for number, _ in listener.step()] == [0, 1, 2]
