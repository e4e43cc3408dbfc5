"""The search by columns against loops over scalars: the same plans, best ones and front."""

import random
from dataclasses import fields, replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import at_least
from tests.property.search_brute import every_plan

from gridloom.model.transformer import Experts, Transformer
from gridloom.planner.cases import Cases, Column, PlanColumns, plan_columns
from gridloom.planner.costs import CostModel
from gridloom.planner.hardware import AcceleratorType, Fabric
from gridloom.planner.pareto import rounded
from gridloom.planner.search import Found, Goal, RankedPlan, search
from gridloom.planner.search_grid import blocks, cases_of, grid
from gridloom.planner.search_space import NODE_SHARD, SearchSpace

DEVICE = AcceleratorType(
    name="toy", title="Toy", family="toy", flops_32=1e12, flops_16=2e12, memory_bytes=4e3,
    hbm_bytes_per_s=1e12, node=4, scaleup_bytes_per_s=1e11, power_w=500.0,
)  # fmt: skip

# A weight for each column, so that two plans that differ in one column cost differently.
NAMES = [field.name for field in fields(PlanColumns)]
_DRAW = random.Random(7)
WEIGHTS = {name: _DRAW.uniform(0.5, 1.5) for name in NAMES}
BLIND = {name: 0.0 if name.startswith("overlap") else WEIGHTS[name] for name in NAMES}
COARSE = {name: float(_DRAW.randrange(3)) for name in NAMES}


def weighed(cases: Cases, weights: dict[str, float]) -> Column:
    total = 0.0 * cases.global_batch
    for name in NAMES:
        total = total + weights[name] * getattr(cases.plan, name)
    return total


def memory_bytes(cases: Cases) -> Column:
    plan = cases.plan
    return 1e3 + 10 * weighed(cases, WEIGHTS) + 8e3 / (plan.tensor * plan.pipeline)


OVERLAPS = frozenset({"overlap_gradients", "overlap_parameters", "overlap_tensor"})


def memory_without_overlaps(cases: Cases) -> Column:
    plan = cases.plan
    return 1e3 + 10 * weighed(cases, BLIND) + 8e3 / (plan.tensor * plan.pipeline)


def step_s(cases: Cases) -> Column:
    plan = cases.plan
    ranks = plan.tensor * plan.pipeline * plan.context * plan.data
    return cases.global_batch / ranks + 0.03 * weighed(cases, WEIGHTS)


def coarse_s(cases: Cases) -> Column:
    """Return times of which many are equal."""
    return np.floor(1.0 + weighed(cases, COARSE) / 40)


def memory_lines(cases: Cases) -> tuple[int, dict[str, float]]:
    return 0, {"all": float(memory_bytes(cases))}


def step_lines(cases: Cases) -> dict[str, float]:
    return {"all": float(step_s(cases))}


FINE = CostModel(memory_bytes, step_s, memory_lines, step_lines)
GROUPED = CostModel(memory_without_overlaps, step_s, memory_lines, step_lines, OVERLAPS)
TIED = CostModel(memory_bytes, coarse_s, memory_lines, step_lines)


def some(values: list[object], smallest: int = 1) -> st.SearchStrategy[tuple[object, ...]]:
    lists = st.lists(st.sampled_from(values), min_size=smallest, max_size=2, unique=True)
    return lists.map(tuple)


@st.composite
def spaces(draw: st.DrawFn) -> SearchSpace:
    heads = draw(st.sampled_from([2, 4, 6]))
    experts = draw(st.none() | st.just(Experts(count=4, per_token=2, ffn=12)))
    model = Transformer(
        name="toy", layers=draw(st.sampled_from([1, 3, 4, 6, 7])), hidden=24, ffn=48, heads=heads,
        kv_heads=draw(st.sampled_from([heads, 1, 2])), vocabulary=100, experts=experts,
    )  # fmt: skip
    flags: list[object] = [False, True]
    chosen = {
        "devices": draw(some([1, 2, 4, 6, 8, 12])),
        "tensor": draw(some([1, 2, 4, 3], 0)),
        "pipeline": draw(some([1, 2, 3, 4], 0)),
        "context": draw(some([1, 2, 4], 0)),
        "data": draw(some([1, 2, 4], 0)),
        "virtual_stages": draw(some([2, 3], 0)),
        "schedule": draw(some(["1f1b", "interleaved", "zero_bubble"])),
        "expert": draw(some([1, 2, 4], 0)) if experts else (),
        "expert_tensor": draw(some([0, 1, 2])) if experts else (0,),
        "zero": draw(some([0, 1, 2, 3])),
        "shard": draw(some([0, NODE_SHARD, 2, 4])),
        "micro_batch": draw(some([1, 2, 3], 0)),
        "recompute": draw(some(["none", "selective", "operators", "full"])),
        "recompute_layers": draw(some([0, 1, 2])),
        "sequence_parallel": draw(some(flags)),
        "overlap_gradients": draw(some(flags)),
        "overlap_parameters": draw(some(flags)),
        "overlap_tensor": draw(some(flags)),
        "offload": draw(some([(), ("optimizer",), ("parameters", "optimizer")])),
        "precision": draw(some(["bf16", "fp8"])),
    }
    return SearchSpace(
        model=model,
        accelerator=DEVICE,
        fabric=Fabric(node=draw(st.sampled_from([2, 4, 6]))),
        global_batch=draw(st.sampled_from([4, 6, 8, 12])),
        sequence=draw(st.sampled_from([8, 12, 16])),
        price_per_device_hour=2.0,
        batch_at_most=draw(st.booleans()),
        tensor_in_node=draw(st.booleans()),
        uneven_stages=draw(st.booleans()),
        micro_batch_max=draw(st.sampled_from([0, 2])),
        **chosen,  # type: ignore[arg-type]
    )


@given(spaces(), st.sampled_from([1, 7, 50, 10_000]))
@at_least(40)
def test_the_columns_hold_every_plan_once_and_nothing_else(space: SearchSpace, rows: int) -> None:
    table = grid(space)
    seen = []
    for block in blocks(table, rows):
        cases = block.cases
        for place, (degree, knob) in enumerate(zip(*block.pairs, strict=True)):
            plan = table.plan(int(degree), int(knob))
            seen.append(plan)
            expected = vars(plan_columns(plan))
            for name, column in vars(cases.plan).items():
                value = column[place] if np.ndim(column) else column
                assert value == expected[name], name
    assert len(seen) == len(set(seen))
    assert set(seen) == set(every_plan(space))
    assert table.asked == len(seen) + sum(table.pruned.values())


def scalar_order(space: SearchSpace, costs: CostModel, goal: Goal) -> list[RankedPlan]:
    """Return all plans that fit and are accepted, best first, but for the last key."""
    found = []
    for plan, (devices, batch) in every_plan(space).items():
        cases = cases_of(space, plan, batch)
        memory, step = float(costs.memory_bytes(cases)), float(costs.step_s(cases))
        time_s = step * space.global_batch / batch
        price = time_s * devices * space.price_per_device_hour / 3600
        late = goal.deadline_s and time_s > goal.deadline_s
        dear = goal.price_max and price > goal.price_max
        if memory <= space.accelerator.memory_bytes * goal.memory_share and not late and not dear:
            ranked = RankedPlan(
                plan=plan, devices=devices, global_batch=batch, memory_bytes=round(memory),
                step_s=step, time_s=time_s, price=price, energy_j=500.0 * time_s * devices,
            )  # fmt: skip
            found.append(ranked)
    return sorted(found, key=lambda ranked: key(ranked, goal))


def key(ranked: RankedPlan, goal: Goal) -> tuple[float, ...]:
    objectives = {"time": ranked.time_s, "energy": ranked.energy_j / 500.0}
    objective = objectives.get(goal.objective, ranked.price)
    return (float(rounded(np.array(objective))), ranked.devices, ranked.memory_bytes)


goals = st.builds(
    Goal,
    objective=st.sampled_from(["time", "price", "energy", "deadline"]),
    deadline_s=st.sampled_from([3.0, 5.0, 8.0]),
    price_max=st.sampled_from([0.0, 0.02]),
    memory_share=st.sampled_from([1.0, 0.8]),
    top=st.sampled_from([1, 3, 20]),
)


@given(spaces(), goals, st.sampled_from([FINE, GROUPED, TIED]), st.sampled_from([5, 10_000]))
@at_least(40)
def test_the_best_plans_are_those_of_scalars(
    space: SearchSpace, goal: Goal, costs: CostModel, rows: int
) -> None:
    found = search(space, costs, goal, block_rows=rows)
    expected = scalar_order(space, costs, goal)
    assert found.counts.accepted == len(expected)
    assert [key(r, goal) for r in found.plans] == [key(r, goal) for r in expected][: goal.top]
    by_plan = {ranked.plan: ranked for ranked in expected}
    for ranked in found.plans:
        other = by_plan[ranked.plan]
        assert (ranked.devices, ranked.global_batch) == (other.devices, other.global_batch)
        np.testing.assert_allclose(
            [ranked.step_s, ranked.time_s, ranked.price, ranked.energy_j],
            [other.step_s, other.time_s, other.price, other.energy_j],
        )
    check_front(found, expected)
    check_leanest(found, space, costs)


def check_front(found: Found, expected: list[RankedPlan]) -> None:
    points = {
        (float(rounded(np.array(r.time_s))), float(rounded(np.array(r.price)))) for r in expected
    }
    unbeaten = {
        (time, price)
        for time, price in points
        if not any(t <= time and p <= price and (t, p) != (time, price) for t, p in points)
    }
    front = [
        (float(rounded(np.array(r.time_s))), float(rounded(np.array(r.price)))) for r in found.front
    ]
    assert front == sorted(unbeaten)


def check_leanest(found: Found, space: SearchSpace, costs: CostModel) -> None:
    plans = every_plan(space).items()
    needs = [round(float(costs.memory_bytes(cases_of(space, p, b)))) for p, (_, b) in plans]
    assert (found.leanest is None) == (not needs)
    if found.leanest:
        assert found.leanest.memory_bytes == min(needs)


@given(spaces(), goals, st.randoms(use_true_random=False))
@at_least(30)
def test_the_order_of_values_and_the_size_of_blocks_change_nothing(
    space: SearchSpace, goal: Goal, draw: random.Random
) -> None:
    shuffled: dict[str, Any] = {}
    for field in fields(SearchSpace):
        value = getattr(space, field.name)
        if isinstance(value, tuple):
            shuffled[field.name] = tuple(draw.sample(value, len(value)))
    first = search(space, TIED, goal)
    second = search(replace(space, **shuffled), TIED, goal, block_rows=draw.randrange(1, 60))
    assert first == second
