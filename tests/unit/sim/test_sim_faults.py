"""Fault scripts are read with every error at its line; faults drawn by rates keep to them."""

import math
import statistics

import pytest
from tests.fakes.simulated import grid

from gridloom.base.errors import InputError
from gridloom.sim.faults import Fault, Hazard, drawn, parse_faults

YAML = """\
# a bad day
faults:
  - {at: 2h, kind: slow, domain: a/n0, for: 30m, factor: 1.5}
  - at: 90
    kind: down
    domain: b
  - {at: 1h, kind: cut, domain: a|b, for: 45s}
  - {at: 1d, kind: reclaim, domain: b/n1, for: 1h, notice: 2m}
"""
CSV = """\
# a bad day
at, kind,domain,for,factor,notice
2h,slow,a/n0,30m,1.5,

90,down,b
1h,cut,a|b,45s,,
1d,reclaim,b/n1,1h,,2m
"""
DAY = (
    Fault(at_s=90.0, kind="down", domain="b"),
    Fault(at_s=3600.0, kind="cut", domain="a|b", duration_s=45.0),
    Fault(at_s=7200.0, kind="slow", domain="a/n0", duration_s=1800.0, factor=1.5),
    Fault(at_s=86400.0, kind="reclaim", domain="b/n1", duration_s=3600.0, notice_s=120.0),
)
GRID = grid(8, 8, sites=("a", "b"))


@pytest.mark.parametrize("text", [YAML, CSV])
def test_both_forms_say_the_same(text: str) -> None:
    assert parse_faults(text, "f") == DAY
    assert parse_faults(text, "f", GRID) == DAY


def problems(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        parse_faults(text, "f", GRID)
    return [problem.sentence() for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("soon,down,a", ["at: found `soon`; write a duration such as `90s` or `2h`"]),
        (",down,a", ["at: no time is given; write a duration such as `90s` or `2h`"]),
        ("1,dwon,a", ["kind: found `dwon`; did you mean `down`?"]),
        (
            "1,,a",
            [
                "kind: no kind is given; write one of down, reclaim, cut, slow, maintenance, kill,"
                " refuse"
            ],
        ),
        ("1,down,", ["domain: no domain is given; write `site/node`, `site` or `site|site`"]),
        ("1,down,a/n7", ["domain: the grid has no `a/n7`; did you mean `a/n1`?"]),
        ("1,down,zzz", ["domain: the grid has no `zzz`; name a site or a node of the grid"]),
        ("1,down,a|b", ["domain: a link cannot be `down`; name a site or a node"]),
        ("1,cut,a/n0", ["domain: only a site or a link can be cut; write `down` for a node"]),
        ("1,cut,a|a", ["domain: found `a|a`; write a link as `site|site`"]),
        ("1,slow,a,2s", ["factor: no factor is given; write a number above 1"]),
        ("1,slow,a,2s,1", ["factor: found `1`; write a number above 1"]),
        ("1,slow,a,2s,x", ["factor: found `x`; write a number above 1"]),
        ("1,down,a,2s,2", ["factor: `down` has no factor; leave it out"]),
        ("1,down,a,2s,,3s", ["notice: `down` comes without notice; leave it out"]),
        ("1,down,a,-2", ["for: found `-2`; write a duration such as `90s` or `2h`"]),
        ("1,down,a,2s,,,,", ["found 8 cells under 6 columns"]),
    ],
)
def test_what_is_wrong_with_a_line(row: str, said: list[str]) -> None:
    text = f"at,kind,domain,for,factor,notice\n1,down,a\n{row}\n"
    assert problems(text) == [f"f:3: {one}" for one in said]


def test_every_line_is_reported_and_unknown_columns_once() -> None:
    assert problems("at,kind,domain,fro\n1,down,a,3\n2,dow,a\n3,down,c\n") == [
        "f:1: unknown field `fro`; did you mean `for`?",
        "f:3: kind: found `dow`; did you mean `down`?",
        "f:4: domain: the grid has no `c`; name a site or a node of the grid",
    ]


def test_what_is_wrong_with_yaml() -> None:
    text = "faults:\n  - at: 1\n    kind: dow\n    domain: a\n    frr: 3\n  - down\nfalts: 3\n"
    assert problems(text) == [
        "f:3: kind: found `dow`; did you mean `down`?",
        "f:5: unknown field `frr`; did you mean `for`?",
        "f:6: faults[1]: found `down`; write `at:`, `kind:`, `domain:`",
        "f:7: falts: unknown field `falts`; write `faults`, a list",
    ]
    assert problems("faults: 3\n") == ["f: the list `faults` is missing; write `faults:`"]
    assert "a bracket is not closed" in problems("faults:\n  - {at: 1\n")[0]


def test_a_link_needs_two_sites_of_the_grid() -> None:
    assert problems("at,kind,domain\n1,cut,a|x\n") == [
        "f:2: domain: the grid has no `x`; name a site or a node of the grid"
    ]


def test_drawn_faults_come_as_often_as_they_should() -> None:
    inventory = grid(*([8] * 200), sites=("a",))
    year_s = 365 * 86400.0
    for shape in (1.0, 0.7, 1.5):
        hazard = Hazard(kind="down", mtbf_s=30 * 86400.0, shape=shape, repair_s=3600.0)
        faults = drawn(inventory, [hazard], seed=1, until_s=year_s)
        expected = 200 * year_s / (30 * 86400.0 + 3600.0)
        assert len(faults) == pytest.approx(expected, rel=0.08)
        assert list(faults) == sorted(faults, key=lambda one: (one.at_s, one.domain))
        assert {one.duration_s for one in faults} == {3600.0}


def test_devices_fail_apart_and_take_their_node() -> None:
    inventory = grid(*([8] * 400))
    hazard = Hazard(kind="down", mtbf_s=8e6, per="accelerator", repair_s=1.0)
    faults = drawn(inventory, [hazard], seed=3, until_s=1e7)
    assert len(faults) == pytest.approx(400 * 10, rel=0.06)
    assert all("/" in one.domain for one in faults)


def test_first_failures_are_weibull() -> None:
    """Of n devices with shape k the first failure has the mean mtbf / n^(1/k)."""
    inventory = grid(*([4] * 2000))
    hazard = Hazard(kind="down", mtbf_s=1000.0, per="accelerator", shape=2.0)
    faults = drawn(inventory, [hazard], seed=5, until_s=1e9)
    assert len(faults) == 2000  # for ever down
    mean_s = statistics.fmean(one.at_s for one in faults)
    assert mean_s == pytest.approx(1000.0 / math.sqrt(4), rel=0.03)


def test_repairs_vary_around_their_mean() -> None:
    hazard = Hazard(kind="down", mtbf_s=100.0, repair_s=50.0, repair_shape=1.0)
    faults = drawn(grid(1), [hazard], seed=7, until_s=1e6)
    lengths = [one.duration_s for one in faults]
    assert statistics.fmean(lengths) == pytest.approx(50.0, rel=0.05)
    assert len(set(lengths)) == len(lengths)
    ends_s = [one.at_s + one.duration_s for one in faults]
    assert all(end_s < after.at_s for end_s, after in zip(ends_s, faults[1:], strict=False))


def test_other_units_and_hazards_do_not_change_a_unit_s_faults() -> None:
    hazard = Hazard(kind="kill", mtbf_s=1000.0)
    other = Hazard(kind="slow", mtbf_s=500.0, per="site", factor=2.0, repair_s=10.0)
    small = drawn(grid(8), [hazard], seed=1, until_s=1e5)
    large = drawn(grid(8, 4), [hazard, other], seed=1, until_s=1e5)
    assert [one for one in large if one.domain == "s/n0"] == list(small)
    assert {one.domain for one in large if one.kind == "slow"} == {"s"}
    assert drawn(grid(8), [hazard], seed=2, until_s=1e5) != small


def test_a_hazard_can_be_of_one_kind_of_device_or_one_site() -> None:
    hazard = Hazard(kind="kill", mtbf_s=10.0, accelerator="h100")
    assert drawn(GRID, [hazard], seed=1, until_s=100.0) == ()
    hazard = Hazard(kind="kill", mtbf_s=10.0, accelerator="gpu", site="b")
    faults = drawn(GRID, [hazard], seed=1, until_s=100.0, from_s=50.0)
    assert {one.domain for one in faults} == {"b/n0", "b/n1"}
    assert all(50.0 <= one.at_s < 100.0 for one in faults)


def test_a_hazard_that_makes_no_sense_is_refused() -> None:
    hazard = Hazard(kind="slow", mtbf_s=0.0, shape=-1.0, repair_s=-1.0, repair_shape=-1.0)
    with pytest.raises(InputError) as caught:
        drawn(GRID, [hazard], seed=1, until_s=1.0)
    fields = [problem.field for problem in caught.value.problems]
    assert fields == ["mtbf_s", "shape", "repair_s", "repair_shape", "factor"]
