"""Reader of jobs as Kubernetes lists them: ``kubectl get jobs,workloads.kueue.x-k8s.io -o json``.

Source of the fields: the OpenAPI documents of batch/v1 (Kubernetes 1.36) and the CRD of Kueue's
Workload (v1beta1, v1beta2; 0.13 and 0.19).
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from gridloom.base.codec import decode
from gridloom.base.errors import InputError, Problem
from gridloom.sim.workload_nouns import End, ReadOptions, Workload
from gridloom.sim.workload_rows import Collector, Draft, RowError, seconds_since_epoch, whole
from gridloom.sim.workload_shapes import Steps, scaled

Item = dict[str, Any]
Owner = tuple[str, str, str]
"""Namespace, kind and name of an object."""

_DEVICES = frozenset(
    {
        "nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe",
        "habana.ai/gaudi", "google.com/tpu", "aws.amazon.com/neuron", "huawei.com/Ascend910",
        "cambricon.com/mlu",
    }
)  # fmt: skip
"""Extended resources that are whole devices, besides NVIDIA's slices (``nvidia.com/mig-*``)."""

_PRODUCTS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
)
_QUEUE = "kueue.x-k8s.io/queue-name"
_LEAST = "kueue.x-k8s.io/job-min-parallelism"


def read_kube(text: str, file: str, options: ReadOptions) -> Workload:
    """Return the Jobs of a list, and Kueue's Workloads of anything else that is not in it.

    A job needs all its pods at once (``parallelism``, or the counts of a Workload's pod sets), ran
    from its start to its completion or failure, and waits in its local queue, or else in one by
    the name of its namespace. A smallest number of pods makes it elastic.

    Raises:
        InputError: Not such a document, or no job in it is usable.
    """
    out = Collector("kube", file, options, items=True)
    items = _items(text, file)
    workloads = {
        owner: item for item in items if _kind(item) == "Workload" for owner in _owners(item)
    }
    jobs = {_name(item) for item in items if _kind(item) == "Job"}

    def make(row: int, item: Item) -> Draft:
        if _kind(item) == "Workload":
            mine = next((owner for owner in _owners(item) if owner in jobs), None)
            if mine is not None:
                raise RowError("duplicate", f"is of the job {mine[2]}, which is in the list itself")
            return _of_workload(row, item)
        if _kind(item) != "Job":
            raise RowError("not_a_job", f"is a {_kind(item) or 'thing without a kind'}")
        over = next((owner for owner in _owners(item) if owner in workloads), None)
        if over is not None:
            raise RowError("duplicate", f"is a part of {over[1]} {over[2]}, whose Workload is read")
        return _of_job(row, item, workloads.get(_name(item), {}))

    out.read(enumerate(items, start=1), make)
    return out.workload(rebase=True)


def _items(text: str, file: str) -> list[Item]:
    """Return the objects of a list, an array or a single one.

    Raises:
        InputError: The text is not JSON, or holds no objects.
    """
    remedy = "hand in the output of `kubectl get jobs -o json`"
    try:
        document = decode(text, object)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError((Problem(f"is not JSON: {error}", remedy, file=file),)) from None
    if isinstance(document, dict) and isinstance(document.get("items"), list):
        document = document["items"]
    items: list[Any] = document if isinstance(document, list) else [document]
    if not all(isinstance(item, dict) for item in items):
        raise InputError((Problem("its items are not objects", remedy, file=file),))
    return items


def _of_job(row: int, job: Item, workload: Item) -> Draft:
    pods = _int(_at(job, "spec", "parallelism"), "spec.parallelism", default=1)
    pod = _map(_at(job, "spec", "template", "spec"))
    devices, _ = _devices(pod)
    least = _text(_at(job, "metadata", "annotations", _LEAST))
    started = _text(_at(job, "status", "startTime"))
    ended, state = _job_end(job)
    if not started and not ended:
        raise RowError("never_ran", "has no status.startTime")
    if not ended:
        raise RowError("unfinished", "has neither completed nor failed")
    start_s = seconds_since_epoch(started, "status.startTime")
    priority = _at(workload, "spec", "priority")
    return Draft(
        row=row,
        job_id="/".join(part for part in _name(job)[::2] if part),
        submit_s=_created_s(job),
        work_s=seconds_since_epoch(ended, "status.completionTime") - start_s,
        steps=_steps(pods, whole(least, _LEAST) if least else pods, devices),
        kinds=_kinds(workload) or _products(pod),
        forecast_s=float(_int(_at(job, "spec", "activeDeadlineSeconds"), "deadline", default=0)),
        state=state,
        user=_text(_at(job, "metadata", "namespace")),
        queue=_text(_at(job, "metadata", "labels", _QUEUE))
        or _text(_at(job, "metadata", "namespace")),
        priority=_int(
            _at(pod, "priority") if priority is None else priority, "priority", default=0
        ),
    )


def _of_workload(row: int, workload: Item) -> Draft:
    sets = [_map(pods) for pods in _list(_at(workload, "spec", "podSets"))]
    amounts, least = [], 0
    for pods in sets:
        count = _int(_at(pods, "count"), "count", default=1)
        each, _ = _devices(_map(_at(pods, "template", "spec")))
        amounts.append((count, each))
        least = _int(_at(pods, "minCount"), "minCount", default=count)
    admitted, ended = _condition(workload, "Admitted"), _condition(workload, "Finished")
    if not admitted:
        raise RowError("never_ran", "was never admitted")
    if not ended:
        raise RowError("unfinished", "has not finished")
    start_s = seconds_since_epoch(_text(_at(admitted, "lastTransitionTime")), "Admitted")
    end_s = seconds_since_epoch(_text(_at(ended, "lastTransitionTime")), "Finished")
    said = f"{_text(_at(ended, 'reason'))} {_text(_at(ended, 'message'))}".lower()
    total = sum(count * each for count, each in amounts)
    one = len(amounts) == 1
    limit = _at(workload, "spec", "maximumExecutionTimeSeconds")
    return Draft(
        row=row,
        job_id="/".join(part for part in _name(workload)[::2] if part),
        submit_s=_created_s(workload),
        work_s=end_s - start_s,
        steps=_steps(amounts[0][0], least, amounts[0][1]) if one else _steps(total, total, 1),
        kinds=_kinds(workload) or _products(_map(_at(sets[0], "template", "spec")) if sets else {}),
        forecast_s=float(_int(limit, "limit", default=0)),
        state="failed" if "fail" in said else "completed",
        user=_text(_at(workload, "metadata", "namespace")),
        queue=_text(_at(workload, "spec", "queueName"))
        or _text(_at(workload, "metadata", "namespace")),
        priority=_int(_at(workload, "spec", "priority"), "priority", default=0),
    )


def _steps(pods: int, least: int, each: int) -> Steps:
    """Return numbers of devices of a job of so many equal pods; one without any has none."""
    if pods < 1 or each < 1:
        return ((0, 0.0),)
    return tuple((count * each, step_s) for count, step_s in scaled(pods, max(1, least), pods))


def _job_end(job: Item) -> tuple[str, End]:
    """Return when a Job ended and how; nothing while it has not."""
    failed = _condition(job, "Failed")
    if failed:
        return _text(_at(failed, "lastTransitionTime")), "failed"
    complete = _condition(job, "Complete")
    return (
        _text(_at(job, "status", "completionTime")) or _text(_at(complete, "lastTransitionTime")),
        "completed",
    )


def _devices(pod: Item) -> tuple[int, str]:
    """Return the devices of one pod, and the name of their resource."""
    names: dict[str, None] = {}
    sums = []
    for group in ("containers", "initContainers"):
        amounts = []
        for container in _list(_at(pod, group)):
            resources = _map(_at(_map(container), "resources"))
            asked = _map(resources.get("requests")) | _map(resources.get("limits"))
            for name, amount in asked.items():
                if name in _DEVICES or name.startswith("nvidia.com/mig-"):
                    names[name] = None
                    amounts.append(_int(amount, name, default=0))
        # Containers run side by side, those of the start one after another
        sums.append(sum(amounts) if group == "containers" else max(amounts, default=0))
    return max(sums), next(iter(names), "")


def _kinds(workload: Item) -> tuple[str, ...]:
    """Return the flavors of devices that Kueue assigned."""
    flavors = {
        flavor: None
        for pods in _list(_at(workload, "status", "admission", "podSetAssignments"))
        for name, flavor in _map(_at(_map(pods), "flavors")).items()
        if (name in _DEVICES or name.startswith("nvidia.com/mig-")) and isinstance(flavor, str)
    }
    return tuple(flavors) if len(flavors) == 1 else ()


def _products(pod: Item) -> tuple[str, ...]:
    selector = _map(_at(pod, "nodeSelector"))
    named = [_text(selector.get(label)).lower() for label in _PRODUCTS if selector.get(label)]
    return tuple(named[:1])


def _condition(item: Item, kind: str) -> Item:
    """Return the condition of that type that holds; an empty one for none."""
    for condition in _list(_at(item, "status", "conditions")):
        found = _map(condition)
        if found.get("type") == kind and found.get("status") == "True":
            return found
    return {}


def _created_s(item: Item) -> float:
    return seconds_since_epoch(
        _text(_at(item, "metadata", "creationTimestamp")), "metadata.creationTimestamp"
    )


def _kind(item: Item) -> str:
    return _text(item.get("kind"))


def _name(item: Item) -> Owner:
    namespace = _text(_at(item, "metadata", "namespace"))
    return namespace, _kind(item), _text(_at(item, "metadata", "name"))


def _owners(item: Item) -> Iterator[Owner]:
    for owner in _list(_at(item, "metadata", "ownerReferences")):
        found = _map(owner)
        yield _name(item)[0], _text(found.get("kind")), _text(found.get("name"))


def _at(item: object, *path: str) -> object:
    """Return what stands at a path; nothing where there is none."""
    for name in path:
        if not isinstance(item, dict):
            return None
        item = item.get(name)
    return item


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _map(value: object) -> Item:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _int(value: object, field: str, *, default: int) -> int:
    """Return a whole number, written as one or as text.

    Raises:
        RowError: It is something else.
    """
    return default if value is None else whole(str(value), field)
