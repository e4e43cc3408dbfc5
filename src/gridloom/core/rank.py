"""What a place is worth, in percent of the training step time that one would give for it."""

from collections.abc import Sequence

from gridloom.core.demand import Demand
from gridloom.core.state import Signals
from gridloom.core.topology import Tree
from gridloom.model.inventory import Site
from gridloom.model.policy import Weights
from gridloom.model.spec import JobSpec, Option

GRID = "grid"
"""The level of a gang that spans sites; it is outside of every site's levels."""


class Ranker:
    """The cost of places for one grid, one policy and the signals of the moment."""

    def __init__(self, tree: Tree, weights: Weights, signals: Signals) -> None:
        self.tree, self.weights = tree, weights
        self.prices = {
            site.name: signals.prices.get(site.name, site.price_per_accelerator_hour)
            for site in tree.sites
        }
        self._grams = {
            site.name: signals.carbon.get(site.name, site.carbon_g_per_kwh)
            * site.power_w_per_accelerator
            for site in tree.sites
        }
        self._gains = _gains(tree)
        self._sites: dict[int, tuple[Demand, list[tuple[float, int]]]] = {}

    def sites(self, demand: Demand) -> list[tuple[float, int]]:
        """Return the sites that the job may use and what being there costs, the best first.

        Equal ones stand in the user's order, then in that of the grid.
        """
        known = self._sites.get(id(demand))
        if known is None:
            known = self._sites[id(demand)] = (demand, self._sorted_sites(demand))
        return known[1]

    def _sorted_sites(self, demand: Demand) -> list[tuple[float, int]]:
        sites = [self.tree.sites[number] for number in demand.chains]
        spec, weights = demand.spec, self.weights
        wish = {name: position for position, name in reversed(list(enumerate(spec.sites)))}
        costs = []
        for number, site, price, watts, grams in zip(
            demand.chains,
            sites,
            _percent_above([self.prices[site.name] for site in sites]),
            _percent_above([site.power_w_per_accelerator for site in sites]),
            _percent_above([self._grams[site.name] for site in sites]),
            strict=True,
        ):
            cost = (
                weights.price * price
                + weights.energy * watts
                + weights.carbon * grams
                + weights.distance * _is_far(site, spec)
            )
            costs.append((round(cost, 9), wish.get(site.name, 0), number))
        return [(cost, number) for cost, _, number in sorted(costs)]

    def of_kind(self, demand: Demand) -> float:
        """Return what it costs others that the job takes this kind of device and not another.

        A kind on which the job is slow against what is usual for the kinds it could take is one
        that others use better: the idea of Gavel (Narayanan et al., OSDI 2020).
        """
        if len(demand.spec.options) < 2 or not self.weights.advantage:
            return 0.0
        steps = {
            option.accelerator: best_step_s(option)
            for option in demand.spec.options
            if best_step_s(option)
        }
        own = demand.option.accelerator
        if len(steps) < 2 or own not in steps:
            return 0.0
        speeds = {kind: 1 / step_s for kind, step_s in steps.items()}
        mean = sum(speeds.values()) / len(speeds)
        usual = sum(self._gains.get(kind, 1.0) for kind in speeds) / len(speeds)
        expected = self._gains.get(own, 1.0) / usual
        return self.weights.advantage * 100 * max(0.0, expected - speeds[own] / mean)

    def placement_level(self, site: int, gang: int) -> str:
        """Return the name of the level that a gang reached."""
        return GRID if gang < 0 else self.tree.level_name(site, gang)

    def of_time(self, demand: Demand, site: int, gang: int, block: int) -> float:
        """Return what the levels reached cost against the job's shortest step time.

        Args:
            demand: The shape.
            site: Number of the site, of any of them when there are several.
            gang: Level one domain of which holds all ranks; -1 for several sites.
            block: Level that keeps its largest groups together.
        """
        if not (step_s := step_s_at(demand.option, self.tree, site, gang, block)):
            return 0.0
        best_s = min(filter(None, map(best_step_s, demand.spec.options)), default=step_s)
        return self.weights.time * _percent_above([best_s, step_s])[1]


def step_s_at(option: Option, tree: Tree, site: int, gang: int, block: int) -> float:
    """Return the predicted step time of a placement that reaches these levels; 0 when unknown."""
    for speed in option.speeds:
        level = -1 if speed.level == GRID else tree.level(site, speed.level)
        replica = tree.level(site, speed.replica) if speed.replica else 0
        if level is not None and replica is not None and gang >= level and block >= replica:
            return speed.step_s
    return option.step_s


def best_step_s(option: Option) -> float:
    """Return the option's shortest predicted step time; 0 when none is known."""
    if not option.speeds:
        return option.step_s
    known = [speed.step_s for speed in option.speeds if speed.step_s]
    return min([*known, option.step_s] if option.step_s else known, default=0.0)


def _percent_above(values: Sequence[float]) -> list[float]:
    """Return by how much each value is above the least, in percent of that.

    Where the least is nothing, in percent of the next: what is free does not make all else alike.
    """
    least = min(values, default=0.0)
    unit = least or min(filter(None, values), default=1.0)
    return [100 * (value - least) / unit for value in values]


def _is_far(site: Site, spec: JobSpec) -> bool:
    return bool(spec.data_sites) and site.name not in spec.data_sites


def _gains(tree: Tree) -> dict[str, float]:
    """Return how much of the grid's devices each kind is: what is plenty is worth less."""
    total = sum(tree.totals.values())
    return {kind: 1 - count / (2 * total) for kind, count in tree.totals.items() if total}
