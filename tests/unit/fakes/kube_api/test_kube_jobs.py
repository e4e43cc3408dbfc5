"""The simulated Job controller, scheduler and kubelets together, in time that moves when told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.kube_api.cluster import Cluster
from tests.fakes.kube_api.controllers.job import intervals
from tests.fakes.kube_api.controllers.kubelet import Play
from tests.fakes.kube_api.status import Obj
from tests.unit.fakes.kube_api.bed import Bed, exits
from tests.unit.fakes.kube_api.kit import create, job, pod_spec


def test_an_indexed_job_makes_a_pod_an_index() -> None:
    bed = Bed()
    bed.run(job("j", 3, gpus=1))
    pods = bed.pods()
    assert [one["spec"]["hostname"] for one in pods] == ["j-0", "j-1", "j-2"]
    for index, pod in enumerate(pods):
        meta = pod["metadata"]
        assert meta["name"].startswith(f"j-{index}-")
        assert meta["labels"]["batch.kubernetes.io/job-completion-index"] == str(index)
        assert meta["annotations"]["batch.kubernetes.io/job-completion-index"] == str(index)
        assert meta["ownerReferences"][0]["controller"] is True
        assert meta["finalizers"] == ["batch.kubernetes.io/job-tracking"]
        assert "JOB_COMPLETION_INDEX" in [
            one["name"] for one in pod["spec"]["containers"][0]["env"]
        ]
    status = bed.status()
    assert (status["active"], status["ready"], status["terminating"]) == (3, 3, 0)
    assert "failed" not in status  # what is zero is left out
    assert "succeeded" not in status


def test_a_job_whose_pods_succeed_is_complete() -> None:
    bed = Bed(exits(0, 0))
    bed.run(job("j"))
    bed.after(6)
    status = bed.status()
    assert bed.true() == {
        "SuccessCriteriaMet": "CompletionsReached",
        "Complete": "CompletionsReached",
    }
    assert (status["succeeded"], status["completedIndexes"]) == (2, "0,1")
    assert status["completionTime"]
    assert "active" not in status
    assert all(
        "finalizers" not in one["metadata"] or not one["metadata"]["finalizers"]
        for one in bed.pods()
    )


def test_one_failure_ends_a_job_without_retries_and_stops_the_others() -> None:
    bed = Bed(
        lambda pod: (
            Play(exit_code=3, run_s=5) if pod["spec"]["hostname"] == "j-0" else Play(term_s=7)
        )
    )
    bed.run(job("j"))
    bed.after(6)
    assert bed.true() == {"FailureTarget": "BackoffLimitExceeded"}  # a pod is still leaving
    assert bed.status()["terminating"] == 1
    bed.after(8)
    assert bed.true() == {"FailureTarget": "BackoffLimitExceeded", "Failed": "BackoffLimitExceeded"}
    assert bed.status()["failed"] == 2


def test_a_failed_pod_is_replaced_while_retries_are_left() -> None:
    plays = iter([Play(exit_code=1, run_s=1), Play(exit_code=1, run_s=1), Play(run_s=1)])
    bed = Bed(lambda _: next(plays))
    bed.run(job("j", 1, backoffLimit=2))
    for _ in range(3):
        bed.after(2)
    assert bed.true()["Complete"]
    assert (bed.status()["failed"], bed.status()["succeeded"]) == (2, 1)


@pytest.mark.parametrize(
    ("code", "reason", "failed"),
    [(42, "PodFailurePolicy", 1), (7, "BackoffLimitExceeded", 1)],
)
def test_a_failure_policy_decides_by_exit_code(code: int, reason: str, failed: int) -> None:
    policy = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}
    bed = Bed(exits(code))
    bed.run(job("j", 1, podFailurePolicy=policy))
    bed.after(6)
    assert bed.true()["Failed"] == reason
    assert bed.status()["failed"] == failed
    if code == 42:
        told = next(one["message"] for one in bed.status()["conditions"] if one["type"] == "Failed")
        assert "Container main for pod default/j-0-" in told
        assert "failed with exit code 42 matching FailJob rule at index 0" in told


def test_an_ignored_failure_does_not_count() -> None:
    policy = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
    plays = iter([Play(fault="Evicted", run_s=1), Play(run_s=1)])
    bed = Bed(lambda _: next(plays))
    bed.run(job("j", 1, podFailurePolicy=policy))
    bed.after(2)
    pod = next(one for one in bed.pods() if one["status"]["phase"] == "Failed")
    assert pod["status"]["reason"] == "Evicted"
    bed.after(2)
    assert bed.true()["Complete"]
    assert "failed" not in bed.status()


def test_a_failure_policy_can_name_a_condition() -> None:
    policy = {"rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
    bed = Bed(Play(fault="Evicted", run_s=1, message="The node was low on resource: memory."))
    bed.run(job("j", 1, backoffLimit=5, podFailurePolicy=policy))
    bed.after(2)
    assert bed.true()["Failed"] == "PodFailurePolicy"


def test_out_of_memory() -> None:
    bed = Bed(Play(fault="OOMKilled", run_s=1))
    bed.run(job("j", 1))
    bed.after(2)
    state = bed.pods()[0]["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (state["exitCode"], state["reason"]) == (137, "OOMKilled")


def test_a_suspended_job_has_no_pods_until_it_is_resumed() -> None:
    bed = Bed()
    bed.run(job("j", suspend=True))
    assert (bed.pods(), bed.true()) == ([], {"Suspended": "JobSuspended"})
    assert "startTime" not in bed.status()
    bed.after(100)
    bed.patch({"spec": {"suspend": False}})
    assert bed.phases() == ["Running", "Running"]
    assert bed.true() == {}
    assert bed.status()["startTime"] == "1970-01-12T13:48:20Z"


def test_suspending_stops_pods_and_counts_no_failure() -> None:
    bed = Bed()
    bed.run(job("j"))
    bed.patch({"spec": {"suspend": True}})
    assert (bed.pods(), bed.true()) == ([], {"Suspended": "JobSuspended"})
    assert "failed" not in bed.status()
    assert "active" not in bed.status()
    bed.patch({"spec": {"suspend": False}})
    assert bed.phases() == ["Running", "Running"]


def test_a_deadline_ends_a_job() -> None:
    bed = Bed()
    bed.run(job("j", activeDeadlineSeconds=60))
    bed.after(59)
    assert bed.true() == {}
    bed.after(2)
    assert bed.true()["Failed"] == "DeadlineExceeded"
    assert bed.pods() == []


def test_a_job_without_indexes() -> None:
    bed = Bed(Play(run_s=5))
    bed.run(job("j", 3, completionMode="NonIndexed", parallelism=2, backoffLimit=6))
    assert len(bed.pods()) == 2
    bed.after(6)
    assert len(bed.pods()) == 3
    bed.after(6)
    assert (bed.status()["succeeded"], bed.true()["Complete"]) == (3, "CompletionsReached")


def test_a_job_whose_first_success_is_enough() -> None:
    bed = Bed(Play(run_s=5))
    body = job("j", 2, completionMode="NonIndexed")
    del body["spec"]["completions"]
    bed.run(body)
    bed.after(6)
    assert (len(bed.pods()), bed.true()["Complete"]) == (2, "CompletionsReached")


def test_an_ended_job_goes_when_its_time_to_live_is_over() -> None:
    bed = Bed(Play(run_s=5))
    bed.run(job("j", ttlSecondsAfterFinished=60))
    bed.after(6)
    bed.after(59)
    assert bed.true()["Complete"]
    bed.after(2)
    assert bed.api.do("list", "batch/v1", "jobs")["items"] == []
    assert bed.pods() == []


def test_a_job_whose_pods_are_refused_says_so_and_goes_on_when_they_are_not() -> None:
    bed = Bed()
    body = job("j", 1)
    body["spec"]["template"]["spec"]["serviceAccountName"] = "trainer"
    bed.run(body)
    assert bed.pods() == []
    events = bed.api.do("list", "v1", "events")["items"]
    told = [one["message"] for one in events if one["reason"] == "FailedCreate"]
    assert len(told) == 1
    assert 'serviceaccount "trainer" not found' in told[0]
    create(bed.api, "serviceaccounts", {"metadata": {"name": "trainer"}})
    bed.run()
    assert bed.phases() == ["Running"]


def test_the_most_important_pod_is_placed_first() -> None:
    bed = Bed()
    bed.cluster.loops.switch("scheduler", on=False)
    body = {"metadata": {"name": "high"}, "value": 5}
    bed.api.do("create", "scheduling.k8s.io/v1", "priorityclasses", body=body)
    for name, more in (("a", {}), ("b", {}), ("c", {"priorityClassName": "high"})):
        spec = pod_spec(**more)
        spec["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "4"}}
        create(bed.api, "pods", {"metadata": {"name": name}, "spec": spec})
    bed.cluster.loops.switch("scheduler", on=True)
    bed.run()
    placed = {one["metadata"]["name"] for one in bed.pods() if "nodeName" in one["spec"]}
    assert placed == {"a", "c"}


def test_a_deleted_jobs_pods_go_with_grace() -> None:
    bed = Bed(Play(term_s=5))
    bed.run(job("j"))
    bed.api.do(
        "delete",
        "batch/v1",
        "jobs",
        namespace="default",
        name="j",
        body={"propagationPolicy": "Foreground"},
    )
    bed.cluster.loops.settle()
    assert len(bed.pods()) == 2
    assert bed.api.do("list", "batch/v1", "jobs")["items"]
    bed.after(6)
    assert bed.pods() == []
    assert bed.api.do("list", "batch/v1", "jobs")["items"] == []


@pytest.mark.parametrize(
    ("play", "waited_s", "code"),
    [
        (Play(on_term=0, term_s=2), 3, 0),
        (Play(on_term=None), 31, 137),
        (Play(on_term=0, term_s=60), 31, 137),
    ],
)
def test_a_pod_ends_by_its_own_or_is_killed_when_its_grace_is_over(
    play: Play, waited_s: float, code: int
) -> None:
    bed = Bed(play)
    meta = {"name": "p", "finalizers": ["a/b"]}
    create(bed.api, "pods", {"metadata": meta, "spec": pod_spec()})
    bed.cluster.loops.settle()
    bed.api.do("delete", "v1", "pods", namespace="default", name="p")
    bed.cluster.loops.settle()
    bed.after(waited_s - 2)
    assert bed.phases() == ["Running"]
    bed.after(2)
    state = bed.pods()[0]["status"]["containerStatuses"][0]["state"]["terminated"]
    assert state["exitCode"] == code


@pytest.mark.parametrize(
    "fault", ["ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError"]
)
def test_a_pod_that_cannot_start_waits_with_a_reason(fault: str) -> None:
    bed = Bed(Play(fault=fault, message="why"))
    bed.run(job("j", 1))
    waiting = bed.pods()[0]["status"]["containerStatuses"][0]["state"]["waiting"]
    assert waiting == {"reason": fault, "message": "why"}
    assert bed.phases() == ["Pending"]
    bed.patch({"spec": {"suspend": True}})
    assert bed.pods() == []


def test_an_image_takes_its_time() -> None:
    bed = Bed(Play(start_s=10, lines=("hello",)))
    bed.run(job("j", 1))
    pod = bed.pods()[0]
    assert (
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ContainerCreating"
    )
    bed.after(11)
    assert bed.phases() == ["Running"]
    assert bed.api.logs["default", pod["metadata"]["name"], "main"] == ["hello"]


def test_a_controller_can_be_switched_off() -> None:
    bed = Bed()
    bed.cluster.loops.switch("scheduler", on=False)
    bed.run(job("j", 1))
    assert "nodeName" not in bed.pods()[0]["spec"]
    bed.cluster.loops.switch("scheduler", on=True)
    bed.run()
    assert bed.phases() == ["Running"]
    with pytest.raises(LookupError, match="no controller"):
        bed.cluster.loops.switch("other", on=True)


def test_a_controller_that_never_rests_is_found() -> None:
    bed = Bed()

    class Restless:
        name = "restless"

        def __init__(self) -> None:
            self.count = 0

        def due_s(self) -> None:
            return None

        def step(self) -> None:
            self.count += 1
            bed.api.do(
                "patch",
                "v1",
                "nodes",
                name="n1",
                body={"metadata": {"labels": {"count": str(self.count)}}},
            )

    loops = type(bed.cluster.loops)(bed.api, [Restless()])
    with pytest.raises(RuntimeError, match="still change things"):
        loops.settle(5)


def test_the_controllers_run_in_a_thread() -> None:
    with Cluster(plays=lambda _: Play(run_s=0.1)) as cluster:
        cluster.kubelet.add_node("n1", {"cpu": "8"})
        create(cluster.api, "jobs", job("j"))

        def is_complete() -> bool:
            got = cluster.api.do("get", "batch/v1", "jobs", namespace="default", name="j")
            return "Complete" in [o["type"] for o in got.get("status", {}).get("conditions", [])]

        assert cluster.api.kernel.store.wait_until(is_complete, 20)


def test_what_breaks_in_a_controller_is_not_swallowed() -> None:
    def plays(pod: Obj) -> Play:
        raise ZeroDivisionError(pod["metadata"]["name"])

    cluster = Cluster(plays=plays)
    cluster.kubelet.add_node("n1", {"cpu": "8"})
    create(cluster.api, "pods", {"metadata": {"name": "p"}, "spec": pod_spec()})
    cluster.loops.start()
    assert cluster.api.kernel.store.wait_until(lambda: bool(cluster.loops.broken), 10)
    with pytest.raises(ZeroDivisionError, match="p"):
        cluster.loops.stop()


def read(text: str) -> set[int]:
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


@given(st.sets(st.integers(0, 30)))
def test_completed_indexes_say_which(indexes: set[int]) -> None:
    assert read(intervals(indexes)) == indexes


def test_completed_indexes_are_written_as_kubernetes_does() -> None:
    assert intervals({1, 3, 4, 5, 7, 8}) == "1,3-5,7,8"


def test_a_job_that_is_deleted_lets_its_pods_go_even_when_nobody_counts_them() -> None:
    bed = Bed(Play(term_s=5))
    bed.run(job("j", 1))
    bed.api.do(
        "delete",
        "batch/v1",
        "jobs",
        namespace="default",
        name="j",
        body={"propagationPolicy": "Orphan"},
    )
    bed.cluster.loops.settle()
    assert bed.phases() == ["Running"]
    assert not bed.pods()[0]["metadata"].get("finalizers")


def test_a_job_that_never_ran_is_paused_and_resumed_without_a_trace() -> None:
    bed = Bed(Play(start_s=1000))
    bed.run(job("j", 1))
    bed.patch({"spec": {"suspend": True}})
    assert bed.pods() == []
    bed.patch({"spec": {"suspend": False}})
    assert bed.phases() == ["Pending"]
