"""A Lightning Fabric loop at several sites; what differs from plain use is marked.

pip install lightning; python examples/fabric_loop.py, or a job like examples/own-loop.yaml.
"""

import sysconfig
from pathlib import Path

import torch
from lightning.fabric import Fabric
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


def main(steps: int = 100) -> None:
    """Train it on the sources of Python's standard library, in windows of 64 bytes."""
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    text = bytearray(b"".join(source.read_bytes() for source in sources))
    windows = torch.frombuffer(text[: len(text) // 65 * 65], dtype=torch.uint8).view(-1, 65)
    run = gl.init(own_world=True)  # 1: each site is a world of its own; before Fabric
    fabric = Fabric(accelerator=run.device.type, devices=1)
    torch.manual_seed(1)  # the same weights at every site
    model = Reader()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, optimizer = fabric.setup(model, optimizer)
    data = gl.data(windows, batch_size=16, seed=1, passes=None)  # 2: each site samples of its own
    sync = gl.sync(model, optimizer)  # 3: as the job's `sync` says
    for step, batch in zip(range(1, steps + 1), data, strict=False):
        batch = batch.to(run.device).long()
        loss = nn.functional.cross_entropy(model(batch[:, :-1]).mT, batch[:, 1:])
        fabric.backward(loss)
        sync.step(tokens=batch[:, 1:].numel())  # 4: for optimizer.step() and zero_grad()
        gl.report(step, loss=loss.item())
    sync.finish()  # 5: one model at all sites
    total = sum(float(p.detach().double().sum()) for p in model.parameters())
    print(f"{run.place.site}: loss {loss.item():.3f}, sum of the weights {total!r}")


if __name__ == "__main__":
    main()
