"""Layers cut into stages, and the order in which micro-batches pass them.

The schedules are torch's: 1F1B (Narayanan et al. 2019), interleaved (Narayanan et al. 2021) and
zero-bubble (Qi et al. 2023).
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    PipelineScheduleMulti,
    PipelineScheduleSingle,
    Schedule1F1B,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)

from gridloom.base.errors import InputError
from gridloom.model.parallel import ParallelPlan
from gridloom.model.plan_check import micro_batch_problems
from gridloom.model.recipe import GptShape
from gridloom.runtime.gpt import Gpt, Part
from gridloom.runtime.inside.axes import Axes

Loss = Callable[[Any, Tensor], Tensor]
"""From what the last stage gives, and targets, to what the backward starts from."""


class Pipeline:
    """Takes batches through the stages of a site, forward and backward."""

    def __init__(
        self, stages: Sequence[Gpt], axes: Axes, loss: Loss, formats: tuple[torch.dtype, ...]
    ) -> None:
        """Remember the stages.

        Args:
            stages: Of this rank, in the order of the layers.
            axes: The site.
            loss: Called on the last stage, once a micro-batch.
            formats: Number formats of the residual stream and of the logits.
        """
        self._stages, self._axes, self._loss = stages, axes, loss
        self._stream, self._logits = formats
        self._first, self._last = stages[0].part.first, stages[-1].part.last
        self._schedules: dict[tuple[int, ...], PipelineScheduleSingle | PipelineScheduleMulti] = {}

    def run(self, inputs: Tensor, targets: Tensor, micro_batch: int) -> None:
        """Take a batch ``[batch, time]`` through all stages and back.

        Raises:
            InputError: The batch is not whole micro-batches, or too few for the schedule.
        """
        self._schedule_for(inputs, micro_batch).step(
            *((inputs,) if self._first else ()),
            target=targets if self._last else None,
            return_outputs=False,
        )

    def evaluate(self, inputs: Tensor, targets: Tensor, micro_batch: int) -> None:
        """As ``run``, forward alone."""
        self._schedule_for(inputs, micro_batch).eval(
            *((inputs,) if self._first else ()),
            target=targets if self._last else None,
            return_outputs=False,
        )

    def _schedule_for(
        self, inputs: Tensor, micro_batch: int
    ) -> PipelineScheduleSingle | PipelineScheduleMulti:
        key = (*inputs.shape, micro_batch)
        if key not in self._schedules:
            self._schedules[key] = self._schedule(inputs, micro_batch)
        return self._schedules[key]

    def _schedule(
        self, inputs: Tensor, micro_batch: int
    ) -> PipelineScheduleSingle | PipelineScheduleMulti:
        plan = self._axes.plan
        count = micro_batches(plan, inputs.shape[0], micro_batch)
        stages = [self._stage(stage, i, inputs, micro_batch) for i, stage in self._numbered()]
        if plan.schedule == "1f1b":
            return Schedule1F1B(stages[0], count, self._loss, scale_grads=False)
        kind = (
            ScheduleInterleaved1F1B
            if plan.schedule == "interleaved"
            else ScheduleInterleavedZeroBubble
        )
        return kind(list(stages), count, self._loss, scale_grads=False)

    def _numbered(self) -> list[tuple[int, Gpt]]:
        axis = self._axes.pipeline
        return [(i * axis.size + axis.position, stage) for i, stage in enumerate(self._stages)]

    def _stage(self, stage: Gpt, number: int, inputs: Tensor, micro_batch: int) -> PipelineStage:
        """Wrap a stage, and say what comes in and goes out, so that none need be asked."""
        shape, links = stage.shape, stage.links
        tokens = torch.empty((micro_batch, inputs.shape[1]), dtype=inputs.dtype, device="meta")
        time = inputs.shape[1] // links.token_stream
        wide = torch.empty(
            (micro_batch, time, shape.hidden), device="meta", dtype=self._stream
        ).requires_grad_()
        logits = torch.empty(
            (micro_batch, inputs.shape[1] // links.tensor, shape.vocabulary),
            device="meta",
            dtype=self._logits,
        ).requires_grad_()
        loss = torch.empty((), device="meta").requires_grad_()
        beside = (loss,) if shape.experts is not None else ()
        return PipelineStage(
            stage,
            number,
            self._axes.pipeline.size * len(self._stages),
            self._axes.device,
            input_args=tokens if stage.part.first else (wide, *beside),
            output_args=(logits if stage.part.last else wide, *beside),
            group=self._axes.pipeline.group,
        )


def parts_of(axes: Axes, shape: GptShape) -> list[Part]:
    """Return the parts of the model that this rank holds: every ``pipeline``-th stage."""
    layers = axes.plan.stages(shape.layers)
    own = range(axes.pipeline.position, len(layers), axes.pipeline.size)
    return [Part(layers[i], first=i == 0, last=i == len(layers) - 1) for i in own]


def micro_batches(plan: ParallelPlan, batch: int, micro_batch: int) -> int:
    """Return how many micro-batches a rank's batch is, for a pipeline.

    Raises:
        InputError: Not a whole number, or one that the schedule cannot run.
    """
    if problems := micro_batch_problems(plan, batch, micro_batch):
        raise InputError(problems)
    return batch // micro_batch
