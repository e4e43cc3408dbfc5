"""Quotas on random trees, against counting all from scratch; allowances, period by period."""

import math
import random
import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gridloom.base.codec import decode, encode
from gridloom.base.errors import BrokenError
from gridloom.core.allowance import Allowance, next_period_s, period_start_s
from gridloom.core.ledger import Ledger
from gridloom.core.ledger_tree import UNLIMITED, problems
from gridloom.model.quota import Cohort, Queue

KINDS = ("a100", "h100")
Amounts = dict[str, int]
Uses = dict[tuple[str, str], int]
"""Devices by queue and kind."""

MANY = 40
"""More devices than any tree below has."""


Item = Queue | Cohort


class Grid(NamedTuple):
    queues: tuple[Queue, ...]
    cohorts: tuple[Cohort, ...]
    totals: Amounts

    @property
    def items(self) -> list[Item]:
        return [*self.queues, *self.cohorts]

    def ledger(self, uses: Mapping[tuple[str, str], int] | None = None) -> Ledger:
        ledger = Ledger(self.queues, self.cohorts, self.totals)
        for (queue, kind), devices in (uses or {}).items():
            ledger.take(queue, kind, devices)
        return ledger


def amounts(most: int) -> st.SearchStrategy[Amounts]:
    return st.dictionaries(st.sampled_from(KINDS), st.integers(0, most))


@st.composite
def grids(draw: st.DrawFn, owned: float = 0.8) -> Grid:
    """Draw trees; ``owned`` is how likely a queue has a nominal, none meaning that none has."""
    cohorts: list[Cohort] = []
    limit = st.none() | amounts(4)
    for index in range(draw(st.integers(0, 4))):
        above = draw(st.sampled_from(["", *(cohort.name for cohort in cohorts)] * 2))
        cohorts.append(
            Cohort(
                name=f"c{index}",
                parent=above,
                nominal=draw(amounts(4)) if owned else {},
                borrow_max=draw(limit) if above and owned else None,
                lend_max=draw(limit) if above and owned else None,
                weight=draw(st.sampled_from((0.0, 0.5, 1.0, 3.0))),
            )
        )
    queues = []
    for index in range(draw(st.integers(1, 5))):
        above = draw(st.sampled_from([*(cohort.name for cohort in cohorts), ""]))
        has_nominal = owned and draw(st.integers(0, 99)) < 100 * owned
        queues.append(
            Queue(
                name=f"q{index}",
                cohort=above,
                nominal=draw(amounts(4)) if has_nominal else None,
                borrow_max=draw(limit) if above else None,
                lend_max=draw(limit) if above else None,
                weight=draw(st.sampled_from((0.0, 0.5, 1.0, 3.0))),
            )
        )
    return Grid(tuple(queues), tuple(cohorts), draw(amounts(20)))


STEPS = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(KINDS), st.integers(0, 5)), max_size=25
)


class Slow:
    """The same rules, written down for one state and recomputed at every question."""

    def __init__(self, grid: Grid, uses: Mapping[tuple[str, str], int]) -> None:
        self.queues = {queue.name: queue for queue in grid.queues}
        self.cohorts = {cohort.name: cohort for cohort in grid.cohorts}
        self.uses = uses
        self.grid = grid

    def above(self, item: Item) -> str:
        return item.cohort if isinstance(item, Queue) else item.parent

    def way_up(self, name: str) -> list[Item]:
        way: list[Item] = [self.queues[name]]
        while above := self.above(way[-1]):
            way.append(self.cohorts[above])
        return way

    def children(self, cohort: Cohort) -> Iterator[Item]:
        for queue in self.queues.values():
            if queue.cohort == cohort.name and queue.nominal is not None:
                yield queue
        for other in self.cohorts.values():
            if other.parent == cohort.name:
                yield other

    def has(self, item: Item, kind: str) -> int:
        has = (item.nominal or {}).get(kind, 0)
        if isinstance(item, Cohort):
            has += sum(
                self.has(child, kind) - self.keeps(child, kind) for child in self.children(item)
            )
        return has

    def keeps(self, item: Item, kind: str) -> int:
        if not self.above(item) or item.lend_max is None:
            return 0
        return max(0, self.has(item, kind) - item.lend_max.get(kind, 0))

    def use(self, item: Item, kind: str) -> int:
        if isinstance(item, Queue):
            return self.uses.get((item.name, kind), 0)
        return sum(
            max(0, self.use(child, kind) - self.keeps(child, kind)) for child in self.children(item)
        )

    def ceiling(self, item: Item, kind: str) -> float:
        if not self.above(item):
            return self.has(item, kind)
        if item.borrow_max is None:
            return math.inf
        return self.has(item, kind) + item.borrow_max.get(kind, 0)

    def after(self, name: str, kind: str, devices: int) -> "Slow":
        uses = {**self.uses, (name, kind): self.uses.get((name, kind), 0) + devices}
        return Slow(self.grid, uses)

    def allows(self, name: str, kind: str, devices: int) -> bool:
        if self.queues[name].nominal is None:
            return True
        after = self.after(name, kind, devices)
        return all(
            after.use(item, kind) <= self.ceiling(item, kind)
            for item in self.way_up(name)
            if after.use(item, kind) > self.use(item, kind)
        )

    def within(self, way: list[Item], kind: str, devices: int) -> bool:
        """Whether the last of ``way`` does not borrow, with more, and the others could have it."""
        name = way[0].name
        after = self.after(name, kind, devices)
        grown = [item for item in way if after.use(item, kind) > self.use(item, kind)]
        if any(after.use(item, kind) > self.ceiling(item, kind) for item in grown[:-1]):
            return False
        top = way[-1]
        return top not in grown or after.use(top, kind) <= self.has(top, kind)

    def borrows(self, item: Item, kind: str) -> bool:
        return self.use(item, kind) > self.has(item, kind)


def run(grid: Grid, steps: list[tuple[int, str, int]]) -> tuple[Ledger, Uses]:
    """Take what is allowed, one step after another."""
    ledger = grid.ledger()
    uses: Uses = {}
    for index, kind, devices in steps:
        queue = grid.queues[index % len(grid.queues)].name
        if ledger.shortage(queue, kind, devices) is None:
            ledger.take(queue, kind, devices)
            uses[queue, kind] = uses.get((queue, kind), 0) + devices
    return ledger, uses


def outgrown(grid: Grid, uses: Uses) -> tuple[Ledger, Uses]:
    """Return more use than is allowed, as when quotas were lowered below what runs."""
    uses = {key: 2 * devices + 1 for key, devices in uses.items()}
    return grid.ledger(uses), uses


def owned(grid: Grid) -> list[Queue]:
    return [queue for queue in grid.queues if queue.nominal is not None]


def seen(grid: Grid, ledger: Ledger) -> list[object]:
    """All that can be asked."""
    names = [queue.name for queue in grid.queues]
    return [
        *(
            (ledger.use(name, kind), ledger.room(name, kind), ledger.borrowed(name, kind))
            for name, kind in product(names, KINDS)
        ),
        *(ledger.path_share(name) for name in names),
        *(
            (ledger.lends_to(name, other, kind), ledger.owed(name, kind, 3))
            for name, other, kind in product(names, names, KINDS)
        ),
    ]


@given(grids(), STEPS, st.booleans())
def test_what_is_short_is_what_counting_from_scratch_says(
    grid: Grid, steps: list[tuple[int, str, int]], over: bool
) -> None:
    ledger, uses = run(grid, steps)
    if over:
        ledger, uses = outgrown(grid, uses)
    slow, empty = Slow(grid, uses), Slow(grid, {})
    for queue, kind, devices in product(grid.queues, KINDS, (0, 1, 2, 3, 5, 8, 13)):
        short = ledger.shortage(queue.name, kind, devices)
        assert (short is None) == slow.allows(queue.name, kind, devices)
        never = ledger.ever(queue.name, kind, devices)
        assert (never is None) == empty.allows(queue.name, kind, devices)
        for found in (short, never):
            assert found is None or (found.wanted, found.found < devices) == (devices, True)


@given(grids(), STEPS)
def test_the_room_is_the_most_that_is_not_short(
    grid: Grid, steps: list[tuple[int, str, int]]
) -> None:
    ledger, _ = run(grid, steps)
    for queue, kind in product(grid.queues, KINDS):
        room = ledger.room(queue.name, kind)
        assert room >= 0
        if queue.nominal is None:
            assert room == UNLIMITED
            continue
        short = [ledger.shortage(queue.name, kind, devices) for devices in range(MANY)]
        assert [found is not None for found in short] == [devices > room for devices in range(MANY)]
        assert all(found.found == room for found in short if found)


@given(grids(owned=1.0), STEPS)
def test_nobody_gets_more_than_is_owned_or_lent(
    grid: Grid, steps: list[tuple[int, str, int]]
) -> None:
    ledger, uses = run(grid, steps)
    slow = Slow(grid, uses)
    for queue, kind in product(grid.queues, KINDS):
        if queue.borrow_max is not None or not queue.cohort:
            most = (queue.nominal or {}).get(kind, 0) + (queue.borrow_max or {}).get(kind, 0)
            assert ledger.use(queue.name, kind) <= most
    for kind in KINDS:
        for root in (cohort for cohort in grid.cohorts if not cohort.parent):
            tree = [item for item in grid.items if root in up(slow, item)]
            owned_in = sum((item.nominal or {}).get(kind, 0) for item in tree)
            used_in = sum(uses.get((item.name, kind), 0) for item in tree)
            assert used_in <= owned_in
            for lender in tree:
                if lender is root or lender.lend_max is None:
                    continue
                outside = [item for item in tree if lender not in up(slow, item)]
                owned_out = sum((item.nominal or {}).get(kind, 0) for item in outside)
                used_out = sum(uses.get((item.name, kind), 0) for item in outside)
                assert used_out - owned_out <= lender.lend_max.get(kind, 0)


def up(slow: Slow, item: Item) -> list[Item]:
    way = [item]
    while above := slow.above(way[-1]):
        way.append(slow.cohorts[above])
    return way


@given(grids(), STEPS, st.integers(0, 4), st.sampled_from(KINDS), st.integers(0, 30))
def test_giving_back_undoes_taking(
    grid: Grid, steps: list[tuple[int, str, int]], index: int, kind: str, devices: int
) -> None:
    ledger, _ = run(grid, steps)
    queue = grid.queues[index % len(grid.queues)].name
    before = seen(grid, ledger)
    ledger.take(queue, kind, devices)
    ledger.give_back(queue, kind, devices)
    assert seen(grid, ledger) == before
    with pytest.raises(BrokenError):
        ledger.give_back(queue, kind, ledger.use(queue, kind) + 1)
    assert seen(grid, ledger) == before


@given(grids(), STEPS, st.randoms(use_true_random=False))
def test_the_order_of_taking_and_giving_back_does_not_matter(
    grid: Grid, steps: list[tuple[int, str, int]], rng: random.Random
) -> None:
    ledger = grid.ledger()
    changes = [
        (grid.queues[index % len(grid.queues)].name, kind, devices)
        for index, kind, devices in steps
    ]
    for queue, kind, devices in changes:
        ledger.take(queue, kind, devices)
    for queue, kind, devices in changes[::2]:
        ledger.give_back(queue, kind, devices)
    left = changes[1::2]
    rng.shuffle(left)
    other = Grid(grid.queues[::-1], grid.cohorts[::-1], grid.totals).ledger()
    for queue, kind, devices in left:
        other.take(queue, kind, devices)
    assert seen(grid, other) == seen(grid, ledger)


@given(grids(owned=1.0), STEPS)
def test_everybody_can_take_back_its_nominal(grid: Grid, steps: list[tuple[int, str, int]]) -> None:
    ledger, _ = run(grid, steps)
    for queue, kind in product(grid.queues, KINDS):
        nominal = (queue.nominal or {}).get(kind, 0)
        while ledger.use(queue.name, kind) < nominal:
            assert ledger.owed(queue.name, kind, 1)
            if ledger.shortage(queue.name, kind, 1) is None:
                ledger.take(queue.name, kind, 1)
                continue
            borrowers = [
                other.name for other in grid.queues if ledger.lends_to(queue.name, other.name, kind)
            ]
            assert borrowers
            assert ledger.borrowed(borrowers[0], kind)
            ledger.give_back(borrowers[0], kind, 1)
    for queue, kind in product(grid.queues, KINDS):
        assert ledger.use(queue.name, kind) >= (queue.nominal or {}).get(kind, 0)


@given(grids(), STEPS, st.booleans())
def test_rights_are_what_counting_from_scratch_says(
    grid: Grid, steps: list[tuple[int, str, int]], over: bool
) -> None:
    ledger, uses = run(grid, steps)
    if over:
        ledger, uses = outgrown(grid, uses)
    slow = Slow(grid, uses)
    for queue, kind in product(owned(grid), KINDS):
        way = slow.way_up(queue.name)
        tops = range(1, max(2, len(way)))
        for devices in (1, 2, 4):
            most = max(
                fewer
                for fewer in range(devices + 1)
                if any(slow.within(way[:top], kind, fewer) for top in tops)
            )
            assert ledger.owed(queue.name, kind, devices) == most
            for other in grid.queues:
                assert ledger.lends_to(queue.name, other.name, kind, devices) == lent(
                    slow, queue, other, kind, devices
                )


def lent(slow: Slow, owner: Queue, borrower: Queue, kind: str, devices: int) -> bool:
    mine, theirs = slow.way_up(owner.name), slow.way_up(borrower.name)
    shared = [item for item in mine if item in theirs]
    if owner == borrower or not shared or borrower.nominal is None:
        return False
    return all(slow.borrows(item, kind) for item in theirs[: -len(shared)]) and slow.within(
        mine[: -len(shared)], kind, devices
    )


@given(grids(), STEPS, st.integers(1, 9))
def test_the_remedy_helps(grid: Grid, steps: list[tuple[int, str, int]], devices: int) -> None:
    ledger, uses = run(grid, steps)
    for queue, kind in product(owned(grid), KINDS):
        if (short := ledger.shortage(queue.name, kind, devices)) is not None:
            claims = ledger.owed(queue.name, kind, devices) == devices
            assert claims == (not short.remedy)
            if not claims:
                raised = changed(grid, short.remedy).ledger(uses)
                assert raised.shortage(queue.name, kind, devices) is None
        if (never := ledger.ever(queue.name, kind, devices)) is not None:
            assert changed(grid, never.remedy).ledger().ever(queue.name, kind, devices) is None
            fewer = re.match(r"ask for at most (\d+)", never.remedy)
            assert (int(fewer[1]) if fewer else 0) == never.found
            assert ledger.ever(queue.name, kind, never.found) is None


def changed(grid: Grid, remedy: str) -> Grid:
    """Return the grid with the limit raised as the remedy says."""
    match = re.search(r"raise `(\w+)` of (queue|cohort) `(\w+)` to (\d+) (\w+)$", remedy)
    assert match, remedy
    field, noun, name, amount, kind = match.groups()

    items: dict[str, Item] = {item.name: item for item in grid.items}
    assert isinstance(items[name], Queue if noun == "queue" else Cohort)
    old = getattr(items[name], field)
    assert old.get(kind, 0) < int(amount)
    items[name] = replace(items[name], **{field: old | {kind: int(amount)}})
    return grid._replace(
        queues=tuple(item for item in items.values() if isinstance(item, Queue)),
        cohorts=tuple(item for item in items.values() if isinstance(item, Cohort)),
    )


@given(grids(), STEPS, amounts(6))
def test_shares_grow_with_use_and_are_what_the_formula_says(
    grid: Grid, steps: list[tuple[int, str, int]], extra: Amounts
) -> None:
    ledger, uses = run(grid, steps)
    for queue in grid.queues:
        share = ledger.share(queue.name)
        with_extra = ledger.path_share(queue.name, extra)
        assert share == ledger.path_share(queue.name)[-1] == ledger.share(queue.name, {})
        assert with_extra[-1] == ledger.share(queue.name, extra) >= share
        assert with_extra[-1] == pytest.approx(formula(grid, uses, queue, extra))
        for kind, devices in extra.items():
            ledger.take(queue.name, kind, devices)
        assert ledger.path_share(queue.name) == with_extra
        less = {kind: -devices for kind, devices in extra.items()}
        assert ledger.share(queue.name, less) == share
        for kind, devices in extra.items():
            ledger.give_back(queue.name, kind, devices)


def formula(grid: Grid, uses: Uses, queue: Queue, extra: Amounts) -> float:
    slow = Slow(grid, uses)
    largest = 0.0
    for kind in KINDS:
        use = uses.get((queue.name, kind), 0) + extra.get(kind, 0)
        if queue.nominal is None:
            base = grid.totals.get(kind, 0)
        elif queue.cohort:
            guest = Queue(name="guest", cohort=queue.cohort, nominal={})
            empty = Slow(grid._replace(queues=(*grid.queues, guest)), {})
            base = max(n for n in range(MANY + 20) if empty.allows("guest", kind, n))
        else:
            base = queue.nominal.get(kind, 0)
        beyond = use - (slow.has(queue, kind) if queue.nominal is not None else 0)
        largest = max(largest, beyond / max(1, base))
    if not largest:
        return 0.0
    return largest / queue.weight if queue.weight else math.inf


@given(grids(owned=0.0), STEPS)
def test_without_quotas_shares_are_dominant_shares_at_every_level(
    grid: Grid, steps: list[tuple[int, str, int]]
) -> None:
    ledger, uses = run(grid, steps)
    slow = Slow(grid, {})
    for queue in grid.queues:
        wanted = []
        for item in reversed(slow.way_up(queue.name)):
            below = [other for other in grid.queues if item in slow.way_up(other.name)]
            most = max(
                sum(uses.get((other.name, kind), 0) for other in below)
                / max(1, grid.totals.get(kind, 0))
                for kind in KINDS
            )
            wanted.append(0.0 if not most else most / item.weight if item.weight else math.inf)
        assert ledger.path_share(queue.name) == pytest.approx(tuple(wanted))


@given(grids(owned=0.0) | grids(), STEPS, amounts(6), amounts(6))
def test_rivals_are_compared_where_their_ways_part(
    grid: Grid, steps: list[tuple[int, str, int]], extra: Amounts, other_extra: Amounts
) -> None:
    ledger, _ = run(grid, steps)
    slow = Slow(grid, {})
    for mine, theirs in product(grid.queues, grid.queues):
        shares = ledger.path_share(mine.name, extra), ledger.path_share(theirs.name, other_extra)
        ways = [slow.way_up(name)[::-1] for name in (mine.name, theirs.name)]
        alone = [len(share) == 1 for share in shares]
        same = 0
        if not any(alone):
            same = sum(a is b for a, b in zip(*ways, strict=False))
        if mine is theirs:
            same = len(shares[0]) - 1
        assert ledger.rival_shares(
            mine.name, theirs.name, extra=extra, other_extra=other_extra
        ) == (shares[0][same], shares[1][same])


NAMES = st.sampled_from(["", "a", "b", "c", "d"])


@given(
    st.lists(st.builds(Cohort, name=st.sampled_from(["a", "b", "c"]), parent=NAMES), max_size=4),
    st.lists(st.builds(Queue, name=st.sampled_from(["x", "y"]), cohort=NAMES), max_size=3),
)
def test_what_is_no_tree_is_refused(cohorts: list[Cohort], queues: list[Queue]) -> None:
    parents = {cohort.name: cohort.parent for cohort in cohorts}

    def is_rooted(name: str) -> bool:
        for _ in range(len(cohorts) + 1):
            if not name:
                return True
            name = parents.get(name, "unknown")
        return False

    tree = (
        len(parents) == len(cohorts)
        and len({queue.name for queue in queues}) == len(queues)
        and all(is_rooted(cohort.name) for cohort in cohorts)
        and all(is_rooted(queue.cohort) for queue in queues)
    )
    assert (not problems(queues, cohorts)) == tree
    if tree:
        Ledger(queues, cohorts, {})
    else:
        with pytest.raises(BrokenError):
            Ledger(queues, cohorts, {})


PERIOD_S = 100.0
LIMIT_S = 300.0
BANK = Queue(name="q", accelerator_hours=LIMIT_S / 3600.0, period_s=PERIOD_S)
ARRIVALS = st.lists(
    st.tuples(
        st.integers(0, 20), st.integers(1, 6), st.integers(1, 60) | st.sampled_from((90, 150, 320))
    ),
    min_size=5,
    max_size=30,
)
"""Seconds after the last, devices, seconds of running."""


@given(ARRIVALS, st.sampled_from((1.0, 1.0, 0.9, 0.3)))
def test_no_period_uses_more_than_its_allowance(
    arrivals: list[tuple[int, int, int]], early: float
) -> None:
    allowance, now = Allowance(), 0.0
    running: dict[str, tuple[float, float, int]] = {}
    spans: list[tuple[float, float, int]] = []

    def end_until(then: float) -> None:
        for name, span in sorted(running.items(), key=lambda item: item[1][1]):
            if span[1] <= then:
                allowance.settle(BANK, name, span[1])
                spans.append(running.pop(name))

    for index, (after_s, devices, length_s) in enumerate(arrivals):
        now += after_s
        end_until(now)
        assert allowance.used_s(BANK, now) == pytest.approx(
            counted([*spans, *((begin, now, n) for begin, _, n in running.values())], now)
        )
        if allowance.shortage(BANK, devices=devices, predicted_s=length_s, now=now) is None:
            allowance.hold(BANK, f"a{index}", devices=devices, predicted_s=length_s, now=now)
            running[f"a{index}"] = now, now + early * length_s, devices
        allowance = decode(encode(allowance), Allowance)
    end_until(math.inf)
    assert allowance.accounts.get("q") is None or not allowance.accounts["q"].holds
    for period in range(40):
        assert counted(spans, period * PERIOD_S) <= LIMIT_S + 1e-6


def counted(spans: list[tuple[float, float, int]], now: float) -> float:
    """Device-seconds in the period that holds ``now``."""
    begin_s, end_s = period_start_s(BANK, now), next_period_s(BANK, now)
    return sum(
        devices * max(0.0, min(until_s, end_s) - max(since_s, begin_s))
        for since_s, until_s, devices in spans
    )


@given(st.floats(0.0, 2e9), st.floats(1.0, 1e8))
def test_a_period_holds_every_moment_in_it(now: float, period_s: float) -> None:
    queue = replace(BANK, period_s=period_s)
    begin_s, end_s = period_start_s(queue, now), next_period_s(queue, now)
    assert begin_s <= now < end_s
    assert end_s - begin_s == pytest.approx(period_s, rel=1e-6)
    assert period_start_s(queue, begin_s) == begin_s
    assert period_start_s(queue, end_s) == end_s < next_period_s(queue, end_s)
