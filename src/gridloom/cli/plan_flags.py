"""Flags of the `plan` commands that several of them share; nothing heavy is imported here."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from gridloom.cli.flags import whole_number

Objective = Literal["time", "price", "energy", "deadline"]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is trained, on what, and how freely it may be cut."""

    model: Annotated[
        str,
        Parameter(
            name=("--model", "-m"),
            help="Name of a published model, a config.json of Hugging Face, or a file of"
            " Megatron-LM arguments.",
        ),
    ] = ""
    grid: Annotated[
        str,
        Parameter(name=("--grid", "-g"), help="Grid file, or devices of one kind as h100:64."),
    ] = ""
    devices: Annotated[
        str,
        Parameter(help="How many a plan may use: 64, 8-64, or with their kind h100:64, h100:8-64."),
    ] = ""
    global_batch: Annotated[
        int, Parameter(help="Sequences a training step.", converter=whole_number)
    ] = 0
    seq: Annotated[
        int,
        Parameter(
            name=("--seq", "--sequence-length"),
            help="Tokens a sequence.",
            converter=whole_number,
        ),
    ] = 0
    precision: Annotated[
        str,
        Parameter(help="Of matrix products: bf16, fp8, fp16, fp32, or several: bf16,fp8."),
    ] = ""
    optimizer: Annotated[str, Parameter(help="adamw (the usual), adamw_8bit, muon, sgd, ...")] = (
        "adamw"
    )
    sync: Annotated[
        Literal["auto", "every_step"],
        Parameter(help="How copies at several sites stay one model: as is best for the links."),
    ] = "auto"
    fix: Annotated[
        str, Parameter(help="Values that every plan must have, as tp=8,pp=4,recompute=none.")
    ] = ""
    head_room: Annotated[
        float, Parameter(help="Share of a device's memory that stays free; else 0.1.")
    ] = 0.1
    measured: Annotated[
        Path | None,
        Parameter(
            name=("--measured", "--constants"),
            help="Table of measured runs (CSV), or constants fitted to one (JSON), to predict by.",
        ),
    ] = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Aims:
    """What is wanted of a plan."""

    tokens: Annotated[str, Parameter(help="Tokens to train on in all, as 1T or 300B.")] = ""
    objective: Annotated[
        Objective,
        Parameter(help="What is to be smallest, else time; deadline: the price in time."),
    ] = "time"
    deadline: Annotated[str, Parameter(help="Longest time of the training, as 30d.")] = ""
    budget: Annotated[str, Parameter(help="Highest price, in the grid's currency.")] = ""
    top: Annotated[int, Parameter(help="Plans to show, else 10.", converter=whole_number)] = 10


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Terms:
    """What devices cost, draw and suffer, where the grid does not say."""

    price: Annotated[float, Parameter(help="Of a device and hour; else the grid's.")] = 0.0
    pue: Annotated[
        float, Parameter(help="Power of the data centre over that of its machines; else 1.1.")
    ] = 1.1
    carbon: Annotated[
        float, Parameter(help="Grams of carbon dioxide a kWh of the site's electricity.")
    ] = 0.0
    device_mtbf: Annotated[
        str,
        Parameter(help="Mean time between interruptions of one device; else 50,700 hours."),
    ] = ""
    restart: Annotated[
        str, Parameter(help="From an interruption to the next training step; else 10m.")
    ] = ""
    checkpoint_rate: Annotated[
        str, Parameter(help="Bytes a second that a device writes to storage; else 125MB.")
    ] = ""
    checkpoint_behind: Annotated[
        bool, Parameter(help="Checkpoints are written behind training.", negative=())
    ] = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Degrees:
    """One plan, value by value."""

    tp: Annotated[int, Parameter(help="Ranks that share each matrix.", converter=whole_number)] = 1
    pp: Annotated[int, Parameter(help="Stages of layers.", converter=whole_number)] = 1
    cp: Annotated[int, Parameter(help="Ranks that share a sequence.", converter=whole_number)] = 1
    ep: Annotated[
        int, Parameter(help="Ranks that experts are spread over.", converter=whole_number)
    ] = 1
    vpp: Annotated[int, Parameter(help="Chunks a stage, interleaved.", converter=whole_number)] = 1
    zero: Annotated[int, Parameter(help="Stage of sharding, 0-3.", converter=whole_number)] = 0
    micro_batch: Annotated[
        int, Parameter(help="Sequences a rank takes at once.", converter=whole_number)
    ] = 1
    recompute: Annotated[str, Parameter(help="none, selective, operators or full.")] = "none"
    sequence_parallel: Annotated[
        bool | None, Parameter(help="Tensor ranks share tokens, too; else with tp above 1.")
    ] = None
