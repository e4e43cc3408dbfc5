"""Why the sites and nodes are not enough for one shape: rules in a fixed order, the first tells.

Placing looks at arrays; this looks at every node, for a person, when somebody asks.
"""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from gridloom.base.units import format_bytes
from gridloom.core.demand import Demand
from gridloom.core.gang import Finder
from gridloom.core.index import Index
from gridloom.core.sentences import RULES, Look, site_refusal
from gridloom.core.topology import Ints
from gridloom.model.inventory import Site
from gridloom.model.reason import Refusal, Why

_NODES_MAX = 32
"""Refused nodes of a site that are told one by one; more are counted by rule."""


class Ground(msgspec.Struct, frozen=True):
    """What is free, and what of it is spoken for.

    Attributes:
        available: For each unit the devices that the job may have.
        held_for: For nodes kept for earlier jobs, by number, for which.
        empty: Whether this is the empty grid.
    """

    available: Ints
    held_for: dict[int, str]
    empty: bool = False


class Survey(msgspec.Struct, frozen=True):
    """What the grid has for one shape of a job.

    Attributes:
        looks: The sites that the job may use, in numbers.
        refusals: For each site that is not enough alone, why, followed by its nodes that failed.
    """

    looks: tuple[Look, ...]
    refusals: tuple[Refusal, ...]


def survey(index: Index, demand: Demand, ground: Ground) -> Survey:
    """Return what the grid has free for a shape, and what every site and node lacks."""
    spec, option = demand.spec, demand.option
    rooms = _rooms(index, demand, ground)
    looks, refusals = [], []
    for site in index.state.inventory.sites if index.state.inventory else ():
        if closed := _closed(demand, site):
            refusals.append(closed)
            continue
        numbers = [index.tree.number[f"{site.name}/{node.name}"] for node in site.nodes]
        refused = [
            refusal
            for number in numbers
            if (refusal := _node(index, demand, ground, number)) is not None
        ]
        look = _look(index, demand, ground, site, rooms.get(site.name, 0))
        looks.append(look)
        if look.found < option.devices:
            refusals.append(_of_site(index, demand, look, refused, site))
        refusals.extend(_told(site, refused))
    known = {site.name for site in index.state.inventory.sites} if index.state.inventory else set()
    refusals.extend(
        Refusal(code=Why.SITE_NOT_ALLOWED, domain=name, sentence=f"the grid has no site {name}")
        for name in dict.fromkeys(spec.sites)
        if name not in known
    )
    return Survey(tuple(looks), tuple(refusals))


def _rooms(index: Index, demand: Demand, ground: Ground) -> dict[str, int]:
    """Return how many devices the job could take of each site, in whole groups, by its name."""
    finder = Finder(demand, index.capacity, ground.available)
    full = demand if ground.empty else None
    rooms: dict[str, int] = {}
    for number, chains in demand.chains.items():
        blocks = full.full(chains[-1]) if full else finder.blocks(chains[-1])
        must = demand.gang[number][0]
        first, end = index.tree.within(must, 0, number)
        counts = blocks.counts[must][first:end]
        count = (
            int(counts.max()) * blocks.sizes[must]
            if must
            else int(blocks.counts[0][number]) * blocks.sizes[0]
        )
        rooms[index.tree.sites[number].name] = count
    return rooms


def _closed(demand: Demand, site: Site) -> Refusal | None:
    spec = demand.spec
    if spec.sites and site.name not in spec.sites:
        sentence = f"the job may not use {site.name}"
        return Refusal(code=Why.SITE_NOT_ALLOWED, domain=site.name, sentence=sentence)
    if site.queues and spec.queue not in site.queues:
        whose = f"queue {spec.queue}" if spec.queue else "a job without a queue"
        sentence = f"{site.name} takes jobs of {', '.join(site.queues)}, not of {whose}"
        return Refusal(code=Why.CLOSED_TO_QUEUE, domain=site.name, sentence=sentence)
    if spec.data_required and site.name not in spec.data_sites:
        sentence = f"{site.name} does not hold the job's data"
        return Refusal(code=Why.DATA_ELSEWHERE, domain=site.name, sentence=sentence)
    return None


def _node(index: Index, demand: Demand, ground: Ground, number: int) -> Refusal | None:
    """Return the first rule that the node fails."""
    for rule in _NODE_RULES:
        if (failed := rule(index, demand, ground, number)) is not None:
            code, sentence, counts = failed
            return Refusal(
                code=code,
                domain=index.tree.domains[number],
                sentence=sentence,
                wanted=counts[0],
                found=counts[1],
            )
    return None


_Failed = tuple[Why, str, tuple[int, int]] | None
_NOT_COUNTED = (0, 0)


def _wrong_kind(index: Index, demand: Demand, _ground: Ground, number: int) -> _Failed:
    node, option = index.tree.nodes[number], demand.option
    if node.accelerator == option.accelerator:
        return None
    sentence = f"{index.tree.domains[number]} has {node.accelerator}, not {option.accelerator}"
    return Why.WRONG_ACCELERATOR, sentence, _NOT_COUNTED


def _too_little_memory(index: Index, demand: Demand, _ground: Ground, number: int) -> _Failed:
    """Refuse a node whose devices are known to be too small; what is unknown passes."""
    node, option = index.tree.nodes[number], demand.option
    if not node.memory_bytes or option.memory_bytes <= node.memory_bytes:
        return None
    sentence = (
        f"a rank needs {format_bytes(option.memory_bytes)} and a device of"
        f" {index.tree.domains[number]} has {format_bytes(node.memory_bytes)}"
    )
    return Why.TOO_LITTLE_MEMORY, sentence, _NOT_COUNTED


def _wrong_labels(index: Index, demand: Demand, _ground: Ground, number: int) -> _Failed:
    labels = index.tree.nodes[number].labels
    for name, value in sorted(demand.spec.labels.items()):
        if labels.get(name) != value:
            has = f"has {name}: {labels[name]}" if name in labels else f"has no label {name}"
            sentence = f"{index.tree.domains[number]} {has}, and the job wants {value}"
            return Why.WRONG_LABELS, sentence, _NOT_COUNTED
    return None


def _not_chosen(index: Index, demand: Demand, _ground: Ground, number: int) -> _Failed:
    domain = index.tree.domains[number]
    if not demand.spec.nodes or domain in demand.spec.nodes:
        return None
    return Why.NOT_CHOSEN, f"the job names other nodes than {domain}", _NOT_COUNTED


def _away(index: Index, demand: Demand, ground: Ground, number: int) -> _Failed:
    if ground.empty or index.capacity.is_open(number):
        return None
    domain = index.tree.domains[number]
    site = index.tree.sites[index.tree.node_site[number]].name
    mark = index.state.marks.get(domain) or index.state.marks[site]
    words = {"cordon": "is cordoned", "drain": "is drained", "taint": "is sick", "lost": "is lost"}
    said = f": {mark.sentence}" if mark.sentence else ""
    return Why.NODE_AWAY, f"{domain} {words[mark.mark]}{said}", _NOT_COUNTED


def _kept(index: Index, _demand: Demand, ground: Ground, number: int) -> _Failed:
    if (earlier := ground.held_for.get(number)) is None:
        return None
    sentence = f"{index.tree.domains[number]} is kept for {earlier}, which comes first"
    return Why.HELD_FOR_EARLIER_JOB, sentence, _NOT_COUNTED


def _too_little_host(index: Index, demand: Demand, ground: Ground, number: int) -> _Failed:
    node = index.tree.nodes[number]
    for name, each in demand.option.rank_resources:
        free = (
            node.resources.get(name, 0) if ground.empty else int(index.capacity.host(name)[number])
        )
        if free < each:
            sentence = (
                f"{index.tree.domains[number]} has {free} {name} free, and a rank needs {each}"
            )
            return Why.TOO_LITTLE_HOST, sentence, (each, free)
    return None


def _too_few(index: Index, demand: Demand, ground: Ground, number: int) -> _Failed:
    node = index.tree.nodes[number]
    wanted = demand.option.plan.tensor * demand.option.rank_devices
    free = _free(index, ground, number)
    if free >= wanted:
        return None
    together = f", and {wanted} must be on one node" if wanted > 1 else ""
    sentence = f"{index.tree.domains[number]} has {free} of {node.count} free{together}"
    return Why.IN_USE if node.count >= wanted else Why.TOO_FEW_FREE, sentence, (wanted, free)


_NODE_RULES: tuple[Callable[[Index, Demand, Ground, int], _Failed], ...] = (
    _wrong_kind,
    _too_little_memory,
    _wrong_labels,
    _not_chosen,
    _away,
    _kept,
    _too_little_host,
    _too_few,
)


def _free(index: Index, ground: Ground, number: int) -> int:
    if ground.empty:
        return index.tree.nodes[number].count
    return index.capacity.free_devices(number)


def _look(index: Index, demand: Demand, ground: Ground, site: Site, found: int) -> Look:
    tree = index.tree
    numbers = [
        number
        for node in site.nodes
        if demand.eligible[tree.first_unit[number := tree.number[f"{site.name}/{node.name}"]]]
    ]
    users: list[str] = []
    if not ground.empty:
        wanted = np.zeros(len(tree.nodes), np.bool_)
        wanted[numbers] = True
        users = [job_id for job_id, held in index.holdings.items() if wanted[held.nodes].any()]
    return Look(
        site=site.name,
        total=sum(tree.nodes[number].count for number in numbers),
        free=sum(_free(index, ground, number) for number in numbers),
        found=found,
        users=tuple(users),
        held_for=next((ground.held_for[n] for n in numbers if n in ground.held_for), ""),
    )


def _of_site(
    index: Index, demand: Demand, look: Look, refused: Sequence[Refusal], site: Site
) -> Refusal:
    """Return why one site is not enough; a level that it lacks comes before all else."""
    for need in demand.option.groups:
        levels = ("site", *site.levels, "node", "island")
        if need.required and need.level not in levels:
            sentence = f"{site.name} has no level {need.level}; it has {', '.join(levels)}"
            return Refusal(code=Why.NO_DOMAIN, domain=site.name, sentence=sentence)
    return site_refusal(demand, look, refused)


def _told(site: Site, refused: Sequence[Refusal]) -> list[Refusal]:
    """Return refusals of nodes one by one, or counted by rule where there are many."""
    if len(refused) <= _NODES_MAX:
        return list(refused)
    counted = []
    for code in RULES:
        of_code = [refusal for refusal in refused if refusal.code is code]
        if of_code:
            sentence = f"{len(of_code)} nodes of {site.name}, as this: {of_code[0].sentence}"
            counted.append(Refusal(code=code, domain=site.name, sentence=sentence))
    return counted
