"""Job and grid files, handed over as bytes: read, with every problem at once and its line."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gridloom.base.errors import InputError, Problem
from gridloom.model.inventory import Inventory
from gridloom.wire import job_document_check
from gridloom.wire.documents_check import D, Reading, read
from gridloom.wire.grid_document import GridDocument
from gridloom.wire.grid_document_check import check_grid
from gridloom.wire.job_document import JobDocument
from gridloom.wire.source import Source, read_source
from gridloom.wire.source_tree import Path


@dataclass(frozen=True)
class JobFile:
    """A job file without a problem of its own.

    Attributes:
        document: What it says.
        reading: The same, with the lines of the fields.
    """

    document: JobDocument
    reading: Reading[JobDocument]

    @property
    def lines(self) -> dict[Path, int]:
        """Line of every field, by its path."""
        return self.reading.source.key_lines

    def problem(self, path: Path, message: str, remedy: str = "") -> Problem:
        """Return a problem at a field of the file, as for a script that does not exist."""
        return self.reading.source.problem(path, message, remedy)


@dataclass(frozen=True)
class GridFile:
    """A grid file without a problem.

    Attributes:
        document: What it says.
        source: Its plain data and lines.
    """

    document: GridDocument
    source: Source

    @property
    def lines(self) -> dict[Path, int]:
        """Line of every field, by its path."""
        return self.source.key_lines


def read_job(data: bytes, file: str, inventory: Inventory | None = None) -> JobFile:
    """Return the job in ``data``.

    Args:
        data: The file's bytes.
        file: Its name, as the user gave it.
        inventory: The grid to check it against, too.

    Raises:
        InputError: With every problem, by line.
    """
    return job_of(read_source(data, file), inventory)


def job_of(source: Source, inventory: Inventory | None = None) -> JobFile:
    """Return the job in a document that was read, or made of another file; raises likewise."""
    job = _job(source)
    problems = list(job.problems)
    if inventory is not None:
        problems += job_document_check.check_job_against_grid(job, inventory)
    _raise(problems)
    assert job.document is not None
    return JobFile(job.document, job)


def read_grid(data: bytes, file: str) -> GridFile:
    """Return the grid in ``data``; raises like ``read_job``."""
    grid = _grid(data, file)
    _raise(grid.problems)
    assert grid.document is not None
    return GridFile(grid.document, grid.source)


def _job(source: Source) -> Reading[JobDocument]:
    env = source.data.get("env")
    if isinstance(env, dict):
        # Variables are text as written: VERSION: 1.10 must not become 1.1.
        texts = {name: _as_written(source, name, value) for name, value in env.items()}
        source = replace(source, data={**source.data, "env": texts})
    job = read(JobDocument, source)
    return replace(job, problems=_apart(job, job_document_check.check_job(job)))


def _as_written(source: Source, name: str, value: Any) -> Any:
    return value if value is None else source.texts.get(("env", name), value)


def _grid(data: bytes, file: str) -> Reading[GridDocument]:
    grid = read(GridDocument, read_source(data, file))
    return replace(grid, problems=_apart(grid, check_grid(grid)))


def _raise(problems: Sequence[Problem]) -> None:
    if problems:
        raise InputError(sorted(problems, key=lambda problem: problem.line))


def _apart(reading: Reading[D], more: Sequence[Problem]) -> tuple[Problem, ...]:
    """Return all problems but those of a field whose very form is wrong: it has no value then."""
    broken = {problem.field for problem in reading.source.problems}
    found = (*reading.problems, *more)
    formal = set(reading.source.problems)
    return tuple(p for p in found if p in formal or not p.field or p.field not in broken)
