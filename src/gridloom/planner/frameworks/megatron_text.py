"""The arguments in a text that people keep: a command, a piece of a shell script, a YAML list."""

import ast
import re
import shlex
from collections.abc import Mapping, Sequence

import yaml

from gridloom.base.errors import InputError, Problem

_YAML_LINE = re.compile(r"^[ \t]*(?:--)?[A-Za-z][\w-]*:(?:[ \t]|$)", re.MULTILINE)
_COMMENT = re.compile(r"(?:^|[ \t])#")
_CONTINUED = re.compile(r"\\[ \t]*\n")
_ARITHMETIC = re.compile(r"\$\(\(([^()]*)\)\)")
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?:\[[@*]\])?(?::?-([^}]*))?\}|(\w+))")
_ASSIGNMENT = re.compile(r"^([A-Za-z_]\w*)\+?=(.*)$", re.DOTALL)


class Arguments:
    """Arguments by name, without their dashes; what is never asked for is `unread`."""

    def __init__(self, values: Mapping[str, Sequence[str]]) -> None:
        """Hold ``values``, the words behind each name."""
        self._values = dict(values)
        self._asked: set[str] = set()
        self.problems: list[Problem] = []

    @property
    def unread(self) -> tuple[str, ...]:
        """Names that nobody asked for, in the order of the text."""
        return tuple(f"--{name}" for name in self._values if name not in self._asked)

    def has(self, *names: str) -> bool:
        """Return whether one of ``names`` is given."""
        self._asked.update(names)
        return any(name in self._values for name in names)

    def word(self, name: str, default: str = "") -> str:
        """Return the word behind ``name``, or ``default`` when it is not given."""
        self._asked.add(name)
        words = self._values.get(name)
        if words is None:
            return default
        if not words or not words[0] or "$" in words[0]:
            found = words[0] if words and words[0] else "nothing"
            self.fault(name, f"{found} stands where a value must", "write the value itself")
            return default
        return words[0]

    def number(self, name: str, default: int = 0, least: int = 1) -> int:
        """Return the whole number behind ``name``, or ``default`` when it is not given."""
        if not self.has(name):
            return default
        word = self.word(name)
        if not word:
            return default
        try:
            value = int(word)
        except ValueError:
            self.fault(name, f"{word} is not a whole number", "write digits only")
            return default
        if value < least:
            self.fault(name, f"{value} is below {least}", f"write a number from {least} on")
            return default
        return value

    def real(self, name: str, default: float = 0.0) -> float:
        """Return the number behind ``name``, or ``default`` when it is not given."""
        word = self.word(name)
        try:
            return float(word) if word else default
        except ValueError:
            self.fault(name, f"{word} is not a number", "write a number")
            return default

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """Return the word behind ``name``, which must be one of ``choices``."""
        word = self.word(name, default)
        if word not in choices:
            allowed = ", ".join(choices)
            self.fault(name, f"{word} is not known", f"choose one of {allowed}")
            return default
        return word

    def fault(self, name: str, message: str, remedy: str) -> None:
        """Remember that the value of ``name`` cannot be."""
        self.problems.append(Problem(message=message, remedy=remedy, field=f"--{name}"))


def read(source: str | Sequence[str]) -> Arguments:
    """Return the arguments in ``source``.

    A sequence is taken as the words of a command. A text may be a command, a piece of a shell
    script (comments, continued lines, quotes, arrays, variables and sums of them) or YAML with one
    ``name: value`` a line, below ``MODEL_ARGS`` where there is one. Of an argument that is given
    twice the last counts, as in argparse.

    Raises:
        InputError: The text can be taken apart in none of these ways.
    """
    if not isinstance(source, str):
        return Arguments(_by_name(list(source)))
    if _YAML_LINE.search(source):
        return Arguments(_from_yaml(source))
    return Arguments(_by_name(_shell_words(source)))


def _name(text: str) -> str:
    return text.lstrip("-").replace("_", "-")


def _by_name(words: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for word in words:
        if word.startswith("--") and len(word) > len("--"):
            name, equals, value = word.partition("=")
            current = [value] if equals else []
            found.pop(_name(name), None)
            found[_name(name)] = current
        elif current is not None:
            current.append(word)
    return found


def _from_yaml(source: str) -> dict[str, list[str]]:
    try:
        document = yaml.safe_load(source)
    except yaml.YAMLError as error:
        raise InputError(f"the text is neither YAML nor a command: {error}") from None
    if isinstance(document, dict):
        document = document.get("MODEL_ARGS", document)
    if not isinstance(document, dict):
        raise InputError("the YAML is no list of `name: value`")
    found: dict[str, list[str]] = {}
    for key, value in document.items():
        if value is False or value is None or isinstance(value, dict):
            continue
        items = value if isinstance(value, list) else [value]
        found[_name(str(key))] = [] if value is True else [str(item) for item in items]
    return found


def _shell_words(source: str) -> list[str]:
    text = "\n".join(_without_comment(line) for line in source.split("\n"))
    text = _CONTINUED.sub(" ", text)
    text = _ARITHMETIC.sub(lambda found: found.group().replace(" ", ""), text)
    variables: dict[str, str] = {}
    words: list[str] = []
    for word in _split(text):
        bare = word.rstrip(";")
        bare = bare.rstrip(")") if "(" not in bare else bare
        assigned = _ASSIGNMENT.match(bare)
        if assigned is None:
            # An array's item may hold a name and its value in one pair of quotes
            parts = _split(bare) if bare.startswith("--") and " " in bare else [bare]
            words.extend(_expand(part, variables) for part in parts)
        elif "--" in assigned.group(2):  # a list of arguments, given where it is defined
            listed = assigned.group(2)
            inner = _split(listed[1:].rstrip(")") if listed.startswith("(") else listed)
            words.extend(_expand(item, variables) for item in inner)
        else:
            variables[assigned.group(1)] = _expand(assigned.group(2), variables)
    return [word for word in words if word not in {"", ")", "("}]


def _without_comment(line: str) -> str:
    for found in _COMMENT.finditer(line):
        before = line[: found.start()]
        if before.count('"') % 2 == 0 and before.count("'") % 2 == 0:
            return before
    return line


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InputError(f"the text is not a command: {error}") from None


def _expand(word: str, variables: Mapping[str, str]) -> str:
    """Return ``word`` with known variables and sums in their place."""

    def value(found: re.Match[str]) -> str:
        name = found.group(1) or found.group(3)
        return variables.get(name, found.group(2) or found.group())

    expanded = _VARIABLE.sub(value, word)
    return _ARITHMETIC.sub(lambda found: _calculate(found.group(1), found.group()), expanded)


def _calculate(expression: str, otherwise: str) -> str:
    names = re.sub(r"[^\d+*/() -]", "", expression)
    if names != expression:
        return otherwise
    try:
        return str(_whole(ast.parse(expression.replace("/", "//"), mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError):
        return otherwise


def _whole(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp):
        left, right = _whole(node.left), _whole(node.right)
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.FloorDiv):
            return left // right
    raise ValueError
