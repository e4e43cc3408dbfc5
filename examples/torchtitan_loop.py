"""A torchtitan model at several sites, without its trainer; what differs from plain use is marked.

pip install torchtitan; a job like examples/own-loop.yaml, with any number of ranks at each site.
"""

import sysconfig
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule
from torchtitan.components.optimizer import default_adamw
from torchtitan.distributed.fsdp import apply_fsdp_to_decoder
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.llama3 import llama3_configs

import gridloom.runtime as gl


def build(device: torch.device) -> torch.nn.Module:
    """Return torchtitan's smallest Llama, sharded over the ranks of the site."""
    config = llama3_configs["debugmodel"](attn_backend="flex")
    for layer in config.layers:  # flex attention has no backward pass on a CPU
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    with torch.device("meta"):
        model = config.build()
    mesh = init_device_mesh(device.type, (dist.get_world_size(),), mesh_dim_names=("fsdp",))
    apply_fsdp_to_decoder(model, mesh, torch.float32, torch.float32, pp_enabled=False)
    for part in model.modules():
        if isinstance(part, FSDPModule):
            part.set_force_sum_reduction_for_comms(enable=True)  # gloo can do no other
    model.to_empty(device=device)
    torch.manual_seed(1)  # the same weights at every site
    with torch.no_grad():
        model.init_weights(buffer_device=None)
    return model


def main(steps: int = 30) -> None:
    """Train it on the sources of Python's standard library, in windows of 64 bytes."""
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    text = bytearray(b"".join(source.read_bytes() for source in sources))
    windows = torch.frombuffer(text[: len(text) // 65 * 65], dtype=torch.uint8).view(-1, 65)
    run = gl.init(own_world=True)  # 1: each site is a world of its own; it has a process group
    if not dist.is_initialized():  # but for a site of one rank
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    model = build(run.device)
    (optimizer,) = default_adamw(lr=1e-3).build(model_parts=[model])
    data = gl.data(windows, batch_size=8, seed=1, passes=None)  # 2: each site's own samples
    sync = gl.sync(model, optimizer)  # 3: as the job's `sync` says, with kind outer
    for step, batch in zip(range(1, steps + 1), data, strict=False):
        batch = batch.to(run.device).long()
        answers = model(batch[:, :-1])
        loss = torch.nn.functional.cross_entropy(answers.mT, batch[:, 1:])
        (loss / dist.get_world_size()).backward()  # torchtitan has gradients summed
        sync.step(tokens=batch[:, 1:].numel())  # 4: for optimizer.step() and zero_grad()
        gl.report(step, loss=loss.item())
    sync.finish()  # 5: one model at all sites
    total = sum(float(p.detach().full_tensor().double().sum()) for p in model.parameters())
    print(f"{run.place.site}: loss {loss.item():.3f}, sum of the weights {total!r}")


if __name__ == "__main__":
    main()
