import msgspec
import pytest

from gridloom.base.errors import InputError
from gridloom.model.recipe import GptRecipe, Training
from gridloom.runtime.schedule import check_recipe, learning_rate

COURSE = Training(
    steps=110, global_batch=1, sequence_length=8, warmup_steps=10, learning_rate=1.0,
    min_learning_rate=0.1,
)  # fmt: skip


@pytest.mark.parametrize(
    ("step", "rate"), [(1, 0.1), (5, 0.5), (10, 1.0), (60, 0.55), (110, 0.1), (200, 0.1)]
)
def test_a_linear_rise_and_half_a_cosine(step: int, rate: float) -> None:
    assert learning_rate(COURSE, step) == pytest.approx(rate)


def test_without_warm_up_it_starts_near_the_peak() -> None:
    course = msgspec.structs.replace(COURSE, warmup_steps=0)
    assert learning_rate(course, 1) == pytest.approx(1.0, abs=1e-3)


def test_every_number_that_cannot_be_is_named(recipe: GptRecipe) -> None:
    check_recipe(recipe)
    training = msgspec.structs.replace(
        recipe.training, steps=0, global_batch=0, sequence_length=1, precision="fp8"
    )
    checkpoint = msgspec.structs.replace(recipe.checkpoint, keep=0, interval_steps=0)
    shape = msgspec.structs.replace(recipe.shape, vocabulary=256)
    with pytest.raises(InputError) as raised:
        check_recipe(
            GptRecipe(shape=shape, data=recipe.data, training=training, checkpoint=checkpoint)
        )
    assert {problem.field for problem in raised.value.problems} == {
        "steps", "global_batch", "sequence_length",
        "precision", "checkpoint.keep", "checkpoint.interval", "model.vocabulary",
    }  # fmt: skip
