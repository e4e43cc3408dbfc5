"""Policies that have a name, and what is made of several."""

import pytest
from msgspec.structs import replace

from gridloom.model.policy import POLICIES, Policy, Preemption, Weights, combined


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_single_name_is_that_policy(name: str) -> None:
    assert combined(name) == POLICIES[name]
    assert POLICIES[name].name == name


def test_backfill_is_the_default() -> None:
    assert combined("backfill") == Policy()


def test_each_part_adds_what_it_is_known_for() -> None:
    policy = combined("sjf+cost")
    assert policy == Policy(
        name="sjf+cost", order="duration", blocked="skip", weights=Weights(price=10.0)
    )


def test_of_two_parts_that_change_the_same_the_later_wins() -> None:
    assert combined("fifo+backfill-greedy").blocked == "skip"
    assert combined("backfill-greedy+fifo").blocked == "stop"
    assert combined("srtf+las").order == "attained"
    assert combined("fair+srtf").preemption == Preemption(order=True)


def test_a_part_that_changes_nothing_takes_nothing_back() -> None:
    assert combined("fifo+backfill").blocked == "stop"


@pytest.mark.parametrize("switch", ["elastic", "defragment", "predict"])
def test_switches_turn_on_one_thing(switch: str) -> None:
    policy = combined(f"las+{switch}")
    assert policy == replace(POLICIES["las"], name=f"las+{switch}", **{switch: True})


@pytest.mark.parametrize("names", ["", "fifo+", "fifo+quick", "name"])
def test_an_unknown_part_is_named(names: str) -> None:
    with pytest.raises(KeyError) as caught:
        combined(names)
    assert caught.value.args == (names.split("+")[-1],)
