"""The driver and a cluster in trouble: nothing is lost, and nothing is started twice."""

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.kube_api.server import KubeApi
from tests.unit.sites.kube.desk import JOBS, PATIENCE_S, Desk
from tests.unit.sites.slurm.orders import order, ref

from gridloom.base.errors import SiteError
from gridloom.model.event import AnyEvent, TaskRefused, TaskRunning
from gridloom.model.inventory import Site
from gridloom.model.reason import Reason, Why
from gridloom.sites.kube.client import KubeClient
from gridloom.wire.reports import Alive


def refused(desk: Desk) -> list[Reason]:
    """Look until both tasks are refused."""

    def both(facts: list[AnyEvent]) -> list[Reason]:
        found = [one.reason for one in facts if isinstance(one, TaskRefused)]
        return found if len(found) == 2 else []

    return desk.until(both)


def test_a_new_driver_takes_over_what_runs(desk: Desk) -> None:
    desk.submit()
    desk.run()
    desk.look()
    for _ in range(3):
        desk.again()
        assert desk.submit() == {}
        desk.until(lambda facts: [one for one in facts if isinstance(one, TaskRunning)])
    assert len(desk.jobs()) == 1
    assert desk.asked("patch") == 1


@pytest.mark.parametrize("queued", [False, True], ids=["free", "queued"])
def test_what_was_taken_while_we_died_is_found_again(desk: Desk, *, queued: bool) -> None:
    if queued:
        desk.queue()
    desk.submit()
    desk.until(lambda _: len(desk.pods()) == 2)
    (uid,) = [one["metadata"]["uid"] for one in desk.jobs()]
    gang = desk.place().parent / "gang.hpc"
    desk.until(lambda _: (gang / "job.json").exists())
    (gang / "job.json").unlink()  # killed before the answer was noted
    desk.again()
    assert desk.submit() == {}
    desk.until(lambda _: (gang / "job.json").exists())
    assert [one["metadata"]["uid"] for one in desk.jobs()] == [uid]
    assert desk.asked("patch") == 1, "what Kueue may have started is not applied again"


def test_what_kueue_has_started_is_taken_over_and_not_held_back_again(desk: Desk) -> None:
    desk.queue()
    desk.submit()
    desk.run()
    gang = desk.place().parent / "gang.hpc"
    desk.until(lambda _: (gang / "job.json").exists())
    for name in ("job.json", "submitting"):  # nothing says that it was ever handed in
        (gang / name).unlink()
    desk.again()
    desk.until(lambda _: (gang / "job.json").exists())
    assert desk.asked("patch") == 2
    (job,) = desk.jobs()
    assert job["spec"]["suspend"] is False


def test_what_was_stopped_while_we_died_is_looked_for_and_taken_out(desk: Desk) -> None:
    desk.queue(cpus=1)
    desk.submit()
    desk.waits("insufficient quota")
    noted = desk.place().parent / "gang.hpc" / "job.json"
    desk.until(lambda _: noted.exists())
    noted.unlink()
    desk.again()
    desk.driver.stop(ref("n1"), 0.0, "cancelled")
    assert {one.code for one in desk.ends()} == {Why.STOP_REQUESTED}
    assert desk.jobs() == []


def test_what_was_marked_and_never_asked_for_is_stopped_without_the_cluster(desk: Desk) -> None:
    desk.fails("*", "*", drop="before", times=0)
    desk.submit()
    desk.waits("Kubernetes cannot be asked: ")
    assert (desk.place().parent / "gang.hpc" / "submitting").exists()
    desk.again()
    desk.driver.stop(ref("n1"), 0.0, "cancelled")
    desk.waits("Kubernetes cannot be asked: ")  # it may have it
    desk.api.faults.clear()
    desk.clock.advance(1.0)
    first, _ = desk.ends()
    assert first.sentence == "cancelled: Kubernetes had not taken it yet"
    assert desk.jobs() == []


FAULTS: dict[str, list[dict[str, Any]]] = {
    "throttled": [{"verb": "patch", "resource": "jobs", "code": 429, "retry_after_s": 1}],
    "broken": [{"verb": "patch", "resource": "*", "code": 500, "times": 2}],
    "not ready": [{"verb": "list", "resource": "*", "code": 503, "times": 3}],
    "cut before": [{"verb": "patch", "resource": "jobs", "drop": "before"}],
    "cut after": [{"verb": "patch", "resource": "jobs", "drop": "after"}],
    "a watch that breaks": [{"verb": "watch", "resource": "*", "cut_after": 1, "times": 6}],
    "half an event": [{"verb": "watch", "resource": "*", "cut_after": 1, "half": True, "times": 4}],
    "a watch too late": [{"verb": "watch", "resource": "*", "code": 410, "times": 3}],
}


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_a_gang_comes_through(desk: Desk, faults: list[dict[str, Any]]) -> None:
    desk.queue()
    for one in faults:
        desk.fails(**one)
    desk.submit()
    desk.run()
    desk.end_pods()
    outcomes = desk.ends()
    assert [one.code for one in outcomes] == [Why.SUPERVISOR_LOST] * 2
    assert len(desk.jobs()) == 1


def test_what_was_deleted_while_nobody_could_watch_is_missed(tmp_path: Path) -> None:
    desk = Desk(tmp_path, window=1)
    try:
        desk.submit()
        desk.run()
        desk.look()
        desk.fails("watch", "*", drop="before", times=0)
        desk.api.disconnect()
        name = desk.jobs()[0]["metadata"]["name"]
        options = {"propagationPolicy": "Background"}
        desk.api.do("delete", *JOBS, namespace="team", name=name, body=options)
        desk.api.faults.clear()
        assert [one.code for one in desk.ends()] == [Why.CANCELLED_AT_SITE] * 2
    finally:
        desk.close()


def test_while_the_cluster_is_away_supervisors_are_heard(desk: Desk) -> None:
    desk.submit()
    desk.until(lambda _: len(desk.pods()) == 2)
    desk.fails("*", "*", drop="before", times=0)
    desk.api.disconnect()
    desk.waits("Kubernetes cannot be asked: ")
    desk.says(Alive)
    running = desk.until(lambda facts: [one for one in facts if isinstance(one, TaskRunning)])
    assert running[0].domain == "hpc/n1"
    desk.api.faults.clear()
    desk.until(lambda _: [one["status"]["phase"] for one in desk.pods()] == ["Running"] * 2)
    desk.until(lambda facts: "starts on k1" in str(facts))
    assert len(desk.jobs()) == 1


def test_without_the_right_it_is_said_which(desk: Desk) -> None:
    role = "rbac.authorization.k8s.io/v1", "roles"
    (found,) = desk.api.do("list", *role, namespace="team")["items"]
    rules = [one for one in found["rules"] if "jobs" not in one["resources"]]
    change = {"rules": rules}
    desk.api.do("patch", *role, namespace="team", name=found["metadata"]["name"], body=change)
    desk.submit()
    first, _ = refused(desk)
    assert first.code is Why.REFUSED
    assert 'cannot patch resource "jobs" in API group "batch"' in first.sentence
    desk.until(lambda _: not desk.api.do("list", "v1", "services", namespace="team")["items"])
    assert "gridloom site manifest kube" in first.remedy


@pytest.mark.parametrize(
    ("more", "words", "remedy"),
    [
        ({"workload": "jobset"}, "could not find the requested resource", "install what"),
        ({"namespace": "nowhere"}, 'cannot patch resource "services"', "site manifest kube"),
    ],
    ids=["no JobSet", "another namespace"],
)
def test_what_the_cluster_will_not_have_is_refused_with_its_words(
    desk: Desk, more: dict[str, Any], words: str, remedy: str
) -> None:
    desk.site = desk.at(**more)
    desk.submit()
    first, _ = refused(desk)
    assert words in first.sentence
    assert remedy in first.remedy


def test_another_job_of_that_name_is_left_alone(desk: Desk) -> None:
    desk.fails("*", "*", drop="before", times=0)
    desk.submit()
    desk.waits("Kubernetes cannot be asked: ")
    name = next((desk.place().parent / "gang.hpc").glob("kubernetes.json")).read_text()
    other = name.split('"name":"')[1].split('"')[0]
    container = {"name": "c", "image": "x"}
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    body = {"metadata": {"name": other}, "spec": spec}
    made = desk.api.do("create", *JOBS, namespace="team", body=body)
    desk.api.faults.clear()
    desk.clock.advance(1.0)
    first, _ = refused(desk)
    assert f"there is another Job {other}" in first.sentence
    kept = desk.api.do("get", *JOBS, namespace="team", name=other)
    assert kept["metadata"]["uid"] == made["metadata"]["uid"]
    assert kept["spec"] == made["spec"]


def test_a_token_that_is_not_accepted_is_waited_for(desk: Desk) -> None:
    known = dict(desk.api.tokens)
    desk.api.tokens.clear()
    desk.submit()
    assert desk.waits("does not accept our token or certificate")
    desk.api.tokens |= known
    desk.clock.advance(1.0)
    desk.until(lambda _: desk.jobs())


def test_without_a_kubeconfig_it_waits_and_says_so(desk: Desk) -> None:
    desk.config.rename(desk.config.with_suffix(".away"))
    desk.submit()
    assert str(desk.config) in desk.waits("cannot be used: ")
    desk.config.with_suffix(".away").rename(desk.config)
    desk.clock.advance(1.0)
    desk.until(lambda _: desk.jobs())


def test_without_the_library_it_is_refused(desk: Desk) -> None:
    def connect(_: object) -> KubeClient:
        raise SiteError("No module named 'lightkube'")

    desk.again(connect)
    desk.submit()
    assert "No module named 'lightkube'" in refused(desk)[0].sentence


def test_nobody_waits_for_a_cluster_that_does_not_answer(desk: Desk) -> None:
    answers = threading.Event()

    def connect(place: Any) -> KubeClient:
        answers.wait(20)
        return KubeClient(place, desk.clock)

    desk.again(connect)
    desk.submit()
    desk.waits("is being handed to Kubernetes")
    desk.clock.advance(5.0)
    desk.waits("Kubernetes cannot be asked: it takes long")
    answers.set()
    desk.until(lambda _: desk.jobs())


def test_watches_end_when_nobody_looks_and_begin_again(desk: Desk) -> None:
    desk.submit()
    desk.run()
    desk.look()
    desk.clock.advance(31.0)
    before = desk.asked("list")
    desk.end_pods()

    while any("(_call)" in one.name for one in threading.enumerate()):  # the test's own time limit
        desk.api.disconnect()  # what watches hear next is that
        desk.clock.sleep(0.02)
    assert [one.code for one in desk.ends()] == [Why.SUPERVISOR_LOST] * 2
    assert desk.asked("list") > before


def test_two_sites_in_one_namespace_do_not_meet(desk: Desk) -> None:
    others = [order(desk.runs, "n1", task=ref("n1", site="other"))]
    desk.submit()
    desk.driver.submit(desk.site, others)
    desk.until(lambda _: len(desk.jobs()) == 2)
    names = [one["metadata"]["labels"]["gridloom/site"] for one in desk.jobs()]
    assert sorted(names) == ["hpc", "other"]
    assert isinstance(desk.api, KubeApi)


def test_what_nobody_asks_after_is_still_taken_out(desk: Desk) -> None:
    """A task that obeys no stop is over for the core before it is for its cluster."""
    desk.submit()
    desk.run()
    for node in ("n1", "n2"):
        desk.driver.stop(ref(node), 1.0, "stop")
    desk.look()
    desk.driver.submit(desk.site, [order(desk.runs, "n1", task=ref("n1", job_id="next"))])
    desk.until(lambda _: len(desk.jobs()) == 2)
    for _ in range(3):
        desk.driver.observe([])
    desk.clock.advance(16.0)
    until_s = desk.clock.monotonic_s() + PATIENCE_S
    while len(desk.jobs()) == 2:
        desk.driver.observe([])
        assert desk.clock.monotonic_s() < until_s
    assert [one["metadata"]["labels"]["gridloom/job"] for one in desk.jobs()] == ["next"]


def test_what_was_taken_for_dead_while_it_waited_does_not_stay_in_the_queue(desk: Desk) -> None:
    desk.queue(cpus=1)
    desk.submit()
    desk.waits("insufficient quota")
    until_s = desk.clock.monotonic_s() + PATIENCE_S
    while desk.jobs():
        desk.driver.observe([])
        assert desk.clock.monotonic_s() < until_s


def test_logs_that_may_not_be_read_are_done_without(desk: Desk) -> None:
    desk.fails("get", "pods/log", code=403, times=0)
    desk.submit()
    desk.until(lambda _: [one["status"]["phase"] for one in desk.pods()] == ["Running"] * 2)
    desk.end_pods(exit_code=1)
    first, _ = desk.ends()
    assert first.sentence.endswith("is gone without a word: exit code 1")


def test_a_site_that_says_nothing_of_kubernetes_is_refused(desk: Desk) -> None:
    desk.site = Site(name="hpc", kind="kubernetes", nodes=())
    (first, _) = desk.submit().values()
    assert "does not say how jobs are handed in" in first.sentence


def test_what_cannot_be_noted_is_not_left_at_the_cluster(desk: Desk) -> None:
    gang = desk.place().parent / "gang.hpc"
    (gang / "job.json").mkdir(parents=True)  # nothing can be written there
    desk.submit()
    assert refused(desk)[0].code is Why.IO
    desk.until(lambda _: not desk.jobs())
