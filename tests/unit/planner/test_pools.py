"""Pools: the batch shared out, rings between sites, stages on pools; against brute force."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.examples import at_least

from gridloom.model.parallel import SiteSync
from gridloom.model.transformer import Transformer
from gridloom.planner.cases import Cases, Column
from gridloom.planner.costs import CostModel
from gridloom.planner.hardware import AcceleratorType
from gridloom.planner.models.parameters import count_parameters
from gridloom.planner.pools import Pool, PoolLink, PoolPlan, PoolSpace, objective, ring_s
from gridloom.planner.pools_replicas import pieces_of, shared_out
from gridloom.planner.pools_search import devices_of, search_pools
from gridloom.planner.search import Goal, search
from gridloom.planner.search_space import SearchSpace
from gridloom.planner.site_stages import stages_forecast
from gridloom.planner.site_sync import choose
from gridloom.planner.sync_pools import pools_situation

FAST = AcceleratorType(
    name="fast", title="Fast", family="toy", flops_32=1e12, flops_16=3e12, memory_bytes=900.0,
    hbm_bytes_per_s=1e12, node=4, scaleup_bytes_per_s=1e11, network_bytes_per_s=1e5, power_w=700.0,
)  # fmt: skip
SLOW = structs.replace(FAST, name="slow", flops_16=1e12, memory_bytes=600.0, power_w=300.0)
MODEL = Transformer(
    name="toy", layers=10, hidden=16, ffn=32, heads=4, kv_heads=4, vocabulary=64,
)  # fmt: skip


def memory_bytes(cases: Cases) -> Column:
    """Return 20 a layer of states, and activations of what is in flight on the first stage."""
    plan = cases.plan
    layers = cases.model.layers / plan.pipeline
    kept = 12.0 - 9.0 * plan.recompute_full
    return layers * (60.0 / plan.tensor + kept * plan.micro_batch * plan.pipeline / plan.tensor)


def step_s(cases: Cases) -> Column:
    """Return a pipeline of equal stages: their pace, and a constant for each step."""
    plan = cases.plan
    steps = cases.global_batch / (plan.data * plan.micro_batch)
    work = plan.micro_batch * (1.0 + 0.3 * plan.recompute_full) * (1 + 0.05 * plan.tensor)
    head = 1e-3 * cases.model.vocabulary
    slot = (cases.model.layers / plan.pipeline * work / plan.tensor + head) * (
        1e12 / cases.machine.flops_16
    )
    return (steps + plan.pipeline - 1) * slot + 0.5


COSTS = CostModel(
    memory_bytes,
    step_s,
    lambda cases: (0, {"all": float(memory_bytes(cases))}),
    lambda cases: {"all": float(step_s(cases))},
)

SPACE = SearchSpace(
    model=MODEL,
    accelerator=FAST,
    devices=(8,),
    global_batch=16,
    sequence=8,
    context=(1,),
    zero=(0,),
    schedule=("1f1b",),
    recompute=("none", "full"),
    sequence_parallel=(False,),
    base=structs.replace(
        SearchSpace(model=MODEL, accelerator=FAST, devices=(1,), global_batch=1, sequence=1).base,
        site_sync=SiteSync(bits=16),
    ),
)
POOLS = (
    Pool(
        name="east", site="e", accelerator=FAST, count=8, price_per_device_hour=3.0,
        carbon_g_per_kwh=100.0,
    ),
    Pool(
        name="west", site="w", accelerator=SLOW, count=8, counts=(4, 8), price_per_device_hour=0.5
    ),
)  # fmt: skip
LINKS = (PoolLink(between=("w", "e"), bytes_per_s=1e6, latency_s=0.001),)
NARROW = (replace(LINKS[0], bytes_per_s=5e4),)


@given(
    st.integers(1, 3).flatmap(
        lambda pools: st.integers(pools, 7).flatmap(
            lambda pieces: st.lists(
                st.lists(
                    st.sampled_from([1.0, 2.0, 2.5, 4.0, float("inf")]),
                    min_size=pieces + 1,
                    max_size=pieces + 1,
                ),
                min_size=pools,
                max_size=pools,
            )
        )
    )
)
@at_least(80)
def test_pieces_are_shared_out_as_brute_force_would(times: list[list[float]]) -> None:
    whole = len(times[0]) - 1
    ways = [way for way in product(range(1, whole + 1), repeat=len(times)) if sum(way) == whole]
    best = min(max(one[part] for one, part in zip(times, way, strict=True)) for way in ways)
    slowest, pieces = shared_out([np.array(one) for one in times])
    assert slowest == best
    if np.isfinite(best):
        assert sum(pieces) == whole
        assert min(pieces) >= 1
        assert max(one[part] for one, part in zip(times, pieces, strict=True)) == best


@pytest.mark.parametrize(("batch", "most", "pieces"), [(16, 32, 16), (96, 32, 32), (35, 10, 7)])
def test_a_batch_is_cut_into_its_largest_divisor(batch: int, most: int, pieces: int) -> None:
    assert pieces_of(batch, most) == pieces


def test_a_ring_of_two_sends_the_payload_once_each_way() -> None:
    assert ring_s(["e", "w"], LINKS, 3e6) == pytest.approx(2 * (1.5 + 0.001))


def test_one_site_sends_nothing_and_sites_without_links_never_finish() -> None:
    assert ring_s(["e", "e"], LINKS, 3e6) == 0
    assert ring_s(["e", "x"], LINKS, 3e6) == float("inf")


def test_the_best_ring_avoids_the_slow_link() -> None:
    fast = [PoolLink(between=pair, bytes_per_s=10.0) for pair in ("ab", "bc", "cd", "da")]  # type: ignore[arg-type]
    slow = [PoolLink(between=pair, bytes_per_s=1.0) for pair in ("ac", "bd")]  # type: ignore[arg-type]
    assert ring_s("abcd", [*slow, *fast], 40.0) == pytest.approx(6 * 1.0)
    assert ring_s("abcd", [*slow, *fast[1:]], 40.0) == pytest.approx(6 * 10.0)


def asked(**changes: object) -> PoolSpace:
    settled = {"space": SPACE, "pools": POOLS, "links": LINKS, "costs": COSTS, **changes}
    return PoolSpace(**settled)  # type: ignore[arg-type]


def brute_replicas() -> list[tuple[float, float, tuple[int, ...]]]:
    """Return step, price and sequences of the best plan for each choice of devices."""
    found = []
    payload = count_parameters(MODEL).total * 2
    for east, west in product((0, 8), (0, 4, 8)):
        options = []
        for share in range(17):
            times = []
            for pool, devices, batch in zip(POOLS, (east, west), (share, 16 - share), strict=True):
                if bool(devices) != bool(batch):
                    times.append(float("inf"))
                elif devices:
                    space = replace(
                        SPACE, accelerator=pool.accelerator, devices=(devices,), global_batch=batch
                    )
                    plans = search(space, COSTS).plans
                    times.append(plans[0].step_s if plans else float("inf"))
            options.append((max(times, default=float("inf")), (share, 16 - share)))
        slowest, shares = min(options)
        step = slowest + (ring_s("ew", LINKS, payload) if east and west else 0.0)
        if np.isfinite(step):
            price = step / 3600 * (east * 3.0 + west * 0.5)
            found.append((step, price, tuple(s for s in shares if s)))
    return found


@pytest.mark.parametrize("objective", ["time", "price"])
def test_replicas_are_those_of_brute_force(objective: str) -> None:
    goal = Goal(objective=objective, top=20)  # type: ignore[arg-type]
    found = search_pools(asked(ways=("one_pool", "replicas"), goal=goal)).plans
    expected = sorted(brute_replicas(), key=lambda one: one[0 if objective == "time" else 1])
    assert len(found) == len(expected) == 5
    for plan, (step, price, _) in zip(found, expected, strict=True):
        assert plan.step_s == pytest.approx(step)
        assert plan.price == pytest.approx(price)
        assert sum(part.sequences for part in plan.parts) == 16
        assert plan.step_s == pytest.approx(
            plan.between_s + max(part.step_s for part in plan.parts)
        )


def test_a_faster_pool_takes_more_of_the_batch() -> None:
    goal = Goal(top=20)
    plans = [p for p in search_pools(asked(goal=goal)).plans if p.way == "replicas"]
    for plan in plans:
        shares = {part.pool: part.sequences for part in plan.parts}
        assert shares["east"] > shares["west"]


def test_averaging_seldom_costs_less() -> None:
    seldom = replace(SPACE, base=structs.replace(SPACE.base, site_sync=SiteSync(every=10, bits=16)))
    often, rare = (
        next(p for p in search_pools(asked(space=space)).plans if p.way == "replicas")
        for space in (SPACE, seldom)
    )
    assert rare.between_s == pytest.approx(often.between_s / 10)


def test_what_is_best_for_the_links_makes_joining_cheaper_and_is_in_the_plan() -> None:
    (whole, chosen) = (
        next(p for p in search_pools(asked(sync=sync, links=NARROW)).plans if p.way == "replicas")
        for sync in (None, "auto")
    )
    assert chosen.between_s < whole.between_s
    assert {part.plan.site_sync for part in whole.parts} == {SPACE.base.site_sync}
    (how,) = {part.plan.site_sync for part in chosen.parts}
    devices = {part.site: part.devices for part in chosen.parts}
    slowest_s = max(part.step_s for part in chosen.parts)
    choice = choose(pools_situation(SPACE, NARROW, devices, slowest_s, 0.0))
    assert how == choice.best.how
    assert slowest_s / chosen.step_s == pytest.approx(choice.best.tokens_ratio)
    assert sum(part.sequences for part in chosen.parts) == 16


def test_sites_that_no_link_joins_stay_apart_whatever_is_exchanged() -> None:
    found = search_pools(asked(links=(), sync="auto", ways=("one_pool", "replicas"))).plans
    assert {plan.way for plan in found} == {"one_pool"}


def brute_stages(pools: tuple[Pool, Pool], devices: tuple[int, int]) -> float:
    """Return the least seconds of a step with stages on both pools, over every cut of layers."""
    best = float("inf")
    layers, batch = MODEL.layers, SPACE.global_batch
    for data, micro in product((1, 2, 4, 8), (1, 2, 4, 8, 16)):
        if batch % (data * micro):
            continue
        ways = []
        for count in devices:
            degrees = [
                (tensor, count // (data * tensor), full)
                for tensor, full in product((1, 2, 4), (0, 1))
                if count % (data * tensor) == 0 and count // (data * tensor) <= layers
            ]
            ways.append(degrees)
        for cuts in product(*ways):
            for held in range(1, layers):
                best = min(best, brute_one(pools, cuts, (held, layers - held), data, micro))
    return best


def brute_one(
    pools: tuple[Pool, Pool],
    cuts: tuple[tuple[int, int, int], ...],
    layers: tuple[int, int],
    data: int,
    micro: int,
) -> float:
    sent = 2.0 * data * micro * SPACE.sequence * MODEL.hidden / LINKS[0].bytes_per_s
    turns = SPACE.global_batch // data // micro
    fills, slots, depths, behind = [], [], [], sum(stages for _, stages, _ in cuts)
    for place, (pool, (tensor, stages, full), held) in enumerate(
        zip(pools, cuts, layers, strict=True)
    ):
        if held < stages:
            return float("inf")
        longest = -(-held // stages)
        rest = longest * 60.0 / tensor
        each = longest * (12.0 - 9.0 * full) * micro / tensor
        depths.append(int((pool.accelerator.memory_bytes - rest) / each + 1e-9))
        if depths[-1] < behind:
            return float("inf")
        behind -= stages
        work = micro * (1.0 + 0.3 * full) * (1 + 0.05 * tensor) / tensor
        head = 1e-3 * (MODEL.vocabulary if place else 1)
        speed = 1e12 / pool.accelerator.flops_16
        fills.append((held * work + stages * head) * speed)
        slots.append((longest * work + head) * speed)
    round_s, period_s = sum(fills) + 2 * (sent + 0.001), max(*slots, sent)
    begun = [0.0]  # each micro-batch when the one before has made room, and an earlier one is back
    for number in range(1, turns):
        back = begun[number - depths[0]] + round_s if number >= depths[0] else 0.0
        begun.append(max(begun[-1] + period_s, back))
    return begun[-1] + round_s + 0.5


def best_stages(plans: tuple[PoolPlan, ...], names: list[str], devices: list[int]) -> PoolPlan:
    return next(
        plan
        for plan in plans
        if [part.pool for part in plan.parts] == names
        and [part.devices for part in plan.parts] == devices
    )


@pytest.mark.parametrize("order", [("east", "west"), ("west", "east")])
@pytest.mark.parametrize("west", [4, 8])
@pytest.mark.parametrize("tight", [1.0, 0.5])
def test_stages_are_those_of_brute_force(order: tuple[str, str], west: int, tight: float) -> None:
    pools = tuple(
        replace(
            pool,
            accelerator=structs.replace(
                pool.accelerator, memory_bytes=tight * pool.accelerator.memory_bytes
            ),
        )
        for pool in POOLS
    )
    named = {pool.name: pool for pool in pools}
    counts = {"east": 8, "west": west}
    found = search_pools(asked(pools=pools, ways=("stages",), goal=Goal(top=1000)))
    plan = best_stages(found.plans, list(order), [counts[name] for name in order])
    expected = brute_stages(
        (named[order[0]], named[order[1]]), (counts[order[0]], counts[order[1]])
    )
    assert plan.step_s == pytest.approx(expected)
    assert sum(part.layers for part in plan.parts) == MODEL.layers
    for part in plan.parts:
        cut = part.plan.stage_layers or (part.layers // part.plan.pipeline,) * part.plan.pipeline
        assert sum(cut) == part.layers
        assert part.plan.world_size == part.devices
        assert part.memory_bytes <= named[part.pool].accelerator.memory_bytes


def test_stages_in_whole_copies_are_preferred_where_they_fit() -> None:
    equal = replace(POOLS[1], count=8, counts=(8,))
    pools = (replace(POOLS[0], counts=(8,)), equal)
    wide = tuple(
        replace(pool, accelerator=structs.replace(pool.accelerator, memory_bytes=memory_bytes))
        for pool, memory_bytes in zip(pools, (900.0, 600.0), strict=True)
    )
    small = tuple(
        replace(pool, accelerator=structs.replace(pool.accelerator, memory_bytes=300.0))
        for pool in pools
    )
    for named, is_runnable in ((wide, True), (small, False)):
        goal = Goal(top=1000)
        found = search_pools(asked(pools=named, ways=("stages",), goal=goal, runnable_first=True))
        assert found.plans
        for plan in found.plans:
            assert plan.stages is not None
            assert plan.stages.is_runnable == is_runnable
            degrees = {(part.plan.tensor, part.plan.pipeline) for part in plan.parts}
            assert (degrees == {(1, 1)}) == is_runnable
        free = search_pools(asked(pools=named, ways=("stages",), goal=goal)).plans
        assert objective(free[0], goal) <= objective(found.plans[0], goal)


def test_a_model_too_large_for_any_site_is_cut_over_several() -> None:
    pools = tuple(
        replace(
            pool,
            counts=(4,),
            count=4,
            accelerator=structs.replace(pool.accelerator, memory_bytes=120.0),
        )
        for pool in POOLS
    )
    found = search_pools(asked(pools=pools, sync="auto", goal=Goal(top=100)))
    assert found.plans
    assert {plan.way for plan in found.plans} == {"stages"}
    assert {way for ways in found.by_devices.values() for way in ways} == {"stages"}
    assert {devices_of(plan) for plan in found.plans} == set(found.by_devices)


def test_what_a_way_costs_in_loss_counts_as_more_tokens() -> None:
    found = search_pools(asked(sync="auto", links=NARROW, goal=Goal(top=100)))
    for plan in found.plans:
        site_sync = plan.parts[0].plan.site_sync
        assert plan.more_tokens == 1.0 or site_sync.kind == "outer" or plan.stages is not None
        assert (plan.stages is not None) == (plan.way == "stages")
    worth = [objective(plan, Goal()) for plan in found.plans]
    assert worth == sorted(worth)
    assert max(plan.more_tokens for plan in found.plans) > 1.0
    for devices, ways in found.by_devices.items():
        alike = [plan for plan in found.plans if devices_of(plan) == devices]
        for way, best in ways.items():
            assert best == next(plan for plan in alike if plan.way == way)


def test_slow_links_take_fewer_bits_or_what_memory_lets_stages_hold() -> None:
    far = (replace(LINKS[0], bytes_per_s=30.0, latency_s=10.0),)
    goal = Goal(top=1000)
    near, slow = (
        search_pools(asked(links=links, ways=("stages",), goal=goal)).plans[0]
        for links in (LINKS, far)
    )
    assert near.stages is not None
    assert slow.stages is not None
    assert (near.more_tokens, slow.more_tokens > 1.0) == (1.0, True)
    assert slow.between_s > near.between_s > 0
    assert near.stages.exact_bits == slow.stages.exact_bits == 16
    for plan in (near, slow):
        assert plan.stages is not None
        found = stages_forecast(plan.stages)
        assert plan.step_s == found.step_s
        assert plan.more_tokens == found.loss.more_tokens
        for part, held in zip(plan.parts, found.depths, strict=True):
            assert part.memory_bytes <= 900.0
            assert held >= 1


def test_no_link_no_plan_over_both_sites() -> None:
    found = search_pools(asked(links=(), goal=Goal(top=100)))
    assert {plan.way for plan in found.plans} == {"one_pool"}


def test_pools_of_one_site_need_no_link() -> None:
    pools = (POOLS[0], replace(POOLS[1], site="e"))
    plans = search_pools(asked(pools=pools, links=(), goal=Goal(top=100))).plans
    assert {plan.way for plan in plans} == {"one_pool", "replicas", "stages"}
    joined = next(p for p in plans if p.way == "replicas" and p.devices == 16)
    payload = count_parameters(MODEL).total * 2
    assert joined.between_s == pytest.approx(payload / (8 * 1e5))


def test_limits_of_the_goal_hold_and_the_front_falls() -> None:
    free = search_pools(asked(goal=Goal(top=100)))
    times = [plan.time_s for plan in free.front]
    prices = [plan.price for plan in free.front]
    assert len(times) > 1
    assert times == sorted(times)
    assert prices == sorted(prices, reverse=True)
    limit = (min(prices) + max(prices)) / 2
    bound = search_pools(asked(goal=Goal(top=100, price_max=limit, devices_max=8)))
    assert bound.plans
    assert all(p.price <= limit and p.devices <= 8 for p in bound.plans)
    late = Goal(objective="deadline", deadline_s=sorted(times)[0] * 1.01)
    assert search_pools(asked(goal=late)).plans[0].time_s <= late.deadline_s


def test_without_any_price_device_hours_stand_in_for_it() -> None:
    free, one = (
        tuple(replace(pool, price_per_device_hour=price) for pool in POOLS) for price in (0.0, 1.0)
    )
    goal = Goal(objective="price", top=9)
    unpriced = search_pools(asked(pools=free, goal=replace(goal, price_max=1e-9)))
    priced = search_pools(asked(pools=one, goal=goal))
    assert [plan.parts for plan in unpriced.plans] == [plan.parts for plan in priced.plans]
    assert [plan.parts for plan in unpriced.front] == [plan.parts for plan in priced.front]
    assert {plan.price for plan in unpriced.plans} == {0.0}


def three_pools() -> tuple[Pool, ...]:
    third = Pool(name="north", site="e", accelerator=SLOW, count=4, price_per_device_hour=0.1)
    return (*POOLS, third)


def test_three_pools_share_one_pipeline_or_the_batch() -> None:
    found = search_pools(asked(pools=three_pools(), chain=3, goal=Goal(top=10_000)))
    three = [plan for plan in found.plans if len(plan.parts) == 3]
    assert {plan.way for plan in three} == {"replicas", "stages"}
    for plan in three:
        if plan.way == "stages":
            assert sum(part.layers for part in plan.parts) == MODEL.layers
            assert {part.sequences for part in plan.parts} == {16}
            assert len({(part.plan.data, part.plan.micro_batch) for part in plan.parts}) == 1
        else:
            assert sum(part.sequences for part in plan.parts) == 16
        assert max(part.memory_bytes for part in plan.parts) <= 900.0


def test_energy_and_carbon_follow_the_sites() -> None:
    found = search_pools(asked(ways=("one_pool",), goal=Goal(objective="energy", top=9)))
    for plan in found.plans:
        part = plan.parts[0]
        watts = {"east": 700.0, "west": 300.0}[part.pool] * part.devices
        assert plan.energy_j == pytest.approx(watts * plan.time_s)
        carbon = {"east": 100.0, "west": 0.0}[part.pool]
        assert plan.carbon_g == pytest.approx(plan.energy_j / 3.6e6 * carbon)


def test_progress_counts_tables() -> None:
    seen: list[tuple[int, int]] = []
    search_pools(asked(), lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
