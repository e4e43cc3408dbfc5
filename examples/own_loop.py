"""A training loop of one's own, unchanged on one process, one site or many.

python examples/own_loop.py; torchrun --nproc-per-node 2 examples/own_loop.py;
gridloom run examples/own-loop.yaml
"""

import sys
import sysconfig
from pathlib import Path

import torch
from torch import nn

import gridloom.runtime as gl


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, 64)
        self.recurrent = nn.GRU(64, 128, batch_first=True)
        self.head = nn.Linear(128, 256)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.recurrent(self.embedding(inputs))[0])


def main(steps: int = 300) -> int:
    """Train it on the sources of Python's standard library, in windows of 64 bytes."""
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    text = bytearray(b"".join(source.read_bytes() for source in sources))
    windows = torch.frombuffer(text[: len(text) // 65 * 65], dtype=torch.uint8).view(-1, 65)
    run = gl.init()
    torch.manual_seed(1)  # the same weights at every site
    model = gl.parallelize(Reader())
    optimizer = torch.optim.AdamW(model.module.parameters(), lr=3e-3)
    sync = gl.sync(model, optimizer)  # as the job's `sync` says
    data = gl.data(windows, batch_size=16, seed=1, passes=None)
    parts = {"model": model, "optimizer": optimizer, "sync": sync, "data": data}
    checkpoint = gl.checkpoint("own-loop-checkpoints", every=100, **parts)
    done = checkpoint.load()
    for step, batch in zip(range(done + 1, steps + 1), data, strict=False):
        batch = batch.to(run.device).long()
        loss = nn.functional.cross_entropy(model.module(batch[:, :-1]).mT, batch[:, 1:])
        loss.backward()
        sync.step(tokens=batch[:, 1:].numel())
        gl.report(step, loss=loss.item())
        is_stopped = gl.should_stop()
        if checkpoint.due(step) or is_stopped:
            checkpoint.save(step)
        if is_stopped:
            return gl.EXIT_STOPPED
    sync.finish()  # one model at all sites
    checkpoint.save(steps)
    return 0


if __name__ == "__main__":
    sys.exit(main())
