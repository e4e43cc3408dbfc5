"""Which nodes a cluster keeps from work, kept up to date by a watch."""

from collections.abc import Iterable, Sequence
from concurrent.futures import Future

from gridloom.base.errors import SiteError
from gridloom.model.event import NodeMarked
from gridloom.model.inventory import Site
from gridloom.sites.kube.api import NODES, Place
from gridloom.sites.kube.cluster import Outside
from gridloom.sites.kube.mirror import Mirror, Watched
from gridloom.sites.kube.parse_nodes import KubeNode, Standing, read_nodes

_AGAIN_S = 30.0
"""After a cluster could not be reached at all."""
_AWAY = "away"
_KEPT_AWAY = (Standing.CORDONED, Standing.NOT_READY, Standing.LEAVING)


class NodeWatch:
    """Knows which nodes are kept from work, as of the last news of their cluster."""

    def __init__(self, outside: Outside) -> None:
        """Watch through ``outside``; nothing is asked yet."""
        self._outside = outside
        self._mirrors: dict[Place, Future[Mirror]] = {}
        self._begun_s: dict[Place, float] = {}

    def standing(self, site: Site) -> Sequence[NodeMarked] | None:
        """As ``gridloom.ports.driver.Driver.standing``."""
        if site.kubernetes is None:
            return None
        mirror = self._mirror(Place.of(site.kubernetes))
        nodes = mirror.look(NODES.plural, _AWAY) if mirror is not None else None
        return None if nodes is None else marks(site.name, [one for kept in nodes for one in kept])

    def _mirror(self, place: Place) -> Mirror | None:
        """Return the copies of a cluster's nodes, once there are any; never wait."""
        now_s, begun = self._outside.clock.monotonic_s(), self._mirrors.get(place)
        if begun is None:
            if now_s - self._begun_s.get(place, -_AGAIN_S) >= _AGAIN_S:
                self._begun_s[place] = now_s
                self._mirrors[place] = self._outside.executor.submit(self._begin, place)
            return None
        if not begun.done():
            return None
        try:
            mirror = begun.result()
        except SiteError:
            del self._mirrors[place]
            return None
        if not mirror.touch():  # nobody has looked for a while, and it has ended
            del self._mirrors[place]
            return None
        return mirror

    def _begin(self, place: Place) -> Mirror:
        api = self._outside.connect(place)
        watched = Watched([NODES], "", lambda one: read_nodes([one]), _key)
        return Mirror(api, [watched], self._outside.clock, self._outside.executor)


def marks(site: str, nodes: Iterable[KubeNode]) -> list[NodeMarked]:
    """Return what keeps nodes from work (pure).

    What runs there its cluster evicts itself, or not: the pods tell. So no node is drained.
    """
    kept = {one.host: one.sentence for one in nodes if one.standing in _KEPT_AWAY}
    return [
        NodeMarked(domain=f"{site}/{host}", mark="cordon", sentence=sentence, by_site=True)
        for host, sentence in sorted(kept.items())
    ]


def _key(node: Sequence[KubeNode]) -> str:
    """Return under which key a node is kept, so that those kept from work are found at once."""
    return _AWAY if any(one.standing in _KEPT_AWAY for one in node) else ""
