"""Models that others have spread over the two ranks of a site, trained at two sites."""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from gridloom.base.errors import InputError
from gridloom.model.parallel import SiteSync
from gridloom.runtime.run import Run
from gridloom.runtime.shards import Shards
from gridloom.runtime.updates import Sync, SyncOptions

HOW = SiteSync(
    kind="outer", every=6, codec="blocks", bits=8, fragments=3,
    outer_learning_rate=0.9, outer_momentum=0.3,
)  # fmt: skip

KINDS = ("fully_shard", "hybrid", "tensor", "ddp", "engine")
STEPS = 40


class Engine:
    """ZeRO 1 as a library has it: bf16 weights on all ranks, fp32 ones cut over them."""

    def __init__(self, net: nn.Module) -> None:
        self.net = net
        flat = torch.cat([p.detach().flatten() for p in net.parameters()])
        net.to(torch.bfloat16)
        half = -(-len(flat) // 2)
        padded = torch.cat([flat, torch.zeros(2 * half - len(flat))])
        self.master = nn.Parameter(padded.split(half)[dist.get_rank()].clone())
        self.optimizer = torch.optim.AdamW([self.master], lr=1e-2)

    def step(self) -> None:
        flat = torch.cat([gradient.float().flatten() for gradient in self.gradients()])
        flat = torch.cat([flat, torch.zeros(2 * len(self.master) - len(flat))])
        dist.all_reduce(flat)
        self.master.grad = flat.split(len(self.master))[dist.get_rank()] / 2
        self.optimizer.step()
        self.net.zero_grad()
        self.publish()

    def publish(self) -> None:
        halves = [torch.empty_like(self.master.detach()) for _ in range(2)]
        dist.all_gather(halves, self.master.detach())
        start, flat = 0, torch.cat(halves)
        for parameter in self.net.parameters():
            with torch.no_grad():
                own = flat[start : start + parameter.numel()]
                parameter.copy_(own.view(parameter.shape))
            start += parameter.numel()

    def gradients(self) -> list[Tensor]:
        return [p.grad for p in self.net.parameters() if p.grad is not None]


class Wrapped(nn.Module):
    """What a library puts around a model."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, inputs: Tensor) -> Tensor:
        output: Tensor = self.module(inputs)
        return output


def spread(kind: str, run: Run) -> nn.Module:
    """Return a model, as a user of a library has it."""
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 5))
    mesh = init_device_mesh("cpu", (2,))
    if kind == "fully_shard":
        fully_shard(net[2], mesh=mesh)  # its 5 rows are 3 and 2
        fully_shard(net, mesh=mesh)
    elif kind == "hybrid":
        fully_shard(net, mesh=init_device_mesh("cpu", (2, 1), mesh_dim_names=("copy", "shard")))
    elif kind == "tensor":
        parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    elif kind == "ddp":
        made = DistributedDataParallel(net)
        return made if run.place.number else Wrapped(made)
    return net


def train(run: Run, kind: str) -> dict[str, object]:
    """Train such a model; return what this rank holds in the end."""
    net = spread(kind, run)
    if kind == "engine":
        engine = Engine(net)
        model: nn.Module | Shards = Shards([engine.master.detach()], engine.publish)
        optimizer: torch.optim.Optimizer = engine.optimizer
        update, options = engine.step, SyncOptions()
    else:
        model, optimizer = net, torch.optim.AdamW(net.parameters(), lr=1e-2)
        update, options = None, SyncOptions(clip_norm=1.0)
    refused = refusal(run, model, optimizer)
    sync = Sync(run, model, optimizer, HOW, options)
    number = run.place.number if kind == "tensor" else 2 * run.place.number + run.place.rank
    losses = []
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(100 * step + number)
        inputs = torch.randn(6, 8, generator=generator)
        targets = torch.sin(inputs @ torch.linspace(-1, 1, 40).view(8, 5))
        outputs = net(inputs.to(next(net.parameters()).dtype))
        loss = ((outputs.float() - targets) ** 2).mean()
        loss.backward()
        sync.step(tokens=6, update=update)
        losses.append(float(loss.detach()))
    together = sum(len(one.sites) == 2 for one in sync.rounds())
    norm = sync.norm
    sync.finish()
    with torch.no_grad():
        answer = net(torch.ones(1, 8, dtype=next(net.parameters()).dtype)).float()
    return {
        "losses": losses,
        "together": together,
        "norm": norm,
        "refused": refused,
        "weights": [box(p).flatten().tolist() for p in net.parameters()],
        "answer": answer.flatten().tolist(),
        "steps": [float(s["step"]) for s in optimizer.state.values()],
    }


def refusal(run: Run, model: nn.Module | Shards, optimizer: torch.optim.Optimizer) -> str:
    """Return why gradients of such a model are not averaged."""
    try:
        Sync(run, model, optimizer, SiteSync(), SyncOptions())
    except InputError as error:
        return str(error)
    return ""


def box(parameter: Tensor) -> Tensor:
    """Return what a rank has of a parameter."""
    whole = parameter.detach()
    return (whole.to_local() if isinstance(whole, DTensor) else whole).float()
