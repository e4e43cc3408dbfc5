"""One rank of a training over two sites of two ranks; what ``test_cut_sites`` starts four times."""

import json
import os
import sys
from dataclasses import replace
from typing import Literal

import msgspec
import torch
from tests.unit.runtime.wan import spread_sites
from torch import nn

from gridloom.base.system import SystemClock
from gridloom.model.parallel import ParallelPlan, SitePrivacy, SiteSync
from gridloom.runtime.inside.axes import Axes
from gridloom.runtime.inside.parallelize import parallelize
from gridloom.runtime.place import place_in
from gridloom.runtime.run import Run, StopWish
from gridloom.runtime.updates import Sync, SyncOptions

HOW = SiteSync(
    kind="outer", every=8, codec="blocks", bits=8, fragments=4,
    outer_learning_rate=0.9, outer_momentum=0.3,
)  # fmt: skip

PRIVACY = SitePrivacy(clip_norm=20.0, noise_multiplier=1e-4)


def train(run: Run, zero: Literal[0, 3]) -> dict[str, object]:
    """Train with a plan; return what this rank holds in the end."""
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))
    plan = ParallelPlan(data=2, precision="fp32", zero=zero)
    model = parallelize(net, Axes(plan, run.device))
    optimizer = torch.optim.AdamW(model.module.parameters(), lr=1e-2)
    how = HOW if zero == 0 else msgspec.structs.replace(HOW, privacy=PRIVACY)
    sync = Sync(run, model, optimizer, how, SyncOptions(clip_norm=1.0, patience_s=60.0))
    number = 2 * run.place.number + run.place.rank
    losses = []
    saved: dict[str, object] = {}
    for step in range(40):
        generator = torch.Generator().manual_seed(100 * step + number)
        inputs = torch.randn(6, 8, generator=generator)
        targets = torch.sin(inputs @ torch.linspace(-1, 1, 32).view(8, 4))
        loss = ((model.module(inputs) - targets) ** 2).mean()
        loss.backward()
        sync.step(tokens=6)
        losses.append(float(loss.detach()))
        if step == 20:
            saved = sync.state_dict()
    together = sum(len(one.sites) == 2 for one in sync.rounds())
    sync.finish()
    return {
        "site": run.place.site,
        "rank": run.place.rank,
        "losses": losses,
        "together": together,
        "saved": sorted(saved),
        "weights": [piece.tensor.flatten().tolist() for piece in model.parameters],
        "starts": [list(piece.start) for piece in model.parameters],
        "steps": [float(s["step"]) for s in optimizer.state.values()],
        "shown": spent.rounds if (spent := sync.privacy()) is not None else None,
    }


def main() -> None:
    run = Run(place_in(os.environ), SystemClock(), StopWish())
    plans: list[Literal[0, 3]] = [0, 3]
    ports = iter(range(int(sys.argv[1]), int(sys.argv[2]), 2))
    for zero in plans:
        speak_at(run, next(ports))
        print(json.dumps(train(run, zero)), flush=True)
    for kind in spread_sites.KINDS:
        speak_at(run, next(ports))
        print(json.dumps(spread_sites.train(run, kind)), flush=True)
    run.close()


def speak_at(run: Run, port: int) -> None:
    """Have the sites speak at other ports: those of the training before may not be free yet."""
    hosts = [(name, host) for name, (host, _) in run.place.speakers.items()]
    speakers = {name: (host, port + number) for number, (name, host) in enumerate(hosts)}
    run.place = replace(run.place, speakers=speakers)


if __name__ == "__main__":
    main()
