"""Simulated: the controller of Kubeflow's Trainer. A JobSet from a runtime and what differs."""

import copy

from tests.fakes.kube_api.controllers.loop import Hands, is_true, owned_by, set_condition
from tests.fakes.kube_api.server import KubeApi
from tests.fakes.kube_api.status import Obj

_API = "trainer.kubeflow.org/v1alpha1"
_STEP_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
_CONTAINER = "node"


class TrainJobController:
    """Keeps the JobSet of each TrainJob, and tells what becomes of it.

    Left out: cluster runtimes, frameworks' own policies, initializers, overrides of pods, and
    whatever is changed after the start.
    """

    name = "trainjob"

    def __init__(self, api: KubeApi) -> None:
        self._api, self._hands = api, Hands(api, "trainer-controller")

    def due_s(self) -> float | None:
        """Nothing is due by time."""
        return None

    def step(self) -> None:
        """Look at every TrainJob once."""
        for job in self._hands.all("trainjobs", api_version=_API):
            over = is_true(job, "Complete") or is_true(job, "Failed")
            if not over and "deletionTimestamp" not in job["metadata"]:
                self._sync(job)

    def _sync(self, job: Obj) -> None:
        meta = job["metadata"]
        made = self._hands.get("jobsets", meta["namespace"], meta["name"])
        suspend = bool(job["spec"].get("suspend"))
        if made is None:
            named = job["spec"]["runtimeRef"]["name"]
            runtime = self._hands.get("trainingruntimes", meta["namespace"], named, _API)
            if runtime is None:
                self._tell(job, "Failed", "TrainingRuntimeNotSupported", f"no runtime {named}")
                return
            self._hands.create("jobsets", self._jobset(job, runtime))
        elif bool(made["spec"].get("suspend")) is not suspend:
            made["spec"]["suspend"] = suspend
            self._hands.write("jobsets", made)
        else:
            self._follow(job, made)

    def _jobset(self, job: Obj, runtime: Obj) -> Obj:
        template = copy.deepcopy(runtime["spec"]["template"])
        spec, trainer = template["spec"], job["spec"].get("trainer") or {}
        nodes = trainer.get("numNodes") or runtime["spec"]["mlPolicy"]["numNodes"]
        for group in spec["replicatedJobs"]:
            labels = (group["template"].get("metadata") or {}).get("labels") or {}
            if labels.get(_STEP_LABEL) == "trainer":
                child = group["template"]["spec"]
                child["parallelism"] = child["completions"] = nodes
                for container in child["template"]["spec"]["containers"]:
                    if container["name"] == _CONTAINER:
                        _override(container, trainer)
        meta = job["metadata"]
        return {
            "metadata": {
                "name": meta["name"],
                "namespace": meta["namespace"],
                "labels": (template.get("metadata") or {}).get("labels") or {},
                "ownerReferences": [owned_by(job)],
            },
            "spec": {**spec, "suspend": bool(job["spec"].get("suspend"))},
        }

    def _follow(self, job: Obj, jobset: Obj) -> None:
        before = copy.deepcopy(job.get("status"))
        status = job.setdefault("status", {})
        status["jobsStatus"] = jobset.get("status", {}).get("replicatedJobsStatus") or []
        if is_true(jobset, "Completed"):
            self._set(status, "Complete", "JobsCompleted", "all jobs are done")
        elif is_true(jobset, "Failed"):
            (why,) = [one for one in jobset["status"]["conditions"] if one["type"] == "Failed"]
            self._set(status, "Failed", why["reason"], why["message"])
        if status != before:
            self._hands.status("trainjobs", job)

    def _tell(self, job: Obj, kind: str, reason: str, message: str) -> None:
        self._set(job.setdefault("status", {}), kind, reason, message)
        self._hands.status("trainjobs", job)

    def _set(self, status: Obj, kind: str, reason: str, message: str) -> None:
        now = self._api.kernel.now()
        set_condition(status, kind, "True", reason=reason, message=message, now=now)


def _override(container: Obj, trainer: Obj) -> None:
    """Let a container be what the job says of it; variables are added to those of the runtime."""
    container |= {name: trainer[name] for name in ("image", "command", "args") if name in trainer}
    if "resourcesPerNode" in trainer:
        container["resources"] = trainer["resourcesPerNode"]
    if "env" in trainer:
        own = {one["name"]: one for one in container.get("env") or ()}
        container["env"] = [*(own | {one["name"]: one for one in trainer["env"]}).values()]
