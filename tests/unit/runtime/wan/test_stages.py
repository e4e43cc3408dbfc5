"""A pipeline over sites trains what one process trains, whatever its links do meanwhile."""

import threading
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import pytest
import torch
from msgspec import structs
from tests.unit.runtime.wan.stage_sites import (
    SHAPE,
    Speakers,
    adamw,
    at_all,
    batch,
    options,
    run_of,
    speakers_of,
    stages_of,
    trained,
)
from torch import Tensor, nn

from gridloom.base.errors import GridloomError, InputError
from gridloom.model.transformer import Experts
from gridloom.runtime.failure import PeerLostError, PoisonedError
from gridloom.runtime.run import Run
from gridloom.runtime.wan.settings import Address
from gridloom.runtime.wan.stages import Passed, StageOptions, Stages
from gridloom.runtime.wan.stages_layers import built, gpt_layers, token_loss

STEPS = 30
Made = tuple[list[Passed], dict[str, Tensor]]


def train(run: Run, how: StageOptions, steps: int = STEPS) -> Made:
    """Train a whole run at one site; return how its steps went, and its weights."""
    torch.set_num_threads(1)
    stages = stages_of(run, how)
    passed = trained(stages, steps, adamw(stages))
    stages.finish()
    return passed, dict(stages.module.state_dict())


@pytest.fixture(scope="module")
def alone() -> Made:
    """The same training in one process."""
    return train(run_of("here", {"here": ("127.0.0.1", 0)}), options())


@pytest.mark.parametrize(
    ("sites", "in_flight"),
    [(2, 0), (2, 1), pytest.param(3, 0, marks=pytest.mark.unmeasured)],
)
def test_sites_train_what_one_process_trains(sites: int, in_flight: int, alone: Made) -> None:
    ends = at_all(speakers_of(sites), lambda run: train(run, options(in_flight=in_flight)))
    weights: dict[str, Tensor] = {}
    for passed, own in ends:
        assert [one.loss for one in passed] == pytest.approx(
            [one.loss for one in alone[0]], abs=1e-4
        )
        assert [one.norm for one in passed] == pytest.approx(
            [one.norm for one in alone[0]], rel=1e-4
        )
        assert all(one.again == 0 for one in passed)
        weights |= own
    assert weights.keys() == alone[1].keys()
    for name, weight in weights.items():
        assert torch.allclose(weight, alone[1][name], atol=1e-5), name
    depths = [one.depth for one in ends[0][0]]
    assert depths == [1] * STEPS if in_flight else depths[0] == sites <= min(depths)
    assert {one.depth for one in ends[-1][0]} == {1}


@pytest.mark.parametrize("sites", [1, 2, 3])
def test_an_evaluation_leaves_no_trace(sites: int, alone: Made) -> None:
    def work(run: Run) -> tuple[list[float], list[float], int]:
        own = stages_of(run, options())
        optimizer = adamw(own)
        losses, held_out = [], []
        for step in range(4):
            losses.append(own.forward_backward(*batch(step)).loss)
            held_out.append(own.evaluate(*batch(100)))  # before the update, and its gradients stay
            optimizer.step()
        held_out.append(own.evaluate(*batch(100)))
        own.finish()
        return losses, held_out, own.steps

    layers = gpt_layers(SHAPE, seed=1)
    whole = nn.Sequential(*built(layers, range(len(layers))))
    inputs, targets = batch(100)
    with torch.no_grad():
        untrained = float(token_loss(whole(inputs), targets))
    for losses, held_out, steps in at_all(speakers_of(sites), work):
        assert losses == pytest.approx([one.loss for one in alone[0][:4]], abs=1e-4)
        assert held_out[0] == pytest.approx(untrained, abs=1e-5)
        assert held_out == sorted(held_out, reverse=True)
        assert len(set(held_out)) == 5
        assert steps == 4


@pytest.mark.parametrize("bits", [16, pytest.param(8, marks=pytest.mark.unmeasured)])
def test_fewer_bits_on_the_way_train_as_well(bits: int, alone: Made) -> None:
    (one, _), (other, _) = at_all(speakers_of(2), lambda run: train(run, options(bits=bits)))
    losses = [passed.loss for passed in one]
    assert losses == [passed.loss for passed in other]
    exact = [passed.loss for passed in alone[0]]
    assert losses != exact
    assert losses == pytest.approx(exact, rel=0.03)
    assert exact[-1] < 0.8 * exact[0]


@pytest.mark.parametrize("outage", ["short", "long"])
def test_a_link_that_fails_costs_time_alone(
    outage: str, alone: Made, proxy: Callable[[Address], Any]
) -> None:
    speakers = speakers_of(2)
    between = proxy(speakers["south"])
    made: list[Stages] = []
    calls: list[int] = []

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) == 15 and outage == "short":  # of 4 a step: in the middle of the 4th step
            between.cut()
        elif len(calls) == 15:
            between.stalled = True
            threading.Thread(target=come_back).start()
        return token_loss(logits, targets)

    def come_back() -> None:
        while any(link.up for one in made for link in one.links().values()):
            threading.Event().wait(0.02)
        threading.Event().wait(1.0)  # for both to give the step up
        between.stalled = False

    def work(run: Run) -> list[Passed]:
        own = Stages(
            run, gpt_layers(SHAPE, 1), loss, options(stall_s=0.2 + 40 * (outage[0] == "s"))
        )
        made.append(own)
        passed = trained(own, 8, adamw(own))
        own.finish()
        return passed

    ways = {"north": speakers | {"south": between.address}, "south": speakers}
    one, other = at_each(ways, work)
    expected = [passed.loss for passed in alone[0][:8]]
    for passed in (one, other):
        assert [step.loss for step in passed] == pytest.approx(expected, abs=1e-4)
        again = [step.again for step in passed]
        if outage == "short":
            assert again == [0] * 8
        else:
            assert again[3] >= 1
            assert again[:3] + again[4:] == [0] * 7
    assert [step.again for step in one] == [step.again for step in other]


def at_each(
    ways: Mapping[str, Speakers], work: Callable[[Run], list[Passed]]
) -> list[list[Passed]]:
    """As ``at_all``, where each site has its own addresses of the others."""
    return at_all(ways["south"], lambda run: work(run_of(run.place.site, ways[run.place.site])))


def ended(run: Run, work: Callable[[Run], object]) -> BaseException | None:
    """Return what a site's training ended with."""
    try:
        work(run)
    except (GridloomError, ZeroDivisionError) as error:
        return error
    return None


def test_a_stage_that_fails_tells_the_others() -> None:
    def broken(logits: Tensor, targets: Tensor) -> Tensor:
        raise ZeroDivisionError("the user's own")

    def work(run: Run) -> list[str]:
        own = stages_of(run, options(), broken)
        found = [ended(run, lambda _: own.forward_backward(*batch(0))) for _ in range(2)]
        return [f"{type(error).__name__}: {error}" for error in found]

    one, other = at_all(speakers_of(2), work)
    assert one[0] == "PeerLostError: south has given up: the user's own"
    assert other[0] == "ZeroDivisionError: the user's own"
    assert "this pipeline has ended" in one[1]  # nor does it go on later
    assert "this pipeline has ended" in other[1]


def test_numbers_that_are_not_finite_end_it_everywhere() -> None:
    def train_badly(run: Run) -> None:
        stages_of(run, options(), lambda x, _: x.sum() * float("nan")).forward_backward(*batch(0))

    def lose_it(run: Run) -> None:
        # the loss alone: all gradients are finite
        stages_of(run, options(), lambda x, _: x.sum() * 0 + float("inf")).forward_backward(
            *batch(0)
        )

    for work, text in ((train_badly, "gradients to be sent are not finite"), (lose_it, "is inf")):
        found = at_all(speakers_of(2), lambda run, work=work: ended(run, work))  # type: ignore[misc]
        assert [type(error) for error in found] == [PoisonedError, PoisonedError]
        assert all(text in str(error) for error in found)


def test_sites_must_train_the_same_thing() -> None:
    def work(run: Run, how: StageOptions, step: int = 0, done: int = 0) -> None:
        own = stages_of(run, how)
        own.load_state_dict({"steps": done})
        own.forward_backward(*batch(step))

    def other(run: Run) -> None:
        work(run, options(bits=16 if run.place.number else 32))

    def read(run: Run) -> None:
        work(run, options(), step=run.place.number)

    def looked(run: Run) -> None:
        own = stages_of(run, options())
        (own.evaluate if run.place.number else own.forward_backward)(*batch(0))

    def resumed(run: Run) -> None:
        work(run, options(), done=10 * run.place.number)

    for wrong, text, both in (
        (other, "not stages of the same pipeline", True),
        (read, "different batches", False),
        (looked, "trains in a step in which this site evaluates", False),
        (resumed, "goes on after step", True),
    ):
        found = at_all(speakers_of(2), lambda run, wrong=wrong: ended(run, wrong))  # type: ignore[misc]
        told = [error for error in found if isinstance(error, InputError)]
        assert len(told) == 2 if both else told
        assert all(text in str(error) for error in found)


def test_nobody_there_is_not_waited_for_long() -> None:
    own = stages_of(run_of("north", speakers_of(2)), options(patience_s=0.2))
    with pytest.raises(PeerLostError, match=r"south \(not met yet\)"):
        own.forward_backward(*batch(0))


def test_all_go_on_from_a_checkpoint_at_the_same_step(alone: Made) -> None:
    kept: dict[str, Any] = {}

    def begin(run: Run) -> None:
        own = stages_of(run, options())
        optimizer = adamw(own)
        trained(own, 5, optimizer)
        own.finish()
        kept[run.place.site] = [part.state_dict() for part in (own, own.module, optimizer)]

    def go_on(run: Run) -> list[Passed]:
        own = stages_of(run, options())
        optimizer = adamw(own)
        parts: list[Any] = [own, own.module, optimizer]
        for part, state in zip(parts, kept[run.place.site], strict=True):
            part.load_state_dict(state)
        passed = trained(own, 10, optimizer)
        own.finish()
        return passed

    at_all(speakers_of(2), begin)
    for passed in at_all(speakers_of(2), go_on):
        expected = [one.loss for one in alone[0][5:10]]
        assert [one.loss for one in passed] == pytest.approx(expected, abs=1e-4)


def test_a_wish_to_stop_reaches_all_after_the_same_step() -> None:
    def work(run: Run) -> list[bool]:
        own = stages_of(run, options())
        wishes = [own.should_stop()]
        for step in range(3):
            if run.place.number == 1 and step == 1:
                run.should_stop = lambda: True  # type: ignore[method-assign]
            own.forward_backward(*batch(step))
            wishes.append(own.should_stop())
        own.finish()
        return wishes

    assert at_all(speakers_of(2), work) == [[False, False, True, True]] * 2


class Pair(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


def test_what_cannot_be_is_refused() -> None:
    here, place = {"here": ("127.0.0.1", 0)}, speakers_of(2)
    tied = nn.Linear(4, 4)
    lines = [nn.Linear(4, 4), nn.Linear(4, 4)]

    def make(layers: Sequence[nn.Module], run: Run, **more: Any) -> Stages:
        return Stages(run, layers, nn.functional.mse_loss, options(**more))

    with pytest.raises(InputError, match="shares its weight"):
        make([tied, tied], run_of("north", place))
    with pytest.raises(InputError, match="one layer or more"):
        make([tied], run_of("north", place))
    with pytest.raises(InputError, match="must be at least 1 each, 2 in all"):
        make(lines, run_of("north", place), stage_layers=(2, 1))
    with pytest.raises(InputError, match="names 1 stages"):
        make(lines, run_of("north", place), stage_layers=(2,))
    with pytest.raises(InputError, match="32, 16 or 8 bits"):
        make(lines, run_of("here", here), bits=4)
    with pytest.raises(InputError) as both:
        make(lines, run_of("here", here), micro_batches=0, patience_s=float("inf"))
    assert len(both.value.problems) == 2
    with pytest.raises(InputError, match="6 samples with 6 targets are not 4"):
        make(lines, run_of("here", here)).forward_backward(torch.zeros(6, 4), torch.zeros(6, 4))
    shape = structs.replace(
        SHAPE, tied_embeddings=True, experts=Experts(count=2, per_token=1, ffn=8)
    )
    with pytest.raises(InputError, match=r"tied_embeddings do not go[\s\S]*experts do not go"):
        gpt_layers(shape, 1)


def test_a_cut_where_no_tensor_passes_is_refused() -> None:
    def work(run: Run) -> None:
        layers = [Pair(), nn.Linear(4, 4)]
        own = Stages(run, layers, nn.functional.mse_loss, options(micro_batches=1))
        own.forward_backward(torch.zeros(2, 4), torch.zeros(2, 4))

    one, other = at_all(speakers_of(2), lambda run: ended(run, work))
    assert isinstance(one, InputError)
    assert "cut where a layer gives one tensor" in str(one)
    assert isinstance(other, PeerLostError)


def test_layers_without_weights_and_of_few_bits_pass() -> None:
    torch.manual_seed(1)
    layers = [nn.Flatten(), nn.BatchNorm1d(4).bfloat16(), nn.Linear(4, 4).bfloat16()]

    def work(run: Run) -> list[Passed]:
        own = Stages(run, deepcopy(layers), lambda x, y: (x.float() - y).square().mean(), options())
        inputs = torch.randn(8, 4, 1, generator=torch.Generator().manual_seed(2)).bfloat16()
        passed = [own.forward_backward(inputs, torch.ones(8, 4)) for _ in range(2)]
        own.finish()
        return passed

    (expected,) = at_all({"here": ("127.0.0.1", 0)}, work)
    for passed in at_all(speakers_of(3), work):
        assert [one.loss for one in passed] == [one.loss for one in expected]
