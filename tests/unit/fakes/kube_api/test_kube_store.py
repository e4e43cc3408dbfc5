"""The history: every version that is kept can be listed as it was, and older ones say so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.kube_api.status import ApiError, Obj
from tests.fakes.kube_api.store import Store

PODS = ("", "pods")
OTHERS = ("", "nodes")


def thing(name: str, size: int) -> Obj:
    return {"metadata": {"name": name, "namespace": "n"}, "size": size}


moves = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.booleans()), min_size=1, max_size=25
)


@given(moves, st.integers(1, 30))
def test_each_kept_version_is_listed_as_it_was(
    steps: list[tuple[str, int, bool]], window: int
) -> None:
    store = Store(window)
    seen = {store.version: dict(store.at(PODS, store.version))}
    for name, size, is_removed in steps:
        place = ("n", name)
        if is_removed and store.get(PODS, place):
            store.remove(PODS, place)
        else:
            store.put(PODS, place, thing(name, size))
            store.put(OTHERS, ("", "other"), thing("other", size))
        seen[store.version] = dict(store.at(PODS, store.version))
    assert store.at(PODS, store.version) == seen[store.version]
    for version, objects in seen.items():
        if is_kept(store, version):
            assert store.at(PODS, version) == objects
        else:
            with pytest.raises(ApiError, match="too old resource version") as caught:
                store.at(PODS, version)
            assert (caught.value.code, caught.value.reason) == (410, "Expired")


def is_kept(store: Store, version: int) -> bool:
    """Say whether no more changes came after a version than the window holds."""
    return store.version - version <= store.window


@given(moves)
def test_changes_lead_from_any_version_to_the_present(steps: list[tuple[str, int, bool]]) -> None:
    store = Store()
    versions = [store.version]
    for name, size, is_removed in steps:
        if is_removed and store.get(PODS, ("n", name)):
            store.remove(PODS, ("n", name))
        else:
            store.put(PODS, ("n", name), thing(name, size))
        versions.append(store.version)
    for version in versions:
        objects = dict(store.at(PODS, version))
        for change in store.since(version, PODS):
            assert change.version > version
            if change.new is None:
                assert objects.pop(change.place) == change.old
            else:
                objects[change.place] = change.new
        assert objects == store.at(PODS, store.version)


def test_versions_grow_over_all_kinds_and_copies_are_given() -> None:
    store = Store()
    first = store.put(PODS, ("n", "a"), thing("a", 1))
    second = store.put(OTHERS, ("", "b"), thing("b", 1))
    assert (
        int(second["metadata"]["resourceVersion"]) == int(first["metadata"]["resourceVersion"]) + 1
    )
    first["size"] = 7
    assert store.all(PODS)[0]["size"] == 1


def test_compacting_forgets_all_but_the_present() -> None:
    store = Store()
    store.put(PODS, ("n", "a"), thing("a", 1))
    store.put(PODS, ("n", "a"), thing("a", 2))
    store.compact()
    assert store.since(store.version, PODS) == []
    with pytest.raises(ApiError, match="too old resource version"):
        store.since(store.version - 1, PODS)
