"""Rows of a log to the shapes that their jobs could take, one object for each distinct shape."""

from gridloom.model.parallel import ParallelPlan
from gridloom.model.spec import GroupNeed, Option
from gridloom.sim.workload_nouns import ReadOptions

Steps = tuple[tuple[int, float], ...]
"""Numbers of devices, as submitted first, each with seconds of a training step; 0 for unknown."""

Needs = tuple[tuple[str, int], ...]
"""What the whole job needs of its hosts, by name, in order of names."""


class Shapes:
    """Makes options and remembers them, so that equal shapes are one object."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._made: dict[tuple[Steps, tuple[str, ...], Needs], tuple[Option, ...]] = {}

    def of(
        self, steps: Steps, kinds: tuple[str, ...] = (), needs: Needs = ()
    ) -> tuple[Option, ...]:
        """Return the options of a job: for each number of devices, each kind.

        Args:
            steps: Numbers of devices with their step times.
            kinds: Kinds of device that the log names, best first; empty when it names none.
            needs: What the job needs of its hosts, where that is asked for.
        """
        if not kinds or not self._options.named:
            kinds = self._options.accelerators
        key = (steps, kinds, needs if self._options.host else ())
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = tuple(
                self._option(devices, kind, step_s, key[2])
                for devices, step_s in steps
                for kind in kinds
            )
        return found

    def _option(self, devices: int, kind: str, step_s: float, needs: Needs) -> Option:
        block = _block(devices, self._options.node_devices)
        packed = self._options.gang == "packed" and block > 1
        return Option(
            accelerator=kind,
            plan=ParallelPlan(data=devices),
            step_s=step_s,
            groups=(GroupNeed(ranks=block, level="node"),) if packed else (),
            rank_resources=tuple((name, -(-whole // devices)) for name, whole in needs),
        )


def scaled(devices: int, least: int, most: int) -> Steps:
    """Return a job's own number of devices, and halves, doubles and ends of the range it may have.

    Nothing is known of how it scales, so that its speed grows with its devices: the step time is
    1 as submitted, and inversely proportional to the number elsewhere.
    """
    counts = [devices]
    while counts[-1] % 2 == 0 and counts[-1] // 2 >= least:
        counts.append(counts[-1] // 2)
    if 1 <= least < counts[-1]:
        counts.append(least)
    double = devices * 2
    while double <= most:
        counts.append(double)
        double *= 2
    if most > max(counts):
        counts.append(most)
    if len(counts) == 1:
        return ((devices, 0.0),)
    return tuple((count, devices / count) for count in counts)


def _block(devices: int, node_devices: int) -> int:
    """Return the ranks that sit in one node: the most that divide all of them evenly.

    12 devices on nodes of 8 are two blocks of 6, 24 three of 8; a prime number above that of a
    node's devices has no blocks.
    """
    return max(ranks for ranks in range(1, min(devices, node_devices) + 1) if devices % ranks == 0)
