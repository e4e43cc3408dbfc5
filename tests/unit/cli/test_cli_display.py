"""What a job looks like while it goes: in plain lines, JSON lines and on a live line."""

import io
import json
from typing import Any

import msgspec
import pytest
from tests.fakes.clock import FakeClock
from tests.unit.control.nouns import attempt, job, reason

from gridloom.base.units import format_duration
from gridloom.cli.display import JsonDisplay, LiveDisplay, PlainDisplay, job_text, progress_text
from gridloom.cli.finish import what_next
from gridloom.cli.follow import news_of
from gridloom.cli.log_reader import _start_of_last
from gridloom.cli.output import table
from gridloom.cli.views import absences
from gridloom.control.progress import Progress
from gridloom.model.life import Absence, Job, JobState, Outcome
from gridloom.model.reason import Reason, Why

PROGRESS = Progress(
    step=5,
    steps=10,
    loss=2.34567,
    tokens_per_s=1234.0,
    eta_s=65.0,
    site_share={"north": 0.5, "south": 0.25},
)
RUNNING = job(JobState.RUNNING, recipe=True, checkpoint_step=4)


def test_the_line_of_progress() -> None:
    text = progress_text(PROGRESS, RUNNING).plain
    assert text == ("step 5/10 · loss 2.3457 · 1.2k tokens/s · north 50% · south 25% · 1m 05s left")
    assert progress_text(Progress(step=5), RUNNING).plain == "step 5"


def test_after_the_last_step_the_line_says_what_is_done_then() -> None:
    last = msgspec.structs.replace(PROGRESS, step=10, eta_s=0.0)
    assert progress_text(last, RUNNING).plain.endswith("south 25% · saving and evaluating")
    over = job(JobState.SUCCEEDED, recipe=True)
    assert "saving" not in progress_text(last, over).plain


def test_training_steps_that_are_seen_together_are_one_plain_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    display = PlainDisplay(FakeClock())
    last = msgspec.structs.replace(PROGRESS, step=10)
    for _ in range(3):
        display.metric({}, last, RUNNING)
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize("known", [None, job(JobState.QUEUED, [])], ids=["unknown", "queued"])
def test_a_job_that_has_not_started_has_nothing_to_save(
    capsys: pytest.CaptureFixture[str], known: Job | None
) -> None:
    PlainDisplay(FakeClock()).interrupted(known)
    assert "the job has not started" in capsys.readouterr().out


SPENT = msgspec.structs.replace(reason(Why.BUDGET_SPENT), remedy="raise the budget")
ASKED = msgspec.structs.replace(reason(Why.STOP_REQUESTED), remedy="resume it to go on")
HINT = "`gridloom resume job-1` goes on from training step 4"


@pytest.mark.parametrize(
    ("state", "why", "lines"),
    [
        (JobState.STOPPED, SPENT, ["remedy: raise the budget"]),
        (JobState.STOPPED, ASKED, [HINT]),
        (JobState.FAILED, reason(), ["remedy: read the log", HINT]),
        (JobState.CANCELLED, None, []),
        (JobState.SUCCEEDED, reason(Why.COMPLETED), []),
    ],
    ids=["spent", "asked", "failed", "cancelled", "succeeded"],
)
def test_what_comes_next_is_said_once(
    state: JobState, why: Reason | None, lines: list[str]
) -> None:
    if why is not None and why.code is Why.EXITED:
        why = msgspec.structs.replace(why, remedy="read the log")
    assert what_next(job(state, checkpoint_step=4, reason=why)) == lines


def test_before_the_first_step_the_line_says_what_can_be_known() -> None:
    assert "waiting for the first training step" in progress_text(Progress(), RUNNING).plain
    other = job(JobState.RUNNING)
    assert progress_text(Progress(), other).plain == (
        "running; `gridloom logs -f job-1` shows its output"
    )


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (RUNNING, "running attempt 1, checkpoint of step 4"),
        (job(JobState.FAILED, reason=reason()), "failed: rank 0 exited <1>"),
        (job(JobState.SUCCEEDED, reason=reason()), "succeeded"),
        (job(JobState.QUEUED, [], reason=reason()), "queued: rank 0 exited <1>"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(value.state),
)
def test_the_line_of_the_state(shown: object, text: str) -> None:
    assert job_text(shown).plain == text  # type: ignore[arg-type]


def test_plain_lines_come_every_ten_seconds_and_at_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = FakeClock()
    display = PlainDisplay(clock)
    for step in range(1, 11):
        clock.advance(4.0)
        display.metric({}, msgspec.structs.replace(PROGRESS, step=step), RUNNING)
        display.tick(PROGRESS, RUNNING)
    display.interrupted(RUNNING)
    display.trouble("north/n1 cannot be written")
    display.close()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[:5]] == ["1/10", "4/10", "7/10", "10/10", "the"]
    assert lines[-1] == "north/n1 cannot be written"


def test_json_lines_have_an_event_each(capsys: pytest.CaptureFixture[str]) -> None:
    display = JsonDisplay()
    display.job(job(JobState.FAILED, reason=reason()))
    display.metric({"step": 5, "loss": 1.0}, PROGRESS, RUNNING)
    display.tick(PROGRESS, RUNNING)
    display.interrupted(RUNNING)
    display.trouble("x")
    display.close()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in lines] == ["job", "step", "stopping", "trouble"]
    assert lines[0]["reason"] == {"code": "exited", "sentence": "rank 0 exited <1>"}
    assert (lines[1]["step"], lines[1]["eta_s"], lines[1]["job"]) == (5, 65.0, "job-1")


def test_a_live_display_keeps_what_changed(capsys: pytest.CaptureFixture[str]) -> None:
    display = LiveDisplay()
    display.job(RUNNING)
    display.metric({}, PROGRESS, RUNNING)
    display.tick(PROGRESS, RUNNING)
    display.tick(PROGRESS, None)
    display.interrupted(RUNNING)
    display.trouble("x")
    display.close()
    out = capsys.readouterr().out
    assert "running attempt 1" in out
    assert "Once more to leave" in out


def test_a_table_does_without_spare_columns_where_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [["a" * 40, "b" * 40, "c" * 40]]
    kept = table(("x", "y", "z"), rows, spare=("y", "x"))
    assert [column.header for column in kept.columns] == ["x", "z"]
    assert [column.header for column in table(("x", "y"), [], whole=("x",)).columns] == ["x", "y"]


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 9])
def test_the_last_lines_of_a_log_are_found_from_its_end(
    tmp_path: object, end: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridloom.cli.log_reader._BLOCK_BYTES", 3)
    path = tmp_path / "log"  # type: ignore[operator]
    text = f"one\ntwo\n\nfour{end}"
    path.write_text(text)
    rest = io.StringIO(text[_start_of_last(path, count) :]).readlines()
    assert rest == (io.StringIO(text).readlines()[-count:] if count else [])


def waiting(sentence: str, **changes: Any) -> Job:
    why = msgspec.structs.replace(reason(), sentence=sentence)
    return job(JobState.QUEUED, [], reason=why, **changes)


def test_that_time_passes_is_no_news() -> None:
    said = "north has 0 of 4 free; starts in {} at the latest, if the predictions hold"
    times = [format_duration(left_s) for left_s in (0.5, 9, 61, 7000, 1e6)]
    assert len({news_of(waiting(said.format(left))) for left in times}) == 1
    others = [
        waiting(said.format("9s").replace("0 of 4", "1 of 4")),
        waiting("waits for places"),
        waiting(said.format("9s"), checkpoint_step=3),
        job(JobState.QUEUED, []),
    ]
    assert len({news_of(one) for one in [*others, waiting(said.format("9s"))]}) == 5


def test_a_lost_site_that_is_to_come_back_is_told_while_the_job_holds_devices() -> None:
    lost = Outcome(code=Why.KILLED, sentence="rank 2 was killed by SIGTERM")
    away = {"south": Absence(outcome=lost, due_s=5.0)}
    (one,) = absences(job(JobState.RUNNING, [attempt(absent=away)]))
    assert one == "site south is away and is to come back: rank 2 was killed by SIGTERM"
    assert absences(job(JobState.FAILED, [attempt(absent=away)])) == []
