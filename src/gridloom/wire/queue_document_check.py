"""What queues, cohorts and bookings must be to each other and to the rest of the grid file."""

import re
from collections.abc import Iterator

from gridloom.wire.documents_check import Finding, Reading
from gridloom.wire.documents_names import COHORT_NAME, NODES_MAX, node_domains, parse_names
from gridloom.wire.documents_values import did_you_mean
from gridloom.wire.grid_document import GridDocument
from gridloom.wire.source_tree import Path
from gridloom.wire.topology_document_check import device_kinds, node_names, tells_nodes

Grid = Reading[GridDocument]

_AMOUNTS = ("nominal", "borrow_max", "lend_max")
_BOUNDS = {"borrow_max": "borrow from", "lend_max": "lend to"}


def check_queues(grid: Grid) -> Iterator[Finding]:
    """Yield what does not fit together among queues, cohorts, and what names them."""
    for section in ("queues", "cohorts"):
        for name in grid.keys(section):
            if not re.fullmatch(COHORT_NAME.pattern, name):
                remedy = "use letters, digits, `-`, `_` and `.`, beginning with a letter or digit"
                yield (section, name), f"`{name}` cannot be a name", remedy
    # What the nodes of some sites have is only known when these are asked
    is_open = any(tells_nodes(grid, name) for name in grid.keys("sites"))
    kinds, limited = () if is_open else device_kinds(grid), _limited(grid)
    for name in grid.keys("queues"):
        yield from _queue(grid, name, limited)
        yield from _amounts(grid, ("queues", name), kinds)
    for name in grid.keys("cohorts"):
        yield from _cohort(grid, name)
        yield from _amounts(grid, ("cohorts", name), kinds)
    yield from _circles(grid)
    for name in grid.keys("sites"):
        yield from _known_queues(grid, ("sites", name, "queues"))


def check_bookings(grid: Grid) -> Iterator[Finding]:
    """Yield what is wrong with bookings."""
    names: list[str] = []
    nodes: dict[str, frozenset[str]] | None = None
    total = 0
    for i in range(grid.size("bookings")):
        here = ("bookings", i)
        name = grid.value(*here, "name")
        if name is not None and name in names:
            yield (*here, "name"), f"`{name}` is booked twice", "give each booking its own name"
        names.append(name)
        start, end = grid.value(*here, "from"), grid.value(*here, "to")
        if start is not None and end is not None and end <= start:
            yield (*here, "to"), "the booking is over before it begins", "write a later time"
        if isinstance(grid.raw(*here), dict) and not (
            grid.given(*here, "nodes") or grid.given(*here, "sites")
        ):
            yield here, "nothing is booked", "write `sites: north` or `nodes: north/n[001-016]`"
        booked = grid.value(*here, "nodes") or ()
        total += sum(parse_names(item.partition("/")[2]).count for item in booked)
        if total > NODES_MAX:
            message = f"{total:,} nodes are booked up to here, each counted once a booking"
            yield (*here, "nodes"), message, f"write at most {NODES_MAX:,} in all, or `sites`"
        elif booked:
            nodes = node_names(grid) if nodes is None else nodes
            yield from _known_nodes(grid, (*here, "nodes"), nodes)
        for site in grid.value(*here, "sites") or ():
            yield from _known_site(grid, (*here, "sites"), site)
        yield from _known_queues(grid, (*here, "queues"))


def _queue(grid: Grid, name: str, limited: frozenset[str]) -> Iterator[Finding]:
    here = ("queues", name)
    yield from _known_cohort(grid, here, "cohort")
    cohort = grid.value(*here, "cohort")
    if not grid.given(*here, "nominal") and cohort and (cohort in limited or _bounded(grid, here)):
        message = "is missing: the queue would have no limit, and others share what they own"
        yield (*here, "nominal"), message, "write what it owns, as `{h100: 64}`, or `{}` for none"
    yield from _bounds(grid, here, "cohort")
    own, lent = grid.value(*here, "nominal"), grid.value(*here, "lend_max")
    for kind, count in (lent or {}).items():
        if own is not None and count > own.get(kind, 0):
            message = f"{count} {kind} is more than its own, {own.get(kind, 0)}"
            yield (*here, "lend_max"), message, "write at most `nominal`"
    if grid.given(*here, "period") and not grid.given(*here, "accelerator_hours"):
        message = "is read with `accelerator_hours` only"
        yield (*here, "period"), message, "write how many it may use in each period"


def _cohort(grid: Grid, name: str) -> Iterator[Finding]:
    here = ("cohorts", name)
    yield from _known_cohort(grid, here, "parent")
    yield from _bounds(grid, here, "parent")


def _bounds(grid: Grid, here: Path, outer: str) -> Iterator[Finding]:
    """Yield bounds of borrowing and lending where there is nobody to do so with."""
    for bound, act in _BOUNDS.items():
        if grid.given(*here, bound) and not grid.given(*here, outer):
            yield (*here, bound), f"there is no cohort to {act}", f"name one as `{outer}`"


def _amounts(grid: Grid, here: Path, kinds: tuple[str, ...]) -> Iterator[Finding]:
    for field in _AMOUNTS:
        for kind in grid.value(*here, field) or ():
            if kinds and kind not in kinds:
                remedy = did_you_mean(kind, [*kinds]) or f"the file has: {', '.join(kinds)}"
                yield (*here, field), f"the grid has no accelerator of kind `{kind}`", remedy


def _bounded(grid: Grid, here: Path) -> bool:
    return grid.given(*here, "borrow_max") or grid.given(*here, "lend_max")


def _limited(grid: Grid) -> frozenset[str]:
    """Return the cohorts that own something, or anybody in the same tree with them."""
    roots = {name: _way_up(grid, name)[-1] for name in grid.keys("cohorts")}
    owners = [
        grid.value("queues", name, "cohort")
        for name in grid.keys("queues")
        if grid.given("queues", name, "nominal")
    ]
    owners += [
        name
        for name in grid.keys("cohorts")
        if grid.raw("cohorts", name, "nominal") or _bounded(grid, ("cohorts", name))
    ]
    owning = {roots[name] for name in owners if name in roots}
    return frozenset(name for name, root in roots.items() if root in owning)


def _way_up(grid: Grid, name: str) -> list[str]:
    """Return a cohort and those that it is part of, up to the first that was there before."""
    way = [name]
    while (above := grid.value("cohorts", way[-1], "parent")) in grid.keys("cohorts"):
        if above in way:
            break
        way.append(above)
    return way


def _known_cohort(grid: Grid, here: Path, field: str) -> Iterator[Finding]:
    wanted, known = grid.value(*here, field), [*grid.keys("cohorts")]
    if wanted is not None and wanted not in known:
        remedy = did_you_mean(wanted, known) or f"write `cohorts: {{{wanted}: {{}}}}`"
        yield (*here, field), f"there is no cohort `{wanted}`", remedy


def _circles(grid: Grid) -> Iterator[Finding]:
    """Yield each circle of cohorts once, at the first of it in the file."""
    told: set[str] = set()
    for name in grid.keys("cohorts"):
        way = _way_up(grid, name)
        if grid.value("cohorts", way[-1], "parent") == name and name not in told:
            told.update(way)
            around = " in ".join(f"`{each}`" for each in (*way, name))
            yield ("cohorts", name, "parent"), f"cohorts form a circle: {around}", "remove a parent"


def _known_queues(grid: Grid, path: Path) -> Iterator[Finding]:
    known = [*grid.keys("queues")]
    for name in grid.value(*path) or ():
        if name not in known:
            has = f"the file has: {', '.join(known)}" if known else "write it below `queues:`"
            yield path, f"there is no queue `{name}`", did_you_mean(name, known) or has


def _known_site(grid: Grid, path: Path, site: str) -> Iterator[Finding]:
    known = [*grid.keys("sites")]
    if site not in known:
        remedy = did_you_mean(site, known) or f"the file has: {', '.join(known)}"
        yield path, f"there is no site `{site}`", remedy


def _known_nodes(grid: Grid, path: Path, nodes: dict[str, frozenset[str]]) -> Iterator[Finding]:
    """Yield, for each item of a list of nodes, the first that the grid does not have."""
    for item in grid.value(*path) or ():
        site = item.partition("/")[0]
        if site not in nodes:
            if nodes:
                yield from _known_site(grid, path, site)
            continue
        for domain in node_domains((item,)):
            if domain.partition("/")[2] not in nodes[site]:
                yield path, f"there is no node `{domain}`", _nodes_like(site, nodes[site])
                break


def _nodes_like(site: str, known: frozenset[str]) -> str:
    ordered = sorted(known)
    few = ", ".join(ordered[:3]) + (", ..." if len(ordered) > 3 else "")
    return f"{site} has: {few}"
