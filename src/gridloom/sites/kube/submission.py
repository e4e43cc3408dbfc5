"""What one attempt asks of a cluster, before it is written as manifests (pure)."""

from enum import StrEnum

import msgspec


class Accelerators(msgspec.Struct, frozen=True, kw_only=True):
    """Devices of every node of the attempt.

    Attributes:
        resource: The vendor's name, as ``nvidia.com/gpu``, ``amd.com/gpu``,
            ``huawei.com/Ascend910``, ``habana.ai/gaudi`` or ``google.com/tpu``.
        count: How many a node.
    """

    resource: str
    count: int


class SecretVariable(msgspec.Struct, frozen=True, kw_only=True):
    """A variable whose value stays in a Secret of the cluster.

    Attributes:
        name: Of the variable.
        secret: Of the Secret.
        key: Inside it.
    """

    name: str
    secret: str
    key: str


class ClaimVolume(msgspec.Struct, frozen=True, kw_only=True, tag="claim"):
    """A PersistentVolumeClaim that exists.

    Attributes:
        name: Of the volume in the pod.
        claim: Of the claim.
        path: Where it is mounted.
        sub_path: What of it is mounted; empty for all.
        read_only: Whether it is.
    """

    name: str
    claim: str
    path: str
    sub_path: str = ""
    read_only: bool = False


class HostVolume(msgspec.Struct, frozen=True, kw_only=True, tag="host"):
    """A directory of the node.

    Attributes:
        name: Of the volume in the pod.
        host_path: On the node.
        path: Where it is mounted.
        must_exist: Refuse the node when it is no directory there, instead of making one.
        read_only: Whether it is.
    """

    name: str
    host_path: str
    path: str
    must_exist: bool = True
    read_only: bool = False


class EmptyVolume(msgspec.Struct, frozen=True, kw_only=True, tag="empty"):
    """A directory that lives as long as the pod.

    Attributes:
        name: Of the volume in the pod.
        path: Where it is mounted; ``/dev/shm`` for shared memory.
        in_memory: Whether it is memory, which counts against the pod's, or disk.
        size_bytes: At most; 0 for no limit of its own.
    """

    name: str
    path: str
    in_memory: bool = False
    size_bytes: int = 0


class SecretVolume(msgspec.Struct, frozen=True, kw_only=True, tag="secret"):
    """The files of a Secret, read-only.

    Attributes:
        name: Of the volume in the pod.
        secret: Of the Secret.
        path: Where it is mounted.
    """

    name: str
    secret: str
    path: str


Volume = ClaimVolume | HostVolume | EmptyVolume | SecretVolume


class Toleration(msgspec.Struct, frozen=True, kw_only=True):
    """Taints that do not keep the pods away.

    Attributes:
        key: Of the taint; empty for every key, with ``exists``.
        value: Of the taint, unless ``exists``.
        exists: Any value will do.
        effect: Only taints of this effect; empty for all.
        seconds: How long a ``NoExecute`` taint is borne; nothing for ever.
    """

    key: str = ""
    value: str = ""
    exists: bool = False
    effect: str = ""
    seconds: int | None = None


class NetworkAttachment(msgspec.Struct, frozen=True, kw_only=True):
    """One more network of the pods, by a NetworkAttachmentDefinition.

    Attributes:
        name: Of the definition.
        namespace: Where it is; empty for the pods' own.
        interface: Its name in the pod; empty for the next free one.
    """

    name: str
    namespace: str = ""
    interface: str = ""


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """How near to each other Kueue must place the pods; levels are named by their node label.

    Attributes:
        required: All pods in one domain of this level, or they wait.
        preferred: All in one domain of this level, or of the next one out that holds them.
        slice_level: Every ``slice_size`` pods in a row in one domain of this level.
        slice_size: Pods of a slice; 0 for no slices.
    """

    required: str = ""
    preferred: str = ""
    slice_level: str = ""
    slice_size: int = 0


class Disruption(StrEnum):
    """What the cluster does when it takes a pod away (drain, preemption, lost node)."""

    FAIL = "fail"
    """The whole attempt ends: gridloom starts another one, under a new epoch."""
    REPLACE = "replace"
    """The pod is made anew, and does not count against ``restarts``."""


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the objects of one attempt at one cluster are made from.

    Attributes:
        name: Of the objects: a DNS label that begins with a letter (see ``names.object_name``).
        namespace: Where they are.
        job_id: The job.
        attempt: The attempt's number.
        epoch: Its fencing number.
        life: Which life of the site in the attempt.
        labels: Further ones.
        annotations: Further ones.
        queue: Kueue's LocalQueue; empty to start without Kueue.
        queue_priority: Kueue's WorkloadPriorityClass; empty for none.
        pod_priority: The pods' PriorityClass; empty for the cluster's default.
        topology: How near to each other Kueue places the pods.
        replicas: Pods, one a node.
        accelerators: Of each of them; nothing for CPUs alone.
        cpu_millis: Thousandths of a core of each; 0 leaves it open.
        memory_bytes: Of each; 0 leaves it open.
        rdma: RDMA devices of each by resource name, as ``rdma/hca_shared_devices_a``.
        resources: Anything else of each, as quantities by resource name.
        image: Of the container.
        pull_policy: ``IfNotPresent``, ``Always`` or ``Never``.
        pull_secrets: Names of Secrets that open the registry.
        command: What the container executes, exactly.
        workdir: Where; empty for the image's own.
        environment: Variables.
        secrets: Variables from Secrets.
        fields: Variables from the pod itself, as ``{"NODE": "spec.nodeName"}``.
        volumes: What is mounted.
        tolerations: Besides the one for the accelerator's own taint.
        node_selector: Labels that a node must have.
        runtime_class: As ``nvidia``; empty for the default.
        scheduler: Name of the scheduler; empty for the default.
        service_account: Whose identity the pods have; its token is not mounted.
        networks: Further networks.
        host_network: Use the node's network.
        port: On which rank 0 listens; 0 when nobody needs to know.
        supervisor_pid_file: Where the supervisor's process id stands; empty when it is process 1.
        grace_s: Seconds between the request to stop and the kill.
        deadline_s: Seconds that it may run; 0 for no limit.
        restarts: How often the cluster itself starts it again; 0 leaves that to gridloom.
        disruption: What the cluster does when it takes a pod away.
        keep_s: Seconds that the finished objects are kept; nothing until they are deleted.
    """

    name: str
    namespace: str
    job_id: str
    attempt: int
    epoch: int
    life: int = 1
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    queue: str = ""
    queue_priority: str = ""
    pod_priority: str = ""
    topology: Topology = Topology()
    replicas: int
    accelerators: Accelerators | None = None
    cpu_millis: int = 0
    memory_bytes: int = 0
    rdma: dict[str, int] = msgspec.field(default_factory=dict)
    resources: dict[str, str] = msgspec.field(default_factory=dict)
    image: str
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    command: tuple[str, ...]
    workdir: str = ""
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    secrets: tuple[SecretVariable, ...] = ()
    fields: dict[str, str] = msgspec.field(default_factory=dict)
    volumes: tuple[Volume, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    runtime_class: str = ""
    scheduler: str = ""
    service_account: str = ""
    networks: tuple[NetworkAttachment, ...] = ()
    host_network: bool = False
    port: int = 0
    supervisor_pid_file: str = ""
    grace_s: float = 30.0
    deadline_s: int = 0
    restarts: int = 0
    disruption: Disruption = Disruption.FAIL
    keep_s: int | None = None
