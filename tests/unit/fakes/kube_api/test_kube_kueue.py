"""The simulated Kueue and JobSet controllers, with the CRDs of two releases of Kueue."""

import pytest
from tests.fakes.kube_api.status import ApiError
from tests.unit.fakes.kube_api.kit import create, job, refused
from tests.unit.fakes.kube_api.queues import GPU, QUEUE, Bed, both, simple


@both
def test_a_job_with_a_queue_is_held_admitted_and_finished(release: str) -> None:
    bed = simple(release)
    bed.cluster.loops.switch("kueue", on=False)
    bed.job("j", 4)
    assert not bed.runs("j")  # the webhook suspended it
    bed.cluster.loops.switch("kueue", on=True)
    bed.settle()
    assert bed.runs("j")
    found = bed.conditions("j")
    assert found["QuotaReserved"] == ("True", "QuotaReserved", "Quota reserved in ClusterQueue q")
    assert found["Admitted"] == ("True", "Admitted", "The workload is admitted")
    workload = bed.workload("j")
    assert workload["metadata"]["name"].startswith("job-j-")
    assert (
        workload["metadata"]["labels"]["kueue.x-k8s.io/job-uid"] == bed.get("j")["metadata"]["uid"]
    )
    assignment = workload["status"]["admission"]["podSetAssignments"][0]
    assert (assignment["flavors"], assignment["resourceUsage"]) == ({GPU: "a"}, {GPU: "4"})
    assert bed.get("j")["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "a"}
    bed.after(101)
    assert bed.conditions("j")["Finished"][:2] == ("True", "Succeeded")


@both
def test_the_queues_say_how_many_wait_and_what_is_used(release: str) -> None:
    bed = simple(release)
    bed.job("one", 6)
    bed.job("two", 6)
    queue = bed.api.do("get", bed.version, "clusterqueues", name="q")["status"]
    numbers = {
        name: queue[name]
        for name in ("pendingWorkloads", "reservingWorkloads", "admittedWorkloads")
    }
    assert set(numbers.values()) == {1}
    usage = queue["flavorsUsage"][0]["resources"][0]
    assert usage == {"name": GPU, "total": "6", "borrowed": "0"}
    assert queue["conditions"][0]["reason"] == "Ready"
    local = bed.get("q", "localqueues", bed.version)["status"]
    assert local["pendingWorkloads"] == 1
    assert local["flavorUsage" if bed.is_old else "flavorsUsage"][0]["resources"][0]["total"] == "6"


@both
def test_what_does_not_fit_waits_with_a_reason(release: str) -> None:
    bed = simple(release)
    bed.job("one", 6)
    bed.job("two", 6)
    bed.job("never", 9)
    assert not bed.runs("two")
    status, reason, told = bed.conditions("two")["QuotaReserved"]
    assert (status, reason) == ("False", "Pending")
    assert told == (
        "couldn't assign flavors to pod set main: insufficient unused quota for "
        "nvidia.com/gpu in flavor a, 4 more needed"
    )
    assert "request > maximum capacity (9 > 8)" in bed.conditions("never")["QuotaReserved"][2]
    bed.after(101)
    assert bed.runs("two")


@both
def test_a_more_important_job_preempts_and_the_other_comes_back(release: str) -> None:
    bed = simple(release, preemption={"withinClusterQueue": "LowerPriority"})
    bed.job("weak", 8, priority="low")
    before = bed.get("weak")["spec"]["template"]["spec"]["nodeSelector"]
    bed.after(10)
    bed.job("strong", 8, priority="high")
    assert (bed.runs("weak"), bed.runs("strong")) == (False, True)
    weak, strong = bed.conditions("weak"), bed.workload("strong")
    told = (
        f"Preempted to accommodate a workload (UID: {strong['metadata']['uid']}, JobUID: "
        f"{bed.get('strong')['metadata']['uid']}) due to prioritization in the ClusterQueue"
    )
    assert weak["Evicted"] == ("True", "Preempted", told)
    assert weak["Preempted"] == ("True", "InClusterQueue", told)
    assert weak["Requeued"][:2] == ("True", "Preempted")
    assert weak["Admitted"][:2] == ("False", "NoReservation")
    assert "admission" not in bed.workload("weak")["status"]
    stopped = bed.get("weak")
    assert "nodeSelector" not in stopped["spec"]["template"]["spec"]
    assert "failed" not in stopped["status"]
    bed.after(101)
    assert bed.runs("weak")
    assert bed.conditions("weak")["Evicted"][0] == "False"
    assert bed.get("weak")["spec"]["template"]["spec"]["nodeSelector"] == before


def test_the_fewest_and_least_important_go() -> None:
    bed = simple(preemption={"withinClusterQueue": "LowerPriority"})
    bed.job("big", 6, priority="low")
    bed.after(1)
    bed.job("small", 2)
    bed.job("strong", 2, priority="high")
    assert (bed.runs("big"), bed.runs("small"), bed.runs("strong")) == (True, False, True)


def test_equals_may_preempt_newer_ones_where_the_queue_says_so() -> None:
    bed = simple(preemption={"withinClusterQueue": "LowerOrNewerEqualPriority"})
    bed.add("localqueues", "held", {"clusterQueue": "q", "stopPolicy": "Hold"}, "default")
    bed.job("older", 8, "held")
    bed.after(5)
    bed.job("newer", 8)
    assert (bed.runs("older"), bed.runs("newer")) == (False, True)
    bed.change("localqueues", "held", {"spec": {"stopPolicy": "None"}}, "default")
    assert (bed.runs("older"), bed.runs("newer")) == (True, False)


@both
def test_queues_of_a_cohort_borrow_and_take_back(release: str) -> None:
    bed = Bed(release)
    bed.flavor("a", 16)
    bed.queue("q", {"a": {"nominalQuota": 8}}, cohort="all")
    bed.queue(
        "r", {"a": {"nominalQuota": 8}}, cohort="all", preemption={"reclaimWithinCohort": "Any"}
    )
    bed.job("greedy", 12)
    usage = bed.api.do("get", bed.version, "clusterqueues", name="q")["status"]["flavorsUsage"]
    assert usage[0]["resources"][0]["borrowed"] == "4"
    bed.job("owner", 8, "r")
    assert (bed.runs("greedy"), bed.runs("owner")) == (False, True)
    told = bed.conditions("greedy")
    assert told["Preempted"][1] == "InCohortReclamation"
    assert "reclamation within the cohort" in told["Evicted"][2]


def test_borrowing_and_lending_have_limits() -> None:
    bed = Bed()
    bed.flavor("a", 16)
    bed.queue("q", {"a": {"nominalQuota": 8, "borrowingLimit": 2}}, cohort="all")
    bed.queue("r", {"a": {"nominalQuota": 8, "lendingLimit": 1}}, cohort="all")
    bed.job("eleven", 11)
    bed.job("ten", 10)
    bed.job("nine", 9)
    assert [bed.runs(one) for one in ("eleven", "ten", "nine")] == [False, False, True]
    bed.job("rest", 7, "r")
    assert bed.runs("rest")


def test_the_next_flavor_is_taken_when_the_first_is_full_or_does_not_suit() -> None:
    bed = Bed()
    bed.flavor("a", nodeTaints=[{"key": "spot", "value": "yes", "effect": "NoSchedule"}])
    bed.flavor("b", tolerations=[{"key": "x", "operator": "Exists"}])
    bed.queue("q", {"a": {"nominalQuota": 8}, "b": {"nominalQuota": 8}})
    bed.job("j", 4)
    pods = bed.get("j")["spec"]["template"]["spec"]
    assert pods["nodeSelector"] == {"pool": "b"}
    assert {"key": "x", "operator": "Exists"} in pods["tolerations"]
    bed.job("k", 8)
    told = bed.conditions("k")["QuotaReserved"][2]
    assert "untolerated taint {spot yes NoSchedule <nil>} in flavor a" in told
    assert "insufficient unused quota for nvidia.com/gpu in flavor b, 4 more needed" in told


def test_a_node_selector_chooses_the_flavor() -> None:
    bed = Bed()
    bed.flavor("a")
    bed.flavor("b")
    bed.queue("q", {"a": {"nominalQuota": 8}, "b": {"nominalQuota": 8}})
    body = job("j", 2, gpus=1, meta={"labels": {QUEUE: "q"}})
    body["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "b"}
    create(bed.api, "jobs", body)
    bed.settle()
    assignment = bed.workload("j")["status"]["admission"]["podSetAssignments"][0]
    assert assignment["flavors"] == {GPU: "b"}


@pytest.mark.parametrize(
    ("queue", "why"),
    [("none", "LocalQueue none doesn't exist"), ("lost", "ClusterQueue nowhere doesn't exist")],
)
def test_a_queue_that_is_not_there(queue: str, why: str) -> None:
    bed = simple()
    bed.add("localqueues", "lost", {"clusterQueue": "nowhere"}, "default")
    bed.job("j", 1, queue)
    assert bed.conditions("j")["QuotaReserved"] == ("False", "Inadmissible", why)


def test_a_resource_that_the_queue_does_not_know() -> None:
    bed = simple()
    body = job("j", 1, meta={"labels": {QUEUE: "q"}})
    resources = {"limits": {GPU: "1"}, "requests": {"cpu": "1"}}
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = resources
    create(bed.api, "jobs", body)
    bed.settle()
    assert "resource cpu unavailable in ClusterQueue" in bed.conditions("j")["QuotaReserved"][2]


def test_namespaces_that_the_queue_does_not_serve() -> None:
    bed = simple()
    bed.change("clusterqueues", "q", {"spec": {"namespaceSelector": {"matchLabels": {"a": "b"}}}})
    bed.job("j", 1)
    assert "namespace doesn't match" in bed.conditions("j")["QuotaReserved"][2]


@both
def test_a_queue_that_is_held_admits_nothing_and_one_that_is_drained_evicts(release: str) -> None:
    bed = simple(release)
    bed.job("in", 4)
    bed.change("clusterqueues", "q", {"spec": {"stopPolicy": "Hold"}})
    bed.job("out", 1)
    assert (bed.runs("in"), bed.runs("out")) == (True, False)
    assert bed.conditions("out")["QuotaReserved"][1] == "Inadmissible"
    queue = bed.api.do("get", bed.version, "clusterqueues", name="q")["status"]
    assert [(one["status"], one["reason"]) for one in queue["conditions"]] == [("False", "Stopped")]
    bed.change("clusterqueues", "q", {"spec": {"stopPolicy": "HoldAndDrain"}})
    assert not bed.runs("in")
    assert bed.conditions("in")["Evicted"][:2] == ("True", "ClusterQueueStopped")
    bed.change("clusterqueues", "q", {"spec": {"stopPolicy": "None"}})
    assert bed.runs("in")


def test_a_deactivated_workload_is_stopped_for_good() -> None:
    bed = simple()
    bed.job("j", 4)
    name = bed.workload("j")["metadata"]["name"]
    bed.change("workloads", name, {"spec": {"active": False}}, "default")
    assert not bed.runs("j")
    found = bed.conditions("j")
    assert found["Evicted"][:2] == ("True", "Deactivated")
    assert found["Requeued"][0] == "False"
    bed.change("workloads", name, {"spec": {"active": True}}, "default")
    assert bed.runs("j")


def test_a_workload_can_be_evicted_for_other_reasons() -> None:
    bed = simple()
    bed.job("j", 4)
    assert bed.cluster.kueue is not None
    bed.cluster.loops.switch("kueue", on=False)
    told = "Exceeded the PodsReady timeout default/j"
    bed.cluster.kueue.evict(
        "default", bed.workload("j")["metadata"]["name"], reason="PodsReadyTimeout", message=told
    )
    assert bed.conditions("j")["Evicted"] == ("True", "PodsReadyTimeout", told)
    bed.cluster.loops.switch("kueue", on=True)
    bed.settle()
    assert bed.conditions("j")["Requeued"][1] == "PodsReadyTimeout"
    assert bed.runs("j")  # there is room: it is admitted anew


def test_nobody_resumes_a_job_past_kueue() -> None:
    bed = simple()
    bed.job("first", 8)
    bed.job("second", 8)
    bed.change("jobs", "second", {"spec": {"suspend": False}}, "default")
    assert not bed.runs("second")


def test_the_queue_of_a_running_job_is_fixed_and_of_a_waiting_one_not() -> None:
    bed = simple()
    bed.queue("r", {"a": {"nominalQuota": 8}})
    bed.job("first", 8)
    bed.job("second", 4)
    with pytest.raises(ApiError, match="field is immutable"):
        bed.change("jobs", "first", {"metadata": {"labels": {QUEUE: "r"}}}, "default")
    bed.change("jobs", "second", {"metadata": {"labels": {QUEUE: "r"}}}, "default")
    assert bed.workload("second")["status"]["admission"]["clusterQueue"] == "r"


def test_first_come_first_served_holds_the_others_back_where_it_is_strict() -> None:
    for strategy, runs in (("StrictFIFO", False), ("BestEffortFIFO", True)):
        bed = simple(queueingStrategy=strategy)
        bed.job("running", 4)
        bed.after(1)
        bed.job("large", 8)
        bed.after(1)
        bed.job("small", 2)
        assert (bed.runs("large"), bed.runs("small")) == (False, runs)


@both
def test_priorities_of_pods_count_where_no_class_of_kueue_is_named(release: str) -> None:
    bed = simple(release)
    bed.api.do(
        "create",
        "scheduling.k8s.io/v1",
        "priorityclasses",
        body={"metadata": {"name": "urgent"}, "value": 7},
    )
    body = job("j", 1, gpus=1, meta={"labels": {QUEUE: "q"}})
    body["spec"]["template"]["spec"]["priorityClassName"] = "urgent"
    create(bed.api, "jobs", body)
    bed.settle()
    spec = bed.workload("j")["spec"]
    assert spec["priority"] == 7
    if bed.is_old:
        assert spec["priorityClassSource"] == "scheduling.k8s.io/priorityclass"
    else:
        assert spec["priorityClassRef"]["kind"] == "PriorityClass"


def test_topology_requests_are_carried() -> None:
    bed = simple()
    body = job("j", 2, gpus=1, meta={"labels": {QUEUE: "q"}})
    notes = {
        "kueue.x-k8s.io/podset-required-topology": "rack",
        "kueue.x-k8s.io/podset-slice-required-topology": "host",
        "kueue.x-k8s.io/podset-slice-size": "2",
    }
    body["spec"]["template"]["metadata"] = {"annotations": notes}
    create(bed.api, "jobs", body)
    bed.settle()
    assert bed.workload("j")["spec"]["podSets"][0]["topologyRequest"] == {
        "required": "rack",
        "podSetSliceRequiredTopology": "host",
        "podSetSliceSize": 2,
    }


def test_a_deleted_job_gives_its_quota_back() -> None:
    bed = simple()
    bed.job("first", 8)
    bed.job("second", 8)
    bed.api.do(
        "delete",
        "batch/v1",
        "jobs",
        namespace="default",
        name="first",
        body={"propagationPolicy": "Background"},
    )
    bed.settle()
    assert bed.runs("second")


def test_kueue_wants_its_crds() -> None:
    bed = Bed()
    bed.api.kernel.resources.remove_crd(
        {"spec": {"group": "kueue.x-k8s.io", "names": {"plural": "workloads"}}}
    )
    with pytest.raises(LookupError, match="install Kueue's CRDs"):
        type(bed.cluster.kueue)(bed.api)  # type: ignore[misc] # never None here
    assert refused(bed.api, "list", bed.version, "workloads").code == 404


def test_init_containers_and_several_containers_count() -> None:
    bed = simple()
    body = job("j", 2, gpus=1, meta={"labels": {QUEUE: "q"}})
    pods = body["spec"]["template"]["spec"]
    pods["containers"].append({**pods["containers"][0], "name": "second"})
    sizes = {"limits": {GPU: "3"}, "requests": {GPU: "3"}}
    pods["initContainers"] = [{"name": "init", "image": "x:1", "resources": sizes}]
    create(bed.api, "jobs", body)
    bed.settle()
    assignment = bed.workload("j")["status"]["admission"]["podSetAssignments"][0]
    assert assignment["resourceUsage"] == {GPU: "6"}


def test_a_lost_flavor_is_said() -> None:
    bed = Bed()
    bed.queue("q", {"missing": {"nominalQuota": 8}})
    bed.job("j", 1)
    assert "flavor missing not found" in bed.conditions("j")["QuotaReserved"][2]


def test_taking_back_only_from_less_important_ones() -> None:
    bed = Bed()
    bed.flavor("a", 16)
    bed.add("workloadpriorityclasses", "high", None, value=100)
    bed.queue("q", {"a": {"nominalQuota": 8}}, cohort="all")
    policy = {"reclaimWithinCohort": "LowerPriority"}
    bed.queue("r", {"a": {"nominalQuota": 8}}, cohort="all", preemption=policy)
    bed.job("greedy", 12, priority="high")
    bed.job("owner", 8, "r")
    assert (bed.runs("greedy"), bed.runs("owner")) == (True, False)
    bed.job("small", 4, "r")
    assert bed.runs("small")  # what is free needs no taking back


def test_no_more_leave_than_must() -> None:
    bed = simple(preemption={"withinClusterQueue": "LowerPriority"})
    for name, size in (("one", 1), ("five", 5), ("two", 2)):
        bed.job(name, size, priority="low")
        bed.after(1)
    bed.job("strong", 5, priority="high")
    assert [bed.runs(one) for one in ("one", "five", "two", "strong")] == [True, False, True, True]
