"""The flags that several verbs share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, Token


def whole_number(_type: object, tokens: Sequence[Token]) -> int:
    """Read a count: a fraction is refused, not cut."""
    return int(tokens[0].value)


Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print JSON for machines.")]
Yes = Annotated[bool, Parameter(name=("--yes", "-y"), negative=(), help="Do not ask.")]
Grid = Annotated[
    Path | None,
    Parameter(name=("--grid", "-g"), help="Grid file; else the job's, else this machine."),
]
JobName = Annotated[
    str, Parameter(help="A job's id, the beginning of one, or a name: of several the newest.")
]
JobToChange = Annotated[
    str, Parameter(help="A job's id, the beginning of one, or a name that one unfinished job has.")
]
JobPath = Annotated[Path, Parameter(help="Job file, in YAML, or a batch script of Slurm.")]
