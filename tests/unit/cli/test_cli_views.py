"""What can be seen of jobs that are over: every view, for a person and for a machine."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.unit.cli.conftest import Answer, Gridloom, plain, run_in_terminal

from gridloom.cli import settings
from gridloom.cli.lookup import look
from gridloom.cli.views import look_with_progress
from gridloom.cli.wiring import Plane
from gridloom.core.state import State
from gridloom.model.life import JobState

Call = Callable[..., Answer]
JOB_KEYS = {
    *("job", "name", "state", "reason", "priority", "submitted_s", "attempt", "sites"),
    *("accelerator", "step", "steps", "loss", "tokens_per_s", "eta_s", "checkpoint_step"),
    "waits",
    *("run_s", "cost", "queue", "user"),
}
SUMMARY_KEYS = {
    *("job", "name", "state", "reason", "attempts", "steps", "steps_repeated", "run_dir"),
    *("checkpoint_step", "loss", "bits_per_byte", "bigram_bits_per_byte", "tokens_per_s", "sites"),
    *(
        "evictions",
        "step_s",
        "time",
        "mfu",
        "bytes",
        "memory_bytes_per_rank",
        "run_s",
        "cost",
        "energy_wh",
    ),
}


def test_a_run_ends_with_its_summary_in_plain_text(over: Gridloom) -> None:
    good: Answer = over.good  # type: ignore[attr-defined]
    assert good.code == 0
    assert "\x1b" not in good.out
    lines = good.out.splitlines()
    assert "starting attempt 1" in lines
    assert "succeeded" in lines
    report = next(line.split()[-1] for line in lines if line.startswith("report"))
    assert Path(report).is_file()


def test_a_run_as_json_is_a_line_for_everything_and_the_summary_last(over: Gridloom) -> None:
    bad: Answer = over.bad  # type: ignore[attr-defined]
    assert bad.code == 1
    lines = bad.lines()
    assert [lines[0]["event"], lines[-1]["event"]] == ["submitted", "summary"]
    states = [line["state"] for line in lines if line["event"] == "job"]
    assert states[-1] == "failed"
    assert lines[-1].keys() >= SUMMARY_KEYS
    assert lines[-1]["reason"]["code"] == "exited"
    assert "broken" in lines[-1]["reason"]["sentence"]


def test_the_run_directory_has_everything(over: Gridloom) -> None:
    run_dir = over.home / "runs" / over.job_id("good")
    names = {path.name for path in run_dir.iterdir()}
    assert {
        *("job.yaml", "job.resolved.json", "grid.resolved.json", "environment.json"),
        *("journal.jsonl", "summary.json", "report.html", "logs", "attempts", "metrics.jsonl"),
    } <= names
    assert not [name for name in names if name.endswith(".tmp")]


def test_ps_lists_what_is_over_only_on_demand(call: Call, over: Gridloom) -> None:
    assert call("ps").out == ""
    assert "--all lists more" in call("ps").err
    out = call("ps", "--all").out
    assert out.splitlines()[0].split()[:2] == ["job", "state"]
    assert [line.split()[1] for line in out.splitlines()[2:]] == ["succeeded", "failed"]
    jobs = call("ps", "-a", "--json").json()["jobs"]
    assert [job["name"] for job in jobs] == ["good", "bad"]
    assert all(job.keys() == JOB_KEYS for job in jobs)
    assert (jobs[0]["step"], jobs[0]["loss"], jobs[0]["steps"]) == (2, 2.5, None)


@pytest.mark.parametrize("by", ["id", "beginning", "name"])
def test_a_job_is_found_by_id_by_its_beginning_and_by_name(
    call: Call, over: Gridloom, by: str
) -> None:
    job_id = over.job_id("good")
    word = {"id": job_id, "beginning": job_id[:6], "name": "good"}[by]
    found = call("status", word, "--json").json()
    assert found["job"] == job_id
    assert found.keys() == JOB_KEYS | {"summary"}
    assert found["summary"].keys() == SUMMARY_KEYS


def test_status_shows_every_attempt(call: Call, over: Gridloom) -> None:
    out = call("status", "bad").out
    assert "attempt 1" in out
    assert "exited: rank 0 exited with status 3: broken" in " ".join(out.split())


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("gxxd-", "gridloom ps --all"),
        ("gooe", "did you mean good"),
    ],
)
def test_a_job_that_is_not_there_is_answered_with_what_was_meant(
    call: Call, over: Gridloom, word: str, hint: str
) -> None:
    answer = call("status", word)
    assert answer.code == 2
    assert f"there is no job '{word}'" in answer.err
    assert hint in answer.err


def test_why_tells_the_reason(call: Call, over: Gridloom) -> None:
    assert "is succeeded" in call("why", "good").out
    assert "rank 0 exited with status 3" in call("why", "bad").out
    found = call("why", "bad", "--json").json()
    assert found.keys() == {"job", "state", "reason", "absent", "waits"}
    assert found["absent"] == []
    assert found["reason"].keys() == {"code", "sentence", "remedy", "domains"}


def test_logs_show_every_line_even_one_without_its_end(call: Call, over: Gridloom) -> None:
    assert call("logs", "good").out == "[0] hello\n[0] no end\n"
    assert call("logs", "good", "--rank", "0", "-n", "1").out == "no end\n"
    assert call("logs", "good", "-f").out == "[0] hello\n[0] no end\n"
    assert call("logs", "good", "--tail", "0").out == ""
    assert call("logs", "good", "--json").lines() == [
        {"attempt": 1, "rank": 0, "line": "hello"},
        {"attempt": 1, "rank": 0, "line": "no end"},
    ]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--rank", "7"], "no output of rank 7"),
        (["--attempt", "4"], "has 1 attempt; there is no 4"),
        (["--tail", "-3"], "give a number from 0"),
        (["--rank", "1.5"], "1.5"),
        (["--attempt", "1.5"], "1.5"),
        (["--tail", "0.5"], "0.5"),
    ],
)
def test_logs_of_what_is_not_there(call: Call, over: Gridloom, flags: list[str], said: str) -> None:
    answer = call("logs", "good", *flags)
    assert answer.code == 2
    assert said in answer.err


def test_what_is_over_for_good_cannot_be_resumed(call: Call, over: Gridloom) -> None:
    answer = call("resume", "good")
    assert answer.code == 2
    assert "is succeeded: there is nothing to resume" in answer.err


def test_doctor_replays_the_journal(call: Call, over: Gridloom) -> None:
    answer = call("doctor", "--json")
    found = answer.json()
    assert found.keys() == {"ok", "checks"}
    assert all(check.keys() == {"check", "state", "found", "remedy"} for check in found["checks"])
    journal = next(check for check in found["checks"] if check["check"] == "journal")
    assert journal["state"] == "ok"
    assert "replayed to the same state" in journal["found"]
    assert "replayed" in call("doctor").out


def test_schemas_are_json(call: Call) -> None:
    for document in ("job", "grid"):
        assert json.loads(call("schema", document).out) == call("schema", document, "--json").json()


@pytest.mark.parametrize("source", ["machine", "flag", "environment"])
def test_the_grid_is_shown(
    call: Call, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(
        "sites:\n  a: {accelerators: 'cpu:2', price_per_accelerator_hour: 0.5}\n"
        "  b: {accelerators: 'cpu:1'}\nlinks:\n"
        "  - {between: [a, b], bandwidth: 1Gbit/s, latency: 20ms}\n"
    )
    if source == "environment":
        monkeypatch.setenv("GRIDLOOM_GRID", str(path))
    words = ["grid", "show", *(["--grid", str(path)] if source == "flag" else [])]
    out, found = call(*words).out, call(*words, "--json").json()
    assert found.keys() == {"source", "grid", "bookings", "notes"}
    if source == "machine":
        assert [site["name"] for site in found["grid"]["sites"]] == ["local"]
        assert "this machine, as discovered" in out
    else:
        assert [site["name"] for site in found["grid"]["sites"]] == ["a", "b"]
        assert "1 Gbit/s" in out
        assert "0.5 USD" in out


VIEWS = ("ps -a", "status bad", "why bad", "grid show", "doctor", "logs good -n 1")
ONE_AFTER_THE_OTHER = """
import sys
from gridloom.cli.main import main
for words in sys.argv[1:]:
    code = main(words.split())
    print(f"<{code}>", flush=True)
"""


@pytest.mark.parametrize("columns", [100, 60])
def test_nothing_is_wider_than_the_terminal(over: Gridloom, columns: int) -> None:
    code, shown = run_in_terminal(columns, VIEWS, program=("-c", ONE_AFTER_THE_OTHER))
    assert code == 0
    *views, rest = re.split(r"<([01])>", plain(shown))[::2]
    assert (len(views), rest.strip()) == (len(VIEWS), "")
    for words, view in zip(VIEWS, views, strict=True):
        assert view.strip(), words
        assert max(map(len, view.splitlines())) <= columns, words
    assert over.job_id("good") in views[0]  # ids are never broken


def test_what_is_shown_holds_when_it_is_shown(over: Gridloom) -> None:
    """A job ends while its metrics are read, which takes long where they are long."""
    plane = Plane(settings.read())
    job_id = over.job_id("good")
    ended = look(plane).jobs[job_id]
    looks: list[int] = []

    class Earlier(Plane):
        def state(self) -> State:
            looks.append(len(looks))
            state = super().state()
            if len(looks) > 1:
                return state
            running = replace(ended, state=JobState.RUNNING)
            return replace(state, jobs={**state.jobs, job_id: running})

    seen, ((job, progress),) = look_with_progress(
        Earlier(settings.read()), lambda jobs: [jobs[job_id]]
    )
    assert (job, seen.jobs[job_id]) == (ended, ended)
    assert progress.step == 2
    assert len(looks) == 3
