"""The search with the planner's own costs: counts, goals, progress, and one plan's own figures."""

from dataclasses import fields, replace

import numpy as np
import pytest

from gridloom.planner.cases import PlanColumns, take
from gridloom.planner.catalogue import accelerator
from gridloom.planner.constants import Constants
from gridloom.planner.costs import cost_model
from gridloom.planner.models.presets import preset
from gridloom.planner.search import Goal, Progress, search, spread
from gridloom.planner.search_grid import blocks, cases_of, grid
from gridloom.planner.search_space import NODE_SHARD, Rule, SearchSpace, divisors, values

COSTS = cost_model(Constants())
LLAMA = preset("llama-3.1-8b")
SPACE = SearchSpace(
    model=LLAMA,
    accelerator=accelerator("h100"),
    devices=(16, 32),
    global_batch=64,
    sequence=8192,
    context=(1, 2),
    shard=(0, NODE_SHARD),
    overlap_gradients=(False, True),
    overlap_parameters=(False, True),
    overlap_tensor=(False, True),
    price_per_device_hour=2.5,
)
MIXTRAL = replace(
    SPACE, model=preset("mixtral-8x7b"), devices=(16,), sequence=4096, expert_tensor=(0, 1, 2)
)


@pytest.mark.unmeasured
@pytest.mark.parametrize("space", [SPACE, MIXTRAL], ids=["dense", "experts"])
def test_columns_cost_what_the_plan_costs_alone(space: SearchSpace) -> None:
    costs = (COSTS.memory_bytes, COSTS.step_s)
    table, checked = grid(space), 0
    for block in blocks(table):
        degrees, knobs = (rows[::401] for rows in block.pairs)
        columns = take(block.cases, np.arange(0, len(block.pairs[0]), 401))
        together = [spread(cost(columns), len(degrees)) for cost in costs]
        for number, (degree, knob) in enumerate(zip(degrees, knobs, strict=True)):
            plan = table.plan(int(degree), int(knob))
            alone = cases_of(space, plan, int(table.degrees["global_batch"][degree]))
            for cost, found in zip(costs, together, strict=True):
                one = float(spread(cost(alone), 1)[0])
                assert found[number] == pytest.approx(one, rel=1e-12), plan
            checked += 1
    assert checked > 30


@pytest.mark.parametrize("space", [SPACE, MIXTRAL], ids=["dense", "experts"])
def test_what_is_dropped_as_the_same_costs_the_same(space: SearchSpace) -> None:
    """A knob that says nothing changes neither memory nor time, whatever its value."""
    table = grid(replace(space, devices=(2, 4, 8), global_batch=8))
    block = next(blocks(table, table.degree_rows * table.knob_rows))
    rows = len(block.pairs[0])
    memory = spread(COSTS.memory_bytes(block.cases), rows)
    step_s = spread(COSTS.step_s(block.cases), rows)
    names = {name for name, _, _ in table.moot}
    assert names == {
        "sequence_parallel", "overlap_tensor", "overlap_gradients", "overlap_parameters",
    }  # fmt: skip
    for name, where, _ in table.moot:
        index = np.flatnonzero(where[block.pairs[0]])
        assert len(index)
        cases = take(block.cases, index)
        plan = replace(cases.plan, **{name: 1 - spread(getattr(cases.plan, name), len(index))})
        turned = replace(cases, plan=plan)
        np.testing.assert_allclose(spread(COSTS.memory_bytes(turned), len(index)), memory[index])
        np.testing.assert_allclose(spread(COSTS.step_s(turned), len(index)), step_s[index])


@pytest.mark.parametrize("space", [SPACE, MIXTRAL], ids=["dense", "experts"])
def test_memory_ignores_what_the_cost_model_says(space: SearchSpace) -> None:
    block = next(blocks(grid(space), 50_000))
    cases, rows = block.cases, len(block.pairs[0])
    memory = spread(COSTS.memory_bytes(cases), rows)
    assert COSTS.memory_ignores
    for name in COSTS.memory_ignores:
        plan = replace(cases.plan, **{name: 1 - spread(getattr(cases.plan, name), rows)})
        turned = spread(COSTS.memory_bytes(replace(cases, plan=plan)), rows)
        np.testing.assert_array_equal(turned, memory)


def test_counts_add_up() -> None:
    counts = search(SPACE, COSTS).counts
    assert counts.asked == counts.evaluated + sum(counts.pruned.values())
    assert counts.evaluated >= counts.fitting >= counts.accepted > 0


def test_the_best_plan_keeps_its_figures() -> None:
    best = search(SPACE, COSTS).plans[0]
    cases = cases_of(SPACE, best.plan, best.global_batch)
    assert best.step_s == pytest.approx(float(COSTS.step_s(cases)))
    assert best.memory_bytes == pytest.approx(float(COSTS.memory_bytes(cases)), abs=1)
    assert best.memory_bytes <= 80e9
    assert best.plan.world_size == best.devices
    assert best.energy_j == pytest.approx(700.0 * best.devices * best.time_s)


def test_time_price_and_deadline_choose_differently() -> None:
    tokens = 1e9
    fastest = search(SPACE, COSTS, Goal(tokens=tokens)).plans[0]
    cheapest = search(SPACE, COSTS, Goal(objective="price", tokens=tokens)).plans[0]
    assert fastest.devices == 32
    assert cheapest.price < fastest.price
    assert cheapest.time_s > fastest.time_s
    steps = tokens / (64 * 8192)
    assert fastest.time_s == pytest.approx(fastest.step_s * steps)
    assert fastest.price == pytest.approx(2.5 * 32 * fastest.time_s / 3600)
    between = (fastest.time_s + cheapest.time_s) / 2
    goal = Goal(objective="deadline", deadline_s=between, tokens=tokens)
    timely = search(SPACE, COSTS, goal).plans[0]
    assert timely.time_s <= between
    assert cheapest.price < timely.price <= fastest.price


def test_the_front_runs_from_the_fastest_to_the_cheapest() -> None:
    space = replace(SPACE, devices=(8, 16, 32, 64))
    found = search(space, COSTS, Goal(top=1))
    cheapest = search(space, COSTS, Goal(objective="price", top=1)).plans[0]
    assert found.front[0].time_s == pytest.approx(found.plans[0].time_s)
    assert found.front[-1].price == pytest.approx(cheapest.price)
    assert len({ranked.devices for ranked in found.front}) > 1


def test_without_a_price_device_hours_stand_in_for_it() -> None:
    priced = search(SPACE, COSTS, Goal(objective="price", top=4))
    free = search(replace(SPACE, price_per_device_hour=0.0), COSTS, Goal(objective="price", top=4))
    assert [ranked.plan for ranked in free.plans] == [ranked.plan for ranked in priced.plans]
    assert [ranked.plan for ranked in free.front] == [ranked.plan for ranked in priced.front]
    assert {ranked.price for ranked in (*free.plans, *free.front)} == {0.0}


def test_limits_shrink_the_answer() -> None:
    free = search(SPACE, COSTS)
    tight = search(SPACE, COSTS, Goal(memory_share=0.5, devices_max=16))
    assert tight.counts.fitting < free.counts.fitting
    assert all(r.memory_bytes <= 40e9 and r.devices == 16 for r in tight.plans)
    assert not search(SPACE, COSTS, Goal(price_max=1e-9)).plans


def test_nothing_fits_but_the_leanest_is_named() -> None:
    space = replace(SPACE, model=preset("llama-3.1-405b"), devices=(8,), uneven_stages=False)
    found = search(space, COSTS)
    assert not found.plans
    assert found.counts.fitting == 0
    assert found.leanest is not None
    assert found.leanest.memory_bytes > 80e9
    alone = cases_of(space, found.leanest.plan, found.leanest.global_batch)
    assert found.leanest.memory_bytes == pytest.approx(float(COSTS.memory_bytes(alone)), abs=1)


def test_no_plan_at_all_names_the_rule() -> None:
    found = search(replace(SPACE, tensor=(3,)), COSTS)
    assert found.counts.evaluated == 0
    assert found.leanest is None
    assert found.emptied_by is Rule.NODE


def test_no_device_count_allowed() -> None:
    found = search(SPACE, COSTS, Goal(devices_max=8))
    assert not found.plans
    assert found.counts.asked == 0


def test_a_deadline_needs_a_deadline() -> None:
    with pytest.raises(ValueError, match="deadline"):
        search(SPACE, COSTS, Goal(objective="deadline"))


def test_progress_ends_at_the_total_with_the_best_time() -> None:
    seen: list[Progress] = []
    found = search(SPACE, COSTS, progress=seen.append, block_rows=3000)
    assert len(seen) > 3
    assert seen[-1].done == seen[-1].total
    assert seen[-1].evaluated == found.counts.evaluated
    assert seen[-1].best_s == found.plans[0].time_s
    assert [p.done for p in seen] == sorted(p.done for p in seen)


def test_llama_405b_finds_the_sixteen_stages_with_one_layer_less_at_both_ends() -> None:
    space = replace(
        SPACE, model=preset("llama-3.1-405b"), devices=(16384,), global_batch=2048,
        tensor=(8,), pipeline=(16,), context=(1,), virtual_stages=(8,), schedule=("interleaved",),
    )  # fmt: skip
    table = grid(space)
    assert {table.plan(row, 0).stage_layers for row in range(table.degree_rows)} == {
        (7, *[8] * 14, 7)
    }


def test_values_left_open_are_the_possible_ones() -> None:
    found = values(replace(SPACE, context=(), model=LLAMA), 64)
    assert found.tensor == (1, 2, 4, 8)
    assert found.pipeline == (1, 2, 4, 8, 16, 32)
    assert found.context == (1, 2, 4, 8, 16, 32, 64)
    assert found.micro_batch == divisors(64)
    assert found.shards == ((0, 0), *((z, s) for z in (1, 2, 3) for s in (NODE_SHARD, 0)))


def test_a_batch_of_at_most_uses_the_largest_multiple_of_the_copies() -> None:
    space = replace(SPACE, devices=(24,), global_batch=100, batch_at_most=True, tensor=(8,))
    batches = {}
    table = grid(space)
    for row in range(table.degree_rows):
        batches[int(table.degrees["data"][row])] = int(table.degrees["global_batch"][row])
    assert batches == {1: 100, 3: 99}


def test_every_column_of_a_plan_is_in_the_grid() -> None:
    assert {f.name for f in fields(PlanColumns)} <= set(grid(SPACE).columns)
