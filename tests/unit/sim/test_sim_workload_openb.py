"""Alibaba's pods, nodes and inference instances; rows are made up in the columns of the logs."""

import pytest

from gridloom.base.errors import InputError
from gridloom.sim.workload import ReadOptions, openb_inventory, read

HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
)
PODS = (
    HEADER
    + """\
pod-0,12000,16384,1,1000,,LS,Running,0,1000,10.0
pod-1,6500,12289,1,460,,BE,Failed,50,300,50.0
pod-2,8000,4096,4,1000,V100M16|V100M32,LS,Succeeded,60,1000,100.0
pod-3,12000,24576,1,1000,,BE,Pending,70,90,
pod-4,12000,24576,1,1000,,BE,Failed,80,80,
pod-5,12000,24576,0,0,,BE,Failed,90,100,95.0
pod-6,12000,24576,1,1000,,BE,Failed,later,100,95.0
pod-7,12000,24576,1,1000,,BE,Failed,90,100,101.0
"""
)
NODES = """\
sn,cpu_milli,memory_mib,gpu,model
node-0,32000,262144,0,
node-1,96500,786432,8,V100M32
node-2,64000,262100,2,T4
"""


def test_pods() -> None:
    workload = read(PODS)
    assert workload.format == "openb"
    assert [(a.job_id, a.submit_s, a.work_s, a.state) for a in workload.arrivals] == [
        ("pod-0", 0, 990, ""), ("pod-1", 50, 250, "failed"), ("pod-2", 60, 900, "completed"),
    ]  # fmt: skip
    assert [a.spec.queue for a in workload.arrivals] == ["LS", "BE", "LS"]
    assert [(d.row, d.why) for d in workload.dropped] == [
        (5, "never_ran"), (6, "zero_duration"), (7, "no_devices"), (8, "not_a_number"),
        (9, "negative_time"),
    ]  # fmt: skip
    assert workload.notes == (
        "1 shares of one GPU (gpu_milli) were rounded up to whole devices",
        "2 pods end with the log, at 1000 s: they may have run longer",
    )


def test_models_that_a_pod_may_use_are_kinds() -> None:
    options = ReadOptions(accelerators=("t4", "p100"))
    kinds = [[o.accelerator for o in a.spec.options] for a in read(PODS, options=options).arrivals]
    assert kinds == [["t4", "p100"], ["t4", "p100"], ["v100m16", "v100m32"]]


def test_needs_of_the_host_where_that_is_asked_for() -> None:
    options = ReadOptions(host=True, priorities={"LS": 1})
    first, second, third = read(PODS, options=options).arrivals
    assert first.spec.options[0].rank_resources == (("cpus", 12), ("memory_gib", 16))
    assert second.spec.options[0].rank_resources == (("cpus", 7), ("memory_gib", 13))
    assert third.spec.options[0].rank_resources == (("cpus", 2), ("memory_gib", 1))
    assert [a.spec.priority for a in (first, second, third)] == [1, 0, 1]
    assert read(PODS).arrivals[0].spec.options[0].rank_resources == ()


def test_columns_that_are_not_needed() -> None:
    text = "name,num_gpu,creation_time,deletion_time,scheduled_time\na,2,0,9,1\n"
    (job,) = read(text).arrivals
    assert (job.work_s, job.spec.queue, job.spec.options[0].devices) == (8, "", 2)


def test_nodes_become_a_site() -> None:
    (site,) = openb_inventory(NODES).sites
    assert (site.name, [node.name for node in site.nodes]) == ("openb", ["node-1", "node-2"])
    first, second = site.nodes
    assert (first.accelerator, first.count, second.accelerator, second.count) == (
        "v100m32", 8, "t4", 2,
    )  # fmt: skip
    assert first.resources == {"cpus": 96, "memory_gib": 768}
    assert second.resources == {"cpus": 64, "memory_gib": 255}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (NODES.replace("8,V100M32", "many,V100M32"), "nodes.csv:3: gpu: .*not a number"),
        (NODES.replace("8,V100M32", "8"), "nodes.csv:3: .*4 fields"),
        (NODES[: NODES.index("node-1")], "has no node with a GPU"),
        ("", "has no line of column names"),
        ("a,b\n1,2\n", "there is no column sn"),
    ],
)
def test_wrong_nodes_are_an_error(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        openb_inventory(text, "nodes.csv")


def test_inference_instances() -> None:
    text = (
        "instance_sn,role,app_name,gpu_request,creation_time,scheduled_time,deletion_time\n"
        "i0,HN,app_0,1,10,12,100\n"
        "i1,CN,app_0,0,10,12,100\n"
        "i2,HN,app_0,1,,,100\n"
        "i3,HN,app_0,1,10,12,\n"
        "i4,HN,app_1,1,10,,100\n"
        "i5,HN,app_1,2,9,12,12\n"
    )
    workload = read(text)
    (job,) = workload.arrivals
    assert (workload.format, job.job_id, job.submit_s, job.work_s) == ("dlrm", "i0", 10, 88)
    assert job.spec.queue == "app_0"
    assert [(d.row, d.why) for d in workload.dropped] == [
        (3, "no_devices"), (4, "before_log"), (5, "unfinished"), (6, "never_ran"),
        (7, "zero_duration"),
    ]  # fmt: skip
