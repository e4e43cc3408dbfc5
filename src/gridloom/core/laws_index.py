"""What is derived must be what the state says: counted once more, job by job."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from gridloom.base.errors import BrokenError
from gridloom.core.dependencies import unmet_dependencies
from gridloom.core.index import Index
from gridloom.core.laws_place import Unit, all_units, grid_of, units_of
from gridloom.model.life import HOLDING, Job, JobState


def check_index(index: Index) -> None:
    """Return if what is derived follows from the state.

    Raises:
        BrokenError: It does not; the message names the law and the culprit.
    """
    for law, broken in _LAWS:
        for culprit in broken(index):
            raise BrokenError(f"law broken: {law}: {culprit}")


def _free(index: Index) -> Iterator[str]:
    held: Counter[Unit] = Counter()
    grid = grid_of(index.state.inventory)
    for job in _holding(index):
        held.update(units_of(grid, job.attempts[-1].placement))
    yield from _unequal(index, "free", index.capacity.free, held)


def _kept(index: Index) -> Iterator[str]:
    grid, capacity = grid_of(index.state.inventory), index.capacity
    names = _units(index)
    keepers = {
        job.job_id: job for job in index.state.jobs.values() if job.reservation or job.spares
    }
    if set(capacity.keepers()) != set(keepers):
        yield f"for {sorted(set(capacity.keepers()) ^ set(keepers))}"
        return
    for job_id, job in keepers.items():
        wanted = units_of(grid, job.reservation) if job.reservation else {}
        for domain in job.spares:
            wanted |= all_units(grid, domain)
        units, devices = capacity.kept(job_id) or ((), ())
        found = {names[unit]: int(n) for unit, n in zip(units, devices, strict=True)}
        if found != wanted:
            yield f"{found} for {job_id}, and not {wanted}"


def _available(index: Index) -> Iterator[str]:
    capacity, tree, marks = index.capacity, index.tree, index.state.marks
    kept = np.zeros_like(capacity.free)
    for job_id in capacity.keepers():
        units, devices = capacity.kept(job_id) or ((), ())
        kept[np.asarray(units, np.int64)] += np.asarray(devices, np.int64)
    for unit, (domain, _) in enumerate(_units(index)):
        marked = domain in marks or tree.sites[tree.node_site[tree.unit_node[unit]]].name in marks
        left = 0 if marked else max(int(capacity.free[unit]) - int(kept[unit]), 0)
        if int(capacity.available[unit]) != left:
            yield f"{int(capacity.available[unit])} of {domain}, and not {left}"
    if capacity.total != int(capacity.available.sum()):
        yield f"{capacity.total} in all"


def _use(index: Index) -> Iterator[str]:
    used: Counter[tuple[str, str]] = Counter()
    for job in _holding(index):
        option = job.attempts[-1].placement.option
        used[job.spec.queue, option.accelerator] += option.devices
    for job in index.state.jobs.values():
        if job.reservation is not None:  # what is reserved counts as used
            option = job.reservation.option
            used[job.spec.queue, option.accelerator] += option.devices
    kinds = {*index.tree.totals, *(kind for _, kind in used)}
    queues = {"", *index.queues, *(queue for queue, _ in used)}
    for queue in sorted(queues):
        for kind in sorted(kinds):
            if index.ledger.use(queue, kind) != used[queue, kind]:
                yield f"{index.ledger.use(queue, kind)} {kind} of queue `{queue}`"


def _holders(index: Index) -> Iterator[str]:
    holding = _holding(index)
    if set(index.holdings) != {job.job_id for job in holding}:
        yield f"{sorted(index.holdings)} hold devices"
    if index.running_at != Counter(job.spec.priority for job in holding):
        yield f"{index.running_at} run at these priorities"


def _waiting(index: Index) -> Iterator[str]:
    state = index.state
    found: dict[str, str] = {}
    for bucket in index.buckets.values():
        keys = [key for key, _ in bucket.jobs()]
        if keys != sorted(keys):
            yield f"those of queue `{bucket.queue}` are not in order"
        for _, job in bucket.jobs():
            if job.job_id in found or index.bucket(job) is not bucket:
                yield f"{job.job_id} waits twice"
            found[job.job_id] = bucket.queue
    wanted = {
        job.job_id: job.spec.queue
        for job in state.jobs.values()
        if job.state is JobState.QUEUED
        and job.not_before_s <= state.now_s
        and not unmet_dependencies(state, job)
    }
    if found != wanted:
        yield f"{sorted(set(found.items()) ^ set(wanted.items()))}"


_LAWS = (
    ("what is free is what nobody holds", _free),
    ("what is kept is what is reserved and spare", _kept),
    ("what is available is free, not kept and well", _available),
    ("queues are charged for what their jobs hold and what is reserved for them", _use),
    ("whoever holds devices is known to", _holders),
    ("whoever could start waits in one bucket of the own queue", _waiting),
)


def _holding(index: Index) -> list[Job]:
    return [job for job in index.state.jobs.values() if job.state in HOLDING]


def _units(index: Index) -> list[Unit]:
    """Return the name of each unit, by number."""
    tree = index.tree
    return [
        (tree.domains[node], unit - int(tree.first_unit[node]))
        for unit, node in enumerate(tree.unit_node.tolist())
    ]


def _unequal(index: Index, what: str, found: np.ndarray, held: Counter[Unit]) -> Iterator[str]:
    for unit, name in enumerate(_units(index)):
        wanted = int(index.tree.unit_devices[unit]) - held[name]
        if int(found[unit]) != wanted:
            yield f"{int(found[unit])} {what} of {name[0]}, and not {wanted}"
