"""Reads stories, plays them, and prints what came of each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from gridloom.base.errors import InputError, Problem
from gridloom.base.files import cause_of
from gridloom.base.units import format_duration
from gridloom.cli.output import emit, say
from gridloom.ports.journal import Record
from gridloom.sim.story import Story, prepare
from gridloom.sim.story_play import Difference, Played, play
from gridloom.sim.story_trace import told
from gridloom.wire.source import SIZE_MAX_BYTES
from gridloom.wire.stories import read_story

_JOBS_MAX = 40


@dataclass(frozen=True)
class Terms:
    """How stories are played and shown.

    Attributes:
        seed: Of the chance in them.
        trace: Everything that happens is shown.
        laws: The scheduler's laws are checked after every step.
        as_json: For machines.
    """

    seed: int
    trace: bool
    laws: bool
    as_json: bool


def show_stories(paths: Sequence[Path], terms: Terms) -> int:
    """Play all stories and return 0 if all of them hold, else 1.

    Raises:
        InputError: A file cannot be read or used; nothing is played then.
    """
    stories = _read_all(paths)
    width = max(len(story.name) for _, story in stories)
    differing = 0
    for file, story in stories:
        records: list[Record] = []
        journal = records.append if terms.trace else None
        played = play(story, seed=terms.seed, check_laws=terms.laws, journal=journal)
        differing += not played.holds
        if terms.as_json:
            emit(_as_json(file, played, records))
        else:
            _show(file, played, records, width)
    if not terms.as_json and len(stories) > 1:
        end = f", {differing} differ" if differing else ""
        say(f"{len(stories) - differing} stories hold{end}")
    return 1 if differing else 0


def _read_all(paths: Sequence[Path]) -> list[tuple[Path, Story]]:
    problems: list[Problem] = []
    stories: list[tuple[Path, Story]] = []
    for path in _files(paths):
        try:
            stories.append((path, prepare(read_story(_read(path), str(path)), path.stem)))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return stories


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    if not paths:
        raise InputError("no story is given; name a file, or a directory with stories")
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        below = sorted(path.rglob("*.yaml"))
        if not below:
            message = "the directory holds no `*.yaml`"
            raise InputError([Problem(message, "name one with stories", file=str(path))])
        yield from below


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as opened:
            return opened.read(SIZE_MAX_BYTES + 1)
    except OSError as error:
        message = f"the story cannot be read: {cause_of(error)}"
        raise InputError([Problem(message, file=str(path))]) from error


def _show(file: Path, played: Played, records: Sequence[Record], width: int) -> None:
    for record in records:
        for at_s, sign, sentence in told(record):
            say(Text.assemble((f"{at_s:>10g} ", "dim"), f"{sign} {sentence}"))
    name = played.name.ljust(width)
    after = f"{played.steps} steps, {format_duration(max(played.end_s, 0.0))}"
    if played.holds:
        say(Text.assemble(("ok      ", "green"), f"{name}  ", (after, "dim")))
        return
    say(Text.assemble(("differs ", "bold red"), f"{name}  ", (after, "dim")))
    for difference in played.differences:
        _show_difference(file, difference)


def _show_difference(file: Path, difference: Difference) -> None:
    place = f"{file}:{difference.line}: " if difference.line else f"{file}: "
    say(Text.assemble("  ", place, (_when(difference), "bold")))
    for expected, found in difference.mismatches:
        say(Text.assemble(("    - ", "red"), f"expected: {expected}"))
        say(Text.assemble(("    + ", "green"), f"so:       {found}"))
    if difference.jobs:
        say(Text("    jobs then:", "dim"))
    wide = max((len(name) for name, _ in difference.jobs), default=0)
    for name, state in difference.jobs[:_JOBS_MAX]:
        say(Text(f"      {name.ljust(wide)}  {state.removeprefix('it is ')}", "dim"))
    if len(difference.jobs) > _JOBS_MAX:
        say(Text(f"      and {len(difference.jobs) - _JOBS_MAX} more", "dim"))


def _when(difference: Difference) -> str:
    if difference.when == "finally":
        return "at the end"
    word = {"at": "at", "always": "always, but not at", "never": "never, but at"}
    return f"{word.get(difference.when, difference.when)} {difference.at_s:g} s"


def _as_json(file: Path, played: Played, records: Sequence[Record]) -> dict[str, object]:
    found: dict[str, object] = {
        "event": "story",
        "file": str(file),
        "name": played.name,
        "holds": played.holds,
        "steps": played.steps,
        "end_s": played.end_s,
        "differences": [
            {
                "line": difference.line,
                "when": difference.when,
                "at_s": difference.at_s,
                "mismatches": [
                    {"expected": expected, "found": found}
                    for expected, found in difference.mismatches
                ],
                "jobs": dict(difference.jobs),
            }
            for difference in played.differences
        ],
    }
    if records:
        found["trace"] = [
            {"at_s": at_s, "sign": sign, "sentence": sentence}
            for record in records
            for at_s, sign, sentence in told(record)
        ]
    return found
