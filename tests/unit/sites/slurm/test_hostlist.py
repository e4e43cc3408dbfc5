"""Host lists: what Slurm writes, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridloom.sites.slurm.hostlist import HOSTS_MAX, compress, expand

NAMES = st.from_regex(r"[a-z]([a-z0-9.-]{0,6}[a-z.-])?[0-9]{0,12}", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("(null)", ()),
        ("login", ("login",)),
        ("a,b", ("a", "b")),
        ("n[1-3]", ("n1", "n2", "n3")),
        ("n[01-03,20]", ("n01", "n02", "n03", "n20")),
        ("n[8-11]", ("n8", "n9", "n10", "n11")),
        ("n[098-101]", ("n098", "n099", "n100", "n101")),
        ("n[5]", ("n5",)),
        ("n[2,1,2]", ("n2", "n1", "n2")),
        ("a[1-2]b[3-4]", ("a1b3", "a1b4", "a2b3", "a2b4")),
        ("r[1-2]-ib.cluster", ("r1-ib.cluster", "r2-ib.cluster")),
        ("x, y".replace(" ", ""), ("x", "y")),
        ("[1-2]", ("1", "2")),
    ],
)
def test_a_list_is_expanded_in_its_order(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n[1-2", "not closed"),
        ("n1]", "stray ']'"),
        ("n[[1]]", "stray '['"),
        ("a,,b", "missing beside a comma"),
        ("a,", "missing beside a comma"),
        ("a b", "space at 2"),
        ("n[]", "'' is not a number"),
        ("n[a-b]", "'a-b' is not a number"),
        ("n[3-1]", "counts down"),
        ("n[1-2-3]", "'1-2-3' is not a number"),
        ("n[\u0663]", "is not a number"),
        ("n[1-999999999]", f"more than {HOSTS_MAX}"),
        ("n[1-2000][1-2000]", f"more than {HOSTS_MAX}"),
    ],
)
def test_what_is_no_list_is_told(text: str, said: str) -> None:
    with pytest.raises(ValueError, match="host") as error:
        expand(text)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["login"], "login"),
        (["n1"], "n1"),
        (["n1", "n2", "n3"], "n[1-3]"),
        (["n3", "n2", "n1"], "n[3,2,1]"),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["n8", "n9", "n10"], "n[8-10]"),
        (["n99", "n100"], "n[99-100]"),
        (["n009", "n10"], "n[009,10]"),
        (["n", "n1"], "n,n1"),
        (["n1", "n", "n2"], "n1,n,n2"),
        (["a1b3", "a1b4", "a2b3"], "a1b[3-4],a2b3"),
        (["x", "x"], "x,x"),
    ],
)
def test_neighbours_share_a_bracket(names: list[str], text: str) -> None:
    assert compress(names) == text


@pytest.mark.parametrize("name", ["", "a b", "a,b", "a[1]", "a\n"])
def test_what_is_no_name_cannot_stand_in_a_list(name: str) -> None:
    with pytest.raises(ValueError, match="cannot stand"):
        compress(["ok", name])


@given(st.lists(NAMES))
def test_what_is_compressed_expands_to_the_same_in_the_same_order(names: list[str]) -> None:
    assert expand(compress(names)) == tuple(names)


@given(st.sampled_from(["n", "gpu-a1b", "\u00e9"]), st.integers(0, 5), st.integers(0, 60))
def test_numbers_in_a_row_make_one_range(prefix: str, zeros: int, first: int) -> None:
    names = [f"{prefix}{number:0{zeros}d}" for number in range(first, first + 50)]
    assert expand(compress(names)) == tuple(names)
    if prefix.isascii():
        assert compress(names).count(",") == 0
