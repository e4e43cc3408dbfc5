"""What one stage computes in a training step: its layers, forward and backward, turn by turn."""

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from gridloom.base.errors import InputError, Problem
from gridloom.runtime.wan.history import Buffer
from gridloom.runtime.wan.stages_accord import AFTER, BEFORE
from gridloom.runtime.wan.stages_messages import Stamp, Values
from gridloom.runtime.wan.stages_schedule import Turn, Turns
from gridloom.runtime.wan.stages_wire import Wire, dtype_of

Loss = Callable[[Any, Any], Tensor]
"""From what the last layer gives for a micro-batch, and its targets, to the mean of its losses."""

Sent = tuple[int, Values, Buffer]
"""To which side, what, and its payload."""


class StageModule(nn.ModuleDict):
    """The layers of one stage, named by their numbers in the whole model."""

    def __init__(self, layers: Mapping[int, nn.Module]) -> None:
        super().__init__({str(number): layer for number, layer in layers.items()})

    def forward(self, x: Any) -> Any:
        """Take ``x`` through all of them."""
        for layer in self.values():
            x = layer(x)
        return x


class Batch:
    """The batch of a step, cut into micro-batches.

    Attributes:
        inputs: By micro-batch.
        targets: By micro-batch.
        checksum: Of all of it, to be compared between stages.
        trains: Gradients are wanted.
    """

    def __init__(
        self, inputs: Tensor, targets: Tensor, micro_batches: int, *, trains: bool = True
    ) -> None:
        """Cut ``[samples, ...]`` along the first dimension.

        Raises:
            InputError: It does not make equal micro-batches.
        """
        samples = inputs.shape[0]
        if samples % micro_batches or not samples or targets.shape[0] != samples:
            text = f"{samples} samples with {targets.shape[0]} targets are not {micro_batches}"
            remedy = "give a multiple, or set micro_batches to a divisor"
            where = "pipeline.micro_batches"
            raise InputError([Problem(f"{text} equal micro-batches", remedy, field=where)])
        self.trains = trains
        self.inputs = inputs.chunk(micro_batches)
        self.targets = targets.chunk(micro_batches)
        self.checksum = zlib.crc32(_bytes_of(targets), zlib.crc32(_bytes_of(inputs)))


class Work:
    """One try of a step on one stage.

    Attributes:
        turns: Which are due.
        loss: Mean over the micro-batches so far, on the last stage.
        payload_bytes: Of the largest tensor sent to the next stage.
        compute_s: What the caller has measured of all turns.
    """

    def __init__(
        self, stage: StageModule, loss: Loss, batch: Batch, wire: Wire, turns: Turns
    ) -> None:
        """Begin; the gradients of the stage are none.

        Args:
            stage: The layers.
            loss: Of a micro-batch.
            batch: The whole batch, which all stages have read.
            wire: For what is sent.
            turns: Of this stage.
        """
        self.turns = turns
        self.loss = torch.zeros((), dtype=torch.float64)
        self.payload_bytes = 0
        self.compute_s = 0.0
        self._stage, self._loss, self._batch, self._wire = stage, loss, batch, wire
        self._arrived: dict[tuple[bool, int], tuple[Values, Buffer]] = {}
        self._held: dict[int, tuple[Tensor, Tensor]] = {}

    def arrived(self, values: Values, body: Buffer, peer: str) -> None:
        """Note a tensor from a neighbour.

        Raises:
            InputError: It belongs to another batch than the one read here, or to an evaluation
                while this stage trains, or the other way round.
        """
        if values.trains != self._batch.trains:
            there, here = "trains", "evaluates"
            if self._batch.trains:
                there, here = here, there
            text = f"{peer} {there} in a step in which this site {here}"
            remedy = "call forward_backward and evaluate in the same order at all sites"
            raise InputError([Problem(text, remedy, field="pipeline")])
        if values.batch != self._batch.checksum:
            text = f"{peer} and this site have read different batches"
            remedy = "give every stage the same batches: gl.data(..., local=True), one seed"
            raise InputError([Problem(text, remedy, field="data")])
        number = values.micro_batch
        self._arrived[values.is_gradient, number] = values, body
        if values.is_gradient:
            self.turns.gradient_came(number)
        else:
            self.turns.input_came(number)

    def do(self, turn: Turn, stamp: Stamp, sides: tuple[int, ...]) -> Sent | None:
        """Compute; return what is to be sent, if anything.

        Raises:
            InputError: A layer at the border of two stages does not give one tensor of numbers.
            PoisonedError: A number to be sent is not finite.
        """
        if turn.kind == "forward":
            return self._forward(turn.micro_batch, stamp, sides)
        return self._backward(turn.micro_batch, stamp, sides)

    def _forward(self, number: int, stamp: Stamp, sides: tuple[int, ...]) -> Sent | None:
        if BEFORE in sides:
            came = self._wire.unpack(*self._arrived.pop((False, number)))
            came.requires_grad_(self._batch.trains)
        else:
            came = self._batch.inputs[number].to(self._wire.device)
        given = self._stage(came)
        if AFTER not in sides:
            targets = self._batch.targets[number].to(self._wire.device)
            whole = self._loss(given, targets) / len(self._batch.targets)
            self.loss += whole.detach().double().cpu()
            self._hold(number, came, whole)
            return None
        if dtype_of(given) is None:
            kind = given.dtype if isinstance(given, Tensor) else type(given).__name__
            text = f"the last layer of the stage gives {kind}"
            remedy = "cut where a layer gives one tensor of fp32, bf16 or fp16"
            raise InputError([Problem(text, remedy, field="pipeline.stage_layers")])
        self._hold(number, came, given)
        self.payload_bytes = max(self.payload_bytes, self._wire.size_bytes(given.numel()))
        return self._sent(AFTER, number, given, stamp)

    def _hold(self, number: int, came: Tensor, given: Tensor) -> None:
        if self._batch.trains:
            self._held[number] = came, given

    def _backward(self, number: int, stamp: Stamp, sides: tuple[int, ...]) -> Sent | None:
        came, given = self._held.pop(number)
        if AFTER in sides:
            gradient = self._wire.unpack(*self._arrived.pop((True, number)))
            if given.requires_grad:
                torch.autograd.backward(given, gradient.to(given.dtype).view_as(given))
        elif given.requires_grad:
            torch.autograd.backward(given)
        if BEFORE not in sides:
            return None
        gradient = torch.zeros_like(came) if came.grad is None else came.grad
        return self._sent(BEFORE, number, gradient, stamp)

    def _sent(self, side: int, number: int, tensor: Tensor, stamp: Stamp) -> Sent:
        step, again = stamp
        values = Values(
            step=step,
            again=again,
            micro_batch=number,
            is_gradient=side == BEFORE,
            trains=self._batch.trains,
            shape=tuple(tensor.shape),
            dtype=dtype_of(tensor) or "float32",
            batch=self._batch.checksum,
        )
        return side, values, self._wire.pack(values, tensor)


def _bytes_of(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
