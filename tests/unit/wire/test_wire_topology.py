"""Nodes in grid files: ranges, templates, topologies, and what is said of those that are wrong."""

import time

import pytest

from gridloom.base.errors import InputError
from gridloom.model.inventory import Inventory, Node
from gridloom.wire.convert import to_inventory
from gridloom.wire.documents import read_grid
from gridloom.wire.documents_names import NODES_MAX


def inventory(text: str) -> Inventory:
    return to_inventory(read_grid(text.encode(), "grid.yaml").document)


def sentences(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        read_grid(text.encode(), "grid.yaml")
    return [problem.sentence().removeprefix("grid.yaml") for problem in caught.value.problems]


LISTED = """
sites:
  north:
    levels: [spine, rack]
    node:
      accelerators: h100:8
      memory: 640GB
      island: 4
      labels: {fabric: ib, age: new}
      resources: {cpus: 96, memory: 1TB, nics: 8}
    nodes:
      n[01-06]: {path: [s1, "r[1-3]"], address: "10.0.0.[1-6]"}
      m: {path: [s2, r1], accelerators: A100:4, labels: {age: old}, resources: {cpus: 64}}
      k: {path: [s2, r1], memory: 320GB, island: 8}
    queues: q
    carbon: 320 g/kWh
queues: {q: {}}
"""


def test_nodes_in_ranges_take_their_places_and_what_their_site_says() -> None:
    site = inventory(LISTED).sites[0]
    assert site.levels == ("spine", "rack")
    assert site.queues == ("q",)
    assert site.carbon_g_per_kwh == 320.0
    assert [(node.name, node.path, node.address) for node in site.nodes[:6]] == [
        ("n01", ("s1", "r1"), "10.0.0.1"),
        ("n02", ("s1", "r1"), "10.0.0.2"),
        ("n03", ("s1", "r2"), "10.0.0.3"),
        ("n04", ("s1", "r2"), "10.0.0.4"),
        ("n05", ("s1", "r3"), "10.0.0.5"),
        ("n06", ("s1", "r3"), "10.0.0.6"),
    ]
    n01, m, k = site.nodes[0], site.nodes[6], site.nodes[7]
    assert n01 == Node(
        name="n01", address="10.0.0.1", accelerator="h100", count=8, memory_bytes=80 * 10**9,
        path=("s1", "r1"), island=4, labels={"fabric": "ib", "age": "new"},
        resources={"cpus": 96, "memory_gib": 931, "nics": 8},
    )  # fmt: skip
    # Other accelerators: neither memory nor islands of the template's
    assert m == Node(
        name="m", address="127.0.0.1", accelerator="a100", count=4, path=("s2", "r1"),
        labels={"fabric": "ib", "age": "old"},
        resources={"cpus": 64, "memory_gib": 931, "nics": 8},
    )  # fmt: skip
    assert (k.memory_bytes, k.island, k.count) == (40 * 10**9, 8, 8)


def test_a_topology_in_counts_names_its_nodes() -> None:
    site = inventory(
        "sites: {a: {topology: {spine: 2, leaf: 1, node: 10}, node: {accelerators: h100:8,"
        ' address: "n[1-20].x"}}}'
    ).sites[0]
    assert site.levels == ("spine", "leaf")
    assert [(node.name, node.path, node.address) for node in site.nodes][8:11] == [
        ("s1-l1-n09", ("s1", "l1"), "n9.x"),
        ("s1-l1-n10", ("s1", "l1"), "n10.x"),
        ("s2-l1-n01", ("s2", "l1"), "n11.x"),
    ]


@pytest.mark.parametrize(
    ("topology", "last"),
    [
        ("{node: 3}", "n3"),
        ("{rack: 4, node: 12}", "r4-n12"),
        ("{superpod: 2, spine: 3, switch: 1, node: 1}", "su2-sp3-sw1-n1"),
        ("{rack: 2, rack_row: 2, node: 1}", "rack2-rack_2-n1"),
        ("{nest: 2, node: 1}", "ne2-no1"),
    ],
)
def test_names_tell_the_levels_apart(topology: str, last: str) -> None:
    nodes = inventory(f"sites: {{a: {{topology: {topology}, node: {{accelerators: cpu}}}}}}")
    names = [node.name for node in nodes.sites[0].nodes]
    assert names[-1] == last
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "nodes",
    [
        "topology: {spine: 25, leaf: 10, node: 50}\n    node: {accelerators: h100:8}",
        "levels: [spine, leaf]\n    nodes:\n      n[00001-12500]: {accelerators: h100:8,"
        ' path: ["s[1-25]", "l[1-10]"]}',
    ],
    ids=["counts", "ranges"],
)
def test_a_large_grid_is_read_fast(nodes: str) -> None:
    started_s = time.process_time()
    site = inventory(f"sites:\n  a:\n    {nodes}\n").sites[0]
    assert time.process_time() - started_s < 1.5  # 0.1 s on the machine where it was written
    assert len(site.nodes) == 12_500
    assert len({node.path for node in site.nodes}) == 250


def test_as_many_nodes_as_are_allowed() -> None:
    nodes = f"n[1-{NODES_MAX - 1}]: {{accelerators: cpu}}"
    grid = inventory(f"sites:\n  a:\n    nodes:\n      {nodes}\n  b: {{accelerators: cpu}}\n")
    assert sum(len(site.nodes) for site in grid.sites) == NODES_MAX


SITE = "sites:\n  a:\n"

BROKEN: dict[str, tuple[str, list[str]]] = {
    "ranges": (
        "    nodes:\n      n[1-4]: {accelerators: cpu}\n      n3: {accelerators: cpu}\n"
        "      m[3-1]: {accelerators: cpu}\n      k[1,1]: {accelerators: cpu}\n"
        "      j[1-: {accelerators: cpu}\n      i[2-5]: {accelerators: cpu}\n"
        "      i[0-9]: {accelerators: cpu}\n",
        [
            ":5: sites.a.nodes.n3: the node `n3` is in it and in `n[1-4]`; name each node once",
            ":6: sites.a.nodes.m[3-1]: `3-1` in `m[3-1]` is empty; write the smaller number first",
            ":7: sites.a.nodes.k[1,1]: the node `k1` is in it twice; name each node once",
            ":8: sites.a.nodes.j[1-: `j[1-` is not a range of names; write `n[001-128]` or"
            " `n[1,4,7-9]`",
            ":10: sites.a.nodes.i[0-9]: the node `i2` is in it and in `i[2-5]`; name each node"
            " once",
        ],
    ),
    "too many": (
        "    nodes:\n      n[1-150000]: {accelerators: cpu}\n      m[1-150000]: {accelerators:"
        " cpu}\n      k[1-999999999]: {accelerators: cpu}\n",
        [
            ":5: sites.a.nodes.m[1-150000]: the file has 300,000 nodes up to here; write at most"
            " 200,000 in all",
            ":6: sites.a.nodes.k[1-999999999]: `k[1-999999999]` stands for 999,999,999 names;"
            " write at most 200,000",
        ],
    ),
    "paths": (
        "    levels: [spine, rack]\n    nodes:\n      n1: {accelerators: cpu}\n"
        "      n2: {accelerators: cpu, path: s1}\n      n3: {accelerators: cpu, path: [s1, 2]}\n"
        "      n[4-6]: {accelerators: cpu, path: [s1, \"r[1-2]\"]}\n"
        "      n7: {accelerators: cpu, path: [s1, 'r 1']}\n"
        "      n8: {accelerators: cpu, path: []}\n      n9: {accelerators: cpu, path: [s1, {}]}\n",
        [
            ":5: sites.a.nodes.n1.path: is missing, and the site has levels; write a domain for"
            " each of the levels spine, rack",
            ":6: sites.a.nodes.n2.path: the path has the length 1, and the site has 2 levels;"
            " write a domain for each of spine, rack",
            ':7: sites.a.nodes.n3.path: found `2`, which is not text; put it in quotes: "2"',
            ":8: sites.a.nodes.n[4-6].path: 3 nodes cannot be shared evenly among 2 domains; write"
            " ranges that make a divisor of 3",
            ":9: sites.a.nodes.n7.path: `r 1` cannot be a name; use letters, digits, `-`, `_` and"
            " `.`, beginning with a letter or digit",
            ":10: sites.a.nodes.n8.path: found a list; write a domain for each of the site's"
            " levels, outermost first, as `[s1, l3]`",
            ":11: sites.a.nodes.n9.path: found a list; write a domain for each of the site's"
            " levels, outermost first, as `[s1, l3]`",
        ],
    ),
    "a path without levels": (
        "    nodes:\n      n1: {accelerators: cpu, path: [s1]}\n",
        [
            ":4: sites.a.nodes.n1.path: the site has no `levels`; name them at the site, as"
            " `levels: [spine, leaf]`"
        ],
    ),
    "levels": (
        "    levels: [spine, node, spine, Leaf]\n    nodes: {n: {accelerators: cpu, path: [a]}}\n",
        [":3: sites.a.levels: found `Leaf`; write a level's name"],
    ),
    "words of levels": (
        "    levels: [site, spine, spine]\n    nodes: {n: {accelerators: cpu, path: [a, b, c]}}\n",
        [
            ":3: sites.a.levels[0]: every site has a level `site`; remove it, or call yours"
            " otherwise",
            ":3: sites.a.levels[2]: the level `spine` is named twice; keep one",
        ],
    ),
    "fields that do not go together": (
        "    topology: {rack: 2, node: 2}\n    node: {accelerators: cpu}\n"
        "    nodes: {n: {}}\n    accelerators: cpu\n    levels: [rack]\n"
        "  b:\n    accelerators: cpu\n    levels: [rack]\n    node: {accelerators: cpu}\n",
        [
            ":5: sites.a.nodes: both `topology` and `nodes` are given; keep one",
            ":5: sites.a.nodes.n.path: is missing, and the site has levels; write a domain for each"
            " of the levels rack",
            ":6: sites.a.accelerators: both `nodes` and `accelerators` are given; keep one; nodes"
            " have accelerators of their own",
            ":6: sites.a.accelerators: both `topology` and `accelerators` are given; keep one",
            ":7: sites.a.levels: the levels are those of `topology`; remove it",
            ":10: sites.b.levels: is read with `nodes` only; remove it, or list the nodes",
            ":11: sites.b.node: is read with `nodes` or `topology` only; write `topology: {rack: 4,"
            " node: 8}` beside it",
        ],
    ),
    "topologies": (
        "    topology: {rack: 2, Row: 3}\n"
        "  b: {topology: {rack: 0, node: x}, node: {memory: 8GB}}\n"
        "  c: {topology: [rack, node], node: {accelerators: cpu}}\n"
        "  d: {topology: {node: 2, rack: 3}, node: {accelerators: cpu}}\n"
        "  e: {topology: {island: 2, node: 3}, node: {accelerators: cpu}}\n"
        "  f: {topology: {}, node: {accelerators: cpu}}\n"
        "  g: {topology: {rack: 1000, node: 1000}, node: {accelerators: cpu}}\n",
        [
            ":3: sites.a.topology: the last level is `Row`, not `node`; write last how many nodes"
            " each Row has, as `node: 16`",
            ":3: sites.a.topology.Row: `Row` cannot be the name of a level; use at most 20 of a-z,"
            " 0-9 and `_`, beginning with a letter",
            ":3: sites.a.topology: nothing says what each node has; write `node: {accelerators:"
            " h100:8}` beside it",
            ":4: sites.b.topology.rack: found `0`; write a whole number from 1 to 200000",
            ":4: sites.b.topology.node: found `x`; write a whole number from 1 to 200000",
            ":4: sites.b.node.accelerators: is missing; write a kind and a count, as `cpu:2` or"
            " `h100:8`",
            ":5: sites.c.topology: found a list; write `field: value` lines below it",
            ":6: sites.d.topology: the last level is `rack`, not `node`; write last how many nodes"
            " each rack has, as `node: 16`",
            ":7: sites.e.topology.island: every site has a level `island`; remove it, or call yours"
            " otherwise",
            ":8: sites.f: the site has neither `nodes` nor `accelerators`; write `accelerators:"
            " cpu:2`, or `nodes:` with their accelerators",
            ":9: sites.g.topology: the file has 1,000,018 nodes up to here; write at most 200,000"
            " in all",
        ],
    ),
    "names that become too long": (
        "    topology: {" + ", ".join(f"{letter * 20}: 1" for letter in "abcd") + ", node: 1}\n"
        "    node: {accelerators: cpu}\n  b:\n    topology: {"
        + ", ".join(f"{'a' * n}: 1" for n in range(8, 18)) + ", node: 1}\n"
        "    node: {accelerators: cpu}\n",
        [
            ":6: sites.b.topology: the names of nodes become too long: `aaaaaaaa1-aaaaaaaaa1-"
            "aaaaaaaaaa1-aaaaaaaaaaa1-aaaaaaaaaaaa1-aaaaaaaaaaaaa1-aaaaaaaaaaaaaa1-aaaaaaaaaaaaaaa1-"
            "aaaaaaaaaaaaaaaa1-aaaaaaaaaaaaaaaaa1-n1`; use shorter level names"
        ],
    ),
    "what a node has": (
        "    node: {island: 3, labels: {'a b': x, ok: 1}, resources: {cpu: 4, memory_gib: 8,\n"
        "      X: 1, nics: -1, memory: 64}}\n"
        "    nodes:\n      n1: {accelerators: h100:8, island: 3, resources: {cpus: many}}\n"
        "      n2: {island: 0, labels: 3, resources: []}\n",
        [
            ":3: sites.a.node.labels.ok: found `1`, which is not text; put it in quotes: \"1\"",
            ":3: sites.a.node.labels.a b: `a b` cannot be the name of a label; use letters, digits,"
            " `-`, `_`, `.` and `/`, beginning with a letter",
            ":3: sites.a.node.resources.cpu: `cpu` is not what it is called here; did you mean"
            " `cpus`?",
            ":3: sites.a.node.resources.memory_gib: `memory_gib` is not what it is called here; did"
            " you mean `memory`?",
            ":4: sites.a.node.resources.memory: found `64`; write an amount of memory (`8GB`,"
            " `80GiB`) above 0",
            ":4: sites.a.node.resources.nics: found `-1`; write a whole number from 0 to"
            " 1000000000000",
            ":4: sites.a.node.resources.X: `X` cannot be a name; use a-z, 0-9 and `_`, beginning"
            " with a letter",
            ":6: sites.a.nodes.n1.resources.cpus: found `many`; write a whole number from 0 to"
            " 1000000000000",
            ":6: sites.a.nodes.n1.island: islands of 3 do not divide 8 devices; write a divisor of"
            " 8",
            ":7: sites.a.nodes.n2.island: found `0`; write a whole number from 1 to 9999999",
            ":7: sites.a.nodes.n2.labels: found `3`; write `field: value` lines below it",
            ":7: sites.a.nodes.n2.resources: found a list; write `field: value` lines below it",
            ":7: sites.a.nodes.n2.accelerators: is missing; write a kind and a count, as `cpu:2` or"
            " `h100:8`",
        ],
    ),
    "islands and addresses": (
        "    node: {accelerators: h100:8, island: 5, address: 'x[1-3]'}\n    nodes:\n"
        "      n[1-3]: {}\n      n4: {island: 3}\n      n[5-6]: {address: '10.0.0.[1-3]'}\n"
        "      n7: {address: 'x[1-'}\n      n8: {address: 7}\n"
        "  b: {topology: {node: 4}, node: {accelerators: h100:8, address: 'y[1-3]'}}\n",
        [
            ":3: sites.a.node.island: islands of 5 do not divide 8 devices; write a divisor of 8",
            ":6: sites.a.nodes.n4.island: islands of 3 do not divide 8 devices; write a divisor of"
            " 8",
            ":6: sites.a.nodes.n4.address: 3 addresses for 1 nodes; write a range with an address"
            " for each",
            ":7: sites.a.nodes.n[5-6].address: 3 addresses for 2 nodes; write a range with an"
            " address for each",
            ":8: sites.a.nodes.n7.address: `x[1-` is not a range of names; write `n[001-128]` or"
            " `n[1,4,7-9]`",
            ":9: sites.a.nodes.n8.address: found `7`, which is not text; put it in quotes: \"7\"",
            ":10: sites.b.node.address: 3 addresses for 4 nodes; write a range with an address for"
            " each",
        ],
    ),
    "misspelt": (
        "    level: [rack]\n    queue: q\n    carbon_intensity: 3\n    node: {gpu: h100:8,"
        " nvlink: 4}\n    nodes: {n: {accelerators: cpu, tags: {}}}\n    carbon: dirty\n",
        [
            ":3: sites.a.level: unknown field; did you mean `levels`?",
            ":4: sites.a.queue: unknown field; did you mean `queues`?",
            ":5: sites.a.carbon_intensity: unknown field; did you mean `carbon`?",
            ":6: sites.a.node.gpu: unknown field; known here: address, accelerators, memory,"
            " island, labels, resources",
            ":6: sites.a.node.nvlink: unknown field; did you mean `island`?",
            ":7: sites.a.nodes.n.tags: unknown field; did you mean `labels`?",
            ":8: sites.a.carbon: found `dirty`; write grams of CO2 a kWh (`350`, `350 g/kWh`) of at"
            " least 0",
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_every_problem_is_told_at_once_with_its_line(name: str) -> None:
    text, expected = BROKEN[name]
    assert sentences(SITE + text) == expected
