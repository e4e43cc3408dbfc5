"""Jobs that really run, seen and steered by several processes, of which any may die."""

import shutil
import signal

import pytest
from tests.unit.cli.conftest import ENDLESS, ENDS_AT_SECOND, Gridloom, plain, run_in_terminal

from gridloom.core.machine import RULES
from gridloom.store.journal import SqlJournal

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_job_with_its_state_saved_and_resume_goes_on(
    gridloom: Gridloom, number: signal.Signals, code: int
) -> None:
    run = gridloom.start("run", gridloom.job(ENDS_AT_SECOND), "-y")
    job_id = gridloom.wait_for_output()
    run.send_signal(number)
    answer = gridloom.end(run)
    assert answer.code == code
    assert "stopping: the job saves its state" in answer.out
    assert f"`gridloom resume {job_id}` starts it anew" in answer.out
    assert gridloom.state(job_id) == "stopped"
    if number is signal.SIGINT:
        resumed = gridloom.call("resume", job_id)
        assert resumed.code == 0
        assert "succeeded" in resumed.out


def test_a_second_ctrl_c_leaves_and_the_job_stops_on_its_own(gridloom: Gridloom) -> None:
    slow_to_stop = "trap 'sleep 2; exit 0' TERM\necho started\nwhile :; do sleep 0.05; done"
    run = gridloom.start("run", gridloom.job(slow_to_stop), "-y")
    job_id = gridloom.wait_for_output()
    run.send_signal(signal.SIGINT)
    gridloom.wait(lambda: gridloom.state(job_id) == "stopping", "the stop")
    run.send_signal(signal.SIGINT)
    answer = gridloom.end(run)
    assert answer.code == 130
    assert f"`gridloom status {job_id}` tells" in answer.out
    gridloom.wait_for_state(job_id, "stopped")
    (attempt,) = gridloom.call("status", job_id, "--json").json()["summary"]["attempts"]
    assert "lease" not in attempt["sentence"]  # it was renewed until another process led
    gridloom.wait(lambda: not gridloom.led(), "the background control plane to go away")


def test_others_look_at_a_run_and_stop_it(gridloom: Gridloom) -> None:
    path = gridloom.job(ENDLESS)
    run = gridloom.start("run", path, "-y", "--json")
    job_id = gridloom.wait_for_output()
    gridloom.wait_for_state(job_id, "running")
    (listed,) = gridloom.call("ps", "--json").json()["jobs"]
    assert (listed["job"], listed["state"], listed["sites"]) == (job_id, "running", {"local": 1})
    assert gridloom.led()
    logs = gridloom.start("logs", job_id, "-f")
    other_grid = gridloom.files / "grid.yaml"
    other_grid.write_text("sites:\n  a: {accelerators: 'cpu:1'}\n")
    refused = gridloom.call("submit", path, "--grid", str(other_grid), "--json")
    assert refused.code == 2
    assert f"{job_id} is under way on another grid" in refused.json()["message"]
    stopped = gridloom.call("stop", job_id, "--json")
    assert (stopped.code, stopped.json()["state"]) == (0, "stopped")
    assert gridloom.end(logs).out.startswith("[0] started\n")
    ended = gridloom.end(run)
    assert ended.code == 1
    assert ended.lines()[-1]["state"] == "stopped"
    assert "was asked to stop" in gridloom.call("why", job_id).out
    cancelled = gridloom.call("cancel", job_id)
    assert (cancelled.code, cancelled.out) == (0, f"{job_id} is cancelled\n")


def test_two_runs_at_once_and_the_second_takes_over(gridloom: Gridloom) -> None:
    first = gridloom.start("run", gridloom.job("echo x; sleep 1.5", "first"), "-y")
    gridloom.wait_for_output("first")
    second = gridloom.start("run", gridloom.job("echo x; sleep 4", "second"), "-y", "--json")
    assert gridloom.end(first).code == 0
    ended = gridloom.end(second)
    assert ended.code == 0
    assert len(ended.lines()[-1]["attempts"]) == 1
    gridloom.wait(lambda: not gridloom.led(), "everybody to go away")


def test_a_submitted_job_is_run_in_the_background_which_then_goes_away(gridloom: Gridloom) -> None:
    answer = gridloom.call("submit", gridloom.job("echo done"), "--json")
    assert answer.code == 0
    found = answer.json()
    assert (found["event"], found["name"]) == ("submitted", "job")
    gridloom.wait_for_state(found["job"], "succeeded")
    summary = gridloom.home / "runs" / found["job"] / "summary.json"
    gridloom.wait(summary.is_file, "the summary")
    gridloom.wait(lambda: not gridloom.led(), "the background control plane to go away")
    assert (gridloom.home / "control.log").read_text() == ""


def test_a_leader_that_is_killed_is_replaced_by_resume_within_the_lease(
    gridloom: Gridloom,
) -> None:
    run = gridloom.start("run", gridloom.job("echo started\nsleep 6"), "-y")
    job_id = gridloom.wait_for_output()
    gridloom.wait_for_state(job_id, "running")
    run.kill()
    gridloom.end(run)
    listed = gridloom.call("ps")
    assert "no control plane runs" in listed.err
    resumed = gridloom.call("resume", job_id, "--json")
    assert resumed.code == 0
    assert resumed.lines()[-1]["state"] == "succeeded"


def test_resume_may_leave_the_rest_to_the_background(gridloom: Gridloom) -> None:
    job_id = gridloom.call("submit", gridloom.job(ENDS_AT_SECOND), "--json").json()["job"]
    gridloom.wait_for_output()
    stopped = gridloom.call("stop", "job")
    assert (stopped.code, stopped.out) == (0, f"{job_id} is stopped\n")
    resumed = gridloom.call("resume", "job", "--detach")
    assert (resumed.code, resumed.out.split()[0]) == (0, job_id)
    gridloom.wait_for_state(job_id, "succeeded")


def test_a_state_directory_that_is_removed_under_a_run_ends_it_with_a_sentence(
    gridloom: Gridloom,
) -> None:
    run = gridloom.start("run", gridloom.job(ENDLESS), "-y")
    gridloom.wait_for_output()
    gridloom.home.rename(gridloom.home.with_name("away"))
    answer = gridloom.end(run)
    assert answer.code == 1
    assert "was removed or replaced while a control plane ran over it" in answer.err
    assert "Traceback" not in answer.err
    shutil.rmtree(gridloom.home, ignore_errors=True)


@pytest.mark.parametrize(
    ("typed", "asked", "code"),
    [
        pytest.param("\n", 1, 0, id="yes", marks=pytest.mark.unmeasured),
        pytest.param("what\nYes\n", 2, 0, id="yes at last"),
        pytest.param("x\nn\n", 2, 1, id="no", marks=pytest.mark.unmeasured),
        pytest.param("\x04", 1, 1, id="ctrl-d"),
    ],
)
def test_a_person_at_a_terminal_is_asked(
    gridloom: Gridloom, typed: str, asked: int, code: int
) -> None:
    ended, shown = run_in_terminal(60, ["run", gridloom.job("sleep 0.3")], typed)
    assert ended == code
    text = plain(shown)
    assert text.count("go on? [Y/n]") == asked
    assert max(map(len, text.splitlines())) <= 60
    assert ("succeeded" in text) == (code == 0)
    assert ("not handed in\n" in text) == (code == 1)
    assert (gridloom.home / "runs").exists() == (code == 0)


def test_a_resumed_job_does_not_show_what_it_was(gridloom: Gridloom) -> None:
    path = gridloom.job(f"[ -e {gridloom.files}/now ] && exit 0; exit 3")
    assert gridloom.call("run", "-y", path).code == 1
    (gridloom.files / "now").touch()
    lines = gridloom.call("resume", "job").out.splitlines()
    assert not any(line.startswith("failed") for line in lines)
    assert "succeeded" in lines


def test_nobody_is_asked_where_nobody_can_answer(gridloom: Gridloom) -> None:
    answer = gridloom.call("run", gridloom.job("exit 0"))
    assert answer.code == 2
    assert "add -y to go on without asking" in answer.err


def test_an_array_is_run_so_many_at_once_and_steered_as_one(gridloom: Gridloom) -> None:
    script = f'[ "$GRIDLOOM_ARRAY_INDEX" = 3 ] && exit 0\n{ENDLESS}'
    path = gridloom.job(script, array="3,5,7-8%2", grid="grid.yaml")
    (gridloom.files / "grid.yaml").write_text("sites: {here: {accelerators: 'cpu:4'}}\n")
    submitted = gridloom.call("submit", path)
    assert submitted.code == 0
    *ids, said = submitted.out.splitlines()
    base = ids[0].removesuffix("-3")
    assert ids == [f"{base}-{index}" for index in (3, 5, 7, 8)]
    assert f"array of 4, {base}, is handed in; `gridloom status {base}` tells" in said
    gridloom.wait_for_state(ids[0], "succeeded")
    gridloom.wait_for_state(ids[1], "running")
    gridloom.wait_for_state(ids[2], "running")
    found = gridloom.call("status", "job", "--json").json()
    assert found["array"] == base
    assert found["states"] == {"succeeded": 1, "running": 2, "queued": 1}
    assert [job["job"] for job in found["jobs"]] == ids
    shown = gridloom.call("status", base).out
    assert f"{base} is an array of 4: 1 succeeded, 2 running, 1 queued" in shown
    assert f"waits for {ids[1]}" in " ".join(shown.split())
    refused = gridloom.call("resume", base)
    assert refused.code == 2
    assert f"begins the ids of several jobs: {ids[0]}" in refused.err
    stopped = gridloom.call("stop", "job", "--json")
    assert stopped.code == 0
    assert {(one["job"], one["state"]) for one in stopped.lines()} == {
        (job_id, "stopped") for job_id in ids[1:]
    }
    cancelled = gridloom.call("cancel", base)
    assert cancelled.out.splitlines() == [f"{job_id} is cancelled" for job_id in ids[1:]]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_control_plane_that_is_ended_leaves_a_snapshot(
    gridloom: Gridloom, number: signal.Signals
) -> None:
    control = gridloom.start("control")
    gridloom.wait(gridloom.led, "the control plane")
    job_id = gridloom.call("submit", gridloom.job(ENDLESS), "--json").json()["job"]
    gridloom.wait_for_state(job_id, "running")
    control.send_signal(number)
    assert gridloom.end(control).code == 128 + number
    journal = SqlJournal(gridloom.home / "journal.sqlite")
    taken = journal.snapshot()
    assert taken is not None
    assert (taken.seq, taken.rules) == (journal.last_seq(), RULES)
    assert gridloom.call("cancel", job_id).code == 0
