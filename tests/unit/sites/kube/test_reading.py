"""What the API answers is checked: what cannot be read is named with its object and field."""

import pytest

from gridloom.base.errors import SiteError
from gridloom.sites.kube.parse_nodes import read_nodes
from gridloom.sites.kube.parse_pods import read_pod
from gridloom.sites.kube.reading import items, said, seconds


@pytest.mark.parametrize(
    ("answer", "objects"),
    [
        ([{"a": 1}], [{"a": 1}]),
        ({"kind": "NodeList", "items": [1, 2]}, [1, 2]),
        ({"kind": "NodeList", "items": None}, []),
        ({"kind": "NodeList"}, []),
    ],
    ids=["list", "items", "null", "left out"],
)
def test_objects_of_a_list(answer: object, objects: list[object]) -> None:
    assert items(answer) == objects


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        ({"kind": "Status", "metadata": {}}, "Status: it has no items"),
        ({"kind": "NodeList", "items": {}}, "NodeList: it has no items"),
        ({"metadata": "x"}, "object: it has no items"),
        ("<html>", "str: it has no items"),
    ],
    ids=["status", "mapping", "nothing", "text"],
)
def test_what_is_no_list(answer: object, named: str) -> None:
    with pytest.raises(SiteError, match=named):
        items(answer)


def test_a_bad_field_is_named_with_its_object() -> None:
    node = {"kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "many"}}}
    with pytest.raises(SiteError) as refused:
        read_nodes([node])
    assert str(refused.value) == (
        "the cluster's answer cannot be read: Node n1: 'many' is not a quantity, as 8, 1500m or "
        "80Gi - at `$.status.allocatable[...]`"
    )


@pytest.mark.parametrize(
    ("data", "said_"),
    [
        ({"kind": "Pod", "metadata": {"name": "p"}, "status": []}, r"Pod p: .*`\$.status`"),
        ({"kind": "Pod", "metadata": {}}, r"Pod: .*`name`"),
        ({}, r"object: .*`metadata`"),
        ([], r"list: "),
        (None, r"NoneType: "),
    ],
    ids=["status", "name", "metadata", "list", "null"],
)
def test_what_is_no_pod(data: object, said_: str) -> None:
    with pytest.raises(SiteError, match=said_):
        read_pod(data)


def test_nulls_and_unknown_fields_are_passed_over() -> None:
    pod = {
        "metadata": {"name": "p", "labels": None, "new": 1},
        "spec": None,
        "status": {"phase": "Pending", "containerStatuses": None, "conditions": [None]},
    }
    assert read_pod(pod).name == "p"


def test_words_stand_in_one_line() -> None:
    assert said("a\n  b", "", " ", "c") == "a b: c"
    assert seconds(None) == 0.0
