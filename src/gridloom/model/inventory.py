"""What there is: sites, their nodes and accelerators, and the links between sites."""

from typing import Literal

import msgspec

from gridloom.model.policy import Policy
from gridloom.model.quota import Cohort, Queue

CPU = "cpu"
"""Accelerator kind of a CPU slot: one core's share of a node, for machines without accelerators."""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One machine.

    Attributes:
        name: Unique inside its site.
        address: Where other nodes reach it.
        accelerator: Kind of its devices, as ``h100`` or ``cpu``.
        count: How many devices it has; they are numbered from 0.
        memory_bytes: Memory of one device; 0 when unknown.
        path: Domains that it sits in, one for each of its site's ``levels``, outermost first.
        island: Devices of one island, as of an NVLink pair or half of an 8+8 host; they are
            numbered island by island. 0: all of the node's are one.
        labels: What its owner says of it, by name.
        resources: What the host has besides, by name: ``cpus``, ``memory_gib`` and others.
    """

    name: str
    address: str
    accelerator: str
    count: int
    memory_bytes: int = 0
    path: tuple[str, ...] = ()
    island: int = 0
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    resources: dict[str, int] = msgspec.field(default_factory=dict)


class SlurmRest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a site's slurmrestd is, and as whom it is asked.

    Attributes:
        url: As ``https://login.example.org:6820``.
        user: Whose jobs they are.
        token_file: File with the user's JSON Web Token; one of these two is given.
        token_command: Words of the command that prints one.
        ca_file: Certificates of those who may vouch for an ``https`` server; empty for those that
            this machine trusts.
    """

    url: str
    user: str
    token_file: str = ""
    token_command: tuple[str, ...] = ()
    ca_file: str = ""


class SlurmContainer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the jobs of a Slurm run in.

    Attributes:
        engine: Pyxis, an addition of srun, or Apptainer, a command.
        image: As the engine names it: ``nvcr.io#nvidia/pytorch:24.10-py3``, ``/images/a.sif``.
        mounts: What it sees of the node besides run directories: there by path here.
        gpus: Whose devices Apptainer passes on; empty for none.
    """

    engine: Literal["pyxis", "apptainer"]
    image: str
    mounts: dict[str, str] = {}
    gpus: Literal["", "nvidia", "amd"] = ""


class SshAccess(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a login host is reached over SSH, and where our files are there.

    Attributes:
        host: Its name or address, or an alias of the user's OpenSSH configuration.
        directory: Absolute, on a file system that the site's nodes see, too: run directories are
            kept in ``runs`` below it, working directories in ``work``.
        user: As whom; empty for whom the configuration names, else for the one here.
        port: 0 for what the configuration says, else 22.
        key_file: Private key; empty for the agent's, the configuration's and the usual ones.
        known_hosts: File of the keys by which hosts are known; empty for the user's own.
        workdir: Where the job's working directory is there already; empty: it is copied.
        checkpoints: Whether those of a job that goes on elsewhere are fetched, or stay ``there``.
    """

    host: str
    directory: str
    user: str = ""
    port: int = 0
    key_file: str = ""
    known_hosts: str = ""
    workdir: str = ""
    checkpoints: Literal["there", "fetch"] = "fetch"


class SlurmAccess(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How jobs are handed to the Slurm of a site.

    Attributes:
        account: Charged to; empty for the user's default, as with all that is empty here.
        partition: Where.
        qos: Quality of service.
        reservation: Inside which.
        constraint: Features of the nodes, as ``a100&ib``.
        switches: Over how many leaf switches a job may stretch; 0 for any.
        switches_wait_s: How long it waits for that; 0 for as long as the site lets.
        segment: Nodes that must be in one block of a block topology; 0 for none.
        exclusive: Jobs have their nodes alone, with all of the memory.
        memory_bytes: On each node; 0 for the site's default.
        placement: Whether Slurm chooses the nodes, or takes those that gridloom has chosen.
        time_limit_s: Of a job at the site; 0 for the partition's default.
        gres: What Slurm calls the devices of a kind, as ``{"h100": "gpu:hopper"}``; of other kinds
            ``gpu``.
        network: Addresses by which nodes reach each other, as ``10.0.0.0/8``; empty: by host name.
        python: Interpreter there with gridloom; empty for the one that runs here.
        environment: Variables of Slurm's commands and so of its jobs, as
            ``{"SLURM_CONF": "/etc/slurm/b.conf"}``.
        rest: Its slurmrestd, if that is asked instead of its commands.
        container: What jobs run in; nothing: the node itself.
        ssh: Its login host, where its commands are run and whose files are written over SSH;
            nothing: the commands are run here, and the nodes see our files.
    """

    account: str = ""
    partition: str = ""
    qos: str = ""
    reservation: str = ""
    constraint: str = ""
    switches: int = 0
    switches_wait_s: float = 0.0
    segment: int = 0
    exclusive: bool = False
    memory_bytes: int = 0
    placement: Literal["delegate", "pin"] = "delegate"
    time_limit_s: float = 0.0
    gres: dict[str, str] = {}
    network: str = ""
    python: str = ""
    environment: dict[str, str] = {}
    rest: SlurmRest | None = None
    container: SlurmContainer | None = None
    ssh: SshAccess | None = None


class KubeVolume(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A directory in the pods of a Kubernetes site; from one of four places.

    Attributes:
        claim: A PersistentVolumeClaim.
        sub_path: What of the claim; empty for all.
        host: A directory of the node.
        secret: A Secret, whose files are read-only.
        memory_bytes: Memory, at most so much.
        read_only: Whether it is.
    """

    claim: str = ""
    sub_path: str = ""
    host: str = ""
    secret: str = ""
    memory_bytes: int = 0
    read_only: bool = False


class KubeToleration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A taint that does not keep pods away.

    Attributes:
        key: Of the taint.
        value: Of the taint; empty for any.
        effect: As ``NoSchedule``; empty for all.
    """

    key: str
    value: str = ""
    effect: str = ""


class KubeAccess(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How jobs are handed to the Kubernetes of a site.

    Attributes:
        kubeconfig: File that says how the cluster is reached; empty as ``kubectl`` finds it, or,
            inside a pod, its service account.
        context: Which of its contexts; empty for the current one.
        namespace: Where jobs run.
        workload: What the tasks of an attempt are handed in as: ``job``, ``jobset``, ``trainjob``.
        queue: Kueue's LocalQueue; empty to start without Kueue.
        queue_priority: Kueue's WorkloadPriorityClass; empty for none.
        priority_class: The pods' PriorityClass; empty for the default, as with all that is empty.
        topology_required: Node label of the level that all pods must share, through Kueue.
        topology_preferred: Of the level that they share if they can.
        image: Container image that has gridloom.
        pull_policy: When it is fetched.
        pull_secrets: Secrets that open its registry.
        python: Interpreter there.
        runs: Where the run directories come from; pods see them at the path at which we do.
        volumes: What else they see, by path.
        environment: Variables of the pods.
        secrets: Variables that stay in the cluster, by name, as ``SECRET/KEY``.
        devices: What a device of a kind is called there; of other kinds ``nvidia.com/gpu``.
        resources: What each pod asks for besides, as quantities.
        labels: Of jobs and pods, besides ours.
        annotations: Of jobs and pods.
        node_selector: Labels that nodes must have.
        tolerations: Taints that do not keep pods away.
        runtime_class: As ``nvidia``.
        service_account: Of the pods.
        networks: More networks, as ``rail-0`` or ``fabric/rail-1@net1``.
        host_network: Whether pods use their node's network.
        network: Addresses by which pods reach each other, as ``10.0.0.0/8``; empty: the pod's own.
        time_limit_s: Of a job at the site; 0 for none.
        keep_s: How long the cluster keeps jobs that have ended.
    """

    kubeconfig: str = ""
    context: str = ""
    namespace: str = "default"
    workload: Literal["job", "jobset", "trainjob"] = "job"
    queue: str = ""
    queue_priority: str = ""
    priority_class: str = ""
    topology_required: str = ""
    topology_preferred: str = ""
    image: str
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    python: str = "python3"
    runs: KubeVolume | None = None
    volumes: dict[str, KubeVolume] = {}
    environment: dict[str, str] = {}
    secrets: dict[str, str] = {}
    devices: dict[str, str] = {}
    resources: dict[str, str] = {}
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    tolerations: tuple[KubeToleration, ...] = ()
    runtime_class: str = ""
    service_account: str = ""
    networks: tuple[str, ...] = ()
    host_network: bool = False
    network: str = ""
    time_limit_s: float = 0.0
    keep_s: float = 3600.0


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """One administrative place, reached by one driver.

    Attributes:
        name: Unique in the grid.
        kind: Which driver reaches it: ``local``, ``slurm`` or ``kubernetes``.
        nodes: Its machines, in the order in which they are filled.
        price_per_accelerator_hour: In the grid's currency; 0 when free or unknown.
        power_w_per_accelerator: Draw of one busy device with its share of the node, in watts.
        ports: First and last port on which rank 0 of a job may listen.
        levels: Names of the topology's levels between site and node, outermost first, as
            ``("spine", "leaf", "rack")``. Above them is ``site``, below ``node`` and ``island``.
        queues: Whose jobs may run here; empty for everybody's.
        carbon_g_per_kwh: Of its electricity; 0 when unknown.
        lease_s: How long what runs there goes on without a word from us; 0: as long as anywhere.
        slurm: How its Slurm is used, if it has one.
        kubernetes: How its Kubernetes is used, if it has one.
    """

    name: str
    kind: str
    nodes: tuple[Node, ...]
    price_per_accelerator_hour: float = 0.0
    power_w_per_accelerator: float = 0.0
    ports: tuple[int, int] = (29400, 29999)
    levels: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    carbon_g_per_kwh: float = 0.0
    lease_s: float = 0.0
    slurm: SlurmAccess | None = None
    kubernetes: KubeAccess | None = None


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """The network between two sites, the same in both directions.

    Attributes:
        between: The two sites, by name.
        bandwidth_bits_per_s: What one job can expect; 0 when unknown.
        latency_s: One way; 0 when unknown.
        loss: Share of the packets that are lost.
    """

    between: tuple[str, str]
    bandwidth_bits_per_s: float = 0.0
    latency_s: float = 0.0
    loss: float = 0.0


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that jobs can be placed on, and by which rules.

    Attributes:
        sites: Where.
        links: Between them.
        currency: Of every price.
        queues: Whose jobs there are; without any, all jobs wait in one without limits.
        cohorts: Queues that may borrow from each other.
        policy: Who comes first, and what may be done for whom.
    """

    sites: tuple[Site, ...]
    links: tuple[Link, ...] = ()
    currency: str = "USD"
    queues: tuple[Queue, ...] = ()
    cohorts: tuple[Cohort, ...] = ()
    policy: Policy = Policy()

    def site(self, name: str) -> Site:
        """Return the site called ``name``; ``KeyError`` when there is none."""
        for site in self.sites:
            if site.name == name:
                return site
        raise KeyError(name)
