"""What a step of a pipeline over sites takes."""

import numpy as np
import pytest

from gridloom.planner.stages_time import StageLink, stages_depth, stages_step_s

FREE = StageLink(sent_bytes=0.0, bandwidth_bytes_per_s=1.0, rtt_s=0.0)
WAN = StageLink(sent_bytes=1e5, bandwidth_bytes_per_s=1e7, rtt_s=0.04)


def test_without_a_link_it_is_the_bubble_of_1f1b() -> None:
    assert stages_step_s([0.1] * 4, [FREE] * 3, micro_batches=8) == pytest.approx(0.1 * (8 + 4 - 1))
    assert stages_depth([0.1] * 4, [FREE] * 3) == 4
    assert stages_step_s([0.1], [], micro_batches=8) == pytest.approx(0.8)


def test_a_link_costs_one_round_trip_a_step() -> None:
    stages = [0.1, 0.08]
    assert WAN.transfer_s == pytest.approx(0.01)
    assert stages_step_s(stages, [WAN], micro_batches=16) == pytest.approx(0.24 + 15 * 0.1)
    assert stages_depth(stages, [WAN]) == 3


def test_a_link_that_carries_less_than_the_stages_make_sets_the_pace() -> None:
    slow = StageLink(sent_bytes=1e6, bandwidth_bytes_per_s=5e6, rtt_s=0.0)
    assert stages_step_s([0.1, 0.1], [slow], micro_batches=11) == pytest.approx(0.6 + 10 * 0.2)


def test_a_stage_that_holds_too_few_waits_once_a_window() -> None:
    # rounds of 0.24 s, of which two micro-batches fill 0.2 s
    assert stages_step_s([0.1, 0.08], [WAN], micro_batches=4, depth=2) == pytest.approx(
        0.24 + 0.24 + 0.1
    )
    assert stages_step_s([0.1, 0.08], [WAN], micro_batches=4, depth=1) == pytest.approx(4 * 0.24)


def test_many_cases_at_once() -> None:
    rtts = np.array([0.0, 0.04, 0.4])
    link = StageLink(sent_bytes=1e5, bandwidth_bytes_per_s=np.array([1e7, 1e7, 1e6]), rtt_s=rtts)
    steps = stages_step_s([0.1, 0.1], [link], micro_batches=8, depth=np.array([2, 4, 4]))
    for number, rtt in enumerate(rtts):
        one = StageLink(
            sent_bytes=1e5,
            bandwidth_bytes_per_s=link.bandwidth_bytes_per_s[number],
            rtt_s=rtt,
        )
        alone = stages_step_s([0.1, 0.1], [one], micro_batches=8, depth=(2, 4, 4)[number])
        assert steps[number] == pytest.approx(alone)
