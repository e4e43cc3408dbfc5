"""What job files say to the scheduler."""

import pytest

from gridloom.base.errors import InputError
from gridloom.model.parallel import ParallelPlan
from gridloom.model.spec import Dependency, Forecast, GroupNeed, JobSpec, Option
from gridloom.wire.convert import deadline_s, to_inventory, to_job_spec, with_needs
from gridloom.wire.documents import read_grid, read_job
from gridloom.wire.job_document import JobDocument
from gridloom.wire.schedule_document import ARRAY_MAX, Array

GRID = """
sites:
  north:
    topology: {spine: 2, leaf: 2, node: 4}
    node: {accelerators: h100:8, labels: {fabric: ib}, resources: {cpus: 96, memory: 1TB, nics: 8}}
  south: {levels: [rack], nodes: {'n[1-4]': {accelerators: h100:8, path: r1}}}
queues: {vision: {}, text: {}}
"""
HEAD = "name: j\nrun: python t.py\nqueue: vision\n"  # lines 1 to 3
JOB = HEAD + "resources: {accelerators: h100:16}\n"


def job(text: str) -> JobDocument:
    return read_job(text.encode(), "job.yaml").document


def spec(text: str, *options: Option) -> JobSpec:
    return to_job_spec(job(text), options, workdir="/w", checkpoint_directory="/c")


def sentences(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        read_job(text.encode(), "job.yaml", to_inventory(read_grid(GRID.encode(), "g").document))
    return [problem.sentence().removeprefix("job.yaml") for problem in caught.value.problems]


def test_everything_that_can_be_said_arrives() -> None:
    said = spec(
        HEAD + "user: ada@example.org\n"
        "forecast: {duration: 6h, spread: 0.4, checkpoint_time: 40s, restart_time: 2m,"
        " checkpoint_every: 30m}\n"
        "deadline: 2030-03-01T08:00Z\n"
        "after: [a-1, {job: b-2, when: afterany}]\n"
        "elastic: true\npreemptible: false\non_loss: shrink\n"
        "data: {sites: [north], required: true}\n"
        "resources:\n"
        "  accelerators: h100:16-64\n"
        "  nodes: ['north/s1-l1-n[1-2]', south/n1]\n"
        "  labels: {fabric: ib, age: new}\n"
        "  ranks_per_node_max: 4\n"
        "  spares: 2\n"
    )
    assert said == JobSpec(
        name="j",
        program=said.program,
        options=(),
        queue="vision",
        user="ada@example.org",
        forecast=Forecast(
            duration_s=21600.0, spread=0.4, checkpoint_s=40.0, restart_s=120.0,
            checkpoint_every_s=1800.0,
        ),
        deadline_s=1898582400.0,
        after=(Dependency(job_id="a-1"), Dependency(job_id="b-2", kind="afterany")),
        elastic=True,
        preemptible=False,
        spares=2,
        on_loss="shrink",
        nodes=("north/s1-l1-n1", "north/s1-l1-n2", "south/n1"),
        labels={"age": "new", "fabric": "ib"},
        ranks_per_node_max=4,
        data_sites=("north",),
        data_required=True,
    )  # fmt: skip


def test_a_job_without_a_word_is_what_it_was() -> None:
    said = spec(JOB.replace("queue: vision\n", ""), Option(accelerator="h100", plan=ParallelPlan()))
    assert said == JobSpec(name="j", program=said.program, options=said.options)
    assert said.options == (Option(accelerator="h100", plan=ParallelPlan()),)


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("a-1", [("a-1", "afterok")]),
        ("[a-1]", [("a-1", "afterok")]),
        ("{job: a-1, when: after}", [("a-1", "after")]),
        ("[{job: a-1}, b-1]", [("a-1", "afterok"), ("b-1", "afterok")]),
        ("[]", []),
    ],
)
def test_jobs_to_wait_for_may_be_one_or_a_list(text: str, after: list[tuple[str, str]]) -> None:
    found = spec(JOB + f"after: {text}\n").after
    assert [(other.job_id, other.kind) for other in found] == after


def test_a_deadline_from_the_submission_is_resolved_by_whoever_hands_in() -> None:
    document = job(JOB + "deadline: 8h\n")
    assert spec(JOB + "deadline: 8h\n").deadline_s == 0.0
    assert deadline_s(document, 1000.0) == 29800.0
    assert deadline_s(job(JOB + "deadline: 1970-01-02T00:00Z\n"), 1000.0) == 86400.0
    assert deadline_s(job(JOB), 1000.0) == 0.0


@pytest.mark.parametrize(
    ("text", "array"),
    [
        ("3", Array((0, 1, 2))),
        ("'3'", Array((0, 1, 2))),
        ("5-7", Array((5, 6, 7))),
        ("7,1,3-4", Array((1, 3, 4, 7))),
        ("0-9 % 3", Array(tuple(range(10)), 3)),
        ("4%2", Array((0, 1, 2, 3), 2)),
        (f"{ARRAY_MAX}", Array(tuple(range(ARRAY_MAX)))),
    ],
)
def test_an_array_says_its_indices(text: str, array: Array) -> None:
    assert job(JOB + f"array: {text}\n").array == array


@pytest.mark.parametrize(
    "text", ["0", "-1", "10_001", "1.5", "true", "3-1", "a", "1-99999999", "0-10000", "5%", "5%0",
             "5%x", "1,,2", "[1]", "", "''", "'%3'"]
)  # fmt: skip
def test_what_is_no_array_is_refused(text: str) -> None:
    (sentence,) = sentences(JOB + f"array: {text}\n")
    assert sentence.startswith(":5: array: ")
    assert "how many jobs (at most 10,000)" in sentence


def test_an_index_stands_for_one_job() -> None:
    assert sentences(JOB + "array: 1-3,2\n") == [
        ":5: array: found `1-3,2`: an index is given twice; give each once"
    ]


PLAN = ParallelPlan(tensor=4, pipeline=2, data=4)


def needs(placement: str, plan: ParallelPlan, **more: object) -> list[tuple[int, str, bool]]:
    option = Option(accelerator="h100", plan=plan, **more)  # type: ignore[arg-type]
    (found,) = with_needs((option,), job(JOB + f"placement: {placement}\n"))
    return [(need.ranks, need.level, need.required) for need in found.groups]


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        ("{}", []),
        ("{tensor: island}", [(4, "island", True)]),
        (
            "{gang: spine, replica: {level: leaf, required: false}, tensor: island}",
            [(4, "island", True), (8, "leaf", False), (32, "spine", True)],
        ),
    ],
)
def test_groups_get_the_ranks_of_each_option(
    placement: str, expected: list[tuple[int, str, bool]]
) -> None:
    assert needs(placement, PLAN) == expected


def test_groups_of_one_rank_need_nothing() -> None:
    assert needs("{tensor: island, replica: node, gang: leaf}", ParallelPlan(data=4)) == [
        (4, "leaf", True)
    ]
    assert needs("{gang: leaf}", ParallelPlan()) == []
    assert needs("{tensor: island}", ParallelPlan(), rank_devices=2) == [(1, "island", True)]


def test_of_groups_of_one_size_the_required_or_the_nearer_one_counts() -> None:
    plan = ParallelPlan(tensor=4, data=2)
    assert needs("{tensor: island, replica: leaf}", plan) == [(4, "island", True)]
    assert needs("{tensor: {level: node, required: false}, replica: leaf}", plan) == [
        (4, "leaf", True)
    ]
    assert needs("{replica: island, tensor: node}", plan) == [(4, "island", True)]
    whole = ParallelPlan(tensor=2, pipeline=4)
    assert needs("{replica: rack, gang: {level: leaf, required: false}}", whole) == [
        (8, "rack", True),
        (8, "leaf", False),
    ]


def test_the_jobs_words_go_before_the_planners() -> None:
    groups = (GroupNeed(ranks=4, level="node"), GroupNeed(ranks=8, level="site"))
    assert needs("{tensor: island}", PLAN, groups=groups) == [
        (4, "island", True),
        (8, "site", True),
    ]
    assert needs("{}", PLAN, groups=groups) == [(4, "node", True), (8, "site", True)]


def test_needs_are_the_same_when_they_are_put_in_twice() -> None:
    document = job(
        JOB.replace("h100:16", "h100:16, cpus_per_rank: 4") + "placement: {tensor: island}\n"
    )
    once = with_needs((Option(accelerator="h100", plan=PLAN),), document)
    assert with_needs(once, document) == once
    assert to_job_spec(document, once, workdir="/", checkpoint_directory="/").options == once


def test_ranks_need_their_share_of_the_host() -> None:
    text = JOB.replace(
        "h100:16", "h100:16, cpus_per_rank: 12, memory_per_rank: 64GB, per_rank: {nics: 1, a: 2}"
    )
    (option,) = with_needs((Option(accelerator="h100", plan=PLAN),), job(text))
    # 64 GB are 59.6 GiB
    assert option.rank_resources == (("a", 2), ("cpus", 12), ("memory_gib", 60), ("nics", 1))
    (kept,) = with_needs(
        (Option(accelerator="h100", plan=PLAN, rank_resources=(("cpus", 1),)),), job(JOB)
    )
    assert kept.rank_resources == (("cpus", 1),)


def test_data_of_a_program_may_have_a_place() -> None:
    assert spec(JOB + "data: {sites: south}\n").data_sites == ("south",)


BROKEN: dict[str, tuple[str, list[str]]] = {
    "fields": (
        HEAD + "user: a b\nforecast: {duration: 0, spread: 6, checkpoint_time: x,"
        " restart_time: -1, checkpoint_every: soon}\n"
        "deadline: 3600\nelastic: 1\npreemptible: no\non_loss: shrinkk\n"
        "data: {sites: [], required: 1}\nresources: {accelerators: h100:16}\n",
        [
            ":4: user: found `a b`; write a user's name, as `ada` or `ada@example.org`",
            ":5: forecast.duration: found `0`; write a duration (`90s`, `20ms`, `1.5h`) above 0",
            ":5: forecast.spread: found `6`; write a number of at least 0 and at most 5",
            ":5: forecast.checkpoint_time: found `x`; write a duration (`90s`, `20ms`, `1.5h`) of"
            " at least 0",
            ":5: forecast.restart_time: found `-1`; write a duration (`90s`, `20ms`, `1.5h`) of at"
            " least 0",
            ":5: forecast.checkpoint_every: found `soon`; write a duration (`90s`, `20ms`, `1.5h`)"
            " of at least 0",
            ":6: deadline: found `3600`; write a time with its zone, as `2030-03-01T08:00Z` or"
            " `2030-03-01T09:00+01:00`, or a duration with its unit, as `8h`",
            ":7: elastic: found `1`; write `true` or `false`",
            ":8: preemptible: found `no`; write `true` or `false`",
            ":9: on_loss: found `shrinkk`; did you mean `shrink`?",
            ":10: data.sites: found a list; write a list of site names",
            ":10: data.required: found `1`; write `true` or `false`",
        ],
    ),
    "resources": (
        HEAD + "resources: {accelerators: h100:16, nodes: n1, labels: {fabric: 1, 'a b': x},\n"
        "  ranks_per_node_max: 0, cpus_per_rank: x, memory_per_rank: 64, spares: -1,\n"
        "  per_rank: {cpus: 3, ram: 2, 'a b': 1, nics: 0}}\n",
        [
            ":4: resources.nodes: found `n1`; write a list of nodes as `SITE/NODE`, as `north/n7`"
            " or `north/n[001-128]`",
            ":4: resources.labels.fabric: found `1`, which is not text; put it in quotes: \"1\"",
            ":4: resources.labels.a b: `a b` cannot be the name of a label; use letters, digits,"
            " `-`, `_`, `.` and `/`, beginning with a letter",
            ":4: resources.labels.a b: no node is labelled with `a b`; there are: fabric",
            ":5: resources.ranks_per_node_max: found `0`; write a whole number from 1 to 1000000",
            ":5: resources.cpus_per_rank: found `x`; write a whole number from 1 to 1000000",
            ":5: resources.memory_per_rank: found `64`; write an amount of memory (`8GB`, `80GiB`)"
            " above 0",
            ":5: resources.spares: found `-1`; write a whole number from 0 to 10000",
            ":6: resources.per_rank.nics: found `0`; write a whole number from 1 to 1000000000000",
            ":6: resources.per_rank.cpus: `cpus` has a field of its own; write `cpus_per_rank`",
            ":6: resources.per_rank.ram: `ram` is not what it is called here; did you mean"
            " `memory_per_rank`?",
            ":6: resources.per_rank.a b: `a b` cannot be a name; use a-z, 0-9 and `_`, beginning"
            " with a letter",
        ],
    ),
    "sizes": (
        JOB + "elastic: true\non_loss: shrink\nparallel: {tensor: 8}\n",
        [
            ":5: elastic: `h100:16` is one size only; write `accelerators: h100:8-16`",
            ":6: on_loss: `h100:16` cannot shrink; write `accelerators: h100:8-16`",
        ],
    ),
    "tensor groups beyond a node": (
        HEAD + "resources: {accelerators: h100:16, ranks_per_node_max: 4}\nparallel: {tensor: 8}\n",
        [
            ":4: resources.ranks_per_node_max: 8 ranks that share a matrix sit on one node, and 4"
            " may; write at least 8"
        ],
    ),
    "placement": (
        HEAD + "resources: {accelerators: h100:16, min_sites: 2}\n"
        "placement: {tensor: leaf, replica: {level: raack, require: false}, gang: spine}\n",
        [
            ":5: placement.replica.require: unknown field; did you mean `required`?",
            ":5: placement.tensor: ranks that share a matrix sit on one node, and not in a `leaf`;"
            " write `island` or `node`",
            ":5: placement.gang: ranks at 2 sites cannot all sit in one `spine`; write"
            " `replica: ...`, or `required: false`",
            ":5: placement.replica: no site has a level `raack`; did you mean `rack`? the grid has:"
            " site, node, island, spine, leaf, rack",
        ],
    ),
    "placement of no kind": (
        JOB + "placement: {tensor: [island], replica: {required: maybe}, gang: Leaf, all: x}\n"
        "affinity: 3\n",
        [
            ":5: placement.tensor: found a list; write a level: `island`, `node`, one of a site's"
            " `levels`, or `site`",
            ":5: placement.replica.level: is missing; write a level: `island`, `node`, one of a"
            " site's `levels`, or `site`",
            ":5: placement.replica.required: found `maybe`; write `true` or `false`",
            ":5: placement.gang: found `Leaf`; write a level: `island`, `node`, one of a site's"
            " `levels`, or `site`",
            ":5: placement.all: unknown field; known here: tensor, replica, gang",
            ":5: placement.gang: no site has a level `Leaf`; did you mean `leaf`? the grid has:"
            " site, node, island, spine, leaf, rack",
            ":6: affinity: unknown field; did you mean `placement`?",
        ],
    ),
    "levels of other sites": (
        HEAD + "resources: {accelerators: h100:16, sites: [south]}\nplacement: {gang: spine}\n",
        [
            ":5: placement.gang: no site has a level `spine`; did you mean `site`? the grid has:"
            " site, node, island, rack"
        ],
    ),
    "others": (
        JOB + "after: [a-1, {job: b, when: afterall}, 3, {when: after}, a-1, {job: a b}]\n",
        [
            ":5: after[1].when: found `afterall`; did you mean `after`?",
            ":5: after[2]: found `3`, which is not text; put it in quotes: \"3\"",
            ":5: after[3].job: is missing; write a job's id, as `train-x4k2pq`",
            ":5: after[5].job: found `a b`; write a job's id, as `train-x4k2pq`",
            ":5: after[4]: `a-1` is named twice; keep one",
        ],
    ),
    "after of no kind": (
        JOB + "after: 3\n", [":5: after: found `3`; write a list, one `- item` a line"]
    ),
    "places": (
        HEAD + "resources: {accelerators: h100:16, sites: [north], nodes: [south/n1, north/x]}\n"
        "data: {sites: [south, east], required: true}\n",
        [
            ":4: resources.nodes: `south/n1` is at none of the job's sites; add its site to"
            " `sites`, or remove it",
            ":4: resources.nodes: the grid has no node `north/x`; there are: north/s1-l1-n1,"
            " north/s1-l1-n2, north/s1-l1-n3, ...",
            ":5: data.sites: none of the sites with the data is among the job's sites; add one to"
            " `resources.sites`, or drop `required`",
            ":5: data.sites: the grid has no site `east`; the grid has: north, south",
        ],
    ),
    "nodes of no site": (
        HEAD + "resources: {accelerators: h100:16, nodes: nort/n1}\n",
        [":4: resources.nodes: the grid has no node `nort/n1`; did you mean `north`?"],
    ),
    "data without a place": (
        JOB + "data: {required: true, text: x}\n",
        [
            ":5: data.text: is read with `recipe: gpt` only, and this job has `run`; remove it;"
            " tell your program in its command line",
            ":5: data.required: is read with `data.sites` only; write `sites: [north]`",
        ],
    ),
    "unknown queue": (
        JOB.replace("vision", "visio"),
        [":3: queue: the grid has no queue `visio`; did you mean `vision`?"],
    ),
    "far from any queue": (
        JOB.replace("vision", "moon"),
        [":3: queue: the grid has no queue `moon`; the grid has: vision, text"],
    ),
    "queue of no kind": (JOB.replace("vision", "[a]"), [":3: queue: found a list; write a queue's"
     " name"]),
    "no queue": (
        JOB.replace("queue: vision\n", ""),
        [": queue: is missing, and the grid has several; write one of vision, text"],
    ),
    "labels": (
        HEAD + "resources: {accelerators: h100:16, labels: {fabrik: ib, fabric: roce, moon: x}}\n",
        [
            ":4: resources.labels.fabrik: no node is labelled with `fabrik`; did you mean"
            " `fabric`?",
            ":4: resources.labels.fabric: no node has `fabric: roce`; there are: ib",
            ":4: resources.labels.moon: no node is labelled with `moon`; there are: fabric",
        ],
    ),
    "hosts": (
        HEAD + "resources: {accelerators: h100:16, per_rank: {nic: 1, disks: 2}}\n",
        [
            ":4: resources.per_rank.nic: no node of the grid says how much `nic` it has; did you"
            " mean `nics`?",
            ":4: resources.per_rank.disks: no node of the grid says how much `disks` it has; write"
            " `resources: {disks: ...}` at its nodes",
        ],
    ),
    "words of other tools": (
        JOB + "partition: x\ndependency: a\nduration: 3h\nwalltime: 3h\nnodelist: x\n"
        "constraint: x\ncpus_per_task: 3\n",
        [
            ":5: partition: unknown field; did you mean `queue`?",
            ":6: dependency: unknown field; did you mean `after`?",
            ":7: duration: unknown field; did you mean `forecast.duration`?",
            ":8: walltime: unknown field; did you mean `budget.max_time`?",
            ":9: nodelist: unknown field; did you mean `resources.nodes`?",
            ":10: constraint: unknown field; did you mean `resources.labels`?",
            ":11: cpus_per_task: unknown field; did you mean `resources.cpus_per_rank`?",
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_every_problem_is_told_at_once_with_its_line(name: str) -> None:
    text, expected = BROKEN[name]
    assert sentences(text) == expected


def test_a_grid_without_queues_labels_or_resources_says_so() -> None:
    text = HEAD + (
        "resources: {accelerators: cpu:1, labels: {a: b}, cpus_per_rank: 2, memory_per_rank: 1GB}\n"
    )
    grid = to_inventory(read_grid(b"sites: {a: {accelerators: cpu:2}}", "g").document)
    with pytest.raises(InputError) as caught:
        read_job(text.encode(), "job.yaml", grid)
    assert [problem.sentence() for problem in caught.value.problems] == [
        "job.yaml:3: queue: the grid has no queue `vision`; remove it: the grid has no queues",
        "job.yaml:4: resources.labels.a: no node is labelled with `a`; no node of the grid has"
        " labels",
        "job.yaml:4: resources.cpus_per_rank: no node of the grid says how much `cpus` it has;"
        " write `resources: {cpus: ...}` at its nodes",
        "job.yaml:4: resources.memory_per_rank: no node of the grid says how much `memory` it has;"
        " write `resources: {memory: ...}` at its nodes",
    ]


def test_with_one_queue_none_need_be_named() -> None:
    grid = to_inventory(read_grid(b"sites: {a: {accelerators: h100:16}}\nqueues: {q: {}}", "g")
                        .document)  # fmt: skip
    text = JOB.replace("queue: vision\n", "")
    assert read_job(text.encode(), "job.yaml", grid).document.queue is None
