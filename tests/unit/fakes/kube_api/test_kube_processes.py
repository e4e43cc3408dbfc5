"""Containers as real processes: environment, output, preStop, signals."""

from pathlib import Path

import pytest
from tests.fakes.kube_api.cluster import Cluster
from tests.fakes.kube_api.controllers.kubelet import Play
from tests.fakes.kube_api.status import Obj
from tests.unit.fakes.kube_api.kit import create, job, pod_spec

from gridloom.base.system import SystemClock

SCRIPT = """
trap 'echo stopping; exit 7' TERM
echo "rank $JOB_COMPLETION_INDEX of $SIZE as $NAME with $SECRET in $WHERE at $HERE"
echo ready > started
while true; do sleep 0.05; done
"""


def real_pod(command: list[str], **more: object) -> Obj:
    return pod_spec(containers=[{"name": "main", "image": "x:1", "command": command, **more}])


def real(tmp_path: Path) -> Cluster:
    return Cluster(plays=lambda _: Play(real=True), folder=tmp_path)


def wait_for(cluster: Cluster, phase: str) -> Obj:
    found: list[Obj] = []

    def is_there() -> bool:
        found[:] = [
            one
            for one in cluster.api.do("list", "v1", "pods")["items"]
            if one["status"]["phase"] == phase
        ]
        return bool(found)

    assert cluster.api.kernel.store.wait_until(is_there, 20), cluster.api.logs
    return found[0]


def test_a_container_runs_as_a_real_process(tmp_path: Path) -> None:
    with real(tmp_path) as cluster:
        cluster.kubelet.add_node("n1", {"cpu": "8"})
        create(cluster.api, "secrets", {"metadata": {"name": "s"}, "data": {"key": "cGFzcw=="}})
        create(cluster.api, "configmaps", {"metadata": {"name": "c"}, "data": {"WHERE": "here"}})
        body = job("j", 1)
        secret = {"secretKeyRef": {"name": "s", "key": "key"}}
        name = {"fieldRef": {"fieldPath": "metadata.namespace"}}
        body["spec"]["template"]["spec"] = real_pod(
            ["sh", "-c"],
            args=[SCRIPT],
            envFrom=[{"configMapRef": {"name": "c"}}],
            env=[
                {"name": "SIZE", "value": "1"},
                {"name": "HERE", "value": "$(WHERE)-$$(X)"},
                {"name": "NAME", "valueFrom": name},
                {"name": "SECRET", "valueFrom": secret},
            ],
        )
        create(cluster.api, "jobs", body)
        pod = wait_for(cluster, "Running")
        lines = cluster.api.logs["default", pod["metadata"]["name"], "main"]
        assert cluster.api.kernel.store.wait_until(lambda: bool(lines), 10)
        assert lines == ["rank 0 of 1 as default with pass in here at here-$(X)"]
        cluster.loops.switch("garbage", on=False)
        cluster.api.do(
            "patch",
            "v1",
            "pods",
            namespace="default",
            name=pod["metadata"]["name"],
            body={"metadata": {"finalizers": ["a/b"]}},
        )
        cluster.api.do("delete", "v1", "pods", namespace="default", name=pod["metadata"]["name"])
        ended = wait_for(cluster, "Failed")
        assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7
        assert lines[-1] == "stopping"


def test_pre_stop_runs_before_the_signal_and_the_deaf_are_killed(tmp_path: Path) -> None:
    deaf = "trap 'echo heard' TERM; echo up; while true; do sleep 0.05; done"
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo said > hook"]}}}
    with real(tmp_path) as cluster:
        cluster.kubelet.add_node("n1", {"cpu": "8"})
        spec = real_pod(["sh", "-c", deaf], lifecycle=hook) | {"terminationGracePeriodSeconds": 1}
        create(
            cluster.api, "pods", {"metadata": {"name": "p", "finalizers": ["a/b"]}, "spec": spec}
        )
        pod = wait_for(cluster, "Running")
        lines = cluster.api.logs["default", "p", "main"]
        assert cluster.api.kernel.store.wait_until(lambda: "up" in lines, 10)
        cluster.api.do("delete", "v1", "pods", namespace="default", name="p")
        ended = wait_for(cluster, "Failed")
        assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
        assert "heard" in lines
        assert (tmp_path / pod["metadata"]["uid"] / "hook").read_text() == "said\n"


def test_a_process_that_ends_by_itself_and_one_killed_with_its_pod(tmp_path: Path) -> None:
    with real(tmp_path) as cluster:
        cluster.kubelet.add_node("n1", {"cpu": "8"})
        for name, text in (("a", "exit 3"), ("b", "echo $$; exec sleep 600")):
            spec = real_pod(["sh", "-c", text.replace("$$", "$$$$")])
            create(cluster.api, "pods", {"metadata": {"name": name}, "spec": spec})
        failed = wait_for(cluster, "Failed")
        assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
        wait_for(cluster, "Running")
        lines = cluster.api.logs["default", "b", "main"]
        assert cluster.api.kernel.store.wait_until(lambda: bool(lines), 10)
        cluster.api.do(
            "delete", "v1", "pods", namespace="default", name="b", body={"gracePeriodSeconds": 0}
        )
        clock, until_s = SystemClock(), SystemClock().monotonic_s() + 10
        while Path(f"/proc/{lines[0]}").exists() and clock.monotonic_s() < until_s:
            clock.sleep(0.02)
        assert not Path(f"/proc/{lines[0]}").exists()


@pytest.mark.parametrize(
    ("more", "reason", "told"),
    [
        (
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
            "CreateContainerConfigError",
            'secret "s" not found',
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]},
            "CreateContainerConfigError",
            "couldn't find key k",
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]},
            "CreateContainerConfigError",
            "is not played here",
        ),
        ({"command": ["/no/such/program"]}, "RunContainerError", "No such file"),
        ({"command": []}, "CreateContainerConfigError", "no command specified"),
    ],
)
def test_a_container_that_cannot_be_made(tmp_path: Path, more: Obj, reason: str, told: str) -> None:
    cluster = real(tmp_path)
    cluster.kubelet.add_node("n1", {"cpu": "8"})
    create(cluster.api, "configmaps", {"metadata": {"name": "c"}, "data": {}})
    spec = real_pod(["true"])
    spec["containers"][0] |= more
    create(cluster.api, "pods", {"metadata": {"name": "p"}, "spec": spec})
    cluster.loops.settle()
    pod = cluster.api.do("get", "v1", "pods", namespace="default", name="p")
    waiting = pod["status"]["containerStatuses"][0]["state"]["waiting"]
    assert waiting["reason"] == reason
    assert told in waiting["message"]
