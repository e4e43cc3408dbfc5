"""How large a user's batch script is: on how many nodes, and what of each (pure)."""

import msgspec

from gridloom.model.inventory import CPU, Node, SlurmAccess
from gridloom.sites.slurm.gres import gres
from gridloom.sites.slurm.inventory import BESIDE_DEVICES
from gridloom.sites.slurm.records import Gres
from gridloom.sites.slurm.sbatch_file import SbatchFile


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """What a script asks for, as far as it says.

    Attributes:
        nodes: How many; ``None`` if that follows from the rest.
        tasks: How many tasks in all.
        cpus: Processors of one task.
        of_node: Devices of each node; none if it says nothing of them.
        of_job: Devices over all nodes, in place of those.
    """

    nodes: int | None
    tasks: int
    cpus: int = 1
    of_node: tuple[Gres, ...] = ()
    of_job: tuple[Gres, ...] = ()

    def on(self, kind: str, node: Node, access: SlurmAccess) -> tuple[int, int] | None:
        """Return how many nodes like ``node`` it needs and how many devices of each; else nothing.

        Args:
            kind: Of the devices; ``cpu`` if it asks for none.
            node: One of the site's, which says how few can do.
            access: What the site's Slurm calls devices.
        """
        if kind == CPU:
            is_asked, per, total = not (self.of_node or self.of_job), 0, self.tasks * self.cpus
        else:
            per = _count(self.of_node, kind, access)
            total = _count(self.of_job, kind, access)
            is_asked = per + total > 0
        if not is_asked:
            return None
        if per:
            return self.nodes or 1, per
        nodes = self.nodes or -(-total // node.count)
        if kind == CPU:
            each = self.of_one(nodes)
            return (nodes, each) if each <= node.count else None
        return nodes, -(-total // nodes)

    def beside_devices(self, node: Node) -> tuple[int, int] | None:
        """Return on how many nodes with devices like ``node`` it could stand without using any.

        And how many devices of each it then counts as, for devices are what is counted: those
        whose share of the node's processors it takes. Nothing if it asks for devices, or for more
        processors than a node has.

        Args:
            node: One of the site's, which says how few can do; how many processors it has may be
                unknown.
        """
        if self.of_node or self.of_job:
            return None
        there = node.resources.get("cpus", 0)
        nodes = self.nodes or (-(-self.tasks * self.cpus // there) if there else 1)
        each = self.of_one(nodes)
        if there and each > there:
            return None
        return nodes, -(-each * node.count // there) if there else 1

    def of_one(self, nodes: int) -> int:
        """Return how many processors it takes of one of so many nodes: a task is on one."""
        return -(-self.tasks // nodes) * self.cpus


def size_of(script: SbatchFile) -> Size:
    """Return how large ``script`` is.

    Raises:
        ValueError: A count of devices is none.
    """
    said = {setting.name: setting.value for setting in script.settings}
    (component, *_), (tasks, *_), (per_node, *_) = (
        script.submission.components,
        script.tasks,
        script.tasks_per_node,
    )
    nodes = component.nodes if "nodes" in said else None
    if nodes is None and tasks and per_node:
        nodes = -(-tasks // per_node)
    count = tasks or (nodes or 1) * (per_node or 1)
    of_job: tuple[Gres, ...] = ()
    if "gpus" in said:
        of_job = gres(f"gpu:{said['gpus']}")
    elif "gpus-per-task" in said:
        (each,) = gres(f"gpu:{said['gpus-per-task']}")
        of_job = (Gres(name=each.name, type=each.type, count=each.count * count),)
    if nodes is None and not tasks and not of_job:
        nodes = 1
    return Size(
        nodes=nodes,
        tasks=count,
        cpus=component.cpus_per_task or 1,
        of_node=tuple(one for one in component.gres if one.name not in BESIDE_DEVICES),
        of_job=of_job,
    )


def _count(asked: tuple[Gres, ...], kind: str, access: SlurmAccess) -> int:
    """Return how many devices of ``kind`` are asked for; without a type any will do."""
    name, _, type_ = access.gres.get(kind, "gpu").partition(":")
    types = {"", type_, kind}
    return sum(one.count for one in asked if one.name == name and one.type.lower() in types)
