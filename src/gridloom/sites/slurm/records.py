"""What Slurm has and does, as records: the same from every release and every way of asking.

Times are seconds since the epoch, durations seconds; ``None`` is what was not told, and
``math.inf`` a limit that there is not. States are in capitals: the base state, then flags.
"""

import msgspec


class Gres(msgspec.Struct, frozen=True, kw_only=True):
    """Devices of one kind: of a node, or of what a job holds on one.

    Attributes:
        name: As ``gpu``.
        type: As ``h100``; empty when none is told.
        count: How many.
        indices: Which of the node's, when told.
    """

    name: str
    type: str = ""
    count: int = 1
    indices: tuple[int, ...] = ()


class ExitCode(msgspec.Struct, frozen=True, kw_only=True):
    """How a process ended.

    Attributes:
        code: Exit status; 0 when a signal ended it.
        signal: Number of that signal; 0 for none.
    """

    code: int = 0
    signal: int = 0


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One node.

    Attributes:
        name: ``NodeName``.
        address: Where Slurm reaches it.
        hostname: What it calls itself.
        cpus: How many it has.
        cpus_allocated: How many are taken.
        memory_mib: What it has, in MiB.
        memory_allocated_mib: What is taken of it.
        gres: Devices it has.
        gres_used: Devices that are taken.
        features: What can be asked for with ``--constraint``.
        states: ``IDLE``, ``MIXED`` and others, then flags such as ``DRAIN``, ``NOT_RESPONDING``.
        reason: Why it is out of service; empty for no reason.
        reason_by: Who said so.
        reason_since_s: When.
        partitions: Those it is in.
        reservation: The one that holds it now.
        topology: Where it sits, as Slurm tells it of a node since 25.05; else empty.
        version: Of its slurmd.
    """

    name: str
    address: str = ""
    hostname: str = ""
    cpus: int = 0
    cpus_allocated: int | None = None
    memory_mib: int = 0
    memory_allocated_mib: int | None = None
    gres: tuple[Gres, ...] = ()
    gres_used: tuple[Gres, ...] | None = None
    features: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    reason: str = ""
    reason_by: str = ""
    reason_since_s: float | None = None
    partitions: tuple[str, ...] = ()
    reservation: str = ""
    topology: str = ""
    version: str = ""


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """One partition: nodes with rules.

    Attributes:
        name: Unique.
        states: ``UP``, ``DOWN``, ``DRAIN`` or ``INACTIVE``.
        is_default: Jobs that name no partition go here.
        nodes: Names.
        cpus: Of all nodes.
        max_time_s: The longest a job may ask for.
        default_time_s: What a job gets that asks for none.
        min_nodes: The fewest a job may ask for.
        max_nodes: The most.
        priority_tier: Jobs of a higher tier go first, and may preempt.
        preempt_mode: What happens to a job that is preempted, as ``REQUEUE`` or ``OFF``.
        grace_s: What it has left then.
        accounts: Who may; empty for all.
        accounts_denied: Who may not.
        qos_allowed: With which; empty for all.
        groups: Of which; empty for all.
        qos: Its own, whose limits hold.
    """

    name: str
    states: tuple[str, ...] = ()
    is_default: bool = False
    nodes: tuple[str, ...] = ()
    cpus: int = 0
    max_time_s: float | None = None
    default_time_s: float | None = None
    min_nodes: int = 0
    max_nodes: float | None = None
    priority_tier: int = 0
    preempt_mode: tuple[str, ...] = ()
    grace_s: float = 0
    accounts: tuple[str, ...] = ()
    accounts_denied: tuple[str, ...] = ()
    qos_allowed: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    qos: str = ""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One job, or one task of a job array, or one component of a heterogeneous job.

    Attributes:
        job_id: Unique in the cluster.
        array_job_id: The array it is of.
        array_task_id: Which of its tasks it is.
        array_tasks: The tasks that still wait, as ``2-3%2``.
        het_job_id: The heterogeneous job it is of.
        het_offset: Which of its components it is.
        name: Whatever its user called it.
        comment: What its user said of it.
        user: Whose it is.
        account: Charged to.
        qos: Quality of service.
        partition: Where; several, with commas, while it waits.
        reservation: Inside which.
        states: ``PENDING``, ``RUNNING`` and others, then flags such as ``REQUEUED``.
        reason: Why it waits, or ended as it did: Slurm's code.
        reason_text: The same as a sentence, where Slurm has one.
        dependency: On what it waits.
        nodes: Where it runs or ran, in Slurm's order.
        node_count: How many it has, or wants.
        gres: Devices asked for on each node.
        gres_held: Devices it holds, node by node, where told.
        submitted_s: When it was handed in.
        started_s: When it began; of one that waits, when it is expected to.
        ended_s: When it ended; of one that runs, when its limit is reached.
        time_limit_s: How long it may run.
        exit: How the batch script ended.
        derived_exit: The worst of its steps.
        restarts: How often it was requeued, or restarted.
        batch_host: Where the batch script runs.
        priority: Higher goes first.
        work_directory: Where the script starts.
        preempted_s: When another job was given its place; 0 if none was.
    """

    job_id: int
    array_job_id: int | None = None
    array_task_id: int | None = None
    array_tasks: str = ""
    het_job_id: int | None = None
    het_offset: int | None = None
    name: str = ""
    comment: str = ""
    user: str = ""
    account: str = ""
    qos: str = ""
    partition: str = ""
    reservation: str = ""
    states: tuple[str, ...] = ()
    reason: str = ""
    reason_text: str = ""
    dependency: str = ""
    nodes: tuple[str, ...] = ()
    node_count: int | None = None
    gres: tuple[Gres, ...] = ()
    gres_held: tuple[tuple[Gres, ...], ...] = ()
    submitted_s: float | None = None
    started_s: float | None = None
    ended_s: float | None = None
    time_limit_s: float | None = None
    exit: ExitCode | None = None
    derived_exit: ExitCode | None = None
    restarts: int | None = None
    batch_host: str = ""
    priority: int | None = None
    work_directory: str = ""
    preempted_s: float | None = None


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes or licences kept for somebody, for a time.

    Attributes:
        name: Unique.
        start_s: From then.
        end_s: Until then.
        nodes: Names.
        node_count: How many.
        partition: Of which partition; empty for any.
        flags: As ``MAINT``, ``FLEX``, ``IGNORE_JOBS``.
        users: For whom.
        accounts: For whom.
        groups: For whom.
        licences: As ``ansys:10``.
        features: What its nodes have.
    """

    name: str
    start_s: float | None = None
    end_s: float | None = None
    nodes: tuple[str, ...] = ()
    node_count: int = 0
    partition: str = ""
    flags: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    licences: tuple[str, ...] = ()
    features: tuple[str, ...] = ()


class Licence(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one licence.

    Attributes:
        name: As a job asks for it.
        total: How many there are.
        used: How many jobs hold.
        free: How many are left.
        reserved: How many reservations hold.
        is_remote: Counted by a server elsewhere.
    """

    name: str
    total: int = 0
    used: int = 0
    free: int = 0
    reserved: int = 0
    is_remote: bool = False


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """One switch of a tree.

    Attributes:
        name: Unique.
        switches: Those below it.
        nodes: Those directly at it.
    """

    name: str
    switches: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes with a fast network of their own, as of one NVLink domain.

    Attributes:
        name: Unique.
        nodes: Those in it.
    """

    name: str
    nodes: tuple[str, ...] = ()


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """How the nodes are wired.

    Attributes:
        switches: Of a tree.
        blocks: Of a block topology, in their order: neighbours are joined to larger ones.
        block_sizes: In how many nodes jobs may be laid out, smallest first.
    """

    switches: tuple[Switch, ...] = ()
    blocks: tuple[Block, ...] = ()
    block_sizes: tuple[int, ...] = ()
