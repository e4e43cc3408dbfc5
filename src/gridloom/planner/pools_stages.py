"""Stages of one pipeline on several pools, with layers in proportion to the pools' speed.

Every pool cuts its stages over its devices in its own way; the copies of the model, the ranks that
share a sequence and the micro-batch are the same everywhere. What a pool can do is read off
straight lines (`pools_stage_options`). Joined, the slowest stage (or link) sets the pace:

    step = sum of all stages + (micro-batches - 1) slowest + what is paid once + links,

as far as memory holds enough micro-batches to cover the links (`site_stages`). The best candidates
are then computed with the layers that they really hold; where these leave no room for enough
micro-batches, a cut that does is sought, too. The first pools count an output layer's memory, as
if they might hold the last stage: they hold a little more than is said.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from math import ceil

import numpy as np
from msgspec import structs

from gridloom.planner.cases import Cases, take
from gridloom.planner.pools import (
    Pool,
    PoolLink,
    PoolPart,
    PoolPlan,
    PoolSpace,
    link_between,
    priced,
)
from gridloom.planner.pools_stage_options import Index, Key, Numbers, StageOptions, StagePool
from gridloom.planner.site_stages import (
    SiteStages,
    StageHop,
    StagesForecast,
    exact_bits,
    stages_forecast,
    wire_bits,
    wire_loss,
)
from gridloom.planner.stages_time import StageLink, paced_step_s
from gridloom.planner.sync_forecast import SyncLink

CANDIDATES = 8
"""Candidates of one order of pools that are computed with the layers that they really hold."""


@dataclass(frozen=True)
class _Asked:
    """What the pools of a chain must have in common.

    Attributes:
        key: Copies, context ranks and micro-batch.
        bits: Of a number on its way between sites.
        links: From each pool to the next, for a micro-batch of all copies.
    """

    key: Key
    bits: int
    links: tuple[StageLink, ...]

    @property
    def transfer_s(self) -> float:
        """Of a micro-batch over the slowest link, one way."""
        return max(float(link.transfer_s) for link in self.links)

    def delay_s(self, place: int) -> float:
        """Return what the links from a pool on take there and back."""
        return sum(float(link.delay_s) for link in self.links[place:])


@dataclass(frozen=True)
class _Candidate:
    """A way to join the pools of a chain.

    Attributes:
        step_s: Of a training step, what it costs in loss counted in, by the lines.
        rows: The option of each pool.
        layers: Of each pool.
        period_s: Of the slowest stage or link.
        asked: What it answers.
    """

    step_s: float
    rows: tuple[int, ...]
    layers: tuple[int, ...]
    period_s: float
    asked: _Asked


def stage_plans(asked: PoolSpace) -> Iterator[PoolPlan]:
    """Yield the best plans of every chain of pools; pipeline and schedule are chosen here."""
    if not asked.runnable_first:
        for chain in _chains(asked, is_whole=False):
            yield from chain.plans()
        return
    is_found = False
    for chain in _chains(asked, is_whole=True):
        plans = chain.plans() if chain.sites == len(chain.places) else []
        is_found = is_found or bool(plans)
        yield from plans
    for length in range(1, asked.chain + 1):  # chains at one site first, whatever is found
        for chain in _chains(asked, is_whole=False):
            if length == (len(chain.places) if chain.sites > 1 else 1):
                plans = chain.plans()
                is_found = is_found or bool(plans and chain.sites > 1)
                yield from plans
        if is_found:
            return


def _chains(asked: PoolSpace, *, is_whole: bool) -> Iterator["_Chain"]:
    known: dict[tuple[str, int, bool], StagePool] = {}
    for count in range(2, min(asked.chain, len(asked.pools)) + 1):
        for order in permutations(asked.pools, count):
            for devices in product(*(pool.choices for pool in order)):
                hops = list(_hops(order, devices, asked.links))
                places: list[StagePool] = []
                for pool, used in zip(order, devices, strict=True):
                    is_last = len(places) == count - 1
                    one = StagePool(asked, pool, used, is_last, is_whole)
                    places.append(known.setdefault((pool.name, used, is_last), one))
                if len(hops) == count - 1:
                    yield _Chain(asked, places, hops)


def _hops(
    order: Sequence[Pool], devices: Sequence[int], links: Sequence[PoolLink]
) -> Iterator[StageHop]:
    for place in range(len(order) - 1):
        one, other = order[place], order[place + 1]
        if one.site == other.site:
            ends = zip((one, other), devices[place : place + 2], strict=True)
            rate = min(pool.network_bytes_per_s(count) for pool, count in ends)
            yield StageHop(link=SyncLink(bytes_per_s=rate), is_between_sites=False)
            continue
        link = link_between(one.site, other.site, links)
        if link is not None and link.bytes_per_s > 0:
            yield StageHop(link=link.as_seen)


class _Chain:
    """One order of pools that hold the stages of one pipeline."""

    def __init__(
        self, asked: PoolSpace, places: Sequence[StagePool], hops: Sequence[StageHop]
    ) -> None:
        self.asked, self.space, self.places, self.hops = asked, asked.space, places, hops
        self.exact_bits = max(exact_bits(precision) for precision in asked.space.precision)
        self.sites = len({place.pool.site for place in places})
        self.options: list[StageOptions] = []

    def plans(self) -> list[PoolPlan]:
        """Return the best plans, fastest first."""
        options = [place.options for place in self.places]
        self.options = [one for one in options if one is not None]
        if len(self.options) < len(options):  # nothing can be cut for this pool: no chain
            return []
        found: list[_Candidate] = []
        for key in sorted(set.intersection(*(set(one.rows) for one in self.options))):
            found += self._candidates(key)
        found.sort(key=lambda candidate: (candidate.step_s, candidate.rows, candidate.layers))
        return [plan for candidate in found[:CANDIDATES] for plan in self._plans_of(candidate)]

    def _candidates(self, key: Key) -> Iterator[_Candidate]:
        """Yield the best cut, and where links set the pace, that with fewer bits, too."""
        for bits in wire_bits(self.exact_bits):
            asked = _Asked(key, bits, self._links(key, bits))
            found = self._solved(asked, (0,) * len(self.places))
            if found is None:
                return
            yield found
            if found.period_s > asked.transfer_s:
                return

    def _plans_of(self, candidate: _Candidate) -> Iterator[PoolPlan]:
        """Yield a candidate; where it cannot hold enough to cover the links, also one that can."""
        plan = self._checked(candidate)
        if plan is None or plan.stages is None:
            return
        yield plan
        if not stages_forecast(plan.stages).bounds:
            return
        asked = candidate.asked
        more = tuple(
            ceil(asked.delay_s(place) / candidate.period_s) for place in range(len(self.places))
        )
        other = self._solved(asked, more)
        found = self._checked(other) if other is not None else None
        if found is not None:
            yield found

    def _solved(self, asked: _Asked, more: tuple[int, ...]) -> _Candidate | None:
        """Return the best cut, as if the links were covered, or nothing.

        Args:
            asked: What the pools have in common.
            more: Micro-batches that each pool holds beyond those of 1F1B.
        """
        picks = [self._undominated(place, asked, count) for place, count in enumerate(more)]
        rows = [pick.ravel()[:, None] for pick in np.meshgrid(*picks, indexing="ij")]
        stages = [o.stages[r] for o, r in zip(self.options, rows, strict=True)]
        most = [self._most(place, rows, stages, more[place]) for place in range(len(rows))]
        paces = self._paces(rows)
        held = []
        for options, row, limit in zip(self.options, rows, most, strict=True):
            slot = options.slot_s
            room = (paces - slot.at_one[row]) / np.maximum(slot.slope[row], 1e-30)
            held.append(np.clip(np.floor(room + 1e-9) + 1, 0.0, limit))
        spare = sum(s * h for s, h in zip(stages, held, strict=True)) - self.space.model.layers
        bad = (spare < 0) | np.any([h < 1 for h in held], axis=0)
        removed = self._removed(rows, stages, held, np.maximum(spare, 0.0))
        step_s, period_s = self._step_s(rows, held, removed, asked)
        step_s = np.where(bad, np.inf, step_s)
        combination, pace = np.unravel_index(int(np.argmin(step_s)), step_s.shape)
        if not np.isfinite(step_s[combination, pace]):
            return None
        layers = tuple(
            int(s[combination, 0] * h[combination, pace] - r[combination, pace])
            for s, h, r in zip(stages, held, removed, strict=True)
        )
        chosen = tuple(int(row[combination, 0]) for row in rows)
        worth_s = float(step_s[combination, pace])
        worth_s *= wire_loss(asked.bits, self.exact_bits).more_tokens
        return _Candidate(worth_s, chosen, layers, float(period_s[combination, pace]), asked)

    def _most(self, place: int, rows: list[Index], stages: list[Numbers], more: int) -> Numbers:
        """Return the layers a stage that memory holds with ``more`` micro-batches in flight."""
        options, row, one = self.options[place], rows[place], self.places[place]
        later: Numbers = sum(stages[place + 1 :], np.zeros_like(stages[0]))
        if more:
            cases = take(options.cases, row[:, 0])
            held = later[:, 0] + more
            return one.layers_max(cases, stages[place][:, 0], held)[:, None]
        most = np.zeros_like(later)
        for behind in np.unique(later):
            limits = one.limits(options, int(behind))
            most = np.where(later == behind, limits[row], most)
        return most

    def _undominated(self, place: int, asked: _Asked, more: int) -> Index:
        """Return what can be had of ``asked`` and no other with as many stages beats in all.

        Memory counts with as many micro-batches in flight as in the last pool, and with as many as
        there can be.
        """
        options, one = self.options[place], self.places[place]
        rows = options.rows[asked.key]
        stages = options.stages[rows]
        most = np.maximum(np.ceil(self.space.model.layers / stages), 2.0)
        behind = sum(int(later.stages.max()) for later in self.options[place + 1 :])
        at_most = one.limits(options, behind)[rows]
        if more:
            at_most = one.layers_max(take(options.cases, rows), stages, behind + more)
        scores = np.column_stack(
            [
                options.slot_s.at_one[rows],
                options.slot_s.at(most, rows),
                options.once_s.at_one[rows],
                options.once_s.at(most, rows),
                -one.limits(options, 0)[rows],
                -at_most,
            ]
        )
        same = options.stages[rows][:, None] == options.stages[rows][None, :]
        no_worse = (scores[:, None, :] <= scores[None, :, :]).all(axis=2) & same
        better = no_worse & (~no_worse.T | (rows[:, None] < rows[None, :]))
        return np.asarray(rows[~better.any(axis=0)])

    def _paces(self, rows: list[Index]) -> Numbers:
        """Return every time that the slowest stage could take, a row for each combination."""
        found = []
        for options, row in zip(self.options, rows, strict=True):
            most = int(np.ceil(self.space.model.layers / options.stages[row].min()))
            found.append(options.slot_s.at(np.arange(1.0, most + 1)[None, :], row))
        return np.concatenate(found, axis=1)

    def _removed(
        self, rows: list[Index], stages: list[Numbers], held: list[Numbers], spare: Numbers
    ) -> list[Numbers]:
        """Return how many layers fewer than its room each pool holds: first where a layer is slow.

        Every stage keeps a layer.
        """
        slopes = [o.slot_s.slope[r] for o, r in zip(self.options, rows, strict=True)]
        order = np.argsort(-np.stack(slopes), axis=0, kind="stable")
        removed = [np.zeros_like(spare) for _ in rows]
        for turn in range(len(rows)):
            for place in range(len(rows)):
                loose = stages[place] * (held[place] - 1)
                taken = np.where(order[turn] == place, np.clip(spare, 0.0, loose), 0.0)
                removed[place] = removed[place] + taken
                spare = spare - taken
        return removed

    def _numbers(self, key: Key) -> float:
        """Return the numbers of a micro-batch of all copies that cross a hop."""
        data, _, micro_batch = key
        return float(data * micro_batch * self.space.sequence * self.space.model.hidden)

    def _links(self, key: Key, bits: int) -> tuple[StageLink, ...]:
        numbers, exact = self._numbers(key), self.exact_bits
        return tuple(
            hop.for_micro_batch(numbers, bits if hop.is_between_sites else exact, key[0])
            for hop in self.hops
        )

    def _step_s(
        self,
        rows: list[Index],
        held: list[Numbers],
        removed: list[Numbers],
        asked: _Asked,
    ) -> tuple[Numbers, Numbers]:
        """Return the seconds of a training step, and of its slowest stage or link."""
        data, _, micro_batch = asked.key
        fill: Numbers = np.zeros_like(held[0])
        slowest: Numbers = np.full_like(fill, asked.transfer_s)
        once: Numbers = np.zeros_like(fill)
        for place, options in enumerate(self.options):
            row, layers = rows[place], held[place]
            slot_s = options.slot_s.at(layers, row)
            fill += options.stages[row] * slot_s - removed[place] * options.slot_s.slope[row]
            slowest = np.maximum(slowest, slot_s)
            once = np.maximum(once, options.once_s.at(layers, row))
        turns = self.space.global_batch / data / micro_batch
        round_s = fill + asked.delay_s(0)
        return paced_step_s(round_s, slowest, micro_batches=turns) + once, slowest

    def _checked(self, candidate: _Candidate) -> PoolPlan | None:
        """Return a cut with its real layers, or nothing when it does not fit."""
        rows, layers = candidate.rows, candidate.layers
        pipe = self._pipe(candidate)
        depths: list[int] = []
        for place, cases, cut in self._cuts(rows, layers):
            least = pipe.least_depths[len(depths)]
            depths.append(place.depth_max(cases, cut, least, pipe.micro_batches))
        if not all(depths):
            return None
        pipe = replace(pipe, depths=tuple(depths))
        found = stages_forecast(pipe)
        parts = tuple(self._part(place, row, found) for place, row in enumerate(rows))
        between_s = found.step_s - pipe.without_network_s
        pools = [place.pool for place in self.places]
        plan = priced("stages", parts, pools, found.step_s, between_s, self.asked.steps)
        return replace(plan, more_tokens=found.loss.more_tokens, stages=pipe)

    def _cuts(
        self, rows: tuple[int, ...], layers: tuple[int, ...]
    ) -> Iterator[tuple[StagePool, Cases, tuple[int, int]]]:
        """Yield each pool with its one case, and the layers of its longest stage and its stages."""
        for place, row in enumerate(rows):
            options = self.options[place]
            stages = int(options.stages[row])
            cases = take(options.cases, np.array([row]))
            yield self.places[place], cases, (-(-layers[place] // stages), stages)

    def _pipe(self, candidate: _Candidate) -> SiteStages:
        """Return a cut in numbers, as if memory had no end."""
        rows, layers = candidate.rows, candidate.layers
        key = candidate.asked.key
        data, _, micro_batch = key
        fills, slots, once, counts = [], [], 0.0, []
        for held, (place, cases, (full, stages)) in zip(
            layers, self._cuts(rows, layers), strict=True
        ):
            short, number = -held % stages, np.full(2, float(stages))
            both = take(cases, np.zeros(2, dtype=np.intp))
            slot_s, rest = place.times(both, np.array([full, max(full - 1, 1)], float), number)
            fills.append(float(slot_s[0]) * (stages - short) + float(slot_s[1]) * short)
            slots.append(float(slot_s[0]))
            once = max(once, float(rest[0]))
            counts.append(stages)
        return SiteStages(
            sites=tuple(place.pool.site for place in self.places),
            layers=layers,
            fill_s=tuple(fills),
            slot_s=tuple(slots),
            once_s=once,
            micro_batches=self.space.global_batch // (data * micro_batch),
            numbers=self._numbers(key),
            copies=data,
            hops=tuple(self.hops),
            exact_bits=self.exact_bits,
            least_depths=tuple(sum(counts[place:]) for place in range(len(counts))),
            depths=(float("inf"),) * len(counts),
            step_tokens=float(self.space.global_batch * self.space.sequence),
            is_runnable=self.sites == len(rows)
            and all(one.is_whole(row) for one, row in zip(self.options, rows, strict=True)),
        )

    def _part(self, place: int, row: int, found: StagesForecast) -> PoolPart:
        options, one, pipe = self.options[place], self.places[place], found.stages
        stages, layers = int(options.stages[row]), pipe.layers[place]
        full, short = -(-layers // stages), -layers % stages
        cut = tuple(full - (stage < short) for stage in range(stages)) if short else ()
        behind = max(found.depths[place], pipe.least_depths[place]) - stages
        cases = take(options.cases, np.array([row]))
        longest, count = np.array([float(full)]), np.array([float(stages)])
        memory_bytes = one.memory_bytes(cases, longest, count, behind)
        return PoolPart(
            pool=one.pool.name,
            site=one.pool.site,
            devices=one.devices,
            sequences=self.space.global_batch,
            layers=layers,
            plan=structs.replace(options.plan(row), stage_layers=cut),
            step_s=pipe.micro_batches * pipe.slot_s[place] + pipe.once_s,
            memory_bytes=float(memory_bytes[0]),
        )
