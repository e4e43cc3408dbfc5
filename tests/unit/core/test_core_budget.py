"""Which sites are too dear for what is left of a budget."""

from typing import Any

import pytest
from tests.unit.core.grids import Ground, grid, shape, site, spec

from gridloom.core import budget
from gridloom.core.demand import Demand
from gridloom.model.life import Job
from gridloom.model.spec import Budget, Forecast, Option, Speed


def job(cost_max: float, run_s: float, option: Option, *, cost: float = 0.0) -> Job:
    asked = spec(
        option, budget=Budget(cost_max=cost_max), forecast=Forecast(duration_s=run_s), max_sites=1
    )
    return Job(job_id="j", spec=asked, submitted_s=0.0, cost=cost)


def dear(cost_max: float, run_s: float = 3600.0, *, cost: float = 0.0, **more: Any) -> list[str]:
    """Return which of two sites, at 1 and at 10 an accelerator-hour, are too dear for two ranks."""
    sites = (
        site("cheap", "2", price_per_accelerator_hour=1.0),
        site("dear", "2", price_per_accelerator_hour=10.0),
    )
    ground = Ground(grid(*sites))
    option = shape(2, **more)
    asked = job(cost_max, run_s, option, cost=cost)
    demand = Demand(asked.spec, option, ground.tree)
    found = budget.too_dear(asked, demand, ground.ranker.prices)
    return [ground.tree.sites[number].name for number in found]


@pytest.mark.parametrize(
    ("cost_max", "want"),
    [
        (0.0, []),  # no limit
        (1.0, []),  # nowhere can it be done, so nothing is passed over
        (2.0, ["dear"]),
        (19.0, ["dear"]),
        (20.0, []),
    ],
)
def test_a_site_is_too_dear_only_if_another_is_not(cost_max: float, want: list[str]) -> None:
    assert dear(cost_max) == want


def test_a_site_that_cannot_hold_it_is_no_other_site() -> None:
    """Nobody waits for a cheaper site on which the job never fits."""
    sites = (
        site("small", "2", price_per_accelerator_hour=1.0),
        site("dear", "4", price_per_accelerator_hour=10.0),
    )
    ground = Ground(grid(*sites))
    for ranks, want in ((2, [1]), (4, [])):
        asked = job(2.0 * ranks, 3600.0, shape(ranks))
        demand = Demand(asked.spec, asked.spec.options[0], ground.tree)
        assert budget.too_dear(asked, demand, ground.ranker.prices) == want


def test_what_is_spent_already_is_not_left() -> None:
    assert dear(21.0, cost=1.0) == []
    assert dear(21.0, cost=2.0) == ["dear"]


def test_of_unknown_duration_nothing_is_too_dear() -> None:
    assert dear(2.0, 0.0) == []
    assert budget.is_spent(job(2.0, 0.0, shape(2), cost=2.0), 0.0)


def test_the_fastest_that_it_may_be_decides() -> None:
    """Twice as fast in one rack, so that it costs half as much."""
    fast = (Speed(level="node", step_s=0.5),)
    assert dear(19.0, step_s=1.0) == ["dear"]
    assert dear(19.0, step_s=1.0, speeds=fast) == []
