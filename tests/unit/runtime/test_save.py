"""Whether a training of gridloom's own program goes on from a checkpoint."""

from pathlib import Path

import msgspec
import pytest

from gridloom.base.codec import encode
from gridloom.base.errors import InputError
from gridloom.model.parallel import ParallelPlan, SiteSync
from gridloom.model.recipe import CheckpointPolicy, GptRecipe, GptShape, TextData, Training
from gridloom.runtime.save import Said, check_continues

SHAPE = GptShape(layers=1, hidden=8, heads=2, kv_heads=1, ffn=8)
RECIPE = GptRecipe(
    shape=SHAPE,
    data=TextData(),
    training=Training(steps=9, global_batch=4, sequence_length=8),
    checkpoint=CheckpointPolicy(directory="/c"),
)
SAVED = encode(Said(recipe=RECIPE, data="d")).decode()


def test_what_may_change_may_change() -> None:
    longer = msgspec.structs.replace(RECIPE.training, steps=99, learning_rate=1.0)
    own = msgspec.structs.replace(
        RECIPE, training=longer, plan=ParallelPlan(tensor=2), sync=SiteSync(kind="outer", every=9)
    )
    check_continues(SAVED, Said(recipe=own, data="d"), Path("here"))


def test_another_training_is_refused_by_the_name_of_the_field() -> None:
    other = msgspec.structs.replace(
        RECIPE,
        shape=msgspec.structs.replace(SHAPE, hidden=16),
        training=msgspec.structs.replace(RECIPE.training, global_batch=8),
    )
    with pytest.raises(InputError) as caught:
        check_continues(SAVED, Said(recipe=other, data="e"), Path("here"))
    assert [problem.field for problem in caught.value.problems] == [
        "model.hidden",
        "global_batch",
        "data.text",
    ]
    assert "is 16, the checkpoint here has 8" in str(caught.value)


def test_the_checkpoint_of_another_program_is_refused() -> None:
    with pytest.raises(InputError, match="not one of gridloom's own training program"):
        check_continues("", Said(recipe=RECIPE, data="d"), Path("here"))
