"""The feed-forward part of a layer: dense, or a mixture of experts with routing and balance.

No token is dropped: each goes through its ``per_token`` best experts, whatever their load. A loss
a sequence keeps the load even (DeepSeek-V3, 2024, equations 17-20), so that its sum does not
depend on how a batch is cut into micro-batches and ranks.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gridloom.model.recipe import GptShape
from gridloom.model.transformer import Experts
from gridloom.runtime.links import WHOLE, Links


class FeedForward(nn.Module):
    """SwiGLU: ``down(silu(gate(x)) * up(x))``, gate and up in one matrix.

    The rows of ``up`` come in groups of gate rows and as many up rows; every number of tensor
    ranks that divides the heads divides the groups too, so that a cut into equal runs of rows
    leaves each rank the gates of its own ups.
    """

    def __init__(self, shape: GptShape, width: int, links: Links = WHOLE) -> None:
        super().__init__()
        self.groups = gate_groups(shape, width) // links.tensor
        self.up = nn.Linear(shape.hidden, 2 * width // links.tensor, bias=False)
        self.down = nn.Linear(width // links.tensor, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[..., hidden]``; where the matrices are cut, this rank's addend."""
        moved: Tensor = self.down(gated(self.up(x), self.groups))
        return moved


class ExpertWeights(nn.Module):
    """The matrices of the experts that this rank holds, applied to rows sorted by expert.

    Attributes:
        up: ``[experts, 2 ffn, hidden]``, rows in groups as in ``FeedForward``.
        down: ``[experts, hidden, ffn]``.
    """

    def __init__(self, shape: GptShape, experts: Experts, links: Links) -> None:
        super().__init__()
        here, width = experts.count // links.expert, experts.ffn // links.tensor
        self.groups = gate_groups(shape, experts.ffn) // links.tensor
        self.up = nn.Parameter(torch.empty(here, 2 * width, shape.hidden))
        self.down = nn.Parameter(torch.empty(here, shape.hidden, width))

    def forward(self, rows: Tensor, counts: list[int]) -> Tensor:
        """Return ``[rows, hidden]``; ``counts`` says how many of ``rows`` are each expert's."""
        parts = [
            F.linear(gated(F.linear(part, up), self.groups), down)
            for part, up, down in zip(rows.split(counts), self.up, self.down, strict=True)
        ]
        return torch.cat(parts)


class MixtureOfExperts(nn.Module):
    """The routed experts of a layer and, where the shape has them, the shared ones."""

    def __init__(self, shape: GptShape, experts: Experts, links: Links = WHOLE) -> None:
        super().__init__()
        self.links, self.per_token, self.weight = links, experts.per_token, shape.router_loss
        self.router = nn.Linear(shape.hidden, experts.count, bias=False)
        self.experts = ExpertWeights(shape, experts, links)
        self.shared: FeedForward | None = None
        self.shared_gate: nn.Linear | None = None
        if experts.shared_ffn:
            self.shared = FeedForward(shape, experts.shared_ffn, links)
            if experts.shared_gate:
                self.shared_gate = nn.Linear(shape.hidden, 1, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the contribution ``[batch, time, hidden]`` and the balancing loss, both addends.

        The loss is summed over tokens, like the cross-entropy.
        """
        batch, time, hidden = x.shape
        with torch.autocast(x.device.type, enabled=False):  # few numbers, and choices hang on them
            scores = F.linear(x.float(), self.router.weight.float()).softmax(dim=-1)
        weights, chosen = scores.topk(self.per_token, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        seen = self._routed(x.reshape(-1, hidden), chosen.reshape(-1))
        mixed = (seen.view(batch, time, self.per_token, hidden) * weights[..., None]).sum(dim=2)
        mixed = mixed.to(seen.dtype)
        if self.shared is not None:
            common = self.shared(x)
            gate = 1.0 if self.shared_gate is None else self.shared_gate(x).sigmoid()
            mixed = mixed + gate * common
        return mixed, self._imbalance(scores, chosen)

    def _routed(self, rows: Tensor, chosen: Tensor) -> Tensor:
        """Return ``[len(chosen), hidden]``: each row through each of its experts."""
        order = chosen.argsort(stable=True)
        counts = chosen.bincount(minlength=self.router.weight.shape[0])
        sent = take(rows, order // self.per_token, inverse(order), self.per_token)
        came, numbers = self.links.to_experts(sent, counts)
        back = self._through(came, numbers)
        returned = self.links.from_experts(back, counts, numbers)
        return take(returned, inverse(order), order)

    def _through(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Apply this rank's experts to rows by sender; ``counts`` is ``[senders, experts]``."""
        senders, experts = counts.shape
        per_expert = counts.sum(dim=0).tolist()
        if senders == 1:
            done: Tensor = self.experts(rows, per_expert)
            return done
        owner = torch.arange(experts, device=rows.device).repeat(senders)
        order = owner.repeat_interleave(counts.flatten()).argsort(stable=True)
        there = inverse(order)
        sorted_rows = take(rows, order, there)
        return take(self.experts(sorted_rows, per_expert), there, order)

    def _imbalance(self, scores: Tensor, chosen: Tensor) -> Tensor:
        """Return the balancing loss of these sequences, times their tokens.

        For a sequence of ``T`` tokens: ``sum over experts of f P`` with ``f`` the experts' count
        times the share of choices that fell on one, and ``P`` its mean score.
        """
        batch, _, experts = scores.shape
        flat = chosen.reshape(batch, -1)
        counts = torch.zeros(batch, experts, device=scores.device)
        counts.scatter_add_(1, flat, torch.ones_like(flat, dtype=counts.dtype))
        counts = self.links.over_sequence(counts)
        load = experts * counts / counts.sum(dim=1, keepdim=True)
        # the mean over T, times T tokens, is the sum; where T is spread over ranks, an addend
        return self.weight / self.links.tensor * (load * scores.sum(dim=1)).sum()


def take(rows: Tensor, index: Tensor, back: Tensor, repeats: int = 1) -> Tensor:
    """Return ``rows[index]``, with a gradient that adds up in a fixed order on every device.

    Args:
        rows: ``[rows, width]``.
        index: Rows to take, each ``repeats`` times.
        back: Where the takings of row 0, then of row 1, and so on, stand in the result.
        repeats: How often each row is taken.
    """
    taken: Tensor = _Take.apply(rows, index, back, repeats)  # type: ignore[no-untyped-call]
    return taken


class _Take(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor, back: Tensor, repeats: int) -> Tensor:
        ctx.save_for_backward(back)
        ctx.repeats = repeats
        return rows[index]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (back,) = ctx.saved_tensors
        taken = gradient[back]
        if ctx.repeats > 1:
            taken = taken.view(-1, ctx.repeats, gradient.shape[-1]).sum(dim=1)
        return taken, None, None, None


def inverse(order: Tensor) -> Tensor:
    """Return the permutation that undoes ``order``."""
    undone = torch.empty_like(order)
    undone[order] = torch.arange(len(order), device=order.device)
    return undone


def gate_groups(shape: GptShape, width: int) -> int:
    """Return the groups in which gate and up rows of a layer of ``width`` lie."""
    return math.gcd(width, shape.kv_heads)


def gated(both: Tensor, groups: int) -> Tensor:
    """Return ``silu(gate) * up`` of ``[..., 2 width]``, whose halves lie group by group."""
    if groups == 1:
        gate, up = both.chunk(2, dim=-1)
        return F.silu(gate) * up
    halves: Tensor = both.unflatten(-1, (groups, 2, -1))
    gate, up = halves.unbind(-2)
    return (F.silu(gate) * up).flatten(-2)
