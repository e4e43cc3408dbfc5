"""The sentences of jobs that wait for more than free devices: for others, for a time, for money."""

from collections.abc import Sequence

from gridloom.base.units import format_duration
from gridloom.model.inventory import Inventory
from gridloom.model.life import Job
from gridloom.model.reason import Reason, Why

_NAMED_MAX = 4
"""Jobs or nodes that one sentence names; more are counted."""


def depends(others: Sequence[str], stopped: Sequence[str] = ()) -> Reason:
    """Return why a job waits that is to start after others.

    Args:
        others: All that it waits for.
        stopped: Those of them that only a person can let go on.
    """
    named = [f"{one} (stopped)" if one in stopped else one for one in others[:_NAMED_MAX]]
    sentence = f"waits for {', '.join(named)}"
    if len(others) > _NAMED_MAX:
        sentence += f" and {len(others) - _NAMED_MAX} more"
    remedy = ""
    if stopped:
        remedy = f"`gridloom resume {stopped[0]}`, or submit this one again without that condition"
    return Reason(code=Why.DEPENDENCY, sentence=sentence, remedy=remedy)


def reserved(job: Job, now: float) -> Reason:
    """Return why a job waits for which places are kept."""
    assert job.reservation is not None
    domains = [task.domain for task in job.reservation.tasks]
    places = ", ".join(domains[:_NAMED_MAX])
    if len(domains) > _NAMED_MAX:
        places += f" and {len(domains) - _NAMED_MAX} more nodes"
    left = format_duration(max(job.reserved_until_s - now, 0.0))
    return Reason(
        code=Why.HOLDING_PLACES,
        sentence=f"waits for its places on {places}, which are kept for it for {left} more",
    )


def behind(job_id: str) -> Reason:
    """Return why a job waits that may not pass another."""
    return Reason(
        code=Why.BEHIND_STRICT,
        sentence=f"waits behind {job_id}, which comes first and cannot start;"
        " nobody may pass it here",
        remedy="a policy that backfills would let it pass",
    )


def kept_back(told: Reason, code: Why, by: str, in_s: float) -> Reason:
    """Return why a job waits for which there is room that is spoken for later."""
    when = f"in {format_duration(in_s)}" if in_s > 0 else "now"
    what = f"booking {by} begins {when}" if code is Why.BOOKED else f"{by} is to start {when}"
    return Reason(
        code=code,
        sentence=f"would run into what is spoken for: {what}",
        remedy="a shorter predicted duration would let it pass",
        refusals=told.refusals,
    )


def over_budget(told: Reason, job: Job, inventory: Inventory | None) -> Reason:
    """Return why a job waits for which there is room only where it would cost too much."""
    left = job.spec.budget.cost_max - job.cost
    currency = inventory.currency if inventory else ""
    return Reason(
        code=Why.OVER_BUDGET,
        sentence=f"waits for a cheaper site: elsewhere it would cost more than the {left:.2f}"
        f" {currency} that are left of its budget",
        remedy="a larger budget would let it start there",
        refusals=told.refusals,
    )


def promised(told: Reason, in_s: float) -> Reason:
    """Return why a job waits whose start is known."""
    return Reason(
        code=told.code,
        sentence=f"{told.sentence}; starts in {format_duration(max(in_s, 0.0))} at the latest,"
        " if the predictions hold",
        remedy=told.remedy,
        refusals=told.refusals,
    )
