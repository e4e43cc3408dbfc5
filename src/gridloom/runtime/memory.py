"""How much memory this process holds, and the most it held since somebody asked."""

import contextlib
import re
import resource
from pathlib import Path

import psutil
import torch

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # Linux, Documentation/filesystems/proc.rst


def resident_bytes() -> int:
    """Return the memory that this process has with all libraries in it."""
    # Torch loads about 75 MB of code with the first optimiser: that is no memory of the model.
    torch.optim.AdamW([torch.zeros(1)], fused=True)
    return psutil.Process().memory_info().rss


def reset_peak() -> None:
    """Let the peak be what is held now, where the kernel can do that."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with contextlib.suppress(OSError):
        _CLEAR.write_text(_RESET_PEAK)


def peak_bytes(device: torch.device) -> int:
    """Return the most that was held at a time since `reset_peak`: on its GPU, or resident."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with contextlib.suppress(OSError):
        found = re.search(r"^VmHWM:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
        if found:
            return int(found[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # since the start, in KiB
