"""The flags that several verbs share."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print JSON for machines.")]
Yes = Annotated[bool, Parameter(name=("--yes", "-y"), negative=(), help="Do not ask.")]
Grid = Annotated[
    Path | None,
    Parameter(name=("--grid", "-g"), help="Grid file; else the job's, else this machine."),
]
JobName = Annotated[str, Parameter(help="A job's id, the beginning of one, or a job's name.")]
JobPath = Annotated[Path, Parameter(help="Job file, in YAML.")]
