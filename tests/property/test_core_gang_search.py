"""The placement of gangs against every placement that there is, on small grids."""

import random
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.examples import at_least
from tests.property.core_brute import Free, Search, check_legal, domains

from gridloom.core.capacity import Capacity, Holding
from gridloom.core.demand import Demand
from gridloom.core.explain import ever_fits
from gridloom.core.gang import Finder, Spot, predicted_step_s
from gridloom.core.rank import Ranker
from gridloom.core.state import Signals
from gridloom.core.topology import Tree
from gridloom.model.inventory import Inventory, Node, Site
from gridloom.model.life import Placement, TaskPlacement
from gridloom.model.parallel import ParallelPlan
from gridloom.model.policy import Weights
from gridloom.model.spec import GroupNeed, JobSpec, Option, Program, Speed

LEVELS = ("island", "node", "rack", "spine", "site")
PROGRAM = Program(argv=(), workdir="/")
CHEAP = Weights(fragmentation=0.0, wish=0.0, distance=0.0)  # the price alone
FAST = Weights(fragmentation=0.0, wish=0.0, price=0.0)  # the step time alone
FOND = Weights(fragmentation=0.0, wish=1.0, price=0.0)  # what should be together is
EVERY = (CHEAP, FAST, FOND, Weights(), Weights(fragmentation=9.0))
SEEDS = st.integers(0, 2**32)
"""Whatever is drawn by chance; small numbers, which hypothesis likes, would make empty grids."""


def seldom(rng: random.Random, usual: Any, *others: Any) -> Any:
    """Return the usual thing, or in one of five cases another."""
    return rng.choice(others) if rng.random() < 0.2 else usual


def node_by_chance(rng: random.Random, number: int, depth: int) -> Node:
    return Node(
        name=f"n{number}",
        address=f"at-{number}",
        accelerator=seldom(rng, "cpu", "gpu", "cpu"),
        count=rng.choice((0, 1, 2, 2, 3, 4, 4)),
        memory_bytes=seldom(rng, 0, 4, 8),
        island=rng.choice((0, 0, 1, 2, 2, 3)),
        path=tuple(rng.choice("pq") for _ in range(depth)),
        labels=seldom(rng, {"disk": "nvme"}, {}),
        resources={"cpus": rng.randint(2, 9)},
    )


def inventory_by_chance(rng: random.Random, most: int = 3) -> Inventory:
    # One island that two devices fit on: else a rank of two may sit on any two of a node
    pair = Node(name="n0", address="", accelerator="other", count=2, resources={"cpus": 8})
    sites = [Site(name="pair", kind="local", nodes=(pair,))]
    for name in "bca"[: rng.randint(1, most)]:
        levels = rng.choice(((), ("rack",), ("spine", "rack")))
        count = rng.choice((0, 1, 2, 2, 3, 3, 4))
        site = Site(
            name=name,
            kind="local",
            nodes=tuple(node_by_chance(rng, number, len(levels)) for number in range(count)),
            levels=levels,
            price_per_accelerator_hour=rng.choice((0.0, 1.0, 2.5)),
            queues=seldom(rng, (), ("x",)),
        )
        sites.append(site)
    return Inventory(sites=tuple(sites))


def option_by_chance(rng: random.Random, *, required: bool | None = None) -> Option:
    plan = ParallelPlan(
        tensor=rng.randint(1, 2), pipeline=rng.randint(1, 2), data=rng.randint(1, 4)
    )
    sizes = {1, plan.tensor, plan.replica_ranks, plan.world_size}
    if plan.data == 4:
        sizes.add(2 * plan.replica_ranks)
    chosen = rng.sample(sorted(sizes), rng.randint(0, min(3, len(sizes))))
    # A wish for several replica groups would keep them at one site, however far it gives way
    musts = {2 * plan.replica_ranks} - {plan.world_size}
    return Option(
        accelerator="cpu",
        plan=plan,
        memory_bytes=seldom(rng, 0, 8),
        groups=tuple(
            GroupNeed(
                ranks=ranks,
                level=rng.choice(LEVELS),
                required=ranks in musts or (rng.random() < 0.5 if required is None else required),
            )
            for ranks in sorted(chosen)
        ),
        rank_devices=seldom(rng, 1, 2),
        rank_resources=rng.choice(((), (), (("cpus", 1),), (("cpus", 2),))),
    )


def spec_by_chance(rng: random.Random, *, required: bool | None = None) -> JobSpec:
    count = rng.randint(1, 2)
    most = rng.randint(1, 3)
    return JobSpec(
        name="j",
        program=PROGRAM,
        options=tuple(option_by_chance(rng, required=required) for _ in range(count)),
        sites=seldom(rng, (), ("a", "b"), ("c",)),
        min_sites=seldom(rng, 1, 2, 3) if rng.random() < 0.5 else rng.randint(1, most),
        max_sites=most,
        queue=seldom(rng, "", "x"),
        nodes=seldom(rng, (), ("a/n0", "b/n0", "b/n1", "z/n0")),
        labels=seldom(rng, {}, {"disk": "nvme"}),
        ranks_per_node_max=rng.choice((0, 0, 0, 1, 2, 3)),
        data_sites=rng.choice(((), ("a", "c"))),
        data_required=rng.random() < 0.1,
    )


class Grid:
    """A grid on which other jobs run and some nodes take no new work."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self.tree = Tree(inventory)
        self.capacity = Capacity(self.tree)
        self.free: Free = {
            f"{site.name}/{node.name}": list(range(node.count))
            for site in inventory.sites
            for node in site.nodes
        }
        self.used: dict[str, dict[str, int]] = {}

    def ranker(self, weights: Weights) -> Ranker:
        return Ranker(self.tree, weights, Signals())

    def run(self, task: TaskPlacement, cpus: int) -> None:
        """Let somebody else have devices of one node."""
        option = Option(
            accelerator="", plan=ParallelPlan(), rank_resources=(("cpus", cpus),) if cpus else ()
        )
        self.capacity.take(self.capacity.holding(Placement(option=option, tasks=(task,))))
        self.free[task.domain] = [d for d in self.free[task.domain] if d not in task.devices]
        self.used[task.domain] = {"cpus": cpus * len(task.devices)}

    def best(self, demand: Demand, weights: Weights) -> tuple[Spot, Placement, Holding] | None:
        finder = Finder(demand, self.capacity, self.capacity.available)
        ranker = self.ranker(weights)
        spot = finder.best(ranker)
        assert finder.fits() == (spot is not None)
        if spot is None:
            return None
        placed = self.capacity.place(demand.option, spot.units, spot.devices, ranker.prices)
        return spot, *placed

    def search(self, spec: JobSpec, option: Option, *extra: GroupNeed) -> Search:
        return Search(spec, option, self.inventory, self.free, self.used, extra)


def grid_by_chance(rng: random.Random, most: int = 3) -> Grid:
    grid = Grid(inventory_by_chance(rng, most))
    for site in grid.inventory.sites:
        for node in site.nodes:
            devices = [device for device in range(node.count) if rng.random() < 0.25]
            if devices:
                most_cpus = node.resources["cpus"] // len(devices)
                task = TaskPlacement(
                    site=site.name, node=node.name, address="", devices=tuple(devices)
                )
                grid.run(task, rng.randint(0, most_cpus))
    open_ = [rng.random() < 0.85 for _ in grid.tree.nodes]
    grid.capacity.open(open_)
    for domain, is_open in zip(grid.tree.domains, open_, strict=True):
        grid.free[domain] = grid.free[domain] if is_open else []
    return grid


def numbers(capacity: Capacity) -> list[object]:
    """Return everything that a capacity knows but how often it grew."""
    return [
        capacity.free.tolist(),
        capacity.available.tolist(),
        capacity.host("cpus").tolist(),
        list(capacity._bits),
    ]


@at_least(150)
@given(SEEDS, st.sampled_from(EVERY))
def test_a_placement_is_found_exactly_when_there_is_one(seed: int, weights: Weights) -> None:
    rng = random.Random(seed)
    grid, spec = grid_by_chance(rng), spec_by_chance(rng)
    option = spec.options[0]
    found = grid.best(Demand(spec, option, grid.tree), weights)
    search = grid.search(spec, option)
    least, most = max(spec.min_sites, 1), spec.max_sites
    assert (found is not None) == search.exists(least=least, most=most)
    if found is None:
        return
    spot, placement, _ = found
    check_legal(placement, spec, grid.inventory, grid.free, grid.used)
    count = len(placement.site_ranks())
    assert not search.exists(least=least, most=count - 1), "fewer sites would do"
    if spec.min_sites > 1:
        shares = [ranks for _, ranks in placement.site_ranks()]
        assert max(shares) - min(shares) <= option.plan.replica_ranks * 2 or not all_equal(
            grid, placement
        )
    assert (spot.gang < 0) == (count > 1)


def all_equal(grid: Grid, placement: Placement) -> bool:
    """Return whether no site of a placement is full: then shares differ by a group at most."""
    for name, ranks in placement.site_ranks():
        free = sum(
            len(devices) for domain, devices in grid.free.items() if domain.split("/")[0] == name
        )
        if free <= 2 * ranks * placement.option.rank_devices:
            return False
    return True


@given(SEEDS, st.sampled_from(EVERY))
def test_a_gang_that_is_taken_and_given_back_leaves_no_trace(seed: int, weights: Weights) -> None:
    rng = random.Random(seed)
    grid, spec = grid_by_chance(rng), spec_by_chance(rng)
    placed = []
    before = [numbers(grid.capacity)]
    for option in spec.options * 2:
        found = grid.best(Demand(spec, option, grid.tree), weights)
        if found is None:
            continue
        _, placement, held = found
        again = grid.capacity.holding(placement)
        for name in Holding.__struct_fields__:
            assert np.array_equal(getattr(again, name), getattr(held, name)), name
        grid.capacity.take(held)
        placed.append((placement, held))
        before.append(numbers(grid.capacity))
    for number, domain in enumerate(grid.tree.domains):
        of_others = len(grid.free[domain])
        taken = sum(
            len(task.devices)
            for placement, _ in placed
            for task in placement.tasks
            if task.domain == domain
        )
        if grid.capacity.is_open(number):
            assert grid.capacity.free_devices(number) == of_others - taken
        first, end = grid.tree.first_unit[number], grid.tree.first_unit[number + 1]
        assert grid.capacity.available[first:end].sum() == of_others - taken
    for _, held in reversed(placed):
        assert numbers(grid.capacity) == before.pop()
        grid.capacity.give_back(held)
    assert numbers(grid.capacity) == before.pop()


@given(SEEDS)
def test_the_innermost_level_that_is_possible_is_reached(seed: int) -> None:
    """Where predicted step times grow from level to level, the fastest possible one is had."""
    rng = random.Random(seed)
    grid, spec = grid_by_chance(rng, most=2), spec_by_chance(rng, required=True)
    speeds = tuple(Speed(level=level, step_s=1.0 + i) for i, level in enumerate(LEVELS))
    option = replace(spec.options[0], speeds=speeds, step_s=99.0)
    spec = replace(spec, options=(option,), min_sites=1)
    found = grid.best(Demand(spec, option, grid.tree), FAST)
    if found is None:
        return
    possible = [
        speed.step_s
        for speed in speeds
        if grid.search(
            spec, option, GroupNeed(ranks=option.plan.world_size, level=speed.level)
        ).exists(least=1, most=1)
    ]
    spot, placement, _ = found
    assert (spot.gang < 0) == (not possible)
    assert predicted_step_s(spot) == min(possible, default=99.0)
    reached = [speed.step_s for speed in speeds if are_together(placement, speed.level, grid)]
    assert reached[:1] == possible[:1]


def are_together(placement: Placement, level: str, grid: Grid) -> bool:
    """Return whether one domain of the level holds all ranks."""
    found = set()
    for task in placement.tasks:
        site = grid.inventory.site(task.site)
        node = next(node for node in site.nodes if node.name == task.node)
        found |= {domains(site, node, device).get(level) for device in task.devices}
    return len(found) == 1 and None not in found


@given(SEEDS)
def test_what_should_be_together_is_so_if_that_is_possible(seed: int) -> None:
    rng = random.Random(seed)
    grid, spec = grid_by_chance(rng, most=1), spec_by_chance(rng)
    option = spec.options[0]
    known = {"site", "node", "island", *(level for s in grid.inventory.sites for level in s.levels)}
    groups = tuple(need for need in option.groups if need.required or need.level in known)
    option = replace(option, groups=groups)
    spec = replace(spec, options=(option,), min_sites=1)
    all_required = replace(option, groups=tuple(replace(need, required=True) for need in groups))
    found = grid.best(Demand(spec, option, grid.tree), FOND)
    if grid.search(spec, all_required).exists(least=1, most=1):
        assert found is not None
        placement = replace(found[1], option=all_required)
        check_legal(placement, spec, grid.inventory, grid.free, grid.used)


@given(SEEDS)
def test_the_cheapest_of_equal_sites_is_taken(seed: int) -> None:
    rng = random.Random(seed)
    grid, spec = Grid(inventory_by_chance(rng)), spec_by_chance(rng)
    inventory = grid.inventory
    option = replace(spec.options[0], groups=())
    spec = replace(spec, options=(option,), min_sites=1, max_sites=1)
    found = grid.best(Demand(spec, option, grid.tree), CHEAP)
    if found is not None:
        search = grid.search(spec, option)
        prices = [
            site.price_per_accelerator_hour * option.devices
            for site in inventory.sites
            if search.exists(least=1, most=1, at=site.name)
        ]
        assert found[1].price_per_hour == min(prices)


@given(SEEDS)
def test_a_job_never_fits_exactly_when_no_shape_can_be_placed_on_the_empty_grid(
    seed: int,
) -> None:
    rng = random.Random(seed)
    inventory, spec = inventory_by_chance(rng), replace(spec_by_chance(rng), queue="")
    reason = ever_fits(spec, inventory)
    grid = Grid(inventory)
    assert (reason is None) == any(
        grid.search(spec, option).exists(least=spec.min_sites, most=spec.max_sites)
        for option in spec.options
    )
    if reason is not None:
        assert reason.sentence
        assert reason.remedy
