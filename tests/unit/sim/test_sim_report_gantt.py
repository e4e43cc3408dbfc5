"""Rectangles of who was where: they do not overlap, and say how much was held."""

import random
from collections import defaultdict

import pytest
from tests.fakes.simulated import grid

from gridloom.model.inventory import Inventory, Node, Site
from gridloom.sim import report_gantt
from gridloom.sim.faults import Fault
from gridloom.sim.record import Span
from gridloom.sim.report_gantt import Bar, gantt_of


def span(job_id: str, domain: str, devices: int, start_s: float, end_s: float) -> Span:
    return Span(job_id=job_id, domain=domain, devices=devices, start_s=start_s, end_s=end_s)


def paint(job_id: str) -> tuple[int, str]:
    return 1, job_id


def test_jobs_are_as_high_as_their_devices_and_do_not_overlap() -> None:
    rng = random.Random(3)
    spans: list[Span] = []
    for node in ("s/n0", "s/n1"):
        ends: list[tuple[float, int]] = []
        now = 0.0
        for number in range(200):
            now += rng.random()
            ends = [(end, size) for end, size in ends if end > now]
            size = rng.randint(1, 4)
            if sum(held for _, held in ends) + size > 8:
                continue
            end = now + rng.uniform(0.1, 5)
            ends.append((end, size))
            spans.append(span(f"{node}-{number}", node, size, now, end))
    found = gantt_of(spans, grid(8, 8), (), (0.0, 210.0), paint)
    assert (found.single, found.level, [lane.name for lane in found.lanes]) == (
        True,
        "node",
        ["s/n0", "s/n1"],
    )
    heights: dict[str, float] = defaultdict(float)
    for bar in found.bars:
        heights[bar.says] += (bar.high - bar.low) * 8
    assert {job: pytest.approx(height) for job, height in heights.items()} == {
        one.job_id: one.devices for one in spans
    }
    assert not overlaps(found.bars)
    pieces = len(found.bars) - len(spans)
    assert 0 < pieces < len(spans) / 4  # most are in one piece


def overlaps(bars: tuple[Bar, ...]) -> list[tuple[Bar, Bar]]:
    return [
        (a, b)
        for i, a in enumerate(bars)
        for b in bars[i + 1 :]
        if a.lane == b.lane
        and a.start_s < b.end_s
        and b.start_s < a.end_s
        and a.low < b.high - 1e-9
        and b.low < a.high - 1e-9
    ]


def topology(spines: int, leaves: int, nodes: int) -> Inventory:
    return Inventory(
        sites=(
            Site(
                name="s",
                kind="local",
                levels=("spine", "leaf"),
                nodes=tuple(
                    Node(
                        name=f"{a}-{b}-{c}",
                        address="",
                        accelerator="gpu",
                        count=8,
                        path=(f"s{a}", f"l{b}"),
                    )
                    for a in range(spines)
                    for b in range(leaves)
                    for c in range(nodes)
                ),
            ),
        )
    )


@pytest.mark.parametrize(
    ("shape", "level", "lanes"),
    [
        ((2, 4, 25), "node", 200),
        ((2, 4, 26), "leaf", 8),
        ((3, 100, 1), "spine", 3),
        ((201, 1, 1), "site", 1),
    ],
)
def test_rows_are_the_finest_domains_that_are_few_enough(
    shape: tuple[int, int, int], level: str, lanes: int
) -> None:
    found = gantt_of((), topology(*shape), (), (0.0, 1.0), paint)
    assert (found.level, len(found.lanes)) == (level, lanes)
    assert sum(lane.devices for lane in found.lanes) == 8 * shape[0] * shape[1] * shape[2]


def test_shares_of_a_row_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_gantt, "ROWS_MAX", 3)
    spans = [
        span("a", "s/0-0-0", 8, 0.0, 100.0),
        span("b", "s/0-0-1", 4, 25.0, 50.0),
        span("c", "s/1-0-0", 8, 50.0, 50.0),  # no time at all
        span("d", "gone/n", 8, 0.0, 100.0),
    ]
    found = gantt_of(spans, topology(2, 1, 2), (), (0.0, 100.0), paint)
    assert (found.single, found.level) == (False, "leaf")
    assert [(bar.lane, bar.start_s, bar.end_s, bar.shade) for bar in found.bars] == [
        (0, 0.0, 25.0, 0.5),
        (0, 25.0, 50.0, 0.75),
        (0, 50.0, 100.0, 0.5),
    ]


def test_many_jobs_are_shown_as_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_gantt, "BARS_MAX", 40)
    spans = [span(f"j{i}", "s/n0", 8, i, i + 1.0) for i in range(100)]
    found = gantt_of(spans, grid(8), (), (0.0, 100.0), paint)
    assert not found.single
    assert [(bar.start_s, bar.end_s, bar.shade) for bar in found.bars] == [(0.0, 100.0, 1.0)]


def test_faults_are_marked_where_they_were() -> None:
    faults = (
        Fault(at_s=10.0, kind="down", domain="s/n1", duration_s=20.0),
        Fault(at_s=90.0, kind="maintenance", domain="t"),
        Fault(at_s=5.0, kind="cut", domain="s|t", duration_s=5.0),
        Fault(at_s=500.0, kind="down", domain="s/n1"),
    )
    found = gantt_of((), grid(8, 8, sites=("s", "t")), faults, (0.0, 100.0), paint)
    assert [(m.lane, m.start_s, m.end_s, m.says) for m in found.marks] == [
        (1, 10.0, 30.0, "down s/n1"),
        (2, 90.0, 100.0, "maintenance t"),
        (3, 90.0, 100.0, "maintenance t"),
    ]
