"""What the names in a story stand for: nodes and sites of its grids, and jobs with their arrays."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from gridloom.model.inventory import Inventory
from gridloom.wire.documents_values import did_you_mean

_NAMED_MAX = 8


class Places:
    """Nodes and sites by what a story calls them.

    Attributes:
        sites: Names of all sites.
        levels: Names of all levels, those that every site has included.
        queues: Names of all queues.
    """

    def __init__(self, inventories: Iterable[Inventory]) -> None:
        self.sites: dict[str, None] = {}
        self.levels: dict[str, None] = {}
        self.queues: dict[str, None] = {}
        self._domains: dict[str, None] = {}
        self._by_node: dict[str, list[str]] = {}
        for inventory in inventories:
            self.queues |= dict.fromkeys(queue.name for queue in inventory.queues)
            for site in inventory.sites:
                self.sites[site.name] = None
                self.levels |= dict.fromkeys(("site", *site.levels, "node", "island"))
                for node in site.nodes:
                    domain = f"{site.name}/{node.name}"
                    if domain not in self._domains:
                        self._domains[domain] = None
                        self._by_node.setdefault(node.name, []).append(domain)

    def domain(self, name: str) -> str | None:
        """Return ``site/node`` or ``site``; nothing when no grid has it, or several sites do."""
        if name in self.sites or name in self._domains:
            return name
        domains = self._by_node.get(name, [])
        return domains[0] if len(domains) == 1 else None

    def wrong(self, name: str) -> tuple[str, str] | None:
        """Return what is wrong with the name of a node or a site, and what would be right."""
        if self.domain(name) is not None:
            return None
        if name in self._by_node:
            listed = ", ".join(self._by_node[name])
            return f"`{name}` is the name of several nodes", f"write one of {listed}"
        known = [*self.sites, *self._by_node]
        return f"there is no node or site `{name}`", _near(name, known)


def names_like(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the jobs that a name stands for, in their order.

    A plain name of an array stands for all of its jobs. Brackets are those of arrays, not choices
    of letters.
    """
    escaped = "".join(f"[{letter}]" if letter == "[" else letter for letter in pattern)
    plain = not set("*?[") & set(pattern)
    return [
        name
        for name in names
        if fnmatchcase(name, escaped) or (plain and name.rpartition("[")[0] == pattern)
    ]


def unknown_name(
    what: str, name: str, known: Sequence[str] | Mapping[str, None]
) -> tuple[str, str]:
    """Return what is wrong with a name that is not known, and what would be right."""
    return f"there is no {what} `{name}`", _near(name, list(known))


def _near(name: str, known: Sequence[str]) -> str:
    if not known:
        return "there is none"
    more = f" and {len(known) - _NAMED_MAX} more" if len(known) > _NAMED_MAX else ""
    return did_you_mean(name, [*known]) or f"there are: {', '.join(known[:_NAMED_MAX])}{more}"
