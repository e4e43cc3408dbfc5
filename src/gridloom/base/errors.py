"""The error tree: whose fault it is decides the exit code.

GridloomError
├── InputError       yours: a document, a flag, a name       exit code 2
├── WorkFailedError  the work failed: a job, a training run  exit code 1
├── SiteError        a site refused or could not be reached  exit code 1
├── StaleWriterError another control plane took over         exit code 1
└── BrokenError      ours: an invariant did not hold         exit code 1
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with what a person wrote, and what would be right.

    Attributes:
        message: What was found and why it cannot be.
        remedy: What would be right; empty when the message already says it.
        file: The document, as the user named it; empty for a flag.
        line: Line in the file, from 1; 0 when unknown.
        field: Dotted path of the field, as ``resources.accelerators``; empty for the whole file.
    """

    message: str
    remedy: str = ""
    file: str = ""
    line: int = 0
    field: str = ""

    def sentence(self) -> str:
        """Return the problem as one line of text: place, field, what is wrong, what is right."""
        place = f"{self.file}:{self.line}: " if self.line else f"{self.file}: " if self.file else ""
        field = f"{self.field}: " if self.field else ""
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{place}{field}{self.message}{remedy}"


class GridloomError(Exception):
    """Anything that gridloom reports to a person instead of a traceback."""

    exit_code = 1


class InputError(GridloomError):
    """What a person gave cannot be used; carries every problem found, not only the first."""

    exit_code = 2

    def __init__(self, problems: Sequence[Problem] | str) -> None:
        if isinstance(problems, str):
            problems = (Problem(problems),)
        self.problems = tuple(problems)
        super().__init__("\n".join(problem.sentence() for problem in self.problems))


class WorkFailedError(GridloomError):
    """The work that was asked for was tried and failed."""


class SiteError(GridloomError):
    """A site refused, failed or could not be reached."""


class StaleWriterError(GridloomError):
    """Somebody else appended to the journal: this process is not the one writer any more."""


class BrokenError(GridloomError):
    """An invariant of gridloom's own did not hold: a fault of ours, please report it."""
