"""Every manifest is one that a server takes, strictly, in every version that gridloom speaks to."""

import string
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.sites.kube.schemas import VERSIONS, built_in_errors, custom_errors
from tests.unit.sites.kube.submissions import ALL, EVERY, LEAST, VENDORS

from gridloom.sites.kube.render import Form, manifests
from gridloom.sites.kube.role import Access, role_manifests
from gridloom.sites.kube.submission import (
    Accelerators,
    ClaimVolume,
    Disruption,
    EmptyVolume,
    Submission,
    Toleration,
    Topology,
)

FOLDERS = {
    "JobSet": "jobset-v0.12.0",
    "TrainJob": "trainer-v2.3.0",
    "TrainingRuntime": "trainer-v2.3.0",
}


def errors(manifest: dict[str, Any], version: str = VERSIONS[-1]) -> list[str]:
    folder = FOLDERS.get(manifest["kind"])
    return custom_errors(manifest, folder) if folder else built_in_errors(manifest, version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("submission", EVERY.values(), ids=EVERY)
def test_jobs_are_valid_in_every_version(submission: Submission, version: str) -> None:
    for manifest in manifests(submission, Form.JOB):
        assert errors(manifest, version) == []


@pytest.mark.parametrize("form", [Form.JOB_SET, Form.TRAIN_JOB])
@pytest.mark.parametrize("submission", EVERY.values(), ids=EVERY)
def test_custom_resources_are_valid(submission: Submission, form: Form) -> None:
    for manifest in manifests(submission, form):
        assert errors(manifest) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_roles_are_valid_in_every_version(version: str) -> None:
    for manifest in role_manifests(Access(namespace="team-a", forms=tuple(Form))):
        assert errors(manifest, version) == []


@pytest.mark.parametrize("submission", VENDORS, ids=lambda one: one.accelerators.resource)
@pytest.mark.parametrize("form", Form)
def test_devices_of_every_vendor(submission: Submission, form: Form) -> None:
    for manifest in manifests(submission, form):
        assert errors(manifest) == []


BROKEN: dict[str, tuple[Form, Callable[[Any], object]]] = {
    "unknown field": (Form.JOB, lambda job: job["spec"].update(backofLimit=1)),
    "no name": (Form.JOB, lambda job: job["spec"]["template"]["spec"]["containers"][0].pop("name")),
    "plural": (Form.JOB_SET, lambda jobs: jobs["spec"].update(replicatedJob=[])),
    "type": (Form.JOB_SET, lambda jobs: jobs["spec"]["network"].update(subdomain=3)),
    "nodes": (Form.TRAIN_JOB, lambda job: job["spec"]["trainer"].update(nodes=3)),
    "no runtime": (Form.TRAIN_JOB, lambda job: job["spec"].pop("runtimeRef")),
}


@pytest.mark.parametrize(("form", "break_it"), BROKEN.values(), ids=BROKEN)
def test_the_schemas_refuse_what_is_wrong(form: Form, break_it: Callable[[Any], object]) -> None:
    manifest = msgspec.json.decode(msgspec.json.encode(manifests(ALL, form)[-1]))
    break_it(manifest)
    assert errors(manifest)


TEXT = st.text(string.printable, max_size=12)
VALUE = st.text(string.ascii_letters + string.digits, min_size=1, max_size=10)
VOLUMES = st.sampled_from(
    [
        (),
        (ClaimVolume(name="a", claim="a", path="/a"),),
        (EmptyVolume(name="a", path="/a"), EmptyVolume(name="b", path="/b", in_memory=True)),
    ]
)
SUBMISSIONS = st.builds(
    Submission,
    name=st.just("some-name-a1"),
    namespace=st.just("default"),
    job_id=VALUE,
    attempt=st.integers(1, 10**6),
    epoch=st.integers(0, 10**9),
    replicas=st.integers(2, 10_000),
    image=VALUE,
    command=st.lists(TEXT, min_size=1, max_size=200).map(tuple),
    environment=st.dictionaries(VALUE.map(lambda value: f"V{value}"), TEXT, max_size=4),
    queue=st.just("q"),
    topology=st.builds(
        Topology,
        required=st.sampled_from(["", "rack"]),
        slice_level=st.just("example.org/rack"),
        slice_size=st.integers(1, 2),
    ),
    accelerators=st.none()
    | st.builds(Accelerators, resource=st.just("amd.com/gpu"), count=st.integers(1, 16)),
    cpu_millis=st.integers(0, 10**6),
    memory_bytes=st.integers(0, 2**50),
    volumes=VOLUMES,
    tolerations=st.just((Toleration(exists=True),)),
    grace_s=st.floats(0, 10_000),
    deadline_s=st.integers(0, 10**6),
    restarts=st.integers(0, 5),
    disruption=st.sampled_from(Disruption),
    keep_s=st.none() | st.integers(0, 100),
)


@settings(max_examples=20)
@given(SUBMISSIONS, st.sampled_from(Form))
def test_what_passes_the_check_is_valid(submission: Submission, form: Form) -> None:
    for manifest in manifests(submission, form):
        assert errors(manifest) == []


def test_a_runtime_says_what_a_train_job_is_too_small_for() -> None:
    long = msgspec.structs.replace(LEAST, command=("x",) * 129, environment={"A": "1"})
    runtime, train_job = manifests(long, Form.TRAIN_JOB)
    assert "command" not in train_job["spec"]["trainer"]
    assert train_job["spec"]["trainer"]["env"] == [{"name": "A", "value": "1"}]
    (replicated,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    (container,) = replicated["template"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["x"] * 129
