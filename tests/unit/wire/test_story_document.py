"""Stories as written: what is accepted, what is said of all else, and the page about them.

Run as a program it rewrites the tables of the page.
"""

from pathlib import Path

import pytest
from pydantic import BaseModel

from gridloom.base.errors import InputError
from gridloom.model.inventory import Inventory
from gridloom.wire.documents_values import Value, found
from gridloom.wire.stories import AT_FIRST, StoryFile, read_story
from gridloom.wire.story_document import EventDocument, StoryDocument, TermsDocument
from gridloom.wire.story_expect import ConditionDocument
from gridloom.wire.story_job import SubmitDocument
from gridloom.wire.story_names import names_like
from gridloom.wire.story_values import (
    AfterValue,
    Amount,
    AmountValue,
    GroupsValue,
    NodesChoiceValue,
    PairsValue,
    Span,
    SpanValue,
    TasksValue,
)

PAGE = Path(__file__).parents[3] / "docs" / "how" / "stories.md"
SECTIONS: dict[str, type[BaseModel]] = {
    "a story": StoryDocument,
    "an event": EventDocument,
    "a job": SubmitDocument,
    "a condition": ConditionDocument,
}


def table(model: type[BaseModel]) -> str:
    lines = ["| field | meaning |", "|---|---|"]
    for name, field in model.model_fields.items():
        meaning = (field.description or "").replace("|", "\\|")
        lines.append(f"| `{field.alias or name}` | {meaning} |")
        if model is StoryDocument and name == "terms":
            for inner, value in TermsDocument.model_fields.items():
                shown = found(value.default).removeprefix("found ")
                lines.append(f"| `terms.{inner}` | {value.description} Default: {shown}. |")
    return "\n".join(lines)


def with_tables(page: str) -> str:
    for name, model in SECTIONS.items():
        begin, end = f"<!-- fields of {name} -->\n", "\n<!-- end -->"
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}{table(model)}{end}{after}"
    return page


def test_the_page_says_every_field() -> None:
    page = PAGE.read_text()
    assert page == with_tables(page), f"run `python {Path(__file__).name}`"


HEAD = "about: test\n"
JOB = "  - {at: 0, submit: {name: a, tasks: 4, gpus: 1}}\n"
TAIL = "expect: [{finally: {running: a}}]\n"


def story(grid: str = "{nodes: 4x gpu:8}", events: str = JOB, tail: str = TAIL) -> str:
    return f"{HEAD}grid: {grid}\nevents:\n{events}{tail}"


def read(text: str) -> StoryFile:
    return read_story(text.encode(), "s.yaml")


def sentences(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        read(text)
    return [problem.sentence().removeprefix("s.yaml:") for problem in caught.value.problems]


def inventory(grid: str) -> Inventory:
    return read(story(grid)).inventories[AT_FIRST]


def test_short_forms_of_nodes() -> None:
    (site,) = inventory("6x gpu:8").sites
    assert site.name == "here"
    assert [node.name for node in site.nodes] == [f"n{i}" for i in range(6)]
    assert {(node.accelerator, node.count) for node in site.nodes} == {("gpu", 8)}
    (site,) = inventory(
        "{nodes: [2x h100:8, {count: 2, accelerators: gpu:16, island: 8, labels: {z: a}}, gpu]}"
    ).sites
    assert [(n.name, n.accelerator, n.count, n.island) for n in site.nodes] == [
        ("n0", "h100", 8, 0),
        ("n1", "h100", 8, 0),
        ("n2", "gpu", 16, 8),
        ("n3", "gpu", 16, 8),
        ("n4", "gpu", 1, 0),
    ]
    assert site.nodes[2].labels == {"z": "a"}
    (site,) = inventory("{nodes: {x: gpu:8, 'y[1-2]': {accelerators: gpu:4}}}").sites
    assert [(node.name, node.count) for node in site.nodes] == [("x", 8), ("y1", 4), ("y2", 4)]
    (site,) = inventory("{nodes: [{name: big, accelerators: gpu:8}]}").sites
    assert site.nodes[0].name == "big"


def test_pools_and_switches() -> None:
    ((node,),) = (site.nodes for site in inventory("{pool: {cpus: 100, memory_gib: 64}}").sites)
    assert (node.name, node.accelerator, node.count) == ("pool", "cpu", 100)
    assert node.resources == {"memory_gib": 64}
    ((node,),) = (site.nodes for site in inventory("{pool: {gpus: 8, licences: 3}}").sites)
    assert (node.accelerator, node.resources) == ("gpu", {"licences": 3})
    (site,) = inventory("{switches: {s0: [n0, n1], s1: n2}, node: gpu:8}").sites
    assert site.levels == ("switch",)
    assert [(node.name, node.path) for node in site.nodes] == [
        ("n0", ("s0",)),
        ("n1", ("s0",)),
        ("n2", ("s1",)),
    ]


def test_sites_and_what_a_grid_file_says() -> None:
    grid = inventory(
        "{sites: {a: 2x gpu:8, b: {topology: {leaf: 2, node: 2}, node: gpu:8,"
        " price_per_accelerator_hour: 2}}, links: [{between: [a, b], latency: 1ms}],"
        " currency: EUR, queues: {q: {nominal: {gpu: 4}}}, policy: fair}"
    )
    assert [site.name for site in grid.sites] == ["a", "b"]
    assert grid.sites[1].price_per_accelerator_hour == 2
    assert (grid.currency, len(grid.links), grid.policy.name) == ("EUR", 1, "fair")
    assert grid.queues[0].nominal == {"gpu": 4}


def test_shared_sections_stand_at_the_top() -> None:
    tail = "queues: {q: {cohort: c}}\ncohorts: {c: {}}\npolicy: fifo\n" + TAIL
    grid = read(story(tail=tail)).inventories[AT_FIRST]
    assert (grid.queues[0].cohort, grid.cohorts[0].name, grid.policy.name) == ("c", "c", "fifo")


def test_a_later_grid_has_what_is_at_the_top() -> None:
    text = story(events=JOB + "  - {at: 5, grid: 8x gpu:8}\n", tail="policy: fifo\n" + TAIL)
    later = read(text).inventories[1]
    assert (len(later.sites[0].nodes), later.policy.name) == (8, "fifo")


def test_defaults_give_way() -> None:
    events = "  - {at: 0, submit: {name: a, devices: h100:1}}\n  - {at: 0, submit: {name: b}}\n"
    text = story(events=events, tail="defaults: {gpus: 2, priority: 3}\n" + TAIL)
    document = read(text).document
    jobs = [event.submit.over(document.defaults) for event in document.events if event.submit]
    assert [(job.gpus, job.devices is not None, job.priority) for job in jobs] == [
        (None, True, 3),
        (2, False, 3),
    ]


def test_names_of_arrays() -> None:
    names = ["a", "s[0]", "s[1]", "s[10]", "st"]
    assert names_like("s", names) == ["s[0]", "s[1]", "s[10]"]
    assert names_like("s[1]", names) == ["s[1]"]
    assert names_like("s[1*", names) == ["s[1]", "s[10]"]
    assert names_like("s*", names) == ["s[0]", "s[1]", "s[10]", "st"]
    assert names_like("?", names) == ["a"]
    assert names_like("x", names) == []


def test_values_as_people_write_them() -> None:
    assert SpanValue().parse("2-4") == Span(2, 4)
    assert (3 in SpanValue().parse("2+"), 1 in SpanValue().parse("2+")) == (True, False)
    assert [str(SpanValue().parse(text)) for text in (4, "2-4", "2+")] == [
        "4",
        "2 to 4",
        "at least 2",
    ]
    assert AmountValue().parse("4 nodes, 32 devices") == Amount(nodes=4, devices=32)
    assert AmountValue().parse(1) == Amount(devices=1)
    assert str(AmountValue().parse("1 node, 8")) == "1 node and 8 devices"
    assert TasksValue().parse("2-4") == (4, 3, 2)
    assert TasksValue().parse([2, 8]) == (8, 2)
    assert AfterValue().parse(["a", {"b": "afterany"}]) == (("a", "afterok"), ("b", "afterany"))
    assert GroupsValue().parse({"node": 8, "leaf": "all"}) == {"node": 8, "leaf": 0}
    assert PairsValue().parse([["hi*", "lo*"]]) == (("hi*", "lo*"),)
    assert NodesChoiceValue().parse("n0") == (("n0",),)
    assert NodesChoiceValue().parse([["n0", "n1"], ["n2"]]) == (("n0", "n1"), ("n2",))


REFUSED: list[tuple[Value, list[object]]] = [
    (SpanValue(), [True, -1, 1.5, "x", "4-2", None]),
    (AmountValue(), [True, "4 racks", "1 node, 2 nodes", None, 1.5]),
    (TasksValue(), ["4-2", [], [2, 2], 0, "1-20000", None]),
    (AfterValue(), [[], {"a": "later"}, 3, ""]),
    (GroupsValue(), [{}, "node", {"Node!": 8}, {"node": 0}]),
    (PairsValue(), [[], "a", [["a"]], [["a", 3]]]),
    (NodesChoiceValue(), [[], 3, [[]], [["n0"], [3]]]),
]


@pytest.mark.parametrize(
    ("kind", "value"),
    [(kind, value) for kind, values in REFUSED for value in values],
)
def test_values_that_are_refused(kind: Value, value: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        kind.parse(value)
    assert kind.schema()


def event(text: str) -> str:
    return story(events=f"{JOB}  - {text}\n")


def expect(text: str) -> str:
    return story(tail=f"expect:\n  - {text}\n")


def submit(text: str, tail: str = TAIL) -> str:
    return story(events=f"{JOB}  - {{at: 1, submit: {{name: b, {text}}}}}\n", tail=tail)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("about: x\n", "grid: is missing"),
        (story(grid="7"), "2: grid: found `7`"),
        (story(grid="[]"), "2: grid: found a list"),
        (story(grid="{nodes: 6 times gpu}"), "grid.nodes: found `6 times gpu`; write `6x gpu:8`"),
        (story(grid="{nodes: 0x gpu:8}"), "grid.nodes: found `0x gpu:8`; write `6x gpu:8`"),
        (story(grid="{nodes: [gpu:8, 7]}"), "2: grid.nodes[1]: found `7`"),
        (story(grid="{nodes: [{count: 0, accelerators: gpu}]}"), "grid.nodes[0].count: found `0`"),
        (story(grid="{nodes: [{name: 7, accelerators: gpu}]}"), "grid.nodes[0].name: found `7`"),
        (story(grid="{nodes: [{name: x, accelerators: gpu}, {name: x, accelerators: gpu}]}"),
         "2: grid.nodes[1]: `x` is there twice"),
        (story(grid="{nodes: [{accelerators: gpu:0}]}"), "2: grid.nodes[0].accelerators: found"),
        (story(grid="{nodes: [{accelerators: gpu:8, islands: 4}]}"), "grid.nodes[0].islands: unk"),
        (story(grid="{pool: 100}"), "2: grid.pool: found `100`; write `{cpus: 100"),
        (story(grid="{pool: {cpus: -1}}"), "2: grid.pool: found a mapping"),
        (story(grid="{pool: {cpus: 1}, nodes: gpu}"), "grid.pool: both `nodes` and `pool`"),
        (story(grid="{switches: {s: [n0, n0]}, node: gpu}"), "switches.s: `n0` is there twice"),
        (story(grid="{switches: [n0], node: gpu}"), "2: grid.switches: found a list"),
        (story(grid="{switches: {s: [n0]}}"), "grid.switches.s[0].accelerators: is missing"),
        (story(grid="{sites: {a: 2x gpu:8}, nodes: gpu}"), "grid.nodes: stands beside `sites`"),
        (story(grid="{sites: {a: 7}}"), "grid.sites.a: found `7`"),
        (story(grid="{nodes: gpu, bookings: []}"), "grid.bookings: a story has no bookings here"),
        (story(grid="{nodes: gpu, policy: fair}", tail="policy: fifo\n" + TAIL),
         "grid.policy: `policy` is given here and at the top"),
        (story(tail="policy: fare\n" + TAIL), "policy: there is no policy `fare`"),
        (story(tail="policy: 7\n" + TAIL), "policy: found `7`"),
        (story(tail="queues: {q: {cohort: c}}\n" + TAIL), "queues.q.cohort"),
        (story(tail="expect: []\n"), "5: expect: nothing is expected"),
        (story(tail=TAIL + "unti: 5\n"), "6: unti: unknown field; did you mean `until`?"),
        (event("{at: 5}"), "5: events[1]: nothing happens"),
        (event("{at: 5, cancel: a, stop: a}"), "events[1].stop: both `cancel` and `stop` happen"),
        (event("{at: -5, cancel: a}"), "events[1].at: found `-5`"),
        (event("{at: 1e300, cancel: a}"), "events[1].at: found `1e+300`"),
        (event("{at: 5, unbook: b}"), "events[1].unbook: there is no booking `b` until then"),
        (story(tail="terms: {leases: true, heartbeat: 1ms}\nuntil: 1e7\n" + TAIL),
         "terms.heartbeat: a task gives more than 1,000,000 signs of life"),
        (story(tail="policy: {promises_max: 0}\n" + TAIL), "policy.promises_max: found `0`"),
        (event("{at: 5, cancel: b}"), "5: events[1].cancel: there is no job `b` until then"),
        (event("{at: 5, fail: {job: b}}"), "events[1].fail: there is no job `b`"),
        (event("{at: 5, fail: {job: a, exit: 0}}"), "events[1].fail.exit: found `0`"),
        (event("{at: 5, drain: n9}"), "5: events[1].drain: there is no node or site `n9`"),
        (event("{at: 5, slow: {where: n9, factor: 2}}"), "events[1].slow.where: there is no node"),
        (event("{at: 5, slow: {where: n0, factor: 1}}"), "events[1].slow.factor: found `1`"),
        (event("{at: 5, partition: [here]}"), "events[1].partition: a partition is between two"),
        (event("{at: 5, partition: [here, there]}"), "there is no site `there`"),
        (event("{at: 5, price: {there: 2}}"), "events[1].price: there is no site `there`"),
        (event("{at: 5, book: {name: b, from: 9, to: 9, nodes: n0}}"), "book.to: it ends before"),
        (event("{at: 5, submit: {name: a, gpus: 1}}"), "submit.name: two jobs are called `a`"),
        (submit("tasks: 2"), "5: events[1].submit: it needs no device; write `gpus: 8`"),
        (submit("gpus: 1, devices: h100:1"), "submit.devices: both `gpus` and `devices`"),
        (submit("gpus: 1, options: [{gpus: 1}]"), "submit.gpus: stands beside `options`"),
        (submit("options: [{tasks: 1}]"), "submit.options[0]: it needs no device"),
        (submit("gpus: 1, step: 1, steps: {node: 1}"), "submit.steps: both `step` and `steps`"),
        (submit("gpus: 1, array: 2, gang: false"), "`array` and `gang: false` are both given"),
        (submit("gpus: 1, tasks: 2-4, gang: false"), "submit.tasks: an elastic job is a gang"),
        (submit("gpus: 1, tasks: 6, together: {node: 4}"), "4 tasks together, and 6 tasks in all"),
        (submit("gpus: 1, prefer: {leaf: all}"), "submit.prefer: there is no level `leaf`"),
        (submit("gpus: 1, within: leaf"), "submit.within: there is no level `leaf`"),
        (submit("gpus: 1, sites: there"), "submit.sites: there is no site `there`"),
        (submit("gpus: 1, data: there"), "submit.data: there is no site `there`"),
        (submit("gpus: 1, pin: n9"), "submit.pin: there is no node or site `n9`"),
        (submit("gpus: 1, pin: here"), "submit.pin: `here` is a site; write `sites: here`"),
        (submit("gpus: 1, queue: q"), "submit.queue: there is no queue `q`; there is none"),
        (submit("gpus: 1, after: c"), "submit.after: there is no job `c` until then"),
        (submit("gpus: 1, after: b"), "submit.after: there is no job `b` until then"),
        (story(events="  - {at: 1, submit: {name: b, gpus: 1, after: c}}\n"
                      "  - {at: 1, submit: {name: c, gpus: 1}}\n" + JOB),
         "events[0].submit.after: there is no job `c` until then"),
        (submit("gpus: 1, duration: 5, fails_after: 6"), "submit.fails_after: it ends after 5 s"),
        (submit("gpus: 1, duration: 1e6, checkpoint_every: 1us"), "checkpoint_every: it saves"),
        (submit("gpus: 1, tasks: 10001, gang: false"), "submit.tasks: 10,001 jobs, each of its"),
        (submit("gpus: 1, forecast: soon"), "submit.forecast: found `soon`"),
        (submit("gpus: 1, prioriti: 3"), "prioriti: unknown field; did you mean `priority`?"),
        (expect("{running: a}"), "6: expect[0]: nothing says when"),
        (expect("{at: 5, finally: {running: a}}"), "`at` and `finally` are both given"),
        (expect("{at: 5}"), "expect[0]: nothing is expected; write one of running"),
        (expect("{finally: {running: a}, waiting: a}"), "[0].waiting: stands beside `finally`"),
        (expect("{at: 5, running: a, from: 3}"), "expect[0].from: an instant has no span"),
        (expect("{always: {running: a}, from: 5, to: 3}"), "[0].to: it ends before it begins"),
        (expect("{at: 5, running: b}"), "6: expect[0].running: there is no job `b`; there are: a"),
        (expect("{at: 5, before: [[a, b]]}"), "expect[0].before: there is no job `b`"),
        (expect("{at: 5, exactly_one_of: {running: b}}"), "exactly_one_of.running: there is no"),
        (expect("{at: 5, exactly_one_of: {}}"), "expect[0].exactly_one_of: is empty: none is one"),
        (expect("{always: {evicted: {}}}"), "expect[0].always.evicted: is empty, and holds of"),
        (expect("{at: 5, holds: {a: 4 racks}}"), "expect[0].holds.a: found `4 racks`"),
        (expect("{at: 5, nodes_of: {a: n9}}"), "expect[0].nodes_of.a: there is no node or site"),
        (expect("{at: 5, mark: {n9: drain}}"), "expect[0].mark.n9: there is no node or site"),
        (expect("{at: 5, sites_of: {a: there}}"), "sites_of.a: there is no site `there`"),
        (expect("{at: 5, within: {a: leaf}}"), "within.a: there is no level `leaf`"),
        (expect("{at: 5, spread_over: {a: {leaf: 2}}}"), "spread_over.a: there is no level `leaf`"),
        (expect("{at: 5, used: {q: 2}}"), "used.q: there is no queue `q`"),
        (expect("{at: 5, reason: {a: whim}}"), "reason.a.code: found `whim`"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_where_it_is(text: str, said: str) -> None:
    assert any(said in sentence for sentence in sentences(text)), sentences(text)


def test_names_of_jobs_stand_for_the_whole_of_a_failure() -> None:
    failed = read(event("{at: 5, fail: a}")).document.events[1].fail
    assert failed is not None
    assert (failed.job, failed.exit) == (("a",), 1)


def test_every_problem_is_told_at_once_with_its_line() -> None:
    text = (
        "about: x\n"
        "grid: {nodes: [gpu:8, 7]}\n"
        "events:\n"
        "  - {at: 0, submit: {name: a, gpus: many}}\n"
        "  - {at: x, cancel: a}\n"
        "expect:\n"
        "  - {at: 5, holds: {a: 4 racks}}\n"
        "  - {at: 5, kept: a}\n"
    )
    lines = [int(sentence.partition(":")[0]) for sentence in sentences(text)]
    assert lines == [2, 4, 5, 7, 8]


def test_a_job_that_is_wrong_is_not_missed_by_others() -> None:
    events = (
        "  - {at: 0, submit: {name: a, gpus: many}}\n"
        "  - {at: 0, submit: {name: s, gpus: many, array: 3}}\n"
        "  - {at: 1, cancel: [a, s, 's[2]']}\n"
    )
    assert len(sentences(story(events=events))) == 2


def test_a_node_of_several_sites_is_called_by_its_site() -> None:
    grid = "{sites: {a: 1x gpu:8, b: 1x gpu:8}}"
    wrong = story(grid, JOB + "  - {at: 1, drain: n0}\n")
    assert "`n0` is the name of several nodes; write one of a/n0, b/n0" in sentences(wrong)[0]
    read(story(grid, JOB + "  - {at: 1, drain: [a/n0, b]}\n"))


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
