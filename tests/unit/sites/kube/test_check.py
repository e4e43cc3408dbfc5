"""What a cluster would refuse is told before it is sent, all of it, with its field."""

from typing import Any

import msgspec
import pytest
from tests.unit.sites.kube.submissions import ALL, EVERY, LEAST

from gridloom.base.errors import InputError
from gridloom.sites.kube.check import check
from gridloom.sites.kube.submission import (
    Accelerators,
    ClaimVolume,
    EmptyVolume,
    HostVolume,
    NetworkAttachment,
    SecretVariable,
    Submission,
    Toleration,
    Topology,
)

WRONG: list[tuple[str, dict[str, Any]]] = [
    ("name", {"name": ""}),
    ("name", {"name": "7b"}),
    ("name", {"name": "Big"}),
    ("name", {"name": "a" * 51}),
    ("namespace", {"namespace": "a.b"}),
    ("queue", {"queue": "a queue"}),
    ("queue_priority", {"queue_priority": "high"}),
    ("pull_secrets[1]", {"pull_secrets": ("ok", "not ok")}),
    ("networks[0].name", {"networks": (NetworkAttachment(name="a b"),)}),
    ("replicas", {"replicas": 0}),
    ("attempt", {"attempt": 0}),
    ("grace_s", {"grace_s": -1.0}),
    ("keep_s", {"keep_s": -1}),
    ("port", {"port": 70_000}),
    ("labels.a b", {"labels": {"a b": "c"}}),
    ("labels.a", {"labels": {"a": "b c"}}),
    ("labels.a", {"labels": {"a": "b" * 64}}),
    ("node_selector.x", {"node_selector": {"x": "-"}}),
    ("annotations.-", {"annotations": {"-": "anything at all"}}),
    ("job_id", {"job_id": ""}),
    ("job_id", {"job_id": "a/b"}),
    ("accelerators.count", {"accelerators": Accelerators(resource="nvidia.com/gpu", count=0)}),
    ("accelerators.resource", {"accelerators": Accelerators(resource="gpu", count=1)}),
    ("rdma.rdma/hca", {"rdma": {"rdma/hca": 0}}),
    ("rdma.hca", {"rdma": {"hca": 1}}),
    ("resources.cpu", {"resources": {"cpu": "1"}}),
    ("resources.hugepages-2Mi", {"resources": {"hugepages-2Mi": "4 Gi"}}),
    ("image", {"image": " "}),
    ("command", {"command": ()}),
    ("pull_policy", {"pull_policy": "Sometimes"}),
    ("environment.1A", {"environment": {"1A": ""}}),
    ("environment.A", {"environment": {"A": ""}, "fields": {"A": "spec.nodeName"}}),
    ("secrets[0].secret", {"secrets": (SecretVariable(name="A", secret="_", key="k"),)}),
    ("volumes[0].name", {"volumes": (EmptyVolume(name="a_b", path="/a"),)}),
    ("volumes[0].path", {"volumes": (EmptyVolume(name="a", path="a"),)}),
    ("volumes[0].size_bytes", {"volumes": (EmptyVolume(name="a", path="/a", size_bytes=-1),)}),
    ("volumes[0].host_path", {"volumes": (HostVolume(name="a", path="/a", host_path="x"),)}),
    (
        "volumes[1].name",
        {"volumes": tuple(ClaimVolume(name="a", claim="c", path=path) for path in ("/a", "/b"))},
    ),
    (
        "volumes[1].path",
        {"volumes": tuple(ClaimVolume(name=name, claim="c", path="/a") for name in ("a", "b"))},
    ),
    ("tolerations[0].effect", {"tolerations": (Toleration(key="a", effect="Never"),)}),
    ("tolerations[0].key", {"tolerations": (Toleration(value="a"),)}),
    ("tolerations[0].value", {"tolerations": (Toleration(key="a", value="b", exists=True),)}),
    ("tolerations[0].seconds", {"tolerations": (Toleration(key="a", seconds=1),)}),
    ("topology", {"topology": Topology(required="rack")}),
    ("topology", {"queue": "q", "topology": Topology(required="rack", preferred="zone")}),
    ("topology.required", {"queue": "q", "topology": Topology(required="a rack")}),
    ("topology", {"queue": "q", "topology": Topology(slice_level="rack")}),
    ("topology.slice_size", {"queue": "q", "topology": Topology(slice_level="r", slice_size=2)}),
]


@pytest.mark.parametrize(
    ("field", "change"), WRONG, ids=[f"{i}-{field}" for i, (field, _) in enumerate(WRONG)]
)
def test_what_is_wrong_is_named(field: str, change: dict[str, Any]) -> None:
    with pytest.raises(InputError) as refused:
        check(msgspec.structs.replace(LEAST, **change))
    assert [problem.field for problem in refused.value.problems] == [field]


def test_all_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(InputError) as refused:
        check(msgspec.structs.replace(ALL, replicas=0, image="", namespace="-"))
    fields = {problem.field for problem in refused.value.problems}
    assert fields == {"namespace", "replicas", "image", "topology.slice_size"}


@pytest.mark.parametrize("submission", EVERY.values(), ids=EVERY)
def test_what_is_right_passes(submission: Submission) -> None:
    check(submission)
