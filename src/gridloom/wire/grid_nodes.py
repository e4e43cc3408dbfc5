"""The nodes of a site: ranges, templates and counts of a topology written out, one by one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from gridloom.model.inventory import Node
from gridloom.wire.documents_devices import Devices
from gridloom.wire.documents_names import parse_names
from gridloom.wire.grid_document import SiteDocument
from gridloom.wire.topology_document import (
    ADDRESS_PATTERN,
    NODE_ADDRESS,
    HostDocument,
    NodeDocument,
    NodeTemplateDocument,
)

GIB = 1024**3
"""Bytes of a GiB, in which hosts count memory."""


def site_levels(site: SiteDocument) -> tuple[str, ...]:
    """Return the levels between the site and its nodes, outermost first."""
    return site.levels or tuple(site.topology)[:-1]


def site_nodes(name: str, site: SiteDocument) -> tuple[Node, ...]:
    """Return the nodes of a site without problems, in the order in which they are written."""
    if site.accelerators is not None:
        return tuple(_nodes([name], [()], _Machine(site.accelerators)))
    template = site.node or NodeTemplateDocument()
    if site.topology:
        made = [*generated(site.topology)]
        machine = _machine(NodeDocument(), template)
        return tuple(_nodes([name for name, _ in made], [path for _, path in made], machine))
    nodes: list[Node] = []
    for key, document in site.nodes.items():
        names = [*parse_names(key)]
        domains = [*product(*(parse_names(part) for part in document.path))]
        share = len(names) // len(domains)
        paths = [path for path in domains for _ in range(share)]
        nodes += _nodes(names, paths, _machine(document, template))
    return tuple(nodes)


def generated(topology: Mapping[str, int]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the name and the path of every node of a topology given in counts.

    A domain is called by the first letters of its level, as many as tell the levels apart, and
    its number in its parent, from 1 and as wide as the largest; a node by all its domains and its
    own number: ``s1-l3-n07`` in ``{spine: 4, leaf: 8, node: 16}``.
    """
    choices = [
        [f"{prefix}{number:0{len(str(count))}d}" for number in range(1, count + 1)]
        for prefix, count in zip(_prefixes([*topology]), topology.values(), strict=True)
    ]
    for places in product(*choices):
        yield "-".join(places), places[:-1]


def _prefixes(levels: Sequence[str]) -> list[str]:
    """Return the first letters of each level, as many as no other level begins with."""
    return [
        next(
            (
                level[:length]
                for length in range(1, len(level))
                if sum(other.startswith(level[:length]) for other in levels) == 1
            ),
            level,
        )
        for level in levels
    ]


@dataclass(frozen=True)
class _Machine:
    """What a node is, but for its name and its place."""

    devices: Devices
    address: str = NODE_ADDRESS
    memory_bytes: float = 0.0
    island: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    resources: dict[str, int] = field(default_factory=dict)


def _machine(node: NodeDocument, template: NodeTemplateDocument) -> _Machine:
    """Return what a node is by its own words, and else by its site's template."""
    # Memory and islands are of the devices beside which they are written
    beside = template if node.accelerators is None else node
    devices = beside.accelerators
    assert devices is not None
    own_address = "address" in node.model_fields_set
    resources = {**_resources(template.resources), **_resources(node.resources)}
    return _Machine(
        devices=devices,
        address=node.address if own_address else template.address,
        memory_bytes=node.memory or beside.memory or 0.0,
        island=node.island or beside.island or 0,
        labels=dict(sorted({**template.labels, **node.labels}.items())),
        resources=dict(sorted(resources.items())),
    )


def _resources(host: HostDocument) -> dict[str, int]:
    """Return amounts by name; memory in whole GiB, rounded down."""
    amounts = dict(host.__pydantic_extra__ or {})
    if host.cpus is not None:
        amounts["cpus"] = host.cpus
    if host.memory is not None:
        amounts["memory_gib"] = int(host.memory) // GIB
    return amounts


def _nodes(
    names: Sequence[str], paths: Sequence[tuple[str, ...]], machine: _Machine
) -> Iterator[Node]:
    addresses = [machine.address] * len(names)
    if "[" in machine.address:
        addresses = [*parse_names(machine.address, ADDRESS_PATTERN)]
    for name, path, address in zip(names, paths, addresses, strict=True):
        yield Node(
            name=name,
            address=address,
            accelerator=machine.devices.kind,
            count=machine.devices.least,
            memory_bytes=int(machine.memory_bytes) // machine.devices.least,
            path=path,
            island=machine.island,
            labels=machine.labels,
            resources=machine.resources,
        )
