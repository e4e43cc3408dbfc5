"""Which micro-batch a stage of a pipeline takes next, and how many it may hold at once.

The order is that of 1F1B (Narayanan et al. 2019): a backward as soon as there is one, else a
forward, as long as no more micro-batches are held than the depth. Forwards are in order, and so
are backwards, so that a stage adds its gradients up in the same order whatever arrives when.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gridloom.base.errors import InputError, Problem
from gridloom.model.parallel import ParallelPlan


@dataclass(frozen=True)
class Turn:
    """What a stage does next.

    Attributes:
        kind: Which way.
        micro_batch: Its number, from 0.
    """

    kind: Literal["forward", "backward"]
    micro_batch: int


class Turns:
    """The turns of one stage in one training step, given what has arrived so far.

    Attributes:
        depth: Micro-batches that it holds at once at most.
    """

    def __init__(
        self, micro_batches: int, depth: int, *, first: bool, last: bool, trains: bool = True
    ) -> None:
        """Begin a step.

        Args:
            micro_batches: Of the step.
            depth: Micro-batches that the stage holds at once at most, from 1.
            first: All inputs are here from the start.
            last: The gradient of a micro-batch is here as soon as it went forward.
            trains: They go backward, too; else none is held, and the depth is of no matter.
        """
        self.depth = depth
        self._count, self._is_last, self._trains = micro_batches, last, trains
        self._inputs = set(range(micro_batches)) if first else set()
        self._gradients: set[int] = set()
        self._forwards = self._backwards = 0

    @property
    def is_over(self) -> bool:
        """Whether every micro-batch has been forward and, if it is to, backward."""
        return (self._backwards if self._trains else self._forwards) == self._count

    @property
    def held(self) -> int:
        """Micro-batches that went forward here and are to come back."""
        return self._forwards - self._backwards if self._trains else 0

    def input_came(self, micro_batch: int) -> None:
        """Note that a micro-batch may go forward, as far as this stage's depth allows."""
        self._inputs.add(micro_batch)

    def gradient_came(self, micro_batch: int) -> None:
        """Note that a micro-batch may go backward."""
        self._gradients.add(micro_batch)

    def take(self) -> Turn | None:
        """Return the next turn, which counts as taken; ``None`` while there is none."""
        number = self._backwards
        if (self._is_last and self.held) or number in self._gradients:
            self._backwards += 1
            return Turn("backward", number)
        number = self._forwards
        if number in self._inputs and self.held < self.depth:
            self._forwards += 1
            return Turn("forward", number)
        return None


def depth_for(stages_left: int, delay_s: float, period_s: float) -> int:
    """Return how many micro-batches a stage must hold so that it never waits for the links.

    One comes back after a forward and a backward at each stage from this one on, and what the
    links take; meanwhile the stage begins one more in each period.

    Args:
        stages_left: From this stage to the last, both counted.
        delay_s: Round trips of the links from here to the last stage, and the transfers of a
            micro-batch's activations and gradients over them.
        period_s: From one micro-batch to the next, on the slowest stage or link; above 0.
    """
    return stages_left + math.ceil(delay_s / period_s)


def layers_of(stage: int, stages: int, layers: int, counts: Sequence[int] = ()) -> range:
    """Return the layers of a stage, even to one layer, or as ``counts`` has them.

    Raises:
        InputError: There are fewer layers than stages, or the counts do not add up.
    """
    problem = ""
    if counts and len(counts) != stages:
        problem = f"names {len(counts)} stages, and there are {stages} sites"
    elif counts and (sum(counts) != layers or min(counts) < 1):
        problem = f"{list(counts)} must be at least 1 each, {layers} in all"
    elif layers < stages:
        problem = f"{layers} layers are fewer than the {stages} sites"
    if problem:
        raise InputError([Problem(problem, "a stage has one layer or more", field="stage_layers")])
    return ParallelPlan(pipeline=stages, stage_layers=tuple(counts)).stages(layers)[stage]
