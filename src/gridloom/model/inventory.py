"""What there is: sites, their nodes and accelerators, and the links between sites."""

import msgspec

CPU = "cpu"
"""Accelerator kind of a CPU slot: one core's share of a node, for machines without accelerators."""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One machine.

    Attributes:
        name: Unique inside its site.
        address: Where other nodes reach it.
        accelerator: Kind of its devices, as ``h100`` or ``cpu``.
        count: How many devices it has; they are numbered from 0.
        memory_bytes: Memory of one device; 0 when unknown.
    """

    name: str
    address: str
    accelerator: str
    count: int
    memory_bytes: int = 0


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """One administrative place, reached by one driver.

    Attributes:
        name: Unique in the grid.
        kind: Which driver reaches it: ``local``.
        nodes: Its machines, in the order in which they are filled.
        price_per_accelerator_hour: In the grid's currency; 0 when free or unknown.
        power_w_per_accelerator: Draw of one busy device with its share of the node, in watts.
        ports: First and last port on which rank 0 of a job may listen.
    """

    name: str
    kind: str
    nodes: tuple[Node, ...]
    price_per_accelerator_hour: float = 0.0
    power_w_per_accelerator: float = 0.0
    ports: tuple[int, int] = (29400, 29999)


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """The network between two sites, the same in both directions.

    Attributes:
        between: The two sites, by name.
        bandwidth_bits_per_s: What one job can expect; 0 when unknown.
        latency_s: One way; 0 when unknown.
    """

    between: tuple[str, str]
    bandwidth_bits_per_s: float = 0.0
    latency_s: float = 0.0


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that jobs can be placed on."""

    sites: tuple[Site, ...]
    links: tuple[Link, ...] = ()
    currency: str = "USD"

    def site(self, name: str) -> Site:
        """Return the site called ``name``; ``KeyError`` when there is none."""
        for site in self.sites:
            if site.name == name:
                return site
        raise KeyError(name)
