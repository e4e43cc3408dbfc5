"""Flags of `simulate`; nothing heavy is imported here."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from gridloom.cli.flags import whole_number


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Jobs:
    """What arrives."""

    workload: Annotated[
        str,
        Parameter(
            name=("--workload", "-w"),
            help="Log of a cluster, plain or gzipped; or a made one, as"
            " generate:seren,jobs=10000,load=0.8.",
        ),
    ] = ""
    format_: Annotated[
        str, Parameter(name="--format", help="Of the log; else it is found out.")
    ] = ""
    limit: Annotated[
        int, Parameter(help="Only the first so many jobs.", converter=whole_number)
    ] = 0
    gang: Annotated[
        Literal["any", "packed"],
        Parameter(help="Ranks sit anywhere, or in blocks that fill nodes."),
    ] = "any"
    elastic: Annotated[
        bool,
        Parameter(
            help="Jobs may run on other numbers of devices where the log tells how fast;"
            " all training jobs of a made one.",
            negative=(),
        ),
    ] = False
    forecast: Annotated[
        str,
        Parameter(
            help="How long jobs are predicted to run: user (as the log says), exact, none,"
            " spread=0.5 (exact, with log-normal errors), learned (from the jobs that have ended)."
        ),
    ] = ""
    part: Annotated[str, Parameter(help="Which of several workloads in one file, as philly/1.")] = (
        ""
    )
    profiles: Annotated[
        Path | None, Parameter(help="Table of measured step times that belongs to the log.")
    ] = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class World:
    """Where it arrives."""

    grid: Annotated[
        Path | None,
        Parameter(name=("--grid", "-g"), help="Grid file, or openb's list of nodes."),
    ] = None
    accelerators: Annotated[
        int | None,
        Parameter(
            help="In place of a grid: so many devices of each kind the jobs name, in one node.",
            converter=whole_number,
        ),
    ] = None
    faults: Annotated[Path | None, Parameter(help="What goes wrong, as YAML or CSV.")] = None
    signals: Annotated[
        Path | None, Parameter(help="Prices and carbon of sites over time, as CSV.")
    ] = None
    noise: Annotated[
        float,
        Parameter(help="Standard deviation of the logarithm of an attempt's speed, as 0.05."),
    ] = 0.0
    until: Annotated[str, Parameter(help="Stop so long after the first submission, as 7d.")] = ""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Asked:
    """Under which rules, and how often."""

    policy: Annotated[
        str,
        Parameter(
            name=("--policy", "-p"),
            help="One or several: fifo,las+elastic; `all` for every one that has a name. Else the"
            " grid's.",
        ),
    ] = ""
    seed: Annotated[int, Parameter(help="Of all chance; else 0.", converter=whole_number)] = 0
    seeds: Annotated[
        int,
        Parameter(
            help="Run with so many seeds, from --seed on, and tell mean and spread.",
            converter=whole_number,
        ),
    ] = 1
