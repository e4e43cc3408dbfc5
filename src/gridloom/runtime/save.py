"""Checkpoints of gridloom's own program: the ``Keeper``'s, for one recipe and one text."""

from pathlib import Path

import msgspec

from gridloom.base.codec import decode, encode
from gridloom.base.errors import InputError, Problem
from gridloom.model.recipe import GptRecipe
from gridloom.runtime.inside.site_model import SiteModel
from gridloom.runtime.keeper import About, Keeper, KeepPolicy
from gridloom.runtime.run import Run
from gridloom.runtime.updates import Sync

_ORDER = ("global_batch", "sequence_length", "seed")
"""What of the training decides which samples follow."""


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint says of the training it is of.

    Attributes:
        recipe: What it was trained with.
        data: Fingerprint of the text it was trained on.
    """

    recipe: GptRecipe
    data: str


def keeper(run: Run, recipe: GptRecipe, data: str, model: SiteModel, sync: Sync) -> Keeper:
    """Return what saves and resumes a training.

    Args:
        run: This process's part of it.
        recipe: What it is trained with.
        data: Fingerprint of its text.
        model: With its optimizer.
        sync: What makes its updates.

    Raises:
        InputError: Another training uses the directory.
        StorageError: The directory cannot be used.
    """
    own = Said(recipe=recipe, data=data)
    about = About(encode(own).decode(), lambda said, path: check_continues(said, own, path))
    policy = KeepPolicy(
        every=recipe.checkpoint.interval_steps, keep=recipe.checkpoint.keep, about=about
    )
    directory = Path(recipe.checkpoint.directory)
    return Keeper(run, directory, policy, {"model": model, "sync": sync})


def check_continues(said: str, own: Said, path: Path) -> None:
    """Raise ``InputError`` naming everything for which a checkpoint is not one of this training.

    The model must have the saved shape, and the samples must come from the same text in the same
    order; the number of steps, the learning rate, the cut and the sync may have changed.

    Args:
        said: What the checkpoint says.
        own: What this training says.
        path: Of the checkpoint.
    """
    remedy = "restore it, or give the job a fresh checkpoint.directory"
    try:
        saved = decode(said.encode(), Said)
    except msgspec.DecodeError as error:
        text = f"the checkpoint {path} is not one of gridloom's own training program"
        raise InputError([Problem(text, remedy, field="checkpoint.directory")]) from error
    shape, other_shape = own.recipe.shape, saved.recipe.shape
    training, other_training = own.recipe.training, saved.recipe.training
    pairs = [
        (f"model.{field}", getattr(shape, field), getattr(other_shape, field))
        for field in shape.__struct_fields__
    ]
    pairs += [(field, getattr(training, field), getattr(other_training, field)) for field in _ORDER]
    problems = [
        Problem(f"is {wanted}, the checkpoint {path} has {found}", remedy=remedy, field=field)
        for field, wanted, found in pairs
        if wanted != found
    ]
    if own.data != saved.data:
        text = f"the text is not what the checkpoint {path} was trained on"
        problems.append(Problem(text, remedy=remedy, field="data.text"))
    if problems:
        raise InputError(problems)
