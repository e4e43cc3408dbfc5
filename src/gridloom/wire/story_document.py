"""A story: a small grid, what happens, and what a good scheduler then does; as it is written."""

from dataclasses import replace
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from gridloom.wire.documents_check import Document
from gridloom.wire.documents_devices import DURATION, DURATION_ABOVE_0
from gridloom.wire.documents_values import Flag, Quantity, Text, Texts, found, wrong
from gridloom.wire.story_expect import ExpectDocument
from gridloom.wire.story_job import JobFieldsDocument, SubmitDocument
from gridloom.wire.story_values import DOMAIN, NAMES

AT = replace(DURATION, maximum=1e10)
"""A time of a story: seconds, or with a unit, from its beginning."""

_DOMAINS = Texts(DOMAIN, "nodes or sites")
_SITES = Texts(Text("a site's name", r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}"), "sites")
_NAME = Text("a name", r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_NUMBER = Quantity("a number")


def _mapping(value: object) -> object:
    """Leave what only another document can check."""
    if not isinstance(value, dict | str):
        raise wrong(found(value), "write `field: value` lines below it")
    return value


Raw = Annotated[Any, BeforeValidator(_mapping, json_schema_input_type=dict[str, Any] | str)]
"""A section that is checked as a part of a grid file."""


class TermsDocument(Document):
    """How the world runs; as it is, nodes answer at once and losses are known at once."""

    leases: Annotated[
        bool, Flag(), Field(description="Tasks give signs of life, and leases lapse without them.")
    ] = False
    heartbeat: Annotated[
        float, DURATION_ABOVE_0, Field(description="From one sign of life to the next.")
    ] = 2.0
    lease: Annotated[
        float, DURATION_ABOVE_0, Field(description="How long a right to run lasts.")
    ] = 6.0
    margin: Annotated[
        float, DURATION, Field(description="From the lapse until the task is surely gone.")
    ] = 4.0
    start: Annotated[
        float, DURATION, Field(description="From the order to start until processes are alive.")
    ] = 0.0
    detect: Annotated[
        float, DURATION, Field(description="Without leases: from a silent loss until it is known.")
    ] = 10.0


class SlowDocument(Document):
    """Training steps of a gang take longer."""

    where: Annotated[str, DOMAIN, Field(description="A task of it is on this node, or site.")]
    factor: Annotated[
        float, Quantity("a number", minimum=1.0, above=True), Field(description="By how much.")
    ]


class FailDocument(Document):
    """A program ends with an error."""

    job: Annotated[tuple[str, ...], NAMES, Field(description="Whose.")]
    exit: Annotated[
        int, Quantity("an exit code", int, minimum=1, maximum=255), Field(description="Its code.")
    ] = 1


class BookDocument(Document):
    """Nodes are spoken for from one time to another."""

    name: Annotated[str, _NAME, Field(description="Of the booking.")]
    start: Annotated[float, AT, Field(alias="from", description="Its first second.")]
    end: Annotated[float, AT, Field(alias="to", description="The first second after it.")]
    nodes: Annotated[tuple[str, ...], _DOMAINS, Field(description="Which nodes, or sites.")]
    queues: Annotated[
        tuple[str, ...],
        Texts(_NAME, "queue names"),
        Field(description="Whose jobs may run there meanwhile. Default: nobody's."),
    ] = ()


def _by_names(value: object) -> object:
    """Let jobs' names stand for the whole section."""
    return value if isinstance(value, dict) else {"job": value}


_FailSection = Annotated[
    FailDocument,
    BeforeValidator(_by_names, json_schema_input_type=FailDocument | Annotated[Any, NAMES]),
]

_Jobs = Annotated[tuple[str, ...], NAMES]
_Domains = Annotated[tuple[str, ...], _DOMAINS]


class EventDocument(Document):
    """One thing that happens: a time, and one other field."""

    at: Annotated[float, AT, Field(description="When.", examples=[10, "2m"])]
    submit: SubmitDocument | None = Field(None, description="A user hands a job in.")
    finish: _Jobs = Field((), description="Programs end well now.")
    fail: _FailSection | None = Field(None, description="Programs end with an error now.")
    cancel: _Jobs = Field((), description="Users cancel them.")
    stop: _Jobs = Field((), description="Users stop them, with their state saved.")
    resume: _Jobs = Field((), description="Users let them go on.")
    preempt: _Jobs = Field((), description="An operator has them evicted.")
    drain: _Domains = Field((), description="No new work there, and what runs there moves.")
    undrain: _Domains = Field((), description="As `restore`.")
    cordon: _Domains = Field((), description="No new work there.")
    taint: _Domains = Field((), description="Known to be sick; as a drain.")
    lose: _Domains = Field((), description="Gone with what runs there, and known to be.")
    silence: _Domains = Field(
        (), description="A node is gone without a word; a site cannot be reached, and runs on."
    )
    refuse: _Domains = Field((), description="Nothing can be started there.")
    kill: _Domains = Field((), description="The processes there die; the nodes are well.")
    slow: SlowDocument | None = Field(None, description="Training steps take longer.")
    partition: Annotated[
        tuple[str, ...], _SITES, Field(description="Two sites do not reach each other.")
    ] = ()
    restore: _Domains = Field(
        (), description="All of that is over there; of a partition: either of its sites."
    )
    price: dict[str, Annotated[float, _NUMBER]] = Field(
        {}, description="Of an accelerator-hour, by site."
    )
    carbon: dict[str, Annotated[float, _NUMBER]] = Field(
        {}, description="Grams of CO2 a kWh, by site."
    )
    book: BookDocument | None = Field(None, description="Nodes are spoken for.")
    unbook: Annotated[str | None, _NAME, Field(description="That booking is off.")] = None
    grid: Raw | None = Field(None, description="The grid is now this; as `grid` at the top.")


EVENTS = tuple(name for name in EventDocument.model_fields if name != "at")
"""What can happen."""

JOB_EVENTS = ("finish", "cancel", "stop", "resume", "preempt")
"""Events that name jobs."""

PLACE_EVENTS = (
    "drain",
    "undrain",
    "cordon",
    "taint",
    "lose",
    "silence",
    "refuse",
    "kill",
    "restore",
)
"""Events that name nodes or sites."""


class StoryDocument(Document):
    """A grid, what happens there, and what is expected."""

    name: Annotated[str | None, _NAME, Field(description="Default: as the file is called.")] = None
    source: Annotated[
        str | None,
        Text("text"),
        Field(description="Public report that it retells.", examples=["volcano-sh/volcano#3373"]),
    ] = None
    about: Annotated[
        str, Text("text"), Field(description="What goes wrong where this does not hold.")
    ]
    grid: Raw = Field(description="What there is.")
    queues: Raw = Field({}, description="As in a grid file.")
    cohorts: Raw = Field({}, description="As in a grid file.")
    policy: Raw = Field({}, description="As in a grid file: a name, or `base` and what differs.")
    terms: TermsDocument = Field(TermsDocument(), description="How the world runs.")
    defaults: JobFieldsDocument = Field(
        JobFieldsDocument(), description="Fields that every `submit` has unless it says otherwise."
    )
    events: tuple[EventDocument, ...] = Field(description="What happens.")
    expect: tuple[ExpectDocument, ...] = Field(description="What must hold, and when.")
    until: Annotated[
        float | None,
        AT,
        Field(description="When the story ends. Default: when nothing is left to happen."),
    ] = None
