"""What a Slurm has now, and what of it will be free."""

import pytest
from msgspec.structs import replace
from tests.unit.sites.slurm.test_inventory import made

from gridloom.base.errors import SiteError
from gridloom.model.inventory import SlurmAccess
from gridloom.sites.slurm.facts import Facts
from gridloom.sites.slurm.gres import gres
from gridloom.sites.slurm.overview import NodeRow, overview
from gridloom.sites.slurm.records import Job

CLUSTER = made("gpu:a100:8", "gpu:a100:8", "gpu:a100:8", "", "gpu:a100:8")
FULL, HALF, DRAINED, CORES, UNTOLD = CLUSTER.nodes
NODES = (
    replace(FULL, states=("ALLOCATED",), gres_used=gres("gpu:a100:8")),
    replace(HALF, states=("MIXED",), gres_used=gres("gpu:a100:4(IDX:0-3)")),
    replace(DRAINED, states=("IDLE", "DRAIN"), reason="fan broken"),
    replace(CORES, states=("MIXED",), cpus_allocated=3),
    replace(UNTOLD, states=("IDLE",), cpus_allocated=0),
)
JOBS = (
    Job(job_id=1, states=("RUNNING",), nodes=("n0", "n1"), ended_s=500.0, user="ann", name="a"),
    Job(job_id=2, states=("RUNNING",), nodes=("elsewhere",), ended_s=100.0),
    Job(job_id=3, states=("PENDING",), reason="Priority", node_count=4, user="bob", name="b"),
    Job(job_id=4, states=("PENDING",), reason="JobHeldUser"),
    Job(job_id=5, states=("COMPLETED",)),
)
FACTS = Facts(release="22.05.8", cluster=replace(CLUSTER, nodes=NODES), jobs=JOBS)


def test_what_is_there() -> None:
    seen = overview(SlurmAccess(gres={"big": "gpu:a100"}), FACTS, {3: 700.0})
    assert seen.nodes == (
        NodeRow(state="in service", kind="big", nodes=3, devices=24, free=12, free_nodes=1),
        NodeRow(state="in service", kind="cpu", nodes=1, devices=8, free=5, free_nodes=0),
        NodeRow(state="drained", kind="big", nodes=1, devices=8, free=0, free_nodes=0),
    )
    assert seen.out_of_service == {"n2": "idle+drain: fan broken"}
    assert (seen.running, seen.waiting, seen.waiting_open) == (2, 2, 1)
    assert [(one.at_s, one.what, one.slurm_id, one.nodes) for one in seen.soon] == [
        (500.0, "ends", 1, 2),
        (700.0, "starts", 3, 4),
    ]
    assert seen.soon[1].why == "jobs of higher priority go first"


def test_devices_that_are_not_counted_are_taken_with_their_node() -> None:
    nodes = (replace(FULL, states=("MIXED",), cpus_allocated=1),)
    facts = replace(FACTS, cluster=replace(CLUSTER, nodes=nodes), jobs=())
    (row,) = overview(SlurmAccess(), facts, {}).nodes
    assert (row.kind, row.devices, row.free) == ("a100", 8, 0)


def test_a_partition_that_is_not_there() -> None:
    with pytest.raises(SiteError, match="no partition x, it has: main"):
        overview(SlurmAccess(partition="x"), FACTS, {})
