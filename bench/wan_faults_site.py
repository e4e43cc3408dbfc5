"""One site of ``bench/wan_faults.py``: it trains until SIGTERM, and prints a line a step.

It is told where it stands by the launch contract alone: nothing but the product joins the sites.
"""

import argparse
import hashlib
import json
import os
import time
from collections.abc import Sequence

import torch
from bench.wan_peers import common
from torch import nn

import gridloom.runtime as gl
from gridloom.model.recipe import GptShape, TextData, Training
from gridloom.runtime.corpus import Sampler, load_corpus
from gridloom.runtime.evaluate import Windows, held_out_windows, nats
from gridloom.runtime.gpt import IGNORED, Gpt
from gridloom.runtime.place import Place

SHAPES = {
    "small": GptShape(layers=4, hidden=256, heads=4, kv_heads=4, ffn=832),
    "tiny": GptShape(layers=1, hidden=64, heads=2, kv_heads=2, ffn=128),
}
"""3.7 and 0.06 million parameters."""

SEQUENCES, LENGTH = 4, 128
"""Of a training step of a site: 512 tokens."""


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    run = gl.init()
    corpus = load_corpus(TextData())
    model = common.Loss(Gpt(SHAPES[options.shape], seed=1))
    training = Training(
        steps=1,
        global_batch=SEQUENCES * len(run.place.sites),
        sequence_length=LENGTH,
        learning_rate=options.learning_rate,
        warmup_steps=0,
        seed=1,
    )
    inner = common.adamw(common.groups(model, training), training)
    how = gl.SiteSync(
        kind="outer", every=options.every, codec="blocks", bits=4, fragments=options.fragments,
        outer_learning_rate=1.0, outer_momentum=0.0,
    )  # fmt: skip
    told = gl.SyncOptions(clip_norm=training.clip_norm, patience_s=options.patience)
    sync = gl.sync(model, inner, how, told)
    sampler = Sampler(corpus.train, LENGTH, training.seed)
    _say(kind="begin", at_s=time.monotonic())
    step = options.first_step - 1
    while not gl.should_stop():
        step += 1
        alone = step > options.first_step and _is_alone(options.window)
        for group in inner.param_groups:
            group["lr"] = training.learning_rate * min(1.0, step / options.warmup)
        loss = model(*sampler.batch(*_samples(run.place, step)))
        torch.autograd.backward(loss)
        if alone:
            nn.utils.clip_grad_norm_(list(model.parameters()), training.clip_norm)
            inner.step()
            inner.zero_grad()
        else:
            sync.step(SEQUENCES * LENGTH)
        _say(
            kind="step",
            step=step,
            at_s=time.monotonic(),
            loss=float(loss.detach()),
            alone=alone,
            rounds=[[one.round, len(one.sites)] for one in sync.rounds()],
            present=len(sync.present()),
            events=sync.events(),
        )
    sync.finish()
    _tell_end(model, corpus.held_out, options.evaluate_every, sync.events())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--shape", choices=tuple(SHAPES), default="small")
    parser.add_argument("--first-step", type=int, default=1, help="of a process started anew")
    parser.add_argument("--every", type=int, default=24, help="training steps")
    parser.add_argument("--fragments", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--warmup", type=int, default=30, help="training steps")
    parser.add_argument("--patience", type=float, default=10.0, help="seconds")
    parser.add_argument(
        "--window", type=float, default=0.0, metavar="S",
        help="in every second S seconds, by the machine's clock, train alone; 0 for never",
    )  # fmt: skip
    parser.add_argument(
        "--evaluate-every", type=int, default=0, metavar="N",
        help="take every Nth window of the held-out text at the end; 0: no evaluation",
    )  # fmt: skip
    return parser.parse_args()


def _is_alone(window_s: float) -> bool:
    """Return whether all sites train without ``Sync`` just now."""
    return window_s > 0 and int(time.monotonic() / window_s) % 2 == 1


def _samples(place: Place, step: int) -> tuple[int, int]:
    """Return the first sample of this site's share of a step, and how many there are."""
    return ((step - 1) * len(place.sites) + place.number) * SEQUENCES, SEQUENCES


def _tell_end(
    model: common.Loss, held_out: Sequence[bytes], every: int, events: Sequence[str]
) -> None:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    line: dict[str, object] = {"kind": "end", "at_s": time.monotonic()}
    line["weights"] = digest.hexdigest()[:16]
    line["events"] = events
    if every:
        whole = held_out_windows(held_out, LENGTH)
        windows = Windows(whole.inputs[::every], whole.targets[::every])
        line["nats"] = nats(model.gpt, windows, slice(None), lambda: False)
        line["held_out_bytes"] = int((windows.targets != IGNORED).sum())
    _say(**line)


def _say(**line: object) -> None:
    print(json.dumps({"pid": os.getpid(), **line}), flush=True)


if __name__ == "__main__":
    main()
