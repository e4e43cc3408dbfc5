"""What a job file says to the scheduler: how long, how near together, after whom, how often."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from gridloom.wire.documents_check import Document
from gridloom.wire.documents_devices import DURATION, DURATION_ABOVE_0
from gridloom.wire.documents_values import Choice, Flag, Quantity, Text, Value, found, wrong
from gridloom.wire.topology_document import LEVEL_PATTERN

ARRAY_MAX = 10_000
"""Jobs that one array may stand for."""

JOB_ID = Text("a job's id, as `train-x4k2pq`", r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

_LEVEL = Text("a level: `island`, `node`, one of a site's `levels`, or `site`", LEVEL_PATTERN)
_ITEM = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")


@dataclass(frozen=True)
class Array:
    """Which jobs an array stands for.

    Attributes:
        indices: One for each job, ascending.
        at_once: How many of them may run at once; 0 for all.
    """

    indices: tuple[int, ...]
    at_once: int = 0


@dataclass(frozen=True)
class ArrayValue(Value):
    """``10`` for indices 0 to 9, ``1-9``, ``1,3,7-9``; ``%3`` behind it: three at once."""

    @property
    def right(self) -> str:
        """The forms."""
        return (
            f"how many jobs (at most {ARRAY_MAX:,}), or their indices, as `0-9` or `1,3,7-9`; and"
            " behind it, as `0-9%3`, how many at once"
        )

    def parse(self, value: object) -> Array:
        """Return the indices."""
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise self.refuse(value)
        text, percent, limit = str(value).replace(" ", "").partition("%")
        if percent and not re.fullmatch(r"0*[1-9]\d{0,6}", limit):
            raise self.refuse(value)
        counted = re.fullmatch(r"\d{1,7}", text)
        indices = [*range(int(text))][: ARRAY_MAX + 1] if counted else []
        for item in [] if counted else text.split(","):
            match = _ITEM.fullmatch(item)
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
            if last < first or len(indices) + last - first >= ARRAY_MAX:
                raise self.refuse(value)
            indices += range(first, last + 1)
        if not 0 < len(indices) <= ARRAY_MAX:
            raise self.refuse(value)
        if len(set(indices)) < len(indices):
            raise wrong(f"{found(value)}: an index is given twice", "give each once")
        return Array(tuple(sorted(indices)), int(limit or 0))

    def schema(self) -> dict[str, Any]:
        """A number, or text with indices."""
        text = r"^[\d, -]+(%\s*0*[1-9]\d*\s*)?$"
        return {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": ARRAY_MAX},
                {"type": "string", "pattern": text},
            ]
        }


class ForecastDocument(Document):
    """What is known of how long the job trains; better than nothing is enough."""

    duration: Annotated[
        float | None,
        DURATION_ABOVE_0,
        Field(description="Of running until it is done, on the most devices it may have."),
    ] = None
    spread: Annotated[
        float,
        Quantity("a number", maximum=5.0),
        Field(description="Standard deviation of the logarithm of true over predicted; 0: exact."),
    ] = 0.0
    checkpoint_time: Annotated[
        float, DURATION, Field(description="What saving its state takes.")
    ] = 0.0
    restart_time: Annotated[
        float,
        DURATION,
        Field(description="From the start with a checkpoint until it trains again."),
    ] = 0.0
    checkpoint_every: Annotated[
        float,
        DURATION,
        Field(description="Of running between two checkpoints; 0: only when it is stopped."),
    ] = 0.0


class AfterDocument(Document):
    """Another job that must have ended first."""

    job: Annotated[str, JOB_ID, Field(description="Its id.")]
    when: Annotated[
        Literal["afterok", "afterany", "afternotok", "after"],
        Choice(("afterok", "afterany", "afternotok", "after")),
        Field(
            description="`afterok`: it has succeeded; `afternotok`: it has not; `afterany`: it is"
            " over; `after`: it has started."
        ),
    ] = "afterok"


class GroupDocument(Document):
    """Where the ranks of a group sit together."""

    level: Annotated[
        str,
        _LEVEL,
        Field(
            description="Within one domain of it: `island`, `node`, one of a site's `levels`, or"
            " `site`."
        ),
    ]
    required: Annotated[
        bool, Flag(), Field(description="Else the job runs without it, where it must.")
    ] = True


def _by_level(value: object) -> object:
    """Let a level stand for the whole section."""
    if isinstance(value, str):
        return {"level": _LEVEL.parse(value)}
    if not isinstance(value, dict):
        raise wrong(found(value), f"write {_LEVEL.right}")
    return value


def _by_id(value: object) -> object:
    """Let a job's id stand for the whole section."""
    if isinstance(value, dict):
        return value
    return {"job": JOB_ID.parse(value)}


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str | dict) else value


_Group = Annotated[
    GroupDocument | None,
    BeforeValidator(_by_level, json_schema_input_type=GroupDocument | Annotated[str, _LEVEL]),
]
_After = Annotated[
    AfterDocument,
    BeforeValidator(_by_id, json_schema_input_type=AfterDocument | Annotated[str, JOB_ID]),
]
After = Annotated[
    tuple[_After, ...],
    BeforeValidator(
        _as_list, json_schema_input_type=tuple[_After, ...] | AfterDocument | Annotated[str, JOB_ID]
    ),
]
"""Other jobs, as they are written: ids or mappings, one or a list."""


class PlacementDocument(Document):
    """How near together the ranks of each group sit; a level, or a mapping with `required`."""

    tensor: _Group = Field(
        default=None, description="Ranks that share a matrix; they sit on one `node` anyway."
    )
    replica: _Group = Field(
        default=None, description="Ranks of one copy of the model; they sit at one `site` anyway."
    )
    gang: _Group = Field(default=None, description="All ranks of the job.")
