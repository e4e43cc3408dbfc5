"""What manifests say: commands as they are, names that pods find each other by, stops that wait."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sites.kube.submissions import ALL, EVERY, LEAST

from gridloom.base.errors import InputError
from gridloom.sites.kube.labels import QUEUE_LABEL, SITE_LABELS
from gridloom.sites.kube.names import object_name
from gridloom.sites.kube.render import Form, hosts, manifests, owner_patch, to_yaml
from gridloom.sites.kube.render_job import FINAL_EXITS
from gridloom.sites.kube.render_pod import literal, pod_template, stop_hook
from gridloom.sites.kube.submission import Accelerators, Disruption, Submission, Toleration
from gridloom.wire.launch import EXIT_DONE, EXIT_PEER_LOST

replace = msgspec.structs.replace


def expand(text: str, variables: dict[str, str]) -> str:
    """What the kubelet makes of a word: ``$(NAME)`` is replaced if known, ``$$`` is a dollar."""
    out, at = "", 0
    while at < len(text):
        rest = text[at + 1 :]
        if text[at] != "$" or not rest:
            out, at = out + text[at], at + 1
        elif rest[0] == "$":
            out, at = out + "$", at + 2
        elif rest[0] == "(" and ")" in rest:
            name = rest[1 : rest.index(")")]
            out, at = out + variables.get(name, f"$({name})"), at + len(name) + 3
        elif rest[0] == "(":
            out, at = out + "$(", at + 2
        else:
            out, at = out + "$" + rest[0], at + 2
    return out


@given(st.text(alphabet="$()HOME a", max_size=30))
def test_a_command_arrives_as_it_is(text: str) -> None:
    assert expand(literal(text), {"HOME": "replaced", "": "empty", "O": "o"}) == text


@pytest.mark.parametrize("text", ["$HOME", "${HOME}", "a$", "100 $ a day", "plain"])
def test_what_the_cluster_would_not_touch_stays(text: str) -> None:
    assert literal(text) == text


SCALARS = st.text(max_size=20) | st.sampled_from(
    ["1e3", "0o17", "0x1F", "1_000", "on", "No", "~", "null", "12:30:45", ".inf", "2024-01-01", "="]
)
OBJECTS = st.recursive(
    SCALARS | st.booleans() | st.integers(-(10**6), 10**6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCALARS, inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(SCALARS, OBJECTS, min_size=1, max_size=4), max_size=3))
def test_yaml_comes_back(objects: list[dict[str, object]]) -> None:
    assert list(yaml.safe_load_all(to_yaml(objects))) == objects


@pytest.mark.parametrize(
    "text", ["1e3", "0o17", "08", "on", "Y", "1_000", "null", "=", "12:30", ""]
)
def test_yaml_quotes_what_some_reader_takes_for_more_than_text(text: str) -> None:
    assert to_yaml([{"a": text}]) == f'---\na: "{text}"\n'


def test_yaml_has_no_aliases() -> None:
    shared = {"b": "c"}
    assert to_yaml([{"x": shared, "z": shared}]) == "---\nx:\n  b: c\nz:\n  b: c\n"


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("submission", EVERY.values(), ids=EVERY)
def test_every_object_and_pod_bears_the_fence(submission: Submission, form: Form) -> None:
    template = pod_template(submission)["metadata"]["labels"]
    for manifest in manifests(submission, form):
        labels = manifest["metadata"]["labels"]
        assert {key: labels[key] for key in SITE_LABELS} == {
            key: template[key] for key in SITE_LABELS
        }
        assert manifest["metadata"]["namespace"] == submission.namespace


@pytest.mark.parametrize("form", Form)
def test_kueue_starts_what_is_queued_and_only_that(form: Form) -> None:
    queued, free = manifests(ALL, form)[-1], manifests(LEAST, form)[-1]
    assert queued["spec"]["suspend"] is True
    assert queued["metadata"]["labels"][QUEUE_LABEL] == "training"
    assert "suspend" not in free["spec"]
    assert QUEUE_LABEL not in free["metadata"]["labels"]


def test_pods_are_found_by_name() -> None:
    service, job = manifests(ALL, Form.JOB)
    assert service["spec"]["clusterIP"] == "None"
    template = job["spec"]["template"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert template["spec"]["subdomain"] == service["metadata"]["name"]
    assert hosts(ALL, Form.JOB)[:2] == (
        "llama-7b-a3-0.llama-7b-a3.team-a.svc",
        "llama-7b-a3-1.llama-7b-a3.team-a.svc",
    )


@pytest.mark.parametrize("form", [Form.JOB_SET, Form.TRAIN_JOB])
def test_a_job_set_names_its_pods_itself(form: Form) -> None:
    text = to_yaml(manifests(ALL, form))
    assert "subdomain: llama-7b-a3\n" in text
    assert hosts(ALL, form)[3] == "llama-7b-a3-node-0-3.llama-7b-a3.team-a.svc"
    assert len(hosts(ALL, form)) == ALL.replicas


@given(st.text(min_size=1, max_size=70), st.integers(1, 10**4), st.integers(1, 10**5))
def test_names_of_pods_are_labels_of_dns(job_id: str, attempt: int, replicas: int) -> None:
    named = replace(LEAST, name=object_name(job_id, attempt), replicas=replicas)
    for form in Form:
        host = hosts(replace(named, replicas=1), form)[0].partition(".")[0]
        last = host.removesuffix("0") + str(replicas - 1)
        assert re.fullmatch(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?", last)


def rules(submission: Submission, form: Form) -> list[dict[str, object]]:
    text = to_yaml(
        manifests(submission, form)[:1] if form is Form.TRAIN_JOB else manifests(submission, form)
    )
    found: list[list[dict[str, object]]] = []

    def walk(value: object) -> None:
        if isinstance(value, dict):
            if "podFailurePolicy" in value:
                found.append(value["podFailurePolicy"]["rules"])
            for one in value.values():
                walk(one)
        if isinstance(value, list):
            for one in value:
                walk(one)

    walk(list(yaml.safe_load_all(text)))
    (only,) = found
    return only


@pytest.mark.parametrize("form", Form)
def test_a_pod_that_is_taken_away_is_judged_first(form: Form) -> None:
    taken, exits = rules(LEAST, form)
    assert taken["action"] == "FailJob"  # the epoch is spent: gridloom starts another attempt
    assert exits["action"] == "FailJob"
    assert rules(replace(LEAST, disruption=Disruption.REPLACE), form)[0]["action"] == "Ignore"


def test_no_other_start_after_an_exit_that_is_final() -> None:
    assert EXIT_DONE not in FINAL_EXITS
    assert EXIT_PEER_LOST not in FINAL_EXITS
    exits = rules(LEAST, Form.JOB)[1]["onExitCodes"]
    assert isinstance(exits, dict)
    assert exits["values"] == [74, 75, 78, 79]


def test_gridloom_starts_again_and_the_cluster_does_not() -> None:
    assert manifests(LEAST, Form.JOB)[1]["spec"]["backoffLimit"] == 0
    assert manifests(LEAST, Form.JOB_SET)[0]["spec"]["failurePolicy"] == {"maxRestarts": 0}


def test_a_node_tainted_for_its_accelerator_is_tolerated_once() -> None:
    own = Toleration(key="amd.com/gpu", exists=True, effect="NoSchedule")
    devices = replace(LEAST, accelerators=Accelerators(resource="amd.com/gpu", count=8))
    expected = [{"key": "amd.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    for submission in (devices, replace(devices, tolerations=(own,))):
        assert pod_template(submission)["spec"]["tolerations"] == expected


def test_the_kill_comes_after_the_hook_gave_up() -> None:
    spec = pod_template(ALL)["spec"]
    patience_s = int(re.search(r"left=(\d+)", stop_hook(ALL)[2])[1])  # type: ignore[index]
    assert ALL.grace_s < patience_s < spec["terminationGracePeriodSeconds"]


def test_no_grace_no_hook() -> None:
    assert "lifecycle" not in pod_template(LEAST)["spec"]["containers"][0]


def test_an_object_goes_with_its_owner() -> None:
    service, job = manifests(LEAST, Form.JOB)
    (reference,) = owner_patch(job, "u-1")["metadata"]["ownerReferences"]
    assert reference == {"apiVersion": "batch/v1", "kind": "Job", "name": "tiny-a1", "uid": "u-1"}
    assert service["kind"] == "Service"


def test_nothing_is_rendered_that_a_cluster_would_refuse() -> None:
    with pytest.raises(InputError, match="replicas: 0 is less than 1"):
        manifests(replace(LEAST, replicas=0), Form.JOB)


TRAP = """
import pathlib, signal, sys, time
def stop(*_):
    pathlib.Path(sys.argv[2]).write_text("saved")
    sys.exit(75)
signal.signal(signal.SIGTERM, stop)
pathlib.Path(sys.argv[1]).write_text(str(__import__("os").getpid()))
print("up", flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_the_hook_signals_the_supervisor_and_waits_for_its_end(tmp_path: Path) -> None:
    pid_file, saved = tmp_path / "the supervisor's pid", tmp_path / "saved"
    argv = [sys.executable, "-c", TRAP, str(pid_file), str(saved)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == b"up\n"
        threading.Thread(target=supervisor.wait).start()  # as the container's first process reaps
        hook = stop_hook(replace(ALL, supervisor_pid_file=str(pid_file)))
        done = subprocess.run(hook, capture_output=True, timeout=30, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert saved.read_text() == "saved"
    assert supervisor.returncode == 75


def test_the_hook_does_not_wait_for_nobody(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    gone = subprocess.Popen(["true"])
    gone.wait()
    pid_file.write_text(str(gone.pid))
    hook = stop_hook(replace(ALL, supervisor_pid_file=str(pid_file)))
    assert subprocess.run(hook, capture_output=True, timeout=5, check=False).returncode == 0


@pytest.mark.slow
def test_the_hook_loses_patience(tmp_path: Path) -> None:
    with subprocess.Popen(
        ["sleep", "60"], preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ) as deaf:
        pid_file = tmp_path / "pid"
        pid_file.write_text(str(deaf.pid))
        hook = stop_hook(replace(ALL, supervisor_pid_file=str(pid_file), grace_s=0.1))
        script = re.sub(r"left=\d+", "left=1", hook[2], count=1)
        done = subprocess.run([*hook[:2], script], capture_output=True, timeout=5, check=False)
        assert done.returncode == 0
        os.kill(deaf.pid, signal.SIGKILL)


def test_the_first_process_needs_no_hook() -> None:
    """The kubelet itself signals that one."""
    template = pod_template(replace(ALL, supervisor_pid_file=""))
    assert "lifecycle" not in template["spec"]["containers"][0]
