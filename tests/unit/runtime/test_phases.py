"""Where time goes, on a clock that the test moves and a device that comes on when the test says."""

import pytest
import torch
from tests.fakes.clock import FakeClock

from gridloom.base.system import SystemClock
from gridloom.runtime.accelerator import DeviceLaps, laps, synchronize
from gridloom.runtime.busy import Busy
from gridloom.runtime.phases import Phases, spent


class Device:
    """Plays a device that does what it was told one thing after the other."""

    def __init__(self) -> None:
        self.done = 0.0
        self._told = 0.0

    def work(self, seconds: float) -> None:
        self._told += seconds

    def moment(self) -> "Event":
        return Event(self)

    @property
    def told(self) -> float:
        return self._told


class Event:
    """Plays ``torch.Event``."""

    def __init__(self, device: Device) -> None:
        self._device, self.at = device, -1.0

    def record(self) -> None:
        self.at = self._device.told

    def query(self) -> bool:
        return self._device.done >= self.at

    def elapsed_time(self, end: "Event", /) -> float:
        assert end.query(), "nobody may ask before it has come"
        return 1e3 * (end.at - self.at)


def test_phases_follow_each_other_and_add_up() -> None:
    clock = FakeClock()
    phases = Phases(laps(torch.device("cpu"), clock))
    for _ in range(2):
        for phase, seconds in (("outside", 0.5), ("forward", 1.0), ("backward", 2.0)):
            clock.advance(seconds)
            phases.end(phase)
    assert phases.seconds() == {"outside": 1.0, "forward": 2.0, "backward": 4.0}
    before = phases.seconds()
    clock.advance(3.0)
    phases.end("forward")
    assert spent(phases.seconds(), before, "forward", "backward", "never") == 3.0


def test_on_a_device_a_phase_counts_once_the_device_has_done_it() -> None:
    device = Device()
    phases = Phases(DeviceLaps(device.moment))
    device.work(1.0)
    phases.end("forward")
    device.work(2.0)
    phases.end("backward")
    assert phases.seconds() == {}
    device.done = 1.0
    assert phases.seconds() == {"forward": 1.0}
    device.done = 3.0
    device.work(4.0)
    phases.end("optimizer")
    assert phases.seconds() == {"forward": 1.0, "backward": 2.0}
    device.done = 7.0
    assert phases.seconds() == {"forward": 1.0, "backward": 2.0, "optimizer": 4.0}


def test_a_device_without_events_is_timed_by_the_clock() -> None:
    clock = FakeClock()
    lap = laps(torch.device("meta"), clock)
    clock.advance(2.0)
    assert lap()() == 2.0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.accelerator.is_available(), reason="needs an accelerator")
def test_an_accelerator_is_timed_by_its_own_events() -> None:
    device = torch.device(str(torch.accelerator.current_accelerator()))
    one = torch.randn(4096, 4096, device=device)
    synchronize(device)
    clock = SystemClock()
    start_s = clock.monotonic_s()
    phases = Phases(laps(device, clock))
    for _ in range(50):
        one @ one
    phases.end("products")
    handed_over_s = clock.monotonic_s() - start_s
    synchronize(device)
    done_s = clock.monotonic_s() - start_s
    assert handed_over_s / 2 < phases.seconds()["products"] <= done_s * 1.01


def test_what_overlaps_is_counted_once() -> None:
    clock = FakeClock()
    busy = Busy(clock.monotonic_s)
    clock.advance(1.0)
    assert busy.total_s() == 0.0
    busy.begin()
    clock.advance(2.0)
    busy.begin()
    clock.advance(4.0)
    assert busy.total_s() == 6.0
    busy.end()
    clock.advance(8.0)
    busy.end()
    clock.advance(16.0)
    assert busy.total_s() == 14.0
