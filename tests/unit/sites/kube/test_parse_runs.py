"""Jobs, JobSets and TrainJobs: where they are, and how they ended with what their pods say."""

from typing import Any

import msgspec
import pytest
from tests.unit.sites.kube.schemas import built_in_errors, custom_errors
from tests.unit.sites.kube.submissions import ALL

from gridloom.model.reason import Why
from gridloom.sites.kube.endings import CAUSES, Ending, EndKind, first_cause
from gridloom.sites.kube.parse_pods import Phase, PodSight
from gridloom.sites.kube.parse_runs import RunPhase, RunSight, attempt_ending, read_run
from gridloom.sites.kube.render import Form, manifests

SINCE = "1970-01-01T00:01:40Z"
FOLDERS = {Form.JOB_SET: "jobset-v0.12.0", Form.TRAIN_JOB: "trainer-v2.3.0"}


def made(form: Form, status: dict[str, Any], *, suspend: bool = False, **metadata: Any) -> Any:
    data = msgspec.json.decode(msgspec.json.encode(manifests(ALL, form)[-1]))
    data["spec"]["suspend"] = suspend
    data["metadata"] |= {"uid": "u1", **metadata}
    if status:
        data["status"] = status
    folder = FOLDERS.get(form)
    assert (custom_errors(data, folder) if folder else built_in_errors(data, "1.36")) == []
    return data


def is_(type_: str, reason: str = "Any", message: str = "m") -> dict[str, str]:
    return {
        "type": type_,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": SINCE,
    }


def test_a_job_that_runs() -> None:
    seen = read_run(made(Form.JOB, {"active": 3, "ready": 2, "succeeded": 1, "failed": 0}))
    assert (seen.kind, seen.name, seen.uid) == ("Job", "llama-7b-a3", "u1")
    assert seen.labels["gridloom/epoch"] == "41"
    assert (seen.phase, seen.sentence, seen.ending) == (RunPhase.ACTIVE, "", None)
    assert (seen.active, seen.ready, seen.succeeded, seen.failed) == (3, 2, 1, 0)


@pytest.mark.parametrize(
    ("form", "field"),
    [(Form.JOB_SET, "replicatedJobsStatus"), (Form.TRAIN_JOB, "jobsStatus")],
)
def test_jobs_inside_are_counted(form: Form, field: str) -> None:
    one = {"active": 1, "failed": 0, "ready": 1, "succeeded": 0, "suspended": 0}
    status = {field: [{"name": "node", **one}, {"name": "other", **one}]}
    seen = read_run(made(form, status))
    assert (seen.active, seen.ready) == (2, 2)


@pytest.mark.parametrize("form", Form)
def test_what_is_held_back(form: Form) -> None:
    seen = read_run(made(form, {}, suspend=True))
    assert (seen.phase, seen.sentence) == (RunPhase.SUSPENDED, "it is held back")
    status = {"conditions": [is_("Suspended", message="JobSuspended by Kueue")]}
    seen = read_run(made(form, status, suspend=True))
    assert seen.sentence == "it is held back: JobSuspended by Kueue"


@pytest.mark.parametrize("form", Form)
def test_what_is_being_deleted(form: Form) -> None:
    seen = read_run(made(form, {}, deletionTimestamp=SINCE))
    assert (seen.phase, seen.ending) == (RunPhase.STOPPING, None)


@pytest.mark.parametrize(
    ("form", "type_"),
    [(Form.JOB, "Complete"), (Form.JOB_SET, "Completed"), (Form.TRAIN_JOB, "Complete")],
)
def test_what_is_done(form: Form, type_: str) -> None:
    seen = read_run(made(form, {"conditions": [is_(type_)]}, deletionTimestamp=SINCE))
    assert seen.phase is RunPhase.ENDED
    assert seen.ending == Ending(
        kind=EndKind.DONE, why=Why.COMPLETED, sentence="it is done", ended_s=100.0
    )


def test_the_time_of_completion_is_the_jobs_own() -> None:
    status = {"conditions": [is_("Complete")], "completionTime": "1970-01-01T00:00:30Z"}
    ending = read_run(made(Form.JOB, status)).ending
    assert ending is not None
    assert ending.ended_s == 30.0


@pytest.mark.parametrize(
    ("form", "reason", "kind", "sentence"),
    [
        (Form.JOB, "DeadlineExceeded", EndKind.TIME_LIMIT, "its time limit is over: "),
        (Form.JOB, "BackoffLimitExceeded", EndKind.FAILED, "a pod of it failed: "),
        (Form.JOB, "PodFailurePolicy", EndKind.FAILED, "a pod of it failed in a way"),
        (Form.JOB_SET, "FailedJobs", EndKind.FAILED, "a pod of it failed: "),
        (Form.JOB_SET, "ReachedMaxRestarts", EndKind.FAILED, "it failed as often"),
        (Form.TRAIN_JOB, "SomethingNew", EndKind.FAILED, "it failed: SomethingNew: m"),
    ],
)
def test_what_failed(form: Form, reason: str, kind: EndKind, sentence: str) -> None:
    seen = read_run(made(form, {"conditions": [is_("Failed", reason)]}))
    assert seen.phase is RunPhase.ENDED
    assert seen.ending is not None
    assert seen.ending.kind is kind
    assert seen.sentence.startswith(sentence)
    assert seen.sentence.endswith(f"{reason}: m")


def end(kind: EndKind, ended_s: float = 1.0, why: Why | None = None) -> Ending:
    return Ending(kind=kind, why=why or CAUSES[kind], sentence=str(kind), ended_s=ended_s)


def pod(ending: Ending | None, phase: Phase = Phase.ENDED) -> PodSight:
    return PodSight(
        name="p", uid="u", labels={}, index=0, node="n", address="", phase=phase, ending=ending
    )


def run(ending: Ending | None) -> RunSight:
    return RunSight(kind="Job", name="j", uid="u", labels={}, phase=RunPhase.ACTIVE, ending=ending)


FAILED = run(end(EndKind.FAILED))


def test_the_job_says_that_and_its_pods_say_why() -> None:
    memory = end(EndKind.OUT_OF_MEMORY, 5.0)
    assert attempt_ending(FAILED, [pod(end(EndKind.DONE)), pod(memory)]) == memory
    assert attempt_ending(FAILED, [pod(end(EndKind.DONE))]) == FAILED.ending
    assert attempt_ending(FAILED, []) == FAILED.ending


@pytest.mark.parametrize("kind", [EndKind.DONE, EndKind.TIME_LIMIT])
def test_what_only_the_job_knows_stands(kind: EndKind) -> None:
    assert attempt_ending(run(end(kind)), [pod(end(EndKind.FAILED))]) == end(kind)


def test_nothing_ended_while_the_job_goes_on() -> None:
    assert attempt_ending(run(None), [pod(end(EndKind.FAILED))]) is None


def test_a_pod_that_is_stuck_has_not_ended() -> None:
    stuck = pod(end(EndKind.LAUNCH_FAILED), Phase.STUCK)
    assert attempt_ending(FAILED, [stuck]) == FAILED.ending
    assert attempt_ending(None, [stuck]) is None


def test_a_job_that_is_gone() -> None:
    gone = attempt_ending(None, [])
    assert gone is not None
    assert (gone.kind, gone.sentence) == (EndKind.CANCELLED, "its job was deleted")
    assert attempt_ending(None, [pod(end(EndKind.PREEMPTED))]) == end(EndKind.PREEMPTED)


def test_of_many_the_cause_is_told_and_not_its_victims() -> None:
    victim = end(EndKind.FAILED, 1.0, Why.PEER_LOST)
    culprit = end(EndKind.FAILED, 2.0)
    later = end(EndKind.FAILED, 3.0)
    untimed = end(EndKind.FAILED, 0.0)
    assert first_cause([victim, later, culprit, untimed]) == culprit
    cancelled = end(EndKind.CANCELLED, 9.0)
    assert first_cause([victim, end(EndKind.DONE), cancelled]) == cancelled
    assert first_cause([victim, end(EndKind.DONE)]) == victim
    lost = end(EndKind.NODE_FAILED, 9.0)
    assert first_cause([victim, culprit, lost]) == lost
    assert first_cause([]) is None
