"""A YAML document, handed over as bytes, to plain data and the line of every field."""

import re
from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml

from gridloom.base.errors import InputError, Problem
from gridloom.wire.source_tree import Composer, Node, Path, dotted

SIZE_MAX_BYTES = 1024 * 1024

_UTF16 = re.compile(rb"\xff\xfe|\xfe\xff|([^\0]\0|\0[^\0])([^\0]\0|\0[^\0])")
_TAB_INDENT = re.compile(r" *\t")
_QUOTE_REMEDY = "put a value that contains `: ` in quotes, or check the indentation"
_SYNTAX: tuple[tuple[str, str, str], ...] = (
    ("mapping values are not allowed", "`: ` cannot stand here", _QUOTE_REMEDY),
    (
        "could not find expected ':'",
        "a line before this one is neither `key: value` nor a list item",
        "write `key: value`, with a space after the colon",
    ),
    ("but found '}'", "a bracket is closed here that was never opened", "remove it"),
    ("but found ']'", "a bracket is closed here that was never opened", "remove it"),
    (
        "expected <block end>",
        "this line does not fit the lines above it",
        "indent fields of one level alike, and put a value that begins with a quote in quotes",
    ),
    ("but got '['", "a bracket stands inside text", 'put the text in quotes, as "n[1-4]"'),
    ("expected ',' or", "a bracket is not closed before this place", "close it, or add a comma"),
    ("found unexpected end of stream", "a quote is opened and never closed", "close it"),
    (
        "found unexpected document separator",
        "a quote is opened and not closed before `---`",
        "close it",
    ),
    (
        r"'\t' that cannot start any token",
        "a tab stands where YAML allows spaces only",
        "use spaces, or put a value that begins with a tab in quotes",
    ),
    (
        "that cannot start any token",
        "a value cannot begin with this character",
        "put the value in quotes",
    ),
    ("found unknown escape character", "a backslash begins no known escape", "use single quotes"),
    (
        "expected alphabetic or numeric character",
        "a value cannot begin with `*` or `&`",
        "put the value in quotes",
    ),
    (
        "expected '<document start>'",
        "this line is indented less than the first one",
        "let all fields of the top begin in one column",
    ),
)
"""What PyYAML says, what we say, and what would be right."""


@dataclass(frozen=True)
class Source:
    """A document as plain data, with the place of everything in it.

    Attributes:
        file: Its name, as the user gave it.
        data: Its content: mappings, lists, text, numbers, booleans, None.
        key_lines: Line of the key (for list items: of the item) by path.
        value_lines: Line on which the value begins by path.
        texts: Scalars as they are written by path, so that ``1.10`` can stay ``1.10``.
        problems: What is wrong with its form, though it could be read.
    """

    file: str
    data: dict[str, Any] = field(default_factory=dict)
    key_lines: dict[Path, int] = field(default_factory=dict)
    value_lines: dict[Path, int] = field(default_factory=dict)
    texts: dict[Path, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    def line(self, path: Path) -> int:
        """Return the line of the value at ``path``, or of what is nearest around it; else 0."""
        while path:
            if path in self.texts:
                return self.value_lines[path]
            if path in self.key_lines:
                return self.key_lines[path]
            path = path[:-1]
        return 0

    def problem(self, path: Path, message: str, remedy: str = "") -> Problem:
        """Return a problem at ``path``."""
        return Problem(message, remedy, self.file, self.line(path), dotted(path))


def read_source(data: bytes, file: str) -> Source:
    """Return the document in ``data``.

    Args:
        data: The file's bytes, UTF-8.
        file: Its name, as the user gave it.

    Raises:
        InputError: It cannot be read at all. What is wrong but did not keep the rest from being
            read is in ``problems`` of the result instead.
    """
    text = _decode(data, file)
    composer = Composer(yaml.parse(text, Loader=yaml.SafeLoader), file)
    try:
        root = composer.document()
    except yaml.MarkedYAMLError as error:
        raise InputError([_syntax_problem(error, text, file)]) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # PyYAML lets chr() and int() fail
        message = f"not valid YAML: {str(error).splitlines()[0]}"
        raise InputError([Problem(message, file=file)]) from error
    if root is None or (root.text == "" and root.value is None):
        message = "the file holds nothing but comments" if text.strip() else "the file is empty"
        _fail(file, 0, message)
    if root.entries is None:
        shown = "a list" if root.items is not None else "a single value"
        _fail(file, root.line, f"found {shown} at the top", "write `field: value` lines")
    source = Source(file, problems=tuple(composer.problems))
    source.data.update(_expand(root, (), source))
    return source


def _expand(node: Node, path: Path, source: Source) -> Any:
    source.value_lines[path] = node.line
    if node.entries is not None:
        mapping = {}
        for key, line, value in node.entries:
            source.key_lines[(*path, key)] = line
            mapping[key] = _expand(value, (*path, key), source)
        return mapping
    if node.items is not None:
        for index, item in enumerate(node.items):
            source.key_lines[(*path, index)] = item.line
        return [_expand(item, (*path, index), source) for index, item in enumerate(node.items)]
    source.texts[path] = node.text or ""
    return node.value


def _decode(data: bytes, file: str) -> str:
    if len(data) > SIZE_MAX_BYTES:
        _fail(file, 0, "the file is larger than 1 MiB", "make it smaller")
    if _UTF16.match(data):
        _fail(file, 1, "the file is in UTF-16", "save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = f"0x{data[error.start]:02x}"
        _fail(file, line, f"the byte {byte} is not UTF-8", "save the file as UTF-8")
    if odd := yaml.reader.Reader.NON_PRINTABLE.search(text):
        line = text.count("\n", 0, odd.start()) + 1
        name = "a NUL byte" if odd[0] == "\0" else f"the control character {odd[0]!a}"
        _fail(file, line, f"found {name}", "remove it")
    return text


def _syntax_problem(error: yaml.MarkedYAMLError, text: str, file: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 0
    lines = text.split("\n")
    for number in range(min(line, len(lines)), 0, -1):
        if _TAB_INDENT.match(lines[number - 1]):
            message = "a tab stands in the indentation"
            return Problem(message, "YAML does not allow tabs; use spaces", file, number)
    said = error.problem or error.context or "unreadable"
    opened = error.context_mark.line + 1 if error.context_mark else line
    since = f" (begun in line {opened})" if opened != line else ""
    for fragment, message, remedy in _SYNTAX:
        if fragment in said:
            return Problem(f"{message}{since}", remedy, file, line)
    return Problem(f"not valid YAML: {said}{since}", "", file, line)


def _fail(file: str, line: int, message: str, remedy: str = "") -> NoReturn:
    raise InputError([Problem(message, remedy, file, line)])
