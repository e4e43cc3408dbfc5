"""The page of a simulation: well formed, whole, the same each time, nothing from elsewhere."""

import re
from collections.abc import Sequence
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace
from tests.fakes.simulated import arrival, grid

from gridloom.core.machine import Machine
from gridloom.model.policy import combined
from gridloom.model.quota import Queue
from gridloom.sim.faults import Fault
from gridloom.sim.report import Circumstances, summarise
from gridloom.sim.report_html import page
from gridloom.sim.report_page import Section, section_of
from gridloom.sim.report_svg import time_chart
from gridloom.sim.simulation import Simulation
from gridloom.sim.terms import SimTerms
from gridloom.sim.waits import WaitWatch
from gridloom.sim.workload_nouns import Arrival

JOBS = [
    arrival(f"<job {i}>", 40.0 * i, devices=1 + i % 4, work_s=300.0 + i, queue=f"q{i % 2}")
    for i in range(40)
]
FAULTS = (Fault(at_s=500.0, kind="down", domain="s/n1", duration_s=300.0),)


def section(policy: str, jobs: Sequence[Arrival] = JOBS) -> Section:
    queues = (Queue(name="q0"), Queue(name="q1"))
    base = grid(
        4, 2, price_per_accelerator_hour=2.0, power_w_per_accelerator=500.0, carbon_g_per_kwh=99.0
    )
    inventory = replace(base, policy=combined(policy), queues=queues)
    waits = WaitWatch()
    machine = Machine(terms=SimTerms().lease_terms())
    sim = Simulation(inventory, jobs, seed=0, faults=FAULTS, machine=machine, watch=waits.look)
    sim.run()
    about = Circumstances(policy=policy, seed=0, now_s=sim.now_s)
    summary = summarise(sim.record, jobs, about)
    return section_of(sim.record, summary, inventory=inventory, faults=FAULTS, told=waits.told)


def parsed(text: str) -> ElementTree.Element:
    """Read the page as XML: what it leaves open in HTML is closed first."""
    text = re.sub(r"<meta [^>]*>", "", text.removeprefix("<!doctype html>"))
    return ElementTree.fromstring(text)


def test_one_policy() -> None:
    one = section("fifo")
    text = page([one], notes=["<log>", "a & b"], currency="EUR")
    root = parsed(text)
    assert not re.search(r"(?:src|href|url)\s*[=(]", text)
    assert "<script" not in text
    said = "".join(root.itertext())
    assert "Simulation of <log>" in said
    assert "a & b" in said
    assert "cost, EUR" in said
    assert "CO2, kg" in said
    assert "NaN" not in text
    assert "nan" not in text.replace("maintenance", "")
    charts = root.findall(".//figure/svg")
    assert len(charts) == 4
    bars = [rect for rect in root.iter("rect") if "bar" in rect.get("class", "")]
    assert len(bars) >= len(JOBS)
    assert all(0 <= float(rect.get("x", "-1")) <= 960 for rect in bars)
    (mark,) = [rect for rect in root.iter("rect") if rect.get("class") == "mark"]
    assert mark.findtext("title") == "down s/n1"
    for heading in ("Longest waits", "Faults", "Mean wait by size of job"):
        assert heading in said


def test_longest_waits_come_with_what_the_scheduler_said() -> None:
    one = section("fifo")
    waits = [wait.row.wait_s for wait in one.waits]
    assert len(waits) == 15
    assert waits == sorted(waits, reverse=True)
    assert waits[0] > 0
    told = [wait.told for wait in one.waits]
    assert {one and one.code for one in told} <= {"too_few_free", "behind_strict", "in_use"}
    assert all(one and "wait" in one.sentence for one in told)


def test_curves_hold_the_integrals() -> None:
    one = section("fifo")
    width_s = one.summary.simulated_s / len(one.in_use)
    used = sum(value for _, value in one.in_use) * width_s
    # Six devices; those of the node that is down are not available
    held = one.summary.utilisation or 0.0
    assert used / one.summary.simulated_s == pytest.approx(held, abs=0.02)
    waited = sum(value for _, value in one.waiting_jobs) * width_s
    assert waited == pytest.approx(one.summary.wait_mean_s * 40, rel=0.02)  # type: ignore[operator]


@pytest.mark.unmeasured
def test_several_policies_stand_side_by_side() -> None:
    names = ["fifo", "backfill", "las", "srtf", "fair", "sjf", "cost"]
    text = page([section(name) for name in names], notes=["log"], currency="EUR")
    root = parsed(text)
    tables = root.findall(".//table[@class='figures']")
    assert [row.findtext("th") for row in tables[0].iterfind("tbody/tr")] == names
    assert text == page([section(name) for name in names], notes=["log"], currency="EUR")
    lines = root.findall(".//polyline")
    assert len(lines) == 3 * 7
    assert len({line.get("class") for line in lines}) == 7
    assert "c0 dashed" in str(lines[6].get("class"))


def test_nothing_ran() -> None:
    text = page([section("fifo", [arrival("huge", 0.0, devices=99)])], notes=[], currency="EUR")
    parsed(text)
    assert "NaN" not in text
    parsed(page([], notes=[], currency="EUR"))


@pytest.mark.parametrize(
    ("end_s", "last"),
    [
        (59.0, "50s"),
        (1500.0, "25 min"),
        (7000.0, "1 h 40"),
        (7200.0, "2 h"),
        (86400.0 * 9, "8 d"),
        (86400.0 * 9000, "9000 d"),
    ],
)
def test_ticks_of_time_are_round(end_s: float, last: str) -> None:
    chart = parsed(time_chart({"a": ((0.0, 1.0), (end_s, 3.0))}, title="x"))
    texts = [text.text for text in chart.iter("text")]
    assert last in texts
    assert texts[-1] == last
    assert 4 <= len(texts) <= 20
