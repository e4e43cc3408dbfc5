"""Queues, cohorts and bookings in a grid file: who owns how much, and what is spoken for."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from gridloom.base.units import parse_count
from gridloom.wire.documents_check import Document
from gridloom.wire.documents_devices import DURATION_ABOVE_0, KIND_PATTERN
from gridloom.wire.documents_names import COHORT_NAME, QUEUE_NAME, SITE_NAME, NodesValue
from gridloom.wire.documents_times import TimeValue
from gridloom.wire.documents_values import (
    Choice,
    Flag,
    Quantity,
    Text,
    Texts,
    Value,
    Whole,
    found,
    wrong,
)

_COUNT = Whole(0, 9_999_999)
_WEIGHT = Quantity("a number", above=True)
_HOURS = Quantity(
    "a number of hours", parse_count, r"^\s*[\d_]+(\.\d+)?\s*[kKmMbBtT]?\s*$", above=True
)


@dataclass(frozen=True)
class AmountsValue(Value):
    """Devices by kind of accelerator: ``{h100: 64, a100: 16}``."""

    @property
    def right(self) -> str:
        """The form."""
        return "devices by kind, as `{h100: 64}`, or `{}` for none"

    def parse(self, value: object) -> dict[str, int]:
        """Return the amounts, with kinds in lower case."""
        if not isinstance(value, dict):
            raise self.refuse(value)
        amounts: dict[str, int] = {}
        for kind, count in value.items():
            name = str(kind).lower()
            if not re.fullmatch(KIND_PATTERN, name):
                raise wrong(f"`{kind}` is not a kind of accelerator", f"write {self.right}")
            if name in amounts:
                raise wrong(f"`{name}` is given twice", "keep one")
            try:
                amounts[name] = _COUNT.parse(count)
            except ValueError as error:
                raise wrong(f"{found(count)} for `{kind}`", f"write {_COUNT.right}") from error
        return amounts

    def schema(self) -> dict[str, Any]:
        """A mapping of whole numbers."""
        return {
            "type": "object",
            "propertyNames": {"pattern": f"^{KIND_PATTERN}$"},
            "additionalProperties": _COUNT.schema(),
        }


_AMOUNTS = AmountsValue()


class QueueDocument(Document):
    """Where a tenant's jobs wait, and what they are charged to."""

    cohort: Annotated[
        str | None,
        COHORT_NAME,
        Field(description="With whose queues it borrows and lends. Default: nobody's."),
    ] = None
    nominal: Annotated[
        dict[str, int] | None,
        _AMOUNTS,
        Field(
            description="Devices that it owns, by kind; of a kind that is not named, none."
            " Default: no limit.",
            examples=[{"h100": 64}],
        ),
    ] = None
    borrow_max: Annotated[
        dict[str, int] | None,
        _AMOUNTS,
        Field(description="What it may use beyond that of its cohort's. Default: no limit."),
    ] = None
    lend_max: Annotated[
        dict[str, int] | None,
        _AMOUNTS,
        Field(description="What its cohort may use of its own. Default: all of it."),
    ] = None
    weight: Annotated[
        float, _WEIGHT, Field(description="Its share of what is free beyond everybody's own.")
    ] = 1.0
    order: Annotated[
        Literal["policy", "strict"],
        Choice(("policy", "strict")),
        Field(
            description="`strict`: a job that cannot start holds up those behind it in this queue;"
            " `policy`: as the policy says."
        ),
    ] = "policy"
    reclaim: Annotated[
        bool,
        Flag(),
        Field(description="It may take back what it lent by preempting the borrower."),
    ] = True
    accelerator_hours: Annotated[
        float | None,
        _HOURS,
        Field(
            description="What it may use in one period. Default: no limit.",
            examples=[20_000, "20k"],
        ),
    ] = None
    period: Annotated[
        float | None,
        DURATION_ABOVE_0,
        Field(description="From one such allowance to the next, counted from 1970. Default: 30d."),
    ] = None


class CohortDocument(Document):
    """Queues, and cohorts of queues, that borrow from each other what is not used."""

    parent: Annotated[
        str | None, COHORT_NAME, Field(description="Cohort that it is part of. Default: none.")
    ] = None
    nominal: Annotated[
        dict[str, int] | None,
        _AMOUNTS,
        Field(description="Devices that all in it may borrow. Default: none."),
    ] = None
    borrow_max: Annotated[
        dict[str, int] | None,
        _AMOUNTS,
        Field(description="What all in it together may use of its parent's. Default: no limit."),
    ] = None
    lend_max: Annotated[
        dict[str, int] | None,
        _AMOUNTS,
        Field(description="What its parent may use of all that is in it. Default: all of it."),
    ] = None
    weight: Annotated[float, _WEIGHT, Field(description="As a queue's.")] = 1.0


class BookingDocument(Document):
    """Nodes that for a time belong to some queues, or to nobody."""

    name: Annotated[
        str,
        Text("a booking's name", r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"),
        Field(description="Unique among the bookings."),
    ]
    start: Annotated[
        float,
        TimeValue(),
        Field(
            alias="from",
            description="Its first second: a time with its zone, or seconds since 1970.",
            examples=["2030-03-01T08:00Z"],
        ),
    ]
    end: Annotated[float, TimeValue(), Field(alias="to", description="The first second after it.")]
    nodes: Annotated[
        tuple[str, ...],
        NodesValue(),
        Field(description="Which.", examples=["north/n7", ["north/n[001-016]"]]),
    ] = ()
    sites: Annotated[
        tuple[str, ...], Texts(SITE_NAME, "site names"), Field(description="All nodes of these.")
    ] = ()
    queues: Annotated[
        tuple[str, ...],
        Texts(QUEUE_NAME, "queue names"),
        Field(description="Whose jobs may run there meanwhile. Default: nobody's."),
    ] = ()
    sentence: Annotated[
        str | None, Text("text"), Field(alias="for", description="What for, for a person.")
    ] = None
