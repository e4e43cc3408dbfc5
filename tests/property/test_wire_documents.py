"""Whatever bytes are handed over, the answer is a document or ``InputError``."""

import json
import shlex
from pathlib import Path
from typing import Any

import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from tests.examples import at_least

from gridloom.base.errors import InputError, Problem
from gridloom.model.parallel import ParallelPlan
from gridloom.model.spec import Option
from gridloom.wire.command import parse_command, script_path
from gridloom.wire.convert import (
    deadline_s,
    to_bookings,
    to_inventory,
    to_job_spec,
    to_request,
)
from gridloom.wire.documents import read_grid, read_job
from gridloom.wire.documents_names import parse_names
from gridloom.wire.source import read_source

EXAMPLES = Path(__file__).parents[2] / "examples"
JOBS = [(EXAMPLES / name).read_bytes() for name in ("gpt-two-sites.yaml", "torchrun-script.yaml")]
GRID = (EXAMPLES / "two-sites.yaml").read_bytes()
CAMPUS = (EXAMPLES / "campus-grid.yaml").read_bytes()
CAMPUS_JOB = b"""\
name: campus-job
run: "true"
queue: vision
user: ada
forecast: {duration: 6h, spread: 0.4, checkpoint_time: 40s, restart_time: 2m}
deadline: 8h
after: [a-1, {job: b-2, when: afterany}]
array: 0-9%3
elastic: true
preemptible: false
on_loss: shrink
placement: {tensor: island, replica: {level: leaf, required: false}, gang: spine}
parallel: {tensor: 8}
data: {sites: [campus], required: true}
resources:
  accelerators: h100:16-64
  nodes: ["campus/s1-l[1-2]-n[01-04]"]
  labels: {fabric: infiniband}
  ranks_per_node_max: 8
  cpus_per_rank: 8
  memory_per_rank: 64GB
  spares: 1
"""
DOCUMENTS = [*JOBS, GRID, CAMPUS, CAMPUS_JOB]
OPTIONS = (Option(accelerator="h100", plan=ParallelPlan(tensor=8, pipeline=2, data=2)),)

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
        to_job_spec(job, OPTIONS, workdir="/", checkpoint_directory="/c")
        deadline_s(job, 0.0)
    except InputError as error:
        problems += error.problems
    try:
        grid = read_grid(data, "f").document
        to_bookings(grid)
        names = {f"{site.name}/{node.name}" for site in to_inventory(grid).sites
                 for node in site.nodes}  # fmt: skip
        assert sum(len(site.nodes) for site in to_inventory(grid).sites) == len(names)
    except InputError as error:
        problems += error.problems
    assert problems  # no document is both a job and a grid
    for problem in problems:
        assert problem.message
        assert 0 <= problem.line <= len(data) + 1


@given(st.binary(max_size=200))
@example(b"\xfe\xff")
@at_least(100)
def test_random_bytes(data: bytes) -> None:
    check(data)


@given(st.text(max_size=200))
@at_least(100)
def test_random_text(text: str) -> None:
    check(text.encode("utf-8", "surrogatepass"))


@given(
    st.sampled_from(DOCUMENTS),
    st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 30), PIECES), min_size=1, max_size=5),
)
@at_least(100)
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
@at_least(60)
def test_any_value_at_any_field(data: st.DataObject, value: object) -> None:
    original = data.draw(st.sampled_from(DOCUMENTS))
    document = read_source(original, "f").data
    here: Any = document
    while True:
        keys = sorted(here) if isinstance(here, dict) else range(len(here))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(here[key], dict | list) or not here[key] or data.draw(st.booleans()):
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


def test_good_documents_of_a_campus_say_the_same_in_json() -> None:
    grid = read_grid(CAMPUS, "grid").document
    again = json.dumps(read_source(CAMPUS, "grid").data).encode()
    assert read_grid(again, "grid").document == grid
    inventory = to_inventory(grid)
    job = read_job(CAMPUS_JOB, "job", inventory).document
    written = json.dumps(read_source(CAMPUS_JOB, "job").data).encode()
    assert read_job(written, "job", inventory).document == job


@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 40), st.integers(0, 7)),
        min_size=1,
        max_size=3,
    ),
    st.text("abc.-_", max_size=3),
)
def test_a_range_stands_for_the_names_that_it_spells(
    spans: list[tuple[int, int, int]], tail: str
) -> None:
    numbers = [
        [f"{n:0{width}d}" for n in range(first, first + more + 1)] for first, more, width in spans
    ]
    inside = ",".join(f"{of_span[0]}-{of_span[-1]}" for of_span in numbers)
    expected = [f"n{number}{tail}" for of_span in numbers for number in of_span]
    parsed = parse_names(f"n[{inside}]{tail}")
    assert [*parsed] == expected
    assert parsed.count == len(expected)


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
