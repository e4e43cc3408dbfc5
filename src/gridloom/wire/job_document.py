"""The job file: what a user writes to have a model trained."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from gridloom.model.plan_check import PRECISIONS
from gridloom.model.recipe import PYTHON_STDLIB
from gridloom.wire.documents_check import Document
from gridloom.wire.documents_devices import DURATION, DURATION_ABOVE_0
from gridloom.wire.documents_names import QUEUE_NAME, SITE_NAME
from gridloom.wire.documents_times import Deadline, DeadlineValue
from gridloom.wire.documents_values import Choice, Flag, Quantity, Text, Texts, Whole, found, wrong
from gridloom.wire.documents_variables import VARIABLE_NAMES, VARIABLE_VALUE
from gridloom.wire.model_document import ModelDocument
from gridloom.wire.parallel_document import ParallelDocument, ParallelSection
from gridloom.wire.resources_document import ResourcesDocument
from gridloom.wire.schedule_document import (
    After,
    Array,
    ArrayValue,
    ForecastDocument,
    PlacementDocument,
)
from gridloom.wire.sync_document import SyncDocument, SyncSection

NAME_LENGTH_MAX = 40

_NUMBER = "a number"
_SHARE = Quantity(_NUMBER, maximum=0.999999)
_POSITIVE = Quantity(_NUMBER, above=True)
_NOT_NEGATIVE = Quantity(_NUMBER)
_PATH = Text("a path", r"(?=[^\n]*\S)[^\n]+")


class _EnvironmentValue(Text):
    """A value of an environment variable, as written; the reader hands it over as text."""

    def schema(self) -> dict[str, Any]:
        return {"type": ["string", "number", "boolean"]}


class _Name(Text):
    """The name of a job, which becomes part of file names."""

    def parse(self, value: object) -> str:
        if isinstance(value, str):
            better = name_near(value)
            if better and better != value:
                raise wrong(found(value), f"write {self.right}, for example `{better}`")
        return super().parse(value)


def name_near(text: str) -> str:
    """Return what a job may be called that somebody calls ``text``; empty if nothing is near."""
    return "-".join(filter(None, _words(text)))[:NAME_LENGTH_MAX].rstrip("-")


def _words(text: str) -> list[str]:
    return "".join(c if c.isascii() and c.isalnum() else " " for c in text.lower()).split()


def steps_of(steps: int | None, tokens: int | None, tokens_a_step: int) -> int:
    """Return the number of training steps; tokens are rounded up to whole steps."""
    return steps or -(-(tokens or 0) // tokens_a_step)


class DataDocument(Document):
    """What is trained on, and where that lies."""

    text: Annotated[
        tuple[str, ...],
        Texts(_PATH, "paths"),
        Field(
            description="`python-stdlib` (on every machine), or files, directories and glob"
            " patterns relative to workdir.",
            examples=[PYTHON_STDLIB, ["corpus/*.txt"]],
        ),
    ] = (PYTHON_STDLIB,)
    held_out: Annotated[
        float,
        Quantity(_NUMBER, maximum=0.5),
        Field(description="Share of the files kept from training, to evaluate on."),
    ] = 0.02
    sites: Annotated[
        tuple[str, ...],
        Texts(SITE_NAME, "site names"),
        Field(description="Sites that hold the data, of a program of your own, too."),
    ] = ()
    required: Annotated[
        bool, Flag(), Field(description="The job runs nowhere else than at `data.sites`.")
    ] = False


class OptimizerDocument(Document):
    """AdamW with linear warm-up and cosine decay."""

    learning_rate: Annotated[
        float, _POSITIVE, Field(description="Peak, reached after the warm-up.")
    ] = 3e-3
    min_learning_rate: Annotated[
        float | None,
        _NOT_NEGATIVE,
        Field(description="At the end. Default: a tenth of learning_rate."),
    ] = None
    warmup_steps: Annotated[
        int | None,
        Whole(0),
        Field(description="Training steps of warm-up. Default: a tenth of them, at most 20."),
    ] = None
    weight_decay: Annotated[float, _NOT_NEGATIVE, Field(description="On matrices only.")] = 0.1
    beta1: Annotated[float, _SHARE, Field(description="Decay of the first moment.")] = 0.9
    beta2: Annotated[float, _SHARE, Field(description="Decay of the second moment.")] = 0.95
    clip_norm: Annotated[
        float,
        _NOT_NEGATIVE,
        Field(description="Global norm to which gradients are clipped; 0: no clipping."),
    ] = 1.0


class CheckpointDocument(Document):
    """Where and how often the recipe saves its state."""

    directory: Annotated[
        str | None,
        _PATH,
        Field(description="Relative to the job file. Default: in the job's run directory."),
    ] = None
    interval: Annotated[int, Whole(), Field(description="Training steps between two.")] = 50
    keep: Annotated[int, Whole(1, 10**6), Field(description="How many of the newest are kept.")] = 2


class RetryDocument(Document):
    """When a failed attempt is followed by another."""

    max_restarts: Annotated[
        int, Whole(0, 10**6), Field(description="Attempts after the first, at most.")
    ] = 3
    on: Annotated[
        Literal["lost", "any"],
        Choice(("lost", "any")),
        Field(description="`lost`: when processes, nodes or sites were lost; `any`: also when"
              " the program exits with an error."),
    ] = "lost"  # fmt: skip
    backoff: Annotated[
        float, DURATION, Field(description="Wait before the second attempt; doubles each time.")
    ] = 1.0
    backoff_max: Annotated[float, DURATION, Field(description="Longest wait.")] = 60.0


class BudgetDocument(Document):
    """What the job may use before it is stopped with its state saved."""

    max_cost: Annotated[
        float | None, _POSITIVE, Field(description="In the grid's currency. Default: no limit.")
    ] = None
    max_time: Annotated[
        float | None,
        DURATION_ABOVE_0,
        Field(description="Of running, over all attempts. Default: no limit."),
    ] = None


class JobDocument(Document):
    """A job: a program of your own (`run`), or gridloom's own training program (`recipe`)."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": ["run"]},
                {
                    "required": ["recipe", "model", "global_batch", "sequence_length"],
                    "oneOf": [{"required": ["steps"]}, {"required": ["tokens"]}],
                },
            ]
        }
    )

    name: Annotated[
        str,
        _Name(
            f"at most {NAME_LENGTH_MAX} of a-z, 0-9 and `-`",
            r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?",
        ),
        Field(description="Name of the job; ids and file names begin with it."),
    ]
    run: Annotated[
        str | None,
        Text("a command line, as `python train.py`"),
        Field(
            description="Command line of each rank. It finds torchrun's variables (RANK,"
            " WORLD_SIZE, MASTER_ADDR, ...); torchrun itself may stand before it.",
            examples=["python train.py --lr 3e-4", "torchrun train.py"],
        ),
    ] = None
    recipe: Annotated[
        str | None, Choice(("gpt",)), Field(description="gridloom's own training program.")
    ] = None
    model: ModelDocument | None = Field(None, description="Shape of the recipe's model.")
    data: DataDocument = Field(
        DataDocument(), description="What is trained on, and where that lies."
    )
    steps: Annotated[int | None, Whole(), Field(description="Training steps in all.")] = None
    tokens: Annotated[
        int | None,
        Whole(),
        Field(description="In place of steps: tokens to train on.", examples=["2M"]),
    ] = None
    global_batch: Annotated[
        int | None, Whole(1, 10**9), Field(description="Sequences a training step, over all ranks.")
    ] = None
    sequence_length: Annotated[
        int | None, Whole(2, 10**8), Field(description="Tokens a sequence.")
    ] = None
    micro_batch: Annotated[
        int,
        Whole(1, 10**9, auto=0),
        Field(
            description="Sequences a rank takes at once; `auto`: all its share, in a pipeline one."
        ),
    ] = 0
    precision: Annotated[
        str,
        Choice(PRECISIONS),
        Field(
            description="`bf16`: fp32 weights and gradients, bf16 matrix products; `fp16`: the"
            " same with fp16, and a scale of the loss."
        ),
    ] = "fp32"
    device_flops: Annotated[
        float | None,
        _NOT_NEGATIVE,
        Field(
            description="Peak flop/s of a device, for MFU; 0: no MFU. Default: its data sheet's, or"
            " what a few products reach.",
            examples=[989e12],
        ),
    ] = None
    optimizer: OptimizerDocument = Field(
        OptimizerDocument(), description="How the recipe's weights are updated."
    )
    seed: Annotated[
        int, Whole(0, 2**32 - 1), Field(description="Of the recipe's weights and data order.")
    ] = 1
    resources: ResourcesDocument = Field(description="Devices that the job needs.")
    placement: PlacementDocument = Field(
        PlacementDocument(),
        description="How near together ranks sit: `island`, `leaf`, or `{level: leaf, required:"
        " false}`.",
    )
    parallel: ParallelSection = Field(
        ParallelDocument(),
        description="How the model is cut; `auto`: copies of it, one a device, where one fits.",
    )
    sync: SyncSection = Field(
        SyncDocument(),
        description="How copies at different sites stay one model; `every_step`, `outer`, `auto`,"
        " or a mapping, as `{accumulate: 8}`.",
    )
    priority: Annotated[
        int,
        Whole(-(10**6), 10**6),
        Field(description="Higher goes first; jobs of one priority as the grid's policy says."),
    ] = 0
    queue: Annotated[
        str | None,
        QUEUE_NAME,
        Field(description="Where it waits and is charged. Default: the grid's only one."),
    ] = None
    user: Annotated[
        str | None,
        Text("a user's name, as `ada` or `ada@example.org`", r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}"),
        Field(description="Whose it is. Default: yours."),
    ] = None
    forecast: ForecastDocument = Field(
        ForecastDocument(), description="How long it is expected to train."
    )
    deadline: Annotated[
        Deadline | None,
        DeadlineValue(),
        Field(
            description="When it should be done: a time with its zone, or a duration from now.",
            examples=["2030-03-01T08:00Z", "8h"],
        ),
    ] = None
    after: After = Field(
        (),
        description="Jobs that must have succeeded first, by id; or `{job: ID, when: afterany}`.",
    )
    array: Annotated[
        Array | None,
        ArrayValue(),
        Field(
            description="Hand in so many jobs like this one, or one for each index; `%`: so many"
            " at once.",
            examples=[10, "0-9%3"],
        ),
    ] = None
    elastic: Annotated[
        bool,
        Flag(),
        Field(description="It may change its number of accelerators at a checkpoint."),
    ] = False
    preemptible: Annotated[bool, Flag(), Field(description="It may be evicted.")] = True
    on_loss: Annotated[
        Literal["restart", "shrink", "wait"],
        Choice(("restart", "shrink", "wait")),
        Field(
            description="When a node is lost: start anew elsewhere, start on fewer accelerators,"
            " or wait for the same places."
        ),
    ] = "restart"
    grace: Annotated[
        float, DURATION, Field(description="From the request to stop to the kill.")
    ] = 30.0
    checkpoint: CheckpointDocument = Field(
        CheckpointDocument(), description="Where and how often the recipe saves its state."
    )
    retry: RetryDocument | None = Field(
        None, description="When a failed attempt is followed by another."
    )
    budget: BudgetDocument = Field(
        BudgetDocument(), description="What the job may use before it is stopped."
    )
    env: dict[str, Annotated[str, _EnvironmentValue("a value", VARIABLE_VALUE.pattern)]] = Field(
        {},
        description="Variables added to the environment of every rank.",
        json_schema_extra=VARIABLE_NAMES,
    )
    grid: Annotated[
        str | None,
        _PATH,
        Field(description="Grid file, relative to the job file. Default: this machine."),
    ] = None
    workdir: Annotated[
        str, _PATH, Field(description="Where every rank starts, relative to the job file.")
    ] = "."
