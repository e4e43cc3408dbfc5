"""Progress in closed form equals progress second by second."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridloom.sim.progress import Progress

TICK_S = 1 / 8  # all numbers below are multiples of it, so that sums are exact


def walked(every: int, save: int, stall: int, pieces: list[tuple[int, int]]) -> tuple[float, ...]:
    """The same in ticks, told step by step: done, kept, trained, trained and kept, stood still."""
    stall = min(stall, save)
    every = max(every, save - stall)
    done = kept = trained = kept_trained = still = 0
    position, writing = 0, list[tuple[int, int, int]]()
    for ticks, rate in pieces:
        for _ in range(ticks):
            if position < every:
                done, trained = done + rate, trained + 1
            else:
                still += 1
            if position == every - 1:
                writing.append((save, done, trained))
            position += 1
            if position >= every + stall:
                position = 0
            # a checkpoint that began at the end of this tick has all of its time to go
            writing = [
                (
                    left - (0 if i == len(writing) - 1 and _fresh(position, every, stall) else 1),
                    d,
                    t,
                )
                for i, (left, d, t) in enumerate(writing)
            ]
            for left, d, t in writing:
                if left <= 0:
                    kept, kept_trained = d, t
            writing = [one for one in writing if one[0] > 0]
    return tuple(n * TICK_S for n in (done, kept, trained, kept_trained, still))


def _fresh(position: int, every: int, stall: int) -> bool:
    return position == (every if stall else 0)


@given(
    st.integers(1, 40),
    st.integers(0, 30),
    st.integers(0, 30),
    st.lists(st.tuples(st.integers(0, 90), st.integers(1, 4)), max_size=8),
)
def test_closed_form_is_what_walking_gives(
    every: int, save: int, stall: int, pieces: list[tuple[int, int]]
) -> None:
    progress = Progress(0.0, every_s=every * TICK_S, save_s=save * TICK_S, stall_s=stall * TICK_S)
    for ticks, rate in pieces:
        progress.advance(ticks * TICK_S, float(rate))
    told = (
        progress.done_s,
        progress.kept_s,
        progress.train_s,
        progress.kept_train_s,
        progress.still_s,
    )
    assert told == pytest.approx(walked(every, save, stall, pieces))


@given(
    st.integers(0, 40),
    st.integers(0, 30),
    st.integers(0, 30),
    st.lists(st.tuples(st.integers(0, 90), st.integers(1, 4)), max_size=4),
    st.integers(1, 400),
    st.integers(1, 4),
)
def test_the_time_until_done_is_the_time_it_takes(
    every: int, save: int, stall: int, pieces: list[tuple[int, int]], left: int, rate: int
) -> None:
    def fresh() -> Progress:
        made = Progress(3.0, every_s=every * TICK_S, save_s=save * TICK_S, stall_s=stall * TICK_S)
        for ticks, speed in pieces:
            made.advance(ticks * TICK_S, float(speed))
        return made

    progress, other = fresh(), fresh()
    target_s = progress.done_s + left * TICK_S
    wall_s = progress.wall_until(target_s, float(rate))
    other.advance(wall_s, float(rate))
    assert other.done_s == pytest.approx(target_s)
    if wall_s > TICK_S / 8:
        early = fresh()
        early.advance(wall_s - TICK_S / 16, float(rate))
        assert early.done_s < target_s
    before_s = progress.train_s + progress.still_s
    progress.finish(target_s, float(rate))
    assert progress.done_s == target_s
    assert progress.train_s + progress.still_s - before_s == pytest.approx(wall_s)
    assert (progress.train_s, progress.kept_s) == pytest.approx((other.train_s, other.kept_s))


def test_without_checkpoints_nothing_is_kept_until_told() -> None:
    progress = Progress(5.0)
    progress.advance(7.0, 2.0)
    assert (progress.done_s, progress.kept_s, progress.train_s) == (19.0, 5.0, 7.0)
    assert progress.wall_until_complete() == math.inf
    assert progress.wall_until(19.0, 0.0) == 0.0
    assert progress.wall_until(20.0, 0.0) == math.inf
    progress.keep_all()
    assert (progress.kept_s, progress.kept_train_s) == (19.0, 7.0)


def test_the_next_complete_checkpoint() -> None:
    progress = Progress(0.0, every_s=10.0, save_s=3.0, stall_s=1.0)
    told = []
    for _ in range(3):
        wall_s = progress.wall_until_complete()
        progress.advance(wall_s, 1.0)
        told.append((wall_s, progress.kept_s, progress.done_s))
    assert told == [(13.0, 10.0, 12.0), (11.0, 20.0, 22.0), (11.0, 30.0, 32.0)]


def test_a_checkpoint_that_takes_longer_than_a_cycle_sets_its_length() -> None:
    progress = Progress(0.0, every_s=1.0, save_s=30.0)
    progress.advance(59.0, 1.0)
    assert progress.kept_s == 0.0
    progress.advance(1.0, 1.0)
    assert progress.kept_s == 30.0
