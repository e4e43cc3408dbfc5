"""Which nodes a Slurm keeps from work, asked now and then."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from typing import Literal

from gridloom.base.clock import Clock
from gridloom.base.errors import SiteError
from gridloom.model.event import NodeMarked
from gridloom.model.inventory import Site, SlurmAccess
from gridloom.sites.slurm.engine import SlurmEngine
from gridloom.sites.slurm.records import Node
from gridloom.sites.slurm.states import NodeUse, node_states, node_use

_EVERY_S = 10.0
"""Between two looks at the nodes of one Slurm: of thousands, the answer takes it a while."""
_IS_NOT_THERE = "FUTURE"
_LEAVES = frozenset(["DRAIN", "DRAINED", "DRAINING", "DRNG", "FAIL", "FAILING", "FAILG"])


class NodeWatch:
    """Knows which nodes are kept from work, as of the last look that Slurm answered."""

    def __init__(
        self, clock: Clock, engines: Callable[[SlurmAccess], SlurmEngine], executor: Executor
    ) -> None:
        """Look through ``engines``, in the threads of ``executor``."""
        self._clock = clock
        self._engines = engines
        self._executor = executor
        self._asked: dict[SlurmEngine, Future[tuple[Node, ...]]] = {}
        self._asked_s: dict[SlurmEngine, float] = {}
        self._known: dict[SlurmEngine, tuple[Node, ...]] = {}  # those that are kept from work

    def standing(self, site: Site) -> Sequence[NodeMarked] | None:
        """As ``gridloom.ports.driver.Driver.standing``."""
        access = site.slurm or SlurmAccess()
        engine = self._engines(access)
        self._look(engine)
        nodes = self._known.get(engine)
        return None if nodes is None else marks(site.name, access.partition, nodes)

    def _look(self, engine: SlurmEngine) -> None:
        asked, now_s = self._asked.get(engine), self._clock.monotonic_s()
        if asked is not None and asked.done():
            del self._asked[engine]
            try:
                # Of thousands few: what is looked at with every beat of the loop is these
                self._known[engine] = tuple(filter(_is_kept_away, asked.result()))
            except SiteError:  # what it said last stands until it answers
                return
        elif asked is None and now_s - self._asked_s.get(engine, -_EVERY_S) >= _EVERY_S:
            self._asked_s[engine] = now_s
            self._asked[engine] = self._executor.submit(engine.nodes)


def marks(site: str, partition: str, nodes: Iterable[Node]) -> list[NodeMarked]:
    """Return what keeps nodes from work (pure).

    What runs on a drained node is to move. What ran on one that is down Slurm has ended itself, or
    will: the job tells.

    Args:
        site: Their site.
        partition: Whose nodes count; empty: all.
        nodes: As Slurm tells of them.
    """
    found = []
    for node in nodes:
        if not _is_kept_away(node) or (partition and partition not in node.partitions):
            continue
        use = node_use(node.states)
        leaves = use is NodeUse.DRAINED and not _LEAVES.isdisjoint(node_states(node.states))
        mark: Literal["drain", "cordon"] = "drain" if leaves else "cordon"
        word = "down" if use is NodeUse.DOWN else "drained" if leaves else "in maintenance"
        why = f": {node.reason}" if node.reason else ""
        found.append(
            NodeMarked(
                domain=f"{site}/{node.name}",
                mark=mark,
                sentence=f"{word} in Slurm{why}",
                by_site=True,
            )
        )
    return found


def _is_kept_away(node: Node) -> bool:
    is_there = _IS_NOT_THERE not in node_states(node.states)
    return is_there and node_use(node.states) >= NodeUse.DRAINED
