"""Simulated: Kueue. A Workload for each Job and JobSet with a queue; quota, admission, eviction.

Left out: topologies (a request is carried on the Workload, not computed), admission checks, fair
sharing, partial admission, pod groups, requeue back-off.
"""

import hashlib
from fractions import Fraction

from tests.fakes.kube_api.controllers.kueue_jobs import (
    assignment_of,
    claim_of,
    end_of,
    inject,
    is_active,
    message_of,
    pod_sets_of,
    rank_of,
    target_of,
    templates_of,
    why_closed,
)
from tests.fakes.kube_api.controllers.kueue_quota import Claim, Fit, Quotas
from tests.fakes.kube_api.controllers.loop import (
    Hands,
    is_true,
    owned_by,
    owner_of,
    set_condition,
)
from tests.fakes.kube_api.quantity import shown
from tests.fakes.kube_api.server import KubeApi
from tests.fakes.kube_api.status import ApiError, Obj, copied

QUEUE = "kueue.x-k8s.io/queue-name"
PRIORITY = "kueue.x-k8s.io/priority-class"
_KINDS = {"Job": "jobs", "JobSet": "jobsets"}
_DUE_TO = {
    "InClusterQueue": "prioritization in the ClusterQueue",
    "InCohortReclamation": "reclamation within the cohort",
}


class Kueue:
    """Holds jobs with a queue suspended until there is quota, and suspends them to make room."""

    name = "kueue"

    def __init__(self, api: KubeApi) -> None:
        self._api, self._hands = api, Hands(api, "kueue")
        stored = api.kernel.resources.stored(("kueue.x-k8s.io", "workloads"))
        if stored is None:
            raise LookupError("install Kueue's CRDs first")
        self.version = stored.api_version
        self._is_new = stored.version != "v1beta1"
        api.kernel.webhooks.append(self._admit)

    def due_s(self) -> float | None:
        """Nothing is due by time."""
        return None

    def step(self) -> None:
        """Look at every job and every workload once."""
        for plural in _KINDS.values():
            for job in self._hands.all(plural):
                if self._is_managed(job):
                    self._sync(plural, job)
        self._evict_as_told()
        self._schedule()
        self._report()

    def _admit(self, operation: str, obj: Obj, old: Obj | None) -> None:
        """Play the webhooks: new jobs with a queue are suspended, that of running ones is fixed."""
        if obj["kind"] not in _KINDS:
            return
        if operation == "CREATE" and self._is_managed(obj):
            obj["spec"]["suspend"] = True
        if old is not None and not old["spec"].get("suspend") and not obj["spec"].get("suspend"):
            was, now = (one["metadata"].get("labels", {}).get(QUEUE) for one in (old, obj))
            if was != now:
                told = (
                    f"admission webhook denied the request: metadata.labels[{QUEUE}]: Invalid "
                    f'value: "{now}": field is immutable'
                )
                raise ApiError(403, "Forbidden", told)

    def _is_managed(self, job: Obj) -> bool:
        owner = owner_of(job)
        of_another = owner is not None and owner["kind"] in (*_KINDS, "TrainJob")
        return bool(job["metadata"].get("labels", {}).get(QUEUE)) and not of_another

    def _all(self, plural: str, namespace: str = "") -> list[Obj]:
        return self._hands.all(plural, namespace, self.version)

    def _workload_of(self, job: Obj) -> Obj | None:
        uid = job["metadata"]["uid"]
        found = self._all("workloads", job["metadata"]["namespace"])
        return next((one for one in found if (owner_of(one) or {}).get("uid") == uid), None)

    def _sync(self, plural: str, job: Obj) -> None:
        workload = self._workload_of(job)
        ended = end_of(job)
        if workload is None:
            if ended is None and "deletionTimestamp" not in job["metadata"]:
                self._create(job)
            return
        if ended is not None:
            if not is_true(workload, "Finished"):
                self._set(workload, "Finished", "True", *ended)
            return
        queue = job["metadata"]["labels"][QUEUE]
        if workload["spec"].get("queueName") != queue:
            workload["spec"]["queueName"] = queue
            workload = self._hands.write("workloads", workload)
        is_admitted = is_true(workload, "Admitted") and not is_true(workload, "Evicted")
        if is_admitted and job["spec"].get("suspend"):
            self._start(plural, job, workload)
        elif not is_admitted and not job["spec"].get("suspend"):
            self._stop(plural, job, workload)
        elif is_true(workload, "Evicted") and not is_active(self._hands, job):
            self._requeue(workload)

    def _create(self, job: Obj) -> None:
        meta = job["metadata"]
        prefix = job["kind"].lower()
        digest = hashlib.sha1(f"{job['kind']}/{meta['name']}/{meta['uid']}".encode()).hexdigest()
        spec: Obj = {
            "active": True,
            "queueName": meta["labels"][QUEUE],
            "podSets": pod_sets_of(job),
            "priority": 0,
        }
        spec |= self._priority(job)
        body = {
            "metadata": {
                "name": f"{prefix}-{meta['name']}-{digest[:5]}",
                "namespace": meta["namespace"],
                "labels": {"kueue.x-k8s.io/job-uid": meta["uid"]},
                "ownerReferences": [owned_by(job)],
            },
            "spec": spec,
        }
        made = self._hands.create("workloads", body, self.version)
        self._hands.event(
            job,
            "Normal",
            "CreatedWorkload",
            f"Created Workload: {meta['namespace']}/{made['metadata']['name']}",
        )

    def _priority(self, job: Obj) -> Obj:
        """Return what a Workload says of its priority; Kueue's own class goes before a pod's."""
        name = job["metadata"]["labels"].get(PRIORITY)
        plural, group, kind = "workloadpriorityclasses", "kueue.x-k8s.io", "WorkloadPriorityClass"
        found = self._hands.get(plural, "", name, self.version) if name else None
        if found is None:
            pods = [one["template"]["spec"] for one in pod_sets_of(job)]
            name = next(
                (one["priorityClassName"] for one in pods if "priorityClassName" in one), None
            )
            plural, group, kind = "priorityclasses", "scheduling.k8s.io", "PriorityClass"
            found = self._hands.get(plural, "", name) if name else None
        if found is None:
            return {}
        if self._is_new:
            reference = {"group": group, "kind": kind, "name": name}
            return {"priorityClassRef": reference, "priority": found["value"]}
        return {
            "priorityClassName": name,
            "priorityClassSource": f"{group}/{kind.lower()}",
            "priority": found["value"],
        }

    def _start(self, plural: str, job: Obj, workload: Obj) -> None:
        """Unsuspend a job, on the nodes of the flavors that were assigned."""
        if "startTime" in job.get("status", {}):
            del job["status"]["startTime"]
            job = self._hands.status(plural, job)
        flavors = {one["metadata"]["name"]: one for one in self._all("resourceflavors")}
        assigned = {
            one["name"]: one for one in workload["status"]["admission"]["podSetAssignments"]
        }
        for name, template in templates_of(job):
            for flavor in sorted(set((assigned[name].get("flavors") or {}).values())):
                spec = flavors[flavor].get("spec") or {}
                inject(template["spec"], spec)
        job["spec"]["suspend"] = False
        self._hands.write(plural, job)
        queue = workload["status"]["admission"]["clusterQueue"]
        self._hands.event(job, "Normal", "Started", f"Admitted by clusterQueue {queue}")

    def _stop(self, plural: str, job: Obj, workload: Obj) -> None:
        """Suspend a job, and give it back its own node selector and tolerations."""
        if job["spec"].get("suspend"):
            return
        job["spec"]["suspend"] = True
        job = self._hands.write(plural, job)
        if "startTime" in job.get("status", {}):
            del job["status"]["startTime"]
            job = self._hands.status(plural, job)
        own = {one["name"]: one["template"]["spec"] for one in workload["spec"]["podSets"]}
        for name, template in templates_of(job):
            for part in ("nodeSelector", "tolerations"):
                template["spec"].pop(part, None)
                if part in own[name]:
                    template["spec"][part] = copied(own[name][part])
        self._hands.write(plural, job)
        told = next(
            (
                one["message"]
                for one in workload.get("status", {}).get("conditions") or ()
                if one["type"] == "Evicted"
            ),
            "Not admitted by cluster queue",
        )
        self._hands.event(job, "Normal", "Stopped", told)

    def _set(self, workload: Obj, kind: str, value: str, reason: str, message: str) -> Obj:
        status = workload.setdefault("status", {})
        now = self._api.kernel.now()
        if set_condition(status, kind, value, reason=reason, message=message, now=now):
            return self._hands.status("workloads", workload)
        return workload

    def _requeue(self, workload: Obj) -> None:
        """Give the quota of a workload back whose job has stopped; it may be admitted again."""
        if "admission" not in workload["status"] and not is_true(workload, "QuotaReserved"):
            return
        status, now = workload["status"], self._api.kernel.now()
        evicted = next(one for one in status["conditions"] if one["type"] == "Evicted")
        status.pop("admission", None)
        set_condition(
            status, "QuotaReserved", "False", reason="Pending", message=evicted["message"], now=now
        )
        set_condition(
            status,
            "Admitted",
            "False",
            reason="NoReservation",
            message="The workload has no reservation",
            now=now,
        )
        is_back = workload["spec"].get("active", True)
        set_condition(
            status,
            "Requeued",
            str(is_back),
            reason=evicted["reason"],
            message=evicted["message"],
            now=now,
        )
        self._hands.status("workloads", workload)

    def evict(self, namespace: str, name: str, *, reason: str, message: str) -> None:
        """Evict a workload, as Kueue does for a reason of its own (``PodsReadyTimeout``)."""
        workload = self._hands.get("workloads", namespace, name, self.version)
        assert workload is not None, name
        self._evict(workload, reason, message)

    def _evict(self, workload: Obj, reason: str, message: str, preempted: str = "") -> None:
        status, now = workload["status"], self._api.kernel.now()
        set_condition(status, "Evicted", "True", reason=reason, message=message, now=now)
        if preempted:
            set_condition(status, "Preempted", "True", reason=preempted, message=message, now=now)
        self._hands.status("workloads", workload)
        self._hands.event(workload, "Normal", f"EvictedDueTo{reason}", message)

    def _evict_as_told(self) -> None:
        """Evict what was deactivated, and what sits in queues that are to be drained."""
        for workload in self._all("workloads"):
            if is_true(workload, "Finished") or is_true(workload, "Evicted"):
                continue
            if not is_true(workload, "QuotaReserved"):
                continue
            if not workload["spec"].get("active", True):
                self._evict(workload, "Deactivated", "The workload is deactivated")
                continue
            local, queue = self._queues_of(workload)
            for one, reason in ((queue, "ClusterQueueStopped"), (local, "LocalQueueStopped")):
                if one is not None and one["spec"].get("stopPolicy") == "HoldAndDrain":
                    self._evict(workload, reason, f"The {one['kind']} is stopped")
                    break

    def _queues_of(self, workload: Obj) -> tuple[Obj | None, Obj | None]:
        name = workload["spec"].get("queueName", "")
        local = self._hands.get(
            "localqueues", workload["metadata"]["namespace"], name, self.version
        )
        if local is None:
            return None, None
        name = local["spec"]["clusterQueue"]
        return local, self._hands.get("clusterqueues", "", name, self.version)

    def _quotas(self) -> Quotas:
        queues = {one["metadata"]["name"]: one for one in self._all("clusterqueues")}
        flavors = {one["metadata"]["name"]: one for one in self._all("resourceflavors")}
        holding = [one for one in self._all("workloads") if is_true(one, "QuotaReserved")]
        claims = [claim_of(one) for one in holding if not is_true(one, "Finished")]
        return Quotas(queues, flavors, claims)

    def _schedule(self) -> None:
        """Admit what fits, one by one, the most important first; preempt for what may."""
        waiting = [
            one
            for one in self._all("workloads")
            if not is_true(one, "Finished")
            and not is_true(one, "QuotaReserved")
            and one["spec"].get("active", True)
        ]
        waiting.sort(key=rank_of)
        lines: dict[str, list[Obj]] = {}
        for workload in waiting:
            local, queue = self._queues_of(workload)
            why = why_closed(workload, local, queue, self._namespace(workload))
            if why or queue is None:
                self._set(workload, "QuotaReserved", "False", "Inadmissible", why)
            else:
                lines.setdefault(queue["metadata"]["name"], []).append(workload)
        while lines:
            self._next(lines)

    def _next(self, lines: dict[str, list[Obj]]) -> None:
        """Decide on the head of one queue: of those that need not borrow, the most important."""
        quotas = self._quotas()
        heads = {name: line[0] for name, line in lines.items()}
        fits = {
            name: quotas.fit(one, name, one["spec"].get("priority", 0))
            for name, one in heads.items()
        }
        name = min(
            heads, key=lambda one: (quotas.borrows(one, fits[one].usage), rank_of(heads[one]))
        )
        is_in = self._decide(heads[name], name, fits[name])
        strategy = quotas.queues[name]["spec"].get("queueingStrategy")
        left = lines[name][1:] if is_in or strategy != "StrictFIFO" else []
        if left:
            lines[name] = left
        else:
            del lines[name]

    def _namespace(self, workload: Obj) -> Obj:
        found = self._hands.get("namespaces", "", workload["metadata"]["namespace"])
        return found or {"metadata": {}}

    def _decide(self, workload: Obj, queue: str, fit: Fit) -> bool:
        """Carry out what was found for a workload; say whether it was admitted."""
        if not fit.message and not fit.victims:
            self._reserve(workload, queue, fit)
            return True
        told = fit.message
        if fit.victims:
            leaving = [
                (one, why)
                for one, why in fit.victims
                if not is_true(self._by_key(one.key), "Evicted")
            ]
            for one, why in leaving:
                self._preempt(workload, one, why)
            told = (
                f"couldn't assign flavors to pod set {workload['spec']['podSets'][0]['name']}: "
                f"insufficient unused quota. Pending the preemption of {len(fit.victims)} "
                "workload(s)"
            )
        self._set(workload, "QuotaReserved", "False", "Pending", told)
        return False

    def _by_key(self, key: tuple[str, str]) -> Obj:
        found = self._hands.get("workloads", *key, self.version)
        assert found is not None, key
        return found

    def _preempt(self, workload: Obj, victim: Claim, why: str) -> None:
        meta = workload["metadata"]
        uid = meta.get("labels", {}).get("kueue.x-k8s.io/job-uid", "UNKNOWN")
        told = (
            f"Preempted to accommodate a workload (UID: {meta['uid']}, JobUID: {uid}) due to "
            f"{_DUE_TO[why]}"
        )
        self._evict(self._by_key(victim.key), "Preempted", told, preempted=why)

    def _reserve(self, workload: Obj, queue: str, fit: Fit) -> None:
        status, now = workload.setdefault("status", {}), self._api.kernel.now()
        status["admission"] = {
            "clusterQueue": queue,
            "podSetAssignments": [
                assignment_of(one, fit.flavors) for one in workload["spec"]["podSets"]
            ],
        }
        told = f"Quota reserved in ClusterQueue {queue}"
        set_condition(
            status, "QuotaReserved", "True", reason="QuotaReserved", message=told, now=now
        )
        for kind in ("Evicted", "Preempted"):
            if is_true(workload, kind):
                set_condition(
                    status,
                    kind,
                    "False",
                    reason="QuotaReserved",
                    now=now,
                    message=f"Previously: {message_of(workload, kind)}",
                )
        set_condition(
            status,
            "Admitted",
            "True",
            reason="Admitted",
            message="The workload is admitted",
            now=now,
        )
        self._hands.status("workloads", workload)
        self._hands.event(workload, "Normal", "Admitted", f"Admitted by ClusterQueue {queue}")

    def _report(self) -> None:
        """Write how many wait and what is used into the queues."""
        quotas = self._quotas()
        workloads = [one for one in self._all("workloads") if not is_true(one, "Finished")]
        locals_ = {
            (one["metadata"]["namespace"], one["metadata"]["name"]): one
            for one in self._all("localqueues")
        }
        for name, queue in quotas.queues.items():
            own = [one for one in workloads if target_of(one, locals_) == name]
            used = self._usage(quotas, name, queue, own, is_local=False)
            is_held = queue["spec"].get("stopPolicy", "None") != "None"
            self._tell("clusterqueues", queue, own, used, is_open=not is_held)
        for (namespace, name), local in locals_.items():
            own = [
                one
                for one in workloads
                if one["metadata"]["namespace"] == namespace
                and one["spec"].get("queueName") == name
            ]
            target = quotas.queues.get(local["spec"]["clusterQueue"])
            if target is not None:
                used = self._usage(quotas, target["metadata"]["name"], target, own, is_local=True)
                self._tell("localqueues", local, own, used, is_open=True)

    def _usage(
        self, quotas: Quotas, name: str, queue: Obj, own: list[Obj], *, is_local: bool
    ) -> list[Obj]:
        total: dict[tuple[str, str], Fraction] = {}
        for workload in own:
            if is_true(workload, "QuotaReserved"):
                for key, size in claim_of(workload).usage.items():
                    total[key] = total.get(key, Fraction(0)) + size
        found: list[Obj] = []
        for group in queue["spec"].get("resourceGroups") or ():
            for flavor in group["flavors"]:
                rows: list[Obj] = []
                for one in flavor["resources"]:
                    key = (flavor["name"], one["name"])
                    row = {"name": one["name"], "total": shown(total.get(key, Fraction(0)))}
                    if not is_local:
                        row["borrowed"] = shown(quotas.borrowed(name, *key))
                    rows.append(row)
                found.append({"name": flavor["name"], "resources": rows})
        return found

    def _tell(
        self, plural: str, queue: Obj, own: list[Obj], used: list[Obj], *, is_open: bool
    ) -> None:
        before = copied(queue.get("status"))
        status = queue.setdefault("status", {})
        reserving = [one for one in own if is_true(one, "QuotaReserved")]
        usage = "flavorsUsage" if plural == "clusterqueues" or self._is_new else "flavorUsage"
        status |= {
            "pendingWorkloads": sum(one["spec"].get("active", True) for one in own)
            - len(reserving),
            "reservingWorkloads": len(reserving),
            "admittedWorkloads": sum(is_true(one, "Admitted") for one in own),
            "flavorsReservation": used,
            usage: used,
        }
        reason, told = (
            ("Ready", "Can admit new workloads")
            if is_open
            else ("Stopped", "Can't admit new workloads: is stopped")
        )
        set_condition(
            status, "Active", str(is_open), reason=reason, message=told, now=self._api.kernel.now()
        )
        if status != before:
            self._hands.status(plural, queue)
