"""What the curve of fragmentation is read from."""

from collections.abc import Callable

import numpy as np

from gridloom.core.machine import Machine
from gridloom.core.topology import Ints, Tree


def scatter(machine: Machine) -> Callable[[], float]:
    """Return a gauge of how scattered the free devices are.

    It tells, of the whole nodes that the free devices of one kind and size of node would make up,
    the share that they do not: 0 where all free devices are on free nodes, and where they are
    fewer than a node has.
    """
    seen: list[tuple[Tree, _Sizes]] = []

    def gauge() -> float:
        tree = machine.index.tree
        if not seen or seen[0][0] is not tree:
            seen[:] = [(tree, _Sizes(tree))]
        return seen[0][1].scatter(machine.index.capacity.available)

    return gauge


class _Sizes:
    """Nodes by kind of device and size."""

    def __init__(self, tree: Tree) -> None:
        self._first = np.asarray(tree.first_unit[:-1])
        groups: dict[tuple[str, int], list[int]] = {}
        for number, node in enumerate(tree.nodes):
            if node.count > 0:
                groups.setdefault((node.accelerator, node.count), []).append(number)
        self._groups = [(size, np.array(nodes)) for (_, size), nodes in groups.items()]

    def scatter(self, available: Ints) -> float:
        if not len(self._first):
            return 0.0
        free = np.add.reduceat(available, self._first)
        possible = there = 0
        for size, nodes in self._groups:
            of_group = free[nodes]
            possible += int(of_group.sum()) // size * size
            there += int((of_group == size).sum()) * size
        return 1 - there / possible if possible else 0.0
