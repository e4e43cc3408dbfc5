"""A torchrun-style script that says when its first training step was over and how fast it goes."""

import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WARM_STEPS, STEPS = 20, 400


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256))
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(64, 256)
    first_s = start_s = 0.0
    for step in range(WARM_STEPS + STEPS):
        if step == WARM_STEPS:
            start_s = time.perf_counter()
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        if step == 0:
            first_s = time.time()
    elapsed_s = time.perf_counter() - start_s
    if dist.get_rank() == 0:
        found = {"first_step_s": first_s, "steps_per_s": STEPS / elapsed_s}
        Path(os.environ["BENCH_OUT"]).write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
