"""In which condition nodes, sites and links are: what is down, cut off, slow or marked."""

from collections.abc import Iterable
from typing import Literal, get_args

from gridloom.model.inventory import Inventory

Mark = Literal["", "cordon", "drain", "taint", "lost"]

MARKS: tuple[Mark, ...] = get_args(Mark)
"""Marks of nodes, the worst last."""


class Conditions:
    """Counts of what lasts now, so that two faults on one place end one after the other.

    Attributes:
        nodes: Devices of every node, by ``site/node``.
        of_site: Nodes of every site, as ``site/node``, by name.
        down: How many losses of a node, or of its site, last.
        cut: How many interruptions between a site and all others, and the control plane, last.
        refusing: How many causes a node, or a site, has to start nothing.
        slow: Factors by which a node, or a site, is slower.
        narrow: Factors by which a link is slower; infinity when it is interrupted.
    """

    def __init__(self, inventory: Inventory) -> None:
        self.nodes: dict[str, int] = {}
        self.of_site: dict[str, tuple[str, ...]] = {}
        self.down: dict[str, int] = {}
        self.cut: dict[str, int] = {}
        self.refusing: dict[str, int] = {}
        self.slow: dict[str, list[float]] = {}
        self.narrow: dict[tuple[str, str], list[float]] = {}
        self._marks: dict[str, list[Mark]] = {}
        self._sentences: dict[str, str] = {}
        self.take(inventory)

    def take(self, inventory: Inventory) -> None:
        """Let the grid be this; what lasts, lasts."""
        self.nodes = {f"{s.name}/{n.name}": n.count for s in inventory.sites for n in s.nodes}
        self.of_site = {
            s.name: tuple(f"{s.name}/{n.name}" for n in s.nodes) for s in inventory.sites
        }

    def domains(self, domain: str) -> tuple[str, ...]:
        """Return the nodes of a domain that is a site or a node."""
        return (domain,) if "/" in domain else self.of_site.get(domain, ())

    def is_reachable(self, domain: str) -> bool:
        """Return whether the control plane and the node hear each other."""
        return not self.cut or site_of(domain) not in self.cut

    def reachable(self, domains: Iterable[str]) -> list[str]:
        """Return those of the nodes that the control plane hears."""
        if not self.cut:
            return list(domains)
        return [domain for domain in domains if self.is_reachable(domain)]

    def is_up(self, domain: str) -> bool:
        """Return whether the node is there."""
        return domain not in self.down

    def refuses(self, domain: str) -> bool:
        """Return whether the node starts nothing."""
        return domain in self.refusing or site_of(domain) in self.refusing

    def slowness(self, domains: Iterable[str]) -> float:
        """Return by how much the slowest of the nodes is slower: a gang goes at its pace."""
        if not self.slow:
            return 1.0
        return max(
            max(self.slow.get(domain, _AS_USUAL)) * max(self.slow.get(site_of(domain), _AS_USUAL))
            for domain in domains
        )

    def mark(self, domain: str, mark: Mark, sentence: str) -> None:
        """Add a mark to a node or a site."""
        self._marks.setdefault(domain, []).append(mark)
        self._sentences[domain] = sentence

    def unmark(self, domain: str, mark: Mark) -> None:
        """Take one such mark away."""
        marks = self._marks.get(domain, [])
        if mark in marks:
            marks.remove(mark)
        if not marks:
            self._marks.pop(domain, None)

    def standing(self, domain: str) -> tuple[Mark, str]:
        """Return the worst mark of a node or its site, or of a site, and its sentence."""
        own = _worst(self._marks.get(domain, ()))
        site = site_of(domain)
        around = _worst(self._marks.get(site, ()))
        if MARKS.index(own) >= MARKS.index(around):
            return own, self._sentences.get(domain, "") if own else ""
        return around, self._sentences.get(site, "")


_AS_USUAL = [1.0]


def site_of(domain: str) -> str:
    """Return the site of ``site/node`` or ``site``."""
    return domain.partition("/")[0]


def link_of(one: str, other: str) -> tuple[str, str]:
    """Return the link between two sites, by its name in order."""
    return (one, other) if one <= other else (other, one)


def add(counts: dict[str, int], domain: str) -> None:
    """Count one more."""
    counts[domain] = counts.get(domain, 0) + 1


def subtract(counts: dict[str, int], domain: str) -> None:
    """Count one less; none is no entry."""
    left = counts.get(domain, 0) - 1
    if left > 0:
        counts[domain] = left
    else:
        counts.pop(domain, None)


def _worst(marks: Iterable[Mark]) -> Mark:
    return max(marks, key=MARKS.index, default=MARKS[0])
