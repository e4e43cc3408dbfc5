"""How long it takes to find whom to evict when an owner wants back what it lent."""

import time

from bench.core_grid import KIND, NODE_DEVICES, Drive, Jobs, grid
from msgspec.structs import replace

from gridloom.model.action import StopTask
from gridloom.model.inventory import Inventory
from gridloom.model.policy import POLICIES
from gridloom.model.quota import Cohort, Queue

OWNER, BORROWER = "q00", "q01"


def shared(nodes: int) -> Inventory:
    """Return a grid that one queue owns and another may borrow."""
    inventory = grid(nodes, policy=POLICIES["backfill-greedy"])
    return replace(
        inventory,
        cohorts=(Cohort(name="all"),),
        queues=(
            Queue(name=OWNER, cohort="all", nominal={KIND: nodes * NODE_DEVICES}),
            Queue(name=BORROWER, cohort="all", nominal={}),
        ),
    )


def reclaim(nodes: int, wanted: int, *, sites: int = 1) -> tuple[float, int, int]:
    """Return the CPU seconds of the step in which an owner asks for nodes of a full grid.

    Returns:
        Those, how many small jobs filled the grid, and how many of them have to go.
    """
    inventory = shared(nodes)
    if sites == 1:
        whole = replace(
            inventory.sites[0], nodes=grid(8 * nodes, policy=inventory.policy).sites[0].nodes
        )
        inventory = replace(inventory, sites=(whole,))
    drive = Drive(inventory)
    small = Jobs(sizes=tuple(NODE_DEVICES * count for count in range(1, 9)), seed=nodes)
    while drive.machine.index.capacity.total:
        batch = [small.next(drive.now_s) for _ in range(32)]
        drive.step([replace(job, spec=replace(job.spec, queue=BORROWER)) for job in batch])
    running = len(drive.running)
    large = Jobs(sizes=(NODE_DEVICES * wanted,)).next(drive.now_s)
    owners = replace(large, job_id="owner", spec=replace(large.spec, queue=OWNER))
    begin_s = time.thread_time()
    actions = drive.machine.step([owners], drive.now_s + 1, drive.chance)
    spent_s = time.thread_time() - begin_s
    victims = {action.job_id for action in actions if isinstance(action, StopTask)}
    assert victims, "nobody was told to go"
    return spent_s, running, len(victims)
