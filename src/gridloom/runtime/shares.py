"""Who takes which samples of a training step: every copy of the model at every site a run of them.

Shares differ by one sample at most, so that all copies do as much, whatever their site.
"""

from collections.abc import Sequence

from gridloom.base.errors import InputError, Problem
from gridloom.model.parallel import ParallelPlan
from gridloom.model.plan_check import share_problems
from gridloom.runtime.corpus import share_of


class Shares:
    """The shares of one global batch.

    Attributes:
        plans: How each site cuts the model, in the order of the sites.
    """

    def __init__(
        self, plan: ParallelPlan, site_sizes: Sequence[int], site: int, global_batch: int
    ) -> None:
        """Find out how many copies of the model each site holds.

        Args:
            plan: How a copy is cut.
            site_sizes: Ranks of every site.
            site: The number of this one.
            global_batch: Sequences of a training step.

        Raises:
            InputError: A site's ranks are no whole number of copies, there are more copies than
                sequences, or the cut wants all copies to take as many.
        """
        self._copies = [size // plan.replica_ranks for size in site_sizes]
        self._site, self._batch = site, global_batch
        problems = []
        for size in sorted(set(site_sizes)):
            if not size or size % plan.replica_ranks:
                text = (
                    f"a copy of the model takes {plan.replica_ranks} ranks, and a site has {size}"
                )
                remedy = "give every site a whole number of copies"
                problems.append(Problem(text, remedy, field="parallel"))
        problems = problems or share_problems(plan, sum(self._copies), global_batch)
        if problems:
            raise InputError(problems)

    @property
    def copies(self) -> int:
        """Copies of the model at this site."""
        return self._copies[self._site]

    def own(self, copy: int) -> range:
        """Return the samples of a step that a copy at this site takes, of all from 0."""
        before = sum(self._copies[: self._site])
        return share_of(before + copy, sum(self._copies), self._batch)

    def of_sites(self) -> list[range]:
        """Return the samples of a step that each site takes."""
        total, ranges, first = sum(self._copies), [], 0
        for copies in self._copies:
            start = share_of(first, total, self._batch).start
            stop = share_of(first + copies - 1, total, self._batch).stop
            ranges.append(range(start, stop))
            first += copies
        return ranges
