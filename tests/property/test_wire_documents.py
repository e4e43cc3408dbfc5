"""Whatever bytes are handed over, the answer is a document or ``InputError``."""

import json
import shlex
from pathlib import Path

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gridloom.base.errors import InputError, Problem
from gridloom.wire.command import parse_command, script_path
from gridloom.wire.convert import to_inventory, to_job_spec, to_request
from gridloom.wire.documents import read_grid, read_job
from gridloom.wire.source import read_source

EXAMPLES = Path(__file__).parents[2] / "examples"
JOBS = [(EXAMPLES / name).read_bytes() for name in ("gpt-two-sites.yaml", "torchrun-script.yaml")]
GRID = (EXAMPLES / "two-sites.yaml").read_bytes()

PIECES = st.sampled_from(
    [b"", b"\n", b"\t", b": ", b"- ", b"[", b"]", b"{", b"}", b"'", b'"', b"&a ", b"*a", b"!!int ",
     b"# ", b"| ", b"\xff", b"\0", b"~", b"-1", b".nan", b"1e999", b"9" * 400, b"---\n", b"<<: ",
     b"name", b"sites", b"\xc2\x85", b"% ", b"\\U0011FFFF", b"? "]
)  # fmt: skip


def check(data: bytes) -> None:
    problems: list[Problem] = []
    try:
        job = read_job(data, "f").document
        to_request(job)
        to_job_spec(job, (), workdir="/", checkpoint_directory="/c")
    except InputError as error:
        problems += error.problems
    try:
        to_inventory(read_grid(data, "f").document)
    except InputError as error:
        problems += error.problems
    assert problems  # no document is both a job and a grid
    for problem in problems:
        assert problem.message
        assert 0 <= problem.line <= len(data) + 1


@given(st.binary(max_size=200))
@example(b"\xfe\xff")
@settings(max_examples=300)
def test_random_bytes(data: bytes) -> None:
    check(data)


@given(st.text(max_size=200))
@settings(max_examples=300)
def test_random_text(text: str) -> None:
    check(text.encode("utf-8", "surrogatepass"))


@given(
    st.sampled_from([*JOBS, GRID]),
    st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 30), PIECES), min_size=1, max_size=5),
)
@settings(max_examples=300, deadline=None)
def test_mutations_of_good_documents(document: bytes, edits: list[tuple[int, int, bytes]]) -> None:
    for place, removed, inserted in edits:
        start = place % (len(document) + 1)
        document = document[:start] + inserted + document[start + removed :]
    check(document)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)  # fmt: skip


@given(st.data(), VALUES)
@settings(max_examples=300, deadline=None)
def test_any_value_at_any_field(data: st.DataObject, value: object) -> None:
    original = data.draw(st.sampled_from([*JOBS, GRID]))
    document = read_source(original, "f").data
    here = document
    while True:
        key = data.draw(st.sampled_from(sorted(here)))
        if not isinstance(here[key], dict) or data.draw(st.booleans()):
            break
        here = here[key]
    here[key] = value
    check(yaml.safe_dump(document, allow_unicode=True).encode("utf-8", "replace"))


@given(st.sampled_from(JOBS))
def test_a_good_document_says_the_same_in_json(data: bytes) -> None:
    again = json.dumps(read_source(data, "f").data).encode()
    assert read_job(again, "f").document == read_job(data, "f").document
    grid = read_grid(GRID, "grid")
    job = read_job(again, "job", to_inventory(grid.document))
    assert to_inventory(grid.document).sites
    assert job.lines[("name",)] == 1


@given(st.text(max_size=60))
def test_any_command(text: str) -> None:
    command = parse_command(text)
    assert bool(command.argv) != bool(command.problems)
    script_path(command.argv)


WORD = st.text(alphabet=st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=10)


@given(st.lists(WORD, min_size=1, max_size=5))
def test_quoted_words_come_back(words: list[str]) -> None:
    text = "python t.py " + shlex.join(words)
    assert parse_command(text).argv == ("python", "t.py", *words)
    launched = parse_command(f"torchrun --nproc-per-node=2 t.py {shlex.join(words)}")
    assert launched.argv == ("python", "t.py", *words)
