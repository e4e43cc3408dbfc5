"""Words of ``#SBATCH`` lines: as sbatch 22.05 was seen to take them apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridloom.sites.slurm.directives import WORD_BYTES_MAX, directive, lines, quote, split

WORDS = st.text(
    st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"]), min_size=1, max_size=30
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (" -N 2", ["-N", "2"]),
        ("-N2", ["-N2"]),
        ("\t-N2 \v\f --exclusive ", ["-N2", "--exclusive"]),
        (" -N2 # -J foo", ["-N2"]),
        (" -J a#b -N2", ["-J", "a"]),
        (' -J "a#b" -N2', ["-J", "a#b", "-N2"]),
        (r" -J 'a\b c'", ["-J", "ab c"]),
        (r" -J a\ b\#c\\", ["-J", r"a b#c" + "\\"]),
        (' --comment="x y"\'z"\'', ['--comment=x yz"']),
        (' -J "" -N2', ["-J"]),
        (" -J a\\", ["-J", "a"]),
        (" -J a:b", ["-J", "a:b"]),
        ("", []),
    ],
)
def test_a_line_is_taken_apart(text: str, words: list[str]) -> None:
    assert split(text) == words


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (' -J "foo', 'a quote " is not closed'),
        (" -J 'a\\'", "a quote ' is not closed"),
        (" : -N2", "cannot begin with a colon"),
        (" -N2 :x", "cannot begin with a colon"),
    ],
)
def test_what_sbatch_refuses(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        split(text)


@given(st.lists(WORDS, max_size=5))
def test_what_is_quoted_is_found_again(words: list[str]) -> None:
    assert split(" " + " ".join(map(quote, words))) == words


@given(WORDS)
def test_a_directive_sets_one_value(value: str) -> None:
    line = directive("comment", value)
    assert list(lines(line)) == [(1, line.removeprefix("#SBATCH"), True)]
    assert split(line.removeprefix("#SBATCH")) == [f"--comment={value}"]
    assert directive("requeue") == "#SBATCH --requeue"


@pytest.mark.parametrize("word", ["", "a\nb", "a\rb", "a\0b", "a" * (WORD_BYTES_MAX + 1)])
def test_what_cannot_be_written(word: str) -> None:
    with pytest.raises(ValueError, match="it is"):
        quote(word)


def test_lines_behind_the_first_command_are_not_read() -> None:
    script = (
        "#!/bin/bash\n\n   \n  # c\n#SBATCH -N2\n ##SBATCH -N3\n #SBATCH -N4\n#SLURM -N5\n"
        "#SBATCHX\n  cd /x\n#SBATCH -N6\n"
    )
    assert list(lines(script)) == [
        (5, " -N2", True),
        (8, " -N5", True),
        (9, "X", True),
        (11, " -N6", False),
    ]
