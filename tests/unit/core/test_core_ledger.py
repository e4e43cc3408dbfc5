"""Quotas by example: what fits, what is said when it does not, who may take what back."""

import math

import pytest

from gridloom.base.errors import BrokenError
from gridloom.core.ledger import Ledger
from gridloom.core.ledger_tree import UNLIMITED, problems
from gridloom.core.shortage import Shortage
from gridloom.model.quota import Cohort, Queue
from gridloom.model.reason import Why

Use = dict[str, int]


def h100(count: int) -> dict[str, int]:
    return {"h100": count}


def queue(
    name: str,
    cohort: str = "",
    own: int | None = 0,
    borrow: int | None = None,
    lend: int | None = None,
    weight: float = 1.0,
    reclaim: bool = True,
) -> Queue:
    return Queue(
        name=name,
        cohort=cohort,
        nominal=None if own is None else h100(own),
        borrow_max=None if borrow is None else h100(borrow),
        lend_max=None if lend is None else h100(lend),
        weight=weight,
        reclaim=reclaim,
    )


def cohort(
    name: str, parent: str = "", own: int = 0, borrow: int | None = None, weight: float = 1.0
) -> Cohort:
    return Cohort(
        name=name,
        parent=parent,
        nominal=h100(own) if own else {},
        borrow_max=None if borrow is None else h100(borrow),
        weight=weight,
    )


def ledger(queues: list[Queue], cohorts: list[Cohort], use: Use, total: int = 16) -> Ledger:
    made = Ledger(queues, cohorts, h100(total))
    for name, devices in use.items():
        made.take(name, "h100", devices)
    return made


def lab(use: Use) -> Ledger:
    """Two queues that own 8 each; `a` may borrow 2 of what `b` does not use."""
    return ledger([queue("a", "c", 8, borrow=2), queue("b", "c", 8)], [cohort("c")], use)


def house(use: Use) -> Ledger:
    """`a` lends 2 of its 8 inside `m`, where `b` owns nothing; `m` may borrow 1 of what `d` has."""
    return ledger(
        [queue("a", "m", 8, lend=2), queue("b", "m", 0, borrow=4), queue("d", "r", 8)],
        [cohort("m", "r", borrow=1), cohort("r")],
        use,
    )


def alone(use: Use) -> Ledger:
    return ledger([queue("a", own=8), queue("z", own=None)], [], use)


A = "queue `a`"
C = "from cohort `c`"
UNUSED = "and may borrow 2 more from cohort `c`, where"
M = "cohort `m` uses 3 h100 (1 beyond its 2) and may borrow no more from cohort `r`"


@pytest.mark.parametrize(
    ("found", "limiting", "sentence", "room", "remedy"),
    [
        (
            lab({"a": 6, "b": 9}).shortage("a", "h100", 4),
            "cohort `c`",
            f"{A} uses 6 of its 8 h100 {UNUSED} 1 is unused: it can have 1 more, the job needs 4",
            1,
            "raise `nominal` of queue `a` to 11 h100",
        ),
        (
            lab({"b": 11}).shortage("a", "h100", 10),
            "cohort `c`",
            f"{A} uses 0 of its 8 h100 {UNUSED} 5 are unused: it can have 5 more, the job needs 10",
            5,
            "raise `nominal` of queue `a` to 13 h100",
        ),
        (
            lab({"a": 9}).shortage("a", "h100", 4),
            A,
            f"{A} uses 9 h100 (1 beyond its 8) and may borrow 1 more {C}:"
            " it can have 1 more, the job needs 4",
            1,
            "raise `borrow_max` of queue `a` to 5 h100",
        ),
        (
            lab({"a": 10}).shortage("a", "h100", 1),
            A,
            f"{A} uses 10 h100 (2 beyond its 8) and may borrow no more {C}:"
            " it can have no more, the job needs 1",
            0,
            "raise `borrow_max` of queue `a` to 3 h100",
        ),
        (
            lab({"a": 6, "b": 10}).shortage("b", "h100", 1),
            "cohort `c`",
            f"queue `b` uses 10 h100 (2 beyond its 8) and may borrow {C}, where none is unused:"
            " it can have no more, the job needs 1",
            0,
            "raise `nominal` of queue `b` to 9 h100",
        ),
        (
            lab({}).shortage("a", "v100", 2),
            A,
            f"{A} owns no v100 and may borrow no more {C}: it can have no more, the job needs 2",
            0,
            "raise `nominal` of queue `a` to 2 v100",
        ),
        (
            alone({"a": 6}).shortage("a", "h100", 4),
            A,
            f"{A} uses 6 of its 8 h100: it can have 2 more, the job needs 4",
            2,
            "raise `nominal` of queue `a` to 10 h100",
        ),
        (
            house({"a": 3, "b": 3}).shortage("a", "h100", 7),
            "cohort `m`",
            f"{A} uses 3 of its 8 h100, keeps 3 more to itself and may borrow from cohort `m`; {M}:"
            " it can have 3 more, the job needs 7",
            3,
            "raise `borrow_max` of cohort `m` to 5 h100",
        ),
        (
            house({"b": 2, "d": 8}).shortage("b", "h100", 1),
            "cohort `r`",
            "queue `b` owns no h100 but uses 2 and may borrow 2 more from cohort `m`;"
            " in cohort `r` none is unused: it can have no more, the job needs 1",
            0,
            "raise `nominal` of queue `b` to 1 h100",
        ),
        (
            lab({}).ever("a", "h100", 12),
            A,
            f"{A} owns 8 h100 and can borrow at most 2 {C}; the job needs 12",
            10,
            "ask for at most 10 h100, or raise `borrow_max` of queue `a` to 4 h100",
        ),
        (
            lab({}).ever("b", "v100", 1),
            "cohort `c`",
            f"queue `b` owns no v100 and can borrow none {C}; the job needs 1",
            0,
            "raise `nominal` of queue `b` to 1 v100",
        ),
        (
            alone({"a": 8}).ever("a", "h100", 12),
            A,
            f"{A} owns 8 h100 and has no cohort to borrow from; the job needs 12",
            8,
            "ask for at most 8 h100, or raise `nominal` of queue `a` to 12 h100",
        ),
        (
            house({}).ever("b", "h100", 4),
            "cohort `m`",
            "queue `b` owns no h100 and can borrow at most 3 from cohort `m`; the job needs 4",
            3,
            "ask for at most 3 h100, or raise `borrow_max` of cohort `m` to 2 h100",
        ),
    ],
)
def test_a_shortage_says_its_arithmetic(
    found: Shortage | None, limiting: str, sentence: str, room: int, remedy: str
) -> None:
    assert found
    assert found.code is Why.QUOTA
    assert (found.limiting, found.sentence, found.found) == (limiting, sentence, room)
    assert sentence.endswith(f" {found.wanted}")
    assert found.remedy == remedy


def test_what_fits_is_not_short() -> None:
    made = lab({"a": 6, "b": 8})
    assert made.shortage("a", "h100", 2) is None
    assert made.ever("a", "h100", 10) is None
    assert [made.room(name, "h100") for name in "ab"] == [2, 2]


def test_nothing_at_all_is_never_short() -> None:
    assert lab({"a": 12, "b": 12}).shortage("a", "h100", 0) is None


def test_what_is_owned_and_lent_is_taken_back_and_needs_no_other_remedy() -> None:
    found = lab({"a": 6, "b": 10}).shortage("a", "h100", 2)
    assert found
    assert found.remedy == ""


def test_a_queue_that_may_not_reclaim_is_told_so() -> None:
    queues = [queue("a", "c", 8, reclaim=False), queue("b", "c", 8)]
    made = ledger(queues, [cohort("c")], {"a": 6, "b": 10})
    found = made.shortage("a", "h100", 2)
    assert found
    assert found.remedy == "write `reclaim: true` for queue `a`, so that it takes back what it lent"
    assert made.owed("a", "h100", 2) == 0
    assert not made.lends_to("a", "b", "h100")


def test_a_queue_that_is_not_declared_has_nothing_but_its_jobs_are_counted() -> None:
    names = [queue(name, own=None) for name in ("f", "b", "a", "e", "d")]
    made = ledger(names, [], {"gone": 3})
    for found in (made.shortage("gone", "h100", 4), made.ever("gone", "h100", 4)):
        assert found == Shortage(
            code=Why.QUOTA,
            limiting="queue `gone`",
            sentence="the grid has no queue `gone`",
            wanted=4,
            found=0,
            remedy="name one that it has: `a`, `b`, `d`, `e` and 1 more",
        )
    assert not made.known("gone")
    assert made.known("a")
    assert made.use("gone", "h100") == 3
    assert made.share("gone") == 3 / 16
    assert (made.room("gone", "h100"), made.borrowed("gone", "h100")) == (0, 0)
    assert made.owed("gone", "h100", 1) == 0
    assert not made.lends_to("gone", "a", "h100")
    assert not made.lends_to("a", "gone", "h100")
    made.give_back("gone", "h100", 3)
    assert made.use("gone", "h100") == 0


def test_a_grid_without_queues_has_one_without_limits() -> None:
    made = ledger([], [], {"": 40})
    assert made.known("")
    assert not made.limited("")
    assert made.shortage("", "h100", 999) is made.ever("", "v100", 999) is None
    assert made.room("", "h100") == UNLIMITED
    assert made.share("") == 40 / 16
    found = made.shortage("a", "h100", 1)
    assert found
    assert found.remedy == "name none: the grid has no queues"


def test_the_queue_without_a_name_can_be_limited() -> None:
    made = ledger([queue("", own=2)], [], {})
    assert made.limited("")
    assert made.room("", "h100") == 2


def test_a_queue_without_a_nominal_stands_beside_the_quotas_of_its_cohort() -> None:
    made = ledger([queue("a", "c", 8), queue("b", "c", None)], [cohort("c")], {"b": 12})
    assert made.room("a", "h100") == 8
    assert made.room("b", "h100") == UNLIMITED
    assert not made.lends_to("a", "b", "h100")
    assert made.path_share("b") == (12 / 16,)


@pytest.mark.parametrize("devices", [-1, 4])
def test_nobody_gives_back_what_it_does_not_have(devices: int) -> None:
    made = lab({"a": 3})
    with pytest.raises(BrokenError, match=rf"queue `a` cannot give back {devices} of 3 h100"):
        made.give_back("a", "h100", devices)
    with pytest.raises(BrokenError, match="queue `a` cannot take -1 h100"):
        made.take("a", "h100", -1)


def test_what_is_lent_inside_a_cohort_is_taken_back_inside_it_first() -> None:
    queues = [queue("a", "m", 8), queue("b", "m", 0), queue("d", "r", 8), queue("e", "r", 0)]
    cohorts = [cohort("m", "r"), cohort("r")]
    made = ledger(queues, cohorts, {"a": 2, "b": 6, "d": 3, "e": 5})
    assert made.lends_to("a", "b", "h100", 6)
    assert not made.lends_to("a", "b", "h100", 7)  # it would borrow itself
    assert not made.lends_to("a", "e", "h100")  # `m` has no more than it uses
    assert made.lends_to("d", "e", "h100", 5)
    assert not made.lends_to("d", "b", "h100")  # `m` does not borrow
    assert not made.lends_to("d", "d", "h100")
    made.give_back("b", "h100", 3)
    assert made.lends_to("a", "e", "h100", 3)
    assert made.lends_to("b", "e", "h100", 3)  # `m` has it, whoever of `m` asks
    assert not made.lends_to("b", "e", "h100", 4)
    assert not made.lends_to("b", "b", "h100")
    assert (made.owed("a", "h100", 9), made.owed("b", "h100", 9)) == (6, 3)


def test_queues_of_two_trees_owe_each_other_nothing() -> None:
    queues = [queue("a", "c", 8), queue("b", "d", 0), queue("e", "d", 8)]
    made = ledger(queues, [cohort("c"), cohort("d")], {"b": 8})
    assert made.borrowed("b", "h100") == 8
    assert made.lends_to("e", "b", "h100")
    assert not made.lends_to("a", "b", "h100")
    made.take("b", "h100", 1)  # now the whole tree uses more than it has
    assert not made.lends_to("a", "b", "h100")


def test_a_share_is_what_is_used_beyond_the_nominal_of_what_there_is() -> None:
    queues = [
        queue("a", "c", 8, weight=2.0),
        queue("b", "c", 8),
        queue("z", "c", 0, weight=0.0),
    ]
    made = ledger(queues, [cohort("c")], {"a": 10, "b": 3})
    assert made.share("a") == 2 / 16 / 2
    assert (made.share("b"), made.share("z")) == (0.0, 0.0)
    assert made.share("b", h100(9)) == 4 / 16
    assert made.share("a", h100(-2)) == 0.0
    assert made.share("z", h100(1)) == math.inf
    assert made.share("a", {"v100": 3}) == 3 / 2  # there is none: it counts as one


def test_without_quotas_a_share_is_the_largest_of_those_of_each_kind() -> None:
    made = Ledger([queue("a", own=None)], [], {"h100": 100, "cpu": 1000})
    made.take("a", "h100", 20)
    made.take("a", "cpu", 300)
    assert made.share("a") == 0.3
    assert made.share("a", {"h100": 30}) == 0.5


def test_queues_are_compared_where_their_ways_part() -> None:
    queues = [queue("a", "m", None), queue("b", "m", None, weight=3.0), queue("d", "r", None)]
    made = ledger(
        queues, [cohort("m", "r", weight=2.0), cohort("r")], {"a": 4, "b": 4, "d": 5, "": 1}
    )
    assert made.path_share("a") == (13 / 16, 8 / 16 / 2, 4 / 16)
    assert made.path_share("d", h100(3)) == (16 / 16, 8 / 16)
    assert made.rival_shares("a", "b") == (4 / 16, 4 / 16 / 3)
    assert made.rival_shares("a", "d") == (8 / 16 / 2, 5 / 16)
    assert made.rival_shares("a", "d", extra=h100(2)) == (10 / 16 / 2, 5 / 16)
    assert made.rival_shares("d", "b", other_extra=h100(-4)) == (5 / 16, 4 / 16 / 2)
    assert made.rival_shares("a", "") == (13 / 16, 1 / 16)
    assert made.rival_shares("a", "a", extra=h100(1)) == (5 / 16, 4 / 16)


def test_what_is_not_a_tree_is_named() -> None:
    queues = [queue("a"), queue("a"), queue("b", "x")]
    cohorts = [
        cohort("c", "y"),
        cohort("e", "f"),
        cohort("f", "g"),
        cohort("g", "f"),
        cohort("s", "s"),
        cohort("t"),
        cohort("t"),
    ]
    there = "declare it, or name one that is there: `c`, `e`, `f`, `g`"
    within = "cohorts cannot lie within themselves"
    assert problems(queues, cohorts) == [
        "queue `a` is declared 2 times; keep one, or rename the others",
        "cohort `t` is declared 2 times; keep one, or rename the others",
        f"queue `b` is in cohort `x`, which is not there; {there}",
        f"cohort `c` has the parent `y`, which is not there; {there}",
        f"{within}: `f` in `g` in `f`; take away one `parent`",
        f"{within}: `s` in `s`; take away one `parent`",
    ]
    with pytest.raises(BrokenError, match="`f` in `g` in `f`"):
        Ledger(queues, cohorts, {})


def test_a_queue_in_a_cohort_where_there_are_none_is_told_to_declare_it() -> None:
    assert problems([queue("b", "x")], []) == [
        "queue `b` is in cohort `x`, which is not there; declare it"
    ]
    assert problems([queue("a", "c"), queue("b")], [cohort("c", "d"), cohort("d")]) == []
