"""The model: a decoder-only transformer in one file, small enough to read at a sitting.

Pre-norm blocks of RMSNorm (Zhang and Sennrich 2019), rotary positions (Su et al. 2021),
grouped-query attention (Ainslie et al. 2023) and a SwiGLU feed-forward (Shazeer 2020), without
biases. Shapes are written ``[batch, time, ...]``.
"""

import hashlib
import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gridloom.base.errors import InputError
from gridloom.model.parallel import Recompute
from gridloom.model.plan_check import shape_problems
from gridloom.model.recipe import GptShape
from gridloom.runtime.feed_forward import FeedForward, MixtureOfExperts
from gridloom.runtime.links import WHOLE, Links
from gridloom.runtime.recompute import run_attention, run_layer

IGNORED = -100
"""A target that counts neither in the loss nor among the tokens."""


@dataclass(frozen=True)
class Part:
    """Which part of the layers a stage of a pipeline holds.

    Attributes:
        layers: Numbers of its blocks, in order.
        first: It embeds the tokens.
        last: It gives the logits.
    """

    layers: Sequence[int]
    first: bool = True
    last: bool = True


class Attention(nn.Module):
    """Causal grouped-query attention; queries, keys and values come from one projection.

    Its rows lie by key head: the queries that share a key, the key, the value. So a cut into equal
    runs of rows leaves each rank whole groups.
    """

    def __init__(self, shape: GptShape, links: Links = WHOLE) -> None:
        super().__init__()
        self.links = links
        self.heads, self.kv_heads = shape.heads // links.tensor, shape.kv_heads // links.tensor
        self.head_size = shape.hidden // shape.heads
        rows = (self.heads + 2 * self.kv_heads) * self.head_size
        self.qkv = nn.Linear(shape.hidden, rows, bias=False)
        self.out = nn.Linear(self.heads * self.head_size, shape.hidden, bias=False)
        self.recompute: Recompute = "none"

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        """Return ``[batch, time, hidden]``, every position having seen itself and its past.

        Where the heads are cut, the result is this rank's addend.
        """
        batch, time, _ = x.shape
        heads = self.qkv(x).view(batch, time, self.kv_heads, -1, self.head_size)
        seen = run_attention(self.recompute, self._core, heads, rotary)
        mixed: Tensor = self.out(seen.transpose(1, 2).reshape(batch, time, -1))
        return mixed

    def _core(self, heads: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        """Turn ``[batch, time, key heads, queries of each + 2, size]`` into what heads saw."""
        queries = rotate(heads[..., :-2, :].permute(0, 2, 3, 1, 4), rotary).flatten(1, 2)
        keys, values = heads[..., -2, :].transpose(1, 2), heads[..., -1, :].transpose(1, 2)
        return self.links.attend(queries, rotate(keys, rotary), values)


class Block(nn.Module):
    """One layer: attention and feed-forward, each reading a normed copy of the stream."""

    def __init__(self, shape: GptShape, number: int = 0, links: Links = WHOLE) -> None:
        super().__init__()
        self.links = links
        self.attention_norm = nn.RMSNorm(shape.hidden)
        self.attention = Attention(shape, links)
        self.ffn_norm = nn.RMSNorm(shape.hidden)
        experts = shape.experts_at(number)
        self.ffn: FeedForward | MixtureOfExperts = (
            MixtureOfExperts(shape, experts, links)
            if experts is not None
            else FeedForward(shape, shape.ffn, links)
        )
        self.recompute: Recompute = "none"

    def forward(
        self, x: Tensor, router_loss: Tensor, rotary: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return the stream, ``[batch, time, hidden]``, with both contributions added.

        Beside it ``router_loss`` comes back, with the layer's own added where it has experts.
        """
        moved: tuple[Tensor, Tensor] = run_layer(
            self.recompute, self._layer, x, router_loss, rotary
        )
        return moved

    def _layer(
        self, x: Tensor, router_loss: Tensor, rotary: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        links = self.links
        x = x + links.leave(self.attention(links.enter(self.attention_norm(x)), rotary))
        read = links.enter(self.ffn_norm(x))
        if isinstance(self.ffn, FeedForward):
            return x + links.leave(self.ffn(read)), router_loss
        moved, imbalance = self.ffn(read)
        return x + links.leave(moved), router_loss + imbalance


class Gpt(nn.Module):
    """The whole model, or a part of it; equal seeds give equal weights however it is cut.

    Attributes:
        shape: Of the whole model.
        links: How its blocks reach the ranks that hold the rest.
        part: The layers that are here.
        low_precision: Format of the matrix products where it is not the weights'.
    """

    def __init__(
        self, shape: GptShape, seed: int, links: Links = WHOLE, part: Part | None = None
    ) -> None:
        super().__init__()
        check_shape(shape)
        self.shape, self.links = shape, links
        self.part = part or Part(range(shape.layers))
        self.low_precision: torch.dtype | None = None
        if self.part.first:
            self.embedding = nn.Embedding(shape.vocabulary, shape.hidden)
        self.blocks = nn.ModuleDict({str(i): Block(shape, i, links) for i in self.part.layers})
        if self.part.last:
            self.norm = nn.RMSNorm(shape.hidden)
            self.head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)
            if shape.tied_embeddings and self.part.first:
                self.head.weight = self.embedding.weight
        self._rotary: dict[tuple[int, torch.device], tuple[Tensor, Tensor]] = {}
        if not next(self.parameters()).is_meta:
            self._initialise(seed)

    def forward(self, x: Tensor, router_loss: Tensor | None = None) -> Any:
        """Return logits ``[batch, time, vocabulary]`` for tokens ``[batch, time]``.

        A part that does not begin with the embedding takes the stream ``[batch, time, hidden]``
        instead, and one that does not end with the head returns it. Where the model has experts,
        the router's loss so far comes and goes beside it.
        """
        low = self.low_precision
        narrow = torch.autocast(x.device.type, dtype=low) if low is not None else nullcontext()
        with narrow:
            loss = self._no_loss(x.device) if router_loss is None else router_loss
            if self.part.first:
                x = self.links.embedded(self.embedding(self.links.share(x)))
            rotary = self._rotary_for(x.shape[1] * self.links.token_stream, x.device)
            for block in self.blocks.values():
                x, loss = block(x, loss, rotary)
            if self.part.last:
                x = self.head(self.norm(self.links.scored(x)))
        return (x, loss) if self.shape.experts is not None else x

    def losses(self, tokens: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the cross-entropy and the router's loss, both summed over the targets.

        Sums and not means: shares of uneven size are added up before they are divided. Where the
        tokens are spread over ranks, both are this rank's addends.
        """
        given = self(tokens)
        logits, router_loss = given if isinstance(given, tuple) else (given, given.new_zeros(()))
        return cross_entropy(logits, self.links.share(targets)), router_loss

    def loss_sum(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy in nats, summed over the targets that are not ``IGNORED``.

        While gradients are recorded, the router's loss is in it too.
        """
        entropy, router_loss = self.losses(tokens, targets)
        return entropy + router_loss if torch.is_grad_enabled() else entropy

    def _no_loss(self, device: torch.device) -> Tensor:
        """Return where the router's loss starts; a stage always passes a gradient back to it."""
        routed = self.shape.experts is not None
        return torch.zeros((), device=device, requires_grad=routed and torch.is_grad_enabled())

    def _rotary_for(self, time: int, device: torch.device) -> tuple[Tensor, Tensor]:
        if (time, device) not in self._rotary:
            head_size = self.shape.hidden // self.shape.heads
            tables = rotary_table(self.links.positions(time), head_size, self.shape.rope_base)
            cosine, sine = (self.links.rotary(table, time).to(device) for table in tables)
            self._rotary[time, device] = (cosine, sine)
        return self._rotary[time, device]

    def _initialise(self, seed: int) -> None:
        with torch.no_grad():
            for name, weight in self.named_parameters():
                weight.copy_(draw(self.shape, seed, name, weight.shape))


def draw(shape: GptShape, seed: int, name: str, size: Sequence[int]) -> Tensor:
    """Return the initial fp32 weights of one whole parameter, of ``size``.

    They depend on the seed and the name alone, so that a rank draws what it holds and nothing
    else. Their variance is 1/fan-in; the two projections of a block that write to the stream are
    divided by the square root of their number (GPT-2, Radford et al. 2019), so that its variance
    does not grow with depth. The norms, which are the vectors, start as ones.
    """
    if len(size) < 2:
        return torch.ones(tuple(size))
    name = weight_name(shape, name)
    deviation = 0.02 if name == EMBEDDING else 1 / math.sqrt(size[-1])
    if name.endswith(("attention.out.weight", "down.weight", "experts.down")):
        deviation /= math.sqrt(2 * shape.layers)
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
    return torch.empty(tuple(size)).normal_(std=deviation, generator=generator)


EMBEDDING = "embedding.weight"
"""Name of the embedding, which is the head's too where they are tied."""


def weight_name(shape: GptShape, name: str) -> str:
    """Return under which name a parameter's numbers go: a tied head's are the embedding's."""
    return EMBEDDING if shape.tied_embeddings and name == "head.weight" else name


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy in nats summed over the targets that are not ``IGNORED``."""
    return F.cross_entropy(
        logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )


def check_shape(shape: GptShape) -> None:
    """Raise ``InputError`` naming every field of a shape that cannot be built."""
    if problems := shape_problems(shape):
        raise InputError(problems)


def rotary_table(time: int, head_size: int, base: float) -> tuple[Tensor, Tensor]:
    """Return cosine and signed sine, ``[time, head_size]``, of the rotary angles.

    Angle of position ``t`` and pair ``i``: ``t * base ** (-2 i / head_size)``.
    """
    frequency = base ** (-torch.arange(0, head_size, 2, dtype=torch.float32) / head_size)
    angle = torch.outer(torch.arange(time, dtype=torch.float32), frequency)
    cosine = torch.cat((angle.cos(), angle.cos()), dim=-1)
    return cosine, torch.cat((-angle.sin(), angle.sin()), dim=-1)


def rotate(heads: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Turn every pair (first half, second half) of ``[..., time, size]`` by its angle."""
    cosine, sine = rotary
    swapped = heads.roll(heads.shape[-1] // 2, dims=-1)
    return (heads * cosine + swapped * sine).type_as(heads)
