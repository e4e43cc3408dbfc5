"""Tables of measured runs, read from CSV: every fault by its line, before anything is computed."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gridloom.base.errors import InputError, Problem
from gridloom.cli.plan_inputs import LAYERS_MAX, read_text
from gridloom.planner.published import Row, Run, Unexpressed
from gridloom.planner.published_table import read_table
from gridloom.wire.documents_values import did_you_mean

NEEDED = ("seq_len", "gpu", "n_gpus")
"""Columns without which no row is a run."""

MODEL = ("model", "layers")
"""One of these says what was trained."""

MEASURED = (
    "measured_step_time_s",
    "tokens_per_s_per_gpu",
    "measured_TFLOPs_per_gpu",
    "peak_memory_GB",
    "value",
)
"""One of these says what was measured; ``value`` with a unit, in tables of memory."""

_NUMBERS = (
    *("params_B", "layers", "hidden", "ffn", "heads", "kv_heads", "vocab", "seq_len", "n_gpus"),
    *("nodes", "tp", "pp", "vpp", "dp", "cp", "ep", "zero", "micro_batch", "global_batch"),
    *("measured_TFLOPs_per_gpu", "measured_step_time_s", "tokens_per_s_per_gpu", "peak_memory_GB"),
)
_MISSING = frozenset({"", "-", "?", "n/a", "na", "none", "null", "unknown"})
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_PROBLEMS_MAX = 20
_NUMBER_MAX = 1e12
"""No count, size or time of a run is larger."""


@dataclass(frozen=True)
class RunTable:
    """What a file holds.

    Attributes:
        rows: Its lines, by column.
        runs: Those that are runs.
        unexpressed: Those that are none, and why.
    """

    rows: tuple[Row, ...]
    runs: tuple[Run, ...]
    unexpressed: tuple[Unexpressed, ...]


def read_runs(path: Path) -> RunTable:
    """Return the runs in a CSV file.

    Raises:
        InputError: The file cannot be read, is no such table, or has nonsense in it.
    """
    rows = read_rows(path)
    read = read_table(rows)
    runs = tuple(run for run in read if isinstance(run, Run))
    return RunTable(rows, runs, tuple(run for run in read if isinstance(run, Unexpressed)))


def read_rows(path: Path) -> tuple[Row, ...]:
    """Return the lines of a CSV file by column; raises like `read_runs`."""
    name = str(path)
    text = read_text(path)
    if not text.strip():
        right = "name a table of runs with a line of column names"
        raise InputError([Problem("is empty", right, file=name)])
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        columns = [(column or "").strip() for column in reader.fieldnames or ()]
        _check_columns(columns, name)
        reader.fieldnames = columns
        rows, problems = _read_lines(reader, name)
    except csv.Error as error:
        message = f"is not CSV: {error}"
        right = "separate cells by commas, and quote those with commas"
        raise InputError([Problem(message, right, file=name, line=reader.line_num)]) from error
    if problems:
        more = len(problems) - _PROBLEMS_MAX
        kept = problems[:_PROBLEMS_MAX]
        if more > 0:
            kept.append(Problem(f"and {more} more lines like these", file=name))
        raise InputError(kept)
    if not rows:
        raise InputError([Problem("has no line below its columns", "add runs", file=name)])
    return tuple(rows)


def _check_columns(columns: list[str], name: str) -> None:
    if len(columns) < 2:
        right = "separate cells by commas; the first line names the columns"
        raise InputError([Problem("is no table", right, file=name, line=1)])
    problems = []
    twice = sorted({column for column in columns if column and columns.count(column) > 1})
    problems += [Problem("stands there twice", file=name, line=1, field=one) for one in twice]
    for column in NEEDED:
        if column not in columns:
            near = did_you_mean(column, columns) or f"add it: a table of runs has {_needed()}"
            problems.append(Problem("the column is missing", near, name, 1, column))
    for choices in (MODEL, MEASURED):
        if not set(choices) & set(columns):
            message = f"none of the columns {', '.join(choices)} is there"
            problems.append(Problem(message, "add one", file=name, line=1))
    if problems:
        raise InputError(problems)


def _needed() -> str:
    return f"{', '.join(NEEDED)}, {' or '.join(MODEL)}, and {' or '.join(MEASURED[:2])}"


def _read_lines(reader: "csv.DictReader[str]", name: str) -> tuple[list[Row], list[Problem]]:
    rows: list[Row] = []
    problems: list[Problem] = []
    for cells in reader:
        line = reader.line_num
        if None in cells:
            right = "quote cells with commas in them"
            problems.append(Problem("has more cells than there are columns", right, name, line))
            continue
        row = {column: value or "" for column, value in cells.items()}
        row["id"] = row.get("id") or f"line {line}"
        problems += _nonsense(row, name, line)
        rows.append(row)
    return rows, problems


def _nonsense(row: Row, name: str, line: int) -> Iterator[Problem]:
    for column in _NUMBERS:
        cell = row.get(column, "").strip()
        if cell.lower() in _MISSING:
            continue
        digits = re.match(r"[\d.]+(e\+?\d+)?", cell.lower())
        most = LAYERS_MAX if column == "layers" else _NUMBER_MAX
        if digits and _number(digits[0]) > most:
            right = f"write at most {most:,.0f}"
            yield Problem(f"{cell[:40]!r} is too large", right, name, line, column)
        elif cell.startswith("-") or not re.search(r"\d", cell) or _NOT_FINITE.match(cell):
            right = "write a number above 0, or leave the cell empty"
            yield Problem(f"{cell[:40]!r} cannot be", right, name, line, column)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0  # no plain number: what reads tables says why
