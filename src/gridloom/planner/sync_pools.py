"""What the sites of a plan over several pools have to exchange."""

from collections.abc import Mapping, Sequence
from itertools import combinations

from gridloom.planner.models.parameters import count_parameters
from gridloom.planner.pools import PoolLink, link_between
from gridloom.planner.search_space import SearchSpace
from gridloom.planner.sync_forecast import SyncSituation


def pools_situation(
    space: SearchSpace,
    links: Sequence[PoolLink],
    devices: Mapping[str, int],
    step_s: float,
    tokens: float,
) -> SyncSituation:
    """Return the situation of sites that hold copies of the model.

    Args:
        space: The model and its batch.
        links: Between sites, of which those that are known join these.
        devices: Of each site, two of them or more.
        step_s: Of a training step of the slowest pool, by itself.
        tokens: That the model is trained on in all.
    """
    found = [link_between(*pair, links) for pair in combinations(sorted(devices), 2)]
    return SyncSituation(
        parameters=int(count_parameters(space.model).total),
        width=space.model.hidden,
        tokens=tokens,
        step_s=step_s,
        step_tokens=float(space.global_batch * space.sequence),
        sites=len(devices),
        links=tuple(link.as_seen for link in found if link is not None),
        ranks=min(devices.values()),
        shares_cores=False,
    )
