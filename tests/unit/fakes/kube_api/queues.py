"""A pretended cluster with Kueue: its flavors and queues are made as a test needs them."""

from typing import Any

import pytest
from tests.fakes.clock import FakeClock
from tests.fakes.kube_api.cluster import Cluster
from tests.fakes.kube_api.controllers.kubelet import Play
from tests.fakes.kube_api.status import Obj
from tests.unit.fakes.kube_api.kit import create, job

OLD, NEW = "kueue-v0.13.1", "kueue-v0.19.2"
QUEUE, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
GPU = "nvidia.com/gpu"


class Bed:
    """Queues over nodes of one or two flavors; jobs run for 100 s."""

    def __init__(self, release: str = OLD, play: Play = Play(run_s=100)) -> None:  # noqa: B008
        self.clock = FakeClock()
        self.cluster = Cluster(release, "jobset-v0.12.0", clock=self.clock, plays=lambda _: play)
        self.api = self.cluster.api
        self.version = f"kueue.x-k8s.io/{'v1beta1' if release == OLD else 'v1beta2'}"
        self.is_old = release == OLD

    def add(
        self, plural: str, name: str, spec: Obj | None, namespace: str = "", **more: Any
    ) -> None:
        body: Obj = {"metadata": {"name": name}, **more}
        if spec is not None:
            body["spec"] = spec
        self.api.do("create", self.version, plural, namespace=namespace, body=body)

    def flavor(self, name: str, gpus: int = 8, **spec: object) -> None:
        self.cluster.kubelet.add_node_with(
            f"node-{name}", {GPU: str(gpus), "cpu": "64"}, {"pool": name}
        )
        self.add("resourceflavors", name, {"nodeLabels": {"pool": name}, **spec})

    def queue(self, name: str, quotas: dict[str, Obj], **spec: Any) -> None:
        flavors = [
            {"name": one, "resources": [{"name": GPU, **quota}]} for one, quota in quotas.items()
        ]
        cohort = spec.pop("cohort", None)
        if cohort:
            spec["cohort" if self.is_old else "cohortName"] = cohort
        groups = [{"coveredResources": [GPU], "flavors": flavors}]
        self.add("clusterqueues", name, {"namespaceSelector": {}, "resourceGroups": groups, **spec})
        self.add("localqueues", name, {"clusterQueue": name}, "default")

    def job(self, name: str, size: int, queue: str = "q", priority: str = "", **more: Any) -> None:
        labels = {QUEUE: queue} | ({PRIORITY: priority} if priority else {})
        create(self.api, "jobs", job(name, 1, gpus=size, meta={"labels": labels}, **more))
        self.settle()

    def settle(self) -> None:
        self.cluster.loops.settle()

    def after(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.settle()

    def workload(self, name: str) -> Obj:
        found = self.api.do("list", self.version, "workloads")["items"]
        return next(one for one in found if one["metadata"]["ownerReferences"][0]["name"] == name)

    def conditions(self, name: str) -> dict[str, tuple[str, str, str]]:
        found = self.workload(name)["status"]["conditions"]
        return {one["type"]: (one["status"], one["reason"], one["message"]) for one in found}

    def get(self, name: str, plural: str = "jobs", version: str = "batch/v1") -> Obj:
        return self.api.do("get", version, plural, namespace="default", name=name)

    def runs(self, name: str) -> bool:
        return not self.get(name)["spec"]["suspend"]

    def change(self, plural: str, name: str, body: Obj, namespace: str = "") -> None:
        version = "batch/v1" if plural == "jobs" else self.version
        self.api.do("patch", version, plural, namespace=namespace, name=name, body=body)
        self.settle()


def simple(release: str = OLD, **spec: Any) -> Bed:
    bed = Bed(release)
    bed.flavor("a")
    bed.queue("q", {"a": {"nominalQuota": 8}}, **spec)
    for name, value in (("low", 10), ("high", 100)):
        bed.add("workloadpriorityclasses", name, None, value=value)
    return bed


both = pytest.mark.parametrize("release", [OLD, NEW])
