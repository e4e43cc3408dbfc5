"""Handing a wish about a job to the control plane and waiting until it is fulfilled."""

from collections.abc import Callable

from gridloom.base.errors import WorkFailedError
from gridloom.cli.wiring import Plane
from gridloom.model.event import AnyEvent
from gridloom.model.life import Job

_WAIT_S = 0.2


def ask(
    plane: Plane, wish: AnyEvent, job_id: str, fulfilled: Callable[[Job], bool], wait_s: float
) -> Job:
    """Post ``wish``, see that somebody reads it, and return the job once it is ``fulfilled``.

    Raises:
        WorkFailedError: It was not fulfilled in ``wait_s`` seconds.
    """
    plane.journal.post([wish])
    deadline_s = plane.clock.monotonic_s() + wait_s
    while True:
        plane.start_background()
        waiting = plane.journal.letters()  # asked first: what follows has then all been taken in
        job = plane.state().jobs.get(job_id)
        if job is not None and not waiting and fulfilled(job):
            return job
        if plane.clock.monotonic_s() >= deadline_s:
            raise WorkFailedError(
                f"{job_id} is not there yet; it goes on: `gridloom status {job_id}` tells"
            )
        plane.clock.sleep(_WAIT_S)
