"""Queues and cohorts: who owns how much, and who may borrow it while the owner does not need it."""

from typing import Literal

import msgspec


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """Where a tenant's jobs wait, and what they are charged to.

    Amounts are devices by kind of accelerator; a kind that is not named has 0.

    Attributes:
        name: Unique in the grid.
        cohort: With whom it may borrow and lend; empty for nobody.
        nominal: What it owns; nothing here for no limit at all.
        borrow_max: What it may use beyond that of its cohort's; nothing for no limit.
        lend_max: What the cohort may use of its own; nothing for all of it.
        weight: Its share of what is free beyond everybody's own, against its cohort's others.
        order: ``strict``: a job that cannot start holds up those behind it in this queue, even if
            they would fit. ``policy``: as the policy says.
        reclaim: It may take back what it lent by preempting the borrower.
        accelerator_hours: What it may use in one period, held at the start and settled at the end
            of each attempt; 0 for no limit.
        period_s: From one such allowance to the next, counted from the epoch.
    """

    name: str
    cohort: str = ""
    nominal: dict[str, int] | None = None
    borrow_max: dict[str, int] | None = None
    lend_max: dict[str, int] | None = None
    weight: float = 1.0
    order: Literal["policy", "strict"] = "policy"
    reclaim: bool = True
    accelerator_hours: float = 0.0
    period_s: float = 30 * 86400.0


class Cohort(msgspec.Struct, frozen=True, kw_only=True):
    """Queues, and cohorts of queues, that borrow from each other what is not used.

    Attributes:
        name: Unique in the grid.
        parent: The cohort that it is part of; empty for none.
        nominal: What it owns itself, for all in it to borrow.
        borrow_max: What all in it together may use of its parent's; nothing for no limit.
        lend_max: What the parent may use of all that is in it; nothing for all of it.
        weight: As a queue's.
    """

    name: str
    parent: str = ""
    nominal: dict[str, int] = msgspec.field(default_factory=dict)
    borrow_max: dict[str, int] | None = None
    lend_max: dict[str, int] | None = None
    weight: float = 1.0
