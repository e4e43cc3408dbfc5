"""Summary and report of a job: as a table of what they say, and as one page kept beside the test.

Run as a program (`python -m tests.unit.control.test_control_report`) to renew the page.
"""

import math
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from msgspec import structs
from tests.unit.control.nouns import GRID, ended, job, reason, spec

from gridloom.control.report import attempt_line, report_html, summary_rows
from gridloom.control.summary import newest_by_step, summary
from gridloom.control.svg import line_chart, stacked_chart
from gridloom.control.time_spent import shares, time_by_site
from gridloom.model.life import JobState, SiteUse
from gridloom.model.parallel import ParallelPlan, SiteSync
from gridloom.model.reason import Why

GOLDEN = Path(__file__).parents[2] / "golden" / "report.html"
VOID = {"meta", "br", "hr", "img", "link"}


class Page(HTMLParser):
    """Reads a page strictly: every element is closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.seen: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def at_site(step: int, step_s: float = 1.0) -> dict[str, Any]:
    """What a row says of a site; of the step before, but for the passes and the data."""
    before = {
        "within_site_s": 0.1,
        "between_site_s": 0.2,
        "optimizer_s": 0.05,
        "between_site_hidden_s": 0.3,
        "step_s": step_s,
    }
    now = {"compute_s": 0.4, "forward_s": 0.15, "data_s": 0.05, "checkpoint_s": 0.0}
    return {**now, **(before if step > 1 else dict.fromkeys(before, 0.0))}


def metrics(count: int = 4, **changes: Any) -> list[dict[str, Any]]:
    return [
        {
            "attempt": 1,
            "step": step,
            "loss": 5.0 - 0.5 * step,
            "tokens_per_s": 1000.0 + 10 * step,
            "compute_s": 0.4,
            "forward_s": 0.15,
            "backward_s": 0.25,
            "optimizer_s": 0.05,
            "within_site_s": 0.1,
            "between_site_s": 0.2,
            "between_site_hidden_s": 0.3,
            "data_s": 0.05,
            "other_s": 0.2,
            "checkpoint_s": None,
            "mfu": 0.3 + 0.01 * step,
            "links": {"south": {"sent": 100, "received": 10}},
            "sites": {"north": at_site(step), "south": at_site(step, 1.5)},
            **changes,
        }
        for step in range(1, count + 1)
    ]


def finished() -> dict[str, Any]:
    attempts = [
        ended(1, Why.KILLED, "rank 3 was killed by SIGKILL", first_step=1, last_step=2),
        ended(2, Why.COMPLETED, "all ranks ended well", first_step=3, last_step=4, resumed=True),
    ]
    over = job(
        JobState.SUCCEEDED,
        attempts,
        recipe=True,
        reason=reason(Why.COMPLETED),
        checkpoint_step=4,
        run_s=120.0,
        cost=0.05,
    )
    result = {
        "bits_per_byte": 2.5,
        "bigram_bits_per_byte": 3.9,
        "bytes": {"steps": 2},
    }
    rows = [*metrics(2), *({**row, "attempt": 2} for row in metrics(4)[1:])]
    return {**summary(over, rows, result, GRID), "run_dir": "/runs/job-1"}


def page() -> str:
    return report_html(finished(), metrics())


def test_the_report_is_as_it_was() -> None:
    assert page() == GOLDEN.read_text(encoding="utf-8")


def test_the_report_is_well_formed_and_needs_nothing_else() -> None:
    html = page()
    read = Page(html)
    assert {"script", "link", "img", "iframe"}.isdisjoint(read.seen)
    assert "http" not in html
    assert read.seen.count("svg") == 4


def test_the_summary_tells_how_often_others_needed_the_devices() -> None:
    assert summary(job(JobState.QUEUED, [], evictions=2), [], {}, GRID)["evictions"] == 2


def test_the_summary_counts_steps_done_twice_and_places_ranks() -> None:
    facts = finished()
    assert (facts["steps"], facts["steps_repeated"]) == (4, 1)
    assert facts["loss"] == {"first": 4.5, "last": 3.0}
    assert facts["sites"]["north"] == {"ranks": [0, 1, 2], "nodes": {"n1": [0, 1], "n2": [1]}}
    assert facts["sites"]["south"] == {"ranks": [3, 4, 5], "nodes": {"s1": [0, 1, 3]}}
    assert facts["cost"] == {"amount": 0.05, "per_hour": 1.5, "currency": "EUR"}
    assert facts["energy_wh"] == 3.0  # (3 x 10 W + 3 x 20 W) for two minutes
    assert [a["ended_because"] for a in facts["attempts"]] == ["killed", "completed"]


@pytest.mark.parametrize(
    "state", [JobState.QUEUED, JobState.STARTING, JobState.RUNNING, JobState.STOPPED]
)
def test_a_job_without_anything_yet_has_a_summary_and_a_report(state: JobState) -> None:
    jobs = [job(state, [])] if state is JobState.QUEUED else [job(state, []), job(state)]
    for one in jobs:
        facts = summary(one, [], {}, None)
        assert facts["state"] == state.value
        assert facts["loss"] is None
        assert facts["energy_wh"] is None
        Page(report_html(facts, []))


@pytest.mark.parametrize(
    ("changes", "label", "text"),
    [
        ({}, "state", "succeeded"),
        ({"state": "failed"}, "state", "failed: rank 0 exited <1>"),
        ({"evictions": 1}, "attempts", "2; evicted once"),
        ({"evictions": 3}, "attempts", "2; evicted 3 times"),
        ({}, "attempts", "2"),
        ({}, "training steps", "4, 1 of them done twice after a failure"),
        ({"steps_repeated": 0}, "training steps", "4"),
        ({}, "held-out text", "2.500 bits per byte (a byte-bigram model: 3.900)"),
        ({"bigram_bits_per_byte": None}, "held-out text", "2.500 bits per byte"),
        ({}, "site north", "ranks 0-2 on n1, n2"),
        ({}, "links of the first site", "300 B to south, 30 B from it"),
        ({}, "MFU", "33.0% of the devices' peak rate (median step)"),
        (
            {},
            "time at south",
            "1.5 s a step: forward 10%, backward 17%, optimiser 3%, inside the site 7%, "
            "between sites 13%, data 3%, other 47%",
        ),
        (
            {},
            "exchange between sites",
            "a step: north 0.2 s exposed, 0.3 s hidden; south 0.2 s exposed, 0.3 s hidden",
        ),
        ({}, "cost", "0.0500 EUR at 1.5 an hour"),
        ({}, "energy", "3 Wh by the sites' stated power"),
    ],
)
def test_rows_for_a_person(changes: dict[str, Any], label: str, text: str) -> None:
    assert dict(summary_rows({**finished(), **changes}))[label] == text


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "no training step"),
        ({"first_step": 1, "last_step": 9}, "training steps 1 to 9"),
        (
            {"first_step": 5, "last_step": 9, "resumed": True},
            "training steps 5 to 9; resumed",
        ),
        ({"first_step": 1, "last_step": 9, "resumed": True}, "training steps 1 to 9; started over"),
        ({"sentence": "gone", "ended_because": "killed"}, "killed: gone"),
        ({"first_step": 5, "last_step": 9, "notes": ["odd"]}, "training steps 5 to 9; odd"),
    ],
)
def test_an_attempt_in_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    nothing: dict[str, Any] = {"first_step": None, "last_step": None, "resumed": False}
    nothing |= {"sentence": None, "notes": []}
    assert attempt_line({**nothing, "ended_because": None, **changes}) == sentence


def test_hostile_names_are_text_and_nothing_else() -> None:
    evil = '</title><script>alert("1")</script>'
    facts = {**finished(), "name": evil, "job": evil}
    facts["sites"] = {evil: {"ranks": [0], "nodes": {evil: [0]}}}
    facts["attempts"][0]["sentence"] = evil
    facts["time"] = {evil: facts["time"]["north"]}
    read = Page(report_html(facts, metrics()))
    assert "script" not in read.seen
    assert "".join(read.text).count(evil) >= 8


ODD: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "one point": metrics(1),
    "constant": metrics(5, loss=1.0, tokens_per_s=0.0),
    "no loss": metrics(3, loss=None),
    "not finite": [*metrics(3), *metrics(1, step=4, loss=math.nan, compute_s=math.inf)],
    "huge": metrics(3, loss=1e300, compute_s=1e300),
    "tiny": [{**row, "loss": 1e-12 * row["step"]} for row in metrics(4)],
    "negative": [{**row, "loss": -float(row["step"])} for row in metrics(4)],
    "gaps": [{"attempt": 1, "step": 3, "compute_s": None}, *metrics(2)],
}


@pytest.mark.parametrize("rows", ODD.values(), ids=ODD.keys())
def test_no_metrics_break_the_report(rows: list[dict[str, Any]]) -> None:
    html = report_html(finished(), rows)
    Page(html)
    assert "nan" not in html.lower().replace("finance", "")
    assert "inf" not in html.replace("info", "")


def chart(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def test_a_hundred_thousand_steps_are_thinned_and_keep_their_last() -> None:
    line = [(float(x), float(x % 7)) for x in range(1, 100_001)]
    svg = line_chart({"loss": line}, title="t", y_label="y")
    points = chart(svg).find(".//polyline").get("points").split()  # type: ignore[union-attr]
    assert len(points) <= 602
    assert points[-1].startswith("708.0,")
    assert len(svg) < 20_000
    stacked = stacked_chart({"a": line, "b": line}, title="t", y_label="y")
    assert len(chart(stacked).findall(".//polygon")) == 2


def test_ticks_are_round_and_inside() -> None:
    svg = line_chart({"loss": [(1, 0.13), (250, 7.9)]}, title="Loss & more", y_label="<nats>")
    labels = [node.text for node in chart(svg).iter("text")]
    assert labels == [
        *("2", "4", "6"),
        *("50", "100", "150", "200", "250"),
        "training step",
        "<nats>",
    ]


def test_a_legend_only_where_there_is_something_to_tell_apart() -> None:
    one = stacked_chart({"compute": [(1, 1.0)]}, title="t", y_label="s")
    two = stacked_chart({"compute": [(1, 1.0)], "data": [(1, 1.0)]}, title="t", y_label="s")
    assert "compute" not in one
    assert "compute" in two
    assert chart(stacked_chart({}, title="t", y_label="s")) is not None


def test_the_newest_line_of_a_step_counts() -> None:
    rows = [{"step": 2, "loss": 1}, {"step": 1, "loss": 2}, {"step": 2, "loss": 3}]
    assert newest_by_step(rows) == {1: rows[1], 2: rows[2]}


def test_memory_is_that_of_the_option_until_there_is_a_placement() -> None:
    facts = summary(job(JobState.QUEUED, []), [], {}, GRID)
    assert facts["memory_bytes_per_rank"]["predicted"] == spec().options[0].memory_bytes


def test_a_training_step_as_predicted_beside_the_median_measured() -> None:
    one = job(JobState.SUCCEEDED)
    option = structs.replace(spec().options[0], step_s=0.55)
    placed = structs.replace(one.attempts[0].placement, option=option)
    timed = structs.replace(one, attempts=(structs.replace(one.attempts[0], placement=placed),))
    rows = [{**row, "step_s": 0.1 * row["step"]} for row in metrics(9)]
    facts = summary(timed, rows, {}, GRID)
    assert facts["step_s"] == {"predicted": 0.55, "measured": pytest.approx(0.5)}
    told = dict(summary_rows(facts))["a training step"]
    assert told == "0.5 s measured (median), 0.55 s predicted (+10%)"
    assert "a training step" not in dict(summary_rows(summary(one, rows, {}, GRID)))


def test_parts_of_a_step_add_up_to_it_at_every_site() -> None:
    time = finished()["time"]
    for site, step_s in (("north", 1.0), ("south", 1.5)):
        parts = time[site]
        assert parts["steps"] == 4  # of the first nobody has told how long it took
        assert parts["step_s"] == pytest.approx(step_s)
        assert parts["backward_s"] == pytest.approx(0.25)
        assert parts["other_s"] == pytest.approx(step_s - 0.8)
        spent = shares(parts)
        assert sum(spent.values()) == pytest.approx(1.0)
        assert spent["between sites"] == pytest.approx(0.2 / step_s)
        assert "forward and backward" not in spent


def test_where_passes_are_not_told_apart_they_are_one_part() -> None:
    rows = [
        {**row, "forward_s": None, "sites": {"north": {**at_site(2), "forward_s": None}}}
        for row in metrics(2)
    ]
    parts = time_by_site(rows, {})["north"]
    assert (parts["forward_s"], parts["backward_s"]) == (None, None)
    assert shares(parts)["forward and backward"] == pytest.approx(0.4)
    assert "forward and backward" in report_html(finished(), rows)


def test_rows_of_before_and_rows_that_say_nothing_do_no_harm() -> None:
    old = {"compute_s": 0.5, "data_s": 0.0, "within_site_s": 0.0, "between_site_s": 0.25}
    rows: list[dict[str, Any]] = [{"step_s": one, "sites": {"north": old}} for one in (1.0, None)]
    parts = time_by_site(rows, {"south": [{"site": "south", "step_s": math.inf}, {"step_s": 1}]})
    assert list(parts) == ["north"]
    assert (parts["north"]["steps"], parts["north"]["other_s"]) == (1, 0.25)
    assert time_by_site([{"step_s": 1.0, "sites": {"n": {"compute_s": 3.0}}}], {})["n"][
        "other_s"
    ] == pytest.approx(0.0)


def test_links_are_those_of_the_last_attempt() -> None:
    assert finished()["bytes"]["links"] == {"south": {"sent": 300, "received": 30}}
    facts = summary(job(JobState.RUNNING, recipe=True), metrics(2, links={"south": 3}), {}, GRID)
    assert facts["bytes"]["links"] == {"south": {"sent": 0, "received": 0}}


if __name__ == "__main__":
    GOLDEN.write_text(page(), encoding="utf-8")


def test_an_axis_may_begin_at_zero() -> None:
    points = {"speed": [(1.0, 50.0), (2.0, 60.0)]}
    assert ">0</text>" in line_chart(points, title="t", y_label="y", from_zero=True)
    assert ">0</text>" not in line_chart(points, title="t", y_label="y")


def test_the_ranks_of_a_site_are_counted_in_words() -> None:
    sites = {"a": {"ranks": [0], "nodes": {"n": [0]}}, "b": {"ranks": [1, 2], "nodes": {"m": [0]}}}
    rows = dict(summary_rows({**finished(), "sites": sites}))
    assert (rows["site a"], rows["site b"]) == ("rank 0 on n", "ranks 1-2 on m")


def test_of_a_model_that_is_cut_the_bytes_between_sites_are_foreseen_alone() -> None:
    one = job(JobState.RUNNING, recipe=True)

    def predicted(plan: ParallelPlan) -> dict[str, int | None]:
        option = structs.replace(spec().options[0], plan=plan)
        placed = structs.replace(one.attempts[0].placement, option=option)
        cut = structs.replace(one, attempts=(structs.replace(one.attempts[0], placement=placed),))
        told = summary(cut, metrics(2), {}, GRID)["bytes"]
        return {where: told[where]["predicted"] for where in ("within_sites", "between_sites")}

    whole = predicted(ParallelPlan(data=6))
    assert whole["within_sites"]
    cut = predicted(ParallelPlan(tensor=3, data=2))
    assert cut == {"within_sites": None, "between_sites": whole["between_sites"]}
    assert set(predicted(ParallelPlan(data=6, site_sync=SiteSync(kind="outer"))).values()) == {None}


def test_what_the_sites_accounts_say_stands_with_the_attempt() -> None:
    used = [
        SiteUse(
            site="north",
            attempt=1,
            site_job="51",
            elapsed_s=90.0,
            cpu_s=171.25,
            max_rss_bytes=3 << 30,
            energy_j=7200.0,
        ),
        SiteUse(site="south", attempt=2, site_job="9", elapsed_s=5.0, cpu_s=1.0),
    ]
    attempts = [ended(1, Why.KILLED, "killed"), ended(2, Why.COMPLETED, "all ranks ended well")]
    facts = summary(job(JobState.SUCCEEDED, attempts), [], {}, GRID, used=used)
    first, second = facts["attempts"]
    assert first["used"][0]["energy_wh"] == 2.0
    assert second["used"][0]["max_rss_bytes"] is None
    assert "north counts 171.2 s of processors in 1m 30s, 3.2 GB in the largest task, 2 Wh" in (
        attempt_line(first)
    )
    assert "south counts 1.0 s of processors in 5s (its job 9)" in attempt_line(second)
