"""Bookings: capacity that is spoken for from one time to another."""

import msgspec


class Booking(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Nodes that from ``start_s`` to ``end_s`` belong to some jobs, or to nobody (maintenance).

    Attributes:
        name: Unique among the bookings.
        start_s: First second, since the epoch.
        end_s: First second after it.
        nodes: Which, as ``site/node``, or ``site`` for all of its nodes.
        queues: Whose jobs may use them meanwhile; empty for nobody's.
        sentence: What for, for a person.
    """

    name: str
    start_s: float
    end_s: float
    nodes: tuple[str, ...]
    queues: tuple[str, ...] = ()
    sentence: str = ""
