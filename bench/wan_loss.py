"""What a method of keeping sites one model costs in loss, after equal tokens: no WAN, no bed.

    python -m bench.wan_loss --every 20 [--sites 2] [--seed 1] [--tokens 3e6]

Loss depends on the method and its interval, not on the link. The sites take turns in one process;
they meet through ``gridloom.runtime.wan`` as they do anywhere, but for the sockets. ``--kind
every_step`` is one model trained on the batch of all sites: what averaging whole gradients at every
step amounts to. Prints one JSON line; held-out text is evaluated whole.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gridloom.base.system import SystemClock
from gridloom.model.parallel import SiteSync
from gridloom.model.recipe import GptShape, TextData, Training
from gridloom.runtime.corpus import Sampler, load_corpus
from gridloom.runtime.evaluate import bits_per_byte, held_out_windows, nats
from gridloom.runtime.gpt import Gpt
from gridloom.runtime.schedule import learning_rate
from gridloom.runtime.wan.agreement import LocalAgreement
from gridloom.runtime.wan.events import Down, LinkFacts, Received, Up
from gridloom.runtime.wan.fragments import Fragments
from gridloom.runtime.wan.history import Buffer
from gridloom.runtime.wan.methods import codec
from gridloom.runtime.wan.outer import Fragment, OuterRule
from gridloom.runtime.wan.outer_sync import OuterSync
from gridloom.runtime.wan.peers import Peers
from gridloom.runtime.wan.rounds import RoundPolicy, Rounds
from gridloom.runtime.wan.state import OptimizerState

SHAPES = {
    "1.3M": GptShape(layers=4, hidden=192, heads=3, kv_heads=1, ffn=384),
    "0.3M": GptShape(layers=2, hidden=128, heads=2, kv_heads=1, ffn=256),
}
"""By parameters; the first is the model of ``examples/gpt-two-sites.yaml``."""

LENGTH = 128


class Wire:
    """A site's end of a network in this process that delivers at once."""

    def __init__(self, ends: dict[str, "Wire"], name: str) -> None:
        self._ends, self._name = ends, name
        self.happened: list[Up | Down | Received] = []
        self.sent_bytes = 0
        for other, end in ends.items():
            self.happened.append(Up(other, "", resumed=False))
            end.happened.append(Up(name, "", resumed=False))
        ends[name] = self

    def send(self, peer: str, header: bytes, body: Buffer = b"", *, urgent: bool = False) -> int:
        """Deliver a message."""
        self.sent_bytes += len(header) + len(body)
        self._ends[peer].happened.append(Received(self._name, header, memoryview(bytearray(body))))
        return 0

    def events(self, timeout_s: float) -> list[Up | Down | Received]:
        """Return what has come."""
        happened, self.happened = self.happened, []
        return happened

    def links(self) -> dict[str, LinkFacts]:
        """Nothing is measured."""
        return {}

    def busy_s(self) -> float:
        """Nothing takes any time."""
        return 0.0

    def close(self, timeout_s: float = 0.0) -> None:
        """Nothing is to be closed."""


class Site:
    """One site: a model, its optimiser, and how it keeps in step with the others."""

    def __init__(self, options: argparse.Namespace, training: Training) -> None:
        self.model = Gpt(SHAPES[options.model], training.seed)
        self.training = training
        named = list(self.model.parameters())
        matrices = [one for one in named if one.dim() >= 2]
        vectors = [one for one in named if one.dim() < 2]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": training.weight_decay},
                {"params": vectors, "weight_decay": 0.0},
            ],
            betas=(training.beta1, training.beta2),
            fused=True,
        )
        self.sync: OuterSync | None = None
        self.agreement: LocalAgreement | None = None
        self.agreed: list[Fragment] = []

    def meet(self, how: SiteSync, name: str, names: tuple[str, ...], wire: Wire) -> None:
        """Join the other sites."""
        fragments = Fragments(list(self.model.parameters()), how.fragments)
        rule = OuterRule(how.outer_learning_rate, how.outer_momentum)
        self.agreed = [Fragment(fragments.read(i), rule, codec(how)) for i in range(len(fragments))]
        rounds = Rounds(name, names, "", RoundPolicy(), lambda given: self.combine(given))
        peers = Peers(rounds, wire, SystemClock())
        inner = OptimizerState(self.optimizer)
        self.agreement = LocalAgreement(fragments, self.agreed, inner)
        self.sync = OuterSync(self.agreement, peers, how.every)
        self.combine = self.sync.combine

    def state_dict(self) -> dict[str, object]:
        """Return all that it needs to go on."""
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        if self.sync is None or self.agreement is None:
            return state
        sync = self.sync.state_dict()  # takes in what is over, so it comes first
        return state | {
            "model": self.model.state_dict(), "sync": sync,
            "agreement": self.agreement.state_dict(),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.sync is not None and self.agreement is not None:
            self.agreement.load_state_dict(state["agreement"])
            self.sync.load_state_dict(state["sync"])

    def train(self, step: int, batch: tuple[torch.Tensor, torch.Tensor]) -> float:
        """Make one training step; return its loss, nats a token."""
        inputs, targets = batch
        loss = self.model.loss_sum(inputs, targets) / targets.numel()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.model.parameters(), self.training.clip_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.training, step)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.sync is not None:
            self.sync.after_step(targets.numel())
        return float(loss.detach())


def method(options: argparse.Namespace) -> SiteSync:
    """Return the method that the command line describes."""
    return SiteSync(
        kind=options.kind,
        every=options.every,
        codec="top_k" if options.share else "plain" if options.bits >= 16 else "blocks",
        share=options.share or SiteSync().share,
        bits=options.bits,
        fragments=options.fragments,
        outer_learning_rate=options.outer_learning_rate,
        outer_momentum=options.outer_momentum,
    )


def run(options: argparse.Namespace) -> dict[str, object]:
    """Train and evaluate; return the line."""
    torch.set_num_threads(1)
    began_s = time.perf_counter()
    batch = options.sequences * options.sites
    steps = int(options.tokens / (batch * LENGTH))
    training = Training(
        steps=steps,
        global_batch=batch,
        sequence_length=LENGTH,
        learning_rate=options.learning_rate,
        min_learning_rate=options.learning_rate / 20,
        warmup_steps=options.warmup,
        seed=options.seed,
    )
    corpus = load_corpus(TextData())
    sampler = Sampler(corpus.train, LENGTH, training.seed)
    outer = options.kind == "outer"
    sites = [Site(options, training) for _ in range(options.sites if outer else 1)]
    share = batch // len(sites)
    wires: dict[str, Wire] = {}
    if outer:
        names = tuple(f"site{n}" for n in range(options.sites))
        for name, site in zip(names, sites, strict=True):
            site.meet(method(options), name, names, Wire(wires, name))
        for _ in range(2):
            for site in sites:
                site.sync and site.sync.join(0.0)
    losses: list[float] = []
    done = _resume(options, sites, losses)
    for step in range(done + 1, steps + 1):
        first = (step - 1) * batch
        found = [
            site.train(step, sampler.batch(first + n * share, share))
            for n, site in enumerate(sites)
        ]
        losses.append(sum(found) / len(found))
        if step % 500 == 0:
            mean = sum(losses[-200:]) / len(losses[-200:])
            spent_s = time.perf_counter() - began_s
            print(f"step {step} of {steps}, loss {mean:.4f}, {spent_s:.0f} s", file=sys.stderr)
            _keep(options, sites, losses)
    if outer:  # the last weights of all sites, averaged
        with torch.no_grad():
            for parts in zip(*(site.model.parameters() for site in sites), strict=True):
                parts[0].copy_(torch.stack(list(parts)).mean(dim=0))
    windows = held_out_windows(corpus.held_out, LENGTH)
    spent = nats(sites[0].model, windows, slice(None), lambda: False)
    return {
        **vars(options),
        "steps": steps,
        "bits_per_byte": bits_per_byte(spent, corpus.held_out),
        "loss": sum(losses[-200:]) / len(losses[-200:]),
        "sent_bytes_per_token": sum(wire.sent_bytes for wire in wires.values())
        / max(1, (steps - done) * batch * LENGTH),
        "perplexity_nats": spent / sum(map(len, corpus.held_out)),
        "seconds": time.perf_counter() - began_s,
    }


def _resume(options: argparse.Namespace, sites: Sequence[Site], losses: list[float]) -> int:
    """Go on from what a run with the same options has kept; return its training steps."""
    if options.keep is None or not options.keep.is_file():
        return 0
    kept = torch.load(options.keep, weights_only=True)
    if kept["options"] != _told(options):
        raise SystemExit(f"{options.keep} is of a run with other options: {kept['options']}")
    for site, state in zip(sites, kept["sites"], strict=True):
        site.load_state_dict(state)
    losses += kept["losses"]
    return len(losses)


def _keep(options: argparse.Namespace, sites: Sequence[Site], losses: Sequence[float]) -> None:
    """Write down all that a run needs to go on."""
    if options.keep is None:
        return
    states = [site.state_dict() for site in sites]
    fresh = options.keep.with_suffix(".new")
    torch.save({"options": _told(options), "sites": states, "losses": list(losses)}, fresh)
    fresh.replace(options.keep)


def _told(options: argparse.Namespace) -> dict[str, object]:
    return {name: value for name, value in vars(options).items() if name != "keep"}


def main() -> None:
    """Print the line of one run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kind", default="outer", choices=("every_step", "outer"))
    parser.add_argument("--every", type=int, default=20, help="training steps")
    parser.add_argument("--fragments", type=int, default=4)
    parser.add_argument("--bits", type=int, default=4, choices=(1, 4, 8, 16, 32))
    parser.add_argument("--outer-learning-rate", type=float, default=1.0)
    parser.add_argument("--outer-momentum", type=float, default=0.0)
    parser.add_argument("--sites", type=int, default=2)
    parser.add_argument("--sequences", type=int, default=1, help="of a site and step")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--warmup", type=int, default=200, help="training steps")
    parser.add_argument("--model", default="1.3M", choices=tuple(SHAPES), help="by parameters")
    parser.add_argument("--tokens", type=float, default=3e6, help="of all sites")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", type=float, help="send the largest numbers only, so many")
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", help="keep the state there, and go on from it"
    )
    print(json.dumps(run(parser.parse_args()), default=str), flush=True)


if __name__ == "__main__":
    main()
