"""The grid of a story: short forms written out as a grid file, and checked as one.

Nodes are called ``n0``, ``n1`` and so on where the story does not name them, and the only site
``here``. Problems keep the place at which the story says what is wrong.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gridloom.base.errors import Problem
from gridloom.wire.documents_check import Finding, read
from gridloom.wire.documents_values import found
from gridloom.wire.grid_document import GridDocument
from gridloom.wire.grid_document_check import check_grid
from gridloom.wire.source import Source
from gridloom.wire.source_tree import Path

SITE = "here"
"""Name of the only site of a story that names none."""

_SHARED = ("queues", "cohorts", "policy")
_GRID_FIELDS = ("links", "currency", *_SHARED)
_COUNTED = re.compile(r"(?:(0*[1-9]\d{0,5})\s*x\s*)?([A-Za-z][A-Za-z0-9_.-]*(?::\d{1,7})?)")
_FORMS = "write `6x gpu:8`, a list of such texts or of `{count: 6, accelerators: gpu:8}`, or names"
_POOL = "write `{cpus: 100, memory_gib: 100}`, the first being its devices"
_DEVICE_WORDS = {"cpus": "cpu", "gpus": "gpu"}


@dataclass(frozen=True)
class StoryGrid:
    """A grid as one section of a story says it.

    Attributes:
        document: As a grid file; nothing when something is wrong.
        problems: What is wrong.
    """

    document: GridDocument | None
    problems: tuple[Problem, ...]


def read_story_grid(source: Source, path: Path) -> StoryGrid:
    """Return the grid that stands at ``path`` of a story.

    What the story says of queues, cohorts and policy at its top is part of it.
    """
    writer = _Writer()
    raw = _at(source, path)
    if isinstance(raw, str):
        raw = {"nodes": raw}
        writer.lift(("sites", SITE, "nodes"), path)
    elif not isinstance(raw, dict):
        return StoryGrid(None, (source.problem(path, found(raw), "write `nodes: 6x gpu:8`"),))
    data = writer.grid(raw, path)
    for name in _SHARED:
        shared = source.data.get(name)
        if shared in (None, {}):
            continue
        if name in data:
            writer.findings.append(
                ((*path, name), f"`{name}` is given here and at the top of the file", "keep one")
            )
        data[name] = shared
        writer.origins[(name,)] = (name,)
    problems = [source.problem(*finding) for finding in writer.findings]
    mapped = _Mapped(source.file, data=data, base=source, origins=writer.origins)
    reading = read(GridDocument, mapped)
    problems += reading.problems
    if not writer.findings:
        problems += check_grid(replace(reading, problems=()))
    unique = tuple(dict.fromkeys(problems))
    return StoryGrid(None if unique else reading.document, unique)


@dataclass(frozen=True)
class _Mapped(Source):
    """A grid file that was never written: its lines are those of the story."""

    base: Source = field(default_factory=lambda: Source(""))
    origins: Mapping[Path, Path] = field(default_factory=dict)

    def line(self, path: Path) -> int:
        return self.base.line(self._origin(path))

    def problem(self, path: Path, message: str, remedy: str = "") -> Problem:
        return self.base.problem(self._origin(path), message, remedy)

    def _origin(self, path: Path) -> Path:
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                return self.origins[path[:length]] + path[length:]
        return ()


class _Writer:
    """Writes short forms out, and notes where everything comes from."""

    def __init__(self) -> None:
        self.origins: dict[Path, Path] = {}
        self.findings: list[Finding] = []

    def lift(self, to: Path, from_: Path) -> None:
        """Note where something of the grid file stands in the story."""
        self.origins.setdefault(to, from_)

    def grid(self, raw: dict[str, Any], path: Path) -> dict[str, Any]:
        """Return the grid file that ``raw`` stands for."""
        self.lift(("sites",), (*path, "sites") if "sites" in raw else path)
        data = {name: raw[name] for name in _GRID_FIELDS if raw.get(name) is not None}
        for name in data:
            self.lift((name,), (*path, name))
        rest = {name: value for name, value in raw.items() if name not in _GRID_FIELDS}
        if "bookings" in rest:
            del rest["bookings"]
            remedy = "write a `book` event, whose times count from the beginning of the story"
            self.findings.append(((*path, "bookings"), "a story has no bookings here", remedy))
        if "sites" not in rest:
            data["sites"] = {SITE: self._site(rest, path, ("sites", SITE))}
            return data
        for name in rest:
            if name != "sites":
                remedy = f"move it into a site, or remove it; beside go {', '.join(_GRID_FIELDS)}"
                self.findings.append(((*path, name), "stands beside `sites`", remedy))
        sites = rest["sites"]
        data["sites"] = sites
        if isinstance(sites, dict):
            data["sites"] = {
                name: self._site(site, (*path, "sites", name), ("sites", name))
                for name, site in sites.items()
            }
        return data

    def _site(self, raw: Any, path: Path, here: Path) -> Any:
        self.lift(here, path)
        if isinstance(raw, str):
            raw = {"nodes": raw}
            self.lift((*here, "nodes"), path)
        if not isinstance(raw, dict):
            return raw
        site = dict(raw)
        if isinstance(site.get("node"), str):
            site["node"] = {"accelerators": site["node"]}
            self.lift((*here, "node", "accelerators"), (*path, "node"))
        forms = [name for name in ("nodes", "pool", "switches") if name in site]
        if len(forms) > 1:
            message = f"both `{forms[0]}` and `{forms[1]}` are given"
            self.findings.append(((*path, forms[1]), message, "keep one"))
        if "pool" in site:
            self._pool(site, path, here)
        if "switches" in site:
            self._switches(site, path, here)
        if isinstance(site.get("nodes"), str | list):
            nodes = site["nodes"]
            listed = nodes if isinstance(nodes, list) else [nodes]
            origin = self.origins.get((*here, "nodes"), (*path, "nodes"))
            places = [
                (*origin, i) if isinstance(nodes, list) else origin for i in range(len(listed))
            ]
            site["nodes"] = self._listed(listed, places, (*here, "nodes"))
        elif isinstance(site.get("nodes"), dict):
            site["nodes"] = {
                name: self._named(node, (*path, "nodes", name), (*here, "nodes", name))
                for name, node in site["nodes"].items()
            }
        return site

    def _named(self, node: Any, path: Path, here: Path) -> Any:
        """Return a node that is named, where a text is its devices."""
        self.lift(here, path)
        if not isinstance(node, str):
            return node
        self.lift((*here, "accelerators"), path)
        return {"accelerators": node}

    def _listed(self, items: list[Any], places: list[Path], here: Path) -> dict[str, Any]:
        nodes: dict[str, Any] = {}
        number = 0
        for item, place in zip(items, places, strict=True):
            node, count = self._counted(item, place)
            if node is None:
                continue
            last = number + count - 1
            name = node.pop("name", f"n{number}" if count == 1 else f"n[{number}-{last}]")
            number += count
            if not isinstance(name, str):
                self.findings.append(((*place, "name"), found(name), "write a name, as `n7`"))
                continue
            self.lift((*here, name), place)
            if isinstance(item, str):
                self.lift((*here, name, "accelerators"), place)
            if name in nodes:
                self.findings.append((place, f"`{name}` is there twice", "name each node once"))
            nodes[name] = node
        return nodes

    def _counted(self, item: Any, place: Path) -> tuple[dict[str, Any] | None, int]:
        """Return one entry of a list of nodes, and for how many it stands."""
        if isinstance(item, str) and (match := _COUNTED.fullmatch(item.strip())):
            return {"accelerators": match[2]}, int(match[1] or 1)
        if isinstance(item, dict):
            node = dict(item)
            count = node.pop("count", 1)
            if isinstance(count, int) and not isinstance(count, bool) and 0 < count <= 10**6:
                return node, count
            self.findings.append(((*place, "count"), found(count), "write how many, as `6`"))
            return None, 0
        self.findings.append((place, found(item), _FORMS))
        return None, 0

    def _pool(self, site: dict[str, Any], path: Path, here: Path) -> None:
        """Let one node have everything; the first that is named are its devices."""
        pool, place = site.pop("pool"), (*path, "pool")
        self.lift((*here, "nodes"), place)
        amounts = pool if isinstance(pool, dict) else {}
        whole = all(type(count) is int and count > 0 for count in amounts.values())
        if not amounts or not whole:
            self.findings.append((place, found(pool), _POOL))
            site["nodes"] = {}
            return
        (first, count), *others = amounts.items()
        kind = _DEVICE_WORDS.get(first, first)
        node: dict[str, Any] = {"accelerators": f"{kind}:{count}"}
        if others:
            node["resources"] = {
                "memory" if name == "memory_gib" else name: (
                    f"{amount}GiB" if name == "memory_gib" else amount
                )
                for name, amount in others
            }
        site["nodes"] = {"pool": node}

    def _switches(self, site: dict[str, Any], path: Path, here: Path) -> None:
        """Let each switch be a domain of the level ``switch``."""
        switches, place = site.pop("switches"), (*path, "switches")
        self.lift((*here, "nodes"), place)
        self.lift((*here, "levels"), place)
        site["levels"], site["nodes"] = ["switch"], {}
        remedy = "write `{s0: [n0, n1], s1: [n2, n3]}`"
        if not isinstance(switches, dict) or not switches:
            self.findings.append((place, found(switches), remedy))
            return
        for switch, members in switches.items():
            names = members if isinstance(members, list) else [members]
            for i, name in enumerate(names):
                if not isinstance(name, str) or name in site["nodes"]:
                    message = (
                        found(name) if not isinstance(name, str) else f"`{name}` is there twice"
                    )
                    self.findings.append(((*place, switch), message, remedy))
                    continue
                site["nodes"][name] = {"path": [switch]}
                self.lift((*here, "nodes", name), (*place, switch, i))


def _at(source: Source, path: Path) -> Any:
    raw: Any = source.data
    for key in path:
        raw = raw[key]
    return raw
