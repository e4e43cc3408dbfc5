"""Stories, handed over as bytes: read, with every problem at once and its line."""

from dataclasses import dataclass

from gridloom.base.errors import InputError
from gridloom.model.inventory import Inventory
from gridloom.wire.convert import to_inventory
from gridloom.wire.documents_check import read
from gridloom.wire.source import read_source
from gridloom.wire.story_check import check_story
from gridloom.wire.story_document import StoryDocument
from gridloom.wire.story_grid import read_story_grid

AT_FIRST = -1
"""Number of the grid of the beginning among those of the events."""


@dataclass(frozen=True)
class StoryFile:
    """A story without a problem.

    Attributes:
        document: What it says.
        inventories: Its grids: that of the beginning as ``AT_FIRST``, those of events by the
            number of the event.
        lines: Of the expectations.
    """

    document: StoryDocument
    inventories: dict[int, Inventory]
    lines: tuple[int, ...]


def read_story(data: bytes, file: str) -> StoryFile:
    """Return the story in ``data``.

    Args:
        data: The file's bytes.
        file: Its name, as the user gave it.

    Raises:
        InputError: With every problem, by line.
    """
    source = read_source(data, file)
    reading = read(StoryDocument, source)
    problems, inventories = list(reading.problems), {}
    paths = {AT_FIRST: ("grid",)} if reading.given("grid") else {}
    for i in range(reading.size("events")):
        if reading.given("events", i, "grid"):
            paths[i] = ("events", i, "grid")  # type: ignore[assignment]
    for number, path in paths.items():
        grid = read_story_grid(source, path)
        problems += grid.problems
        if grid.document is not None:
            inventories[number] = to_inventory(grid.document)
    if len(inventories) == len(paths):
        problems += reading.located(iter(check_story(source.data, inventories)))
    if problems:
        raise InputError(sorted(dict.fromkeys(problems), key=lambda problem: problem.line))
    assert reading.document is not None
    lines = tuple(source.line(("expect", i)) for i in range(reading.size("expect")))
    return StoryFile(reading.document, inventories, lines)
