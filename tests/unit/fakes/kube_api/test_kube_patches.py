"""JSON patch and merge patch by their RFCs, strategic merge patch by its documentation."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.kube_api.patches import json_patch, merge_patch, strategic_patch
from tests.fakes.kube_api.resources import Resources
from tests.fakes.kube_api.status import ApiError, Obj

# The table of RFC 7386, appendix A
RFC_7386 = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "result"), RFC_7386)
def test_merge_patch(target: Any, patch: Any, result: Any) -> None:
    assert merge_patch(target, patch) == result


plain = st.recursive(
    st.integers(0, 3) | st.booleans() | st.text("ab", max_size=2),
    lambda inner: (
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3) | st.lists(inner, max_size=2)
    ),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from("abcd"), plain, max_size=4)


def difference(old: Obj, new: Obj) -> Obj:
    patch: Obj = dict.fromkeys(set(old) - set(new))
    for name, one in new.items():
        if isinstance(one, dict) and isinstance(old.get(name), dict):
            patch[name] = difference(old[name], one)
        elif name not in old or old[name] != one or type(old[name]) is not type(one):
            patch[name] = one
    return patch


@given(objects, objects)
def test_a_difference_merged_in_gives_the_new(old: Obj, new: Obj) -> None:
    assert merge_patch(old, difference(old, new)) == new


# After RFC 6902, appendix A
RFC_6902 = [
    ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"foo": "bar", "baz": "qux"}),
    ({"foo": [1, 3]}, [{"op": "add", "path": "/foo/1", "value": 2}], {"foo": [1, 2, 3]}),
    ({"foo": [1]}, [{"op": "add", "path": "/foo/-", "value": 2}], {"foo": [1, 2]}),
    ({"baz": 1, "foo": 2}, [{"op": "remove", "path": "/baz"}], {"foo": 2}),
    ({"foo": [1, 2, 3]}, [{"op": "remove", "path": "/foo/1"}], {"foo": [1, 3]}),
    ({"baz": 1}, [{"op": "replace", "path": "/baz", "value": 2}], {"baz": 2}),
    ({"a": [1, 2]}, [{"op": "replace", "path": "/a/0", "value": 5}], {"a": [5, 2]}),
    (
        {"a": {"b": 1}, "c": {}},
        [{"op": "move", "from": "/a/b", "path": "/c/d"}],
        {"a": {}, "c": {"d": 1}},
    ),
    ({"a": 1}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": 1, "b": 1}),
    ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}),
    ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
    ({"a/b": 1}, [{"op": "replace", "path": "/a~1b", "value": 2}], {"a/b": 2}),
]


@pytest.mark.parametrize(("target", "patch", "result"), RFC_6902)
def test_json_patch(target: Obj, patch: list[Obj], result: Obj) -> None:
    before = repr(target)
    assert json_patch(target, patch) == result
    assert repr(target) == before


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": 2},
        {"op": "remove", "path": "/b"},
        {"op": "replace", "path": "/b", "value": 1},
        {"op": "add", "path": "/l/5", "value": 1},
        {"op": "add", "path": "/x/y", "value": 1},
        {"op": "add", "path": "a", "value": 1},
        {"op": "add", "path": "", "value": 1},
        {"op": "add", "path": "/a"},
        {"op": "grow", "path": "/a"},
    ],
)
def test_an_operation_that_cannot_be_done_is_refused(operation: Obj) -> None:
    with pytest.raises(ApiError) as caught:
        json_patch({"a": 1, "l": []}, [operation])
    assert caught.value.code == 422


def test_a_json_patch_is_a_list() -> None:
    with pytest.raises(ApiError, match="list of operations"):
        json_patch({}, {"op": "add"})


POD = Resources().get("", "v1", "pods")
LIVE: Obj = {
    "metadata": {"labels": {"a": "1"}, "finalizers": ["x", "y"]},
    "spec": {
        "containers": [{"name": "one", "image": "i:1"}, {"name": "two", "image": "i:1"}],
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "nodeSelector": {"a": "1", "b": "2"},
    },
}


def patched(patch: Obj) -> Obj:
    assert POD is not None
    result: Obj = strategic_patch(LIVE, patch, POD.schema)
    return result


def test_lists_with_a_merge_key_are_merged() -> None:
    spec = patched({"spec": {"containers": [{"name": "two", "image": "i:2"}, {"name": "three"}]}})[
        "spec"
    ]
    assert [(one["name"], one.get("image")) for one in spec["containers"]] == [
        ("one", "i:1"),
        ("two", "i:2"),
        ("three", None),
    ]


def test_an_item_can_be_deleted() -> None:
    spec = patched({"spec": {"containers": [{"name": "one", "$patch": "delete"}]}})["spec"]
    assert [one["name"] for one in spec["containers"]] == ["two"]


def test_a_list_can_be_replaced() -> None:
    spec = patched({"spec": {"containers": [{"name": "new"}, {"$patch": "replace"}]}})["spec"]
    assert spec["containers"] == [{"name": "new"}]


def test_lists_without_a_merge_key_are_replaced() -> None:
    assert patched({"spec": {"tolerations": []}})["spec"]["tolerations"] == []


def test_primitive_lists_are_merged_and_can_lose_items() -> None:
    assert patched({"metadata": {"finalizers": ["z", "x"]}})["metadata"]["finalizers"] == [
        "x",
        "y",
        "z",
    ]
    gone = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x"]}}
    assert patched(gone)["metadata"]["finalizers"] == ["y"]


def test_objects_can_lose_keys_be_replaced_and_keep_some() -> None:
    assert patched({"spec": {"nodeSelector": {"a": None}}})["spec"]["nodeSelector"] == {"b": "2"}
    replaced = patched({"spec": {"nodeSelector": {"c": "3", "$patch": "replace"}}})
    assert replaced["spec"]["nodeSelector"] == {"c": "3"}
    assert "nodeSelector" not in patched({"spec": {"nodeSelector": {"$patch": "delete"}}})["spec"]
    kept = patched({"spec": {"nodeSelector": {"a": "9", "$retainKeys": ["a"]}}})
    assert kept["spec"]["nodeSelector"] == {"a": "9"}


def test_a_patch_without_the_merge_key_is_refused() -> None:
    with pytest.raises(ApiError, match="merge key: name"):
        patched({"spec": {"containers": [{"image": "i"}]}})
    with pytest.raises(ApiError, match="unknown patch type"):
        patched({"spec": {"$patch": "grow"}})
