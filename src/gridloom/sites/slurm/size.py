"""How large a user's batch script is: on how many nodes, and what of each (pure)."""

import msgspec

from gridloom.model.inventory import CPU, Node, SlurmAccess
from gridloom.sites.slurm.gres import gres
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
        if kind == CPU:  # a task is on one node
            return nodes, -(-self.tasks // nodes) * self.cpus
        return nodes, -(-total // nodes)


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
        of_node=component.gres,
        of_job=of_job,
    )


def _count(asked: tuple[Gres, ...], kind: str, access: SlurmAccess) -> int:
    """Return how many devices of ``kind`` are asked for; without a type any will do."""
    name, _, type_ = access.gres.get(kind, "gpu").partition(":")
    types = {"", type_, kind}
    return sum(one.count for one in asked if one.name == name and one.type.lower() in types)
