"""Handing wishes to the control plane and waiting until they are fulfilled."""

from collections.abc import Callable, Sequence

from gridloom.base.errors import WorkFailedError
from gridloom.cli.wiring import Plane
from gridloom.core.state import State
from gridloom.model.event import AnyEvent
from gridloom.model.life import OVER, Job

_WAIT_S = 0.2


def ask(
    plane: Plane,
    wishes: Sequence[AnyEvent],
    fulfilled: Callable[[State], bool],
    *,
    wait_s: float,
    late: str,
) -> State:
    """Post ``wishes``, see that somebody reads them, and return the state that fulfils them.

    Args:
        plane: Where they are handed in.
        wishes: What is wanted.
        fulfilled: Whether a state in which they were taken in is as wanted.
        wait_s: How long to wait for it.
        late: What is to be said when that was not enough.

    Raises:
        WorkFailedError: They were not fulfilled in ``wait_s`` seconds.
    """
    plane.journal.post(wishes)
    deadline_s = plane.clock.monotonic_s() + wait_s
    while True:
        plane.start_background()
        waiting = plane.journal.letters()  # asked first: what follows has then all been taken in
        state = plane.state()
        if not waiting and fulfilled(state):
            return state
        if plane.clock.monotonic_s() >= deadline_s:
            raise WorkFailedError(late)
        plane.clock.sleep(_WAIT_S)


def ask_until_over(
    plane: Plane, jobs: Sequence[Job], wish: Callable[[str], AnyEvent], wait_s: float
) -> list[Job]:
    """Post a wish for each of the jobs, and return them once they are all over.

    Raises:
        WorkFailedError: They were not in ``wait_s`` seconds.
    """
    job_ids = [job.job_id for job in jobs]

    def over(state: State) -> bool:
        found = [state.jobs.get(job_id) for job_id in job_ids]
        return all(job is not None and job.state in OVER for job in found)

    one = job_ids[0] if len(job_ids) == 1 else f"one of {job_ids[0]} to {job_ids[-1]}"
    late = f"{one} is not there yet; it goes on: `gridloom status {job_ids[0]}` tells"
    state = ask(plane, [wish(job_id) for job_id in job_ids], over, wait_s=wait_s, late=late)
    return [state.jobs[job_id] for job_id in job_ids]
