"""The placement of gangs against every placement that there is, on small grids."""

from collections.abc import Iterator
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from gridloom.core.capacity import Capacity
from gridloom.core.fit import ever_fits, survey
from gridloom.core.gang import place, usable
from gridloom.model.inventory import Inventory, Node, Site
from gridloom.model.life import Placement, TaskPlacement
from gridloom.model.parallel import ParallelPlan
from gridloom.model.spec import JobSpec, Option, Program

PLANS = st.builds(
    ParallelPlan,
    tensor=st.integers(1, 2),
    pipeline=st.integers(1, 2),
    data=st.integers(1, 4),
)
OPTIONS = st.builds(
    Option,
    accelerator=st.sampled_from(("cpu", "cpu", "gpu")),
    plan=PLANS,
    memory_bytes=st.sampled_from((0, 8)),
)


@st.composite
def inventories(draw: st.DrawFn) -> Inventory:
    sites = []
    for name in draw(st.sampled_from(("", "a", "ab", "bca", "abcd"))):
        nodes = tuple(
            Node(name=f"n{i}", address="", accelerator=kind, count=count, memory_bytes=memory)
            for i, (kind, count, memory) in enumerate(
                draw(
                    st.lists(
                        st.tuples(
                            st.sampled_from(("cpu", "cpu", "gpu")),
                            st.integers(0, 5),
                            st.sampled_from((0, 4, 8)),
                        ),
                        max_size=3,
                    )
                )
            )
        )
        price = draw(st.sampled_from((0.0, 1.0, 2.5)))
        site = Site(name=name, kind="local", nodes=nodes, price_per_accelerator_hour=price)
        sites.append(site)
    return Inventory(sites=tuple(sites))


SPECS = st.builds(
    JobSpec,
    name=st.just("j"),
    program=st.just(Program(argv=(), workdir="/")),
    options=st.lists(OPTIONS, min_size=1, max_size=2).map(tuple),
    sites=st.lists(st.sampled_from("abcd"), max_size=3).map(tuple),
    min_sites=st.integers(1, 3),
    max_sites=st.integers(1, 3),
)


@st.composite
def capacities(draw: st.DrawFn, inventory: Inventory) -> Capacity:
    """Return a capacity on which some devices are in use."""
    capacity = Capacity()
    for site in inventory.sites:
        for node in site.nodes:
            devices = draw(st.sets(st.integers(0, max(node.count - 1, 0))))
            task = TaskPlacement(
                site=site.name, node=node.name, address="", devices=tuple(sorted(devices))
            )
            option = Option(accelerator=node.accelerator, plan=ParallelPlan())
            capacity.take(Placement(option=option, tasks=(task,)), "x")
    return capacity


def shares_by_brute_force(
    spec: JobSpec, option: Option, inventory: Inventory, capacity: Capacity
) -> Iterator[dict[str, int]]:
    """Yield the ranks at each site, for every legal choice of ranks on every node."""
    plan = option.plan
    nodes, choices = [], []
    for site in inventory.sites:
        for node in site.nodes:
            allowed = not spec.sites or site.name in spec.sites
            kind = node.accelerator == option.accelerator
            memory = node.memory_bytes == 0 or node.memory_bytes >= option.memory_bytes
            free = len(capacity.free(f"{site.name}/{node.name}", node))
            nodes.append(site.name)
            choices.append(
                range(0, free + 1, plan.tensor) if allowed and kind and memory else range(1)
            )
    for ranks in product(*choices):
        shares: dict[str, int] = {}
        for name, count in zip(nodes, ranks, strict=True):
            if count:
                shares[name] = shares.get(name, 0) + count
        whole = not any(count % plan.replica_ranks for count in shares.values())
        if (
            sum(shares.values()) == plan.world_size
            and whole
            and spec.min_sites <= len(shares) <= spec.max_sites
        ):
            yield shares


def price(inventory: Inventory, shares: dict[str, int]) -> float:
    return sum(
        count * inventory.site(name).price_per_accelerator_hour for name, count in shares.items()
    )


def check_legal(
    placement: Placement, spec: JobSpec, inventory: Inventory, capacity: Capacity
) -> None:
    plan = placement.option.plan
    shares = dict(placement.site_ranks())
    assert sum(shares.values()) == plan.world_size
    assert spec.min_sites <= len(shares) <= spec.max_sites
    assert all(count % plan.replica_ranks == 0 for count in shares.values())
    assert placement.price_per_hour == price(inventory, shares)
    sites = [task.site for task in placement.tasks]
    assert sites == sorted(sites, key=list(shares).index), "nodes of one site are neighbours"
    assert len({task.domain for task in placement.tasks}) == len(placement.tasks)
    for task in placement.tasks:
        node = next(n for n in inventory.site(task.site).nodes if n.name == task.node)
        assert task.devices == tuple(sorted(set(task.devices)))
        assert set(task.devices) <= set(capacity.free(task.domain, node))
        assert len(task.devices) % plan.tensor == 0
        assert task.devices


@given(st.data(), inventories(), SPECS)
def test_a_placement_is_found_exactly_when_there_is_one(
    data: st.DataObject, inventory: Inventory, spec: JobSpec
) -> None:
    option = spec.options[0]
    capacity = data.draw(capacities(inventory))
    every = list(shares_by_brute_force(spec, option, inventory, capacity))
    free = survey(spec, option, inventory, capacity).sites
    placement = place(spec, option, free)
    assert (placement is not None) == bool(every)
    names = {site.site.name for site in usable(spec, option, free)}
    assert names == {name for shares in every for name in shares}
    if placement is not None:
        check_legal(placement, spec, inventory, capacity)
        fewest = min(len(shares) for shares in every)
        found = dict(placement.site_ranks())
        assert len(found) == fewest
        if spec.min_sites == 1:
            cheapest = min(price(inventory, s) for s in every if len(s) == fewest)
            assert placement.price_per_hour == cheapest
        else:
            same = [sorted(s.values()) for s in every if set(s) == set(found)]
            assert max(found.values()) == min(shares[-1] for shares in same)
            assert min(found.values()) == max(shares[0] for shares in same)


@given(inventories(), SPECS)
def test_a_job_never_fits_exactly_when_no_shape_can_be_placed_on_the_empty_grid(
    inventory: Inventory, spec: JobSpec
) -> None:
    reason = ever_fits(spec, inventory)
    some = any(
        True
        for option in spec.options
        for _ in shares_by_brute_force(spec, option, inventory, Capacity())
    )
    assert (reason is None) == some
    if reason is not None:
        assert reason.sentence
        assert reason.remedy
