"""Jobs at a site under Kubernetes: a pretended cluster whose pods are real processes."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.kube_api.account import POD_ENVIRONMENT, kubeconfig
from tests.fakes.kube_api.cluster import Cluster
from tests.fakes.kube_api.controllers.kubelet import Play
from tests.scenarios.conftest import Stage, wait_for

from gridloom.sites.kube.gang import FORMS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

PROGRAM = """
import json, os, socket, sys

rank = int(os.environ["RANK"])

def say(kind, **line):
    with open(os.environ["GRIDLOOM_REPORT_FILE"], "a") as file:
        file.write(json.dumps({"kind": kind, **line}) + "\\n")

print("rank", rank, "at", os.environ["GRIDLOOM_SITE"], os.environ["GRIDLOOM_NODE_ADDRESSES"],
      "on", os.environ.get("GRIDLOOM_POD_NODE", "-"), flush=True)
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:  # every rank must reach rank 0
    with socket.create_server(place) as server:
        say("ready")
        for _ in range(int(os.environ["WORLD_SIZE"]) - 1):
            server.accept()[0].close()
else:
    say("ready")
    while True:
        try:
            socket.create_connection(place, 5).close()
            break
        except ConnectionRefusedError:
            pass
say("step", step=1)
"""


@pytest.fixture
def cluster(stage: Stage, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of two nodes, and the site that it is, with the form of a job that a test asks."""
    workload = getattr(request, "param", "job")
    pods = stage.directory / "pods"
    projects = "jobset-v0.12.0", "trainer-v2.3.0"
    with Cluster(*projects, plays=lambda _: Play(real=True), folder=pods) as made:
        for name in ("k1", "k2"):
            made.kubelet.add_node(name, {"cpu": "1"})
        config = kubeconfig(made.api, stage.directory, namespace="team", form=FORMS[workload])
        site: dict[str, Any] = {
            "kind": "kubernetes",
            "nodes": {"k[1-2]": {"accelerators": "cpu:1"}},
            "kubernetes": {
                "kubeconfig": str(config),
                "namespace": "team",
                "workload": workload,
                "image": "registry.example/gridloom:1",
                "python": sys.executable,
                "environment": POD_ENVIRONMENT,
            },
        }
        stage.write("grid.yaml", {"sites": {"pods": site, "lab": {"accelerators": "cpu:1"}}})
        (stage.directory / "program.py").write_text(PROGRAM)
        yield made


def job(stage: Stage, ranks: int, *sites: str) -> Path:
    resources = {"accelerators": f"cpu:{ranks}", "sites": [*sites], "min_sites": len(sites)}
    run = f"{sys.executable} {stage.directory}/program.py"
    return stage.write(
        "job.yaml", {"name": "train", "grid": "grid.yaml", "run": run, "resources": resources}
    )


def said(stage: Stage, job_id: str) -> list[str]:
    logs = (stage.run_dir(job_id) / "logs" / "attempt-1").glob("rank-*.log")
    return [one.read_text().strip() for one in sorted(logs)]


@pytest.mark.parametrize("cluster", FORMS, indirect=True)
def test_a_job_of_two_pods(stage: Stage, cluster: Cluster, request: pytest.FixtureRequest) -> None:
    (submitted,) = stage.call("submit", str(job(stage, 2, "pods")))
    summary = stage.run_dir(submitted["job"]) / "summary.json"
    wait_for(summary.exists)
    assert json.loads(summary.read_text())["state"] == "succeeded"
    first, second = said(stage, submitted["job"])
    assert {first.split()[-1], second.split()[-1]} == {"k1", "k2"}
    assert first.startswith("rank 0 at pods 127.0.0.1,127.0.0.1 on ")
    if "trainjob" not in request.node.name:  # that is taken out with all that it was, once over
        jobs = cluster.api.do("list", "batch/v1", "jobs", namespace="team")["items"]
        assert [one["metadata"]["labels"]["gridloom/job"] for one in jobs] == [submitted["job"]]


def test_a_job_across_pods_and_this_machine(stage: Stage, cluster: Cluster) -> None:
    end = stage.call("run", "-y", str(job(stage, 3, "pods", "lab")))[-1]
    assert end["state"] == "succeeded"
    words = [one.split() for one in said(stage, end["job"])]
    assert [one[3] for one in words].count("pods") == 2
    assert [one[-1] for one in words if one[3] == "lab"] == ["-"]
