"""``gridloom control``."""

from typing import Annotated

from cyclopts import Parameter

_BEAT_S = 0.1
_IDLE_S = 2.0
_TRIES = 10
_TRIES_AS_HEIR = 100


def control(
    *,
    until_idle: Annotated[
        bool, Parameter(negative=(), help="End when no job is under way any more.")
    ] = False,
) -> int:
    """Run the control plane in this process; `run`, `submit` and `resume` do so by themselves."""
    import signal
    import sys

    from gridloom.base.errors import WorkFailedError
    from gridloom.cli import settings
    from gridloom.cli.home import usable
    from gridloom.cli.wiring import Plane
    from gridloom.control.leader import Leadership

    plane = Plane(usable(settings.read()))
    heir = Leadership(plane.settings.heir_lock)  # tells the one who leads that we are ready
    tries = _TRIES_AS_HEIR if until_idle and heir.acquire() else _TRIES
    while not plane.try_to_lead() and (tries := tries - 1):
        plane.clock.sleep(_BEAT_S)  # whoever looks at the lock holds it for a moment
    heir.release()
    if not plane.leads:
        if until_idle:
            return 0
        raise WorkFailedError(f"a control plane runs already over {plane.settings.home}")
    ended: list[int] = []
    told: set[str] = set()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _frame: ended.append(received))
    idle_since_s = plane.clock.monotonic_s()
    while not ended:
        plane.beat()
        for trouble in plane.troubles():
            if trouble not in told:
                told.add(trouble)
                print(trouble, file=sys.stderr, flush=True)
        now_s = plane.clock.monotonic_s()
        if not plane.idle():
            idle_since_s = now_s
        elif until_idle and now_s - idle_since_s >= _IDLE_S:
            plane.release()  # starts another one if a letter came in this moment
            return 0
        plane.clock.sleep(_BEAT_S)
    plane.end()
    return 128 + ended[0]
