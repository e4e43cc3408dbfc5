"""YAML bytes to data with lines, and everything that can be wrong with its form."""

import pytest

from gridloom.base.errors import InputError
from gridloom.wire.source import SIZE_MAX_BYTES, read_source
from gridloom.wire.source_tree import dotted, scalar


def fatal(data: bytes) -> str:
    with pytest.raises(InputError) as caught:
        read_source(data, "f")
    return str(caught.value)


BROKEN = {
    "empty": (b"", "f: the file is empty"),
    "blank": (b"\n \n", "f: the file is empty"),
    "comments": (b"# hi\n\n# there", "f: the file holds nothing but comments"),
    "bare document": (b"---\n", "f: the file holds nothing but comments"),
    "list": (b"# x\n- a\n", "f:2: found a list at the top; write `field: value` lines"),
    "word": (b"hello", "f:1: found a single value at the top; write `field: value` lines"),
    "tab": (
        b"a:\n\tb: 1",
        "f:2: a tab stands in the indentation; YAML does not allow tabs; use spaces",
    ),
    "tab after value": (
        b"a: 1\n\tb: 2",
        "f:2: a tab stands in the indentation; YAML does not allow tabs; use spaces",
    ),
    "colon in value": (
        b"a: b: c",
        "f:1: `: ` cannot stand here; put a value that contains `: ` in quotes, or check the"
        " indentation",
    ),
    "quote": (
        b"a: 'x\nb: y",
        "f:2: a quote is opened and never closed (begun in line 1); close it",
    ),
    "bracket": (
        b"a: [1,\nb: 2",
        "f:2: a bracket is not closed before this place (begun in line 1); close it, or add a"
        " comma",
    ),
    "bracket in text": (
        b"a: b\nc: [x[1-2], y]",
        'f:2: a bracket stands inside text; put the text in quotes, as "n[1-4]"',
    ),
    "bracket in a key": (
        b"a: {x[1-2]: y}",
        'f:1: a bracket stands inside text; put the text in quotes, as "n[1-4]"',
    ),
    "bracket too many": (
        b"a: {b: 1}}",
        "f:1: a bracket is closed here that was never opened; remove it",
    ),
    "no colon": (
        b"a: 1\nb 2\nc: 3",
        "f:3: a line before this one is neither `key: value` nor a list item (begun in line 2);"
        " write `key: value`, with a space after the colon",
    ),
    "indentation": (
        b"a: x\nb:\n  - 1\n c: 2",
        "f:4: this line does not fit the lines above it (begun in line 1); indent fields of one"
        " level alike, and put a value that begins with a quote in quotes",
    ),
    "first line indented": (
        b"  a: 1\nb: 2",
        "f:2: this line is indented less than the first one; let all fields of the top begin in"
        " one column",
    ),
    "at sign": (b"a: @x", "f:1: a value cannot begin with this character; put the value in quotes"),
    "tab in the middle": (
        b"a: 1\nb:\n  c: \t@x\nd: \t- 1",
        "f:3: a tab stands where YAML allows spaces only; use spaces, or put a value that begins"
        " with a tab in quotes",
    ),
    "tab before a value": (
        b"a: [\t1,\n\t@]",
        "f:1: a tab stands where YAML allows spaces only; use spaces, or put a value that begins"
        " with a tab in quotes",
    ),
    "star": (b"a: *", "f:1: a value cannot begin with `*` or `&`; put the value in quotes"),
    "escape": (b'a: "\\q"', "f:1: a backslash begins no known escape; use single quotes"),
    "other syntax": (
        b"a: !foo!bar x",
        "f:1: not valid YAML: found undefined tag handle '!foo!'",
    ),
    "character of no plane": (
        b'a: "\\U0011FFFF"',
        "f: not valid YAML: chr() arg not in range(0x110000)",
    ),
    "not utf-8": (b"a: 1\nb: \xe9", "f:2: the byte 0xe9 is not UTF-8; save the file as UTF-8"),
    "utf-16": ("a: 1".encode("utf-16"), "f:1: the file is in UTF-16; save it as UTF-8"),
    "utf-16 without mark": (
        "a: 1".encode("utf-16-be"),
        "f:1: the file is in UTF-16; save it as UTF-8",
    ),
    "nul": (b"a: 1\nb: \0", "f:2: found a NUL byte; remove it"),
    "control": (b"a: \x07", "f:1: found the control character '\\x07'; remove it"),
    "two documents": (
        b"a: 1\n---\nb: 2",
        "f:2: a second document begins here; keep one document in a file",
    ),
    "too deep": (
        b"a: " + b"[" * 50000,
        "f:1: values are nested more than 40 deep; make it flatter",
    ),
    "too deep by aliases": (
        b"a0: &a0 [1]\n" + b"".join(b"a%d: &a%d [*a%d]\n" % (i, i, i - 1) for i in range(1, 60)),
        "f:41: aliases expand to more than 100,000 values or 40 levels; write the values out",
    ),
    "bomb": (
        b"a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n"
        + b"".join(b"a%d: &a%d [%s]\n" % (i, i, b",".join([b"*a%d" % (i - 1)] * 10))
                   for i in range(1, 12)),
        "f:5: aliases expand to more than 100,000 values or 40 levels; write the values out",
    ),
    "alias in itself": (
        b"a: &x [1, *x]",
        "f:1: the alias `*x` contains itself; write the values out",
    ),
    "alias of nothing": (b"a: *x", "f:1: the alias `*x` has no anchor; write `&x` before it"),
    "too large": (
        b"#" * (SIZE_MAX_BYTES + 1),
        "f: the file is larger than 1 MiB; make it smaller",
    ),
    "too many": (
        b"a: [" + b"1," * 100_001 + b"]",
        "f:1: the file holds more than 100,000 values; make it smaller",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.unmeasured) if n == "too many" else n for n in BROKEN],
)
def test_a_broken_form_is_one_sentence(name: str) -> None:
    data, sentence = BROKEN[name]
    assert fatal(data) == sentence


FORM = {
    "duplicates": (
        b"a: 1\na: 2\nb: {c: 1, c: 2}\na: 3",
        [
            "f:2: a: `a` is written twice, first in line 1; keep one",
            "f:3: b.c: `c` is written twice, first in line 3; keep one",
            "f:4: a: `a` is written twice, first in line 1; keep one",
        ],
    ),
    "keys": (
        b"1: x\ntrue: y\n? [a]\n: 1\n~: 2\nb: {2.5: 1}",
        [
            'f:1: the key `1` is not text; put it in quotes: "1"',
            'f:2: the key `true` is not text; put it in quotes: "true"',
            "f:3: a list or mapping stands as a key; use text as a key",
            'f:5: the key `~` is not text; put it in quotes: "~"',
            'f:6: b: the key `2.5` is not text; put it in quotes: "2.5"',
        ],
    ),
    "tag": (
        b"a: !!python/object/apply:os.system [x]",
        [
            "f:1: a: found the tag `!!python/object/apply:os.system`; write plain values, without"
            " tags"
        ],
    ),
    "merge": (b"<<: {a: 1}", ["f:1: found the merge key `<<`; write the fields out"]),
    "half a character": (
        b'a: "\\ud800"\nb: "\\0"',
        [
            "f:1: a: the text holds a NUL or half a character; remove its escape",
            "f:2: b: the text holds a NUL or half a character; remove its escape",
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORM)
def test_what_is_wrong_but_readable_is_collected(name: str) -> None:
    data, sentences = FORM[name]
    assert [problem.sentence() for problem in read_source(data, "f").problems] == sentences


def test_a_duplicate_and_a_syntax_error_are_told_one_after_the_other() -> None:
    assert fatal(b"a: 1\na: 2\n---\nb: 1").count("\n") == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"), ("yes", "yes"), ("no", "no"), ("off", "off"), ("true", True),
        ("False", False),
        ("12:30", "12:30"), ("010", 10), ("0o17", 15), ("0x1F", 31), ("-3", -3), ("+3", 3),
        ("1e-3", 0.001), (".5", 0.5), ("2_000", "2_000"), ("1.", 1.0), ("", None), ("~", None),
        ("-.inf", float("-inf")), ("2024-01-01", "2024-01-01"), ("9" * 50, float("9" * 50)),
        ("0o8", "0o8"), ("1e999", float("inf")), ("cpu:4", "cpu:4"),
    ],
)  # fmt: skip
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    assert scalar(text) == value
    assert type(scalar(text)) is type(value)


def test_not_a_number_is_read_as_one() -> None:
    value = scalar(".nan")
    assert isinstance(value, float)
    assert value != value


def test_lines_of_keys_and_values() -> None:
    source = read_source(
        b"\xef\xbb\xbfa: 1\nb:\n  - x\n  - c: |\n      two\n      lines\nd:\n  e", "f"
    )
    assert source.data == {"a": 1, "b": ["x", {"c": "two\nlines\n"}], "d": "e"}
    assert source.key_lines == {
        ("a",): 1, ("b",): 2, ("b", 0): 3, ("b", 1): 4, ("b", 1, "c"): 4, ("d",): 7,
    }  # fmt: skip
    assert source.value_lines[("b",)] == 3
    assert source.line(("b",)) == 2
    assert source.line(("d",)) == 8
    assert source.line(("b", 1, "missing")) == 4
    assert source.line(("missing",)) == 0
    assert source.texts[("a",)] == "1"


def test_aliases_are_expanded() -> None:
    source = read_source(b"a: &x {y: [1]}\nb: *x\n", "f")
    assert source.data == {"a": {"y": [1]}, "b": {"y": [1]}}
    assert source.line(("b", "y", 0)) == 1
    assert source.key_lines[("b",)] == 2


def test_quoted_scalars_stay_text() -> None:
    assert read_source(b"a: '1'\nb: \"true\"\nc: !!str 5", "f").data["a"] == "1"


def test_dotted() -> None:
    assert dotted(("links", 0, "between")) == "links[0].between"
    assert dotted(()) == ""
