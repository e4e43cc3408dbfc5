"""Kinds of values in documents: how each is read, refused and described in JSON Schema."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from gridloom.base.units import parse_count

WRONG = "wrong"
"""Type of the pydantic errors that carry our own message and remedy in their context."""

_COUNT_MAX = 10**15
_SHOWN_LENGTH = 60
NUMBER_PATTERN = r"\d+(\.\d+)?([eE][+-]?\d+)?"


def wrong(message: str, remedy: str) -> PydanticCustomError:
    """Return the error to raise for a value that cannot be used."""
    return PydanticCustomError(WRONG, "{message}", {"message": message, "remedy": remedy})


def found(value: object) -> str:
    """Return how ``value`` is called in a message: ``found `-3` ``."""
    if value is None:
        return "no value is given"
    if isinstance(value, dict):
        return "found a mapping"
    if isinstance(value, list):
        return "found a list"
    if isinstance(value, bool):
        return f"found `{str(value).lower()}`"
    text = str(value)
    if len(text) > _SHOWN_LENGTH:
        text = text[:_SHOWN_LENGTH] + "…"
    return f"found `{text}`" if text.isprintable() and text else f"found {text!r}"


def did_you_mean(word: str, known: list[str]) -> str:
    """Return ``did you mean `x`?``, or nothing when no known word is near."""
    near = get_close_matches(word.lower(), known, n=1)
    return f"did you mean `{near[0]}`?" if near else ""


class Value(ABC):
    """A kind of value; stands in ``Annotated[type, Value, ...]`` as the only validator."""

    @property
    @abstractmethod
    def right(self) -> str:
        """What would be right, after the word "write"."""

    @abstractmethod
    def parse(self, value: object) -> Any:
        """Return the value read, or raise ``wrong``."""

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of what is accepted."""

    def refuse(self, value: object) -> PydanticCustomError:
        """Return the error for a ``value`` of the wrong kind."""
        return wrong(found(value), f"write {self.right}")

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Let pydantic call ``parse`` and nothing else."""
        return core_schema.no_info_plain_validator_function(self.parse)

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Let pydantic describe what ``parse`` accepts."""
        return self.schema()


@dataclass(frozen=True)
class Text(Value):
    """Text, perhaps of a certain form.

    Attributes:
        right_: What would be right.
        pattern: What all of it must match.
    """

    right_: str
    pattern: str = r"[\s\S]*\S[\s\S]*"

    @property
    def right(self) -> str:
        """What would be right."""
        return self.right_

    def parse(self, value: object) -> str:
        """Return the text; numbers and booleans want quotes to be text."""
        if isinstance(value, bool | int | float):
            shown = str(value).lower()
            raise wrong(f"found `{shown}`, which is not text", f'put it in quotes: "{shown}"')
        if not isinstance(value, str) or not re.fullmatch(self.pattern, value):
            raise self.refuse(value)
        return value

    def schema(self) -> dict[str, Any]:
        """Text that matches."""
        return {"type": "string", "pattern": f"^(?:{self.pattern})$"}


@dataclass(frozen=True)
class Choice(Value):
    """One of a few words.

    Attributes:
        words: Those.
        others: What other people call some of them, and which is meant.
    """

    words: tuple[str, ...]
    others: tuple[tuple[str, str], ...] = ()

    @property
    def right(self) -> str:
        """The words."""
        words = [f"`{word}`" for word in self.words]
        return " or ".join(words) if len(words) < 3 else f"one of {', '.join(words)}"

    def parse(self, value: object) -> str:
        """Return the word."""
        if not isinstance(value, str):
            raise self.refuse(value)
        if value not in self.words:
            meant = dict(self.others).get(value.lower(), "")
            hint = f"did you mean `{meant}`?" if meant else did_you_mean(value, [*self.words])
            raise wrong(found(value), hint or f"write {self.right}")
        return value

    def schema(self) -> dict[str, Any]:
        """The words."""
        return {"enum": [*self.words]}


@dataclass(frozen=True)
class Flag(Value):
    """True or false."""

    @property
    def right(self) -> str:
        """Both."""
        return "`true` or `false`"

    def parse(self, value: object) -> bool:
        """Return the truth value; ``yes`` and ``on`` are text in YAML 1.2."""
        if not isinstance(value, bool):
            raise self.refuse(value)
        return value

    def schema(self) -> dict[str, Any]:
        """A boolean."""
        return {"type": "boolean"}


@dataclass(frozen=True)
class Whole(Value):
    """A whole number: ``2000``, ``2_000``, ``2k`` or ``1e3``.

    Attributes:
        minimum: Smallest that is accepted.
        maximum: Largest that is accepted.
        auto: What ``auto`` stands for; None when it is not accepted.
    """

    minimum: int = 1
    maximum: int = _COUNT_MAX
    auto: int | None = None

    @property
    def right(self) -> str:
        """The bounds."""
        bounds = f"of at least {self.minimum}"
        if self.maximum < _COUNT_MAX:
            bounds = f"from {self.minimum} to {self.maximum}"
        return f"a whole number {bounds}{'' if self.auto is None else ', or `auto`'}"

    def parse(self, value: object) -> int:
        """Return the number."""
        if self.auto is not None and value == "auto":
            return self.auto
        number = self._number(value)
        if number is None or not self.minimum <= number <= self.maximum:
            raise self.refuse(value)
        return number

    def _number(self, value: object) -> int | None:
        if isinstance(value, bool):
            return None
        if isinstance(value, float):
            return int(value) if value.is_integer() else None
        if isinstance(value, str):
            try:
                return parse_count(value)
            except (ValueError, OverflowError):
                return None
        return value if isinstance(value, int) else None

    def schema(self) -> dict[str, Any]:
        """An integer, or text such as ``2M``."""
        forms: list[dict[str, Any]] = [
            {"type": "integer", "minimum": self.minimum, "maximum": self.maximum},
            {"type": "string", "pattern": r"^\s*[\d_]+(\.\d+)?\s*[kKmMbBtT]?\s*$"},
        ]
        return {"anyOf": forms if self.auto is None else [*forms, {"const": "auto"}]}


@dataclass(frozen=True)
class Quantity(Value):
    """A number that may carry a unit: ``30``, ``1.5h``, ``80GB``.

    Attributes:
        what: What it is and an example, as ``a duration such as `90s` ``.
        read: Parser of the text; None for a number without unit.
        pattern: Of the text, for the JSON Schema.
        minimum: Smallest that is accepted.
        maximum: Largest that is accepted.
        above: Whether ``minimum`` itself is refused.
        bare: Whether a number without a unit is accepted.
    """

    what: str
    read: Callable[[str], float] = float
    pattern: str = f"^{NUMBER_PATTERN}$"
    minimum: float = 0.0
    maximum: float = math.inf
    above: bool = False
    bare: bool = True

    @property
    def right(self) -> str:
        """What it is, and its bounds where they are not plain."""
        least = f"above {self.minimum:g}" if self.above else f"of at least {self.minimum:g}"
        most = "" if math.isinf(self.maximum) else f" and at most {self.maximum:g}"
        return f"{self.what} {least}{most}"

    def parse(self, value: object) -> float:
        """Return the number in the unit of the parser."""
        number = self._number(value)
        if number is None or not math.isfinite(number):
            raise self.refuse(value)
        if not self.minimum <= number <= self.maximum or (self.above and number == self.minimum):
            raise self.refuse(value)
        return number

    def _number(self, value: object) -> float | None:
        if isinstance(value, bool):
            return None
        try:
            if isinstance(value, int | float):
                return float(value) if self.bare else None
            return self.read(value) if isinstance(value, str) else None
        except (ValueError, OverflowError):
            return None

    def schema(self) -> dict[str, Any]:
        """A number, or text with a unit."""
        least = "exclusiveMinimum" if self.above else "minimum"
        number: dict[str, Any] = {"type": "number", least: self.minimum}
        if not math.isinf(self.maximum):
            number["maximum"] = self.maximum
        text = {"type": "string", "pattern": self.pattern}
        return {"anyOf": [number, text]} if self.bare else text


@dataclass(frozen=True)
class Texts(Value):
    """One text or a list of texts, each of one form.

    Attributes:
        each: The form of each.
        plural: What they are called, as ``site names``.
    """

    each: Text
    plural: str

    @property
    def right(self) -> str:
        """What would be right."""
        return f"a list of {self.plural}"

    def parse(self, value: object) -> tuple[str, ...]:
        """Return the texts."""
        items = value if isinstance(value, list) else [value]
        if not items or any(isinstance(item, dict | list) or item is None for item in items):
            raise self.refuse(value)
        return tuple(self.each.parse(item) for item in items)

    def schema(self) -> dict[str, Any]:
        """Text, or a list of texts."""
        each = self.each.schema()
        return {"anyOf": [each, {"type": "array", "items": each, "minItems": 1}]}
