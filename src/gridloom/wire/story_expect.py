"""What a story expects, and when, as it is written."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from gridloom.model.reason import Why
from gridloom.wire.documents_check import Document
from gridloom.wire.documents_devices import DURATION, KIND_PATTERN
from gridloom.wire.documents_values import Choice, Text, Texts
from gridloom.wire.story_values import (
    DOMAIN,
    NAMES,
    Amount,
    AmountValue,
    GroupsValue,
    NodesChoiceValue,
    PairsValue,
    Span,
    SpanValue,
)
from gridloom.wire.topology_document import LEVEL_PATTERN

_Jobs = Annotated[tuple[str, ...], NAMES]
_Span = Annotated[Span, SpanValue()]
_Amount = Annotated[Amount, AmountValue()]
_Time = Annotated[float, DURATION]
_Level = Annotated[str, Text("a level, as `switch` or `node`", LEVEL_PATTERN)]
_Texts = Texts(Text("text", r"[^\n]+"), "texts")

STATES = ("running", "waiting", "stopping", "ended", "succeeded", "failed", "cancelled", "stopped")
"""What a job can be; ``running`` holds while it starts, ``ended`` whatever its end was."""

MARKS = ("well", "cordon", "drain", "taint", "lost")


_CODE = Choice(tuple(why.value for why in Why))


class ReasonDocument(Document):
    """Why a job waits, or why it ended."""

    code: Annotated[str | None, _CODE, Field(description="The cause.")] = None
    contains: Annotated[
        tuple[str, ...], _Texts, Field(description="What the sentence or its remedy says.")
    ] = ()


def _by_code(value: object) -> object:
    """Let a code stand for the whole section."""
    return {"code": value} if isinstance(value, str) else value


_Reason = Annotated[
    ReasonDocument,
    BeforeValidator(_by_code, json_schema_input_type=ReasonDocument | Annotated[str, _CODE]),
]


class OneOfDocument(Document):
    """Exactly one of these jobs is so."""

    running: _Jobs = Field((), description="Runs.")
    waiting: _Jobs = Field((), description="Waits.")
    succeeded: _Jobs = Field((), description="Has ended well.")
    failed: _Jobs = Field((), description="Has failed.")


class ConditionDocument(Document):
    """What is so; of several fields, and of several jobs in one, all."""

    running: _Jobs = Field((), description="They hold devices, and are not being stopped.")
    waiting: _Jobs = Field((), description="They wait.")
    stopping: _Jobs = Field((), description="They were told to stop, and have not ended.")
    ended: _Jobs = Field((), description="They are over.")
    succeeded: _Jobs = Field((), description="They ended well.")
    failed: _Jobs = Field((), description="They ended badly.")
    cancelled: _Jobs = Field((), description="They were cancelled.")
    stopped: _Jobs = Field((), description="They were stopped, and could be resumed.")
    exactly_one_of: OneOfDocument | None = Field(None, description="Of these jobs one is so.")
    holds: dict[str, _Amount] = Field(
        {}, description="What a job holds.", examples=[{"a": "4 nodes, 32 devices"}]
    )
    holds_nothing: _Jobs = Field((), description="They hold no device.")
    keeps: dict[str, _Span] = Field(
        {}, description="Devices that are kept for a job that waits, in use or not."
    )
    tasks: dict[str, _Span] = Field({}, description="Ranks that a job runs with.")
    nodes_of: dict[str, Annotated[tuple[tuple[str, ...], ...], NodesChoiceValue()]] = Field(
        {},
        description="The very nodes that a job holds, or alternatives.",
        examples=[{"a": [["n0", "n1"], ["n2", "n3"]]}],
    )
    nodes_used: dict[str, _Span] = Field({}, description="On how many nodes a job is.")
    sites_of: dict[str, Annotated[tuple[str, ...], Texts(DOMAIN, "sites")]] = Field(
        {}, description="The very sites that a job is at."
    )
    kind_of: dict[str, Annotated[str, Text("a kind of device", KIND_PATTERN)]] = Field(
        {}, description="Kind of the devices that a job holds."
    )
    within: dict[str, _Level] = Field(
        {}, description="All of a job is within one domain of this level."
    )
    spread_over: dict[str, Annotated[dict[str, int], GroupsValue()]] = Field(
        {}, description="In how many domains of a level a job is.", examples=[{"a": {"switch": 2}}]
    )
    groups_within: dict[str, Annotated[dict[str, int], GroupsValue()]] = Field(
        {},
        description="So many consecutive ranks of a job each sit within one domain of the level.",
        examples=[{"a": {"node": 8}}],
    )
    ranks_ordered_by: dict[str, _Level] = Field(
        {}, description="The ranks in each domain of this level are consecutive."
    )
    reason: dict[str, _Reason] = Field({}, description="Why a job waits, or why it ended.")
    attempts: dict[str, _Span] = Field({}, description="How often a job was started.")
    evicted: dict[str, _Span] = Field({}, description="How often a job was evicted.")
    evicted_in_all: dict[str, _Span] = Field(
        {}, description="How often the jobs of that name were evicted, taken together."
    )
    retries_used: dict[str, _Span] = Field({}, description="Restarts that count against its limit.")
    saved: _Jobs = Field((), description="They were stopped, and no training was lost.")
    lost_at_most: dict[str, _Time] = Field(
        {}, description="Training of a job that no checkpoint kept."
    )
    not_killed_before: dict[str, _Time] = Field(
        {}, description="From the first request to stop; unless the job had ended by itself."
    )
    order: _Jobs = Field((), description="They started first in this order.")
    before: Annotated[
        tuple[tuple[str, str], ...],
        PairsValue(),
        Field(description="Each of the first started before any of the second."),
    ] = ()
    started_at: dict[str, _Time] = Field({}, description="When a job first started.")
    started_by: dict[str, _Time] = Field({}, description="By when a job had first started.")
    ended_at: dict[str, _Time] = Field({}, description="When a job was over.")
    ended_by: dict[str, _Time] = Field({}, description="By when a job was over.")
    promised: dict[str, _Time] = Field({}, description="The latest start that a job is promised.")
    used: dict[str, _Span] = Field({}, description="Devices that a queue's jobs hold.")
    free: Annotated[
        Span | None, SpanValue(), Field(description="Devices that no job holds, on any node.")
    ] = None
    mark: dict[str, Annotated[str, Choice(MARKS)]] = Field(
        {}, description="How a node, or a site, stands."
    )


CONDITIONS = tuple(ConditionDocument.model_fields)
"""What can be so."""

WHENS = ("at", "finally_", "always", "never", "sometime")
"""When it can be so."""


class ExpectDocument(ConditionDocument):
    """What must hold: at an instant (`at`), at the end, or over time."""

    at: Annotated[
        float | None, DURATION, Field(description="Then, once all of that instant has happened.")
    ] = None
    finally_: ConditionDocument | None = Field(
        None, alias="finally", description="At the end of the story."
    )
    always: ConditionDocument | None = Field(None, description="After every step.")
    never: ConditionDocument | None = Field(None, description="After no step.")
    sometime: ConditionDocument | None = Field(None, description="After at least one step.")
    start: Annotated[
        float | None,
        DURATION,
        Field(alias="from", description="The others count from then. Default: from the beginning."),
    ] = None
    end: Annotated[
        float | None, DURATION, Field(alias="to", description="And until then, inclusive.")
    ] = None
