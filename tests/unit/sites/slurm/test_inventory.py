"""Nodes of a site as Slurm tells them."""

import pytest
from msgspec.structs import replace
from tests.unit.sites.slurm.samples import text

from gridloom.base.errors import SiteError
from gridloom.model.inventory import Node, Site, SlurmAccess
from gridloom.sites.slurm import records
from gridloom.sites.slurm.gres import gres
from gridloom.sites.slurm.inventory import Cluster, device_of, kind_of, with_nodes
from gridloom.sites.slurm.parse_scontrol import nodes, partitions
from gridloom.sites.slurm.records import Block, Gres, Partition, Reservation, Switch, Topology
from gridloom.sites.slurm.topology import topology

SITE = Site(name="hpc", kind="slurm", nodes=(), slurm=SlurmAccess())
REAL = Cluster(
    nodes=nodes(text("scontrol-nodes-lines-22.05.txt")),
    partitions=partitions(text("scontrol-partitions-22.05.txt")),
    topology=topology(text("scontrol-topology-22.05.txt")),
)


def made(*said: str, features: str = "", **more: object) -> Cluster:
    """Return a cluster whose nodes n0, n1 and so on have these devices."""
    found = tuple(
        records.Node(
            name=f"n{i}",
            address=f"10.0.0.{i}",
            cpus=8,
            memory_mib=16384,
            gres=gres(one),
            features=tuple(features.split()),
            states=("IDLE",),
        )
        for i, one in enumerate(said)
    )
    names = tuple(node.name for node in found)
    part = Partition(name="main", is_default=True, nodes=names, states=("UP",))
    return Cluster(nodes=found, partitions=(part,), **more)  # type: ignore[arg-type]


def access(**more: object) -> Site:
    return replace(SITE, slurm=SlurmAccess(**more))  # type: ignore[arg-type]


def test_a_real_cluster() -> None:
    found = with_nodes(SITE, REAL)
    assert found.levels == ("leaf",)
    assert found.slurm == SlurmAccess(gres={"h100": "gpu:h100"})
    first, *_, last = found.nodes
    assert first == Node(
        name="siteb-n0",
        address="127.0.0.1",
        accelerator="h100",
        count=8,
        path=("leaf0",),
        labels={"h100": "yes"},
        resources={"cpus": 32, "memory_gib": 64},
    )
    assert (last.name, last.path) == ("siteb-n3", ("leaf1",))


def test_nodes_without_devices_offer_their_cores() -> None:
    (node,) = with_nodes(SITE, made("")).nodes
    assert (node.accelerator, node.count, node.memory_bytes) == ("cpu", 8, 2 * 2**30)


def test_what_the_file_calls_devices_stands() -> None:
    site = access(gres={"h100": "gpu:hopper", "b200": "npu"})
    found = with_nodes(site, made("gpu:hopper:8", "npu:x9:4", "gpu:L4:2", "gpu:3"))
    assert [(node.accelerator, node.count) for node in found.nodes] == [
        ("h100", 8),
        ("b200", 4),
        ("l4", 2),
        ("gpu", 3),
    ]
    assert found.slurm is not None
    assert found.slurm.gres == {
        "h100": "gpu:hopper",
        "b200": "npu",
        "l4": "gpu:L4",
        "gpu": "gpu",
    }


@pytest.mark.parametrize(
    ("said", "device", "kind"),
    [
        ("gpu:nvidia_a100:8", Gres(name="gpu", type="nvidia_a100", count=8), "a100"),
        ("gpu:a100:2,gpu:h100:4", Gres(name="gpu", type="h100", count=4), "h100"),
        ("gpu:a100:4(S:0),gpu:a100:4(S:1)", Gres(name="gpu", type="a100", count=8), "a100"),
        ("shard:32,gpu:4,nic:2", Gres(name="gpu", count=4), "gpu"),
        ("gpu:1g.5gb:7", Gres(name="gpu", type="1g.5gb", count=7), "1g.5gb"),
    ],
)
def test_which_devices_a_node_has(said: str, device: Gres, kind: str) -> None:
    assert device_of(records.Node(name="n", gres=gres(said))) == device
    assert kind_of(device) == kind


def test_a_node_with_none_has_none() -> None:
    assert device_of(records.Node(name="n", gres=gres("gpu:0,nic:1"))) is None


def test_only_what_the_site_may_get() -> None:
    cluster = made("gpu:4", "gpu:4", "gpu:4", features="ib a100")
    kept = Reservation(name="ours", nodes=("n1", "n2"))
    cluster = replace(cluster, reservations=(kept,))
    assert [node.name for node in with_nodes(access(reservation="ours"), cluster).nodes] == [
        "n1",
        "n2",
    ]
    for said in ("ib&a100", "x|ib", "[x*2|y]", ""):
        assert len(with_nodes(access(constraint=said), cluster).nodes) == 3
    for wanted in (access(constraint="ib&x"), access(reservation="theirs"), access(partition="x")):
        with pytest.raises(SiteError, match="Slurm has no"):
            with_nodes(wanted, cluster)


def test_states_do_not_matter_but_what_is_not_there_is_left_out() -> None:
    cluster = made("gpu:4", "gpu:4")
    first, second = cluster.nodes
    odd = (replace(first, states=("DOWN", "DRAIN")), replace(second, states=("FUTURE",)))
    assert [node.name for node in with_nodes(SITE, replace(cluster, nodes=odd)).nodes] == ["n0"]


def test_no_default_partition() -> None:
    cluster = made("gpu:4")
    part = replace(cluster.partitions[0], is_default=False)
    with pytest.raises(SiteError, match="no default partition"):
        with_nodes(SITE, replace(cluster, partitions=(part,)))


WIRED = {
    "blocks": (
        Topology(blocks=(Block(name="b1", nodes=("n0", "n1")), Block(name="b2", nodes=("n2",)))),
        ("block",),
        [("b1",), ("b1",), ("b2",)],
    ),
    "blocks below switches": (
        Topology(
            switches=(
                Switch(name="s1", nodes=("n0", "n1")),
                Switch(name="s2", nodes=("n2",)),
            ),
            blocks=(Block(name="b1", nodes=("n0", "n1")), Block(name="b2", nodes=("n2",))),
        ),
        ("leaf", "block"),
        [("s1", "b1"), ("s1", "b1"), ("s2", "b2")],
    ),
    "a tree of five": (
        Topology(
            switches=(
                Switch(name="a", switches=("b", "x")),
                Switch(name="b", switches=("c",)),
                Switch(name="c", switches=("d",)),
                Switch(name="d", switches=("e",)),
                Switch(name="e", nodes=("n0", "n1")),
                Switch(name="x", switches=("y",)),
                Switch(name="y", switches=("z",)),
                Switch(name="z", switches=("w",)),
                Switch(name="w", nodes=("n2",)),
            )
        ),
        ("switch1", "core", "spine", "leaf"),
        [("b", "c", "d", "e"), ("b", "c", "d", "e"), ("x", "y", "z", "w")],
    ),
    "one that is not wired": (
        Topology(switches=(Switch(name="s1", nodes=("n0",)), Switch(name="s2", nodes=("n1",)))),
        (),
        [(), (), ()],
    ),
    "one switch for all": (
        Topology(switches=(Switch(name="s1", nodes=("n0", "n1", "n2")),)),
        (),
        [(), (), ()],
    ),
}


@pytest.mark.parametrize("name", WIRED)
def test_places(name: str) -> None:
    wired, levels, paths = WIRED[name]
    found = with_nodes(SITE, made("gpu:4", "gpu:4", "gpu:4", topology=wired))
    assert found.levels == levels
    assert [node.path for node in found.nodes] == paths
