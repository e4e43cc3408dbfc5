"""The network of a measured run, from the words of its row and what is public of the cluster."""

import re

from gridloom.planner.hardware import AcceleratorType, Fabric

OMNI_PATH_SHARE = 0.58
"""Of what NCCL reaches of other networks, on Omni-Path, whose adapters NCCL drives through verbs:
40.5 of an interface's 100 Gb/s (bigscience, experiments/bandwidth/all_reduce_bench-a100-n4.txt)
beside 70 % (nccl-tests over InfiniBand)."""

CROSSED_SHARE = 0.5
"""Of that, before a node's PCI Express and NUMA nodes were set up well: taken as two of its four
interfaces, those that NCCL's rings name in the same file (in over NET/IB/1, out over NET/IB/3)."""

_CROSSED = r"bigscience.*\bdate 02-(0\d|1\d|2[0-4])\b"
"""bigscience, train/tr11-176B-ml/chronicles-prequel.md, on 25 February 2022: "A100s
PCI-Express/NUMA was improved today so all TFLOPs have changed for the better (1-5%)"; numbers from
before and after are not to be compared, it says."""


def fabric_of(
    row: dict[str, str], devices: int, nodes: int, accelerator: AcceleratorType
) -> Fabric:
    """Return the network that a run had.

    Args:
        row: What the row says in words: ``source``, ``interconnect`` and ``notes``.
        devices: Of the run.
        nodes: Of the run; 0 when not stated.
        accelerator: On which it ran.
    """
    node = -(-devices // nodes) if nodes > 1 and accelerator.node <= 16 else 0
    text = row["interconnect"] + " " + row["notes"]
    rate = _network_bytes_per_s(text, node or 8)
    if re.search(r"Omni-Path|OPA", text):
        rate *= OMNI_PATH_SHARE
    if re.search(_CROSSED, row["source"] + " " + row["notes"]):
        rate *= CROSSED_SHARE
    return Fabric(node=node, network_bytes_per_s=rate)


def _network_bytes_per_s(text: str, node: int) -> float:
    """Return the bandwidth of one device to the network, from the words of the table."""
    several = re.search(r"(\d+)x [\w-]* ?(\d+) Gb(?:/s)?[\w ]* per node", text)
    if several:
        return int(several.group(1)) * int(several.group(2)) / node * 1e9 / 8
    whole = re.search(r"(\d+) Gb/s (?:per node|inter-node)", text)
    if whole:
        return int(whole.group(1)) / node * 1e9 / 8
    each = re.search(r"(\d+) Gb/s (?:\w+ )?per GPU|HDR(200)|NDR(400)|8x(\d+) Gb/s", text)
    if each:
        return next(int(group) for group in each.groups() if group) * 1e9 / 8
    return 0.0
