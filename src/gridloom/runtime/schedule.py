"""The course of the learning rate, and what makes a recipe impossible to train."""

import math

from gridloom.base.errors import InputError, Problem
from gridloom.model.plan_check import PRECISIONS
from gridloom.model.recipe import BYTE_VOCABULARY, GptRecipe, Training


def learning_rate(training: Training, step: int) -> float:
    """Return the learning rate of ``step`` (from 1): a linear rise, then half a cosine down.

    The peak is reached at ``warmup_steps``, the minimum at ``steps``
    (Loshchilov and Hutter 2017, without restarts).
    """
    if step <= training.warmup_steps:
        return training.learning_rate * step / training.warmup_steps
    progress = (step - training.warmup_steps) / max(1, training.steps - training.warmup_steps)
    fall = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    span = training.learning_rate - training.min_learning_rate
    return training.min_learning_rate + span * fall


def check_recipe(recipe: GptRecipe) -> None:
    """Raise ``InputError`` with every number of a recipe that cannot be trained with."""
    training, checkpoint = recipe.training, recipe.checkpoint
    least = {
        "steps": (training.steps, 1),
        "global_batch": (training.global_batch, 1),
        "sequence_length": (training.sequence_length, 2),
        "micro_batch": (training.micro_batch, 0),
        "optimizer.warmup_steps": (training.warmup_steps, 0),
        "checkpoint.interval": (checkpoint.interval_steps, 1),
        "checkpoint.keep": (checkpoint.keep, 1),
        "model.vocabulary": (recipe.shape.vocabulary, BYTE_VOCABULARY),
    }
    problems = [
        Problem(f"is {value}, must be at least {minimum}", field=field)
        for field, (value, minimum) in least.items()
        if value < minimum
    ]
    if training.precision not in PRECISIONS:
        text = f"is {training.precision!r}, must be one of {', '.join(PRECISIONS)}"
        problems.append(Problem(text, field="precision"))
    if problems:
        raise InputError(problems)
