"""Simulated: the JobSet controller. Child Jobs, a headless Service, suspension, restarts."""

from tests.fakes.kube_api.controllers.loop import Hands, is_true, owned_by, owner_of, set_condition
from tests.fakes.kube_api.server import KubeApi
from tests.fakes.kube_api.status import Obj

_PREFIX = "jobset.sigs.k8s.io"


class JobSetController:
    """Keeps the child Jobs of each JobSet.

    Left out: success policies but ``All``, failure rules, start orders, coordinators, exclusive
    placement.
    """

    name = "jobset"

    def __init__(self, api: KubeApi) -> None:
        self._api, self._hands = api, Hands(api, "jobset-controller")

    def due_s(self) -> float | None:
        """Nothing is due by time."""
        return None

    def step(self) -> None:
        """Look at every JobSet once."""
        for jobset in self._hands.all("jobsets"):
            if is_true(jobset, "Completed") or is_true(jobset, "Failed"):
                continue
            if "deletionTimestamp" not in jobset["metadata"]:
                self._sync(jobset)

    def _sync(self, jobset: Obj) -> None:
        status = jobset.setdefault("status", {})
        restarts = status.get("restarts", 0)
        jobs = self._children(jobset)
        current = [one for one in jobs if _attempt(one) == restarts]
        for job in jobs:
            if _attempt(job) < restarts:
                self._hands.delete("jobs", job, propagationPolicy="Foreground")
        if len(current) == len(jobs):
            self._service(jobset)
            self._create(jobset, {one["metadata"]["name"] for one in jobs}, restarts)
        self._suspend(jobset, current)
        self._tell(jobset, self._children(jobset))

    def _children(self, jobset: Obj) -> list[Obj]:
        uid = jobset["metadata"]["uid"]
        found = self._hands.all("jobs", jobset["metadata"]["namespace"])
        return [one for one in found if (owner_of(one) or {}).get("uid") == uid]

    def _service(self, jobset: Obj) -> None:
        network = jobset["spec"].get("network") or {}
        if network.get("enableDNSHostnames") is False:
            return
        meta = jobset["metadata"]
        name = network.get("subdomain") or meta["name"]
        if self._hands.get("services", meta["namespace"], name) is None:
            publish = network.get("publishNotReadyAddresses", True)
            self._hands.create(
                "services",
                {
                    "metadata": {
                        "name": name,
                        "namespace": meta["namespace"],
                        "ownerReferences": [owned_by(jobset)],
                    },
                    "spec": {
                        "clusterIP": "None",
                        "publishNotReadyAddresses": publish,
                        "selector": {f"{_PREFIX}/jobset-name": meta["name"]},
                    },
                },
            )

    def _create(self, jobset: Obj, known: set[str], restarts: int) -> None:
        for group in jobset["spec"]["replicatedJobs"]:
            for index in range(group.get("replicas", 1)):
                name = f"{jobset['metadata']['name']}-{group['name']}-{index}"
                if name not in known:
                    self._hands.create("jobs", self._job(jobset, group, index, restarts))

    def _job(self, jobset: Obj, group: Obj, index: int, restarts: int) -> Obj:
        meta, template = jobset["metadata"], group["template"]
        name = f"{meta['name']}-{group['name']}-{index}"
        marks = {
            f"{_PREFIX}/jobset-name": meta["name"],
            f"{_PREFIX}/replicatedjob-name": group["name"],
            f"{_PREFIX}/replicatedjob-replicas": str(group.get("replicas", 1)),
            f"{_PREFIX}/job-index": str(index),
            f"{_PREFIX}/restart-attempt": str(restarts),
        }
        own = template.get("metadata") or {}
        pod = template["spec"]["template"]
        pod_meta = pod.get("metadata") or {}
        network = jobset["spec"].get("network") or {}
        spec = {**pod["spec"]}
        if network.get("enableDNSHostnames") is not False:
            spec["subdomain"] = network.get("subdomain") or meta["name"]
        return {
            "metadata": {
                "name": name,
                "namespace": meta["namespace"],
                "labels": {**(own.get("labels") or {}), **marks},
                "annotations": {**(own.get("annotations") or {}), **marks},
                "ownerReferences": [owned_by(jobset)],
            },
            "spec": {
                **template["spec"],
                "suspend": bool(jobset["spec"].get("suspend")),
                "template": {
                    "metadata": {
                        "labels": {**(pod_meta.get("labels") or {}), **marks},
                        "annotations": {**(pod_meta.get("annotations") or {}), **marks},
                    },
                    "spec": spec,
                },
            },
        }

    def _suspend(self, jobset: Obj, jobs: list[Obj]) -> None:
        wanted = bool(jobset["spec"].get("suspend"))
        groups = {one["name"]: one for one in jobset["spec"]["replicatedJobs"]}
        for job in jobs:
            if is_true(job, "Complete") or is_true(job, "Failed"):
                continue
            if job["spec"]["suspend"] is wanted:
                continue
            if not wanted:  # where Kueue said where to run, the templates say so by now
                group = groups[job["metadata"]["labels"][f"{_PREFIX}/replicatedjob-name"]]
                if "startTime" in job.get("status", {}):
                    del job["status"]["startTime"]
                    job = self._hands.status("jobs", job)
                said = group["template"]["spec"]["template"]["spec"]
                for part in ("nodeSelector", "tolerations"):
                    job["spec"]["template"]["spec"].pop(part, None)
                    if part in said:
                        job["spec"]["template"]["spec"][part] = said[part]
            job["spec"]["suspend"] = wanted
            self._hands.write("jobs", job)

    def _tell(self, jobset: Obj, jobs: list[Obj]) -> None:
        meta, now = jobset["metadata"], self._api.kernel.now()
        before = self._hands.get("jobsets", meta["namespace"], meta["name"])
        status = jobset["status"]
        restarts = status.setdefault("restarts", 0)
        jobs = [one for one in jobs if _attempt(one) == restarts]
        status["replicatedJobsStatus"] = [
            _counts(group["name"], jobs) for group in jobset["spec"]["replicatedJobs"]
        ]
        failed = [one for one in jobs if is_true(one, "Failed")]
        is_done = bool(jobs) and all(is_true(one, "Complete") for one in jobs)
        limit = (jobset["spec"].get("failurePolicy") or {}).get("maxRestarts", 0)
        if failed and restarts < limit:
            status["restarts"] = restarts + 1
        elif failed:
            self._close(
                status,
                "Failed",
                "FailedJobs",
                "jobset failed due to one or more job "
                f"failures (first failed job: {failed[0]['metadata']['name']})",
            )
        elif is_done:
            told = "jobset completed successfully"
            self._close(status, "Completed", "AllJobsCompleted", told)
        elif jobset["spec"].get("suspend"):
            set_condition(
                status,
                "Suspended",
                "True",
                reason="SuspendedJobs",
                message="jobset is suspended",
                now=now,
            )
        elif any(one["type"] == "Suspended" for one in status.get("conditions") or ()):
            set_condition(
                status,
                "Suspended",
                "False",
                reason="ResumeJobs",
                message="jobset is resumed",
                now=now,
            )
        if before is not None and before.get("status") != status:
            self._hands.status("jobsets", jobset)

    def _close(self, status: Obj, kind: str, reason: str, message: str) -> None:
        now = self._api.kernel.now()
        set_condition(status, kind, "True", reason=reason, message=message, now=now)
        status["terminalState"] = kind


def _attempt(job: Obj) -> int:
    return int(job["metadata"]["labels"][f"{_PREFIX}/restart-attempt"])


def _counts(name: str, jobs: list[Obj]) -> Obj:
    own = [
        one for one in jobs if one["metadata"]["labels"][f"{_PREFIX}/replicatedjob-name"] == name
    ]
    names = ("ready", "succeeded", "failed", "active", "suspended")
    counts: Obj = {"name": name, **dict.fromkeys(names, 0)}
    for job in own:
        status, spec = job.get("status", {}), job["spec"]
        wanted = min(spec["parallelism"], spec.get("completions", spec["parallelism"]))
        counts["succeeded"] += is_true(job, "Complete")
        counts["failed"] += is_true(job, "Failed")
        counts["suspended"] += bool(spec["suspend"])
        counts["active"] += bool(status.get("active"))
        counts["ready"] += status.get("ready", 0) + status.get("succeeded", 0) >= wanted
    return counts
