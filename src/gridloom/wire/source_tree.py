"""YAML events to a tree of nodes: keys with their lines, YAML 1.2 scalars, bounded in every way."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

import yaml

from gridloom.base.errors import InputError, Problem

NODES_MAX = 100_000
DEPTH_MAX = 40
_INTEGER_LENGTH_MAX = 40  # longer ones stay text: no field takes them, and int() refuses thousands

Path = tuple[str | int, ...]
"""Place of a value in a document: keys and list positions from the top."""

_INT = re.compile(r"[-+]?[0-9]+")
_OTHER_INT = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?(\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN")
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_UNUSABLE = re.compile("[\x00\ud800-\udfff]")


@dataclass
class Node:
    """One value of a document.

    Attributes:
        line: Where it begins, from 1.
        value: Of a scalar, by the rules of YAML 1.2.
        text: Of a scalar, as written.
        items: Of a list.
        entries: Of a mapping: key, line of the key, value.
        size: Number of values in it once aliases are expanded.
        height: Levels in it once aliases are expanded.
    """

    line: int
    value: object = None
    text: str | None = None
    items: list["Node"] | None = None
    entries: list[tuple[str, int, "Node"]] | None = None
    size: int = 1
    height: int = 1

    def hold(self, child: "Node") -> None:
        """Count ``child`` in size and height."""
        self.size += child.size
        self.height = max(self.height, child.height + 1)


def dotted(path: Path) -> str:
    """Return ``links[0].bandwidth`` for ``("links", 0, "bandwidth")``."""
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return text


def scalar(text: str) -> object:
    """Return what a plain scalar means in YAML 1.2: ``on``, ``yes`` and ``12:30`` stay text."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) <= _INTEGER_LENGTH_MAX:
        if _INT.fullmatch(text):
            return int(text)
        if _OTHER_INT.fullmatch(text):
            return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _INFINITE.fullmatch(text):
        return float(text.lower().replace(".", ""))
    return text


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None  # only events made by hand have none
    return event.start_mark.line + 1


@dataclass
class Composer:
    """Builds the tree of one document.

    Attributes:
        events: What the parser reads.
        file: Name of the document, for problems.
        problems: What is wrong but did not keep the rest from being read.
    """

    events: Iterator[yaml.Event]
    file: str
    problems: list[Problem] = field(default_factory=list)
    _anchors: dict[str, Node | None] = field(default_factory=dict)
    _count: int = 0

    def document(self) -> Node | None:
        """Return the only document of the stream, or None when the stream is empty.

        Raises:
            InputError: More than one document, too many values, too deep, or a broken alias.
            yaml.YAMLError: Not YAML.
        """
        next(self.events)  # the start of the stream
        if isinstance(next(self.events), yaml.StreamEndEvent):
            return None
        root = self._node(next(self.events), ())
        next(self.events)  # the end of the document
        after = next(self.events)
        if not isinstance(after, yaml.StreamEndEvent):
            self._fail(_line(after), "a second document begins here", "keep one document in a file")
        return root

    def _node(self, event: yaml.Event, path: Path) -> Node:
        line = _line(event)
        self._count += 1
        if self._count > NODES_MAX:
            self._fail(line, f"the file holds more than {NODES_MAX:,} values", "make it smaller")
        if len(path) > DEPTH_MAX:
            self._fail(line, f"values are nested more than {DEPTH_MAX} deep", "make it flatter")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor, line)
        assert isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
        if event.tag not in (None, "!"):
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            self._report(line, path, f"found the tag `{tag}`", "write plain values, without tags")
        if event.anchor:
            self._anchors[event.anchor] = None  # open: an alias to it would contain itself
        node = self._content(event, path)
        if event.anchor:
            self._anchors[event.anchor] = node
        if node.size > NODES_MAX or node.height > DEPTH_MAX + 1:
            self._fail(
                line, f"aliases expand to more than {NODES_MAX:,} values or {DEPTH_MAX} levels",
                "write the values out",
            )  # fmt: skip
        return node

    def _content(self, event: yaml.Event, path: Path) -> Node:
        line = _line(event)
        if isinstance(event, yaml.ScalarEvent):
            if _UNUSABLE.search(event.value):
                self._report(
                    line, path, "the text holds a NUL or half a character", "remove its escape"
                )
                return Node(line, value="", text="")
            plain = event.style is None
            return Node(line, scalar(event.value) if plain else event.value, event.value)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._list(Node(line, items=[]), path)
        return self._mapping(Node(line, entries=[]), path)

    def _list(self, node: Node, path: Path) -> Node:
        items: list[Node] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self._node(event, (*path, len(items))))
            node.hold(items[-1])
        node.items = items
        return node

    def _mapping(self, node: Node, path: Path) -> Node:
        entries: list[tuple[str, int, Node]] = []
        first_line: dict[str, int] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self._node(event, path)
            inner = (*path, key.text or "")
            value = self._node(next(self.events), inner)
            if self._key_is_wrong(key, path):
                continue
            name = str(key.value)
            if name in first_line:
                self._report(
                    key.line, inner,
                    f"`{name}` is written twice, first in line {first_line[name]}", "keep one",
                )  # fmt: skip
                continue
            first_line[name] = key.line
            entries.append((name, key.line, value))
            node.hold(value)
        node.entries = entries
        return node

    def _key_is_wrong(self, key: Node, path: Path) -> bool:
        if key.value == "<<":
            self._report(key.line, path, "found the merge key `<<`", "write the fields out")
        elif key.text is None:
            self._report(key.line, path, "a list or mapping stands as a key", "use text as a key")
        elif not isinstance(key.value, str):
            shown = key.text or "nothing"
            self._report(
                key.line, path, f"the key `{shown}` is not text", f'put it in quotes: "{shown}"'
            )
        else:
            return False
        return True

    def _alias(self, name: str | None, line: int) -> Node:
        if name is None or name not in self._anchors:
            self._fail(line, f"the alias `*{name}` has no anchor", f"write `&{name}` before it")
        node = self._anchors[name]
        if node is None:
            self._fail(line, f"the alias `*{name}` contains itself", "write the values out")
        return node

    def _fail(self, line: int, message: str, remedy: str) -> NoReturn:
        raise InputError([*self.problems, Problem(message, remedy, self.file, line)])

    def _report(self, line: int, path: Path, message: str, remedy: str) -> None:
        self.problems.append(Problem(message, remedy, self.file, line, dotted(path)))
