"""The model: a decoder-only transformer in one file, small enough to read at a sitting.

Pre-norm blocks of RMSNorm (Zhang and Sennrich 2019), rotary positions (Su et al. 2021),
grouped-query attention (Ainslie et al. 2023) and a SwiGLU feed-forward (Shazeer 2020), without
biases. Shapes are written ``[batch, time, ...]``.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gridloom.base.errors import InputError, Problem
from gridloom.model.recipe import GptShape

IGNORED = -100
"""A target that counts neither in the loss nor among the tokens."""


class Attention(nn.Module):
    """Causal grouped-query attention; queries, keys and values come from one projection."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.heads, self.kv_heads = shape.heads, shape.kv_heads
        self.head_size = shape.hidden // shape.heads
        rows = (shape.heads + 2 * shape.kv_heads) * self.head_size
        self.qkv = nn.Linear(shape.hidden, rows, bias=False)
        self.out = nn.Linear(shape.hidden, shape.hidden, bias=False)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        """Return ``[batch, time, hidden]``, every position having seen itself and its past."""
        batch, time, hidden = x.shape
        heads = self.qkv(x).view(batch, time, -1, self.head_size).transpose(1, 2)
        turned = rotate(heads[:, : self.heads + self.kv_heads], rotary)
        query, key = turned[:, : self.heads], turned[:, self.heads :]
        value = heads[:, self.heads + self.kv_heads :]
        seen = F.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=self.heads != self.kv_heads
        )
        mixed: Tensor = self.out(seen.transpose(1, 2).reshape(batch, time, hidden))
        return mixed


class FeedForward(nn.Module):
    """SwiGLU: ``down(silu(gate(x)) * up(x))``, gate and up in one matrix."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.up = nn.Linear(shape.hidden, 2 * shape.ffn, bias=False)
        self.down = nn.Linear(shape.ffn, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[batch, time, hidden]``."""
        gate, up = self.up(x).chunk(2, dim=-1)
        moved: Tensor = self.down(F.silu(gate) * up)
        return moved


class Block(nn.Module):
    """One layer: attention and feed-forward, each reading a normed copy of the stream."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.hidden)
        self.attention = Attention(shape)
        self.ffn_norm = nn.RMSNorm(shape.hidden)
        self.ffn = FeedForward(shape)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        """Return the stream, ``[batch, time, hidden]``, with both contributions added."""
        x = x + self.attention(self.attention_norm(x), rotary)
        moved: Tensor = x + self.ffn(self.ffn_norm(x))
        return moved


class Gpt(nn.Module):
    """The whole model; equal seeds give equal weights on every rank and every device."""

    def __init__(self, shape: GptShape, seed: int) -> None:
        super().__init__()
        check_shape(shape)
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.hidden)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden)
        self.head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)
        if shape.tied_embeddings:
            self.head.weight = self.embedding.weight
        self._rotary: dict[tuple[int, torch.device], tuple[Tensor, Tensor]] = {}
        self._initialise(torch.Generator().manual_seed(seed))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits ``[batch, time, vocabulary]`` for ``tokens`` ``[batch, time]``."""
        x = self.embedding(tokens)
        rotary = self._rotary_for(tokens.shape[1], tokens.device)
        for block in self.blocks:
            x = block(x, rotary)
        logits: Tensor = self.head(self.norm(x))
        return logits

    def loss_sum(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy in nats, summed over the targets that are not ``IGNORED``.

        The sum and not the mean: shares of uneven size are added up before they are divided.
        """
        logits = self(tokens).flatten(0, 1).float()
        return F.cross_entropy(logits, targets.flatten(), ignore_index=IGNORED, reduction="sum")

    def _rotary_for(self, time: int, device: torch.device) -> tuple[Tensor, Tensor]:
        if (time, device) not in self._rotary:
            head_size = self.shape.hidden // self.shape.heads
            table = rotary_table(time, head_size, self.shape.rope_base)
            self._rotary[time, device] = (table[0].to(device), table[1].to(device))
        return self._rotary[time, device]

    def _initialise(self, generator: torch.Generator) -> None:
        """Draw weights of variance 1/fan-in; what is added to the stream starts small.

        The two projections of a block that write to the stream are divided by the square root of
        their number (GPT-2, Radford et al. 2019), so that its variance does not grow with depth.
        """
        residual = 1 / math.sqrt(2 * self.shape.layers)
        for name, weight in self.named_parameters():
            if weight.dim() < 2:  # a vector: the norms start as ones
                continue
            deviation = 0.02 if name == "embedding.weight" else 1 / math.sqrt(weight.shape[1])
            if name.endswith(("attention.out.weight", "ffn.down.weight")):
                deviation *= residual
            nn.init.normal_(weight, std=deviation, generator=generator)


def check_shape(shape: GptShape) -> None:
    """Raise ``InputError`` naming every field of a shape that cannot be built."""
    problems = [
        Problem(f"is {value}, must be at least 1", field=f"model.{field}")
        for field in ("layers", "hidden", "heads", "kv_heads", "ffn")
        if (value := getattr(shape, field)) < 1
    ]
    if not problems:
        if shape.hidden % (2 * shape.heads):
            text = f"is {shape.hidden}, must be a multiple of twice the heads ({2 * shape.heads})"
            problems.append(Problem(text, field="model.hidden"))
        if shape.heads % shape.kv_heads:
            text = f"is {shape.kv_heads}, must divide the heads ({shape.heads})"
            problems.append(Problem(text, field="model.kv_heads"))
    if problems:
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
    """Turn every pair (first half, second half) of ``[batch, heads, time, size]`` by its angle."""
    cosine, sine = rotary
    swapped = heads.roll(heads.shape[-1] // 2, dims=-1)
    return (heads * cosine + swapped * sine).type_as(heads)
