"""What the nodes of a site must be to each other and to its topology, whatever else is wrong."""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from math import prod
from typing import Any

from pydantic_core import PydanticCustomError

from gridloom.wire.documents_check import Finding, Reading
from gridloom.wire.documents_devices import DevicesValue
from gridloom.wire.documents_names import NODE_NAME_PATTERN, NODES_MAX, Names, parse_names
from gridloom.wire.documents_values import Value, Whole
from gridloom.wire.grid_document import FORMS_OF_NODES, TELLS_NODES, GridDocument
from gridloom.wire.grid_nodes import generated
from gridloom.wire.source_tree import Path
from gridloom.wire.topology_document import LEVEL_PATTERN, LEVEL_WORDS, PathValue

Grid = Reading[GridDocument]

_DEVICES = DevicesValue(ranges=False)
_COUNT = Whole(1, NODES_MAX)
_RESOURCE_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_LABEL_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._/-]{0,62}")
_RESOURCE_WORDS = {
    **dict.fromkeys(("cpu", "cores", "core", "vcpus", "threads", "processors"), "cpus"),
    **dict.fromkeys(("mem", "ram", "memory_gib", "memory_gb", "host_memory"), "memory"),
}
"""What others call the two resources that have a name here."""


def check_topology(grid: Grid) -> Iterator[Finding]:
    """Yield what is wrong with the nodes of every site and with their places."""
    total = 0
    for name in grid.keys("sites"):
        here = ("sites", name)
        yield from _beside(grid, here)
        if grid.keys(*here, "topology"):
            yield from _counts(grid, here)
        yield from _level_names((*here, "levels"), grid.value(*here, "levels") or ())
        yield from _machine((*here, "node"), grid.raw(*here, "node"))
        for place, count in _sizes(grid, here):
            total += count
            if total > NODES_MAX >= total - count:
                message = f"the file has {total:,} nodes up to here"
                yield place, message, f"write at most {NODES_MAX:,} in all"
        yield from _listed(grid, here, expand=total <= NODES_MAX)


def tells_nodes(grid: Grid, name: str) -> bool:
    """Return whether the nodes of a site are those that its own scheduler tells."""
    here = ("sites", name)
    kind = grid.value(*here, "kind")
    may_tell = kind is None or kind in TELLS_NODES  # of what is no kind something else is told
    return may_tell and not any(grid.given(*here, form) for form in FORMS_OF_NODES)


def node_names(grid: Grid) -> dict[str, frozenset[str]]:
    """Return the names of the nodes of every site whose nodes the file says and can be read."""
    names: dict[str, frozenset[str]] = {}
    if sum(count for site in grid.keys("sites") for _, count in _sizes(grid, ("sites", site))) > (
        NODES_MAX
    ):
        return names
    for site in grid.keys("sites"):
        here = ("sites", site)
        known = {site} if grid.given(*here, "accelerators") else set()
        for key in grid.keys(*here, "nodes"):
            known.update(_parsed_names(key) or ())
        if topology := _topology(grid, here):
            known.update(name for name, _ in generated(topology))
        if not tells_nodes(grid, site):
            names[site] = frozenset(known)
    return names


def device_kinds(grid: Grid) -> tuple[str, ...]:
    """Return the kinds of accelerators in the file, as far as they can be read, in order."""
    raws: list[Any] = []
    for name in grid.keys("sites"):
        site = grid.raw("sites", name)
        machines = [site, grid.raw("sites", name, "node")]
        machines += [
            grid.raw("sites", name, "nodes", key) for key in grid.keys("sites", name, "nodes")
        ]
        raws += [machine.get("accelerators") for machine in machines if isinstance(machine, dict)]
    kinds = {devices.kind for raw in raws if (devices := _read(_DEVICES, raw)) is not None}
    return tuple(sorted(kinds))


def resource_problem(name: str) -> tuple[str, str] | None:
    """Return what is wrong with the name of a resource of hosts, and what would be right."""
    if better := _RESOURCE_WORDS.get(name.lower()):
        return f"`{name}` is not what it is called here", f"did you mean `{better}`?"
    if not _RESOURCE_NAME.fullmatch(name):
        return f"`{name}` cannot be a name", "use a-z, 0-9 and `_`, beginning with a letter"
    return None


def label_findings(path: Path, labels: object) -> Iterator[Finding]:
    """Yield the names of labels that cannot be ones."""
    for name in labels if isinstance(labels, dict) else ():
        if not _LABEL_NAME.fullmatch(name):
            remedy = "use letters, digits, `-`, `_`, `.` and `/`, beginning with a letter"
            yield (*path, name), f"`{name}` cannot be the name of a label", remedy


def _beside(grid: Grid, here: Path) -> Iterator[Finding]:
    """Yield the fields that stand beside a form of nodes that they do not go with."""
    nodes, topology = grid.given(*here, "nodes"), grid.given(*here, "topology")
    for other in ("nodes", "accelerators"):
        if topology and grid.given(*here, other):
            yield (*here, other), f"both `topology` and `{other}` are given", "keep one"
    if grid.given(*here, "levels") and topology:
        yield (*here, "levels"), "the levels are those of `topology`", "remove it"
    elif grid.given(*here, "levels") and not nodes:
        yield (*here, "levels"), "is read with `nodes` only", "remove it, or list the nodes"
    if grid.given(*here, "node") and not nodes and not topology:
        message = "is read with `nodes` or `topology` only"
        yield (*here, "node"), message, "write `topology: {rack: 4, node: 8}` beside it"


def _counts(grid: Grid, here: Path) -> Iterator[Finding]:
    """Yield what is wrong with a topology that is given in counts."""
    levels, place = grid.keys(*here, "topology"), (*here, "topology")
    if levels[-1] != "node":
        remedy = f"write last how many nodes each {levels[-1]} has, as `node: 16`"
        yield place, f"the last level is `{levels[-1]}`, not `node`", remedy
    yield from _level_names(place, [level for level in levels if level != "node"], keys=True)
    if not grid.given(*here, "node"):
        remedy = "write `node: {accelerators: h100:8}` beside it"
        yield place, "nothing says what each node has", remedy
    elif not grid.given(*here, "node", "accelerators"):
        yield (*here, "node", "accelerators"), "is missing", f"write {_DEVICES.right}"
    topology = _topology(grid, here)
    if not topology or (size := prod(topology.values())) > NODES_MAX:
        return
    first = next(islice(generated(topology), 1))[0]
    if not re.fullmatch(NODE_NAME_PATTERN, first):
        yield place, f"the names of nodes become too long: `{first}`", "use shorter level names"
    address = grid.value(*here, "node", "address")
    if address is not None:
        yield from _addresses((*here, "node", "address"), address, size)


def _level_names(path: Path, names: Any, *, keys: bool = False) -> Iterator[Finding]:
    for i, name in enumerate(names):
        place = (*path, name) if keys else (*path, i)
        if name in LEVEL_WORDS:
            yield place, f"every site has a level `{name}`", "remove it, or call yours otherwise"
        elif name in names[:i]:
            yield place, f"the level `{name}` is named twice", "keep one"
        elif keys and not re.fullmatch(LEVEL_PATTERN, name):
            remedy = "use at most 20 of a-z, 0-9 and `_`, beginning with a letter"
            yield place, f"`{name}` cannot be the name of a level", remedy


def _machine(path: Path, raw: Any) -> Iterator[Finding]:
    """Yield what is wrong inside a node, or inside a site's template."""
    if not isinstance(raw, dict):
        return
    yield from label_findings((*path, "labels"), raw.get("labels"))
    resources = raw.get("resources")
    for name in resources if isinstance(resources, dict) else ():
        if name not in ("cpus", "memory") and (problem := resource_problem(name)):
            yield (*path, "resources", name), *problem
    devices, island = _read(_DEVICES, raw.get("accelerators")), _read(_COUNT, raw.get("island"))
    if devices is not None and island is not None and devices.least % island:
        message = f"islands of {island} do not divide {devices.least} devices"
        yield (*path, "island"), message, f"write a divisor of {devices.least}"


def _listed(grid: Grid, here: Path, *, expand: bool) -> Iterator[Finding]:
    """Yield what is wrong with the nodes that a site lists."""
    template = grid.raw(*here, "node")
    template = template if isinstance(template, dict) else {}
    levels = grid.value(*here, "levels")
    nodes = grid.raw(*here, "nodes")
    owners: dict[str, str] = {}
    for key, raw in nodes.items() if isinstance(nodes, dict) else ():
        place = (*here, "nodes", key)
        names = None
        try:
            names = parse_names(key)
        except PydanticCustomError as error:
            yield place, *_said(error)
        if names is not None and expand:
            yield from _twice(place, key, names, owners)
        if isinstance(raw, dict):
            yield from _machine(place, raw)
            yield from _inherited(place, raw, template)
            yield from _place(place, raw, levels, names)
            address = raw.get("address", template.get("address"))
            if names is not None and isinstance(address, str):
                yield from _addresses((*place, "address"), address, names.count)


def _twice(place: Path, key: str, names: Names, owners: dict[str, str]) -> Iterator[Finding]:
    """Yield the first name that was there before; remember whose the others are."""
    twice = ""
    for name in names:
        if name in owners:
            twice = twice or name
        else:
            owners[name] = key
    if twice:
        where = "twice" if owners[twice] == key else f"and in `{owners[twice]}`"
        yield place, f"the node `{twice}` is in it {where}", "name each node once"


def _inherited(
    place: Path, raw: Mapping[str, Any], template: Mapping[str, Any]
) -> Iterator[Finding]:
    """Yield what a node lacks that its site's template does not give either."""
    if "accelerators" in raw:
        return
    if "accelerators" not in template:
        yield (*place, "accelerators"), "is missing", f"write {_DEVICES.right}"
        return
    devices, island = _read(_DEVICES, template["accelerators"]), _read(_COUNT, raw.get("island"))
    if devices is not None and island is not None and devices.least % island:
        message = f"islands of {island} do not divide {devices.least} devices"
        yield (*place, "island"), message, f"write a divisor of {devices.least}"


def _place(
    place: Path, raw: Mapping[str, Any], levels: tuple[str, ...] | None, names: Names | None
) -> Iterator[Finding]:
    """Yield what is wrong with the path of a node, or of a range of them."""
    here = (*place, "path")
    if levels is None:
        return
    if "path" not in raw:
        if levels:
            remedy = f"write a domain for each of the levels {', '.join(levels)}"
            yield here, "is missing, and the site has levels", remedy
        return
    path = _read(PathValue(), raw["path"])
    if path is None:
        return
    if not levels:
        yield here, "the site has no `levels`", "name them at the site, as `levels: [spine, leaf]`"
    elif len(path) != len(levels):
        message = f"the path has the length {len(path)}, and the site has {len(levels)} levels"
        yield here, message, f"write a domain for each of {', '.join(levels)}"
    elif names is not None:
        domains = prod(parse_names(part).count for part in path)
        if names.count % domains:
            message = f"{names.count:,} nodes cannot be shared evenly among {domains:,} domains"
            yield here, message, f"write ranges that make a divisor of {names.count:,}"


def _addresses(place: Path, address: str, nodes: int) -> Iterator[Finding]:
    if "[" not in address:
        return
    try:
        count = parse_names(address, ".+").count
    except PydanticCustomError:
        return  # pydantic has said so
    if count != nodes:
        message = f"{count:,} addresses for {nodes:,} nodes"
        yield place, message, "write a range with an address for each"


def _sizes(grid: Grid, here: Path) -> Iterator[tuple[Path, int]]:
    """Yield how many nodes each entry of a site stands for."""
    topology = _topology(grid, here)
    if topology:
        yield (*here, "topology"), prod(topology.values())
    for key in grid.keys(*here, "nodes"):
        names = _parsed_names(key)
        yield (*here, "nodes", key), names.count if names else 1


def _topology(grid: Grid, here: Path) -> dict[str, int]:
    """Return the counts of a topology; nothing when one of them cannot be read."""
    raw = grid.raw(*here, "topology")
    counts: dict[str, int] = {}
    for level, count in raw.items() if isinstance(raw, dict) else ():
        number = _read(_COUNT, count)
        if number is None:
            return {}
        counts[level] = number
    return counts


def _parsed_names(key: str) -> Names | None:
    try:
        return parse_names(key)
    except PydanticCustomError:
        return None


def _read(kind: Value, raw: Any) -> Any:
    try:
        return None if raw is None else kind.parse(raw)
    except ValueError:
        return None


def _said(error: PydanticCustomError) -> tuple[str, str]:
    context = error.context or {}
    return context["message"], context["remedy"]
