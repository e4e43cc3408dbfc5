"""What all peers of the benchmark across sites share, so that they differ in how they talk only.

The model, the data and their order, the schedule, the optimiser's numbers, the windows that are
measured and the text that is held out are those of ``gridloom.runtime``. A peer says how a step's
gradients or weights are shared; the rest happens here. Ranks find each other by torchrun's
variables; each prints one JSON line a window and one at the end.
"""

import argparse
import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed import TCPStore

from gridloom.model.recipe import GptShape, TextData, Training
from gridloom.runtime.corpus import Corpus, Sampler, load_corpus, share_of
from gridloom.runtime.evaluate import Windows, held_out_windows, nats
from gridloom.runtime.gpt import IGNORED, Gpt
from gridloom.runtime.schedule import learning_rate

SHAPE = GptShape(layers=6, hidden=384, heads=6, kv_heads=6, ffn=1248)
"""12.27 million parameters: 49 MB of fp32."""

SEQUENCES, LENGTH = 4, 128
"""Of a rank and step: 512 tokens."""

TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Run:
    """One rank of a run.

    Attributes:
        peer: What is measured.
        options: From the command line.
        rank: This rank.
        world: Number of ranks.
        store: Where ranks tell each other small things; rank 0 keeps it.
        training: Schedule and optimiser.
        corpus: The text.
    """

    peer: str
    options: argparse.Namespace
    rank: int
    world: int
    store: TCPStore
    training: Training
    corpus: Corpus

    @property
    def address(self) -> str:
        """This rank's own address on the way to rank 0."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((os.environ["MASTER_ADDR"], 9))
            return str(probe.getsockname()[0])

    def meet(self, where: str) -> None:
        """Wait until all ranks are there."""
        if self.store.add(f"met/{where}", 1) == self.world:
            self.store.set(f"all/{where}", b"")
        self.store.wait([f"all/{where}"], timedelta(seconds=TIMEOUT_S))


class Loss(nn.Module):
    """The model with its loss as what ``forward`` returns, as wrappers of modules need it."""

    def __init__(self, gpt: Gpt) -> None:
        super().__init__()
        self.gpt = gpt

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss, nats a token."""
        return self.gpt.loss_sum(inputs, targets) / targets.numel()


def arguments(doc: str | None) -> argparse.ArgumentParser:
    """Return the options that all peers have; a peer may add its own."""
    parser = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=100, help="of training, and of the schedule")
    parser.add_argument("--seconds", type=float, help="stop two windows after so long")
    parser.add_argument("--window", type=int, default=20, help="training steps of a line")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--warmup", type=int, default=50, help="training steps")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--evaluate-every", type=int, default=0, metavar="N",
        help="take every Nth window of the held-out text at the end; 1: all, 0: no evaluation",
    )  # fmt: skip
    return parser


def begin(peer: str, options: argparse.Namespace) -> tuple[Run, Loss]:
    """Meet the other ranks; return this one's part and its model, equal on all."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    training = Training(
        steps=options.steps,
        global_batch=SEQUENCES * world,
        sequence_length=LENGTH,
        learning_rate=options.learning_rate,
        min_learning_rate=options.learning_rate / 10,
        warmup_steps=options.warmup,
        seed=options.seed,
    )
    corpus = load_corpus(TextData())
    model = Loss(Gpt(SHAPE, options.seed))
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(address, port, world, rank == 0, timedelta(seconds=TIMEOUT_S))
    return Run(peer, options, rank, world, store, training, corpus), model


def groups(model: nn.Module, training: Training) -> list[dict[str, object]]:
    """Return the model's parameters for AdamW: weight decay is for matrices only."""
    matrices = [one for one in model.parameters() if one.dim() >= 2]
    vectors = [one for one in model.parameters() if one.dim() < 2]
    return [
        {"params": matrices, "weight_decay": training.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]


def adamw(parameters: list[dict[str, object]], training: Training) -> torch.optim.AdamW:
    """Return the optimiser of every peer."""
    betas = (training.beta1, training.beta2)
    return torch.optim.AdamW(parameters, lr=training.learning_rate, betas=betas, fused=True)


def train(
    run: Run,
    forward: Callable[[Tensor, Tensor], Tensor],
    optimizer: torch.optim.Optimizer,
    *,
    inner: torch.optim.Optimizer | None = None,
    clip: bool = True,
) -> None:
    """Train for the steps or the seconds asked for, and print a line a window.

    Args:
        run: This rank.
        forward: Returns the mean loss of a batch.
        optimizer: Takes the steps, and shares what the peer shares.
        inner: Whose learning rate follows the schedule, where it is not ``optimizer``'s own.
        clip: Gradients are clipped here, and not by ``optimizer``.
    """
    training, options = run.training, run.options
    sampler = Sampler(run.corpus.train, LENGTH, training.seed)
    share = share_of(run.rank, run.world, training.global_batch)
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    run.meet("start")
    meter = Meter(run)
    for step in range(1, training.steps + 1):
        first = (step - 1) * training.global_batch + share.start
        for group in (inner or optimizer).param_groups:
            group["lr"] = learning_rate(training, step)
        optimizer.zero_grad()
        loss = forward(*sampler.batch(first, len(share)))
        torch.autograd.backward(loss)
        if clip:
            nn.utils.clip_grad_norm_(parameters, training.clip_norm)
        optimizer.step()
        meter.step(float(loss.detach()))
        if step % options.window == 0 and meter.window():
            break


def finish(run: Run, model: Loss) -> None:
    """Meet the other ranks, evaluate this rank's share of the held-out text, print the last line.

    Ranks whose weights differ each evaluate their own: the result is the mean over them.
    """
    run.meet("end")
    line: dict[str, object] = {"kind": "end", "peer": run.peer, "rank": run.rank}
    every = run.options.evaluate_every
    if every:
        whole = held_out_windows(run.corpus.held_out, LENGTH)
        mine = slice(run.rank * every, None, run.world * every)
        windows = Windows(whole.inputs[mine], whole.targets[mine])
        line["nats"] = nats(model.gpt, windows, slice(None), lambda: False)
        line["held_out_bytes"] = int((windows.targets != IGNORED).sum())
    print(json.dumps(line), flush=True)
    run.meet("evaluated")
    if run.rank == 0:
        time.sleep(1.0)  # the store goes with this process; others may still ask it


class Meter:
    """What a window is measured by: the clock, and the bytes that the interface has sent.

    Attributes:
        number: Windows that are over.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._losses: list[float] = []
        self.number = 0
        self._began_s = self._start_s = time.perf_counter()
        self._sent = _sent_bytes()

    def step(self, loss: float) -> None:
        self._losses.append(loss)

    def window(self, more: Mapping[str, object] | None = None) -> bool:
        """Print the line of the window that is over; return whether training is over too."""
        seconds, sent = time.perf_counter() - self._start_s, _sent_bytes()
        self.number += 1
        line = {
            "kind": "window",
            "peer": self._run.peer,
            "rank": self._run.rank,
            "window": self.number,
            "steps": len(self._losses),
            "tokens": len(self._losses) * SEQUENCES * LENGTH,
            "seconds": seconds,
            "sent_bytes": sent - self._sent,
            "loss": sum(self._losses) / len(self._losses),
            **(more or {}),
        }
        print(json.dumps(line), flush=True)
        over = self._is_last()
        self._losses, self._start_s, self._sent = [], time.perf_counter(), _sent_bytes()
        return over

    def _is_last(self) -> bool:
        """Decide together: rank 0 names a window that no rank has reached, as none is two ahead."""
        limit_s, store = self._run.options.seconds, self._run.store
        if limit_s is None:
            return False
        if self._run.rank == 0 and time.perf_counter() - self._began_s >= limit_s:
            store.compare_set("last", "", str(self.number + 2))
        return store.check(["last"]) and self.number >= int(store.get("last"))


def _sent_bytes() -> int:
    """Return bytes sent by this site's interface, headers and repetitions too."""
    name = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        interface, _, counts = line.partition(":")
        if interface.strip() == name:
            return int(counts.split()[8])
    raise SystemExit(f"there is no interface {name}: GLOO_SOCKET_IFNAME names it")
