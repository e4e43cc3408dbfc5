"""Why a plan cannot be run, every reason at once."""

from collections.abc import Iterable
from dataclasses import dataclass

from gridloom.base.errors import InputError, Problem


@dataclass(frozen=True)
class Rule:
    """One thing that must not hold.

    Attributes:
        broken: It does hold.
        field: Of the plan, the model or the goal.
        message: What is wrong.
        remedy: What would be right.
    """

    broken: bool
    field: str
    message: str
    remedy: str


def enforce(rules: Iterable[Rule]) -> None:
    """Do nothing when every rule is kept.

    Raises:
        InputError: One is broken; carries all that are.
    """
    problems = [
        Problem(message=rule.message, remedy=rule.remedy, field=rule.field)
        for rule in rules
        if rule.broken
    ]
    if problems:
        raise InputError(problems)
