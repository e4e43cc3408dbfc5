"""On which devices a plan may run: pools of a grid file, or of one kind named in short."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import gcd
from pathlib import Path

from msgspec import structs

from gridloom.base.errors import InputError, Problem
from gridloom.cli import settings
from gridloom.cli.plan_flags import Asked, Objective, Terms
from gridloom.cli.prepare import load_grid
from gridloom.model.inventory import Inventory, Node, Site
from gridloom.planner.catalogue import ACCELERATORS, find_accelerator
from gridloom.planner.hardware import Fabric
from gridloom.planner.pools import Pool, PoolLink
from gridloom.planner.price import device_power_w
from gridloom.planner.search_space import divisors
from gridloom.wire.documents_devices import Devices, DevicesValue
from gridloom.wire.documents_values import did_you_mean

_RANGES = DevicesValue(ranges=True)
_NODES_LISTED = 16
"""Up to so many nodes each number of them is tried; beyond, powers of two and their halves more."""


@dataclass(frozen=True, kw_only=True)
class Grounds:
    """Where plans may run.

    Attributes:
        pools: Devices of one kind at one site each; ``counts`` says how many a plan may use.
        links: Between sites.
        currency: Of prices.
        source: Where this comes from, for a person.
        skipped: Devices that the planner knows nothing of.
    """

    pools: tuple[Pool, ...]
    links: tuple[PoolLink, ...] = ()
    currency: str = "USD"
    source: str
    skipped: tuple[str, ...] = field(default=())


def read_grounds(asked: Asked, terms: Terms, objective: Objective) -> Grounds:
    """Return where plans may run.

    Raises:
        InputError: Nothing usable is named.
    """
    wanted = _wanted(asked.devices)
    short = _short(asked.grid) or (wanted if wanted and wanted.kind and not asked.grid else None)
    grounds = _named(short) if short is not None else _of_grid(asked.grid)
    if wanted is None and short is not None and short.least != short.most:
        wanted = short
    pools = tuple(_with_terms(pool, terms) for pool in grounds.pools)
    thorough = objective != "time"
    return replace(
        grounds,
        pools=tuple(
            _with_counts(pool, wanted, thorough=thorough) for pool in _limited(pools, wanted)
        ),
    )


def device_counts(pool: Pool, least: int, most: int) -> tuple[int, ...]:
    """Return the numbers of devices of ``pool`` worth trying, from ``least`` to ``most``.

    Divisors of a node, then whole nodes: each number of them up to 16, beyond that ``2^k`` and
    ``3 x 2^k``, and the two bounds.
    """
    node = pool.fabric.node or pool.accelerator.node
    nodes = most // node
    whole = set(range(1, min(nodes, _NODES_LISTED) + 1))
    power = 1
    while power <= nodes:
        whole |= {power, power * 3}
        power *= 2
    counts = {*divisors(node), *(count * node for count in whole), most}
    return tuple(sorted(count for count in counts | {least} if least <= count <= most))


def _wanted(text: str) -> Devices | None:
    """Return what ``--devices`` says; the kind is empty when it names none."""
    if not text:
        return None
    kindless = text.strip()[:1].isdigit()
    try:
        found = _RANGES.parse(f"any:{text.strip()}" if kindless else text)
    except ValueError as error:
        problem = Problem(f"{text!r} cannot be", "write 64, 8-64 or h100:64", field="--devices")
        raise InputError([problem]) from error
    if kindless:
        return Devices("", found.least, found.most)
    _known(found.kind, "--devices")
    return found if ":" in text else Devices(found.kind, 1, 0)


def _short(text: str) -> Devices | None:
    """Return the devices that ``--grid`` names in short; nothing when it is a file."""
    if not text or Path(text).expanduser().exists():
        return None
    try:
        found = _RANGES.parse(text)
    except ValueError as error:
        if re.fullmatch(r"[\w.-]*:[\w.+-]*", text):
            right = "write a kind and a count, as h100:64, or name a grid file"
            raise InputError([Problem(f"{text!r} cannot be", right, field="--grid")]) from error
        return None
    if ":" not in text and find_accelerator(found.kind) is None:
        return None  # a file that is not there
    _known(found.kind, "--grid")
    return found


def _known(kind: str, flag: str) -> None:
    if find_accelerator(kind) is None:
        near = did_you_mean(kind, sorted(ACCELERATORS))
        known = f"the planner knows {', '.join(sorted(ACCELERATORS))}"
        message = f"no accelerator is called {kind!r}"
        raise InputError([Problem(message, near or known, field=flag)])


def _named(short: Devices) -> Grounds:
    kind = find_accelerator(short.kind)
    assert kind is not None  # `_known` has looked
    if not short.most:
        right = f"write how many at most, as {short.kind}:{max(short.least, kind.node)}"
        raise InputError([Problem("the number of devices has no end", right, field="--devices")])
    pool = Pool(name=kind.name, site=kind.name, accelerator=kind, count=short.most)
    return Grounds(pools=(pool,), source=f"{short.most} {kind.title}")


def _of_grid(text: str) -> Grounds:
    read = settings.read()
    if not text and read.grid is None:
        right = "name devices, as --grid h100:64, or a grid file"
        raise InputError([Problem("is needed", right, field="--grid")])
    found = load_grid(Path(text).expanduser() if text else None, read)
    pools, skipped = pools_of(found.inventory)
    if not pools:
        listed = ", ".join(dict.fromkeys(skipped))
        message = f"the planner knows none of its accelerators ({listed})"
        right = f"it knows {', '.join(sorted(ACCELERATORS))}"
        raise InputError([Problem(message, right, file=found.source)])
    return Grounds(
        pools=pools,
        links=_links(found.inventory),
        currency=found.inventory.currency,
        source=found.source,
        skipped=tuple(dict.fromkeys(skipped)),
    )


def pools_of(inventory: Inventory) -> tuple[tuple[Pool, ...], list[str]]:
    """Return the pools of a grid, and the kinds of accelerators that the planner does not know."""
    pools: list[Pool] = []
    skipped: list[str] = []
    for site in inventory.sites:
        kinds = dict.fromkeys(node.accelerator for node in site.nodes)
        for kind in kinds:
            nodes = [node for node in site.nodes if node.accelerator == kind]
            if find_accelerator(kind) is None:
                skipped.append(kind)
            else:
                pools.append(_pool(site, kind, nodes, alone=len(kinds) == 1))
    return tuple(pools), skipped


def _pool(site: Site, kind: str, nodes: Sequence[Node], *, alone: bool) -> Pool:
    accelerator = find_accelerator(kind)
    assert accelerator is not None
    stated = min(node.memory_bytes for node in nodes)
    if stated:
        accelerator = structs.replace(accelerator, memory_bytes=float(stated))
    together = len(nodes) == 1 and nodes[0].count > accelerator.node
    node = 0 if together else gcd(*(node.count for node in nodes))
    return Pool(
        name=site.name if alone else f"{site.name}/{kind}",
        site=site.name,
        accelerator=accelerator,
        count=sum(node.count for node in nodes),
        fabric=Fabric(node=node),
        price_per_device_hour=site.price_per_accelerator_hour,
        power_w=site.power_w_per_accelerator,
    )


def _links(inventory: Inventory) -> tuple[PoolLink, ...]:
    return tuple(
        PoolLink(
            between=link.between,
            bytes_per_s=link.bandwidth_bits_per_s / 8,
            latency_s=link.latency_s,
            loss=link.loss,
        )
        for link in inventory.links
        if link.bandwidth_bits_per_s
    )


def _with_terms(pool: Pool, terms: Terms) -> Pool:
    return replace(
        pool,
        price_per_device_hour=terms.price or pool.price_per_device_hour,
        power_w=device_power_w(pool.accelerator.power_w, pool.power_w),
        carbon_g_per_kwh=terms.carbon or pool.carbon_g_per_kwh,
    )


def _limited(pools: tuple[Pool, ...], wanted: Devices | None) -> tuple[Pool, ...]:
    """Return the pools of the wanted kind that have enough devices."""
    if wanted is None:
        return pools
    if wanted.kind:
        kind = find_accelerator(wanted.kind)
        pools = tuple(pool for pool in pools if kind and pool.accelerator.name == kind.name)
    enough = tuple(pool for pool in pools if pool.count >= wanted.least)
    if not enough:
        most = max((pool.count for pool in pools), default=0)
        what = f"{wanted.kind}:{wanted.least}" if wanted.kind else f"{wanted.least} devices"
        have = f"the largest pool of the grid has {most}" if most else "the grid has none"
        right = "ask for fewer, or name another grid"
        raise InputError([Problem(f"{what} are wanted; {have}", right, field="--devices")])
    return enough


def _with_counts(pool: Pool, wanted: Devices | None, *, thorough: bool) -> Pool:
    """Return the pool with the numbers of devices to try.

    Where time alone counts, more devices are as good or better, but for numbers that divide nothing
    evenly: the largest of each kind are tried.
    """
    most = min(pool.count, wanted.most) if wanted and wanted.most else pool.count
    least = wanted.least if wanted else 1
    counts = device_counts(pool, least, most)
    if not thorough and wanted is None:
        node = pool.fabric.node or pool.accelerator.node
        powers = [n for n in counts if n <= most and n % node == 0 and _is_power(n // node)]
        counts = tuple(sorted({most, *counts[-2:], *powers[-1:]}))
    return replace(pool, counts=counts)


def _is_power(number: int) -> bool:
    return number & (number - 1) == 0
