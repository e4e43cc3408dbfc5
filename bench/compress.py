"""What the codecs of the runtime cost and lose, beside the plain ways to do the same.

    python -m bench.compress [--numbers 12000000] [--rounds 3] [--json]

Bits a number, relative error (in percent) of three kinds of numbers, and CPU milliseconds a million
numbers on one thread, the least of the rounds, which take all codecs in turn. The kinds: normal;
Student's t with 3 degrees of freedom; pseudo-gradients of a small GPT after 30 steps of AdamW on
the sources of Python's standard library, its fifth such round. ``even`` is the plain way: levels at
equal distances and an fp32 scale a block. ``topk`` is ``torch.topk`` with int32 places.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from gridloom.model.recipe import GptShape
from gridloom.runtime.compress import (
    Blocks,
    Cast,
    Codec,
    DeepGradient,
    DeepPolicy,
    Feedback,
    LowRank,
    TopK,
    seeded,
)
from gridloom.runtime.gpt import Gpt

SHAPE = GptShape(layers=4, hidden=192, heads=6, kv_heads=6, ffn=512)


class Even:
    """The peer: ``even`` above."""

    def __init__(self, bits: int, block: int) -> None:
        self.bits, self.block, self.most = bits, block, 2 ** (bits - 1) - 1

    def size_bytes(self, numbers: int) -> int:
        blocks = -(-numbers // self.block)
        return blocks * (4 + self.block * self.bits // 8)

    def encode(self, values: Tensor) -> Tensor:
        blocks = nn.functional.pad(values, (0, -len(values) % self.block)).view(-1, self.block)
        scales = blocks.abs().amax(dim=1, keepdim=True) / self.most
        levels = torch.where(scales > 0, blocks / scales, 0.0).round().to(torch.int8).flatten()
        if self.bits == 4:
            nibbles = (levels & 0xF).view(torch.uint8)
            levels = (nibbles[0::2] | (nibbles[1::2] << 4)).view(torch.int8)
        return torch.cat([scales.flatten().view(torch.uint8), levels.view(torch.uint8)])

    def decode(self, payload: Tensor, numbers: int) -> Tensor:
        head = 4 * -(-numbers // self.block)
        scales, levels = payload[:head].view(torch.float32), payload[head:].view(torch.int8)
        if self.bits == 4:
            levels = torch.stack([(levels << 4) >> 4, levels >> 4], dim=1).flatten()
        return (levels.view(-1, self.block) * scales.unsqueeze(1)).flatten()[:numbers]


class PlainTopK:
    """The peer: ``topk`` above."""

    def __init__(self, share: float) -> None:
        self.share = share

    def size_bytes(self, numbers: int) -> int:
        return 8 * round(self.share * numbers)

    def encode(self, values: Tensor) -> Tensor:
        count = round(self.share * len(values))
        places = values.abs().topk(count, sorted=False).indices
        halves = [places.to(torch.int32), values[places]]
        return torch.cat([half.view(torch.uint8) for half in halves])

    def decode(self, payload: Tensor, numbers: int) -> Tensor:
        places, chosen = payload.chunk(2)
        values = torch.zeros(numbers)
        values[places.view(torch.int32).to(torch.int64)] = chosen.view(torch.float32)
        return values


def pseudo_gradient() -> tuple[Tensor, list[tuple[int, ...]]]:
    """Return what a small model learns in its fifth round of 30 steps, and its shapes."""
    sources = sorted(Path(os.__file__).parent.glob("*.py"))
    text = bytearray(b"".join(path.read_bytes() for path in sources))
    tokens = torch.frombuffer(text, dtype=torch.uint8).to(torch.int64)
    model, chance = Gpt(SHAPE, seed=0), seeded(0, "bench", 0)
    weights = list(model.parameters())
    optimizer = torch.optim.AdamW(weights, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    anchor = nn.utils.parameters_to_vector(weights).detach()
    for step in range(150):
        if step == 120:
            anchor = nn.utils.parameters_to_vector(weights).detach().clone()
        starts = torch.randint(0, len(tokens) - 129, (4,), generator=chance).tolist()
        seen = torch.stack([tokens[start : start + 129] for start in starts])
        optimizer.zero_grad()
        (model.loss_sum(seen[:, :-1], seen[:, 1:]) / 512).backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
    moved = anchor - nn.utils.parameters_to_vector(weights).detach()
    return moved, [tuple(weight.shape) for weight in weights]


def codecs() -> dict[str, Codec]:
    """Return what is compared; the peer of a codec stands before it."""
    bf16 = Cast(torch.bfloat16)
    return {
        "bf16": bf16,
        "even 8, block 256": Even(8, 256),
        "Blocks(8)": Blocks(8),
        "Blocks(8) by chance": Blocks(8, generator=seeded(0, "bench", 1)),
        "even 4, block 64": Even(4, 64),
        "Blocks(4)": Blocks(4),
        "Blocks(4) by chance": Blocks(4, generator=seeded(0, "bench", 2)),
        "topk 1 %": PlainTopK(0.01),
        "TopK(1 %)": TopK(0.01),
        "TopK(1 %, bf16)": TopK(0.01, bf16),
        "topk 0.1 %": PlainTopK(0.001),
        "TopK(0.1 %)": TopK(0.001),
    }


def cpu_ms(work: Callable[[], object]) -> float:
    start = time.thread_time()
    work()
    return 1e3 * (time.thread_time() - start)


def relative_error(codec: Codec, values: Tensor) -> float:
    back = codec.decode(codec.encode(values), len(values))
    return 100 * float((back - values).norm() / values.norm())


def cost_ms(codec: Codec, values: Tensor) -> dict[str, float]:
    """Return the CPU milliseconds a million numbers of each way to use a codec."""
    payload, feedback = codec.encode(values), Feedback(codec, len(values))
    spent = {
        "encode": cpu_ms(lambda: codec.encode(values)),
        "decode": cpu_ms(lambda: codec.decode(payload, len(values))),
        "feedback": cpu_ms(lambda: feedback.encode(values)),
    }
    return {name: ms / (len(values) / 1e6) for name, ms in spent.items()}


def low_rank(rank: int, shapes: list[tuple[int, ...]], moved: Tensor) -> dict[str, float]:
    codec = LowRank(shapes, rank)
    errors = [relative_error(codec, moved) for _ in range(4)]  # it finds its directions
    bits = 8 * codec.size_bytes(len(moved)) / len(moved)
    return {"bits": bits, "pseudo-gradient": errors[-1], **cost_ms(codec, moved)}


def deep_gradient(values: Tensor, rounds: int) -> dict[str, float]:
    deep = DeepGradient(len(values), DeepPolicy((0.001,)))
    spent = [cpu_ms(lambda: deep.encode(values)) for _ in range(rounds)]
    bits = 8 * deep.size_bytes(0) / len(values)
    return {"bits": bits, "feedback": min(spent) / (len(values) / 1e6)}


def measure(numbers: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return a row of figures for each codec."""
    moved, shapes = pseudo_gradient()
    parts = torch.randn(4, 2**20, generator=seeded(0, "bench", 3))
    kinds = {"normal": parts[0], "t3": parts[0] / (parts[1:] ** 2).mean(dim=0).sqrt()}
    kinds["pseudo-gradient"] = moved
    values = moved.repeat(-(-numbers // len(moved)))[:numbers].contiguous()
    rows: dict[str, dict[str, float]] = {}
    for name, codec in codecs().items():
        rows[name] = {"bits": 8 * codec.size_bytes(numbers) / numbers}
        rows[name] |= {kind: relative_error(codec, told) for kind, told in kinds.items()}
    for _ in range(rounds):
        for name, codec in codecs().items():
            spent = cost_ms(codec, values)
            rows[name] |= {kind: min(rows[name].get(kind, ms), ms) for kind, ms in spent.items()}
    for rank in (4, 32):
        rows[f"LowRank({rank})"] = low_rank(rank, shapes, moved)
    rows["DeepGradient(0.1 %)"] = deep_gradient(values, rounds)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--numbers", type=int, default=12_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = measure(arguments.numbers, arguments.rounds)
    if arguments.json:
        print(json.dumps(rows))
        return
    columns = ("bits", "normal", "t3", "pseudo-gradient", "encode", "decode", "feedback")
    print(f"{'':20}" + "".join(f"{column:>16}" for column in columns))
    for name, row in rows.items():
        cells = [f"{row[c]:16.3f}" if c in row else " " * 16 for c in columns]
        print(f"{name:20}" + "".join(cells).rstrip())


if __name__ == "__main__":
    main()
