"""Nodes that are taken out of work: which is meant, what is said of it, what becomes of jobs."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.cli.conftest import ENDLESS, Answer, Gridloom
from tests.unit.control.nouns import GRID, attempt, job

from gridloom.base.errors import InputError
from gridloom.cli.marks import find_domain, jobs_on, mark_of, mark_text, marks_json
from gridloom.core.state import Mark, State
from gridloom.model.inventory import Inventory, Node, Site
from gridloom.model.life import JobState, TaskState

Call = Callable[..., Answer]


@pytest.mark.parametrize(
    ("wanted", "domain"),
    [("north", "north"), ("north/n2", "north/n2"), ("n2", "north/n2"), ("s1", "south/s1")],
)
def test_a_node_is_meant_by_its_name_and_a_site_by_its(wanted: str, domain: str) -> None:
    assert find_domain(GRID, wanted) == domain


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("nroth/n2", "there is no node or site 'nroth/n2'; did you mean `north/n2`"),
        ("x", "there are: north, south, north/n1, north/n2, south/s1$"),
        ("", "there is no node or site ''"),
    ],
)
def test_a_node_that_is_not_there_is_answered_with_what_is(wanted: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        find_domain(GRID, wanted)


def test_a_name_of_several_nodes_needs_the_site() -> None:
    node = Node(name="n1", address="a", accelerator="cpu", count=1)
    sites = tuple(Site(name=name, kind="local", nodes=(node,)) for name in ("a", "b", "n1"))
    assert find_domain(Inventory(sites=sites), "n1") == "n1", "a site goes before nodes"
    with pytest.raises(InputError, match="several sites have a node 'n1': a/n1, b/n1; name its"):
        find_domain(Inventory(sites=sites[:2]), "n1")


DRAINED = Mark(mark="drain", sentence="fan broken", since_s=100.0)
TAINTED = Mark(mark="taint", sentence="", since_s=40.0, by_core=True)


def test_a_mark_is_a_sentence_and_an_object() -> None:
    assert mark_text("north/n1", DRAINED, 160.0) == "north/n1 was drained 1m 00s ago: fan broken"
    assert mark_text("south", TAINTED, 30.0) == "south was tainted by the scheduler 0ms ago"
    listed = marks_json({"south": TAINTED, "north/n1": DRAINED})
    assert [one["domain"] for one in listed] == ["north/n1", "south"]
    assert listed[0] == {
        "domain": "north/n1",
        "mark": "drain",
        "reason": "fan broken",
        "since_s": 100.0,
        "by_scheduler": False,
        "by_site": False,
    }


def test_a_node_has_the_mark_of_its_site() -> None:
    marks = {"south": TAINTED, "north/n1": DRAINED}
    assert mark_of(marks, "north/n1") is DRAINED
    assert mark_of(marks, "south/s1") is TAINTED
    assert mark_of(marks, "north/n2") is None


def test_jobs_on_a_node_are_those_with_a_live_task_there() -> None:
    running = attempt()
    state = State(jobs={"job-1": job(JobState.RUNNING, [running])})
    assert jobs_on(state, "north/n1") == jobs_on(state, "south") == ["job-1"]
    assert jobs_on(state, "north/n9") == []
    running.tasks["south/s1"].state = TaskState.ENDED
    assert jobs_on(state, "south") == []
    assert jobs_on(State(jobs={"job-1": job(JobState.QUEUED, [])}), "north") == []


@pytest.mark.parametrize("verb", ["drain", "cordon", "restore"])
def test_nodes_of_nothing_cannot_be_marked(call: Call, home: Path, verb: str) -> None:
    answer = call("node", verb, "north")
    assert (answer.code, answer.out) == (2, "")
    assert "there are no jobs in" in answer.err


@pytest.mark.slow
def test_a_drained_node_is_left_and_shown_until_it_is_restored(gridloom: Gridloom) -> None:
    path = gridloom.job(ENDLESS, grid="grid.yaml")
    node = "{address: 127.0.0.1, accelerators: cpu}"
    grid = f"sites: {{here: {{nodes: {{n1: {node}, n2: {node}}}}}}}\n"
    (gridloom.files / "grid.yaml").write_text(grid)
    run = gridloom.start("run", path, "-y", "--json")
    job_id = gridloom.wait_for_output()
    drained = gridloom.call("node", "drain", "n1", "--reason", "fan\nbroken", "--json")
    assert drained.json() == {
        "domain": "here/n1",
        "mark": "drain",
        "reason": "fan broken",
        "jobs": [job_id],
    }
    gridloom.wait_for_output(attempt=2)
    assert "here/n1 was drained" in (listed := gridloom.call("ps")).err
    assert listed.err.endswith(": fan broken\n")
    marks = gridloom.call("ps", "--json").json()["marks"]
    assert [(one["domain"], one["mark"]) for one in marks] == [("here/n1", "drain")]
    checks = {one["check"]: one for one in gridloom.call("doctor", "--json").json()["checks"]}
    assert checks["nodes"]["state"] == "note"
    assert checks["nodes"]["found"].endswith("fan broken")
    assert gridloom.call("node", "cordon", "here/n2").out.splitlines() == [
        "here/n2 is cordoned",
        f"{job_id} runs there on",
    ]
    status = gridloom.call("status", "job").out
    assert "evicted once" in status
    assert "here/n2 was cordoned" in " ".join(status.split())
    assert gridloom.call("node", "restore", "here").out == "here works again\n"
    assert gridloom.call("node", "restore", "n1").out == "here/n1 was not marked\n"
    assert gridloom.call("node", "cordon", "here").code == 0
    refused = gridloom.call("node", "restore", "n1")
    assert refused.code == 2
    assert "here as a whole is cordoned; `gridloom node restore here`" in refused.err
    assert gridloom.call("stop", job_id).code == 0
    summary = gridloom.end(run).lines()[-1]
    assert summary["evictions"] == 1
    assert [one["number"] for one in summary["attempts"]] == [1, 2]
