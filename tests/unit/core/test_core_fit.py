"""Why a job never fits, and what every site and node lacks."""

import pytest

from gridloom.core.capacity import Capacity
from gridloom.core.fit import ever_fits, survey
from gridloom.model.inventory import Inventory, Node, Site
from gridloom.model.life import Placement, TaskPlacement
from gridloom.model.parallel import ParallelPlan
from gridloom.model.reason import Why
from gridloom.model.spec import JobSpec, Option, Program


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


def refusals(job: JobSpec, inventory: Inventory, capacity: Capacity) -> list[tuple[str, ...]]:
    found = survey(job, job.options[0], inventory, capacity).refusals
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
    capacity = Capacity()
    capacity.hold("kept/n0", "early")
    for job_id, name, devices in [("x", "n0", (0, 1, 2)), ("y", "n1", (1, 2, 3))]:
        task = TaskPlacement(site="busy", node=name, address="", devices=devices)
        capacity.take(Placement(option=shape(1), tasks=(task,)), job_id)
    job = spec(
        shape(2, memory=20, tensor=2), only="other small kept busy tiny void part enough mars"
    )
    assert refusals(job, inventory, capacity) == [
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


def test_a_survey_offers_what_passed() -> None:
    seen = survey(spec(shape(1)), shape(1), grid(a="cpu:2 h100:2", b="cpu:1"), Capacity())
    offered = [(s.site.name, [(n.node.name, n.devices) for n in s.nodes]) for s in seen.sites]
    assert offered == [("a", [("n0", (0, 1))]), ("b", [("n0", (0,))])]
    assert [r.code for r in seen.refusals] == [Why.WRONG_ACCELERATOR]
