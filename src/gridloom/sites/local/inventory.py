"""What this machine has: NVIDIA accelerators when there are any, CPU slots otherwise."""

import os
import re

import psutil
import pynvml

from gridloom.model.inventory import CPU, Inventory, Node, Site

_LOOPBACK = "127.0.0.1"
_GIB = 2**30


def discover() -> Inventory:
    """Return this machine as one site called ``local``, with one node a kind of accelerator."""
    nodes = _gpu_nodes() or (_cpu_node(),)
    return Inventory(sites=(Site(name="local", kind="local", nodes=nodes),))


def kind_of(product: str) -> str:
    """Return the accelerator kind for a product name, as ``h200`` for ``NVIDIA H200 NVL``."""
    words = [word for word in re.split(r"[^a-z0-9]+", product.lower()) if word]
    named = [word for word in words if word not in ("nvidia", "tesla", "geforce", "quadro")]
    return next(
        (word for word in named if any(c.isdigit() for c in word)), "-".join(named) or "gpu"
    )


def _cpu_node() -> Node:
    slots, memory_bytes = _cores(), psutil.virtual_memory().total
    return Node(
        name="local",
        address=_LOOPBACK,
        accelerator=CPU,
        count=slots,
        memory_bytes=memory_bytes // slots,
        resources=_host_share(1, 1),
    )


def _gpu_nodes() -> tuple[Node, ...]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver: no NVIDIA accelerator that could be used
        return ()
    try:
        found: dict[tuple[str, int], int] = {}
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            memory_bytes = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
            key = (kind_of(str(pynvml.nvmlDeviceGetName(handle))), memory_bytes)
            found[key] = found.get(key, 0) + 1
    finally:
        pynvml.nvmlShutdown()
    total = sum(found.values())
    return tuple(
        Node(
            name=kind,
            address=_LOOPBACK,
            accelerator=kind,
            count=count,
            memory_bytes=memory_bytes,
            resources=_host_share(count, total),
        )
        for (kind, memory_bytes), count in found.items()
    )


def _cores() -> int:
    """Return the cores that this process may use, not those that the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _host_share(devices: int, total: int) -> dict[str, int]:
    """Return what the host has for so many of its devices: kinds of them are nodes of their own."""
    memory_gib = psutil.virtual_memory().total // _GIB
    return {"cpus": _cores() * devices // total, "memory_gib": memory_gib * devices // total}
