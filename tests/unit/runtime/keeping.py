"""A small training that is stopped and gone on with; and the program that two ranks of it run.

``python -m tests.unit.runtime.keeping <directory>``, with torchrun's variables.
"""

import json
import os
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from tests.unit.runtime.disks import DyingDisk
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

import gridloom.runtime as gl
from gridloom.model.parallel import ParallelPlan
from gridloom.runtime.disk import Disk
from gridloom.runtime.failure import StorageError
from gridloom.runtime.inside.axes import Axes
from gridloom.runtime.inside.parallelize import parallelize
from gridloom.runtime.keeper import Keeper, KeepPolicy
from gridloom.runtime.loader import Loader, Share
from gridloom.runtime.run import Run

SAMPLES = torch.randn(20, 6, generator=torch.Generator().manual_seed(1))
SAVED, LAST = 3, 7
EXAMPLE = Path(__file__).parents[3] / "examples" / "own_loop.py"


class Net(nn.Module):
    """Draws random numbers, has a buffer that moves, and a weight that never has a gradient."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, width), nn.Linear(width, 5)
        self.norm, self.drop = nn.BatchNorm1d(width), nn.Dropout(0.3)
        self.unused = nn.Parameter(torch.zeros(3, 2))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.norm(self.first(inputs).tanh())
        return self.second(self.drop(hidden))  # type: ignore[no-any-return]


class EachRank:
    """A part that every rank has one of its own of."""

    each_rank = True

    def __init__(self, rank: int) -> None:
        self.seen, self.label = torch.full((2,), float(rank)), f"rank {rank}"

    def state_dict(self) -> dict[str, object]:
        return {"seen": self.seen, "deep": [(self.label, {"seen": self.seen * 2})]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.seen, self.label = state["seen"], state["deep"][0][0]
        assert torch.equal(state["deep"][0][1]["seen"], self.seen * 2)


class Training:
    """A model with all that goes with it, from the same beginning each time."""

    def __init__(self, run: Run, zero: Literal[0, 3] = 0, width: int = 16) -> None:
        torch.manual_seed(3 + run.place.rank)
        size = run.place.size
        plan = ParallelPlan(data=size, zero=zero, precision="fp32")
        self.model = parallelize(Net(width), Axes(plan, run.device))
        parameters = self.model.module.parameters()
        self.optimizer = torch.optim.AdamW(parameters, lr=0.05, betas=(0.8, 0.95))
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, gamma=0.7)
        share = Share(run.place.rank, size)
        self.data = Loader(SAMPLES, 4 // size, share, {"seed": 2, "passes": None})
        self.own = EachRank(run.place.rank)

    def parts(self) -> dict[str, object]:
        return {
            "model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler,
            "data": self.data, "own": self.own,
        }  # fmt: skip

    def train(self, steps: int) -> None:
        for _, batch in zip(range(steps), self.data, strict=False):
            self.model.module(batch).square().mean().backward()
            self.model.finish()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.scheduler.step()
            self.own.seen += 1

    def numbers(self) -> list[Tensor]:
        """Return all that there is, gathered whole."""
        named: dict[str, Tensor] = dict(self.model.module.named_parameters())
        if self.own.label == "rank 0":  # whose buffers a checkpoint has
            named |= dict(self.model.module.named_buffers())
        for number, kept in self.optimizer.state_dict()["state"].items():
            named |= {f"{number}.{name}": value for name, value in kept.items()}
        rates = torch.tensor([*self.scheduler.get_last_lr(), self.data.position])
        whole = [t.full_tensor() if isinstance(t, DTensor) else t for t in named.values()]
        return [t.detach().clone() for t in [*whole, rates, self.own.seen, torch.rand(1)]]


def keeper(
    run: Run, directory: Path, training: Training, disk: Disk | None = None, **policy: Any
) -> Keeper:
    return Keeper(run, directory, KeepPolicy(**policy), training.parts(), disk)


def is_equal(one: list[Tensor], two: list[Tensor]) -> bool:
    return len(one) == len(two) and all(map(torch.equal, one, two))


def whole_and_resumed(
    run: Run, directory: Path, *, zero: Literal[0, 3] = 0, asynchronous: bool = False
) -> tuple[list[Tensor], list[Tensor]]:
    """Return what comes of a training that was not stopped, and of one that was."""
    training = Training(run, zero)
    saving = keeper(run, directory, training, asynchronous=asynchronous)
    assert saving.load() == 0
    training.train(SAVED)
    saving.save(SAVED)
    training.train(LAST - SAVED)
    saving.close()
    whole = training.numbers()
    resumed = Training(run, zero)
    loading = keeper(run, directory, resumed)
    assert loading.load() == SAVED
    resumed.train(LAST - SAVED)
    loading.close()
    return whole, resumed.numbers()


def main(directory: Path) -> None:
    """Try everything that needs two ranks, and tell what came of it."""
    environment = os.environ  # noqa: TID251
    before = dict(environment)
    run = gl.init(own_world=True)
    told: dict[str, object] = {"own world": environment == before}  # the only site is the world
    for zero in (0, 3):
        whole, resumed = whole_and_resumed(
            run, directory / f"zero{zero}", zero=zero, asynchronous=zero == 3
        )
        told[f"zero {zero}"] = is_equal(whole, resumed)
    # what was saved in pieces is read whole
    other, same = Training(run, 0), Training(run, 3)
    read = []
    for training in (other, same):
        loading = keeper(run, directory / "zero3", training)
        assert loading.load() == SAVED
        loading.close()
        running = training.model.module.get_buffer("norm.running_mean").clone()
        dist.broadcast(running, 0)
        assert torch.equal(training.model.module.get_buffer("norm.running_mean"), running)
        read.append(training.numbers())
    told["another layout"] = is_equal(*read)
    told["own"] = other.own.label
    full = OSError(28, "No space left on device")
    disk = DyingDisk(0, partial=False, error=full) if run.place.rank == 1 else Disk()
    failing = keeper(run, directory / "zero0", same, disk)
    try:
        failing.save(9)
    except StorageError as error:
        told["refused"] = error.message
    told["left"] = failing.load()
    failing.close()
    os.chdir(directory)
    example = runpy.run_path(str(EXAMPLE))
    told["example"] = example["main"](4)
    told["example again"] = example["main"](6)  # goes on
    dist.barrier()
    (directory / f"told-{run.place.rank}.json").write_text(json.dumps(told))
    run.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
