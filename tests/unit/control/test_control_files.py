"""Run directories, metrics and their end: what a program wrote, or did not, never does harm."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.journal import MemoryJournal
from tests.unit.control.nouns import GRID, ended, job, reason

from gridloom.base.errors import InputError
from gridloom.control import rundir
from gridloom.control.close import close_job, summarised
from gridloom.control.metrics import decode_metric
from gridloom.control.progress import ProgressMeter
from gridloom.model.event import StopRequested
from gridloom.model.life import JobState
from gridloom.model.reason import Why
from gridloom.ports.journal import Record


def line(step: int, **changes: Any) -> dict[str, Any]:
    return {
        "attempt": 1,
        "step": step,
        "loss": 4.0 / step,
        "tokens": 100,
        "tokens_per_s": 50.0,
        "step_s": 2.0,
        "compute_s": 1.0,
        "within_site_s": 0.5,
        "between_site_s": 0.25,
        "data_s": 0.1,
        "checkpoint_s": 0.0,
        "sites": {"north": {"compute_s": 1.0}, "south": {"compute_s": 4.0}},
        **changes,
    }


def data(*lines: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in lines)


def test_a_run_directory_is_made_with_its_files(tmp_path: Path) -> None:
    made = rundir.create(tmp_path / "runs", "job-1", {"a.yaml": b"as given", "b.json": {"x": 1}})
    assert made == tmp_path / "runs" / "job-1"
    assert (made / "a.yaml").read_bytes() == b"as given"
    assert json.loads((made / "b.json").read_text()) == {"x": 1}
    assert (made / "logs").is_dir()


def test_a_run_directory_that_cannot_be_made_names_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(InputError, match="set GRIDLOOM_HOME"):
        rundir.create(tmp_path / "runs", "job-1", {})
    with pytest.raises(InputError, match="File exists"):
        rundir.create(tmp_path, "runs", {})


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"not json",
        b'{"attempt": 1, "step": 3',
        b'{"attempt": 1, "step": 3, "loss": NaN}',
        b"[1, 2]",
        b'{"attempt": 1}',
        b'{"attempt": 1, "step": "3"}',
        b'{"attempt": 1, "step": true}',
        b'{"attempt": 1, "step": -1}',
        b'{"attempt": "x", "step": 3}',
    ],
)
def test_what_is_no_line_of_metrics_is_passed_over(tmp_path: Path, wrong: bytes) -> None:
    assert decode_metric(wrong) is None
    (tmp_path / rundir.METRICS_FILE).write_bytes(data(line(1)) + wrong + b"\n" + data(line(2)))
    assert [metric["step"] for metric in rundir.metrics(tmp_path)] == [1, 2]


def test_missing_and_odd_numbers_become_none() -> None:
    metric = decode_metric(b'{"step": 3, "loss": null, "step_s": "long", "tokens": true}')
    assert metric is not None
    assert (metric["attempt"], metric["loss"], metric["step_s"]) == (1, None, None)
    assert (metric["tokens"], metric["tokens_per_s"], metric["sites"]) == (None, None, {})
    assert decode_metric(b'{"step": 3, "sites": {"a": 1, "b": {}}}')["sites"] == {"b": {}}  # type: ignore[index]


def test_sites_with_rows_of_their_own_are_found_by_their_files(tmp_path: Path) -> None:
    run_dir = tmp_path / "job-1"
    run_dir.mkdir()
    (run_dir / rundir.METRICS_FILE).write_bytes(data(line(1)))
    for site, count in (("west-2", 2), ("east", 1)):
        rows = [line(step, sites={}, site=site) for step in range(1, count + 1)]
        (run_dir / f"metrics-{site}.jsonl").write_bytes(data(*rows))
    others = rundir.other_metrics(run_dir)
    assert {site: len(rows) for site, rows in others.items()} == {"east": 1, "west-2": 2}
    facts = summarised(tmp_path, job(JobState.RUNNING), GRID)
    assert list(facts["time"]) == ["north", "south", "east", "west-2"]


def test_a_job_without_metrics_or_result_has_none(tmp_path: Path) -> None:
    assert list(rundir.metrics(tmp_path)) == []
    assert rundir.other_metrics(tmp_path) == {}
    assert rundir.result(tmp_path) == {}


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"3"])
def test_a_result_that_is_none_counts_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / rundir.RESULT_FILE).write_bytes(content)
    assert rundir.result(tmp_path) == {}


def test_progress_is_the_mean_of_the_newest_steps() -> None:
    meter = ProgressMeter(steps=50)
    assert meter.now().step == 0
    meter.feed([data(line(n)).strip() for n in range(1, 31)])
    now = meter.now()
    assert (now.step, now.steps, now.tokens_per_s, now.eta_s) == (30, 50, 50.0, 40.0)
    assert now.site_share == {"north": 0.5, "south": 1.0}


def test_a_program_that_tells_no_tokens_tells_its_own_speed() -> None:
    meter = ProgressMeter(steps=0)
    meter.feed([data(line(1, tokens=None, tokens_per_s=7.0)).strip()])
    assert meter.now().tokens_per_s == 7.0


def test_a_new_attempt_is_measured_anew() -> None:
    meter = ProgressMeter(steps=10)
    meter.feed([data(line(5, step_s=100.0)).strip()])
    meter.feed([data(line(3, attempt=2)).strip()])
    assert (meter.now().step, meter.now().eta_s) == (3, 14.0)


def test_progress_bears_lines_that_say_nothing() -> None:
    meter = ProgressMeter(steps=0)
    fresh = meter.feed([b'{"step": 4}', b"rubbish"])
    now = meter.now()
    assert len(fresh) == 1
    assert (now.step, now.loss, now.tokens_per_s, now.eta_s, now.site_share) == (
        4,
        None,
        None,
        None,
        {},
    )


def closing(tmp_path: Path) -> MemoryJournal:
    journal = MemoryJournal()
    for seq, job_id in enumerate(["job-1", "job-2"], start=1):
        events = (StopRequested(job_id=job_id),)
        journal.append(Record(seq=seq, now_s=1.0, seed=1, events=events, actions=()), [], None)
    (tmp_path / "job-1").mkdir()
    (tmp_path / "job-1" / rundir.METRICS_FILE).write_bytes(data(line(1), line(2)))
    return journal


def test_the_end_of_a_job_leaves_summary_report_and_its_part_of_the_journal(tmp_path: Path) -> None:
    journal = closing(tmp_path)
    over = job(
        JobState.FAILED, [ended(1, Why.EXITED, "rank 0 exited")], reason=reason(), run_s=60.0
    )
    for _ in range(2):  # a crash may repeat it
        close_job(tmp_path, over, GRID, journal)
    run_dir = tmp_path / "job-1"
    found = json.loads((run_dir / rundir.SUMMARY_FILE).read_text())
    assert found == json.loads(json.dumps(summarised(tmp_path, over, GRID)))
    assert (found["state"], found["steps"], found["run_dir"]) == ("failed", 2, str(run_dir))
    lines = (run_dir / rundir.JOURNAL_FILE).read_text().splitlines()
    assert [json.loads(one)["seq"] for one in lines] == [1]
    assert "rank 0 exited &lt;1&gt;" in (run_dir / rundir.REPORT_FILE).read_text()


def test_a_run_directory_that_somebody_removed_is_not_made_again(tmp_path: Path) -> None:
    close_job(tmp_path, job(JobState.FAILED, []), GRID, MemoryJournal())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("files", [{"none/x": b""}, {"a": {"path": "\udce9"}}])
def test_nothing_is_left_of_a_run_directory_that_cannot_be_written(
    tmp_path: Path, files: dict[str, bytes | object]
) -> None:
    with pytest.raises((InputError, UnicodeError)):
        rundir.create(tmp_path, "job-1", files)
    assert list(tmp_path.iterdir()) == []
