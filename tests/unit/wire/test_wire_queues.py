"""Queues, cohorts and bookings in grid files."""

import pytest

from gridloom.base.errors import InputError
from gridloom.model.booking import Booking
from gridloom.model.inventory import Inventory
from gridloom.model.quota import Cohort, Queue
from gridloom.wire.convert import to_bookings, to_inventory
from gridloom.wire.documents import read_grid

SITES = "sites:\n  a: {accelerators: h100:8}\n  b: {nodes: {'n[1-4]': {accelerators: a100:4}}}\n"


def inventory(text: str) -> Inventory:
    return to_inventory(read_grid((SITES + text).encode(), "grid.yaml").document)


def bookings(text: str) -> tuple[Booking, ...]:
    return to_bookings(read_grid((SITES + text).encode(), "grid.yaml").document)


def sentences(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        read_grid((SITES + text).encode(), "grid.yaml")
    return [problem.sentence().removeprefix("grid.yaml") for problem in caught.value.problems]


def test_queues_and_cohorts_arrive() -> None:
    grid = inventory(
        "queues:\n"
        "  vision: {cohort: research, nominal: {H100: 64, a100: 0}, borrow_max: {h100: 32},\n"
        "    lend_max: {h100: 16}, weight: 2, order: strict, reclaim: false,\n"
        "    accelerator_hours: 20_000, period: 7d}\n"
        "  open: {}\n"
        "  guests: {cohort: research, nominal: {}}\n"
        "cohorts:\n"
        "  research: {parent: all, nominal: {h100: 8}, borrow_max: {}, lend_max: {h100: 1},"
        " weight: 0.5}\n"
        "  all: {}\n"
    )
    assert grid.queues == (
        Queue(
            name="vision",
            cohort="research",
            nominal={"h100": 64, "a100": 0},
            borrow_max={"h100": 32},
            lend_max={"h100": 16},
            weight=2.0,
            order="strict",
            reclaim=False,
            accelerator_hours=20_000.0,
            period_s=7 * 86400.0,
        ),
        Queue(name="open"),
        Queue(name="guests", cohort="research", nominal={}),
    )
    assert grid.cohorts == (
        Cohort(
            name="research",
            parent="all",
            nominal={"h100": 8},
            borrow_max={},
            lend_max={"h100": 1},
            weight=0.5,
        ),
        Cohort(name="all"),
    )


def test_a_grid_without_queues_has_none() -> None:
    grid = inventory("")
    assert (grid.queues, grid.cohorts, grid.sites[0].queues) == ((), (), ())


def test_queues_of_a_cohort_where_nobody_owns_anything_need_no_nominal() -> None:
    grid = inventory("queues: {q: {cohort: c, weight: 3}, r: {cohort: c}}\ncohorts: {c: {}}\n")
    assert [queue.nominal for queue in grid.queues] == [None, None]


def test_bookings_arrive_apart() -> None:
    assert bookings(
        "queues: {q: {}}\n"
        "bookings:\n"
        "  - {name: x, from: 2030-03-01T08:00Z, to: 2030-03-01T09:00+00:30, sites: a}\n"
        "  - {name: y, from: 0, to: 3600.5, nodes: ['b/n[3-4]', b/n1, b/n4], sites: [a],\n"
        "     queues: [q], for: a course}\n"
    ) == (
        Booking(name="x", start_s=1898582400.0, end_s=1898584200.0, nodes=("a",)),
        Booking(
            name="y",
            start_s=0.0,
            end_s=3600.5,
            nodes=("a", "b/n3", "b/n4", "b/n1"),
            queues=("q",),
            sentence="a course",
        ),
    )


BROKEN: dict[str, tuple[str, list[str]]] = {
    "amounts": (
        "queues:\n  q: {nominal: 64}\n  r: {nominal: {h100: many}}\n  s: {nominal: {h100: -1}}\n"
        "  t: {nominal: {h10: 1}}\n  u: {nominal: {H100: 1, h100: 2}}\n"
        "  v: {nominal: {'h 100': 1}}\n  w: {nominal: }\n  x: {nominal: {tpu: 1}}\n",
        [
            ":5: queues.q.nominal: found `64`; write devices by kind, as `{h100: 64}`, or `{}` for"
            " none",
            ":6: queues.r.nominal: found `many` for `h100`; write a whole number from 0 to 9999999",
            ":7: queues.s.nominal: found `-1` for `h100`; write a whole number from 0 to 9999999",
            ":8: queues.t.nominal: the grid has no accelerator of kind `h10`; did you mean `h100`?",
            ":9: queues.u.nominal: `h100` is given twice; keep one",
            ":10: queues.v.nominal: `h 100` is not a kind of accelerator; write devices by kind, as"
            " `{h100: 64}`, or `{}` for none",
            ":11: queues.w.nominal: no value is given; write devices by kind, as `{h100: 64}`, or"
            " `{}` for none",
            ":12: queues.x.nominal: the grid has no accelerator of kind `tpu`; the file has: a100,"
            " h100",
        ],
    ),
    "fields of queues": (
        "queues:\n  q: {weight: 0, order: strickt, reclaim: 1, accelerator_hours: 0, period: 0}\n"
        "  r: {quota: {h100: 1}, shares: 3}\n  'a b': {}\n  s: 3\n  t: {period: 7d}\n"
        "cohorts:\n  '-c': {}\n  d: {reclaim: true}\n",
        [
            ":5: queues.q.weight: found `0`; write a number above 0",
            ":5: queues.q.order: found `strickt`; did you mean `strict`?",
            ":5: queues.q.reclaim: found `1`; write `true` or `false`",
            ":5: queues.q.accelerator_hours: found `0`; write a number of hours above 0",
            ":5: queues.q.period: found `0`; write a duration (`90s`, `20ms`, `1.5h`) above 0",
            ":6: queues.r.quota: unknown field; did you mean `nominal`?",
            ":6: queues.r.shares: unknown field; known here: cohort, nominal, borrow_max, lend_max,"
            " weight, order, reclaim, accelerator_hours, period",
            ":7: queues.a b: `a b` cannot be a name; use letters, digits, `-`, `_` and `.`,"
            " beginning with a letter or digit",
            ":8: queues.s: found `3`; write `field: value` lines below it",
            ":9: queues.t.period: is read with `accelerator_hours` only; write how many it may use"
            " in each period",
            ":11: cohorts.-c: `-c` cannot be a name; use letters, digits, `-`, `_` and `.`,"
            " beginning with a letter or digit",
            ":12: cohorts.d.reclaim: unknown field; did you mean `policy.preemption.reclaim`?",
        ],
    ),
    "borrowing": (
        "queues:\n  q: {nominal: {h100: 4}, borrow_max: {h100: 1}, lend_max: {h100: 5}}\n"
        "  r: {cohort: c, borrow_max: {h100: 2}}\n  s: {cohort: reserch, nominal: {}}\n"
        "  t: {cohort: moon, nominal: {}}\n  u: {cohort: research}\n"
        "cohorts:\n  research: {parent: c}\n  c: {lend_max: {h100: 3}, nominal: {h100: 1}}\n",
        [
            ":5: queues.q.borrow_max: there is no cohort to borrow from; name one as `cohort`",
            ":5: queues.q.lend_max: there is no cohort to lend to; name one as `cohort`",
            ":5: queues.q.lend_max: 5 h100 is more than its own, 4; write at most `nominal`",
            ":6: queues.r.nominal: is missing: the queue would have no limit, and others share what"
            " they own; write what it owns, as `{h100: 64}`, or `{}` for none",
            ":7: queues.s.cohort: there is no cohort `reserch`; did you mean `research`?",
            ":8: queues.t.cohort: there is no cohort `moon`; write `cohorts: {moon: {}}`",
            ":9: queues.u.nominal: is missing: the queue would have no limit, and others share what"
            " they own; write what it owns, as `{h100: 64}`, or `{}` for none",
            ":12: cohorts.c.lend_max: there is no cohort to lend to; name one as `parent`",
        ],
    ),
    "circles": (
        "cohorts:\n  a: {parent: b}\n  b: {parent: c}\n  c: {parent: b}\n  d: {parent: d}\n"
        "  e: {parent: moon}\n",
        [
            ":6: cohorts.b.parent: cohorts form a circle: `b` in `c` in `b`; remove a parent",
            ":8: cohorts.d.parent: cohorts form a circle: `d` in `d`; remove a parent",
            ":9: cohorts.e.parent: there is no cohort `moon`; write `cohorts: {moon: {}}`",
        ],
    ),
    "a queue or a cohort twice": (
        "queues:\n  q: {}\n  q: {}\ncohorts:\n  c: {}\n  c: {}\n",
        [
            ":6: queues.q: `q` is written twice, first in line 5; keep one",
            ":9: cohorts.c: `c` is written twice, first in line 8; keep one",
        ],
    ),
    "queues of sites": (
        "  c: {accelerators: h100, queues: [vison, 3]}\n  d: {accelerators: h100, queues: vison}\n"
        "  e: {accelerators: h100, queues: [x]}\nqueues: {vision: {}, text: {}}\n",
        [
            ":4: sites.c.queues: found `3`, which is not text; put it in quotes: \"3\"",
            ":5: sites.d.queues: there is no queue `vison`; did you mean `vision`?",
            ":6: sites.e.queues: there is no queue `x`; the file has: vision, text",
        ],
    ),
    "queues of sites without any": (
        "  c: {accelerators: h100, queues: [x]}\n",
        [":4: sites.c.queues: there is no queue `x`; write it below `queues:`"],
    ),
    "bookings": (
        "queues: {q: {}}\nbookings:\n  - {name: x, from: 5, to: 5, sites: [a]}\n"
        "  - {name: x, from: 2030-03-01, to: later, nodes: n1}\n"
        "  - {start: 3, end: 4, reason: x}\n  - 3\n"
        "  - {name: y z, from: 1, to: 2, nodes: [b/n5, 'b/n[1-9]', c/n, a/x], sites: [c, A],\n"
        "     queues: [r]}\n"
        "  - {name: z, from: 1, to: 2, nodes: 'b/n[3-1]', for: }\n",
        [
            ":6: bookings[0].to: the booking is over before it begins; write a later time",
            ":7: bookings[1].from: found `2030-03-01`, a time without a zone; write it as"
            " `2030-03-01T08:00Z` or `2030-03-01T09:00+01:00`",
            ":7: bookings[1].to: found `later`; write a time with its zone, as `2030-03-01T08:00Z`"
            " or `2030-03-01T09:00+01:00`, or seconds since 1970",
            ":7: bookings[1].nodes: found `n1`; write a list of nodes as `SITE/NODE`, as `north/n7`"
            " or `north/n[001-128]`",
            ":7: bookings[1].name: `x` is booked twice; give each booking its own name",
            ":8: bookings[2].name: is missing; write a booking's name",
            ":8: bookings[2].from: is missing; write a time with its zone, as `2030-03-01T08:00Z`"
            " or `2030-03-01T09:00+01:00`, or seconds since 1970",
            ":8: bookings[2].to: is missing; write a time with its zone, as `2030-03-01T08:00Z` or"
            " `2030-03-01T09:00+01:00`, or seconds since 1970",
            ":8: bookings[2].start: unknown field; did you mean `from`?",
            ":8: bookings[2].end: unknown field; did you mean `to`?",
            ":8: bookings[2].reason: unknown field; did you mean `for`?",
            ":8: bookings[2]: nothing is booked; write `sites: north` or `nodes: north/n[001-016]`",
            ":9: bookings[3]: found `3`; write `field: value` lines below it",
            ":10: bookings[4].name: found `y z`; write a booking's name",
            ":10: bookings[4].nodes: there is no node `b/n5`; b has: n1, n2, n3, ...",
            ":10: bookings[4].nodes: there is no node `b/n5`; b has: n1, n2, n3, ...",
            ":10: bookings[4].nodes: there is no site `c`; the file has: a, b",
            ":10: bookings[4].nodes: there is no node `a/x`; a has: a",
            ":10: bookings[4].sites: there is no site `c`; the file has: a, b",
            ":10: bookings[4].sites: there is no site `A`; did you mean `a`?",
            ":11: bookings[4].queues: there is no queue `r`; the file has: q",
            ":12: bookings[5].nodes: `3-1` in `n[3-1]` is empty; write the smaller number first",
            ":12: bookings[5].for: no value is given; write text",
        ],
    ),
    "bookings of too many": (
        "  c: {nodes: {'n[1-150000]': {accelerators: cpu}}}\nbookings:\n"
        "  - {name: x, from: 1, to: 2, nodes: 'c/n[1-150000]'}\n"
        "  - {name: y, from: 1, to: 2, nodes: 'c/n[1-150000]'}\n",
        [
            ":7: bookings[1].nodes: 300,000 nodes are booked up to here, each counted once a"
            " booking; write at most 200,000 in all, or `sites`"
        ],
    ),
    "bookings of a grid that is too large": (
        "  c: {nodes: {'n[1-150000]': {accelerators: cpu}, 'm[1-150000]': {accelerators: cpu}}}\n"
        "bookings: [{name: x, from: 1, to: 2, nodes: c/k}]\n",
        [
            ":4: sites.c.nodes.m[1-150000]: the file has 300,004 nodes up to here; write at most"
            " 200,000 in all"
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_every_problem_is_told_at_once_with_its_line(name: str) -> None:
    text, expected = BROKEN[name]
    assert sentences(text) == expected
