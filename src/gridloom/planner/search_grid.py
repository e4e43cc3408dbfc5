"""Every plan of a search space as columns, without a loop over plans.

Knobs that have to be shared out (ranks, stages, batch, experts, shards) are crossed one after the
other, and what breaks a rule is dropped before the next one multiplies it: the *degrees*, a few
thousand rows. All other knobs are crossed once: the *knobs*, a few hundred rows. A plan is a pair
of one row of each, and `blocks` yields all valid pairs, as many at once as a cache holds.

Only what is impossible is dropped, or what is the same plan as another that is kept: the best plan
can never be among it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
from msgspec import structs

from gridloom.model.parallel import ParallelPlan
from gridloom.planner.cases import (
    Cases,
    Column,
    MachineColumns,
    ModelColumns,
    PlanColumns,
    model_columns,
    plan_columns,
)
from gridloom.planner.hardware import machine_columns
from gridloom.planner.search_space import NODE_SHARD, Rule, SearchSpace, Values, values

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

BLOCK_ROWS = 16_384
"""Plans a block: a column of it is 128 KiB, so that the working set stays in the second cache."""

_DEGREES = (
    "devices", "tensor", "pipeline", "context", "data", "expert", "expert_tensor",
    "virtual_stages", "zero_bubble", "stage_layers_max", "stage_layers_first", "stage_layers_last",
    "zero", "shard", "micro_batch", "global_batch",
)  # fmt: skip
"""Columns of the degrees, in the order by which equal plans are ranked."""


@dataclass
class Grid:
    """All plans of a space, not yet paired.

    Attributes:
        space: What was asked.
        degrees: Columns of the knobs that are shared out, one entry a row, sorted.
        knobs: Columns of the others, one entry a row, sorted.
        pruned: Plans dropped so far, by the first rule that they break.
        asked: Size of the full product of all values.
        emptied_by: Where no row of degrees is left, the rule at which the last ones fell.
        columns: What of a plan is read from which row, as ``Cases`` wants it.
        moot: Knobs that say nothing in some rows of degrees, where, and what is written there.
    """

    space: SearchSpace
    degrees: dict[str, Numbers]
    knobs: dict[str, npt.NDArray[Any]]
    settings: tuple[dict[str, Any], ...]
    pruned: Counter[Rule]
    asked: int
    emptied_by: Rule | None = None
    columns: dict[str, Column] = field(default_factory=dict)
    moot: list[tuple[str, Flags, bool]] = field(default_factory=list)

    @cached_property
    def model(self) -> ModelColumns:
        """The model in numbers."""
        return model_columns(self.space.model)

    @cached_property
    def machine(self) -> MachineColumns:
        """The machine in numbers."""
        return machine_columns(self.space.accelerator, self.space.fabric)

    @property
    def degree_rows(self) -> int:
        """Rows of degrees."""
        return len(self.degrees["tensor"])

    @property
    def knob_rows(self) -> int:
        """Rows of the other knobs."""
        return len(self.settings)

    def plan(self, degree: int, knob: int) -> ParallelPlan:
        """Return the plan of one row of degrees and one of the other knobs."""
        row = {name: int(column[degree]) for name, column in self.degrees.items()}
        setting = dict(self.settings[knob])
        setting |= {name: written for name, where, written in self.moot if where[degree]}
        follows = row["tensor"] if row["expert"] == 1 else 1
        shared = row["data"] * row["context"]
        schedule = "zero_bubble" if row["zero_bubble"] else "1f1b"
        return structs.replace(
            self.space.base,
            tensor=row["tensor"],
            pipeline=row["pipeline"],
            context=row["context"],
            data=row["data"],
            expert=row["expert"],
            expert_tensor=0 if row["expert_tensor"] == follows else row["expert_tensor"],
            schedule="interleaved" if row["virtual_stages"] > 1 else cast("Any", schedule),
            virtual_stages=row["virtual_stages"],
            stage_layers=_stage_layers(self.space.model.layers, row),
            zero=cast("Literal[0, 1, 2, 3]", row["zero"]),
            shard=0 if row["shard"] == shared else row["shard"],
            micro_batch=row["micro_batch"],
            **setting,
        )


@dataclass(frozen=True)
class Block:
    """Some pairs of a grid: consecutive degrees by consecutive knobs.

    Attributes:
        grid: All plans.
        top: First row of degrees.
        left: First row of knobs.
        valid: Which pairs are plans of their own; degrees by knobs.
    """

    grid: Grid
    top: int
    left: int
    valid: Flags

    @cached_property
    def pairs(self) -> tuple[Numbers, Numbers]:
        """Rows of the degrees and of the other knobs of each plan, in order."""
        degree, knob = np.nonzero(self.valid)
        return degree + self.top, knob + self.left

    @property
    def cases(self) -> Cases:
        """The plans as columns."""
        return cases_at(self.grid, *self.pairs)


def grid(space: SearchSpace) -> Grid:
    """Return the plans of ``space``."""
    knobs, settings = _knobs(space)
    pruned: Counter[Rule] = Counter()
    tables, asked = [], 0
    emptied_by: Rule | None = None
    for devices in sorted(set(space.devices)):
        growing = _Growing(space, devices, len(settings))
        asked += growing.weight
        tables.append(growing.grow())
        pruned += growing.pruned
        emptied_by = growing.emptied_by or emptied_by
    degrees = {name: np.concatenate([t[name] for t in tables]) for name in tables[0]}
    order = np.lexsort([degrees[name] for name in reversed(_DEGREES)])
    degrees = {name: column[order] for name, column in degrees.items()}
    found = Grid(space, degrees, knobs, settings, pruned, asked)
    found.emptied_by = emptied_by if not len(order) else None
    names = [name for name in PlanColumns.__dataclass_fields__ if name in degrees]
    found.columns = {name: _column(degrees[name]) for name in (*names, "global_batch")}
    found.columns |= {name: _column(column) for name, column in knobs.items()}
    found.moot = [
        (name, where, written)
        for name, where, written in _moot(degrees)
        if where.any() and not (knobs[name] == written).all()
    ]
    return found


def blocks(found: Grid, rows: int = BLOCK_ROWS) -> Iterator[Block]:
    """Yield every pair of rows once, in order, and count what is no plan in ``found.pruned``.

    Args:
        found: The plans.
        rows: Pairs of one block, about.
    """
    width = min(rows, found.knob_rows)
    height = max(1, rows // width)
    for top in range(0, found.degree_rows, height):
        for left in range(0, found.knob_rows, width):
            valid = _valid(found, slice(top, top + height), slice(left, left + width))
            yield Block(found, top, left, valid)


def cases_at(found: Grid, degree: Numbers, knob: Numbers) -> Cases:
    """Return pairs of rows as columns; what all plans of the grid have in common is a number."""
    columns = {}
    for name in PlanColumns.__dataclass_fields__:
        index = degree if name in found.degrees else knob
        columns[name] = _gather(found.columns[name], index)
    for name, moot, written in found.moot:
        columns[name] = np.where(moot[degree], written, columns[name])
    return Cases(
        model=found.model,
        plan=PlanColumns(**columns),
        machine=found.machine,
        sequence=float(found.space.sequence),
        global_batch=_gather(found.columns["global_batch"], degree),
    )


def cases_of(space: SearchSpace, plan: ParallelPlan, global_batch: int) -> Cases:
    """Return one plan of ``space`` in numbers."""
    return Cases(
        model=model_columns(space.model),
        plan=plan_columns(plan),
        machine=machine_columns(space.accelerator, space.fabric),
        sequence=space.sequence,
        global_batch=global_batch,
    )


class _Growing:
    """Degrees for one number of devices, crossed knob by knob."""

    def __init__(self, space: SearchSpace, devices: int, knob_rows: int) -> None:
        self.space, self.devices = space, devices
        self.values: Values = values(space, devices)
        self.pruned: Counter[Rule] = Counter()
        self.emptied_by: Rule | None = None
        self.table: dict[str, Numbers] = {"devices": np.array([devices])}
        lists = (getattr(self.values, name) for name in self.values.__dataclass_fields__)
        # How many plans one row of the table stands for.
        self.weight = knob_rows
        for entries in lists:
            self.weight *= len(entries)

    def grow(self) -> dict[str, Numbers]:
        """Return the degrees."""
        self._tensor()
        self._pipeline_and_context()
        self._batch()
        self._schedules()
        self._experts()
        self._shards()
        return self.table

    def _cross(self, **columns: Sequence[int]) -> None:
        """Pair every row with every entry of ``columns``, which are equally long."""
        count = len(next(iter(columns.values())))
        height = len(self.table["devices"])
        self.table = {name: np.repeat(column, count) for name, column in self.table.items()}
        for name, entries in columns.items():
            self.table[name] = np.tile(np.asarray(entries, dtype=np.int64), height)
        self.weight = self.weight // count if count else 0

    def _drop(self, rule: Rule, bad: Flags) -> None:
        fallen = int(np.count_nonzero(bad))
        if not fallen:
            return
        self.pruned[rule] += fallen * self.weight
        if fallen == len(bad):
            self.emptied_by = rule
        self.table = {name: column[~bad] for name, column in self.table.items()}

    def _tensor(self) -> None:
        model = self.space.model
        self._cross(tensor=self.values.tensor)
        if self.space.tensor_in_node:
            self._drop(Rule.NODE, self.space.node % self.table["tensor"] != 0)
        tensor = self.table["tensor"]
        # More ranks than key heads: each key head is held by several ranks.
        keys = (model.kv_heads % tensor != 0) & (tensor % model.kv_heads != 0)
        self._drop(Rule.HEADS, (model.heads % tensor != 0) | keys)
        tensor = self.table["tensor"]
        shared = model.experts.shared_ffn if model.experts else 0
        self._drop(Rule.WIDTHS, (model.ffn % tensor != 0) | (shared % tensor != 0))

    def _pipeline_and_context(self) -> None:
        layers = self.space.model.layers
        self._cross(pipeline=self.values.pipeline)
        pipeline = self.table["pipeline"]
        uneven = (layers % pipeline != 0) & (not self.space.uneven_stages)
        self._drop(Rule.LAYERS, (pipeline > layers) | uneven)
        self._cross(context=self.values.context)
        context = self.table["context"]
        self._drop(Rule.SEQUENCE, (context > 1) & (self.space.sequence % (2 * context) != 0))
        replica = self.table["tensor"] * self.table["pipeline"] * self.table["context"]
        self._drop(Rule.DEVICES, self.devices % replica != 0)
        replica = self.table["tensor"] * self.table["pipeline"] * self.table["context"]
        self.table["data"] = self.devices // replica
        if self.space.data:
            self._drop(Rule.DATA, ~np.isin(self.table["data"], self.space.data))

    def _batch(self) -> None:
        asked, data = self.space.global_batch, self.table["data"]
        self._drop(Rule.BATCH, data > asked if self.space.batch_at_most else asked % data != 0)
        data = self.table["data"]
        self.table["global_batch"] = asked - asked % data
        self._cross(micro_batch=self.values.micro_batch)
        share = self.table["global_batch"] // self.table["data"]
        self._drop(Rule.MICRO_BATCH, share % self.table["micro_batch"] != 0)

    def _schedules(self) -> None:
        layers, entries = self.space.model.layers, self.values.schedules
        self._cross(
            schedule=range(len(entries)),
            virtual_stages=[chunks for _, chunks in entries],
            zero_bubble=[int(name == "zero_bubble") for name, _ in entries],
        )
        one = self.table["pipeline"] == 1
        self._drop(Rule.SAME_SCHEDULE, one & (self.table["schedule"] > 0))
        table = self.table
        many = table["pipeline"] > 1
        table["virtual_stages"] = np.where(many, table["virtual_stages"], 1)
        table["zero_bubble"] = np.where(many, table["zero_bubble"], 0)
        del table["schedule"]
        slots = table["pipeline"] * table["virtual_stages"]
        missing = -layers % slots
        spare = 2 if self.space.uneven_stages else 0
        self._drop(Rule.CHUNKS, (table["virtual_stages"] > 1) & (missing > spare))
        table = self.table
        steps = table["global_batch"] // table["data"] // table["micro_batch"]
        interleaved = table["virtual_stages"] > 1
        self._drop(Rule.INTERLEAVING, interleaved & (steps % table["pipeline"] != 0))
        self._cut()

    def _cut(self) -> None:
        """Add the layers of the longest, the first and the last stage; zeros for an even cut."""
        table, layers = self.table, self.space.model.layers
        slots = table["pipeline"] * table["virtual_stages"]
        missing = -layers % slots
        full = (layers + missing) // table["pipeline"]
        uneven = missing > 0
        # Of two stages both may be short: one lacks a layer in its first chunk, one in its last.
        longest = full - (missing == table["pipeline"])
        table["longest"] = longest
        table["stage_layers_max"] = np.where(uneven, longest, 0)
        table["stage_layers_first"] = np.where(uneven, full - (missing > 1), 0)
        table["stage_layers_last"] = np.where(uneven, full - 1, 0)

    def _experts(self) -> None:
        experts = self.space.model.experts
        self._cross(expert=self.values.expert)
        count, width = (experts.count, experts.ffn) if experts else (1, 0)
        self._drop(Rule.EXPERTS, count % self.table["expert"] != 0)
        self._cross(expert_tensor=self.values.expert_tensor)
        asked = self.table["expert_tensor"]
        follows = np.where(self.table["expert"] == 1, self.table["tensor"], 1)
        if 0 in self.values.expert_tensor:
            self._drop(Rule.SAME_EXPERTS, asked == follows)
        table = self.table
        follows = np.where(table["expert"] == 1, table["tensor"], 1)
        asked = table["expert_tensor"]
        table["expert_tensor"] = np.where(asked == 0, follows, asked)
        self._drop(Rule.EXPERTS, width % self.table["expert_tensor"] != 0)
        table = self.table
        ranks = table["tensor"] * table["context"] * table["data"]
        self._drop(Rule.EXPERT_RANKS, ranks % (table["expert"] * table["expert_tensor"]) != 0)

    def _shards(self) -> None:
        entries = self.values.shards
        table = self.table
        shared = table["data"] * table["context"]
        copies = shared * table["tensor"] // (table["expert"] * table["expert_tensor"])
        dense = self.space.model.experts is None
        table["alone"] = ((shared == 1) & (dense | (copies == 1))).astype(np.int64)
        self._cross(entry=range(len(entries)), zero=[z for z, _ in entries])
        sizes = np.array([size for _, size in entries])
        self._drop(Rule.SHARD, self._resolved(sizes[self.table["entry"]])[1])
        # Alone, every stage of sharding over all is the same.
        first = int(np.argmax(sizes == 0))
        same = (self.table["alone"] > 0) & (self.table["entry"] > first)
        self._drop(Rule.SAME_SHARDS, same)
        self._drop(Rule.SAME_SHARDS, self._repeated())
        table = self.table
        table["shard"] = self._resolved(sizes[table["entry"]])[0]
        table["zero"] = np.where(table["alone"] > 0, 0, table["zero"])
        del table["entry"]

    def _resolved(self, sizes: Numbers) -> tuple[Numbers, Flags]:
        """Return the ranks of the shard group that each row's entry means, and which are none."""
        table = self.table
        shared = table["data"] * table["context"]
        near = self.space.node // table["tensor"]
        ranks = np.where(sizes == NODE_SHARD, near, np.where(sizes == 0, shared, sizes))
        bad = (sizes != 0) & ((ranks < 2) | (shared % np.maximum(ranks, 1) != 0))
        return ranks, bad | ((sizes != 0) & (table["alone"] > 0))

    def _repeated(self) -> Flags:
        """Return which rows' shard group is that of an earlier entry with the same stage."""
        entries, entry = self.values.shards, self.table["entry"]
        ranks = [self._resolved(np.full(len(entry), size)) for _, size in entries]
        found = np.zeros(len(entry), dtype=np.bool_)
        for later, (zero, _) in enumerate(entries):
            for earlier, (same, _) in enumerate(entries[:later]):
                if same == zero:
                    equal = (ranks[earlier][0] == ranks[later][0]) & ~ranks[earlier][1]
                    found |= (entry == later) & equal
        return found


def _knobs(space: SearchSpace) -> tuple[dict[str, npt.NDArray[Any]], tuple[dict[str, Any], ...]]:
    """Return the columns of the knobs that every degree can be paired with, and their values."""
    kinds = sorted(set(space.recompute))
    recompute: list[tuple[str, int]] = [(kind, 0) for kind in kinds if kind != "full"]
    if "full" in kinds:
        recompute += [("full", layers) for layers in sorted(set(space.recompute_layers))]
    offload = {tuple(sorted(set(names))) for names in space.offload}
    lists: dict[str, list[Any]] = {
        "sequence_parallel": sorted(set(space.sequence_parallel)),
        "recompute": recompute,
        "flash_attention": sorted(set(space.flash_attention)),
        "precision": sorted(set(space.precision)),
        "optimizer": sorted(set(space.optimizer)),
        "offload": sorted(offload),
        "overlap_gradients": sorted(set(space.overlap_gradients)),
        "overlap_parameters": sorted(set(space.overlap_parameters)),
        "overlap_tensor": sorted(set(space.overlap_tensor)),
    }
    settings: list[dict[str, Any]] = [{}]
    for name, entries in lists.items():
        settings = [{**setting, name: entry} for setting in settings for entry in entries]
    for setting in settings:
        setting["recompute"], setting["recompute_layers"] = setting["recompute"]
    rows = [plan_columns(structs.replace(space.base, **setting)) for setting in settings]
    names = [name for name in PlanColumns.__dataclass_fields__ if name not in _DEGREES]
    columns = {n: np.array([getattr(row, n) for row in rows], dtype=np.float64) for n in names}
    return columns, tuple(settings)


def _valid(found: Grid, rows: slice, columns: slice) -> Flags:
    """Return which pairs are plans of their own, as a table of degrees by knobs."""
    degrees = {name: column[rows] for name, column in found.degrees.items()}
    knobs = {name: column[columns] for name, column in found.knobs.items()}
    alive = np.ones((len(degrees["tensor"]), len(knobs["flash_attention"])), dtype=np.bool_)
    for name, moot, _ in _moot(degrees):
        # Only the first value of a knob that says nothing is kept.
        later = (found.knobs[name] != found.knobs[name].min())[columns]
        if moot.any() and later.any():
            _strike(found, alive, Rule.SAME_KNOB, moot[:, None] & later)
    tokens = found.space.sequence // degrees["context"]
    uneven = tokens % degrees["tensor"] != 0
    if uneven.any():
        _strike(found, alive, Rule.TOKENS, uneven[:, None] & (knobs["sequence_parallel"] > 0))
    covered = knobs["recompute_layers"]
    if covered.any() and 0 in found.space.recompute_layers:
        whole = (covered > 0) & (covered >= degrees["longest"][:, None])
        _strike(found, alive, Rule.SAME_RECOMPUTE, whole)
    return alive


def _strike(found: Grid, alive: Flags, rule: Rule, bad: Flags) -> None:
    found.pruned[rule] += int(np.count_nonzero(alive & bad))
    alive &= ~bad


def _moot(degrees: dict[str, Numbers]) -> Iterator[tuple[str, Flags, bool]]:
    """Yield each knob that says nothing in some rows of degrees, where, and what is written."""
    whole = (degrees["tensor"] == 1) & (degrees["expert_tensor"] == 1)
    yield "sequence_parallel", whole, False
    yield "overlap_tensor", whole, False
    yield "overlap_gradients", degrees["alone"] > 0, True
    yield "overlap_parameters", degrees["zero"] == 0, True


def _gather(column: Column, index: Numbers) -> Column:
    return column[index] if np.ndim(column) else column


def _column(values_of_rows: npt.NDArray[Any]) -> Column:
    """Return the numbers as floats, or the one number that all rows have in common."""
    if len(values_of_rows) and (values_of_rows == values_of_rows[0]).all():
        return float(values_of_rows[0])
    return values_of_rows.astype(np.float64)


def _stage_layers(layers: int, row: dict[str, int]) -> tuple[int, ...]:
    """Return the layers of each stage, empty for an even cut; short ones last, first, then on."""
    longest, stages = row["stage_layers_max"], row["pipeline"]
    if not longest:
        return ()
    missing = longest * stages - layers
    short = {stages - 1, *range(missing - 1)} if missing else set()
    return tuple(longest - (stage in short) for stage in range(stages))
