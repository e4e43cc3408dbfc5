"""What time brings: bookings that begin and end, taints that lapse, allowances that are renewed."""

from gridloom.core import progress, reconcile
from gridloom.core.turn import Turn
from gridloom.model.booking import Booking
from gridloom.model.life import Job, Placement
from gridloom.model.reason import Reason, Why


def turn_pages(turn: Turn) -> None:
    """Do what the calendar says for now, and note when it must be looked at again."""
    state, index = turn.state, turn.index
    if not (state.bookings or state.marks):
        return
    for name, booking in sorted(state.bookings.items()):
        if booking.end_s <= turn.now:
            del state.bookings[name]
            continue
        index.again(booking.end_s)
        _clear(turn, booking)
    taint_s = index.policy.taint_s
    lapsed = [
        domain
        for domain, mark in sorted(state.marks.items())
        if mark.by_core and mark.since_s + taint_s <= turn.now
    ]
    for domain in lapsed:
        del state.marks[domain]
    if lapsed:
        index.reopen()
    for mark in state.marks.values():
        if mark.by_core:
            index.again(mark.since_s + taint_s)


def _clear(turn: Turn, booking: Booking) -> None:
    """Evict who may not be there when the booking begins, early enough to save its state."""
    index = turn.index
    for job in [turn.state.jobs[job_id] for job_id in index.holdings]:
        if job.spec.queue in booking.queues or not _is_on(job.attempts[-1].placement, booking):
            continue
        at_s = booking.start_s - job.spec.grace_s
        if turn.now < at_s:
            index.again(at_s)
        else:
            said = f" for {booking.sentence}" if booking.sentence else ""
            reconcile.evict(
                turn,
                job,
                Reason(
                    code=Why.BOOKED,
                    sentence=f"makes room for booking {booking.name}{said}",
                    remedy="it goes on from its checkpoint when there is room again",
                ),
            )


def runs_into_booking(turn: Turn, job: Job, places: Placement) -> bool:
    """Return whether a job that starts there now would still be there when a booking begins."""
    end_s = turn.now + progress.run_s(job, places.option, places.step_s)
    return any(
        booking.start_s < end_s and job.spec.queue not in booking.queues and _is_on(places, booking)
        for booking in turn.state.bookings.values()
    )


def _is_on(places: Placement, booking: Booking) -> bool:
    return any(task.domain in booking.nodes or task.site in booking.nodes for task in places.tasks)
