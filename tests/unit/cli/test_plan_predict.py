"""What is predicted of a job that is handed in, and what is said where nothing can be."""

from typing import Literal

import pytest
from msgspec import structs

from gridloom.cli.predict import step_sentence, with_step_times
from gridloom.model.inventory import Inventory, Link, Node, Site
from gridloom.model.parallel import ParallelPlan
from gridloom.model.recipe import CheckpointPolicy, GptRecipe, GptShape, TextData, Training
from gridloom.model.spec import JobSpec, Option, Program


def grid(accelerator: str) -> Inventory:
    nodes = tuple(
        Node(name=f"n{number}", address="", accelerator=accelerator, count=8) for number in (1, 2)
    )
    sites = tuple(Site(name=name, kind="local", nodes=nodes) for name in ("north", "south"))
    link = Link(between=("north", "south"), bandwidth_bits_per_s=1e9, latency_s=0.02)
    return Inventory(sites=sites, links=(link,))


def spec(accelerator: str, precision: Literal["fp32", "bf16"], *ranks: int) -> JobSpec:
    return JobSpec(
        name="job",
        program=Program(argv=("x",), workdir="/work"),
        options=tuple(
            Option(accelerator=accelerator, plan=ParallelPlan(data=count)) for count in ranks
        ),
        recipe=GptRecipe(
            shape=GptShape(layers=24, hidden=2048, heads=16, kv_heads=8, ffn=5632),
            data=TextData(),
            training=Training(steps=10, global_batch=64, sequence_length=2048, precision=precision),
            checkpoint=CheckpointPolicy(directory="/c"),
        ),
    )


def test_each_option_has_its_own_time_and_a_second_site_costs_the_link() -> None:
    job = spec("h100", "bf16", 16, 8, 32)
    timed = with_step_times(job, grid("h100"))
    sixteen, eight, both = (option.step_s for option in timed.options)
    assert 0 < sixteen < eight
    # 4 bytes a weight over 1 Gbit/s: longer than what twice the devices save.
    assert both > 4 * 1e9 * 8 / 1e9 > eight
    assert [structs.replace(option, step_s=0.0) for option in timed.options] == list(job.options)
    assert step_sentence(timed, timed.options[0]).split(",")[0].endswith(" ms predicted")


@pytest.mark.parametrize(
    ("accelerator", "precision", "said"),
    [("cpu", "bf16", "no data sheet of `cpu` devices"), ("h100", "fp32", "without TF32")],
)
def test_what_cannot_be_predicted_says_why(
    accelerator: str, precision: Literal["fp32", "bf16"], said: str
) -> None:
    timed = with_step_times(spec(accelerator, precision, 8), grid(accelerator))
    assert timed.options[0].step_s == 0.0
    sentence = step_sentence(timed, timed.options[0])
    assert sentence.startswith("cannot be predicted: ")
    assert said in sentence


def test_a_users_own_program_is_left_as_it_is() -> None:
    own = structs.replace(spec("h100", "bf16", 8), recipe=None)
    assert with_step_times(own, grid("h100")) == own
    assert step_sentence(own, own.options[0]) == ""
