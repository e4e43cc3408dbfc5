"""What the fields of a grid must be to each other, checked on whatever could be read."""

import re
from collections.abc import Iterator

from gridloom.base.errors import Problem
from gridloom.wire.documents_check import Finding, Reading
from gridloom.wire.documents_names import SITE_NAME
from gridloom.wire.documents_values import did_you_mean
from gridloom.wire.documents_variables import variable_findings
from gridloom.wire.grid_document import TELLS_NODES, GridDocument
from gridloom.wire.kube_document import kube_findings
from gridloom.wire.queue_document_check import check_bookings, check_queues
from gridloom.wire.topology_document_check import check_topology, tells_nodes

Grid = Reading[GridDocument]

_FORMS = ("nodes", "topology")
_TOKENS = ("token_file", "token_command")


def check_grid(grid: Grid) -> list[Problem]:
    """Return what does not fit together inside the grid."""
    checks = (_sites, check_topology, _links, check_queues, check_bookings)
    return [problem for check in checks for problem in grid.located(check(grid))]


def _sites(grid: Grid) -> Iterator[Finding]:
    if grid.raw("sites") == {}:
        yield (
            ("sites",),
            "there is no site",
            "write `north: {accelerators: cpu:2}` below it",
        )
    for name in grid.keys("sites"):
        here = ("sites", name)
        yield from _name(here, name, SITE_NAME.pattern)
        yield from _engine(grid, here)
        nodes, short = grid.given(*here, "nodes"), grid.given(*here, "accelerators")
        if nodes and short:
            message = "both `nodes` and `accelerators` are given"
            yield (*here, "accelerators"), message, "keep one; nodes have accelerators of their own"
        elif not short and not tells_nodes(grid, name) and _is_silent(grid, here):
            remedy = "write `accelerators: cpu:2`, or `nodes:` with their accelerators"
            yield here, "the site has neither `nodes` nor `accelerators`", remedy


def _is_silent(grid: Grid, here: tuple[str, str]) -> bool:
    return all(grid.raw(*here, form) in (None, {}) for form in _FORMS)


def _engine(grid: Grid, here: tuple[str, str]) -> Iterator[Finding]:
    kind = grid.value(*here, "kind")
    yield from _sections_of_others(grid, here, kind)
    if kind == "kubernetes" and not grid.given(*here, "kubernetes"):
        remedy = "write `kubernetes: {image: ...}` beside it"
        yield (*here, "kind"), "nothing says how jobs are handed in", remedy
    yield from kube_findings(grid, (*here, "kubernetes"))
    variables = (*here, "slurm", "environment")
    yield from variable_findings(grid.keys(*variables), variables)
    rest = (*here, "slurm", "rest")
    if grid.given(*rest):
        given = [name for name in _TOKENS if grid.given(*rest, name)]
        if len(given) != 1:
            message = "both `token_file` and `token_command` are given" if given else "no token"
            yield rest, message, "write `token_file: ~/.slurm/token`, or a `token_command:`"


def _sections_of_others(grid: Grid, here: tuple[str, str], kind: str | None) -> Iterator[Finding]:
    """Yield sections of an engine that the site is not of; what is no kind at all was told."""
    given = [section for section in TELLS_NODES if grid.given(*here, section)]
    for section in given if kind is not None else ():
        if section == kind:
            continue
        change = f"write `kind: {section}` beside it"
        if grid.given(*here, "kind"):
            message = f"the site is of `kind: {kind}`, which has no `{section}:`"
            change = "remove it" if kind in given else f"remove it, or {change}"
        else:
            message = f"without a `kind:` the site is this machine, which has no `{section}:`"
            change += ", or remove it" if len(given) > 1 else ""
        yield (*here, section), message, change


def _name(path: tuple[str, ...], name: str, pattern: str) -> Iterator[Finding]:
    if not re.fullmatch(pattern, name):
        remedy = "use letters, digits, `-`, `_` and `.`, beginning with a letter or digit"
        yield path, f"`{name}` cannot be a name", remedy


def _links(grid: Grid) -> Iterator[Finding]:
    names = [*grid.keys("sites")]
    seen: list[frozenset[str]] = []
    for index in range(grid.size("links")):
        here = ("links", index, "between")
        ends = grid.value(*here)
        if ends is None:
            continue
        if len(ends) != 2 or ends[0] == ends[1]:
            yield here, "a link joins two different sites", "write `between: [north, south]`"
            continue
        for end in ends:
            if end not in names:
                remedy = did_you_mean(end, names) or f"the file has: {', '.join(names)}"
                yield here, f"there is no site `{end}`", remedy
        if frozenset(ends) in seen:
            yield here, f"`{ends[0]}` and `{ends[1]}` are linked twice", "keep one"
        seen.append(frozenset(ends))
