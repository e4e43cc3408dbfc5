"""The links between the parts of a model that is cut over tensor, context and expert axes."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.bias import causal_lower_right

from gridloom.runtime.inside.axes import Axes, Axis
from gridloom.runtime.inside.collectives import (
    exchange,
    gather,
    gather_equal,
    own_part,
    part_of,
    spread,
    sum_equal,
    sum_scatter,
    summed,
)
from gridloom.runtime.links import Links, causal_mask

_TIME = 1
"""Dimension of the tokens in ``[batch, time, ...]``."""


class CutLinks(Links):
    """Links over the axes of a site.

    Tensor ranks share heads and feed-forward rows. Each embeds and scores a part of the tokens
    alone, so that the work of the head is shared too; between the blocks' matrices the stream is
    whole on each of them, or spread over them (sequence parallel).

    Context ranks share each sequence: it is cut into twice as many chunks as ranks, and a rank
    takes one from the front and its mirror from the back, so that the causal mask gives all the
    same work. Keys and values are gathered (Llama 3, 2024, section 3.3.2).
    """

    def __init__(self, axes: Axes) -> None:
        self._tensor, self._context, self._expert = axes.tensor, axes.context, axes.expert
        self.tensor, self.expert = axes.tensor.size, axes.expert.size
        self._stream_cut = axes.plan.sequence_parallel and self.tensor > 1
        self.token_stream = self.tensor if self._stream_cut else 1

    def rotary(self, table: Tensor, time: int) -> Tensor:
        """As ``Links``."""
        return table[context_positions(self.positions(time), self._context)]

    def positions(self, time: int) -> int:
        """As ``Links``."""
        return time * self._context.size

    def share(self, tokens: Tensor) -> Tensor:
        """As ``Links``."""
        return part_of(tokens, self._tensor, _TIME) if self.tensor > 1 else tokens

    def embedded(self, x: Tensor) -> Tensor:
        """As ``Links``."""
        if self.tensor == 1 or self._stream_cut:
            return x
        return gather_equal(x, self._tensor, _TIME)

    def scored(self, x: Tensor) -> Tensor:
        """As ``Links``."""
        if self.tensor == 1 or self._stream_cut:
            return x
        return own_part(x, self._tensor, _TIME)

    def enter(self, x: Tensor) -> Tensor:
        """As ``Links``."""
        if self.tensor == 1:
            return x
        if self._stream_cut:
            return gather(x, self._tensor, _TIME)
        return spread(x, self._tensor)

    def leave(self, x: Tensor) -> Tensor:
        """As ``Links``."""
        if self.tensor == 1:
            return x
        if self._stream_cut:
            return sum_scatter(x, self._tensor, _TIME)
        return sum_equal(x, self._tensor)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """As ``Links``: each of the two chunks of queries sees the keys up to its own end."""
        ranks = self._context.size
        if ranks == 1:
            return super().attend(query, key, value)
        keys, values = self._whole(key), self._whole(value)
        chunk = query.shape[2] // 2
        front, back = self._context.position, 2 * ranks - 1 - self._context.position
        seen = [
            attend_to_end(part, keys[:, :, :end], values[:, :, :end])
            for part, end in (
                (query[:, :, :chunk], (front + 1) * chunk),
                (query[:, :, chunk:], (back + 1) * chunk),
            )
        ]
        return torch.cat(seen, dim=2)

    def over_sequence(self, counts: Tensor) -> Tensor:
        """As ``Links``."""
        return summed(counts, self._context) if self._context.size > 1 else counts

    def to_experts(self, rows: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """As ``Links``."""
        if self.expert == 1:
            return super().to_experts(rows, counts)
        outward = counts.view(self.expert, -1)
        came = torch.empty_like(outward)
        dist.all_to_all_single(came, outward, group=self._expert.group)
        sent, received = outward.sum(dim=1).tolist(), came.sum(dim=1).tolist()
        return exchange(rows, sent, received, self._expert), came

    def from_experts(self, rows: Tensor, counts: Tensor, came: Tensor) -> Tensor:
        """As ``Links``."""
        if self.expert == 1:
            return rows
        outward = counts.view(self.expert, -1)
        return exchange(rows, came.sum(dim=1).tolist(), outward.sum(dim=1).tolist(), self._expert)

    def _whole(self, part: Tensor) -> Tensor:
        """Gather ``[batch, heads, time, size]`` over the context ranks, in the order of time."""
        chunks = gather(part, self._context, 2).chunk(2 * self._context.size, dim=2)
        return torch.cat([*chunks[0::2], *reversed(chunks[1::2])], dim=2)


def context_positions(positions: int, axis: Axis) -> Tensor:
    """Return which of a sequence's positions the rank of the context axis takes, in order."""
    if axis.size == 1:
        return torch.arange(positions)
    chunks = torch.arange(positions).chunk(2 * axis.size)
    return torch.cat((chunks[axis.position], chunks[2 * axis.size - 1 - axis.position]))


def attend_to_end(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Return causal attention of the last positions, whose keys are the last of ``key``."""
    grouped = query.shape[1] != key.shape[1]
    if query.shape[2] == key.shape[2]:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)
    sizes = (query.shape[2], key.shape[2])
    # the CPU's kernel wants the mask itself, others only its kind
    on_cpu = query.device.type == "cpu"
    mask = causal_mask(*sizes, query.device) if on_cpu else causal_lower_right(*sizes)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=grouped)
