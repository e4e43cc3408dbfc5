"""Simulated: what Kueue reads of Jobs and JobSets, and writes into them."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from tests.fakes.kube_api.controllers.kueue_quota import Claim, requests_of
from tests.fakes.kube_api.controllers.loop import Hands, is_true
from tests.fakes.kube_api.quantity import quantity, shown
from tests.fakes.kube_api.status import Obj, copied

_TOPOLOGY = {
    "kueue.x-k8s.io/podset-required-topology": "required",
    "kueue.x-k8s.io/podset-preferred-topology": "preferred",
    "kueue.x-k8s.io/podset-slice-required-topology": "podSetSliceRequiredTopology",
}


def message_of(workload: Obj, kind: str) -> str:
    """Return the message of a condition; empty where there is none."""
    return next(
        (str(one["message"]) for one in workload["status"]["conditions"] if one["type"] == kind), ""
    )


def claim_of(workload: Obj) -> Claim:
    """Return what a workload that was admitted holds."""
    admission, meta = workload["status"]["admission"], workload["metadata"]
    usage: dict[tuple[str, str], Fraction] = {}
    for one in admission["podSetAssignments"]:
        for name, size in (one.get("resourceUsage") or {}).items():
            key = (one["flavors"][name], name)
            usage[key] = usage.get(key, Fraction(0)) + quantity(size)
    return Claim(
        (meta["namespace"], meta["name"]),
        admission["clusterQueue"],
        workload["spec"].get("priority", 0),
        meta["creationTimestamp"],
        meta["uid"],
        usage,
    )


def assignment_of(pod_set: Obj, flavors: Mapping[str, Mapping[str, str]]) -> Obj:
    """Return a pod set's assignment, as ``status.admission`` says it."""
    asked = requests_of(pod_set["template"]["spec"], pod_set["count"])
    return {
        "name": pod_set["name"],
        "count": pod_set["count"],
        "flavors": dict(flavors[pod_set["name"]]),
        "resourceUsage": {name: shown(size) for name, size in asked.items()},
    }


def templates_of(job: Obj) -> list[tuple[str, Obj]]:
    """Return the pod templates of a job, by the names of their pod sets."""
    if job["kind"] == "Job":
        return [("main", job["spec"]["template"])]
    return [
        (one["name"], one["template"]["spec"]["template"]) for one in job["spec"]["replicatedJobs"]
    ]


def pod_sets_of(job: Obj) -> list[Obj]:
    """Return the pod sets of the Workload of a job."""
    if job["kind"] == "Job":
        spec = job["spec"]
        counts = {"main": min(spec["parallelism"], spec.get("completions", spec["parallelism"]))}
    else:
        counts = {
            one["name"]: one.get("replicas", 1) * one["template"]["spec"].get("parallelism", 1)
            for one in job["spec"]["replicatedJobs"]
        }
    return [_pod_set(name, template, counts[name]) for name, template in templates_of(job)]


def _pod_set(name: str, template: Obj, count: int) -> Obj:
    kept = copied(template)
    found: Obj = {"name": name, "count": count, "template": kept}
    notes = (template.get("metadata") or {}).get("annotations") or {}
    request: dict[str, Any] = {to: notes[key] for key, to in _TOPOLOGY.items() if key in notes}
    size = notes.get("kueue.x-k8s.io/podset-slice-size")
    if size is not None:
        request["podSetSliceSize"] = int(size)
    if request:
        found["topologyRequest"] = request
    return found


def inject(pod: Obj, flavor: Obj) -> None:
    """Give a pod's spec the node labels and tolerations of a flavor."""
    labels = flavor.get("nodeLabels")
    if labels:
        pod["nodeSelector"] = {**(pod.get("nodeSelector") or {}), **labels}
    if flavor.get("tolerations"):
        more = [one for one in flavor["tolerations"] if one not in (pod.get("tolerations") or ())]
        pod["tolerations"] = [*(pod.get("tolerations") or ()), *more]


def end_of(job: Obj) -> tuple[str, str] | None:
    """Return how a job ended: the reason and message of its workload's ``Finished``."""
    for kind, reason in (
        ("Complete", "Succeeded"),
        ("Completed", "Succeeded"),
        ("Failed", "Failed"),
    ):
        if is_true(job, kind):
            told = message_of(job, kind)
            return reason, told or "Job finished successfully"
    return None


def is_active(hands: Hands, job: Obj) -> bool:
    """Say whether pods of a job still run."""
    if job["kind"] == "Job":
        return bool(job.get("status", {}).get("active"))
    counts = job.get("status", {}).get("replicatedJobsStatus") or ()
    return any(one.get("active") for one in counts)


def why_closed(workload: Obj, local: Obj | None, queue: Obj | None, namespace: Obj) -> str:
    """Return why a workload's queue takes nothing; empty when it does."""
    name = workload["spec"].get("queueName", "")
    if local is None:
        return f"LocalQueue {name} doesn't exist"
    if local["spec"].get("stopPolicy", "None") != "None":
        return f"LocalQueue {name} is inactive"
    if queue is None:
        return f"ClusterQueue {local['spec']['clusterQueue']} doesn't exist"
    if queue["spec"].get("stopPolicy", "None") != "None":
        return f"ClusterQueue {queue['metadata']['name']} is inactive"
    selector = queue["spec"].get("namespaceSelector")
    labels = namespace["metadata"].get("labels") or {}
    wanted = (selector or {}).get("matchLabels") or {}
    if selector is None or any(labels.get(key) != value for key, value in wanted.items()):
        return "Workload namespace doesn't match ClusterQueue selector"
    return ""


def target_of(workload: Obj, locals_: Mapping[tuple[str, str], Obj]) -> str:
    """Return the ClusterQueue that a workload waits in or has quota of."""
    admission = workload.get("status", {}).get("admission")
    if admission:
        return str(admission["clusterQueue"])
    key = (workload["metadata"]["namespace"], workload["spec"].get("queueName", ""))
    return str(locals_[key]["spec"]["clusterQueue"]) if key in locals_ else ""


def rank_of(workload: Obj) -> tuple[int, str, str]:
    """Return the order of workloads that wait: the most important first, then the oldest."""
    priority = workload["spec"].get("priority", 0)
    return (-priority, _since(workload), workload["metadata"]["uid"])


def _since(workload: Obj) -> str:
    for one in workload.get("status", {}).get("conditions") or ():
        if one["type"] == "Requeued" and one["reason"] == "PodsReadyTimeout":
            return str(one["lastTransitionTime"])
    return str(workload["metadata"]["creationTimestamp"])
