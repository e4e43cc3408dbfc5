"""Tasks at sites that choose their nodes themselves: they wait there, come up, and are to meet.

What such a site was asked for may wait in its own queue; the places that the core chose are held
meanwhile. Where a task has come up only its supervisor knows, so its ranks start once those that
start together have all said where they are.
"""

from gridloom.core import reconcile
from gridloom.core.state import party
from gridloom.core.turn import Turn
from gridloom.model.action import OpenRendezvous
from gridloom.model.event import TaskArrived, TaskWaiting
from gridloom.model.life import Arrival, Job, Task, TaskState


def heard(turn: Turn, job: Job, task: Task, event: TaskWaiting | TaskArrived) -> None:
    """Take in that a live task waits in its site's own queue, or has come up; renew its lease.

    When it is the last to come up of those that start together, they are to be told of each other.
    A task deemed dead is not revived, and what has come up does not wait, whatever its site says.
    """
    if reconcile.is_dead(turn, task) or task.state is not TaskState.STARTING:
        return
    reconcile.keep(turn, job, task)
    if isinstance(event, TaskArrived):
        _arrived(turn, job, task, event.arrival)
    elif task.arrival is None:
        task.waits, task.expected_s = event.sentence, event.expected_s


def _arrived(turn: Turn, job: Job, task: Task, arrival: Arrival) -> None:
    news = task.arrival != arrival
    if task.waits:
        reconcile.unqueue(turn, job, task)
    task.arrival = arrival
    attempt = job.attempts[-1]
    site = task.placement.site if task.life > 1 else ""
    if (
        news
        and not attempt.stop_sent
        and all(one.arrival is not None for one in party(attempt, task.life, site))
    ):
        turn.actions.append(
            OpenRendezvous(
                job_id=job.job_id,
                attempt=attempt.number,
                epoch=attempt.epoch,
                site=site,
                life=task.life,
            )
        )
