"""One rank of trainings over two sites of two ranks; what ``test_cut_gradients`` starts."""

import json
import os
import sys
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import nn

from gridloom.base.errors import InputError
from gridloom.base.system import SystemClock
from gridloom.model.parallel import ParallelPlan, SiteSync
from gridloom.runtime import contact
from gridloom.runtime.compress import NotFiniteError
from gridloom.runtime.inside import replicate
from gridloom.runtime.inside.axes import Axes
from gridloom.runtime.inside.parallelize import parallelize
from gridloom.runtime.library.start import init
from gridloom.runtime.run import Run
from gridloom.runtime.updates import Sync, SyncOptions
from gridloom.runtime.wan.history import Buffer
from gridloom.runtime.wan.peers import Peers
from gridloom.runtime.wan.settings import TransportSettings

COPIES = ParallelPlan(data=2, precision="fp32")
SHARDS = ParallelPlan(data=2, precision="fp32", zero=3)
QUICK = TransportSettings(heartbeat_s=0.1, silence_s=30.0, connect_s=0.5, backoff_s_max=0.2)
STEPS = 30
LOST_AFTER = 6
"""Steps after which the second site is killed."""


@dataclass(frozen=True)
class Case:
    """A training.

    Attributes:
        plan: How a site's model is cut.
        how: What the sites exchange.
        poisoned: A step in which one rank's loss is no number; -1 for none.
        is_refused: Whether it cannot be.
    """

    plan: ParallelPlan
    how: SiteSync
    poisoned: int = -1
    is_refused: bool = False


CASES = {
    "copies": Case(COPIES, SiteSync()),
    "shards": Case(SHARDS, SiteSync()),
    "accumulated": Case(SHARDS, SiteSync(kind="accumulated", every=2)),
    "blocks": Case(SHARDS, SiteSync(codec="blocks", bits=8)),
    "top_k": Case(COPIES, SiteSync(codec="top_k", share=0.2)),
    "deep": Case(SHARDS, SiteSync(codec="deep", share=0.2, warm_up=8, momentum=0.0)),
    "low_rank": Case(COPIES, SiteSync(codec="low_rank", rank=2)),
    "cut low_rank": Case(SHARDS, SiteSync(codec="low_rank", rank=2), is_refused=True),
    "poisoned": Case(SHARDS, SiteSync(codec="blocks", bits=8), poisoned=4),
}


SENT_AHEAD: list[int] = []
"""Sizes of parts that have gone ahead of their offers."""


class WatchedPeers(Peers):
    """Notes what goes ahead."""

    def send_ahead(self, part: Buffer, *, begins: bool) -> None:
        SENT_AHEAD.append(len(part))
        super().send_ahead(part, begins=begins)


vars(contact)["Peers"] = WatchedPeers


class Trainee:
    """A model on this rank, and what came of it.

    Attributes:
        losses: Of each step.
        refused: Steps that were left out.
        behind: Parts that went ahead while a backward pass went on.
    """

    def __init__(self, run: Run, port: int, case: Case) -> None:
        hosts = [(name, host) for name, (host, _) in run.place.speakers.items()]
        speakers = {name: (host, port + number) for number, (name, host) in enumerate(hosts)}
        run.place = replace(run.place, speakers=speakers)
        self.run, self.case = run, case
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))
        self.model = parallelize(net, Axes(case.plan, run.device))
        self.optimizer = torch.optim.AdamW(self.model.module.parameters(), lr=1e-2)
        options = SyncOptions(clip_norm=1.0, patience_s=60.0, bucket_bytes=700, transport=QUICK)
        self.sync = Sync(run, self.model, self.optimizer, case.how, options)
        self.losses: list[float] = []
        self.refused: list[int] = []
        self.behind = 0

    def step(self, step: int) -> None:
        place = self.run.place
        inputs, targets = batch(step, 2 * place.number + place.rank)
        loss = ((self.model.module(inputs) - targets) ** 2).mean()
        is_poisoned = step == self.case.poisoned and place.rank == 1
        before = len(SENT_AHEAD)
        (loss * float("nan") if is_poisoned else loss).backward()
        self.behind += len(SENT_AHEAD) - before
        try:
            self.sync.step(tokens=3)
        except NotFiniteError:
            self.refused.append(step)
        self.losses.append(float(loss.detach()))

    def told(self) -> dict[str, object]:
        """Return what this rank holds in the end."""
        self.sync.finish()
        return {
            "site": self.run.place.site,
            "rank": self.run.place.rank,
            "losses": self.losses,
            "refused": self.refused,
            "behind": self.behind,
            "weights": [piece.tensor.flatten().tolist() for piece in self.model.parameters],
            "steps": [float(s["step"]) for s in self.optimizer.state.values()],
        }


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the 3 samples of one of four ranks."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    inputs = torch.randn(3, 8, generator=generator)
    return inputs, torch.sin(inputs @ torch.linspace(-1, 1, 32).view(8, 4))


def train(run: Run, port: int, case: Case) -> dict[str, object]:
    try:
        trainee = Trainee(run, port, case)
    except InputError as error:
        if not case.is_refused:  # the other ranks of the site would wait for this one
            raise
        return {"error": str(error)}
    for step in range(STEPS):
        trainee.step(step)
    return trainee.told()


def lose_and_find(run: Run, port: int, *, is_back: bool) -> dict[str, object]:
    """Train with a second site that is killed and comes back; return what this rank holds."""
    trainee = Trainee(run, port, Case(SHARDS, SiteSync(codec="blocks", bits=8)))
    if run.place.site == "b" and not is_back:
        for step in range(LOST_AFTER):
            trainee.step(step)
        os._exit(9)
    step, together = 0, 0
    while together < STEPS:
        trainee.step(step)
        step += 1
        if step > LOST_AFTER:
            both = torch.tensor([len(trainee.sync.present())])
            dist.broadcast(both, 0)
            together += int(both) == 2
            SystemClock().sleep(0.02)
    return trainee.told()


def tell(what: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> None:
    run = init()
    mode, *ports = sys.argv[1:]
    replicate.BUCKET_BYTES = 600
    if mode == "all":
        for case, port in zip(CASES.values(), ports, strict=False):
            tell(train(run, int(port), case))
    ended = lose_and_find(run, int(ports[-1]), is_back=mode == "back")
    tell(ended)
    run.close()


if __name__ == "__main__":
    main()
