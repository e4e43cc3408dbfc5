"""The one place that knows what kind of device there is: the rest of the runtime asks torch.

A maker's plug-in for torch (CUDA, ROCm, Ascend's NPU, ...) registers its device type and the
communication library that goes with it (nccl, rccl under the same name, hccl); without any, the
CPU and gloo.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol, Self

import torch
import torch.distributed as dist

from gridloom.base.clock import Clock

Lap = Callable[[], float | None]
"""Returns the seconds of a lap; ``None`` while the device has not come to its end."""


class Moment(Protocol):
    """A moment in the work of a device, as ``torch.Event`` is one."""

    def record(self) -> object:
        """Let this be the moment when the device has done what it was told so far."""
        ...

    def query(self) -> bool:
        """Return whether the device has come so far."""
        ...

    def elapsed_time(self, end: Self, /) -> float:
        """Return the milliseconds from this moment to another that has come."""
        ...


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


def device_name(device: torch.device) -> str:
    """Return what the maker calls the device, or its type where torch does not know."""
    if device.type == "cpu":
        return device.type
    named = getattr(torch.get_device_module(device), "get_device_name", None)
    return device.type if named is None else str(named(device))


def laps(device: torch.device, clock: Clock) -> Callable[[], Lap]:
    """Return what gives at each call the lap since the call before, without waiting for the device.

    On the CPU laps are the clock's. Elsewhere they are between events in the device's stream, for
    the host is told that work is done when it has only been handed over; where a device has no
    events with times, laps are the clock's all the same.
    """
    if device.type == "cpu":
        return _HostLaps(clock)
    event = partial(torch.Event, device, enable_timing=True)
    try:
        return DeviceLaps(event)
    except (RuntimeError, NotImplementedError):
        return _HostLaps(clock)


class DeviceLaps:
    """Laps by moments in the work of a device."""

    def __init__(self, moment: Callable[[], Moment]) -> None:
        """Begin now.

        Args:
            moment: Makes one that is yet to be recorded.
        """
        self._moment = moment
        self._last = self._now()

    def __call__(self) -> Lap:
        """Return the lap since the last call."""
        start, self._last = self._last, self._now()
        return partial(_between, start, self._last)

    def _now(self) -> Moment:
        moment = self._moment()
        moment.record()
        return moment


class _HostLaps:
    def __init__(self, clock: Clock) -> None:
        self._now_s = clock.monotonic_s
        self._last_s = self._now_s()

    def __call__(self) -> Lap:
        start_s, self._last_s = self._last_s, self._now_s()
        lap_s = self._last_s - start_s
        return lambda: lap_s


def _between(start: Moment, end: Moment) -> float | None:
    return start.elapsed_time(end) / 1e3 if end.query() else None
