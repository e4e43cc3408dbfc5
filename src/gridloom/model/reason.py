"""Codes for "why not" and "why stopped", each with the sentence that a person reads."""

from enum import StrEnum

import msgspec


class Why(StrEnum):
    """Every cause that the core can give."""

    # why a site or node was passed over, or a job waits
    SITE_NOT_ALLOWED = "site_not_allowed"
    SITE_REFUSED = "site_refused"
    WRONG_ACCELERATOR = "wrong_accelerator"
    TOO_LITTLE_MEMORY = "too_little_memory"
    IN_USE = "in_use"
    HELD_FOR_EARLIER_JOB = "held_for_earlier_job"
    TOO_FEW_FREE = "too_few_free"
    BACKING_OFF = "backing_off"
    CLOSED_TO_QUEUE = "closed_to_queue"
    DATA_ELSEWHERE = "data_elsewhere"
    WRONG_LABELS = "wrong_labels"
    NOT_CHOSEN = "not_chosen"
    NODE_AWAY = "node_away"
    TOO_LITTLE_HOST = "too_little_host"
    NO_DOMAIN = "no_domain"
    QUOTA = "quota"
    ACCELERATOR_HOURS = "accelerator_hours"
    BEHIND_STRICT = "behind_strict"
    WOULD_DELAY = "would_delay"
    BOOKED = "booked"
    OVER_BUDGET = "over_budget"
    DEPENDENCY = "dependency"
    MAKING_ROOM = "making_room"
    HOLDING_PLACES = "holding_places"
    # why a job can never run
    NEVER_FITS = "never_fits"
    # why an attempt or a job ended
    COMPLETED = "completed"
    EXITED = "exited"
    POISONED = "poisoned"
    KILLED = "killed"
    PEER_LOST = "peer_lost"
    SUPERVISOR_LOST = "supervisor_lost"
    LEASE_LAPSED = "lease_lapsed"
    REFUSED = "refused"
    CONFIG = "config"
    IO = "io"
    STOP_REQUESTED = "stop_requested"
    CANCEL_REQUESTED = "cancel_requested"
    BUDGET_SPENT = "budget_spent"
    DEPENDENCY_FAILED = "dependency_failed"
    PREEMPTED = "preempted"
    DRAINED = "drained"
    RESIZED = "resized"
    MOVED = "moved"
    NODE_LOST = "node_lost"
    OUT_OF_MEMORY = "out_of_memory"
    TIME_LIMIT = "time_limit"
    CANCELLED_AT_SITE = "cancelled_at_site"


INFRASTRUCTURE = frozenset(
    {
        Why.KILLED,
        Why.PEER_LOST,
        Why.SUPERVISOR_LOST,
        Why.LEASE_LAPSED,
        Why.REFUSED,
        Why.NODE_LOST,
        Why.TIME_LIMIT,
        Why.CANCELLED_AT_SITE,
    }
)
"""Causes outside the program: another attempt may well succeed."""

EVICTED = frozenset({Why.PREEMPTED, Why.DRAINED, Why.RESIZED, Why.MOVED})
"""Causes that the core itself wanted: the job goes on elsewhere, at no cost to its retries."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The first rule that failed in one domain (a site, or a node in it).

    Attributes:
        code: The rule.
        domain: ``site`` or ``site/node``.
        sentence: What was found, for a person.
        wanted: How many devices the rule was asked for, where it counts.
        found: How many it found.
    """

    code: Why
    domain: str
    sentence: str
    wanted: int = 0
    found: int = 0


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why something is as it is.

    Attributes:
        code: The cause.
        sentence: The cause, for a person.
        remedy: The smallest change that would help; empty when only time does.
        refusals: The domains that were looked at, and what each lacked.
    """

    code: Why
    sentence: str
    remedy: str = ""
    refusals: tuple[Refusal, ...] = ()
