"""Why not: every outcome, with the figures that its sentence claims."""

from dataclasses import replace

import pytest

from gridloom.base.errors import InputError
from gridloom.planner.catalogue import accelerator
from gridloom.planner.constants import Constants
from gridloom.planner.costs import cost_model
from gridloom.planner.models.presets import preset
from gridloom.planner.pins import pinned
from gridloom.planner.search import Goal, search
from gridloom.planner.search_grid import cases_of
from gridloom.planner.search_space import NODE_SHARD, Rule, SearchSpace
from gridloom.planner.verdict import Verdict, any_fits, least_hardware, why_not

COSTS = cost_model(Constants())
SPACE = SearchSpace(
    model=preset("llama-3.1-70b"),
    accelerator=accelerator("h100"),
    devices=(64,),
    global_batch=64,
    sequence=8192,
    context=(1, 2, 4),
    zero=(0, 1),
    price_per_device_hour=3.0,
)


def asked(goal: Goal | None = None, **pins: int | str) -> Verdict:
    return why_not(SPACE, pins, COSTS, goal)


@pytest.mark.parametrize(
    ("pins", "rule", "remedy"),
    [
        ({"tp": 3}, Rule.NODE, "tensor"),
        ({"tp": 16}, Rule.NODE, "tensor"),
        ({"pp": 128}, Rule.LAYERS, "pipeline"),
        ({"pp": 5}, Rule.DEVICES, "pipeline"),
        ({"cp": 3}, Rule.SEQUENCE, "context"),
        ({"mbs": 3}, Rule.MICRO_BATCH, "micro_batch"),
        ({"ep": 2}, Rule.EXPERTS, "expert"),
        ({"dp": 3}, Rule.DATA, "data"),
        ({"pp": 4, "vpp": 7}, Rule.CHUNKS, "virtual_stages"),
        ({"pp": 8, "vpp": 2, "dp": 8, "mbs": 8}, Rule.INTERLEAVING, "data"),
        ({"zero": 1, "shard": 3}, Rule.SHARD, "shard"),
    ],
)
def test_impossible_names_the_rule_and_a_way_out(
    pins: dict[str, int | str], rule: Rule, remedy: str
) -> None:
    verdict = why_not(SPACE, pins, COSTS)
    assert verdict.outcome == "impossible"
    assert verdict.rule is rule
    assert rule.sentence in verdict.sentence
    assert remedy in {found.knob for found in verdict.remedies}
    assert verdict.plan is None


def test_what_does_not_fit_says_by_how_much_where_and_what_would_help() -> None:
    verdict = asked(tp=8, pp=1, dp=8, zero=0)
    assert verdict.outcome == "does_not_fit"
    leanest = verdict.leanest
    assert leanest is not None
    assert (leanest.plan.tensor, leanest.plan.pipeline, leanest.plan.data) == (8, 1, 8)
    assert verdict.over_bytes == pytest.approx(leanest.memory_bytes - 80e9)
    assert verdict.over_bytes > 0
    assert sum(verdict.memory.values()) == pytest.approx(leanest.memory_bytes, abs=2)
    largest = max(verdict.memory, key=lambda kind: verdict.memory[kind])
    assert f"the largest part is {largest}" in verdict.sentence
    assert verdict.remedies
    for remedy in verdict.remedies:
        assert remedy.plan.memory_bytes <= 80e9
    knobs = {remedy.knob: remedy.value for remedy in verdict.remedies}
    assert int(knobs["zero"]) > 0
    assert "tensor" not in knobs or knobs["tensor"] != "8"
    assert "offload" in knobs


def test_doubling_the_devices_is_a_remedy_where_sharding_makes_it_one() -> None:
    space = replace(SPACE, devices=(8,), zero=(1,), recompute=("full",))
    verdict = why_not(space, {"tp": 8}, COSTS)
    assert verdict.outcome == "does_not_fit"
    devices = next(remedy for remedy in verdict.remedies if remedy.knob == "devices")
    assert int(devices.value) in (16, 32)
    assert devices.plan.plan.tensor == 8


def test_what_loses_says_how_much_and_through_which_line() -> None:
    verdict = asked(tp=8, recompute="full")
    assert verdict.outcome == "loses"
    assert verdict.plan is not None
    assert verdict.best is not None
    assert verdict.plan.plan.tensor == 8
    assert verdict.plan.plan.recompute == "full"
    assert verdict.ratio == pytest.approx(verdict.plan.time_s / verdict.best.time_s)
    assert verdict.ratio > 1
    assert sum(line.more_s for line in verdict.lines) == pytest.approx(
        verdict.plan.step_s - verdict.best.step_s
    )
    more = [line.more_s for line in verdict.lines]
    assert more == sorted(more, reverse=True)
    assert f"the largest difference in a training step is {verdict.lines[0].kind}" in (
        verdict.sentence
    )


def test_what_was_not_compared_may_be_better() -> None:
    verdict = asked(zero=2, precision="fp8")
    assert verdict.outcome == "better"
    assert verdict.plan is not None
    assert verdict.best is not None
    assert verdict.plan.time_s < verdict.best.time_s
    line = verdict.lines[-1]
    assert line.more_s < 0
    assert f"training step is {line.kind}: " in verdict.sentence
    assert "it was none of them" in verdict.sentence


def test_what_takes_as_long_is_not_told_as_1_times_the_time() -> None:
    best = search(SPACE, COSTS, Goal(top=1)).plans[0]
    # What is computed again of fused attention is next to nothing beside a training step of a day.
    nearly = replace(COSTS, step_s=lambda cases: 86_400.0 + COSTS.step_s(cases))
    verdict = why_not(SPACE, {"tp": best.plan.tensor, "zero": 2}, nearly, Goal())
    assert 1 - 1e-9 < verdict.ratio < 1.0005
    assert "takes about the same time as the best of all" in verdict.sentence


def test_the_best_is_called_the_best() -> None:
    best = search(SPACE, COSTS, Goal(top=1)).plans[0]
    verdict = asked(tp=best.plan.tensor, pp=best.plan.pipeline)
    assert verdict.outcome == "best"
    assert verdict.plan == verdict.best == best
    assert verdict.ratio == 1


def test_what_fits_but_takes_too_long_is_over_the_limit() -> None:
    best = search(SPACE, COSTS, Goal(top=1)).plans[0]
    goal = Goal(objective="deadline", deadline_s=best.time_s * 1.001)
    verdict = asked(goal, recompute="full")
    assert verdict.outcome == "over_limit"
    assert verdict.plan is not None
    assert verdict.plan.time_s > goal.deadline_s
    dear = asked(Goal(objective="price", price_max=best.price * 1.001), recompute="full")
    assert dear.outcome == "over_limit"
    assert "a price of" in dear.sentence


def test_another_objective_compares_prices_and_devices() -> None:
    space = replace(SPACE, devices=(64, 128))
    verdict = why_not(space, {"devices": 128}, COSTS, Goal(objective="price"))
    assert verdict.outcome == "loses"
    assert verdict.plan is not None
    assert verdict.best is not None
    assert verdict.ratio == pytest.approx(verdict.plan.price / verdict.best.price)
    assert "times the price" in verdict.sentence
    assert "it uses 128 devices, the best of all 64" in verdict.sentence


def test_least_hardware_is_the_first_count_on_which_a_plan_fits() -> None:
    tried: list[int] = []
    found = least_hardware(SPACE, COSTS, progress=tried.append)
    assert found is not None
    assert found.devices == tried[-1]
    assert tried == [1, 2, 4, 8, *range(16, found.devices + 1, 8)]
    for count in tried[:-1]:
        assert not search(replace(SPACE, devices=(count,)), COSTS).plans
    assert found.memory_bytes <= 80e9


def test_least_hardware_gives_up_at_the_largest_count() -> None:
    assert least_hardware(SPACE, COSTS, devices_max=4) is None
    assert not any_fits(replace(SPACE, devices=(4,)), COSTS)


def test_least_hardware_heeds_memory_but_no_deadline() -> None:
    goal = Goal(objective="deadline", deadline_s=1e-3, memory_share=0.9)
    found = least_hardware(SPACE, COSTS, goal)
    assert found is not None
    assert found.memory_bytes <= 72e9


def test_pins_read_numbers_words_and_flags() -> None:
    space = pinned(
        SPACE,
        {
            "tp": "8", "sp": "on", "shard": "node", "offload": "optimizer+gradients", "zero": 3,
            "recompute": "Full", "vpp": 1, "overlap_tensor": "no",
        },
    )  # fmt: skip
    assert space.tensor == (8,)
    assert space.sequence_parallel == (True,)
    assert space.shard == (NODE_SHARD,)
    assert space.offload == (("optimizer", "gradients"),)
    assert space.zero == (3,)
    assert space.recompute == ("full",)
    assert space.schedule == ("1f1b",)
    assert space.overlap_tensor == (False,)
    chunked = pinned(SPACE, {"vpp": 2, "offload": "none"})
    assert (chunked.virtual_stages, chunked.schedule) == ((2,), ("interleaved",))
    assert chunked.offload == ((),)


def test_pins_name_every_problem() -> None:
    with pytest.raises(InputError) as caught:
        pinned(SPACE, {"tp": 0, "width": 3, "zero": 4, "recompute": "some", "sp": "maybe"})
    problems = {problem.field: problem for problem in caught.value.problems}
    assert set(problems) == {"tensor", "width", "zero", "recompute", "sequence_parallel"}
    assert problems["zero"].remedy == "write a whole number from 0 to 3"
    assert "tp" in problems["width"].remedy


def test_the_figures_of_a_verdict_are_those_of_the_plan_alone() -> None:
    verdict = asked(tp=2)
    assert verdict.plan is not None
    cases = cases_of(SPACE, verdict.plan.plan, verdict.plan.global_batch)
    assert sum(line.plan_s for line in verdict.lines) == pytest.approx(float(COSTS.step_s(cases)))
