"""The driver beside a pretended cluster: queues, preemption, ends that nobody tells, stops."""

from pathlib import Path
from typing import Any

import pytest
from tests.fakes.kube_api.controllers.kubelet import Play
from tests.unit.sites.kube.desk import JOBS, KUEUE, WORKLOADS, Desk
from tests.unit.sites.slurm.orders import order, ref

from gridloom.base.errors import SiteError
from gridloom.model.event import AnyEvent, TaskArrived, TaskEnded, TaskRefused, TaskRunning
from gridloom.model.life import Arrival
from gridloom.model.reason import Why
from gridloom.sites.kube.render import Form
from gridloom.wire.agent import Rendezvous
from gridloom.wire.reports import Alive, Arrived

HERE = Arrival(node="k1", address="10.0.0.7")
TRAIN_JOBS = ("trainer.kubeflow.org/v1alpha1", "trainjobs")
JOB_SETS = ("jobset.x-k8s.io/v1alpha2", "jobsets")


def codes(outcomes: list[Any]) -> list[Why]:
    return [one.code for one in outcomes]


def test_a_gang_waits_comes_up_runs_and_ends(desk: Desk) -> None:
    desk.queue(cpus=1)
    desk.play = Play(fault="ImagePullBackOff", message="no such image")
    assert desk.submit() == {}
    desk.waits("insufficient quota")
    (job,) = desk.jobs()
    assert job["spec"]["suspend"] is True
    quota = [{"name": "any", "resources": [{"name": "cpu", "nominalQuota": 8}]}]
    groups = {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": quota}]}
    desk.api.do("patch", WORKLOADS[0], "clusterqueues", name="all", body={"spec": groups})
    said = desk.waits("the image cannot be fetched")
    assert "ImagePullBackOff: no such image" in said
    assert " on k1: " in said
    desk.says(Arrived, arrival=HERE)
    kinds = desk.until(lambda facts: [one for one in facts if isinstance(one, TaskArrived)])
    assert kinds[0].arrival == HERE
    for node in ("n1", "n2"):
        desk.says(Alive, node)
    desk.reports(Why.COMPLETED, "n1")
    desk.reports(Why.EXITED, "n2")
    for _ in range(3):
        assert codes(desk.ends()) == [Why.COMPLETED, Why.EXITED], "told again, and no other way"
    assert desk.asked("patch") == 1, "what Kueue has started is never applied again"
    assert desk.asked("delete") == 0


def test_what_is_preempted_says_so_and_is_not_started_again(desk: Desk) -> None:
    desk.queue()
    desk.submit()
    desk.run()
    desk.rival()
    desk.until(
        lambda _: (
            any("deletionTimestamp" in one["metadata"] for one in desk.pods()) or not desk.pods()
        )
    )
    desk.reports(Why.STOP_REQUESTED)
    outcomes = desk.ends()
    assert codes(outcomes) == [Why.PREEMPTED] * 2
    assert "a workload of higher priority in its queue took its place" in outcomes[0].sentence
    assert outcomes[0].sentence.endswith(": it stop_requested")
    desk.until(lambda _: not desk.jobs())
    assert codes(desk.ends()) == [Why.PREEMPTED] * 2


def test_what_is_preempted_without_a_word_says_so_too(desk: Desk) -> None:
    desk.queue()
    desk.submit()
    desk.until(lambda _: [one["status"]["phase"] for one in desk.pods()] == ["Running"] * 2)
    desk.until(lambda facts: desk.waits("starts on k1"))
    desk.rival()
    assert codes(desk.ends()) == [Why.PREEMPTED] * 2
    desk.until(lambda _: not desk.jobs())


def test_an_eviction_that_a_dead_control_plane_missed_is_still_known(desk: Desk) -> None:
    desk.queue()
    desk.submit()
    desk.run()
    desk.reports(Why.STOP_REQUESTED)
    desk.rival()

    def held() -> bool:
        return any(one["spec"]["suspend"] for one in desk.jobs())

    assert desk.api.kernel.store.wait_until(held, 10)
    options = {"propagationPolicy": "Background"}
    desk.api.do("delete", *JOBS, namespace="team", name="rival", body=options)
    assert desk.api.kernel.store.wait_until(lambda: not held(), 10), "Kueue lets it run again"
    desk.again()
    assert codes(desk.ends()) == [Why.PREEMPTED] * 2


def test_what_waits_is_taken_out_of_the_queue(desk: Desk) -> None:
    desk.queue(cpus=1)
    desk.submit()
    desk.waits("insufficient quota")
    desk.driver.stop(ref("n1"), 0.0, "cancelled")
    desk.driver.stop(ref("n2"), 0.0, "cancelled")
    desk.again()
    outcomes = desk.ends()
    assert codes(outcomes) == [Why.STOP_REQUESTED] * 2
    assert outcomes[0].sentence.startswith("cancelled: Kubernetes job train-abc-a2-")
    assert desk.jobs() == []
    assert desk.asked("delete") == 1


def test_what_the_cluster_never_took_is_stopped_without_it(desk: Desk) -> None:
    desk.fails("*", "*", drop="before", times=0)
    desk.driver.stop(ref("n1"), 0.0, "cancelled")
    desk.submit()
    assert codes(desk.ends()) == [Why.STOP_REQUESTED] * 2
    desk.api.faults.clear()
    desk.look()
    assert desk.jobs() == []


def test_a_supervisor_that_obeys_is_not_taken_out(desk: Desk) -> None:
    desk.submit()
    desk.run()
    for node in ("n1", "n2"):
        desk.driver.stop(ref(node), 5.0, "stop")
    desk.look()
    desk.reports(Why.STOP_REQUESTED)
    assert codes(desk.ends()) == [Why.STOP_REQUESTED] * 2
    assert desk.asked("delete") == 0


def test_a_supervisor_that_does_not_obey_is_taken_out_after_its_grace(desk: Desk) -> None:
    desk.submit()
    desk.run()
    for node in ("n1", "n2"):
        desk.driver.stop(ref(node), 5.0, "stop")
    desk.look()
    desk.clock.advance(15.0)
    desk.look()
    assert desk.jobs(), "it has its grace, and a margin"
    desk.clock.advance(6.0)
    outcomes = desk.ends()
    assert codes(outcomes) == [Why.STOP_REQUESTED] * 2
    assert outcomes[0].sentence.startswith("stop: ")
    assert desk.until(lambda _: not desk.pods()), "no pod stays behind"


def test_one_that_never_came_up_does_not_keep_the_gang(desk: Desk) -> None:
    desk.orders = [order(desk.runs, "n1", devices=5), order(desk.runs, "n2")]
    desk.submit()
    said = desk.until(lambda _: [p for p in desk.pods() if p["spec"].get("nodeName")])
    first = said[0]["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
    mine, other = ("n1", "n2") if first == "0" else ("n2", "n1")
    desk.says(Alive, mine)
    desk.until(lambda facts: any("Insufficient cpu" in str(one) for one in facts))
    for node in ("n1", "n2"):
        desk.driver.stop(ref(node), 5.0, "stop")
    desk.look()
    assert desk.jobs(), "the one that runs has its grace"
    desk.reports(Why.STOP_REQUESTED, mine)
    assert set(codes(desk.ends())) == {Why.STOP_REQUESTED}
    assert other
    desk.until(lambda _: not desk.jobs())


ENDS: dict[str, tuple[dict[str, Any], Why, int, str]] = {
    "well": ({}, Why.SUPERVISOR_LOST, 0, "hpc/n1 is gone without a word: it is done"),
    "badly": (
        {"exit_code": 1},
        Why.SUPERVISOR_LOST,
        1,
        "hpc/n1 is gone without a word: exit code 1: No module named gridloom",
    ),
    "by a signal": ({"exit_code": 139}, Why.SUPERVISOR_LOST, -11, "killed by SIGSEGV"),
    "out of memory": ({"fault": "OOMKilled"}, Why.OUT_OF_MEMORY, -9, "used more memory"),
    "put out by its node": ({"fault": "Evicted"}, Why.OUT_OF_MEMORY, 0, "ran out of memory"),
}


@pytest.mark.parametrize(("how", "code", "exit_code", "words"), ENDS.values(), ids=ENDS)
def test_an_end_that_no_supervisor_tells_is_the_clusters(
    desk: Desk, how: dict[str, Any], code: Why, exit_code: int, words: str
) -> None:
    desk.play = Play(lines=("Traceback:", "No module named gridloom", ""))
    desk.submit()
    desk.until(lambda _: [one["status"]["phase"] for one in desk.pods()] == ["Running"] * 2)
    desk.end_pods(**how)
    first, _ = desk.ends()
    assert (first.code, first.exit_code) == (code, exit_code)
    assert words in first.sentence
    if code is Why.SUPERVISOR_LOST:
        assert first.remedy == f"see {desk.place() / 'supervisor.log'}"
        assert "No module named gridloom" in (desk.place() / "supervisor.log").read_text()
    assert desk.ends()[0] == first, "told again, and no other way"


def test_one_pod_that_ended_without_a_word_is_told_while_others_run(desk: Desk) -> None:
    desk.submit()
    desk.until(lambda _: [one["status"]["phase"] for one in desk.pods()] == ["Running"] * 2)
    desk.says(Alive, "n2")
    desk.end_pods(0)
    desk.until(lambda _: "Succeeded" in [one["status"]["phase"] for one in desk.pods()])

    def over(facts: list[AnyEvent]) -> list[AnyEvent]:
        desk.clock.advance(1.0)
        return [one for one in facts if isinstance(one, TaskEnded)]

    desk.until(over)
    (outcome,) = desk.ends(1)
    assert outcome.code is Why.SUPERVISOR_LOST


def test_why_no_pod_can_be_made_is_told(desk: Desk) -> None:
    desk.site = desk.at(service_account="nobody")
    desk.submit()
    desk.waits("has no pod for it yet")
    desk.clock.advance(5.0)
    assert 'FailedCreate: Error creating: pods "train-abc-a2-' in desk.waits("not found")


def test_why_a_pod_does_not_come_up_is_told(desk: Desk) -> None:
    desk.play = Play(start_s=100.0)
    desk.submit()
    desk.waits("fetches its image on k1")
    name = desk.pods()[0]["metadata"]["name"]
    about = {"kind": "Pod", "name": name, "namespace": "team"}
    for minute, message in ((2, "still no such claim"), (1, "no such claim")):
        body = {
            "metadata": {"generateName": "e"},
            "involvedObject": about,
            "type": "Warning",
            "reason": "FailedMount",
            "message": message,
            "lastTimestamp": f"2026-01-01T00:0{minute}:00Z",
        }
        desk.api.do("create", "v1", "events", namespace="team", body=body)
    desk.clock.advance(5.0)
    sentence = f"pod {name} fetches its image on k1: FailedMount: still no such claim"
    desk.until(lambda facts: sentence in str(facts))


def test_the_time_limit_of_the_site_is_told(desk: Desk) -> None:
    desk.site = desk.at(time_limit_s=1.0)
    desk.submit()
    desk.run()
    desk.reports(Why.STOP_REQUESTED, "n1")
    running = desk.until(lambda facts: [one for one in facts if isinstance(one, TaskRunning)])
    assert running[0].domain == "hpc/n1", "its end is told once it is known why"
    first, second = desk.ends()
    assert (first.code, second.code) == (Why.TIME_LIMIT, Why.TIME_LIMIT)
    assert first.remedy == "raise `time_limit` of the site in the grid file"


def test_a_job_that_somebody_deletes_was_cancelled_at_the_site(desk: Desk) -> None:
    desk.submit()
    desk.run()
    name = desk.jobs()[0]["metadata"]["name"]
    desk.api.do(
        "delete", *JOBS, namespace="team", name=name, body={"propagationPolicy": "Background"}
    )
    desk.reports(Why.STOP_REQUESTED, "n1")
    outcomes = desk.ends()
    assert codes(outcomes) == [Why.CANCELLED_AT_SITE] * 2
    assert "its job was deleted" in outcomes[1].sentence


def test_a_drained_node_takes_its_pods(desk: Desk) -> None:
    desk.submit()
    desk.run()
    name = desk.pods()[0]["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    desk.api.do(
        "create", "v1", "pods", namespace="team", name=name, subresource="eviction", body=eviction
    )
    desk.reports(Why.STOP_REQUESTED)
    first, second = desk.ends()
    assert first.code is Why.PREEMPTED
    assert "its node is being drained" in first.sentence
    assert second.code is Why.PREEMPTED


def test_a_lost_node_is_told(desk: Desk) -> None:
    desk.submit()
    desk.until(lambda _: [one["status"]["phase"] for one in desk.pods()] == ["Running"] * 2)
    taken = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
    for one in desk.pods():
        status = {"phase": "Failed", "conditions": [*one["status"]["conditions"], taken]}
        desk.api.do(
            "patch", "v1", "pods", namespace="team", name=one["metadata"]["name"],
            subresource="status", body={"status": status},
        )  # fmt: skip
    assert codes(desk.ends()) == [Why.NODE_LOST] * 2


def test_a_peer_that_failed_is_why_the_others_were_asked_to_stop(desk: Desk) -> None:
    desk.submit()
    desk.run()
    desk.end_pods(0, exit_code=1)
    desk.reports(Why.STOP_REQUESTED, "n2")
    first, second = desk.ends()
    assert (first.code, second.code) == (Why.SUPERVISOR_LOST, Why.PEER_LOST)


def test_a_cluster_that_never_says_why_is_not_waited_for(desk: Desk) -> None:
    desk.submit()
    desk.run()
    desk.reports(Why.STOP_REQUESTED)
    desk.until(lambda facts: [one for one in facts if isinstance(one, TaskRunning)])
    desk.clock.advance(29.0)
    assert not [one for one in desk.look() if isinstance(one, TaskEnded)], "others have their grace"
    desk.clock.advance(11.0)
    assert codes(desk.ends()) == [Why.STOP_REQUESTED] * 2


@pytest.mark.parametrize("is_stopped", [False, True])
@pytest.mark.parametrize(
    ("form", "plural"), [(Form.JOB_SET, JOB_SETS), (Form.TRAIN_JOB, TRAIN_JOBS)]
)
def test_other_forms_run_and_are_taken_out(
    tmp_path: Path, form: Form, plural: tuple[str, str], *, is_stopped: bool
) -> None:
    desk = Desk(tmp_path, form=form)
    try:
        desk.site = desk.at(workload=plural[1].removesuffix("s"))
        desk.submit()
        desk.run()
        assert len(desk.jobs(plural)) == 1
        if is_stopped:
            for node in ("n1", "n2"):
                desk.driver.stop(ref(node), 0.0, "cancelled")
            assert codes(desk.ends()) == [Why.STOP_REQUESTED] * 2
            assert desk.jobs(plural) == []
        else:
            desk.end_pods(0, 1)
            assert codes(desk.ends()) == [Why.SUPERVISOR_LOST] * 2
    finally:
        desk.close()


def test_a_directory_that_cannot_be_written_refuses(desk: Desk) -> None:
    desk.runs.write_text("a file where a directory should be")
    refused = desk.submit()
    assert {reason.code for reason in refused.values()} == {Why.IO}
    for verb in (
        lambda: desk.driver.renew(ref(), 1.0),
        lambda: desk.driver.stop(ref(), 1.0, ""),
        lambda: desk.driver.meet(ref(), Rendezvous(addresses=(), port=1)),
        lambda: desk.driver.free_port("a", (1, 2), frozenset()),
    ):
        with pytest.raises(SiteError):
            verb()
    assert desk.look() == []


def test_what_no_cluster_would_take_is_refused_before_it_is_asked(desk: Desk) -> None:
    desk.site = desk.at(environment={"A B": "c"}, namespace="no team")
    (first, _) = desk.submit().values()
    assert first.code is Why.REFUSED
    assert "'A B' cannot name a variable" in first.sentence
    assert "'no team' cannot be the name of a namespace" in first.sentence
    assert desk.asked("patch") == 0


def test_of_what_was_never_handed_in_there_is_no_news(desk: Desk) -> None:
    assert desk.look() == []
    assert KUEUE.startswith("kueue")


def test_refusals_are_told_again(desk: Desk) -> None:
    desk.site = desk.at(namespace="nowhere")
    desk.submit()
    for _ in range(2):
        found = desk.until(lambda facts: [one for one in facts if isinstance(one, TaskRefused)])
        assert len(found) == 2
        assert found[0].reason.code is Why.REFUSED
    assert not [one for one in desk.look() if isinstance(one, TaskEnded)]
