"""The course of a story in words: what the scheduler was told, and what it wanted done."""

from collections.abc import Iterator

from gridloom.model.action import (
    AnyAction,
    CloseJob,
    OpenRendezvous,
    RenewLease,
    RestartSite,
    StartAttempt,
    StopTask,
)
from gridloom.model.event import (
    AnyEvent,
    BookingDropped,
    BookingMade,
    CancelRequested,
    CheckpointSaved,
    EvictRequested,
    InventoryChanged,
    JobSubmitted,
    NodeMarked,
    ResumeRequested,
    SignalChanged,
    StepReported,
    StopRequested,
    TaskArrived,
    TaskEnded,
    TaskReady,
    TaskRefused,
    TaskRunning,
    TaskWaiting,
)
from gridloom.model.life import Placement
from gridloom.ports.journal import Record
from gridloom.sim.story import ORIGIN_S

_NODES_MAX = 6
_QUIET = (TaskWaiting, TaskArrived, TaskRunning, TaskReady, StepReported, RenewLease)
"""Signs of life, which say nothing that the rest does not."""

_WISHES: dict[type, str] = {
    StopRequested: "its user stops it",
    CancelRequested: "its user cancels it",
    ResumeRequested: "its user resumes it",
    EvictRequested: "an operator evicts it",
}


def told(record: Record) -> Iterator[tuple[float, str, str]]:
    """Yield the time, the sign and the sentence of everything in one step worth telling.

    The sign is ``<`` for a fact and ``>`` for an intention; times are the story's.
    """
    at_s = record.now_s - ORIGIN_S
    for event in record.events:
        if not isinstance(event, _QUIET):
            yield at_s, "<", _fact(event)
    for action in record.actions:
        if not isinstance(action, _QUIET):
            yield at_s, ">", _intention(action)


def _fact(event: AnyEvent) -> str:
    match event:
        case JobSubmitted():
            option = event.spec.options[0]
            wants = f"{option.plan.world_size} x {option.rank_devices} {option.accelerator}"
            return f"{event.job_id} is handed in: {wants}, priority {event.spec.priority}"
        case StopRequested() | CancelRequested() | ResumeRequested() | EvictRequested():
            return f"{event.job_id}: {_WISHES[type(event)]}"
        case TaskEnded():
            return f"{event.job_id} on {event.domain} ended: {event.outcome.sentence}"
        case TaskRefused():
            return f"{event.job_id} on {event.domain} is refused: {event.reason.sentence}"
        case CheckpointSaved():
            return f"{event.job_id} has a checkpoint of training step {event.step}"
        case TaskWaiting() | TaskArrived() | TaskRunning() | TaskReady() | StepReported():
            return f"{event.job_id} on {event.domain} lives"
        case _:
            return _grid_fact(event)


def _grid_fact(
    event: InventoryChanged | NodeMarked | BookingMade | BookingDropped | SignalChanged,
) -> str:
    match event:
        case InventoryChanged():
            count = sum(node.count for site in event.inventory.sites for node in site.nodes)
            return f"the grid has {count} devices"
        case NodeMarked():
            said = f": {event.sentence}" if event.sentence else ""
            return f"{event.domain} is marked {event.mark or 'well'}{said}"
        case BookingMade():
            booking = event.booking
            from_s, to_s = booking.start_s - ORIGIN_S, booking.end_s - ORIGIN_S
            nodes = ", ".join(booking.nodes[:_NODES_MAX])
            return f"booking {booking.name} of {nodes} from {from_s:g} to {to_s:g}"
        case BookingDropped():
            return f"booking {event.name} is off"
        case SignalChanged():
            price, grams = event.price_per_accelerator_hour, event.carbon_g_per_kwh
            said = f"price {price:g}" if price is not None else f"carbon {grams or 0:g} g/kWh"
            return f"{event.site} has {said}"


def _intention(action: AnyAction) -> str:
    match action:
        case StartAttempt():
            where = _where(action.placement)
            return f"start attempt {action.attempt} of {action.job_id} on {where}"
        case OpenRendezvous():
            return f"tell the tasks of {action.job_id} where each is"
        case RestartSite():
            return f"start site {action.site} of {action.job_id} again in attempt {action.attempt}"
        case StopTask():
            grace = f"with {action.grace_s:g} s of grace" if action.grace_s > 0 else "at once"
            return f"stop {action.job_id} on {action.domain} {grace}: {action.reason.sentence}"
        case CloseJob():
            return f"{action.job_id} is over: {action.state.value}"
        case RenewLease():
            return f"{action.job_id} on {action.domain} may run on"


def _where(placement: Placement) -> str:
    nodes = [f"{task.domain} ({len(task.devices)})" for task in placement.tasks]
    more = f" and {len(nodes) - _NODES_MAX} more" if len(nodes) > _NODES_MAX else ""
    return ", ".join(nodes[:_NODES_MAX]) + more
