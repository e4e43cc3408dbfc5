"""Why a job never fits, and what every site and node lacks."""

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from gridloom.core.explain import ever_fits, never
from gridloom.core.fit import Ground, survey
from gridloom.core.index import Index
from gridloom.core.state import Mark, State
from gridloom.model.inventory import Inventory, Node, Site
from gridloom.model.life import Attempt, Job, JobState, Placement, TaskPlacement
from gridloom.model.parallel import ParallelPlan
from gridloom.model.reason import Why
from gridloom.model.spec import GroupNeed, JobSpec, Option, Program


def grid(**sites: str) -> Inventory:
    """Return sites of nodes written ``kind:count`` or ``kind:count:memory``."""
    return Inventory(
        sites=tuple(
            Site(name=name, kind="local", nodes=tuple(map(node, enumerate(text.split()))))
            for name, text in sites.items()
        )
    )


def node(numbered: tuple[int, str]) -> Node:
    number, text = numbered
    kind, count, memory = (text + ":0").split(":")[:3]
    return Node(
        name=f"n{number}",
        address="",
        accelerator=kind,
        count=int(count),
        memory_bytes=int(memory),
    )


def shape(
    data: int, kind: str = "cpu", memory: int = 0, tensor: int = 1, pipeline: int = 1
) -> Option:
    plan = ParallelPlan(data=data, tensor=tensor, pipeline=pipeline)
    return Option(accelerator=kind, plan=plan, memory_bytes=memory)


def spec(*options: Option, at: tuple[int, int] = (1, 1), only: str = "") -> JobSpec:
    return JobSpec(
        name="j",
        program=Program(argv=(), workdir="/"),
        options=options,
        sites=tuple(only.split()),
        min_sites=at[0],
        max_sites=at[1],
    )


@pytest.mark.parametrize(
    ("job", "inventory"),
    [
        (spec(shape(4)), grid(a="cpu:4")),
        (spec(shape(4)), grid(a="cpu:2 cpu:2")),
        (spec(shape(4), at=(2, 2)), grid(a="cpu:2", b="cpu:2")),
        (spec(shape(1, "h100"), shape(4)), grid(a="cpu:4")),  # the second shape does
        (spec(shape(4, memory=9)), grid(a="cpu:4")),  # memory unknown
        (spec(shape(4, memory=9)), grid(a="cpu:4:9")),
        (spec(shape(4), only="b"), grid(a="cpu:1", b="cpu:4")),
    ],
)
def test_fits(job: JobSpec, inventory: Inventory) -> None:
    assert ever_fits(job, inventory) is None


TWO = grid(north="h100:8", south="cpu:4")


@pytest.mark.parametrize(
    ("job", "inventory", "sentence", "remedy"),
    [
        (
            spec(shape(12, "h100"), at=(1, 2)),
            TWO,
            "asks for 12 h100 at up to 2 sites; the largest two sites that it may use have 8 + 0",
            "ask for at most 8 h100",
        ),
        (
            spec(shape(8), at=(2, 2)),
            grid(a="cpu:8", b="cpu:0"),
            "asks for 8 cpu at 2 sites; the largest two sites that it may use have 8 + 0",
            "let it run at one site",
        ),
        (
            spec(shape(8), at=(2, 3)),
            grid(a="cpu:4"),
            "asks for 8 cpu at 2 to 3 sites;"
            " the largest three sites that it may use have 4 + 0 + 0",
            "add nodes with cpu; the grid has cpu",
        ),
        (
            spec(shape(6)),
            grid(a="cpu:4", b="cpu:3"),
            "asks for 6 cpu at one site; the largest site that it may use has 4",
            "let it use up to 2 sites",
        ),
        (
            spec(shape(2, tensor=4)),
            grid(a="cpu:6 cpu:2"),
            "asks for 8 cpu at one site;"
            " the largest site that it may use has 4 in whole groups of 4",
            "ask for at most 4 cpu",
        ),
        (
            spec(shape(4), only="a mars"),
            grid(a="cpu:1", b="cpu:4"),
            "asks for 4 cpu at one site; the largest site that it may use has 1",
            "let it use every site",
        ),
        (
            spec(shape(2, memory=90)),
            grid(a="cpu:2:80"),
            "asks for 2 cpu at one site; the largest site that it may use has 0",
            "cut the model further, so that a rank needs less memory",
        ),
        (
            spec(shape(1, "tpu"), shape(1, "a100")),
            TWO,
            "asks for 1 tpu at one site; the largest site that it may use has 0;"
            " none of its other shapes fits either",
            "add nodes with tpu; the grid has h100, cpu",
        ),
        (
            spec(shape(8), shape(6)),  # the smallest shape is the nearest
            grid(a="cpu:4"),
            "asks for 6 cpu at one site; the largest site that it may use has 4;"
            " none of its other shapes fits either",
            "ask for at most 4 cpu",
        ),
        (
            spec(shape(1)),
            grid(),
            "asks for 1 cpu at one site; the largest site that it may use has 0",
            "add nodes with cpu; the grid has no nodes",
        ),
        (
            spec(shape(2), at=(3, 2)),
            grid(a="cpu:1", b="cpu:1"),
            "asks for 3 sites at least and 2 at most",
            "let it run at 2 sites",
        ),
        (
            spec(shape(1, pipeline=4), at=(2, 2)),
            grid(a="cpu:4", b="cpu:4"),
            "asks for 2 sites at least, but a site takes whole replica groups and the job has 1",
            "let it run at one site",
        ),
        (
            spec(shape(99), at=(1, 12)),
            grid(a="cpu:4"),
            "asks for 99 cpu at up to 12 sites; the largest 12 sites that it may use have"
            " 4 + 0 + 0 + 0 + 0 + 0 + 0 + 0 + 0",
            "ask for at most 4 cpu",
        ),
    ],
)
def test_never_fits(job: JobSpec, inventory: Inventory, sentence: str, remedy: str) -> None:
    reason = ever_fits(job, inventory)
    assert reason is not None
    assert (reason.code, reason.sentence, reason.remedy) == (Why.NEVER_FITS, sentence, remedy)


def test_a_job_without_a_shape_never_fits() -> None:
    reason = ever_fits(spec(), TWO)
    assert reason is not None
    assert reason.code is Why.NEVER_FITS
    assert "shape" in reason.sentence


def index(inventory: Inventory, **marks: Mark) -> Index:
    """Return an index on whose nodes jobs may run; marks are by node or site, with _ for /."""
    named = {name.replace("_", "/"): mark for name, mark in marks.items()}
    return Index(State(inventory=inventory, marks=named))


def run(some: Index, job_id: str, domain: str, *devices: int, **more: Any) -> None:
    """Let a job have devices of one node."""
    site, name = domain.split("/")
    task = TaskPlacement(site=site, node=name, address="", devices=devices)
    option = replace(shape(len(devices)), **more)
    attempt = Attempt(
        number=1,
        epoch=len(some.holdings) + 1,
        placement=Placement(option=option, tasks=(task,)),
        tasks={},
        started_s=0.0,
    )
    job = Job(job_id=job_id, spec=spec(option), submitted_s=0.0, attempts=[attempt])
    job.state = JobState.RUNNING
    some.state.jobs[job_id] = job
    some.occupy(job)


def refusals(
    job: JobSpec, some: Index, held_for: dict[str, str] | None = None
) -> list[tuple[str, ...]]:
    """Return what every site and node lacks now, some being kept for earlier jobs."""
    held = {some.tree.number[domain]: job_id for domain, job_id in (held_for or {}).items()}
    taken = np.isin(some.tree.unit_node, list(held))
    ground = Ground(np.where(taken, 0, some.capacity.available), held)
    found = survey(some, some.shape(job).demands[0], ground).refusals
    return [(r.domain, r.code.value, f"{r.found}/{r.wanted}", r.sentence) for r in found]


def test_the_first_rule_that_fails_is_named_for_every_site_and_node() -> None:
    inventory = grid(
        shut="cpu:9",
        other="h100:4",
        small="cpu:4:10 h100:1",
        kept="cpu:2",
        busy="cpu:4 cpu:4",
        tiny="cpu:1",
        void="",
        part="cpu:3",
        enough="cpu:8",
    )
    some = index(inventory)
    run(some, "x", "busy/n0", 0, 1, 2)
    run(some, "y", "busy/n1", 1, 2, 3)
    job = spec(
        shape(2, memory=20, tensor=2), only="other small kept busy tiny void part enough mars"
    )
    assert refusals(job, some, {"kept/n0": "early"}) == [
        ("shut", "site_not_allowed", "0/0", "the job may not use shut"),
        ("other", "wrong_accelerator", "0/4", "other has no cpu that would do"),
        ("other/n0", "wrong_accelerator", "0/0", "other/n0 has h100, not cpu"),
        ("small", "too_little_memory", "0/4", "small has no cpu that would do"),
        (
            "small/n0",
            "too_little_memory",
            "0/0",
            "a rank needs 20 B and a device of small/n0 has 10 B",
        ),
        ("small/n1", "wrong_accelerator", "0/0", "small/n1 has h100, not cpu"),
        (
            "kept",
            "held_for_earlier_job",
            "0/4",
            "kept has 2 of 2 free (kept for early, which comes first)",
        ),
        (
            "kept/n0",
            "held_for_earlier_job",
            "0/0",
            "kept/n0 is kept for early, which comes first",
        ),
        (
            "busy",
            "in_use",
            "0/4",
            "busy has 2 of 8 free (job x and one more run there; 0 in whole groups of 2)",
        ),
        ("busy/n0", "in_use", "1/2", "busy/n0 has 1 of 4 free, and 2 must be on one node"),
        ("busy/n1", "in_use", "1/2", "busy/n1 has 1 of 4 free, and 2 must be on one node"),
        ("tiny", "too_few_free", "0/4", "tiny has 1 of 1 free (0 in whole groups of 2)"),
        ("tiny/n0", "too_few_free", "1/2", "tiny/n0 has 1 of 1 free, and 2 must be on one node"),
        ("void", "too_few_free", "0/4", "void has no cpu that would do"),
        ("part", "too_few_free", "2/4", "part has 3 of 3 free (2 in whole groups of 2)"),
        ("mars", "site_not_allowed", "0/0", "the grid has no site mars"),
    ]


def test_a_survey_looks_at_what_the_job_may_use() -> None:
    some = index(grid(a="cpu:2 h100:2 cpu:3", b="cpu:1", c="h100:1"))
    run(some, "x", "a/n0", 1)
    run(some, "y", "a/n1", 1)  # another kind
    demand = some.shape(spec(shape(1))).demands[0]
    seen = survey(some, demand, Ground(some.capacity.available, {}))
    assert [(look.site, look.total, look.free, look.found, look.users) for look in seen.looks] == [
        ("a", 5, 4, 4, ("x",)),
        ("b", 1, 1, 1, ()),
        ("c", 0, 0, 0, ()),
    ]
    assert [r.code for r in seen.refusals] == [Why.WRONG_ACCELERATOR] * 3
    empty = survey(some, demand, Ground(some.tree.unit_devices, {}, empty=True))
    assert [(look.free, look.found, look.users) for look in empty.looks[:2]] == [
        (5, 5, ()),
        (1, 1, ()),
    ]


def test_without_a_grid_there_is_nothing_to_look_at() -> None:
    some = Index(State())
    job = spec(shape(1), only="a")
    assert refusals(job, some) == [
        ("a", "site_not_allowed", "0/0", "the grid has no site a"),
    ]
    reason = never(some, job)
    assert reason is not None
    assert reason.remedy == "add nodes with cpu; the grid has no nodes"


def test_sites_that_are_closed_to_a_job() -> None:
    inventory = Inventory(
        sites=(
            Site(name="a", kind="local", nodes=(), queues=("x", "y")),
            Site(name="b", kind="local", nodes=()),
        )
    )
    closed = spec(shape(1))
    assert refusals(closed, index(inventory))[0] == (
        "a",
        "closed_to_queue",
        "0/0",
        "a takes jobs of x, y, not of a job without a queue",
    )
    other = replace(closed, queue="z", data_sites=("a",), data_required=True)
    assert [sentence for *_, sentence in refusals(other, index(inventory))] == [
        "a takes jobs of x, y, not of queue z",
        "b does not hold the job's data",
    ]
    assert refusals(other, index(inventory))[1][1] == "data_elsewhere"


def test_labels_and_choices_of_nodes() -> None:
    nodes = (
        node((0, "cpu:1")),
        replace(node((1, "cpu:1")), labels={"disk": "hdd", "zone": "1"}),
        replace(node((2, "cpu:1")), labels={"disk": "nvme", "zone": "1"}),
        replace(node((3, "cpu:1")), labels={"disk": "nvme", "zone": "1"}),
    )
    inventory = Inventory(sites=(Site(name="a", kind="local", nodes=nodes),))
    job = replace(
        spec(shape(2)), labels={"zone": "1", "disk": "nvme"}, nodes=("a/n3", "a/n0", "z/n9")
    )
    assert refusals(job, index(inventory)) == [
        ("a", "too_few_free", "1/2", "a has 1 of 1 free"),
        ("a/n0", "wrong_labels", "0/0", "a/n0 has no label disk, and the job wants nvme"),
        ("a/n1", "wrong_labels", "0/0", "a/n1 has disk: hdd, and the job wants nvme"),
        ("a/n2", "not_chosen", "0/0", "the job names other nodes than a/n2"),
    ]


@pytest.mark.parametrize(
    ("mark", "words"),
    [("cordon", "is cordoned"), ("drain", "is drained"), ("taint", "is sick"), ("lost", "is lost")],
)
def test_nodes_that_are_away(mark: Any, words: str) -> None:
    made = Mark(mark=mark, sentence="too hot", since_s=0.0)
    some = index(grid(a="cpu:2", b="cpu:2"), a_n0=made, b=replace(made, sentence=""))
    assert refusals(spec(shape(2)), some) == [
        ("a", "node_away", "0/2", "a has 2 of 2 free (0 that it can use)"),
        ("a/n0", "node_away", "0/0", f"a/n0 {words}: too hot"),
        ("b", "node_away", "0/2", "b has 2 of 2 free (0 that it can use)"),
        ("b/n0", "node_away", "0/0", f"b/n0 {words}"),
    ]
    assert never(some, spec(shape(2))) is None  # it will be back


def test_hosts_that_have_too_little() -> None:
    nodes = (
        replace(node((0, "cpu:4")), resources={"cpus": 8, "tapes": 1}),
        replace(node((1, "cpu:4")), resources={"cpus": 2, "tapes": 1}),
        replace(node((2, "cpu:4")), resources={"cpus": 9}),
    )
    some = index(Inventory(sites=(Site(name="a", kind="local", nodes=nodes),)))
    run(some, "x", "a/n0", 0, rank_resources=(("cpus", 4),))
    job = spec(replace(shape(3), rank_resources=(("cpus", 3), ("tapes", 1))))
    assert refusals(job, some) == [
        (
            "a",
            "too_few_free",
            "1/3",
            "a has 11 of 12 free (job x runs there; 1 that it can use)",
        ),
        ("a/n1", "too_little_host", "2/3", "a/n1 has 2 cpus free, and a rank needs 3"),
        ("a/n2", "too_little_host", "0/1", "a/n2 has 0 tapes free, and a rank needs 1"),
    ]
    reason = never(some, job)
    assert reason is not None
    assert [r.sentence for r in reason.refusals] == [
        "a has 12 of 12 free (1 that it can use)",
        "a/n1 has 2 cpus free, and a rank needs 3",
        "a/n2 has 0 tapes free, and a rank needs 1",
    ]
    assert reason.remedy == "ask for less of the host for each rank"


def test_a_level_that_a_site_lacks() -> None:
    job = spec(replace(shape(2), groups=(GroupNeed(ranks=2, level="rack"),)))
    assert refusals(job, index(grid(a="cpu:1", b="h100:4"))) == [
        ("a", "no_domain", "0/0", "a has no level rack; it has site, node, island"),
        ("b", "no_domain", "0/0", "b has no level rack; it has site, node, island"),
        ("b/n0", "wrong_accelerator", "0/0", "b/n0 has h100, not cpu"),
    ]
    wish = spec(replace(shape(2), groups=(GroupNeed(ranks=2, level="rack", required=False),)))
    assert refusals(wish, index(grid(a="cpu:2"))) == []


def test_room_within_one_domain_of_the_level_that_must_hold_all() -> None:
    inventory = Inventory(
        sites=(
            Site(
                name="a",
                kind="local",
                nodes=tuple(
                    replace(node((i, "cpu:3")), path=(rack,)) for i, rack in enumerate("ppq")
                ),
                levels=("rack",),
            ),
        )
    )
    job = spec(replace(shape(4, tensor=2), groups=(GroupNeed(ranks=8, level="rack"),)))
    assert refusals(job, index(inventory)) == [
        ("a", "too_few_free", "4/8", "a has 9 of 9 free (4 in whole groups of 2)"),
    ]
    reason = ever_fits(job, inventory)
    assert reason is not None
    assert reason.remedy == "ask for at most 4 cpu"


def test_ranks_of_several_devices_are_told_in_devices() -> None:
    job = spec(replace(shape(4), rank_devices=2))
    assert refusals(job, index(grid(a="cpu:5 cpu:1"))) == [
        ("a", "too_few_free", "4/8", "a has 6 of 6 free (4 in whole groups of 2)"),
        ("a/n1", "too_few_free", "1/2", "a/n1 has 1 of 1 free, and 2 must be on one node"),
    ]
    reason = ever_fits(job, grid(a="cpu:5 cpu:1"))
    assert reason is not None
    assert reason.sentence == (
        "asks for 8 cpu at one site; the largest site that it may use has 4 in whole groups of 2"
    )
    assert reason.remedy == "ask for at most 4 cpu"


def test_many_refused_nodes_are_counted_by_rule() -> None:
    nodes = " ".join(["h100:1"] * 30 + ["cpu:1"] * 4)
    some = index(grid(a=nodes))
    run(some, "x", "a/n33", 0)
    assert len(refusals(spec(shape(4)), some)) == 1 + 30 + 1  # one by one
    many = refusals(spec(shape(1, tensor=2)), some)
    assert many == [
        (
            "a",
            "too_few_free",
            "0/2",
            "a has 3 of 4 free (job x runs there; 0 in whole groups of 2)",
        ),
        (
            "a",
            "wrong_accelerator",
            "0/0",
            "30 nodes of a, as this: a/n0 has h100, not cpu",
        ),
        (
            "a",
            "too_few_free",
            "0/0",
            "4 nodes of a, as this: a/n30 has 1 of 1 free, and 2 must be on one node",
        ),
    ]


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"nodes": ("a/n0",)}, "let it use every node"),
        ({"labels": {"disk": "nvme"}}, "let it use nodes with other labels"),
        ({"data_sites": ("b",), "data_required": True}, "let it run away from its data"),
        ({"ranks_per_node_max": 1}, "let more of its ranks share a node"),
    ],
)
def test_remedies_were_tried(change: dict[str, Any], remedy: str) -> None:
    reason = ever_fits(replace(spec(shape(4)), **change), grid(a="cpu:2 cpu:2", b="cpu:1"))
    assert reason is not None
    assert reason.remedy == remedy


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        (
            (replace(shape(4), groups=(GroupNeed(ranks=4, level="node"),)),),
            "let its groups sit further apart",
        ),
        ((shape(1, tensor=8),), "add nodes with cpu; the grid has cpu, h100"),
        ((shape(9, "h100"), shape(6)), "ask for at most 4 cpu"),  # of the shape that is nearest
    ],
)
def test_remedies_of_shapes(options: tuple[Option, ...], remedy: str) -> None:
    reason = ever_fits(spec(*options), grid(a="cpu:2 cpu:2 h100:8"))
    assert reason is not None
    assert reason.remedy == remedy
