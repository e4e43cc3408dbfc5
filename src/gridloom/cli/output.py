"""How the command line speaks: to a person by rich, to a machine by JSON lines."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gridloom.base.errors import GridloomError, InputError

_WIDTH_MAX = 100
_GAP = 2


class _Console(Console):
    """A console that leaves a reader who has seen enough to the caller, as `print` does."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """Return a console at most 100 columns wide; plain when it is no terminal."""
    made = _Console(stderr=stderr, highlight=False, soft_wrap=False)
    if made.width > _WIDTH_MAX or not made.is_terminal:
        made.width = _WIDTH_MAX
    return made


def say(text: str | Text, *, stderr: bool = False) -> None:
    """Print one message, wrapped for a terminal; on one line for a file or a pipe."""
    out = console(stderr=stderr)
    line = Text(text) if isinstance(text, str) else text
    out.print(line, soft_wrap=not out.is_terminal)


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
    spare: Sequence[str] = (),
) -> Table:
    """Return a table that fits the terminal.

    Args:
        columns: Their heads.
        rows: A text for each column.
        right: Columns that hold numbers.
        whole: Columns whose texts are never broken.
        spare: Columns that a narrow terminal can do without, the most dispensable first.
    """
    widths = {
        head: max([len(head), *(len(row[index]) for row in rows)])
        for index, head in enumerate(columns)
    }
    kept = _kept(widths, spare)
    made = Table(
        box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold"
    )
    for head in kept:
        made.add_column(
            head,
            justify="right" if head in right else "left",
            overflow="fold",
            min_width=widths[head] if head in whole else max(map(len, head.split(" "))),
        )
    for row in rows:
        cells = dict(zip(columns, row, strict=True))
        made.add_row(*(Text(cells[head]) for head in kept))
    return made


def _kept(widths: Mapping[str, int], spare: Sequence[str]) -> list[str]:
    kept, room = list(widths), console().width
    for head in spare:
        if sum(widths[one] for one in kept) + _GAP * (len(kept) - 1) <= room:
            break
        kept.remove(head)
    return kept


def pairs(rows: Sequence[tuple[str, str]]) -> Table:
    """Return labels and their texts as two columns without a head."""
    made = Table(box=None, show_header=False, pad_edge=False)
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for label, text in rows:
        made.add_row(label, Text(text))
    return made


def emit(value: Any) -> None:
    """Write one JSON object on one line of standard output, at once."""
    sys.stdout.write(msgspec.json.encode(value, order="sorted").decode() + "\n")
    sys.stdout.flush()


def complain(error: GridloomError, *, as_json: bool) -> None:
    """Tell the person, or the machine, what is wrong and what would be right."""
    problems = error.problems if isinstance(error, InputError) else ()
    if as_json:
        listed = [
            {
                "file": problem.file,
                "line": problem.line,
                "field": problem.field,
                "message": problem.message,
                "remedy": problem.remedy,
            }
            for problem in problems
        ]
        emit({"event": "error", "message": str(error), "problems": listed})
        return
    if len(problems) > 1:
        say(Text(f"{len(problems)} problems:", style="bold red"), stderr=True)
    for line in str(error).splitlines():
        say(Text.assemble(("error: ", "bold red"), line), stderr=True)
