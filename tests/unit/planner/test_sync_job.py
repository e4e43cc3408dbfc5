"""What the sites of a job have to exchange, from the job and the grid."""

import pytest

from gridloom.model.inventory import Inventory, Link, Node, Site
from gridloom.model.parallel import ParallelPlan, SiteSync
from gridloom.model.recipe import CheckpointPolicy, GptRecipe, GptShape, TextData, Training
from gridloom.model.spec import JobSpec, Option, Program
from gridloom.planner.shape import parameter_count, step_flops
from gridloom.planner.site_sync import candidates
from gridloom.planner.sync_forecast import SyncLink
from gridloom.planner.sync_job import CPU_FLOPS, UNKNOWN_LINK, JobSync, job_sync, with_sync

SHAPE = GptShape(layers=4, hidden=192, heads=3, kv_heads=1, ffn=384)
TRAINING = Training(steps=100, global_batch=16, sequence_length=128)


def site(name: str, kind: str = "cpu", count: int = 2) -> Site:
    node = Node(name=f"{name}-1", address="", accelerator=kind, count=count)
    return Site(name=name, kind="local", nodes=(node,))


GRID = Inventory(
    sites=(site("a"), site("b"), site("c"), site("g", "h100", 8)),
    links=(
        Link(between=("b", "a"), bandwidth_bits_per_s=1e9, latency_s=0.02, loss=0.001),
        Link(between=("a", "c")),  # nothing is known of it
    ),
)


def spec(**changes: object) -> JobSpec:
    options = tuple(Option(accelerator="cpu", plan=ParallelPlan(data=count)) for count in (4, 2))
    recipe = GptRecipe(
        shape=SHAPE,
        data=TextData(),
        training=TRAINING,
        checkpoint=CheckpointPolicy(directory="/c"),
    )
    settled = {"options": options, "recipe": recipe, "sites": ("a", "b"), "max_sites": 2, **changes}
    return JobSpec(name="job", program=Program(argv=("x",), workdir="/w"), **settled)  # type: ignore[arg-type]


def asked(job: JobSpec, step_s: float = 0.0) -> JobSync:
    found = job_sync(job, GRID, step_s)
    assert found is not None
    return found


def test_the_situation_is_of_the_largest_shape_over_the_links_of_its_sites() -> None:
    found = asked(spec())
    situation = found.situation
    assert situation.parameters == parameter_count(SHAPE)
    assert (situation.width, situation.sites, situation.ranks) == (192, 2, 2)
    assert (situation.step_tokens, situation.tokens) == (2048.0, 204_800.0)
    assert situation.links == (SyncLink(bytes_per_s=125e6, rtt_s=0.04, loss=0.001),)
    assert situation.shares_cores
    assert found.unknown == ()
    assert situation.step_s == pytest.approx(step_flops(SHAPE, 2048, 128) / (4 * CPU_FLOPS))
    assert asked(spec(), step_s=2.0).situation.step_s == 2.0


def test_every_link_that_may_be_used_counts_and_unknown_ones_are_told() -> None:
    found = asked(spec(sites=()))
    assert found.unknown == (("a", "c"), ("b", "c"))
    assert found.situation.links == (
        SyncLink(bytes_per_s=125e6, rtt_s=0.04, loss=0.001),
        UNKNOWN_LINK,
        UNKNOWN_LINK,
    )
    assert found.situation.sites == 2


@pytest.mark.parametrize(
    "changes",
    [{"max_sites": 1}, {"recipe": None}, {"sites": ("a", "g")}],
    ids=["one site", "no recipe", "one site with such devices"],
)
def test_where_nothing_crosses_there_is_no_situation(changes: dict[str, object]) -> None:
    assert job_sync(spec(**changes), GRID) is None


def test_one_method_is_in_all_shapes_and_in_the_recipe() -> None:
    how = SiteSync(kind="outer", every=8)
    job = with_sync(spec(), how)
    assert {option.plan.site_sync for option in job.options} == {how}
    assert job.recipe is not None
    assert job.recipe.sync == how
    assert with_sync(spec(recipe=None), how).recipe is None


def test_ranks_with_parts_of_matrices_are_not_asked_for_factors_of_them() -> None:
    sharded = tuple(
        Option(accelerator="cpu", plan=ParallelPlan(data=count, zero=2)) for count in (4, 2)
    )
    whole, parts = asked(spec()).situation, asked(spec(options=sharded)).situation
    assert (whole.is_sharded, parts.is_sharded) == (False, True)
    assert {how.codec for how in candidates(whole)} - {how.codec for how in candidates(parts)} == {
        "low_rank"
    }
