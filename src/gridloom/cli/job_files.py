"""What a job names on this machine's disk: is it there, and can it be written?"""

import os
from pathlib import Path

from gridloom.base.errors import Problem
from gridloom.model.recipe import PYTHON_STDLIB
from gridloom.wire.command import parse_command, script_path
from gridloom.wire.documents import JobFile

_MAGIC = "*?["


def missing_files(file: JobFile, workdir: Path) -> list[Problem]:
    """Return a problem for each directory, script or text that the job names and nobody finds."""
    if not workdir.is_dir():
        remedy = "name a directory, relative to the job file"
        return [file.problem(("workdir",), f"there is no directory {workdir}", remedy)]
    if file.document.run is not None:
        return _missing_script(file, file.document.run, workdir)
    problems = []
    for pattern in file.document.data.text:
        if pattern != PYTHON_STDLIB and not _exists(workdir, pattern):
            remedy = f"name files, directories or patterns, relative to {workdir}"
            message = f"nothing is found at `{pattern}`"
            problems.append(file.problem(("data", "text"), message, remedy))
    return problems


def unwritable(file: JobFile, directory: Path) -> Problem | None:
    """Make the checkpoint directory; return what is wrong when it cannot be written."""
    field = ("checkpoint", "directory")
    remedy = "name a directory that you can write"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return file.problem(field, f"{directory} cannot be made: {error.strerror}", remedy)
    if not os.access(directory, os.W_OK | os.X_OK):
        return file.problem(field, f"{directory} cannot be written", remedy)
    return None


def _missing_script(file: JobFile, run: str, workdir: Path) -> list[Problem]:
    script = script_path(parse_command(run).argv)
    if script is None or (workdir / script).is_file():
        return []
    message = f"there is no script {script} in {workdir}"
    return [file.problem(("run",), message, "correct the path, or set `workdir`")]


def _exists(workdir: Path, pattern: str) -> bool:
    path = workdir / Path(pattern).expanduser()
    if not any(sign in pattern for sign in _MAGIC):
        return path.exists()
    anchor = Path(path.anchor)
    return any(anchor.glob(str(path.relative_to(anchor))))
