"""Trees of switches, and blocks."""

import pytest
from tests.unit.sites.slurm.samples import text

from gridloom.base.errors import InputError
from gridloom.sites.slurm.records import Block, Switch, Topology
from gridloom.sites.slurm.topology import node_paths, topology


@pytest.mark.parametrize("name", ["scontrol-topology-22.05.txt", "topology-22.05.conf"])
def test_a_real_tree_as_told_and_as_written(name: str) -> None:
    found = topology(text(name))
    assert [switch.name for switch in found.switches] == ["leaf0", "leaf1", "spine"]
    assert node_paths(found) == {
        "siteb-n0": ("spine", "leaf0"),
        "siteb-n1": ("spine", "leaf0"),
        "siteb-n2": ("spine", "leaf1"),
        "siteb-n3": ("spine", "leaf1"),
    }


def test_real_blocks() -> None:
    found = topology(text("topograph-block.conf"))
    assert found.block_sizes == (8, 16, 32)
    assert len(found.blocks) == 12
    paths = node_paths(found)
    assert len(paths) == 96
    assert paths["srv1101"] == ("rack11",)


def test_blocks_as_scontrol_tells_them() -> None:
    said = """\
BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2
BlockName=b2 BlockIndex=1 Nodes=n[3-4] BlockSize=2
AggregatedBlock=b[1-2] BlockIndex=2 Nodes=n[1-4] BlockSize=4
"""
    assert topology(said) == Topology(
        blocks=(Block(name="b1", nodes=("n1", "n2")), Block(name="b2", nodes=("n3", "n4"))),
        block_sizes=(2,),
    )


def test_case_comments_and_lines_that_go_on() -> None:
    said = "# a\nswitchname=S1 \\\n  NODES=n[1-2] # b\n\nSWITCHNAME=top Switches=S1 LinkSpeed=5\\"
    assert topology(said).switches == (
        Switch(name="S1", nodes=("n1", "n2")),
        Switch(name="top", switches=("S1",)),
    )


def test_trees_that_do_not_meet_stand_beside_each_other() -> None:
    said = "SwitchName=a Nodes=n1\nSwitchName=b Nodes=n[1-2]\nBlockName=k Nodes=n2,n3"
    assert node_paths(topology(said)) == {"n1": ("a",), "n2": ("b", "k"), "n3": ("k",)}


def test_nothing_is_no_topology() -> None:
    assert topology("# nothing\n\n") == Topology()


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("NodeName=n1", "t.conf:1: neither a switch nor a block: 'NodeName=n1'"),
        ("\nSwitchName=a Nodes", "t.conf:2: 'Nodes' is not Name=value"),
        ("SwitchName=a", "t.conf:1: switch a has neither Nodes nor Switches"),
        ("SwitchName=a Nodes=n[1-", "t.conf:1: 'n[1-' is not a host list: a bracket is not closed"),
        ("BlockSizes=4,x", "t.conf:1: block sizes are numbers with commas between, not '4,x'"),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", "t.conf: switch a is there twice"),
        ("BlockName=a Nodes=n1\nBlockName=a Nodes=n2", "t.conf: block a is there twice"),
        ("SwitchName=a Switches=b", "t.conf: switch b is not told"),
        (
            "SwitchName=a Nodes=n\nSwitchName=b Switches=a\nSwitchName=c Switches=a",
            "t.conf: switch a is below two others",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line(said: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        topology(said, "t.conf")
    assert message in str(error.value)


def test_a_ring_is_no_tree() -> None:
    with pytest.raises(InputError) as error:
        topology(
            "SwitchName=a Switches=b\nSwitchName=b Switches=c\nSwitchName=c Switches=a,d\n"
            "SwitchName=d Switches=e\nSwitchName=e Nodes=n1"
        )
    assert str(error.value).splitlines() == [f"switch {name} is above itself" for name in "abc"]


def test_every_line_that_is_wrong_is_named() -> None:
    with pytest.raises(InputError) as error:
        topology("x\nSwitchName=a Nodes=n1\ny=1")
    assert [problem.line for problem in error.value.problems] == [1, 3]
