"""From orders to one job of a cluster: what pods see, ask for, and are told."""

from pathlib import PurePath
from typing import Any

import pytest
from tests.unit.sites.slurm.orders import order, ref

from gridloom.model.inventory import CPU, KubeAccess, KubeToleration, KubeVolume
from gridloom.sites.kube.gang import gang, name_of, submission
from gridloom.sites.kube.names import NAME_MAX, object_name
from gridloom.sites.kube.render import Form, manifests
from gridloom.sites.kube.submission import (
    Accelerators,
    ClaimVolume,
    EmptyVolume,
    HostVolume,
    NetworkAttachment,
    SecretVariable,
    SecretVolume,
    Submission,
    Toleration,
)
from gridloom.sites.tasks import plane_of
from gridloom.wire.agent import TaskOrder

RUNS = PurePath("/state/runs")


def orders(*devices: int, **more: Any) -> list[TaskOrder]:
    from_path: Any = RUNS
    return [
        order(from_path, f"n{number}", devices=count, **more)
        for number, count in enumerate(devices, start=1)
    ]


def asked(access: dict[str, Any] | None = None, *devices: int, **more: Any) -> Submission:
    said = KubeAccess(image="gridloom:1", **(access or {}))
    return submission(orders(*(devices or (2, 2)), **more), RUNS, said)


def test_the_least_that_is_said_makes_a_job() -> None:
    found = asked()
    assert found.replicas == 2
    assert (found.accelerators, found.cpu_millis, found.memory_bytes) == (None, 2000, 0)
    assert (found.grace_s, found.keep_s, found.deadline_s) == (29.5, 3600, 0)
    where = "/state/runs/train-abc/attempts/2/gang.hpc"
    assert found.command == ("python3", "-P", "-m", "gridloom.agent", "--gang", where)
    assert found.volumes == (
        HostVolume(name="runs", host_path="/state/runs", path="/state/runs"),
        EmptyVolume(name="shm", path="/dev/shm", in_memory=True),
    )
    for form in Form:
        assert manifests(found, form)


def test_pods_ask_for_as_many_devices_as_the_largest_task() -> None:
    found = asked(
        {"resources": {"cpu": "96", "memory": "1Ti", "rdma/hca": "8"}}, 4, 8, accelerator="h100"
    )
    assert found.accelerators == Accelerators(resource="nvidia.com/gpu", count=8)
    assert (found.cpu_millis, found.memory_bytes) == (96_000, 2**40)
    assert found.resources == {"rdma/hca": "8"}


def test_other_kinds_have_other_names() -> None:
    found = asked({"devices": {"mi300x": "amd.com/gpu"}}, 8, accelerator="mi300x")
    assert found.accelerators == Accelerators(resource="amd.com/gpu", count=8)


def test_all_that_is_said_is_asked_for() -> None:
    found = asked(
        {
            "runs": KubeVolume(claim="grid", sub_path="state/runs"),
            "volumes": {
                "/data": KubeVolume(claim="data", read_only=True),
                "/dev/shm": KubeVolume(memory_bytes=2**36),
                "/keys": KubeVolume(secret="keys"),
                "/scratch": KubeVolume(host="/mnt/nvme"),
            },
            "secrets": {"KEY": "wandb/api-key"},
            "tolerations": (KubeToleration(key="a", value="b"), KubeToleration(key="c")),
            "networks": ("rail-0", "fabric/rail-1@net1"),
            "topology_preferred": "rack",
            "labels": {"team": "a", "gridloom/site": "mine"},
            "annotations": {"sidecar.istio.io/inject": "false"},
            "queue": "q",
            "time_limit_s": 3600.0,
        }
    )
    assert found.volumes == (
        ClaimVolume(name="runs", claim="grid", path="/state/runs", sub_path="state/runs"),
        ClaimVolume(name="volume-0", claim="data", path="/data", read_only=True),
        EmptyVolume(name="volume-1", path="/dev/shm", in_memory=True, size_bytes=2**36),
        SecretVolume(name="volume-2", secret="keys", path="/keys"),
        HostVolume(name="volume-3", host_path="/mnt/nvme", path="/scratch"),
    )
    assert found.secrets == (SecretVariable(name="KEY", secret="wandb", key="api-key"),)
    assert found.tolerations == (Toleration(key="a", value="b"), Toleration(key="c", exists=True))
    assert found.networks == (
        NetworkAttachment(name="rail-0"),
        NetworkAttachment(name="rail-1", namespace="fabric", interface="net1"),
    )
    assert (found.labels["team"], found.labels["gridloom/site"]) == ("a", "hpc")
    assert found.annotations == {"sidecar.istio.io/inject": "false"}
    assert (found.queue, found.topology.preferred, found.deadline_s) == ("q", "rack", 3600)


def test_supervisors_find_their_tasks_in_order() -> None:
    said = gang(orders(1, 1), RUNS, KubeAccess(image="x", network="10.0.0.0/8"))
    assert [PurePath(one).name for one in said.directories] == ["hpc.n1", "hpc.n2"]
    assert said.network == "10.0.0.0/8"


def test_names_tell_sites_and_control_planes_apart() -> None:
    plane = plane_of(RUNS)
    names = {
        name_of(ref(), plane),
        name_of(ref(site="other"), plane),
        name_of(ref(life=2), plane),
        name_of(ref(), plane_of(PurePath("/another"))),
    }
    assert len(names) == 4
    assert name_of(ref(node="n2"), plane) in names
    assert all(name.startswith("train-abc-a2") for name in names)


@pytest.mark.parametrize("length", [1, 30, 60, 100])
def test_a_scope_fits_into_a_name(length: int) -> None:
    assert len(object_name("j" * length, 12, life=3, scope="x")) <= NAME_MAX


def test_cpus_of_a_pod_are_what_is_said_of_them() -> None:
    assert asked({"resources": {"cpu": "500m"}}, 4, accelerator=CPU).cpu_millis == 500
