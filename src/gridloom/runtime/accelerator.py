"""The one place that knows what kind of device there is: the rest of the runtime asks torch.

A maker's plug-in for torch (CUDA, ROCm, Ascend's NPU, ...) registers its device type and the
communication library that goes with it (nccl, rccl under the same name, hccl); without any, the
CPU and gloo.
"""

import torch
import torch.distributed as dist


def local_device(local_rank: int) -> torch.device:
    """Return the device of the rank with this number on its node, and make it the current one."""
    if not torch.accelerator.is_available():
        return torch.device("cpu")
    torch.accelerator.set_device_index(local_rank % torch.accelerator.device_count())
    kind = torch.accelerator.current_accelerator()
    return torch.device(kind.type if kind is not None else "cpu", local_rank)


def backend_for(device: torch.device) -> str:
    """Return what ``init_process_group`` is told: gloo for the CPU, the device's own library."""
    if device.type == "cpu":
        return "cpu:gloo"
    return f"cpu:gloo,{device.type}:{dist.get_default_backend_for_device(device)}"


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what it was told."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
