"""What is said where jobs are looked at and nobody looks after them."""

from collections.abc import Iterable

from gridloom.cli.output import say
from gridloom.cli.wiring import Plane
from gridloom.model.life import HOLDING, Job, JobState

_START_S = 5.0
"""So long the start of a control plane may take."""


def warn_if_alone(plane: Plane, jobs: Iterable[Job], now_s: float) -> None:
    """Say that no control plane runs, if one should look after any of these jobs by now."""
    if any(_missed(job, now_s) for job in jobs) and not plane.led():
        say(
            "no control plane runs: what is queued waits, and the leases of the rest lapse; "
            "`gridloom resume JOB` goes on",
            stderr=True,
        )


def _missed(job: Job, now_s: float) -> bool:
    waits = job.state is JobState.QUEUED and now_s - job.submitted_s >= _START_S
    return waits or job.state in HOLDING
