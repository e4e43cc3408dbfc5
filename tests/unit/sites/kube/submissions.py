"""Submissions that tests render: from the least that a cluster takes to all that can be said."""

import msgspec

from gridloom.sites.kube.submission import (
    Accelerators,
    ClaimVolume,
    Disruption,
    EmptyVolume,
    HostVolume,
    NetworkAttachment,
    SecretVariable,
    SecretVolume,
    Submission,
    Toleration,
    Topology,
)

GIB = 2**30

LEAST = Submission(
    name="tiny-a1",
    namespace="default",
    job_id="tiny",
    attempt=1,
    epoch=7,
    replicas=1,
    image="registry.example/gridloom:1",
    command=("python", "-m", "gridloom.agent", "/runs/tiny/attempts/1/site.n0"),
    grace_s=0,
)

ALL = Submission(
    name="llama-7b-a3",
    namespace="team-a",
    job_id="llama_7b",
    attempt=3,
    epoch=41,
    life=2,
    labels={"team": "a", "example.org/cost-centre": "0042"},
    annotations={"example.org/note": "nightly: yes"},
    queue="training",
    queue_priority="high",
    pod_priority="training-pods",
    topology=Topology(
        preferred="cloud.provider.com/topology-block",
        slice_level="cloud.provider.com/topology-rack",
        slice_size=2,
    ),
    replicas=4,
    accelerators=Accelerators(resource="nvidia.com/gpu", count=8),
    cpu_millis=96_500,
    memory_bytes=1024 * GIB,
    rdma={"rdma/hca_shared_devices_a": 8},
    resources={"hugepages-2Mi": "4Gi"},
    image="registry.example/train@sha256:" + "0" * 64,
    pull_policy="Always",
    pull_secrets=("registry",),
    command=("bash", "-c", 'exec train --lr 1e-3 --out "$(OUT)" $$'),
    workdir="/workspace",
    environment={"NCCL_IB_HCA": "=mlx5_0:1", "FLAG": "on", "PRICE": "$(cat x)", "EXP": "1e3"},
    secrets=(SecretVariable(name="WANDB_API_KEY", secret="wandb", key="api-key"),),
    fields={"GRIDLOOM_NODE": "spec.nodeName"},
    volumes=(
        ClaimVolume(name="runs", claim="runs", path="/runs"),
        ClaimVolume(name="data", claim="data", path="/data", sub_path="c4", read_only=True),
        HostVolume(name="scratch", host_path="/mnt/nvme", path="/scratch", must_exist=False),
        EmptyVolume(name="shm", path="/dev/shm", in_memory=True, size_bytes=64 * GIB),
        SecretVolume(name="ssh", secret="ssh-keys", path="/etc/ssh-keys"),
    ),
    tolerations=(
        Toleration(key="dedicated", value="training", effect="NoSchedule"),
        Toleration(
            key="node.kubernetes.io/unreachable", exists=True, effect="NoExecute", seconds=60
        ),
    ),
    node_selector={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
    runtime_class="nvidia",
    scheduler="default-scheduler",
    service_account="training",
    networks=(
        NetworkAttachment(name="rail-0", interface="net1"),
        NetworkAttachment(name="rail-1", namespace="fabric"),
    ),
    port=29400,
    supervisor_pid_file="/run/gridloom/supervisor pid",
    grace_s=120.5,
    deadline_s=86_400,
    restarts=2,
    disruption=Disruption.REPLACE,
    keep_s=3600,
)

HOST_NETWORK = msgspec.structs.replace(
    LEAST,
    name="gaudi-a1",
    accelerators=Accelerators(resource="habana.ai/gaudi", count=8),
    resources={"hugepages-2Mi": "95000Mi"},
    host_network=True,
    queue="training",
    topology=Topology(required="topology.kubernetes.io/zone"),
    replicas=16,
    memory_bytes=3 * 10**11 + 1,
    grace_s=30.0,
)

RESOURCES = (
    "nvidia.com/gpu",
    "amd.com/gpu",
    "huawei.com/Ascend910",
    "habana.ai/gaudi",
    "google.com/tpu",
)
VENDORS = tuple(
    msgspec.structs.replace(LEAST, accelerators=Accelerators(resource=name, count=8))
    for name in RESOURCES
)

EVERY = {"least": LEAST, "all": ALL, "host_network": HOST_NETWORK}
