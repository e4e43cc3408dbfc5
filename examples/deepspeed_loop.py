"""A DeepSpeed loop at several sites, ZeRO 1 to 3; what differs from plain use is marked.

pip install deepspeed; a job like examples/own-loop.yaml, with any number of ranks at each site.
"""

import os
import sysconfig
from pathlib import Path

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

import gridloom.runtime as gl


def shards(engine: deepspeed.DeepSpeedEngine) -> gl.Shards:
    """Return this rank's part of the fp32 weights, and how the model's own weights follow it."""
    zero = engine.optimizer
    if engine.zero_optimization_stage() < 3:
        return gl.Shards(zero.single_partition_of_fp32_groups, zero.update_lp_params)

    masters, kept = zero.fp32_partitioned_groups_flat, zero.persistent_parameters

    def follow() -> None:
        zero.empty_partition_cache()  # gathered weights are those from before
        for low, master in zip(zero.fp16_partitioned_groups_flat, masters, strict=True):
            low.data.copy_(master.data)
        if kept:
            kept[0].all_gather(kept)

    return gl.Shards(masters, follow)


def main(steps: int = 30, stage: int = 2) -> None:
    """Train a model on the sources of Python's standard library, in windows of 64 bytes."""
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    text = bytearray(b"".join(source.read_bytes() for source in sources))
    windows = torch.frombuffer(text[: len(text) // 65 * 65], dtype=torch.uint8).view(-1, 65)
    run = gl.init(own_world=True)  # 1: each site is a world of its own; it has a process group
    if not dist.is_initialized():  # but for a site of one rank
        os.environ["LOCAL_RANK"] = "0"  # DeepSpeed insists on it
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    torch.manual_seed(1)  # the same weights at every site
    model = nn.Sequential(nn.Embedding(256, 64), nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 256))
    config = {
        "train_micro_batch_size_per_gpu": 16,
        "zero_optimization": {"stage": stage},
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
    }
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    data = gl.data(windows, batch_size=16, seed=1, passes=None)  # 2: each site's own samples
    sync = gl.sync(shards(engine), optimizer)  # 3: as the job's `sync` says, with kind outer
    for step, batch in zip(range(1, steps + 1), data, strict=False):
        batch = batch.to(run.device).long()
        loss = nn.functional.cross_entropy(engine(batch[:, :-1]).float().mT, batch[:, 1:])
        engine.backward(loss)
        sync.step(tokens=batch[:, 1:].numel(), update=engine.step)  # 4: for engine.step()
        gl.report(step, loss=loss.item())
    sync.finish()  # 5: one model at all sites
    whole = [deepspeed.utils.safe_get_full_fp32_param(p) for p in model.parameters()]
    total = sum(float(one.double().sum()) for one in whole)
    print(f"{run.place.site}: loss {loss.item():.3f}, sum of the weights {total!r}")


if __name__ == "__main__":
    main()
