"""A job of a story as it is written: so many tasks, what each needs, and what becomes of them."""

from typing import Annotated, Literal

from pydantic import Field

from gridloom.wire.documents_check import Document
from gridloom.wire.documents_devices import (
    DURATION,
    DURATION_ABOVE_0,
    MEMORY,
    Devices,
    DevicesValue,
)
from gridloom.wire.documents_values import Choice, Flag, Quantity, Text, Texts, Value, Whole
from gridloom.wire.story_values import (
    DOMAIN,
    JOB,
    RANKS_MAX,
    AfterValue,
    GroupsValue,
    Kind,
    TasksValue,
)
from gridloom.wire.topology_document import LABEL, LABEL_KEYS, LEVEL_PATTERN

_COUNT = Whole(1, RANKS_MAX)
_DEVICES = DevicesValue(ranges=False)
_NAME = Text("a name", r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_NAMES = Texts(_NAME, "names")
_LEVEL = Text("a level, as `switch` or `node`", LEVEL_PATTERN)

UNKNOWN = -1.0
"""A forecast that is not there."""


class ForecastValue(Value):
    """A duration, or ``unknown``."""

    @property
    def right(self) -> str:
        """The forms."""
        return f"{DURATION_ABOVE_0.right}, or `unknown`"

    def parse(self, value: object) -> float:
        """Return seconds, or ``UNKNOWN``."""
        if value == "unknown":
            return UNKNOWN
        try:
            return DURATION_ABOVE_0.parse(value)
        except ValueError as error:
            raise self.refuse(value) from error

    def schema(self) -> dict[str, object]:
        """A duration, or the word."""
        return {"anyOf": [DURATION_ABOVE_0.schema(), {"const": "unknown"}]}


class NeedDocument(Document):
    """What each task needs of its node, and how fast the job then is."""

    gpus: Annotated[
        int | None, _COUNT, Field(description="Devices of the kind `gpu` for each task.")
    ] = None
    cpus: Annotated[
        int | None,
        _COUNT,
        Field(description="Devices of the kind `cpu`; beside others, cores of the host."),
    ] = None
    devices: Annotated[
        Devices | None,
        _DEVICES,
        Field(description="Devices of another kind.", examples=["h100:8"]),
    ] = None
    memory: Annotated[
        float | None, MEMORY, Field(description="That each device must have.", examples=["80GB"])
    ] = None
    resources: dict[str, Annotated[int, _COUNT]] = Field(
        default={},
        description="What each task needs of its host besides, by name.",
        examples=[{"memory_gib": 40}],
    )
    step: Annotated[
        float | None, DURATION_ABOVE_0, Field(description="Predicted training step time.")
    ] = None
    steps: dict[str, Annotated[float, DURATION_ABOVE_0]] = Field(
        default={},
        description="The same by the level within which all tasks sit; `grid` for several sites.",
        examples=[{"switch": "1s", "site": "2s"}],
    )


class OptionDocument(NeedDocument):
    """One of several shapes that the job could take."""

    tasks: Annotated[int | None, _COUNT, Field(description="Default: the job's.")] = None


class JobFieldsDocument(NeedDocument):
    """What jobs have in common where `defaults` says so."""

    tasks: Annotated[
        tuple[int, ...],
        TasksValue(),
        Field(description="How many; a range makes the job elastic.", examples=[4, "2-8"]),
    ] = (1,)
    options: tuple[OptionDocument, ...] = Field(
        default=(),
        description="Several shapes, the best first, in place of `gpus`, `cpus` or `devices`.",
    )
    gang: Annotated[
        bool, Flag(), Field(description="Else each task is a job of its own: `name[0]` and so on.")
    ] = True
    array: Annotated[
        int | None,
        Whole(1, 10_000),
        Field(description="So many such jobs: `name[0]` and so on."),
    ] = None
    within: Annotated[
        str | None, _LEVEL, Field(description="All tasks within one domain of this level.")
    ] = None
    together: Annotated[
        dict[str, int] | None,
        GroupsValue(),
        Field(description="Consecutive tasks that must sit together, by level."),
    ] = None
    prefer: Annotated[
        dict[str, int] | None,
        GroupsValue(),
        Field(description="The same as a wish."),
    ] = None
    one_per_node: Annotated[bool, Flag(), Field(description="One task on a node at most.")] = False
    per_node_max: Annotated[int | None, _COUNT, Field(description="So many tasks at most.")] = None
    pin: Annotated[
        tuple[str, ...], Texts(DOMAIN, "nodes"), Field(description="The only nodes it may use.")
    ] = ()
    sites: Annotated[
        tuple[str, ...], _NAMES, Field(description="The only sites, in order of preference.")
    ] = ()
    min_sites: Annotated[int, Whole(1, 1000), Field(description="At so many at least.")] = 1
    max_sites: Annotated[
        int | None, Whole(1, 1000), Field(description="At most. Default: `min_sites`.")
    ] = None
    labels: dict[str, Annotated[str, LABEL]] = Field(
        default={},
        description="What its nodes must be labelled with.",
        json_schema_extra=LABEL_KEYS,
    )
    data: Annotated[tuple[str, ...], _NAMES, Field(description="Sites that hold its data.")] = ()
    data_required: Annotated[bool, Flag(), Field(description="It runs nowhere else.")] = False
    queue: Annotated[str | None, _NAME, Field(description="Where it waits.")] = None
    priority: Annotated[
        int, Whole(-1_000_000, 1_000_000), Field(description="Higher goes first.")
    ] = 0
    preemptible: Annotated[bool, Flag(), Field(description="It may be evicted.")] = True
    duration: Annotated[
        float | None,
        DURATION_ABOVE_0,
        Field(description="True time of running. Default: until `finish`."),
    ] = None
    forecast: Annotated[
        float | None,
        ForecastValue(),
        Field(description="What is told of it. Default: the truth.", examples=["1h", "unknown"]),
    ] = None
    spread: Annotated[
        float,
        Quantity("a number", maximum=5.0),
        Field(description="Standard deviation of the logarithm of true over forecast."),
    ] = 0.0
    save: Annotated[float, DURATION, Field(description="What saving its state takes.")] = 0.0
    restart: Annotated[
        float, DURATION, Field(description="What starting from a checkpoint takes.")
    ] = 0.0
    checkpoint_every: Annotated[
        float, DURATION, Field(description="0: it saves its state at a stop only.")
    ] = 0.0
    grace: Annotated[float, DURATION, Field(description="From a stop to the kill.")] = 30.0
    fails_after: Annotated[
        float | None, DURATION_ABOVE_0, Field(description="Of running: its program fails.")
    ] = None
    retries: Annotated[int, Whole(0, 1000), Field(description="Restarts at most.")] = 3
    retry_on: Annotated[
        Literal["lost", "any"],
        Choice(("lost", "any")),
        Field(description="`any`: also after an error of the program."),
    ] = "lost"
    backoff: Annotated[float, DURATION, Field(description="Before the first restart.")] = 1.0
    after: Annotated[
        tuple[tuple[str, Kind], ...],
        AfterValue(),
        Field(description="Jobs that must have ended first.", examples=[["a", {"b": "afterany"}]]),
    ] = ()
    deadline: Annotated[
        float | None,
        DURATION_ABOVE_0,
        Field(description="Time of the story when it should be done."),
    ] = None
    max_time: Annotated[
        float | None, DURATION_ABOVE_0, Field(description="Of running, then it is stopped.")
    ] = None
    max_cost: Annotated[
        float | None, Quantity("an amount of money", above=True), Field(description="The same.")
    ] = None
    spares: Annotated[int, Whole(0, 10_000), Field(description="Idle nodes kept beside it.")] = 0
    on_loss: Annotated[
        Literal["restart", "shrink", "wait"],
        Choice(("restart", "shrink", "wait")),
        Field(description="What follows when a node of it is lost."),
    ] = "restart"


class SubmitDocument(JobFieldsDocument):
    """A job: a gang of tasks that all run, or none."""

    name: Annotated[str, JOB, Field(description="Unique in the story.")]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the jobs that it stands for."""
        count = self.array or (0 if self.gang else self.tasks[0])
        return tuple(f"{self.name}[{i}]" for i in range(count)) if count else (self.name,)

    def over(self, defaults: JobFieldsDocument) -> "SubmitDocument":
        """Return the job with what ``defaults`` say where it says nothing itself."""
        said = defaults.model_fields_set - self.model_fields_set
        if self.model_fields_set & DEVICE_FIELDS:
            said -= DEVICE_FIELDS
        return self.model_copy(update={name: getattr(defaults, name) for name in sorted(said)})


DEVICE_FIELDS = frozenset({"gpus", "cpus", "devices", "options"})
"""Fields by which a job says which devices it needs."""
