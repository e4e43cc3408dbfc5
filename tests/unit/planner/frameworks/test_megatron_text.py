"""Words of a command in the texts that people keep."""

import pytest

from gridloom.base.errors import InputError
from gridloom.planner.frameworks.megatron_text import read


@pytest.mark.parametrize(
    "text",
    [
        "--a 1 --b two --flag",
        "--a=1 --b='two' --flag",
        '--a 1 \\\n  --b "two" \\\n  --flag\n',
        "# --a 9\n--a 1  # and more\n--b two --flag",
        "--a 9 --b two --a 1 --flag",
        "N=1\n--a $N --b ${WORD:-two} --flag",
        "N=1; --a ${N} --b two --flag",
        'ARGS="--a 1 --b two \\\n --flag"\npython train.py $ARGS',
        "ARGS=(--a 1\n --b two # why\n --flag)\npython train.py ${ARGS[@]}",
        "NODES=4\nEACH=2\n--a $(( $NODES / $EACH - 1 )) --b two --flag",
        "ARGS=(\n--b two\n)\nARGS+=(--flag)\n--a 1",
        "ARGS=(\n'--a 1'\n\"--b two\" # it isn't\n--flag)",
        "a: 1\nb: two\nflag: true\n",
        "--a: 1\n--b: two\n--flag: true\n--other: false\n",
        "MODEL_ARGS:\n  --a: 1\n  --b: two\n  --flag: true\n",
    ],
)
def test_words_are_found(text: str) -> None:
    given = read(text)
    assert given.number("a") == 1
    assert given.word("b") == "two"
    assert given.has("flag")
    assert not given.has("other")
    assert given.problems == []
    assert given.unread == ()


def test_underlines_are_dashes() -> None:
    assert read(["--nproc_per_node", "8"]).number("nproc-per-node") == 8


def test_several_words_stay_together() -> None:
    assert read("data-path: [0.5, first, 0.5, second]\n").has("data-path")
    given = read("--data-path 0.5 first 0.5 second --bf16")
    assert given.unread == ("--data-path", "--bf16")


@pytest.mark.parametrize("text", ["--a 'open", "a: [1\n", "MODEL_ARGS:\n- a\n"])
def test_text_that_is_neither_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        read(text)


@pytest.mark.parametrize("text", ["--a", "--a $N", "--a $((N*2))", "--a $((1/0))", "--a $((2**9))"])
def test_a_value_that_is_not_there_is_a_problem(text: str) -> None:
    given = read(text)
    assert given.number("a", 7) == 7
    assert [problem.field for problem in given.problems] == ["--a"]
