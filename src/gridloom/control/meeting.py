"""Where the tasks of an attempt meet that came up on nodes which their sites chose (pure)."""

import zlib
from collections.abc import Iterable, Set

from gridloom.core.state import tasks_of
from gridloom.model.life import Arrival, Attempt
from gridloom.wire.agent import Rendezvous


def rendezvous(attempt: Attempt, port: int) -> Rendezvous:
    """Return where each task of an attempt is: where it came up, or where it was placed."""
    places = (task.arrival or task.placement for task in tasks_of(attempt))
    return Rendezvous(addresses=tuple(place.address for place in places), port=port)


def common_port(arrivals: Iterable[Arrival], taken: Set[int], count: int, seed: str) -> int | None:
    """Return the first of a row of ports that are free at every node; nothing if there is none.

    Args:
        arrivals: Where the tasks are.
        taken: Ports that were given to somebody who may not listen yet.
        count: How long a row it takes.
        seed: Where the search begins depends on it, so that two control planes that do not know of
            each other seldom choose the same.
    """
    free: set[int] | None = None
    for arrival in arrivals:
        here = {port for first, last in arrival.free_ports for port in range(first, last + 1)}
        free = here if free is None else free & here
    free = (free or set()) - taken
    starts = [port for port in sorted(free) if free.issuperset(range(port, port + count))]
    return starts[zlib.crc32(seed.encode()) % len(starts)] if starts else None
