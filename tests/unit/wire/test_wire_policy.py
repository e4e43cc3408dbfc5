"""The policy of a grid file: by name, and with some of its rules changed."""

from typing import get_args

import pytest
from msgspec.structs import replace

from gridloom.base.errors import InputError
from gridloom.model.policy import POLICIES, Blocked, Order, Policy, Preemption, Weights, combined
from gridloom.wire.convert import to_inventory
from gridloom.wire.documents import read_grid
from gridloom.wire.policy_document import (
    POLICY_NAMES,
    SWITCHES,
    PolicyDocument,
    PreemptionDocument,
    WeightsDocument,
)

SITES = "sites: {a: {accelerators: cpu}}\n"


def policy(text: str) -> Policy:
    return to_inventory(read_grid((SITES + text).encode(), "grid.yaml").document).policy


def sentences(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        read_grid((SITES + text).encode(), "grid.yaml")
    return [problem.sentence().removeprefix("grid.yaml") for problem in caught.value.problems]


def test_without_a_word_it_is_the_models() -> None:
    assert policy("") == policy("policy: {}\n") == Policy()


@pytest.mark.parametrize("name", [*POLICIES, *SWITCHES, "las+elastic", "fair+carbon+defragment"])
def test_a_name_is_enough(name: str) -> None:
    assert policy(f"policy: {name}\n") == combined(name)
    assert policy(f"policy: {{base: {name}}}\n") == combined(name)


def test_spaces_around_the_joint_are_nothing() -> None:
    assert policy("policy: las + elastic\n") == combined("las+elastic")


def test_what_is_said_goes_before_the_base() -> None:
    said = policy(
        "policy:\n"
        "  base: fair+elastic\n"
        "  order: deadline\n"
        "  blocked: conservative\n"
        "  patience: 1m\n"
        "  weights: {time: 2, wish: 3, fragmentation: 0, price: 4, energy: 5, carbon: 6,\n"
        "    distance: 7, advantage: 8}\n"
        "  preemption: {priority: false, reclaim: false, order: false, min_run: 10m, cooldown: 0,\n"
        "    gain_min: 0.2}\n"
        "  ageing_per_hour: 0.5\n"
        "  attained_steps: [1h, 2h]\n"
        "  elastic: false\n"
        "  resize_min: 5m\n"
        "  defragment: true\n"
        "  slot_hold: 0\n"
        "  failures_max: 0\n"
        "  taint: 2h\n"
        "  predict: true\n"
    )
    assert said == Policy(
        name="fair+elastic",
        order="deadline",
        blocked="conservative",
        patience_s=60.0,
        weights=Weights(
            time=2.0, wish=3.0, fragmentation=0.0, price=4.0, energy=5.0, carbon=6.0, distance=7.0,
            advantage=8.0,
        ),
        preemption=Preemption(
            priority=False, reclaim=False, order=False, min_run_s=600.0, cooldown_s=0.0,
            gain_min=0.2,
        ),
        ageing_per_hour=0.5,
        attained_steps_s=(3600.0, 7200.0),
        elastic=False,
        resize_s_min=300.0,
        defragment=True,
        slot_hold_s=0.0,
        failures_max=0,
        taint_s=7200.0,
        predict=True,
    )  # fmt: skip


def test_what_is_not_said_stays_as_the_base_has_it() -> None:
    said = policy("policy: {base: topology+las, weights: {price: 0}, preemption: {cooldown: 1m}}\n")
    base = combined("topology+las")
    assert said == replace(
        base,
        weights=replace(base.weights, price=0.0),
        preemption=replace(base.preemption, cooldown_s=60.0),
    )
    assert said.weights.wish == POLICIES["topology"].weights.wish
    assert said.preemption.order


@pytest.mark.parametrize(
    ("document", "noun"),
    [
        (PolicyDocument, Policy),
        (WeightsDocument, Weights),
        (PreemptionDocument, Preemption),
    ],
)
def test_everything_that_the_model_knows_can_be_said(
    document: type[PolicyDocument], noun: type[Policy]
) -> None:
    said = {POLICY_NAMES.get(name, name) for name in document.model_fields}
    assert said - {"base"} == set(noun.__struct_fields__) - {"name"}


@pytest.mark.parametrize("word", [*get_args(Order), *get_args(Blocked)])
def test_every_word_of_the_model_is_accepted(word: str) -> None:
    field = "order" if word in get_args(Order) else "blocked"
    assert getattr(policy(f"policy: {{{field}: {word}}}\n"), field) == word


NAMES = f"there are: {', '.join([*POLICIES, *SWITCHES])}"

BROKEN: dict[str, tuple[str, list[str]]] = {
    "unknown name": (
        "policy: fiar\n",
        [f":2: policy: there is no policy `fiar`; did you mean `fair`? {NAMES}"],
    ),
    "one unknown name of several": (
        "policy: {base: las+elastik}\n",
        [f":2: policy.base: there is no policy `elastik`; did you mean `elastic`? {NAMES}"],
    ),
    "far from any name": (
        "policy: qqq\n", [f":2: policy: there is no policy `qqq`; {NAMES}"]
    ),
    "an empty part": ("policy: las+\n", [f":2: policy: found `las+`; {NAMES}"]),
    "a number": (
        "policy: 3\n",
        [
            f":2: policy: found `3`; write one of {', '.join(POLICIES)}, or several joined by `+`,"
            " as `las+elastic`, or `field: value` lines below it"
        ],
    ),
    "no value": (
        "policy:\n",
        [
            f":2: policy: no value is given; write one of {', '.join(POLICIES)}, or several joined"
            " by `+`, as `las+elastic`, or `field: value` lines below it"
        ],
    ),
    "base of no kind": (
        "policy: {base: [las]}\n",
        [
            f":2: policy.base: found a list; write one of {', '.join(POLICIES)}, or several joined"
            " by `+`, as `las+elastic`"
        ],
    ),
    "fields": (
        "policy:\n  order: shortest\n  blocked: easi\n  patience: soon\n  weights: {prize: 1,"
        " price: -1, time: .nan}\n  preemption: {gain: 0.1, min_run: x, priority: yes}\n"
        "  ageing_per_hour: -1\n  attained_steps: [2h, 1h]\n  elastic: 1\n  resize_min: -1\n"
        "  slot_hold: x\n  failures_max: -1\n  taint: x\n"
        "  predict: maybe\n  bas: fair\n  cooldown: 3\n",
        [
            ":3: policy.order: found `shortest`; did you mean `share`?",
            ":4: policy.blocked: found `easi`; did you mean `easy`?",
            ":5: policy.patience: found `soon`; write a duration (`90s`, `20ms`, `1.5h`) of at"
            " least 0",
            ":6: policy.weights.time: found `nan`; write a number of at least 0",
            ":6: policy.weights.price: found `-1`; write a number of at least 0",
            ":6: policy.weights.prize: unknown field; did you mean `price`?",
            ":7: policy.preemption.priority: found `yes`; write `true` or `false`",
            ":7: policy.preemption.min_run: found `x`; write a duration (`90s`, `20ms`, `1.5h`) of"
            " at least 0",
            ":7: policy.preemption.gain: unknown field; did you mean `gain_min`?",
            ":8: policy.ageing_per_hour: found `-1`; write a number of at least 0",
            ":9: policy.attained_steps: found a list; write a list of durations, each longer than"
            " the one before, as `[1h, 10h, 100h]`",
            ":10: policy.elastic: found `1`; write `true` or `false`",
            ":11: policy.resize_min: found `-1`; write a duration (`90s`, `20ms`, `1.5h`) of at"
            " least 0",
            ":12: policy.slot_hold: found `x`; write a duration (`90s`, `20ms`, `1.5h`) of at"
            " least 0",
            ":13: policy.failures_max: found `-1`; write a whole number from 0 to 1000000",
            ":14: policy.taint: found `x`; write a duration (`90s`, `20ms`, `1.5h`) of at least 0",
            ":15: policy.predict: found `maybe`; write `true` or `false`",
            ":16: policy.bas: unknown field; did you mean `base`?",
            ":17: policy.cooldown: unknown field; did you mean `policy.preemption.cooldown`?",
        ],
    ),
    "steps of no kind": (
        "policy: {attained_steps: [], weights: 3, preemption: no}\n",
        [
            ":2: policy.weights: found `3`; write `field: value` lines below it",
            ":2: policy.preemption: found `no`; write `field: value` lines below it",
            ":2: policy.attained_steps: found a list; write a list of durations, each longer than"
            " the one before, as `[1h, 10h, 100h]`",
        ],
    ),
    "a field of the policy elsewhere": (
        "elastic: true\nscheduler: fair\n",
        [
            ":2: elastic: unknown field; did you mean `policy.elastic`?",
            ":3: scheduler: unknown field; did you mean `policy`?",
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_every_problem_is_told_at_once_with_its_line(name: str) -> None:
    text, expected = BROKEN[name]
    assert sentences(text) == expected
