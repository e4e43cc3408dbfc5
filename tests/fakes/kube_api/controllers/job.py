"""Simulated: the Job controller. Pods by index, suspension, counting, failure policy."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tests.fakes.kube_api.controllers.loop import Hands, is_true, owned_by, owner_of, set_condition
from tests.fakes.kube_api.defaults import TRACKING
from tests.fakes.kube_api.server import KubeApi
from tests.fakes.kube_api.status import ApiError, Obj

INDEX = "batch.kubernetes.io/job-completion-index"
_REACHED = ("CompletionsReached", "Reached expected number of succeeded pods")
_BACKOFF = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
_DEADLINE = ("DeadlineExceeded", "Job was active longer than specified deadline")


@dataclass(frozen=True)
class _End:
    kind: str
    reason: str
    message: str


class JobController:
    """Makes the pods of Jobs and counts how they ended.

    Left out: back-off between retries, per-index limits, success policies, Jobs managed by others.
    """

    name = "job"

    def __init__(self, api: KubeApi) -> None:
        self._api, self._hands = api, Hands(api, "kube-controller-manager")
        self._due_s: float | None = None
        self._refusals: dict[str, str] = {}

    def due_s(self) -> float | None:
        """Return when the next deadline passes."""
        return self._due_s

    def step(self) -> None:
        """Look at every Job once."""
        self._due_s = None
        jobs = self._hands.all("jobs")
        self._release_orphans({job["metadata"]["uid"] for job in jobs})
        for job in jobs:
            if not is_true(job, "Complete") and not is_true(job, "Failed"):
                self._sync(job)
            elif "ttlSecondsAfterFinished" in job["spec"]:
                self._expire(job)

    def _expire(self, job: Obj) -> None:
        """Delete a Job that ended long enough ago."""
        ended = next(
            one["lastTransitionTime"]
            for one in job["status"]["conditions"]
            if one["type"] in ("Complete", "Failed") and one["status"] == "True"
        )
        if self._left_s(ended, job["spec"]["ttlSecondsAfterFinished"]) <= 0:
            self._hands.delete("jobs", job, propagationPolicy="Foreground")

    def _left_s(self, since: str, limit_s: float) -> float:
        """Return how long is left of a limit, and remember when it is over."""
        left_s = seconds(since) + limit_s - self._api.kernel.clock.now_s()
        if left_s > 0:
            due_s = self._api.kernel.clock.monotonic_s() + left_s
            self._due_s = due_s if self._due_s is None else min(self._due_s, due_s)
        return left_s

    def _release_orphans(self, uids: set[str]) -> None:
        """Drop the finalizer of pods whose Job is gone: nobody will count them."""
        for pod in self._hands.all("pods"):
            owner = owner_of(pod)
            is_of_job = owner is not None and owner["kind"] == "Job" and owner["uid"] in uids
            if not is_of_job and TRACKING in (pod["metadata"].get("finalizers") or ()):
                self._release(pod)

    def _release(self, pod: Obj) -> None:
        pod["metadata"]["finalizers"].remove(TRACKING)
        self._hands.write("pods", pod)

    def _pods(self, job: Obj) -> list[Obj]:
        uid = job["metadata"]["uid"]
        found = self._hands.all("pods", job["metadata"]["namespace"])
        return [one for one in found if (owner_of(one) or {}).get("uid") == uid]

    def _sync(self, job: Obj) -> None:
        spec, status = job["spec"], job.setdefault("status", {})
        now = self._api.kernel.now()
        if not spec["suspend"] and "startTime" not in status:
            status["startTime"] = now
        pods = self._pods(job)
        end = self._end(job, pods)
        if "deletionTimestamp" in job["metadata"]:
            self._leave(pods)
            return
        self._count(job, pods, over=end is not None)
        active = [one for one in pods if is_active(one)]
        if end is not None or spec["suspend"]:
            for pod in active:
                if end is None and TRACKING in (pod["metadata"].get("finalizers") or ()):
                    self._release(pod)  # what is stopped by suspending does not count as failed
                self._hands.delete("pods", pod)
            pods, active = self._pods(job), []
        else:
            active += self._create_missing(job, pods)
        self._conditions(job, end, pods, active)

    def _leave(self, pods: list[Obj]) -> None:
        for pod in pods:
            if TRACKING in (pod["metadata"].get("finalizers") or ()):
                self._release(pod)

    def _end(self, job: Obj, pods: list[Obj]) -> _End | None:
        spec, status = job["spec"], job["status"]
        told = next(
            (o for o in status.get("conditions") or () if o["type"] == "FailureTarget"), None
        )
        if told is not None:
            return _End("Failed", told["reason"], told["message"])
        failed = [one for one in pods if _is_failed(one, job)]
        rules = (spec.get("podFailurePolicy") or {}).get("rules") or []
        for pod in failed:
            found = match(rules, pod)
            if found is not None and found[0] == "FailJob":
                return _End("Failed", "PodFailurePolicy", found[1])
        uncounted = [
            one
            for one in failed
            if TRACKING in (one["metadata"].get("finalizers") or ()) and _counts(rules, one)
        ]
        if status.get("failed", 0) + len(uncounted) > spec["backoffLimit"]:
            return _End("Failed", *_BACKOFF)
        if self._is_past_deadline(job):
            return _End("Failed", *_DEADLINE)
        done = len(_done(job, pods)) if _is_indexed(job) else _succeeded(job, pods)
        if "completions" in spec:
            is_done = done >= spec["completions"]
        else:
            is_done = done > 0 and not any(is_active(one) for one in pods)
        return _End("Complete", *_REACHED) if is_done else None

    def _is_past_deadline(self, job: Obj) -> bool:
        limit_s, started = job["spec"].get("activeDeadlineSeconds"), job["status"].get("startTime")
        if limit_s is None or started is None or job["spec"]["suspend"]:
            return False
        return self._left_s(started, limit_s) <= 0

    def _count(self, job: Obj, pods: list[Obj], *, over: bool) -> None:
        """Count pods that ended, once each: then their finalizer goes."""
        status, rules = (
            job["status"],
            (job["spec"].get("podFailurePolicy") or {}).get("rules") or [],
        )
        if _is_indexed(job):
            done = _done(job, pods)
            status |= {"completedIndexes": intervals(done), "succeeded": len(done)}
        for pod in pods:
            if TRACKING not in (pod["metadata"].get("finalizers") or ()):
                continue
            phase = pod["status"]["phase"]
            if phase == "Succeeded" and not _is_indexed(job):
                status["succeeded"] = status.get("succeeded", 0) + 1
            elif phase != "Succeeded" and (_is_failed(pod, job) or over) and _counts(rules, pod):
                status["failed"] = status.get("failed", 0) + 1
            if phase == "Succeeded" or _is_failed(pod, job) or over:
                self._release(pod)

    def _create_missing(self, job: Obj, pods: list[Obj]) -> list[Obj]:
        spec = job["spec"]
        waits = spec["podReplacementPolicy"] == "Failed"
        busy = [
            one
            for one in pods
            if is_active(one)
            or (waits and "deletionTimestamp" in one["metadata"] and not _has_ended(one))
        ]
        wanted = spec["parallelism"] - len(busy)
        if not _is_indexed(job):
            if "completions" in spec:
                left = spec["completions"] - job["status"].get("succeeded", 0)
                wanted = min(spec["parallelism"], left) - len(busy)
            elif job["status"].get("succeeded", 0):
                wanted = 0
            return [pod for _ in range(max(wanted, 0)) for pod in self._create(job, None)]
        taken = {index_of(one) for one in busy} | _done(job, pods)
        missing = [one for one in range(spec["completions"]) if one not in taken]
        chosen = missing[: max(wanted, 0)]
        return [pod for one in chosen for pod in self._create(job, one)]

    def _create(self, job: Obj, index: int | None) -> list[Obj]:
        meta, template = job["metadata"], job["spec"]["template"]
        labels = dict((template.get("metadata") or {}).get("labels") or {})
        notes = dict((template.get("metadata") or {}).get("annotations") or {})
        spec: dict[str, Any] = {**template["spec"]}
        name = meta["name"]
        if index is not None:
            labels[INDEX] = notes[INDEX] = str(index)
            name = f"{name}-{index}"
            spec.setdefault("hostname", name)
            source = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}
            variable = {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}
            for part in ("initContainers", "containers"):
                if part in spec:
                    spec[part] = [
                        {**one, "env": [*(one.get("env") or ()), variable]} for one in spec[part]
                    ]
        pod = {
            "metadata": {
                "generateName": f"{name}-",
                "namespace": meta["namespace"],
                "labels": labels,
                "annotations": notes,
                "ownerReferences": [owned_by(job)],
                "finalizers": [TRACKING],
            },
            "spec": spec,
        }
        return self._try(job, pod)

    def _try(self, job: Obj, pod: Obj) -> list[Obj]:
        """Create a pod; where admission refuses it, say so once and try again later."""
        try:
            made = self._hands.create("pods", pod)
        except ApiError as error:
            told = f"Error creating: {error.message}"
            uid = job["metadata"]["uid"]
            if error.code != 403:
                raise
            if self._refusals.get(uid) != told:
                self._refusals[uid] = told
                self._hands.event(job, "Warning", "FailedCreate", told)
            return []
        self._hands.event(
            job, "Normal", "SuccessfulCreate", f"Created pod: {made['metadata']['name']}"
        )
        return [made]

    def _conditions(self, job: Obj, end: _End | None, pods: list[Obj], active: list[Obj]) -> None:
        before = self._hands.get("jobs", job["metadata"]["namespace"], job["metadata"]["name"])
        status = job["status"]
        terminating = [one for one in pods if _is_leaving(one)]
        status |= {
            "active": len(active),
            "ready": sum(is_true(one, "Ready") for one in active),
            "terminating": len(terminating),
            "uncountedTerminatedPods": {},
        }
        for name in ("active", "succeeded", "failed", "completedIndexes"):
            if not status.get(name):  # Go leaves out what is zero: clients must not expect it
                status.pop(name, None)
        if end is not None:
            self._close(status, end, is_last=not terminating)
        else:
            self._say_whether_suspended(job)
        if before is not None and before.get("status") != status:
            self._hands.status("jobs", job)

    def _close(self, status: Obj, end: _End, *, is_last: bool) -> None:
        now = self._api.kernel.now()
        first = "SuccessCriteriaMet" if end.kind == "Complete" else "FailureTarget"
        told = {"reason": end.reason, "message": end.message}
        set_condition(status, first, "True", now=now, **told)
        if is_last:
            set_condition(status, end.kind, "True", now=now, **told)
            if end.kind == "Complete":
                status["completionTime"] = now

    def _say_whether_suspended(self, job: Obj) -> None:
        status, now = job["status"], self._api.kernel.now()
        is_known = any(one["type"] == "Suspended" for one in status.get("conditions") or ())
        if not job["spec"]["suspend"] and not is_known:
            return
        value, word = ("True", "suspended") if job["spec"]["suspend"] else ("False", "resumed")
        reason, told = f"Job{word.capitalize()}", f"Job {word}"
        if set_condition(status, "Suspended", value, reason=reason, message=told, now=now):
            self._hands.event(job, "Normal", word.capitalize(), told)
            if value == "False":
                status["startTime"] = now


def match(rules: list[Obj], pod: Obj) -> tuple[str, str] | None:
    """Return the action of the first rule that a failed pod meets, and why; None for none."""
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    for at, rule in enumerate(rules):
        told = f"matching {rule['action']} rule at index {at}"
        if "onExitCodes" in rule:
            one = _failed_container(rule["onExitCodes"], pod)
            if one is not None:
                code = one["state"]["terminated"]["exitCode"]
                return rule["action"], (
                    f"Container {one['name']} for pod {name} failed with exit code {code} {told}"
                )
        for wanted in rule.get("onPodConditions") or ():
            if any(
                one["type"] == wanted["type"] and one["status"] == wanted["status"]
                for one in pod["status"].get("conditions") or ()
            ):
                return rule["action"], f"Pod {name} has condition {wanted['type']} {told}"
    return None


def _failed_container(rule: Obj, pod: Obj) -> Obj | None:
    for one in pod["status"].get("containerStatuses") or ():
        code = one.get("state", {}).get("terminated", {}).get("exitCode", 0)
        is_named = rule.get("containerName") in (None, one["name"])
        if is_named and code and (code in rule["values"]) is (rule["operator"] == "In"):
            found: Obj = one
            return found
    return None


def _counts(rules: list[Obj], pod: Obj) -> bool:
    found = match(rules, pod)
    return found is None or found[0] != "Ignore"


def is_active(pod: Obj) -> bool:
    """Say whether a pod counts as active: it has not ended and is not being deleted."""
    return not _has_ended(pod) and "deletionTimestamp" not in pod["metadata"]


def _has_ended(pod: Obj) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def _is_leaving(pod: Obj) -> bool:
    return "deletionTimestamp" in pod["metadata"] and not _has_ended(pod)


def _is_failed(pod: Obj, job: Obj) -> bool:
    if pod["status"]["phase"] == "Failed":
        return True
    if job["spec"]["podReplacementPolicy"] == "Failed":
        return False
    return "deletionTimestamp" in pod["metadata"] and pod["status"]["phase"] != "Succeeded"


def _is_indexed(job: Obj) -> bool:
    return bool(job["spec"]["completionMode"] == "Indexed")


def index_of(pod: Obj) -> int:
    """Return a pod's completion index."""
    return int(pod["metadata"]["annotations"][INDEX])


def _done(job: Obj, pods: list[Obj]) -> set[int]:
    done = {index_of(one) for one in pods if one["status"]["phase"] == "Succeeded"}
    for part in job["status"].get("completedIndexes", "").split(","):
        if part:
            first, _, last = part.partition("-")
            done |= set(range(int(first), int(last or first) + 1))
    return {one for one in done if one < job["spec"]["completions"]}


def _succeeded(job: Obj, pods: list[Obj]) -> int:
    fresh = [
        one
        for one in pods
        if one["status"]["phase"] == "Succeeded"
        and TRACKING in (one["metadata"].get("finalizers") or ())
    ]
    return len(fresh) + int(job["status"].get("succeeded", 0))


def intervals(indexes: set[int]) -> str:
    """Return ``0-2,5`` for {0, 1, 2, 5}."""
    runs: list[list[int]] = []
    for one in sorted(indexes):
        if runs and runs[-1][1] == one - 1:
            runs[-1][1] = one
        else:
            runs.append([one, one])
    # Of two, Kubernetes writes both: 1,2
    texts = [f"{a}" if a == b else f"{a},{b}" if b == a + 1 else f"{a}-{b}" for a, b in runs]
    return ",".join(texts)


def seconds(stamp: str) -> float:
    """Return the seconds since the epoch of an RFC 3339 time."""
    return datetime.fromisoformat(stamp).timestamp()
