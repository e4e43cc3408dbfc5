"""One rank of a pipeline over sites of several ranks; what ``test_stage_ranks`` starts."""

import hashlib
import json
import signal
import sys

import torch
from tests.unit.runtime.wan.stage_sites import SHAPE, adamw, batch, options
from torch import Tensor

import gridloom.runtime as gl
from gridloom.runtime.run import Run
from gridloom.runtime.wan.stages_layers import gpt_layers, token_loss


def train(run: Run, directory: str, steps: int) -> dict[str, object]:
    """Train up to so many steps on this rank's share of every batch, and save."""
    is_last = (run.place.number, run.place.rank) == (1, 1)

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        if is_last and stages.steps == 3 and not stages._accord.stamp[1]:
            stages._accord.give_up()  # as if a link had failed, while the others go on
        return token_loss(logits, targets)

    layers = gpt_layers(SHAPE, seed=1 + run.place.rank)  # the first rank's weights are everybody's
    stages = gl.pipeline(layers, loss, options(micro_batches=2))
    optimizer = adamw(stages)
    kept = gl.checkpoint(directory, stages=stages, model=stages.module, optimizer=optimizer)
    began = kept.load()
    passed, wishes = [], []
    share = slice(run.place.rank, None, run.place.size)
    for step in range(began, steps):
        inputs, targets = batch(step)
        if step == 2 and is_last:
            signal.raise_signal(signal.SIGUSR1)
        passed.append(stages.forward_backward(inputs[share], targets[share]))
        wishes.append(stages.should_stop())
        optimizer.step()
    inputs, targets = batch(100)
    held_out = stages.evaluate(inputs[share], targets[share])
    kept.save(steps)
    kept.close()
    stages.finish()
    weights = stages.module.state_dict()
    return {
        "site": run.place.site,
        "rank": run.place.rank,
        "began": began,
        "steps": stages.steps,
        "losses": [one.loss for one in passed],
        "norms": [one.norm for one in passed],
        "held_out": held_out,
        "again": [one.again for one in passed],
        "wishes": wishes,
        "weights": {name: _digest(tensor) for name, tensor in weights.items()},
    }


def _digest(tensor: Tensor) -> str:
    """Return what stands for a tensor: a pipe holds only so much."""
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()


def main() -> None:
    """Train, and go on from the checkpoint as if started again."""
    torch.set_num_threads(1)
    run = gl.init()
    for steps in (6, 9):
        sys.stdout.write(json.dumps(train(run, sys.argv[1], steps)) + "\n")
    run.close()


if __name__ == "__main__":
    main()
