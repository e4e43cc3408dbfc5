"""Stages of one pipeline on several pools, with layers in proportion to the pools' speed.

Every pool cuts its stages over its devices in its own way; the copies of the model, the ranks that
share a sequence and the micro-batch are the same everywhere. A pool is asked what a pipeline of
equal stages would take on it: the time of one more micro-batch is a stage's, what remains is paid
once a step. Joined, the slowest stage (or link) sets the pace:

    step = sum of all stages + (micro-batches - 1) slowest + what is paid once + links.

Time and memory of a stage are read off a straight line between one layer and the most that it
could hold, which is above both wherever they are convex; the best candidates are then computed
with the layers that they really hold. The first pools count an output layer's memory too, as if
they might hold the last stage: they hold a little more than they are said to.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product

import numpy as np
import numpy.typing as npt
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
    space_of,
)
from gridloom.planner.search import spread
from gridloom.planner.search_grid import Grid, blocks, grid

Numbers = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]

CANDIDATES = 16
"""Candidates of one order of pools that are computed with the layers that they really hold."""


@dataclass(frozen=True)
class _Line:
    """Values on a straight line: at one layer, and for each layer more."""

    at_one: Numbers
    slope: Numbers

    def at(self, layers: Numbers, rows: Index) -> Numbers:
        """Return the values of ``rows`` at ``layers``; shapes broadcast."""
        return self.at_one[rows] + self.slope[rows] * (layers - 1)


@dataclass(frozen=True)
class _Options:
    """What one pool of a chain can do; one entry a way to cut its stages."""

    grid: Grid
    cases: Cases
    degree: Index
    knob: Index
    stages: Numbers
    behind: Numbers
    """Numbers of stages that may follow in later pools, sorted."""
    key: npt.NDArray[np.int64]
    """Copies, context ranks and micro-batch: three columns."""
    slot_s: _Line
    """Of one micro-batch through one stage, forward and backward."""
    once_s: _Line
    """Of a step, paid once."""
    layers_max: Numbers
    """Layers a stage that memory holds: by option and by entry of ``behind``."""


@dataclass(frozen=True)
class _Hop:
    """From one pool to the next."""

    bytes_per_s: float
    latency_s: float


@dataclass(frozen=True)
class _Candidate:
    """A way to join the pools of a chain."""

    step_s: float
    rows: tuple[int, ...]
    layers: tuple[int, ...]


def stage_plans(asked: PoolSpace) -> Iterator[PoolPlan]:
    """Yield the best plans of every chain of pools; pipeline and schedule are chosen here."""
    longest = min(asked.chain, len(asked.pools))
    for count in range(2, longest + 1):
        for order in permutations(asked.pools, count):
            for devices in product(*(pool.choices for pool in order)):
                hops = list(_hops(order, devices, asked.links))
                if len(hops) == count - 1:
                    yield from _Chain(asked, order, devices, hops).plans()


def _hops(
    order: Sequence[Pool], devices: Sequence[int], links: Sequence[PoolLink]
) -> Iterator[_Hop]:
    for place in range(len(order) - 1):
        one, other = order[place], order[place + 1]
        if one.site == other.site:
            ends = zip((one, other), devices[place : place + 2], strict=True)
            yield _Hop(min(pool.network_bytes_per_s(count) for pool, count in ends), 0.0)
            continue
        link = link_between(one.site, other.site, links)
        if link is not None and link.bytes_per_s > 0:
            yield _Hop(link.bytes_per_s, link.latency_s)


class _Chain:
    """One order of pools that hold the stages of one pipeline."""

    def __init__(
        self,
        asked: PoolSpace,
        order: Sequence[Pool],
        devices: Sequence[int],
        hops: Sequence[_Hop],
    ) -> None:
        self.asked, self.space, self.costs = asked, asked.space, asked.costs
        self.order, self.devices, self.hops = order, devices, hops
        self.options: list[_Options] = []
        behind = np.zeros(1)
        for place in reversed(range(len(order))):
            options = self._options(place, behind)
            if options is None:  # nothing fits this pool: no chain
                self.options = []
                break
            self.options.insert(0, options)
            behind = np.unique(np.add.outer(behind, np.unique(options.stages)))

    def plans(self) -> Iterator[PoolPlan]:
        """Yield the best plans, fastest first."""
        keys = [set(map(tuple, options.key.tolist())) for options in self.options]
        found: list[_Candidate] = []
        for key in sorted(set.intersection(*keys)) if keys else []:
            found += self._solved(key)
        found.sort(key=lambda candidate: (candidate.step_s, candidate.rows))
        for candidate in found[:CANDIDATES]:
            plan = self._checked(candidate)
            if plan is not None:
                yield plan

    def _options(self, place: int, behind: Numbers) -> _Options | None:
        pool = self.order[place]
        narrowed = replace(
            space_of(self.space, pool, self.devices[place]),
            schedule=("1f1b",),
            pipeline=(),
            uneven_stages=True,
        )
        table = grid(narrowed)
        if not table.degree_rows:
            return None
        block = next(blocks(table, table.degree_rows * table.knob_rows))
        degree, knob = block.pairs
        cases = block.cases
        stages = table.degrees["pipeline"][degree].astype(np.float64)
        names = ("data", "context", "micro_batch")
        key = np.stack([table.degrees[name][degree] for name in names], axis=1)
        most = np.maximum(np.ceil(self.space.model.layers / stages), 2.0)
        low, high = np.ones(len(stages)), most
        ends = [self._times(place, cases, layers, stages) for layers in (low, high)]
        slot_s, once_s = (
            _Line(ends[0][kind], (ends[1][kind] - ends[0][kind]) / (most - 1)) for kind in (0, 1)
        )
        limits = [self._layers_max(place, cases, stages, count) for count in behind]
        layers_max = np.stack(limits, axis=1)
        return _Options(table, cases, degree, knob, stages, behind, key, slot_s, once_s, layers_max)

    def _times(
        self, place: int, cases: Cases, layers: Numbers, stages: Numbers
    ) -> tuple[Numbers, Numbers]:
        """Return the seconds of one micro-batch through a stage, and those paid once a step."""
        asked = self._alike(cases, layers, stages)
        # Only the last pool computes the logits.
        if place < len(self.order) - 1:
            asked = replace(asked, model=replace(asked.model, vocabulary=1.0))
        count = len(layers)
        plan = asked.plan
        micro_batches = spread(asked.global_batch / (plan.data * plan.micro_batch), count)
        once = spread(self.costs.step_s(asked), count)
        twice = spread(
            self.costs.step_s(replace(asked, global_batch=2 * asked.global_batch)), count
        )
        slot_s = (twice - once) / micro_batches
        rest = once - (micro_batches + stages - 1) * slot_s
        return slot_s, np.maximum(rest, 0.0)

    def _memory(
        self, place: int, cases: Cases, layers: Numbers, stages: Numbers, behind: float
    ) -> Numbers:
        """Return the bytes of a pool's first stage, which has most micro-batches in flight."""
        asked = self._alike(cases, layers, stages + behind)
        return spread(self.costs.memory_bytes(asked), len(layers))

    def _alike(self, cases: Cases, layers: Numbers, stages: Numbers) -> Cases:
        """Return the cases as pipelines of ``stages`` stages of ``layers`` layers each."""
        whole = layers * stages
        model = cases.model
        share = model.expert_layers / model.layers
        return replace(
            cases,
            model=replace(model, layers=whole, expert_layers=whole * share),
            plan=replace(
                cases.plan,
                pipeline=stages,
                stage_layers_max=0.0,
                stage_layers_first=0.0,
                stage_layers_last=0.0,
            ),
        )

    def _layers_max(self, place: int, cases: Cases, stages: Numbers, behind: float) -> Numbers:
        limit = self.order[place].accelerator.memory_bytes * self.asked.goal.memory_share
        most = np.maximum(np.ceil(self.space.model.layers / stages), 2.0)
        low = self._memory(place, cases, np.ones(len(stages)), stages, behind)
        high = self._memory(place, cases, most, stages, behind)
        slope = np.maximum((high - low) / (most - 1), 1e-9)
        return np.asarray(np.clip(np.floor((limit - low) / slope) + 1, 0.0, most))

    def _solved(self, key: tuple[int, ...]) -> list[_Candidate]:
        """Return the best candidate with ``key``, or none."""
        data, _, micro_batch = key
        picks = [self._undominated(options, key) for options in self.options]
        if not all(len(pick) for pick in picks):
            return []
        rows = [pick.ravel()[:, None] for pick in np.meshgrid(*picks, indexing="ij")]
        stages = [o.stages[r] for o, r in zip(self.options, rows, strict=True)]
        most = []
        for place, options in enumerate(self.options):
            later = sum(stages[place + 1 :], np.zeros_like(stages[0]))
            most.append(options.layers_max[rows[place], np.searchsorted(options.behind, later)])
        paces = self._paces(rows)
        held = []
        for options, row, limit in zip(self.options, rows, most, strict=True):
            slot = options.slot_s
            room = (paces - slot.at_one[row]) / np.maximum(slot.slope[row], 1e-30)
            held.append(np.clip(np.floor(room + 1e-9) + 1, 0.0, limit))
        spare = sum(s * h for s, h in zip(stages, held, strict=True)) - self.space.model.layers
        bad = (spare < 0) | np.any([h < 1 for h in held], axis=0)
        removed = self._removed(rows, stages, held, np.maximum(spare, 0.0))
        steps = self.space.global_batch / data / micro_batch
        sent = self._sent_s(key)
        step_s = self._step_s(rows, held, removed, steps, sent)
        step_s = np.where(bad, np.inf, step_s)
        combination, pace = np.unravel_index(int(np.argmin(step_s)), step_s.shape)
        if not np.isfinite(step_s[combination, pace]):
            return []
        layers = tuple(
            int(s[combination, 0] * h[combination, pace] - r[combination, pace])
            for s, h, r in zip(stages, held, removed, strict=True)
        )
        chosen = tuple(int(row[combination, 0]) for row in rows)
        return [_Candidate(float(step_s[combination, pace]), chosen, layers)]

    def _undominated(self, options: _Options, key: tuple[int, ...]) -> Index:
        """Return the options with ``key`` that no other with as many stages beats in everything."""
        rows = np.flatnonzero((options.key == np.array(key)).all(axis=1))
        most = np.maximum(np.ceil(self.space.model.layers / options.stages[rows]), 2.0)
        scores = np.column_stack(
            [
                options.slot_s.at_one[rows],
                options.slot_s.at(most, rows),
                options.once_s.at_one[rows],
                options.once_s.at(most, rows),
                -options.layers_max[rows],
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

    def _sent_s(self, key: tuple[int, ...]) -> list[tuple[float, float]]:
        """Return for each hop the seconds that a micro-batch of all copies fills it, and latency.

        Activations are 16-bit numbers; their gradients go the other way at the same time.
        """
        data, _, micro_batch = key
        sent_bytes = 2.0 * data * micro_batch * self.space.sequence * self.space.model.hidden
        return [(sent_bytes / hop.bytes_per_s, hop.latency_s) for hop in self.hops]

    def _step_s(
        self,
        rows: list[Index],
        held: list[Numbers],
        removed: list[Numbers],
        steps: float,
        sent: list[tuple[float, float]],
    ) -> Numbers:
        fill: Numbers = np.zeros_like(held[0])
        slowest: Numbers = np.full_like(fill, max((filled for filled, _ in sent), default=0.0))
        once: Numbers = np.zeros_like(fill)
        for place, options in enumerate(self.options):
            row, layers = rows[place], held[place]
            slot_s = options.slot_s.at(layers, row)
            fill += options.stages[row] * slot_s - removed[place] * options.slot_s.slope[row]
            slowest = np.maximum(slowest, slot_s)
            once = np.maximum(once, options.once_s.at(layers, row))
        crossing = 2.0 * sum(filled + latency for filled, latency in sent)
        return fill + (steps - 1) * slowest + once + crossing

    def _checked(self, candidate: _Candidate) -> PoolPlan | None:
        """Return the candidate with its real layers, or nothing when it does not fit."""
        key = tuple(self.options[0].key[candidate.rows[0]].tolist())
        data, _, micro_batch = key
        sent = self._sent_s(key)
        turns = self.space.global_batch / data / micro_batch
        parts, fill, once = [], 0.0, 0.0
        slowest = max(filled for filled, _ in sent)
        behind = sum(
            float(o.stages[row]) for o, row in zip(self.options, candidate.rows, strict=True)
        )
        for place, row in enumerate(candidate.rows):
            options, layers = self.options[place], candidate.layers[place]
            stages = int(options.stages[row])
            behind -= stages
            one = take(options.cases, np.array([row]))
            full, short = -(-layers // stages), -layers % stages
            counts = np.array([float(stages)])
            slot_s, rest = self._times(place, one, np.array([float(full)]), counts)
            less, _ = self._times(place, one, np.array([float(max(full - 1, 1))]), counts)
            fill += float(slot_s[0]) * (stages - short) + float(less[0]) * short
            slowest, once = max(slowest, float(slot_s[0])), max(once, float(rest[0]))
            memory = self._memory(place, one, np.array([float(full)]), counts, behind)
            limit = self.order[place].accelerator.memory_bytes * self.asked.goal.memory_share
            if memory[0] > limit:
                return None
            parts.append(self._part(place, row, layers, float(memory[0])))
            parts[-1] = replace(parts[-1], step_s=turns * float(slot_s[0]) + float(rest[0]))
        crossing = 2.0 * sum(filled + latency for filled, latency in sent)
        step_s = fill + (turns - 1) * slowest + once + crossing
        return priced("stages", tuple(parts), self.order, step_s, crossing, self.asked.steps)

    def _part(self, place: int, row: int, layers: int, memory_bytes: float) -> PoolPart:
        options, pool = self.options[place], self.order[place]
        stages = int(options.stages[row])
        full, short = -(-layers // stages), -layers % stages
        cut = tuple(full - (stage < short) for stage in range(stages)) if short else ()
        plan = options.grid.plan(int(options.degree[row]), int(options.knob[row]))
        return PoolPart(
            pool=pool.name,
            site=pool.site,
            devices=self.devices[place],
            sequences=self.space.global_batch,
            layers=layers,
            plan=structs.replace(plan, stage_layers=cut),
            step_s=0.0,
            memory_bytes=memory_bytes,
        )
