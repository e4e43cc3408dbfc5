"""Grid files: what is accepted, and what is said of everything that is not."""

import pytest

from gridloom.base.errors import InputError
from gridloom.model.inventory import (
    Inventory,
    KubeAccess,
    KubeToleration,
    KubeVolume,
    Link,
    Node,
    Site,
    SlurmAccess,
    SshAccess,
)
from gridloom.wire.convert import to_inventory
from gridloom.wire.documents import read_grid

GOOD = b"""
currency: EUR
sites:
  north:
    kind: local
    nodes:
      n1: {address: 10.0.0.1, accelerators: H100:8, memory: 640GB}
      n2: {address: "fe80::1", accelerators: cpu}
    price_per_accelerator_hour: 2.5
    power_per_accelerator: 0.7kW
    ports: 30000-30010
  south: {accelerators: cpu:2, power_per_accelerator: 15, ports: 30000}
links:
  - {between: [north, south], bandwidth: 1Gbit/s, latency: 20ms}
"""


def sentences(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        read_grid(text.encode(), "grid.yaml")
    return [problem.sentence().removeprefix("grid.yaml") for problem in caught.value.problems]


def test_a_grid_becomes_an_inventory() -> None:
    north = Site(
        name="north",
        kind="local",
        nodes=(
            Node(name="n1", address="10.0.0.1", accelerator="h100", count=8,
                 memory_bytes=80_000_000_000),
            Node(name="n2", address="fe80::1", accelerator="cpu", count=1),
        ),
        price_per_accelerator_hour=2.5,
        power_w_per_accelerator=700.0,
        ports=(30000, 30010),
    )  # fmt: skip
    south = Site(
        name="south",
        kind="local",
        nodes=(Node(name="south", address="127.0.0.1", accelerator="cpu", count=2),),
        power_w_per_accelerator=15.0,
        ports=(30000, 30000),
    )
    link = Link(between=("north", "south"), bandwidth_bits_per_s=1e9, latency_s=0.02)
    inventory = to_inventory(read_grid(GOOD, "g").document)
    assert inventory == Inventory(sites=(north, south), links=(link,), currency="EUR")
    assert type(inventory.sites[0].nodes[0].memory_bytes) is int


KUBERNETES = """
sites:
  pods:
    kind: kubernetes
    accelerators: h100:8
    kubernetes:
      image: registry.example/gridloom:1
      context: prod
      namespace: team-a
      workload: jobset
      queue: training
      topology_required: topology.kubernetes.io/rack
      runs: {claim: grid, sub_path: runs}
      volumes:
        /data: {claim: datasets, read_only: true}
        /dev/shm: {memory: 64GiB}
      secrets: {WANDB_API_KEY: wandb/api-key}
      devices: {H100: nvidia.com/gpu.shared}
      resources: {cpu: "96", memory: 1Ti}
      tolerations: [{key: dedicated, value: training, effect: NoSchedule}, {key: spot}]
      networks: rail-0
      time_limit: 2h
      keep: 1d
"""


def test_sites_that_tell_their_nodes_need_none_in_the_file() -> None:
    text = """
sites:
  hpc: {kind: slurm, slurm: {partition: gpu}}
  pods: {kind: kubernetes, kubernetes: {image: i}}
  lab: {accelerators: cpu:2}
queues: {vision: {nominal: {a100: 8}}}
bookings:
  - {name: b, from: 2090-03-01T08:00Z, to: 2090-03-01T10:00Z, nodes: "hpc/n[1-2]"}
"""
    hpc, pods, lab = to_inventory(read_grid(text.encode(), "grid.yaml").document).sites
    assert (hpc.nodes, pods.nodes, len(lab.nodes)) == ((), (), 1)
    bad = text.replace("hpc/n", "lab/n")
    assert sentences(bad) == [
        ":8: bookings[0].nodes: there is no node `lab/n1`; lab has: lab",
    ]


SSH = """
sites:
  hpc:
    kind: slurm
    slurm:
      ssh:
        host: login.hpc.example
        directory: /scratch/me/gridloom/
        user: me
        port: 2222
        key_file: ~/.ssh/id_ed25519
        known_hosts: ~/.ssh/known_hosts
        workdir: /proj/me
        checkpoints: there
  far: {kind: slurm, slurm: {ssh: {host: hpc, directory: /scratch}}, lease: 5min}
  lab: {accelerators: cpu:2}
  slow: {accelerators: cpu:2, lease: 10s}
"""


def test_a_site_may_be_reached_over_ssh() -> None:
    hpc, far, lab, slow = to_inventory(read_grid(SSH.encode(), "g").document).sites
    assert hpc.slurm == SlurmAccess(
        ssh=SshAccess(
            host="login.hpc.example",
            directory="/scratch/me/gridloom",
            user="me",
            port=2222,
            key_file="~/.ssh/id_ed25519",
            known_hosts="~/.ssh/known_hosts",
            workdir="/proj/me",
            checkpoints="there",
        )
    )
    assert far.slurm == SlurmAccess(ssh=SshAccess(host="hpc", directory="/scratch"))
    assert [site.lease_s for site in (hpc, far, lab, slow)] == [60.0, 300.0, 0.0, 10.0]
    bad = SSH.replace("/scratch/me/gridloom/", "~/gridloom").replace("port: 2222", "port: 0")
    bad = bad.replace("host: hpc, ", "").replace("user: me", "user: me@there")
    bad = bad.replace("lease: 10s", "lease: 1s")
    assert sentences(bad) == [
        ":8: sites.hpc.slurm.ssh.directory: found `~/gridloom`; write an absolute path without"
        " spaces, as `/scratch/me/gridloom`",
        ":9: sites.hpc.slurm.ssh.user: found `me@there`; write a login name",
        ":10: sites.hpc.slurm.ssh.port: found `0`; write a whole number from 1 to 65535",
        ":15: sites.far.slurm.ssh.host: is missing; write a host name, an address or an alias",
        ":17: sites.slow.lease: found `1s`; write a duration of at least 3",
    ]


def test_a_site_under_kubernetes_says_how_jobs_are_handed_in() -> None:
    (site,) = to_inventory(read_grid(KUBERNETES.encode(), "g").document).sites
    assert site.kubernetes == KubeAccess(
        image="registry.example/gridloom:1",
        context="prod",
        namespace="team-a",
        workload="jobset",
        queue="training",
        topology_required="topology.kubernetes.io/rack",
        runs=KubeVolume(claim="grid", sub_path="runs"),
        volumes={
            "/data": KubeVolume(claim="datasets", read_only=True),
            "/dev/shm": KubeVolume(memory_bytes=64 * 2**30),
        },
        secrets={"WANDB_API_KEY": "wandb/api-key"},
        devices={"h100": "nvidia.com/gpu.shared"},
        resources={"cpu": "96", "memory": "1Ti"},
        tolerations=(
            KubeToleration(key="dedicated", value="training", effect="NoSchedule"),
            KubeToleration(key="spot"),
        ),
        networks=("rail-0",),
        time_limit_s=7200.0,
        keep_s=86_400.0,
    )


SITE = "sites:\n  a: {accelerators: cpu:2}\n  b: {accelerators: cpu:2}\n"

BROKEN = {
    "nothing": ("currency: USD\n", [": sites: is missing; add `sites:` with its fields"]),
    "no site": (
        "sites: {}\n",
        [":1: sites: there is no site; write `north: {accelerators: cpu:2}` below it"],
    ),
    "sites as a list": (
        "sites: [a]\n", [":1: sites: found a list; write `field: value` lines below it"]
    ),
    "a site twice": (
        SITE + "  a: {accelerators: cpu:1}\n",
        [":4: sites.a: `a` is written twice, first in line 2; keep one"],
    ),
    "an empty site": (
        "sites:\n  a: {}\n  b:\n  c: {nodes: {}}\n",
        [
            ":2: sites.a: the site has neither `nodes` nor `accelerators`; write `accelerators:"
            " cpu:2`, or `nodes:` with their accelerators",
            ":3: sites.b: no value is given; write `field: value` lines below it",
            ":3: sites.b: the site has neither `nodes` nor `accelerators`; write `accelerators:"
            " cpu:2`, or `nodes:` with their accelerators",
            ":4: sites.c: the site has neither `nodes` nor `accelerators`; write `accelerators:"
            " cpu:2`, or `nodes:` with their accelerators",
        ],
    ),
    "both forms": (
        "sites:\n  a:\n    nodes: {n: {accelerators: cpu}}\n    accelerators: cpu\n",
        [
            ":4: sites.a.accelerators: both `nodes` and `accelerators` are given; keep one; nodes"
            " have accelerators of their own"
        ],
    ),
    "names": (
        "sites:\n  a b:\n    nodes:\n      n/1: {accelerators: cpu}\n",
        [
            ":2: sites.a b: `a b` cannot be a name; use letters, digits, `-`, `_` and `.`,"
            " beginning with a letter or digit",
            ":4: sites.a b.nodes.n/1: `n/1` cannot be a name; use letters, digits, `-`, `_` and"
            " `.`, beginning with a letter or digit",
        ],
    ),
    "kind": (
        "sites:\n  a: {kind: pbs, accelerators: cpu}\n  b: {kind: lokal, accelerators: cpu}\n",
        [
            ":2: sites.a.kind: found `pbs`; write one of `local`, `slurm`, `kubernetes`",
            ":3: sites.b.kind: found `lokal`; did you mean `local`?",
        ],
    ),
    "slurm": (
        "sites:\n  a:\n    accelerators: cpu\n    slurm: {account: physics}\n  b:\n"
        "    kind: slurm\n    accelerators: cpu\n    slurm: {placement: pinned,\n"
        "      network: 10.0.0.1/8, time_limit: 1d, gres: {a100: 'gpu:a100:8'},\n"
        "      python: python3, account: a b, network_: 1}\n",
        [
            ":4: sites.a.slurm: without a `kind:` the site is this machine, which has no `slurm:`;"
            " write `kind: slurm` beside it",
            ":8: sites.b.slurm.placement: found `pinned`; did you mean `pin`?",
            ":9: sites.b.slurm.gres.a100: found `gpu:a100:8`; write a name, as `gpu:a100`",
            ":9: sites.b.slurm.network: found `10.0.0.1/8`;"
            " write a network with its length, as `10.0.0.0/8`",
            ":10: sites.b.slurm.account: found `a b`; write one word",
            ":10: sites.b.slurm.python: found `python3`; write the path of an interpreter",
            ":10: sites.b.slurm.network_: unknown field; did you mean `network`?",
        ],
    ),
    "sections of other engines": (
        "sites:\n  a:\n    kind: slurm\n    kubernetes: {image: i}\n"
        "  b:\n    kind: kubernetes\n    slurm: {}\n    kubernetes: {image: i}\n"
        "  c:\n    kind: local\n    accelerators: cpu\n    slurm: {}\n"
        "  d:\n    accelerators: cpu\n    slurm: {}\n    kubernetes: {image: i}\n"
        "  e:\n    kind: slum\n    accelerators: cpu\n    slurm: {}\n  f:\n    kind: K8s\n",
        [
            ":4: sites.a.kubernetes: the site is of `kind: slurm`, which has no `kubernetes:`;"
            " remove it, or write `kind: kubernetes` beside it",
            ":7: sites.b.slurm: the site is of `kind: kubernetes`, which has no `slurm:`;"
            " remove it",
            ":12: sites.c.slurm: the site is of `kind: local`, which has no `slurm:`;"
            " remove it, or write `kind: slurm` beside it",
            ":15: sites.d.slurm: without a `kind:` the site is this machine, which has no"
            " `slurm:`; write `kind: slurm` beside it, or remove it",
            ":16: sites.d.kubernetes: without a `kind:` the site is this machine, which has no"
            " `kubernetes:`; write `kind: kubernetes` beside it, or remove it",
            ":18: sites.e.kind: found `slum`; did you mean `slurm`?",
            ":22: sites.f.kind: found `K8s`; did you mean `kubernetes`?",
        ],
    ),
    "variables": (
        "sites:\n  a:\n    kind: slurm\n    slurm:\n      environment:\n"
        "        a b: x\n        1X: x\n        A=B: x\n        '': x\n        \"T\\tB\": x\n"
        "        OK: ''\n"
        "  b:\n    kind: kubernetes\n    kubernetes:\n      image: i\n"
        "      environment: {A-B: x, _X1: x}\n      secrets: {ä: s/k, _X1: s/k}\n",
        [
            f":{line}: sites.{place}: {name} cannot be the name of a variable; use letters, digits"
            " and `_`, not beginning with a digit"
            for line, place, name in [
                (6, "a.slurm.environment.a b", "`a b`"),
                (7, "a.slurm.environment.1X", "`1X`"),
                (8, "a.slurm.environment.A=B", "`A=B`"),
                (9, "a.slurm.environment.", "''"),
                (10, "a.slurm.environment.T\tB", "'T\\tB'"),
                (16, "b.kubernetes.environment.A-B", "`A-B`"),
                (17, "b.kubernetes.secrets.ä", "`ä`"),
            ]
        ]
        + [":17: sites.b.kubernetes.secrets._X1: `_X1` is set in `environment`, too; keep one of"
           " the two"],
    ),
    "slurmrestd": (
        "sites:\n  a:\n    kind: slurm\n    accelerators: cpu\n    slurm:\n      rest:\n"
        "        url: 'https://me@h'\n        token_file: token\n"
        "        token_command: 'ssh \"'\n        ca_file: 3\n"
        "  b:\n    kind: slurm\n    accelerators: cpu\n"
        "    slurm: {rest: {url: 'https://h:6820', user: me, token_command: ''}}\n"
        "  c:\n    kind: slurm\n    accelerators: cpu\n"
        "    slurm: {rest: {url: 'https://h:6820', user: me}}\n",
        [
            ":6: sites.a.slurm.rest.user: is missing; write one word",
            ":6: sites.a.slurm.rest: both `token_file` and `token_command` are given;"
            " write `token_file: ~/.slurm/token`, or a `token_command:`",
            ":7: sites.a.slurm.rest.url: found `https://me@h`;"
            " write an address, as `https://login.example.org:6820`",
            ":8: sites.a.slurm.rest.token_file: found `token`;"
            " write the path of a file, as `~/.slurm/token`",
            ":9: sites.a.slurm.rest.token_command: its words cannot be told apart:"
            " No closing quotation; close the quote",
            ":10: sites.a.slurm.rest.ca_file: found `3`, which is not text;"
            ' put it in quotes: "3"',
            ":14: sites.b.slurm.rest.token_command: found '';"
            " write a command and its arguments, as `ssh login scontrol token`",
            ":18: sites.c.slurm.rest: no token;"
            " write `token_file: ~/.slurm/token`, or a `token_command:`",
        ],
    ),
    "kubernetes": (
        "sites:\n  a: {kind: kubernetes, accelerators: cpu}\n  b:\n    kind: kubernetes\n"
        "    accelerators: cpu\n    kubernetes:\n      namespace: Team\n      workload: jobs\n"
        "      queue_priority: high\n      topology_required: a/b\n      topology_preferred: c\n"
        "      runs: {claim: x, host: /y}\n      secrets: {A: b}\n"
        "      resources: {cpu: 1, gpu: '1', memory: 4GB,"
        " nvidia.com/gpu: '2', amd.com/gpu: '1'}\n      devices: {mi300x: amd.com/gpu}\n"
        "      labels: {a b: c, gridloom/job: x}\n      annotations: {'': x}\n"
        "      node_selector: {pool/: x}\n      network: 10.0.0.5\n"
        "      volumes:\n        data: {claim: d}\n        /e: {}\n"
        "        /f: {claim: f, memory: 1GiB}\n      tolerations: [{value: x}]\n",
        [
            ":2: sites.a.kind: nothing says how jobs are handed in;"
            " write `kubernetes: {image: ...}` beside it",
            ":6: sites.b.kubernetes.image: is missing; write a container image",
            ":7: sites.b.kubernetes.namespace: found `Team`;"
            " write the name of an object of the cluster, as `team-a`",
            ":8: sites.b.kubernetes.workload: found `jobs`; did you mean `job`?",
            ":9: sites.b.kubernetes.queue_priority: it counts only in a queue of Kueue;"
            " name a `queue` too",
            ":10: sites.b.kubernetes.topology_required: it counts only in a queue of Kueue;"
            " name a `queue` too",
            ":11: sites.b.kubernetes.topology_preferred: a level is either required or preferred;"
            " keep one of the two",
            ":11: sites.b.kubernetes.topology_preferred: it counts only in a queue of Kueue;"
            " name a `queue` too",
            ":12: sites.b.kubernetes.runs.host: both `claim` and `host` are given; keep one",
            ":13: sites.b.kubernetes.secrets.A: found `b`;"
            " write a Secret and its key, as `wandb/api-key`",
            ":14: sites.b.kubernetes.resources.memory: found `4GB`;"
            " write a quantity, as `500m`, `96`, `64Gi` or `1Ti`",
            ":14: sites.b.kubernetes.resources.gpu: `gpu` is no resource;"
            " write `cpu`, `memory`, or a resource with its vendor, as `rdma/hca`",
            ":14: sites.b.kubernetes.resources.nvidia.com/gpu: jobs ask for as many of these as"
            " they use; remove it",
            ":14: sites.b.kubernetes.resources.amd.com/gpu: jobs ask for as many of these as"
            " they use; remove it",
            ":16: sites.b.kubernetes.labels.a b: `a b` cannot name a label or annotation;"
            " use letters, digits, `-`, `_` and `.`, perhaps a domain and `/` before",
            ":16: sites.b.kubernetes.labels.gridloom/job: gridloom itself sets `gridloom/job`;"
            " remove it",
            ":17: sites.b.kubernetes.annotations.: `` cannot name a label or annotation;"
            " use letters, digits, `-`, `_` and `.`, perhaps a domain and `/` before",
            ":18: sites.b.kubernetes.node_selector.pool/: `pool/` cannot name a label or"
            " annotation; use letters, digits, `-`, `_` and `.`, perhaps a domain and `/` before",
            ":19: sites.b.kubernetes.network: found `10.0.0.5`; write a network with its length,"
            " as `10.0.0.0/8`",
            ":21: sites.b.kubernetes.volumes.data: `data` is no absolute path;"
            " write where pods see it, as `/data`",
            ":22: sites.b.kubernetes.volumes./e: nothing says what it is;"
            " write one of `claim`, `host`, `secret` and `memory`",
            ":23: sites.b.kubernetes.volumes./f: both `claim` and `memory` are given;"
            " write one of `claim`, `host`, `secret` and `memory`",
            ":24: sites.b.kubernetes.tolerations[0].key: is missing; write the key of a taint",
        ],
    ),
    "nodes": (
        "sites:\n  a:\n    nodes:\n      n1: {address: 'h:22', accelerators: cpu:2-4}\n"
        "      n2: {accelerators: cpu:0, memory: 8 apples}\n      n3: {memory: 0}\n      n4: 3\n",
        [
            ":4: sites.a.nodes.n1.address: found `h:22`; write a host name or an IP address,"
            " without a port",
            ":4: sites.a.nodes.n1.accelerators: found `cpu:2-4`, a range; write how many devices"
            " the node has",
            ":5: sites.a.nodes.n2.accelerators: found `cpu:0`: no device; write a count of at"
            " least 1",
            ":5: sites.a.nodes.n2.memory: found `8 apples`; write an amount of memory (`8GB`,"
            " `80GiB`) above 0",
            ":6: sites.a.nodes.n3.memory: found `0`; write an amount of memory (`8GB`, `80GiB`)"
            " above 0",
            ":6: sites.a.nodes.n3.accelerators: is missing; write a kind and a count, as `cpu:2`"
            " or `h100:8`",
            ":7: sites.a.nodes.n4: found `3`; write `field: value` lines below it",
        ],
    ),
    "misspelt": (
        "sites:\n  a: {accelerator: cpu, price: 3}\nlink: []\n",
        [
            ":2: sites.a.accelerator: unknown field; did you mean `accelerators`?",
            ":2: sites.a.price: unknown field; did you mean `price_per_accelerator_hour`?",
            ":2: sites.a: the site has neither `nodes` nor `accelerators`; write `accelerators:"
            " cpu:2`, or `nodes:` with their accelerators",
            ":3: link: unknown field; did you mean `links`?",
        ],
    ),
    "numbers": (
        "currency: dollars\nsites:\n  a:\n    accelerators: cpu\n"
        "    price_per_accelerator_hour: -1\n    power_per_accelerator: 15 horses\n"
        "    ports: 80-90\n  b:\n    accelerators: cpu\n    ports: {}\n",
        [
            ":1: currency: found `dollars`; write three capital letters, as `USD`",
            ":5: sites.a.price_per_accelerator_hour: found `-1`; write an amount of money of at"
            " least 0",
            ":6: sites.a.power_per_accelerator: found `15 horses`; write a power (`15W`, `0.7kW`)"
            " of at least 0",
            ":7: sites.a.ports: found `80-90`; write a range such as `29400-29999`, between 1024"
            " and 65535",
            ":10: sites.b.ports: found a mapping; write a range such as `29400-29999`, between"
            " 1024 and 65535",
        ],
    ),
    "links": (
        SITE + "links:\n  - {between: [a, c]}\n  - {between: [a, a]}\n  - {between: [a]}\n"
        "  - {between: [a, b], bandwidth: fast}\n  - {between: [b, a], latency: -1}\n  - {}\n"
        "  - 3\n  - {between: [[a], b]}\n  - {between: [moon, a]}\n",
        [
            ":5: links[0].between: there is no site `c`; the file has: a, b",
            ":6: links[1].between: a link joins two different sites; write `between: [north,"
            " south]`",
            ":7: links[2].between: a link joins two different sites; write `between: [north,"
            " south]`",
            ":8: links[3].bandwidth: found `fast`; write a bandwidth (`1Gbit/s`) above 0",
            ":9: links[4].latency: found `-1`; write a duration (`90s`, `20ms`, `1.5h`) of at"
            " least 0",
            ":9: links[4].between: `b` and `a` are linked twice; keep one",
            ":10: links[5].between: is missing; write a list of two site names",
            ":11: links[6]: found `3`; write `field: value` lines below it",
            ":12: links[7].between: found a list; write a list of two site names",
            ":13: links[8].between: there is no site `moon`; the file has: a, b",
        ],
    ),
    "links as a mapping": (
        SITE + "links: {a: b}\n", [":4: links: found a mapping; write a list, one `- item` a line"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_every_problem_is_told_at_once_with_its_line(name: str) -> None:
    text, expected = BROKEN[name]
    assert sentences(text) == expected
