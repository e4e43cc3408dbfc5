"""Gradients of equal weights, summed over the ranks in buckets behind the backward pass."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gridloom.runtime.inside.axes import Axis
from gridloom.runtime.inside.flights import Flights

BUCKET_BYTES = 25 * 2**20
"""Gradients that travel together, as torch's DistributedDataParallel has it by default (Li et al.
2020, section 5.3): large enough for the link's bandwidth, small enough to start early."""


@dataclass(eq=False)
class _Bucket:
    """Gradients in one flat tensor, of which each parameter's is a view."""

    flat: Tensor
    parameters: list[nn.Parameter]
    views: list[Tensor]
    waits_for: int = 0
    work: dist.Work | None = None


class Replicated:
    """Sums the gradients of parameters that all ranks of an axis have alike.

    While ``sync`` is on, a bucket leaves as soon as its last gradient is there, in an order that
    is the same on all ranks. Gradients are views of their bucket; a gradient that somebody set
    anew is copied into it.

    Attributes:
        sync: Whether backward passes from now on send gradients.
        passes: How often each gradient is added to before it is complete.
        final: Called with the parameters of each bucket, in order, when their sums are complete;
            may use collectives: it comes at the same place between those of the buckets everywhere.
        flights: Measures how long sums are on their way, where somebody wants to know.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], axis: Axis, *, divide: float = 1.0
    ) -> None:
        """Lay out the buckets.

        Args:
            parameters: In the order of the forward pass; the backward comes from the end.
            axis: The ranks with equal parameters.
            divide: By what the sum is divided: 1, or the number of ranks for a mean.
        """
        self.sync, self.passes = True, 1
        self.final: Callable[[Sequence[nn.Parameter]], None] | None = None
        self.flights: Flights | None = None
        self._axis, self._divide = axis, divide
        self._buckets = _buckets([p for p in reversed(parameters) if p.requires_grad])
        self._next = self._complete = 0
        self._places = {
            id(parameter): (bucket, view)
            for bucket in self._buckets
            for parameter, view in zip(bucket.parameters, bucket.views, strict=True)
        }
        self._seen: dict[int, int] = {}
        for bucket in self._buckets:
            for parameter in bucket.parameters:
                if axis.size > 1:
                    parameter.register_post_accumulate_grad_hook(self._came)
        self._rearm()

    def zero(self) -> None:
        """Set all gradients to zero."""
        for bucket in self._buckets:
            bucket.flat.zero_()
            for parameter, view in zip(bucket.parameters, bucket.views, strict=True):
                parameter.grad = view

    def finish(self) -> None:
        """Send what was not sent, wait for all, and be ready for the next backward pass."""
        while self._next < len(self._buckets):
            self._send(self._buckets[self._next])
        self._wait(len(self._buckets))
        self._rearm()

    def _came(self, parameter: nn.Parameter) -> None:
        """Note that a gradient was added to, and send every bucket that is complete in its turn."""
        if not self.sync:
            return
        self._seen[id(parameter)] = seen = self._seen.get(id(parameter), 0) + 1
        if seen == self.passes:
            self._places[id(parameter)][0].waits_for -= 1
        while self._next < len(self._buckets) and self._buckets[self._next].waits_for <= 0:
            self._send(self._buckets[self._next])

    def _send(self, bucket: _Bucket) -> None:
        for parameter, view in zip(bucket.parameters, bucket.views, strict=True):
            if parameter.grad is None:
                view.zero_()
            elif parameter.grad.data_ptr() != view.data_ptr():
                view.copy_(parameter.grad)
            parameter.grad = view
        self._next += 1
        if self._axis.size > 1:
            bucket.work = dist.all_reduce(bucket.flat, group=self._axis.group, async_op=True)
            if self.flights is not None and bucket.work is not None:
                self.flights.left(bucket.work)
        if self.final is not None:
            self._wait(self._next - 1)  # while this one is on its way

    def _wait(self, count: int) -> None:
        """Wait until the sums of the first ``count`` buckets are complete."""
        while self._complete < count:
            bucket = self._buckets[self._complete]
            self._complete += 1
            if bucket.work is not None:
                bucket.work.wait() if self.flights is None else self.flights.await_(bucket.work)
            if self._divide != 1.0:
                bucket.flat.div_(self._divide)
            if self.final is not None:
                self.final(bucket.parameters)

    def _rearm(self) -> None:
        self._next = self._complete = 0
        self._seen.clear()
        for bucket in self._buckets:
            bucket.waits_for, bucket.work = len(bucket.parameters), None


def sum_together(tensors: Sequence[Tensor], axis: Axis) -> None:
    """Add up each tensor over the ranks of an axis, in place, in one collective a number format."""
    for flat, alike in _flat(tensors, axis):
        dist.all_reduce(flat, group=axis.group)
        _write(flat, alike)


def copy_together(tensors: Sequence[Tensor], axis: Axis) -> None:
    """Give all ranks of an axis what its first has, in place, in one collective a format."""
    for flat, alike in _flat(tensors, axis):
        dist.broadcast(flat, group=axis.group, group_src=0)
        _write(flat, alike)


def _flat(tensors: Sequence[Tensor], axis: Axis) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """Yield the tensors of each format as one, and themselves; nothing for a single rank."""
    formats: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors if axis.size > 1 else ():
        formats.setdefault(tensor.dtype, []).append(tensor)
    for alike in formats.values():
        yield torch.cat([tensor.detach().flatten() for tensor in alike]), alike


def _write(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    parts = flat.split([tensor.numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.detach().copy_(part.view(tensor.shape))


def _buckets(parameters: Sequence[nn.Parameter]) -> list[_Bucket]:
    """Fill buckets of one device and number format each, in the order given."""
    runs: list[list[nn.Parameter]] = []
    size_bytes = 0
    for parameter in parameters:
        alike = runs and (runs[-1][-1].dtype, runs[-1][-1].device) == (
            parameter.dtype,
            parameter.device,
        )
        own_bytes = parameter.numel() * parameter.element_size()
        if not alike or size_bytes + own_bytes > BUCKET_BYTES:
            runs.append([])
            size_bytes = 0
        runs[-1].append(parameter)
        size_bytes += own_bytes
    return [_bucket(run) for run in runs]


def _bucket(parameters: list[nn.Parameter]) -> _Bucket:
    flat = torch.zeros(
        sum(p.numel() for p in parameters), dtype=parameters[0].dtype, device=parameters[0].device
    )
    parts = flat.split([p.numel() for p in parameters])
    views = [part.view(p.shape) for part, p in zip(parts, parameters, strict=True)]
    return _Bucket(flat, parameters, views)
