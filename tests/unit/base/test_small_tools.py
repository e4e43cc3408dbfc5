"""Codec, errors, clocks and ids."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gridloom.base.codec import decode, encode, pretty
from gridloom.base.errors import (
    BrokenError,
    GridloomError,
    InputError,
    Problem,
    SiteError,
    StaleWriterError,
    WorkFailedError,
)
from gridloom.base.system import SystemClock, SystemIds


class Noun(msgspec.Struct, frozen=True):
    name: str
    sizes: dict[str, int] = {}
    tags: frozenset[str] = frozenset()


NOUN = Noun("n", sizes={"b": 1, "a": 2}, tags=frozenset("zyxwvu"))


def test_what_is_encoded_is_decoded_to_its_equal() -> None:
    assert decode(encode(NOUN), Noun) == NOUN
    assert decode(encode(NOUN).decode(), Noun) == NOUN
    assert decode(pretty(NOUN), Noun) == NOUN
    assert b"\n" not in encode(NOUN)
    assert pretty({"a": 1}) == '{\n  "a": 1\n}\n'


def test_equal_values_give_equal_bytes_in_every_process() -> None:
    same = Noun("n", sizes={"a": 2, "b": 1}, tags=frozenset("uvwxyz"))
    assert encode(same) == encode(NOUN)
    code = "from gridloom.base.codec import encode; print(encode({'t': set('uvwxyz')}).decode())"
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},  # noqa: TID251
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert said == {b'{"t":["u","v","w","x","y","z"]}\n'}


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"name": 1}', b"\xff", b'{"name": "a"} x'])
def test_what_is_no_noun_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode(data, Noun)


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        (Problem("is wrong"), "is wrong"),
        (Problem("is wrong", remedy="write 1"), "is wrong; write 1"),
        (Problem("is wrong", file="job.yaml"), "job.yaml: is wrong"),
        (Problem("is wrong", file="job.yaml", line=3), "job.yaml:3: is wrong"),
        (Problem("is wrong", field="a.b"), "a.b: is wrong"),
        (
            Problem("is wrong", remedy="write 1", file="job.yaml", line=3, field="a.b"),
            "job.yaml:3: a.b: is wrong; write 1",
        ),
    ],
)
def test_a_problem_is_one_sentence_with_its_place(problem: Problem, sentence: str) -> None:
    assert problem.sentence() == sentence


def test_every_problem_of_an_input_is_told() -> None:
    error = InputError([Problem("one", line=0), Problem("two", file="f")])
    assert str(error) == "one\nf: two"
    assert InputError("only").problems == (Problem("only"),)


def test_whose_fault_it_is_decides_the_exit_code() -> None:
    kinds = {InputError: 2, WorkFailedError: 1, SiteError: 1, StaleWriterError: 1, BrokenError: 1}
    assert set(GridloomError.__subclasses__()) >= set(kinds)
    assert {kind: kind("x").exit_code for kind in kinds} == kinds


def test_the_clocks_of_the_machine_go_on(tmp_path: Path) -> None:
    clock = SystemClock()
    (tmp_path / "f").touch()
    assert abs(clock.now_s() - (tmp_path / "f").stat().st_mtime) < 60
    start_s = clock.monotonic_s()
    clock.sleep(0.01)
    assert clock.monotonic_s() - start_s >= 0.01


def test_ids_can_be_read_aloud_and_do_not_repeat() -> None:
    ids = [SystemIds().new_id("job") for _ in range(500)]
    assert len(set(ids)) == 500
    assert not set("".join(ids).replace("job-", "")) & set("01lio")
    assert {len(name) for name in ids} == {10}
