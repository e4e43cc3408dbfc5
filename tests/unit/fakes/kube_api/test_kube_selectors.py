"""Selectors, as the Kubernetes documentation words them."""

import pytest
from tests.fakes.kube_api.selectors import field_matcher, label_matcher, named_by, object_matcher
from tests.fakes.kube_api.status import ApiError, Obj

LABELS = {"app": "train", "tier": "gold"}


def labelled(labels: dict[str, str]) -> Obj:
    return {"metadata": {"name": "x", "labels": labels}}


@pytest.mark.parametrize(
    ("selector", "fits"),
    [
        ("", True),
        ("app=train", True),
        ("app==train", True),
        ("app=other", False),
        ("app!=other", True),
        ("absent!=other", True),  # "!=" also chooses what has no such label
        ("app in (train, eval)", True),
        ("app in (eval)", False),
        ("app notin (eval)", True),
        ("absent notin (eval)", True),
        ("app", True),
        ("absent", False),
        ("!absent", True),
        ("!app", False),
        ("app=train,tier in (gold,silver),!absent", True),
        ("app=train,tier in (silver)", False),
    ],
)
def test_label_selector(selector: str, fits: bool) -> None:
    assert label_matcher(selector)(labelled(LABELS)) is fits


def test_a_label_selector_that_is_none_is_refused() -> None:
    with pytest.raises(ApiError, match="unable to parse"):
        label_matcher("app=(train")


@pytest.mark.parametrize(
    ("test", "fits"),
    [
        ({"key": "app", "operator": "In", "values": ["train"]}, True),
        ({"key": "app", "operator": "NotIn", "values": ["train"]}, False),
        ({"key": "app", "operator": "Exists"}, True),
        ({"key": "app", "operator": "DoesNotExist"}, False),
    ],
)
def test_selector_object(test: Obj, fits: bool) -> None:
    selector = {"matchLabels": {"tier": "gold"}, "matchExpressions": [test]}
    assert object_matcher(selector)(labelled(LABELS)) is fits


POD: Obj = {
    "metadata": {"name": "x", "namespace": "n"},
    "spec": {"nodeName": "n1", "unschedulable": True},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("selector", "fits"),
    [
        ("", True),
        ("metadata.name=x", True),
        ("metadata.name!=x", False),
        ("spec.nodeName=n1,status.phase=Running", True),
        ("spec.nodeName=", False),
        ("status.phase!=Failed", True),
    ],
)
def test_field_selector(selector: str, fits: bool) -> None:
    assert field_matcher(selector, "pods", custom=False)(POD) is fits


def test_booleans_are_written_small() -> None:
    assert field_matcher("spec.unschedulable=true", "nodes", custom=False)(POD)


@pytest.mark.parametrize("selector", ["spec.priority=1", "status.phase"])
def test_few_fields_may_be_selected(selector: str) -> None:
    with pytest.raises(ApiError, match="field"):
        field_matcher(selector, "pods", custom=False)


def test_of_custom_resources_only_the_name_may_be_selected() -> None:
    with pytest.raises(ApiError, match=r"field label not supported: status\.phase"):
        field_matcher("status.phase=Running", "pods", custom=True)


def test_name_in_a_selector() -> None:
    assert named_by("spec.nodeName=n1,metadata.name=x") == "x"
    assert named_by("metadata.name!=x") == ""
