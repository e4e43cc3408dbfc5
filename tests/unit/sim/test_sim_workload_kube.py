"""Jobs and Kueue's Workloads as Kubernetes lists them; made up after their schemas."""

import json
from typing import Any

import pytest

from gridloom.base.errors import InputError
from gridloom.sim.workload import Workload, read

DAY = "2026-01-31T"
Item = dict[str, Any]


def pod(gpus: int | str = 8, **more: Any) -> Item:
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {"containers": [container], **more}


def job(name: str = "train", **more: Any) -> Item:
    item: Item = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "creationTimestamp": f"{DAY}12:00:00Z",
            "labels": {"kueue.x-k8s.io/queue-name": "research"},
        },
        "spec": {"parallelism": 4, "completions": 4, "template": {"spec": pod()}},
        "status": {
            "startTime": f"{DAY}12:05:00Z",
            "completionTime": f"{DAY}13:05:00Z",
            "conditions": [
                {"type": "Suspended", "status": "False"},
                {"type": "Complete", "status": "True", "lastTransitionTime": f"{DAY}13:05:01Z"},
            ],
        },
    }
    return merged(item, more)


def workload(name: str = "ray-1", owner: tuple[str, str] | None = None, **more: Any) -> Item:
    item: Item = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "creationTimestamp": f"{DAY}12:01:00Z",
        },
        "spec": {
            "queueName": "research",
            "priority": 100,
            "podSets": [{"name": "main", "count": 4, "template": {"spec": pod()}}],
        },
        "status": {
            "conditions": [
                {"type": "Admitted", "status": "True", "lastTransitionTime": f"{DAY}12:10:00Z"},
                {
                    "type": "Finished",
                    "status": "True",
                    "lastTransitionTime": f"{DAY}12:20:00Z",
                    "reason": "Succeeded",
                    "message": "Job finished successfully",
                },
            ],
        },
    }
    if owner:
        item["metadata"]["ownerReferences"] = [{"kind": owner[0], "name": owner[1]}]
    return merged(item, more)


def merged(item: Item, more: Item) -> Item:
    """Return an item with parts replaced, as ``spec__parallelism=3``; nothing removes."""
    for path, value in more.items():
        *parents, last = path.split("__")
        place = item
        for parent in parents:
            place = place[parent]
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return item


def listed(*items: Item) -> Workload:
    return read(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2))


def test_a_job() -> None:
    found = listed(job())
    (arrival,) = found.arrivals
    assert (found.format, found.origin_s) == ("kube", 1769860800)
    assert (arrival.job_id, arrival.submit_s, arrival.work_s) == ("team-a/train", 0, 3600)
    assert (arrival.state, arrival.row) == ("completed", 1)
    spec = arrival.spec
    assert (spec.queue, spec.user, spec.priority, spec.elastic) == ("research", "team-a", 0, False)
    assert [(o.devices, o.accelerator) for o in spec.options] == [(32, "gpu")]


def test_a_job_that_failed() -> None:
    failed = {"type": "Failed", "status": "True", "lastTransitionTime": f"{DAY}12:06:00Z"}
    (arrival,) = listed(job(status__completionTime=None, status__conditions=[failed])).arrivals
    assert (arrival.state, arrival.work_s, arrival.fail_after_s) == ("failed", 60, 60)


def test_what_a_job_may_leave_out() -> None:
    bare = job(
        spec__parallelism=None,
        metadata__labels=None,
        status__completionTime=None,
        spec__activeDeadlineSeconds=7200,
        spec__template={
            "spec": pod(2, priority=7, nodeSelector={"nvidia.com/gpu.product": "NVIDIA-H100"})
        },
    )
    (arrival,) = listed(bare).arrivals
    assert (arrival.work_s, arrival.spec.queue, arrival.spec.priority) == (3601, "team-a", 7)
    assert arrival.spec.forecast.duration_s == 7200
    option = arrival.spec.options[0]
    assert (option.devices, option.accelerator) == (2, "nvidia-h100")


@pytest.mark.parametrize(
    ("spec", "devices"),
    [
        (pod(8), 8),
        ({"containers": [*pod(2)["containers"], *pod(3)["containers"]]}, 5),
        ({"containers": pod(1)["containers"], "initContainers": pod(4)["containers"]}, 4),
        ({"containers": [{"resources": {"requests": {"amd.com/gpu": 8}}}]}, 8),
        ({"containers": [{"resources": {"requests": {"nvidia.com/mig-1g.5gb": "2"}}}]}, 2),
        ({"containers": [{"resources": {"requests": {"cpu": "2", "nvidia.com/gpu": 1}}}, {}]}, 1),
    ],
)
def test_devices_of_a_pod(spec: Item, devices: int) -> None:
    (arrival,) = listed(job(spec__parallelism=1, spec__template={"spec": spec})).arrivals
    assert arrival.spec.options[0].devices == devices


def test_a_smallest_number_of_pods_makes_a_job_elastic() -> None:
    smallest = {"kueue.x-k8s.io/job-min-parallelism": "1"}
    (arrival,) = listed(job(metadata__annotations=smallest)).arrivals
    assert [(o.devices, o.step_s) for o in arrival.spec.options] == [(32, 1), (16, 2), (8, 4)]
    assert arrival.spec.elastic


def test_a_workload_of_something_else() -> None:
    (arrival,) = listed(workload(owner=("RayCluster", "ray"))).arrivals
    assert (arrival.job_id, arrival.work_s, arrival.state) == ("team-a/ray-1", 600, "completed")
    assert (arrival.spec.queue, arrival.spec.priority) == ("research", 100)
    assert arrival.spec.options[0].devices == 32


def test_pod_sets_of_a_workload() -> None:
    sets = [
        {"count": 1, "template": {"spec": pod(0)}},
        {"count": 4, "minCount": 2, "template": {"spec": pod(8)}},
    ]
    both, one = listed(
        workload("both", spec__podSets=sets), workload("one", spec__podSets=sets[1:])
    ).arrivals
    assert [option.devices for option in both.spec.options] == [32]
    assert [option.devices for option in one.spec.options] == [32, 16]


def test_flavors_are_kinds_and_a_failure_is_told_by_its_reason() -> None:
    admission = {"podSetAssignments": [{"flavors": {"cpu": "any", "nvidia.com/gpu": "h100"}}]}
    ended = workload()["status"]["conditions"]
    ended[1]["reason"] = "Failed"
    item = workload(status__admission=admission, status__conditions=ended)
    (arrival,) = listed(item).arrivals
    assert arrival.spec.options[0].accelerator == "h100"
    assert (arrival.state, arrival.fail_after_s) == ("failed", 600)


def test_a_job_and_its_workload_are_one() -> None:
    found = listed(workload("w", owner=("Job", "train")), job())
    (arrival,) = found.arrivals
    assert (arrival.job_id, arrival.spec.priority, arrival.row) == ("team-a/train", 100, 2)
    assert [(d.row, d.why) for d in found.dropped] == [(1, "duplicate")]


def test_jobs_of_a_set_are_parts_of_its_workload() -> None:
    part = job("part", metadata__ownerReferences=[{"kind": "JobSet", "name": "js"}])
    found = listed(part, workload("w", owner=("JobSet", "js")))
    assert [arrival.job_id for arrival in found.arrivals] == ["team-a/w"]
    assert [(d.row, d.why) for d in found.dropped] == [(1, "duplicate")]


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (job("x", status={}), "never_ran"),
        (job("x", status__completionTime=None, status__conditions=None), "unfinished"),
        (job("x", status__startTime=None), "missing_field"),
        (job("x", status__startTime=12), "missing_field"),
        (job("x", metadata__creationTimestamp="yesterday"), "not_a_time"),
        (job("x", metadata__creationTimestamp=None), "missing_field"),
        (job("x", spec__template={"spec": pod("2k")}), "not_a_number"),
        (job("x", spec__template={"spec": pod(0)}), "no_devices"),
        (job("x", spec__template=[1, 2]), "no_devices"),
        (job("x", spec__parallelism=0), "no_devices"),
        (job("x", spec__parallelism="many"), "not_a_number"),
        (job("x", status__completionTime=f"{DAY}12:05:00Z"), "zero_duration"),
        (job(), "duplicate"),
        (workload(status__conditions=[]), "never_ran"),
        (workload(status__conditions=workload()["status"]["conditions"][:1]), "unfinished"),
        (workload(spec__podSets=[]), "no_devices"),
        ({"kind": "Pod"}, "not_a_job"),
        ({}, "not_a_job"),
    ],
)
def test_wrong_items_are_dropped(item: Item, why: str) -> None:
    found = listed(job(), item)
    assert [arrival.job_id for arrival in found.arrivals] == ["team-a/train"]
    assert [(d.row, d.why) for d in found.dropped] == [(2, why)]


def test_an_array_or_one_object_will_do() -> None:
    assert len(read(json.dumps([job()])).arrivals) == 1
    assert len(read(json.dumps(job())).arrivals) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"kind": "List", ', "dump: is not JSON"),
        ("[" * 100_000, "dump: is not JSON"),
        ("[1, 2]", "items are not objects"),
        ('{"kind": "List", "items": []}', "has no jobs"),
        ('{"kind": "List", "items": [{"kind": "Pod"}]}', r"dump: items\[0\]: no row is usable"),
    ],
)
def test_documents_without_jobs_are_an_error(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(text, format="kube", file="dump")
