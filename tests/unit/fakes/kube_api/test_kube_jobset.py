"""The simulated JobSet controller, alone and under Kueue."""

from typing import Any

from tests.fakes.kube_api.controllers.kubelet import Play
from tests.fakes.kube_api.status import Obj
from tests.unit.fakes.kube_api.kit import create, job
from tests.unit.fakes.kube_api.queues import QUEUE, Bed, both, simple


def jobset(
    name: str, replicas: int = 1, size: int = 2, *, gpus: int = 1, queue: str = "", **spec: Any
) -> Obj:
    template = {"spec": job("x", size, gpus=gpus)["spec"]}
    body: Obj = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {
            "replicatedJobs": [{"name": "w", "replicas": replicas, "template": template}],
            **spec,
        },
    }
    if queue:
        body["metadata"]["labels"] = {QUEUE: queue}
    return body


def test_a_job_set_makes_jobs_and_a_service() -> None:
    bed = simple()
    create(bed.api, "jobsets", jobset("js", 2))
    bed.settle()
    jobs = bed.api.do("list", "batch/v1", "jobs")["items"]
    assert [one["metadata"]["name"] for one in jobs] == ["js-w-0", "js-w-1"]
    assert jobs[1]["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"] == "1"
    assert (
        jobs[1]["spec"]["template"]["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] == "js"
    )
    assert jobs[0]["spec"]["template"]["spec"]["subdomain"] == "js"
    assert bed.get("js", "services", "v1")["spec"]["clusterIP"] == "None"
    status = bed.get("js", "jobsets", "jobset.x-k8s.io/v1alpha2")["status"]
    assert status["replicatedJobsStatus"][0] == {
        "name": "w",
        "ready": 2,
        "succeeded": 0,
        "failed": 0,
        "active": 2,
        "suspended": 0,
    }
    bed.after(101)
    status = bed.get("js", "jobsets", "jobset.x-k8s.io/v1alpha2")["status"]
    assert (status["terminalState"], status["restarts"]) == ("Completed", 0)


def test_a_job_set_without_host_names_has_no_service() -> None:
    bed = simple()
    create(bed.api, "jobsets", jobset("js", network={"enableDNSHostnames": False}))
    bed.settle()
    assert bed.api.do("list", "v1", "services")["items"] == []


def test_a_job_set_restarts_as_a_whole_and_then_fails() -> None:
    bed = Bed(play=Play(exit_code=1, run_s=5))
    bed.flavor("a")
    create(bed.api, "jobsets", jobset("js", failurePolicy={"maxRestarts": 1}))
    bed.settle()
    first = bed.get("js-w-0")["metadata"]["uid"]
    bed.after(6)
    again = bed.get("js-w-0")["metadata"]
    assert again["uid"] != first
    assert again["labels"]["jobset.sigs.k8s.io/restart-attempt"] == "1"
    bed.after(6)
    status = bed.get("js", "jobsets", "jobset.x-k8s.io/v1alpha2")["status"]
    assert (status["restarts"], status["terminalState"]) == (1, "Failed")
    told = next(one for one in status["conditions"] if one["type"] == "Failed")
    assert "first failed job: js-w-0" in told["message"]


@both
def test_a_job_set_with_a_queue_is_preempted_and_comes_back(release: str) -> None:
    bed = simple(release, preemption={"withinClusterQueue": "LowerPriority"})
    create(bed.api, "jobsets", jobset("js", 2, 1, gpus=4, queue="q"))
    bed.settle()
    assert bed.workload("js")["spec"]["podSets"][0]["count"] == 2
    assert bed.runs("js-w-0")
    bed.job("strong", 8, priority="high")
    status = bed.get("js", "jobsets", "jobset.x-k8s.io/v1alpha2")["status"]
    assert {one["type"]: one["status"] for one in status["conditions"]}["Suspended"] == "True"
    assert (bed.runs("js-w-0"), bed.runs("js-w-1"), bed.runs("strong")) == (False, False, True)
    bed.after(101)
    assert (bed.runs("js-w-0"), bed.runs("js-w-1")) == (True, True)
    assert bed.get("js-w-0")["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "a"}
    bed.after(101)
    assert bed.conditions("js")["Finished"][:2] == ("True", "Succeeded")
