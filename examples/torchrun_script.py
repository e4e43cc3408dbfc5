"""A data-parallel script that knows nothing of gridloom: torch.distributed and the environment."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Fit a line over all ranks and print what each of them found."""
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")

    torch.manual_seed(rank)  # every rank has data of its own
    inputs = torch.randn(256, 1, device=device)
    targets = 3 * inputs + 1 + 0.01 * torch.randn(256, 1, device=device)

    model = DistributedDataParallel(nn.Linear(1, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()

    slope, offset = model.module.weight.item(), model.module.bias.item()
    restarts = os.environ["TORCHELASTIC_RESTART_COUNT"]
    print(
        f"rank {rank} of {dist.get_world_size()} (local {local_rank}, restarts {restarts}): "
        f"y = {slope:.2f} x + {offset:.2f}, loss {loss.item():.6f}"
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
