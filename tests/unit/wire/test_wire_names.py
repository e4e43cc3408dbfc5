"""Ranges of names: what they stand for, and what is said of those that stand for nothing."""

import pytest
from pydantic_core import PydanticCustomError

from gridloom.wire.documents_names import NODES_MAX, NodesValue, node_domains, parse_names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n7", ["n7"]),
        ("n[7]", ["n7"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[0-2].x", ["n0.x", "n1.x", "n2.x"]),
        ("n[1, 4,07-08]", ["n1", "n4", "n07", "n08"]),
        ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
        ("[1-2]", ["1", "2"]),
        ("n[1-1]-[3-3]", ["n1-3"]),
        ("n[99-100]", ["n99", "n100"]),
    ],
)
def test_a_range_is_written_out_in_order(text: str, names: list[str]) -> None:
    parsed = parse_names(text)
    assert [*parsed] == names
    assert parsed.count == len(names)
    assert len(parsed.longest) == max(map(len, names))


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("n[1-3", "`n[1-3` is not a range of names", "`n[001-128]` or `n[1,4,7-9]`"),
        ("n1-3]", "is not a range", "`n[001-128]`"),
        ("n[]", "is not a range", "`n[001-128]`"),
        ("n[1,,2]", "is not a range", "`n[001-128]`"),
        ("n[a-b]", "is not a range", "`n[001-128]`"),
        ("n[1-2-3]", "is not a range", "`n[001-128]`"),
        ("n[[1-2]]", "is not a range", "`n[001-128]`"),
        ("n[1234567890]", "is not a range", "`n[001-128]`"),
        ("n[3-1]", "`3-1` in `n[3-1]` is empty", "the smaller number first"),
        ("n/[1-2]", "cannot be a name", "letters, digits"),
        ("-n[1-2]", "cannot be a name", "beginning with a letter or digit"),
        ("", "cannot be a name", "letters"),
        ("n" * 62 + "[9-10]", "cannot be a name", "letters"),
        ("n[1-200001]", "stands for 200,001 names", "at most 200,000"),
        ("n[0-999999999][0-999999999]", "stands for 1,000,000,000,000,000,000", "200,000"),
    ],
)
def test_what_is_no_range_is_explained(text: str, message: str, remedy: str) -> None:
    with pytest.raises(PydanticCustomError) as caught:
        parse_names(text)
    assert caught.value.context is not None
    assert message in caught.value.context["message"]
    assert remedy in caught.value.context["remedy"]


def test_the_most_names_are_allowed() -> None:
    assert parse_names(f"n[1-{NODES_MAX}]").count == NODES_MAX


def test_nodes_are_named_with_their_site() -> None:
    nodes = NodesValue()
    assert nodes.parse("a/n[1-2]") == ("a/n[1-2]",)
    assert [*node_domains(nodes.parse(["a/n[1-2]", "b/x", "a/n2"]))] == ["a/n1", "a/n2", "b/x"]


@pytest.mark.parametrize(
    "value", [[], 3, None, ["a/n", 3], "n1", "a/", "/n", "a b/n", "a/n[1-", "a/n/m", {"a": "n"}]
)
def test_what_names_no_nodes_is_refused(value: object) -> None:
    with pytest.raises(PydanticCustomError):
        NodesValue().parse(value)


def test_nodes_over_all_items_are_bounded() -> None:
    with pytest.raises(PydanticCustomError) as caught:
        NodesValue().parse(["a/n[1-150000]", "b/n[1-150000]"])
    assert caught.value.context == {
        "message": "found 300,000 nodes",
        "remedy": "write at most 200,000, or `sites`",
    }
