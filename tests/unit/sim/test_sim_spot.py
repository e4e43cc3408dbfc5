"""Spot capacity becomes reclaims of nodes, so that at every time as many are there as it says.

The excerpt is of uclasystem/bamboo (MIT): g4dn.xlarge in us-east-1c from 2020-11-20, 19:30.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.simulated import Played, arrival, grid

from gridloom.base.errors import InputError
from gridloom.sim.faults import Fault
from gridloom.sim.spot import parse_capacity, reclaims

BAMBOO = """\
series,line
g4dn,"0,0"
g4dn,"21529,0"
g4dn,"21529,4"
g4dn,"21556,4"
g4dn,"21556,12"
g4dn,"21637,12"
g4dn,"21637,5"
p2,"0.5,9"
"""
RUNS = """\
kind,nodes,campaign,zone_instance,gap_s,tick,value
availability,4-node,may,a_v100_1,300,0,4
availability,4-node,may,a_v100_1,300,3,1
availability,4-node,may,a_v100_1,300,5,-1
preemption,1-node,may,b_v100_1,30,2,1
"""


def test_both_layouts() -> None:
    g4dn = ((0.0, 0), (21529.0, 4), (21556.0, 12), (21637.0, 5))
    assert parse_capacity(BAMBOO) == parse_capacity(BAMBOO, series="g4dn") == g4dn
    assert parse_capacity(BAMBOO, series="p2", unit_s=3600.0) == ((1800.0, 9),)
    assert parse_capacity(RUNS) == ((0.0, 4), (900.0, 1))
    assert parse_capacity(RUNS, series="preemption/1-node/may/b_v100_1") == ((60.0, 1),)


@pytest.mark.parametrize(
    ("text", "series", "said"),
    [
        ("a,b\n", "", "f:1: the columns are of neither layout; begin with `series,line` or"),
        (BAMBOO, "g4", "f: there is no series `g4`; did you mean `g4dn`?"),
        (BAMBOO, "zzzz", "f: there is no series `zzzz`; it has g4dn, p2"),
        ("series,line\n", "", "f: there is no series ``; it has none"),
        ('series,line\na,"x,1"\n', "", "f:2: found `x` where a time should be; write a number"),
        ('series,line\na,"1,x"\n', "", "f:2: found `x` where a number of nodes should be"),
        (RUNS + "a,b\n", "", "f:6: found 2 cells under 7 columns"),
    ],
)
def test_what_is_wrong(text: str, series: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_capacity(text, "f", series)
    assert str(caught.value).startswith(said)


def test_the_last_nodes_go_first() -> None:
    faults = reclaims(((0.0, 2), (10.0, 0), (30.0, 1)), ["s/a", "s/b", "s/c"], from_s=100.0)
    assert faults == (
        Fault(at_s=100.0, kind="reclaim", domain="s/c", notice_s=120.0),
        Fault(at_s=110.0, kind="reclaim", domain="s/a", duration_s=20.0, notice_s=120.0),
        Fault(at_s=110.0, kind="reclaim", domain="s/b", notice_s=120.0),
    )


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 9)), max_size=30))
def test_as_many_nodes_are_there_as_the_capacity_says(steps: list[tuple[int, int]]) -> None:
    at_s, capacity = 0.0, []
    for passed, count in steps:
        at_s += passed
        capacity.append((at_s, count))
    nodes = [f"s/n{i}" for i in range(6)]
    faults = reclaims(tuple(capacity), nodes)
    for now_s, count in capacity:
        gone = [
            fault.domain
            for fault in faults
            if fault.at_s <= now_s
            and (not fault.duration_s or now_s < fault.at_s + fault.duration_s)
        ]
        assert len(gone) == len(set(gone)) == 6 - min(count, 6)
        assert set(gone) == set(nodes[6 - len(gone) :])


def test_a_job_on_measured_capacity() -> None:
    nodes = [f"s/n{i}" for i in range(5)]
    faults = reclaims(parse_capacity(BAMBOO), nodes, notice_s=0.0)
    job = arrival(devices=5, work_s=600.0, forecast={"checkpoint_every_s": 60.0})
    played = Played(grid(1, 1, 1, 1, 1), [job], faults=faults)
    assert played.job().first_start_s == 21556.0
    assert played.job().end_s == 22156.0
