"""The time that the core is told."""

from tests.fakes.clock import FakeClock

from gridloom.control.timeline import Timeline


def timeline(clock: FakeClock, now_s: float = 0.0) -> Timeline:
    return Timeline(clock, now_s, leap_s=3.0, settle_s=4.0)


def test_it_is_the_wall_clock_while_that_behaves() -> None:
    clock = FakeClock(1000.0)
    line = timeline(clock)
    clock.advance(5.0)
    assert line.now_s() == 1005.0


def test_it_goes_on_steadily_when_the_wall_clock_is_set_back() -> None:
    clock = FakeClock(1000.0)
    line = timeline(clock)
    clock.jump(-600.0)
    clock.advance(2.0)
    assert line.now_s() == 1002.0
    clock.advance(2.0)
    assert line.now_s() == 1004.0


def test_it_starts_no_earlier_than_the_journal_ends() -> None:
    clock = FakeClock(1000.0)
    line = timeline(clock, now_s=1500.0)
    clock.advance(1.0)
    assert line.now_s() == 1501.0


def test_a_small_step_forward_is_followed_at_once() -> None:
    clock = FakeClock(1000.0)
    line = timeline(clock)
    clock.jump(2.0)
    assert line.now_s() == 1002.0


def test_after_a_leap_nothing_is_told_until_it_has_settled() -> None:
    clock = FakeClock(1000.0)
    line = timeline(clock)
    clock.jump(3600.0)
    assert line.now_s() is None
    clock.advance(3.9)
    assert line.now_s() is None
    clock.advance(0.2)
    assert line.now_s() == 4604.1


def test_a_gap_before_the_first_look_settles_as_well() -> None:
    clock = FakeClock(1000.0)
    line = Timeline(clock, 0.0, leap_s=3.0, settle_s=4.0, settled=False)
    assert line.now_s() is None
    clock.advance(4.0)
    assert line.now_s() == 1004.0
