"""What a job at Slurm asks for, as a record that a batch script is made of or read into."""

from typing import Literal

import msgspec

from gridloom.sites.slurm.records import Gres


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """How much memory.

    Attributes:
        mib: In MiB; 0 for all that the node has.
        per: For each of what.
    """

    mib: int
    per: Literal["node", "cpu", "gpu"] = "node"


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal before the time limit, and before a preemption where the site is set up so.

    Attributes:
        name: As ``USR1``.
        before_s: How long before.
        to_batch: To the batch script alone, instead of to its steps alone.
    """

    name: str = "USR1"
    before_s: int = 60
    to_batch: bool = True


class Switches(msgspec.Struct, frozen=True, kw_only=True):
    """Over how many leaf switches at most.

    Attributes:
        count: So many.
        wait_min: How long to wait for that, in minutes; ``None`` for as long as the site lets.
    """

    count: int
    wait_min: int | None = None


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """A directory or file of the node inside a container.

    Attributes:
        source: Path on the node.
        target: Path in the container.
        is_read_only: Whether it cannot be written there.
    """

    source: str
    target: str
    is_read_only: bool = False


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """What the command runs in.

    Attributes:
        engine: Pyxis, an addition of srun, or Apptainer, a command.
        image: As the engine names it: ``nvcr.io#nvidia/pytorch:24.10-py3``, ``/images/a.sif``.
        mounts: What it sees of the node.
        directory: Where the command starts; empty for the image's own.
        gpus: Whose devices Apptainer passes on; empty for none.
    """

    engine: Literal["pyxis", "apptainer"]
    image: str
    mounts: tuple[Mount, ...] = ()
    directory: str = ""
    gpus: Literal["", "nvidia", "amd"] = ""


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that are all alike: a job has one such part, a heterogeneous one several.

    Attributes:
        nodes: How many.
        partition: Where; empty for the site's default.
        constraint: Features, as ``a100&ib``.
        nodelist: Nodes that must be among them.
        gres: Devices on each node.
        cpus_per_task: Processors of the one task on each node.
        memory: How much.
        switches: How close together.
        segment: Nodes that must be in one block of a block topology.
        licences: As ``ansys:2``.
        exclusive: Alone on its nodes; ``user`` and the like let some others in.
    """

    nodes: int = 1
    partition: str = ""
    constraint: str = ""
    nodelist: tuple[str, ...] = ()
    gres: tuple[Gres, ...] = ()
    cpus_per_task: int | None = None
    memory: Memory | None = None
    switches: Switches | None = None
    segment: int | None = None
    licences: tuple[str, ...] = ()
    exclusive: Literal["", "node", "user", "mcs", "topo"] = ""


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A job to hand in.

    Attributes:
        components: Its parts, at least one.
        name: What squeue shows.
        comment: Kept with the job.
        account: Charged to.
        qos: Quality of service.
        reservation: Inside which.
        exclude: Nodes that are not to be used.
        time_limit_min: In minutes.
        dependency: As ``afterok:17``.
        array: Indices, as ``0-15%4``.
        signal: Sent before the end.
        requeue: Whether the site may start it again by itself; ``None`` for the site's default.
        no_kill: Whether it goes on when one of its nodes fails.
        directory: Where the script starts.
        stdout: File for its output, with Slurm's patterns, as ``run-%j.log``.
        stderr: File for its errors; empty for the same.
        open_mode: What happens to those files when it is started again.
        export: Which variables of whoever hands it in it gets: all, those of a login, none.
        environment: Variables that it gets, by name.
        container: What the command runs in.
        options: Of a user's batch script, all of them by their long names: the script asks for what
            they say, also where no field here does.
    """

    components: tuple[Component, ...] = (Component(),)
    name: str = ""
    comment: str = ""
    account: str = ""
    qos: str = ""
    reservation: str = ""
    exclude: tuple[str, ...] = ()
    time_limit_min: int | None = None
    dependency: str = ""
    array: str = ""
    signal: Signal | None = None
    requeue: bool | None = None
    no_kill: bool = False
    directory: str = ""
    stdout: str = ""
    stderr: str = ""
    open_mode: Literal["", "append", "truncate"] = ""
    export: Literal["ALL", "NONE", "NIL"] = "NONE"
    environment: dict[str, str] = {}
    container: Container | None = None
    options: tuple[tuple[str, str], ...] = ()
