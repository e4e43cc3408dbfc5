"""Levels of the topology, by the labels that nodes have."""

from gridloom.sites.kube.topology_levels import KNOWN_LEVELS, Level, find_levels, path_of

ZONE = "topology.kubernetes.io/zone"
RACK = "cloud.provider.com/topology-rack"
NVIDIA = "network.topology.nvidia.com/"


def names(*nodes: dict[str, str]) -> list[str]:
    return [level.name for level in find_levels(nodes)]


def test_no_nodes_no_levels() -> None:
    assert find_levels([]) == ()


def test_levels_are_those_that_all_nodes_know_outermost_first() -> None:
    one = {RACK: "r1", ZONE: "z", "cloud.provider.com/topology-block": "b", "other": "x"}
    other = {ZONE: "z", RACK: "r2"}
    assert names(one, other) == ["zone", "rack"]
    assert names(one) == ["zone", "block", "rack"]
    assert names(one, {"x": "y"}) == []
    assert names({RACK: ""}) == []


def test_of_two_labels_for_one_level_the_first_counts() -> None:
    both = {f"{NVIDIA}block": "n", "cloud.provider.com/topology-block": "c"}
    (level,) = find_levels([both])
    assert level.label == "cloud.provider.com/topology-block"


def test_tiers_of_a_fabric_are_counted_from_the_node() -> None:
    node = {f"{NVIDIA}tier-{i}": str(i) for i in (0, 2, 1, 10)} | {f"{NVIDIA}accelerator": "nvl"}
    assert names(node | {ZONE: "z"}) == ["zone", "tier-10", "tier-2", "tier-1", "tier-0", "nvlink"]


def test_a_switch_fabric_of_topograph() -> None:
    node = {f"{NVIDIA}{name}": name for name in ("accelerator", "leaf", "spine", "core")}
    assert names(node) == ["core", "spine", "leaf", "nvlink"]


def test_custom_levels_take_the_place_of_known_ones() -> None:
    custom = (Level(name="hall", label="example.org/hall"), Level(name="row", label="row"))
    nodes = [{"example.org/hall": "h", ZONE: "z"}]
    assert find_levels(nodes, custom) == custom[:1]


def test_a_path_has_a_place_for_every_level() -> None:
    levels = (Level(name="zone", label=ZONE), Level(name="rack", label=RACK))
    assert path_of({ZONE: "z"}, levels) == ("z", "")


def test_no_label_is_known_twice() -> None:
    labels = [level.label for level in KNOWN_LEVELS]
    assert len(labels) == len(set(labels))
