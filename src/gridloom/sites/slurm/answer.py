"""Answers in JSON, of slurmrestd or of ``--json``: what they complain of, and their rows (pure)."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from gridloom.base.errors import SiteError

T = TypeVar("T")
Row = Mapping[str, Any]

_NOTHING_FOUND = 9003
"""Slurm's error for a query of the accounting database that finds nothing."""


class SlurmError(SiteError):
    """Slurm said no.

    Attributes:
        codes: Slurm's numbers of the errors; 2017 is a job that it does not know.
    """

    def __init__(self, sentence: str, codes: tuple[int, ...] = ()) -> None:
        super().__init__(sentence)
        self.codes = codes


def answer(data: bytes | str) -> Row:
    """Return an answer that holds no errors.

    Raises:
        SlurmError: It tells of errors.
        SiteError: It is no answer.
    """
    try:
        said = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        start = data[:60].decode(errors="replace") if isinstance(data, bytes) else data[:60]
        raise SiteError(f"Slurm's answer is not JSON ({error}): {start!r}") from None
    if not isinstance(said, dict):
        raise SiteError(f"Slurm's answer is not an object of JSON but {type(said).__name__}")
    errors = [e for e in _dicts(said.get("errors")) if _code(e) != _NOTHING_FOUND]
    if errors:
        codes = (_code(error) for error in errors)
        raise SlurmError(
            "; ".join(_sentence(error) for error in errors),
            tuple(code for code in codes if isinstance(code, int)),
        )
    return said


def warnings(said: Row) -> tuple[str, ...]:
    """Return what an answer warns of, each as a sentence."""
    return tuple(_sentence(warning) for warning in _dicts(said.get("warnings")))


def release(said: Row) -> str:
    """Return the release of Slurm that gave the answer, as ``24.11.5``; empty when not told."""
    return str(find(said, "meta.slurm.release", "meta.Slurm.release") or "")


def rows(said: Row, name: str, read: Callable[[Row], T]) -> tuple[T, ...]:
    """Return every row of the list ``name`` as ``read`` makes it.

    Raises:
        SiteError: There is no such list, or a row cannot be read.
    """
    if not isinstance(said.get(name), list):
        raise SiteError(f"Slurm's answer has no list {name!r}, only {', '.join(sorted(said))}")
    found = []
    for row in _dicts(said[name]):
        try:
            found.append(read(row))
        except ValueError as error:
            raise SiteError(f"Slurm's answer: {name}: {_which(row)}: {error}") from None
    return tuple(found)


def find(row: Row, *paths: str) -> Any:
    """Return what stands at the first of ``paths``, keys with dots between, that leads somewhere.

    What is ``None``, or leads on to more keys, is nothing.
    """
    for path in paths:
        value: Any = row
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is not None and not (isinstance(value, Mapping) and _is_branch(value)):
            return value
    return None


def _is_branch(value: Row) -> bool:
    """Tell a level of keys from a number or an exit code that is told as an object."""
    return not {"set", "infinite", "return_code", "status"} & value.keys()


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _which(row: Row) -> str:
    return str(next((row[key] for key in ("job_id", "name", "LicenseName") if key in row), "a row"))


def _code(said: Row) -> object:
    """Return the number of an error; 22.05 has another name for it where a job is refused."""
    return said.get("error_number", said.get("error_code"))


def _sentence(said: Row) -> str:
    """Return one error or warning as ``Slurm error 2017, Invalid job id: Unable to find ...``."""
    code, name = _code(said), said.get("error")
    description, source = said.get("description"), said.get("source")
    head = f"Slurm error {code}" if code else "Slurm"
    head += f", {name}" if name else ""
    text = f"{head}: {description}" if description else head
    return f"{text} ({source})" if source else text
