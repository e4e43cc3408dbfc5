"""Why a job waits at Slurm: whether it will start by itself, and what helps (pure).

The codes are those of Slurm's "Job Reasons", from 20.11 to 25.11. Limits have one code for each
thing they count (``QOSMaxGRESPerUser``): how such a code is built says what the limit is.
"""

import re
from enum import StrEnum

import msgspec


class WillStart(StrEnum):
    """Whether a job that waits will start."""

    YES = "yes"
    """By itself, when its turn comes."""
    IF_HELPED = "if_helped"
    """When somebody does something: its user, or who runs the cluster."""
    NEVER = "never"
    """Not as it was asked for."""


class Waiting(msgspec.Struct, frozen=True):
    """Why a job waits.

    Attributes:
        will_start: Whether it will start.
        sentence: Why it waits, for a person.
        remedy: What would help; empty when only time does.
    """

    will_start: WillStart
    sentence: str
    remedy: str = ""


_YES, _IF_HELPED, _NEVER = WillStart.YES, WillStart.IF_HELPED, WillStart.NEVER
_ASK = "ask who runs the cluster"

_REASONS = {
    "": Waiting(_YES, "Slurm has not looked at the job yet"),
    "None": Waiting(_YES, "Slurm has not looked at the job yet"),
    "Resources": Waiting(_YES, "it is next, and waits until enough nodes are free"),
    "Priority": Waiting(_YES, "jobs of higher priority go first"),
    "Dependency": Waiting(_YES, "it waits for another job"),
    "DependencyNeverSatisfied": Waiting(
        _NEVER, "the job it waits for did not end as was asked", "submit it without the dependency"
    ),
    "BeginTime": Waiting(_YES, "its time has not come yet; a requeued job waits a while, too"),
    "Prolog": Waiting(_YES, "the site's prolog still runs on its nodes"),
    "Cleaning": Waiting(_YES, "what is left of its last run is being cleared away"),
    "SchedDefer": Waiting(_YES, "the site starts jobs only in its next scheduling round"),
    "JobArrayTaskLimit": Waiting(_YES, "as many tasks of its array run as it allows at a time"),
    "Licenses": Waiting(_YES, "all licences that it needs are in use"),
    "Reservation": Waiting(_YES, "its reservation has not begun, or is full"),
    "FedJobLock": Waiting(_YES, "another cluster of the federation is placing it"),
    "BurstBufferResources": Waiting(_YES, "too little of the burst buffer is free"),
    "BurstBufferStageIn": Waiting(_YES, "its data are being copied into the burst buffer"),
    "PowerNotAvail": Waiting(_YES, "too little electrical power is left for it"),
    "PowerReserved": Waiting(_YES, "the electrical power is kept for a reservation"),
    "ReqNodeNotAvail": Waiting(
        _IF_HELPED,
        "nodes that it needs are down, drained or reserved",
        "ask for other nodes, or for a time limit that ends before the maintenance",
    ),
    "NodeDown": Waiting(_IF_HELPED, "a node that it needs is down", "ask for other nodes"),
    "FrontEndDown": Waiting(_IF_HELPED, "no front end is up", _ASK),
    "PartitionDown": Waiting(
        _IF_HELPED, "its partition is closed", "name another partition, or wait until it opens"
    ),
    "PartitionInactive": Waiting(
        _IF_HELPED, "its partition is switched off", "name another partition"
    ),
    "PartitionNodeLimit": Waiting(
        _NEVER,
        "it asks for more or fewer nodes than its partition gives, or than are in service there",
        "ask for another number of nodes, or name another partition",
    ),
    "PartitionTimeLimit": Waiting(
        _NEVER,
        "its time limit is beyond that of its partition",
        "ask for less time, or name another partition",
    ),
    "PartitionConfig": Waiting(
        _NEVER, "its partition does not allow what it asks for", "name another partition"
    ),
    "JobHeldUser": Waiting(_IF_HELPED, "its user holds it", "scontrol release"),
    "JobHeldAdmin": Waiting(_IF_HELPED, "who runs the cluster holds it", _ASK),
    "JobHoldMaxRequeue": Waiting(
        _IF_HELPED, "it was requeued too often and is held", "scontrol release"
    ),
    "JobLaunchFailure": Waiting(
        _IF_HELPED,
        "it could not be started on its nodes and is held",
        f"scontrol release; if it happens again, {_ASK}",
    ),
    "SystemFailure": Waiting(_IF_HELPED, "Slurm itself failed", _ASK),
    "BurstBufferOperation": Waiting(
        _IF_HELPED, "a step of its burst buffer failed", "correct the burst buffer's lines"
    ),
    "InvalidAccount": Waiting(_NEVER, "its account does not exist there", "name your account"),
    "InvalidQOS": Waiting(_NEVER, "its quality of service does not exist there", "name another"),
    "AccountNotAllowed": Waiting(
        _NEVER, "its partition is closed to its account", "name another account or partition"
    ),
    "QOSNotAllowed": Waiting(
        _NEVER,
        "its quality of service is not allowed for its account or partition",
        "name another quality of service or partition",
    ),
    "QOSUsageThreshold": Waiting(
        _IF_HELPED,
        "its account has used more than its quality of service lets it",
        "name another quality of service, or wait until past usage counts less",
    ),
    "AccountingPolicy": Waiting(_IF_HELPED, "a limit of its account is reached", _ASK),
    "ReservationDeleted": Waiting(
        _IF_HELPED, "its reservation was deleted and it is held", "submit it without reservation"
    ),
    "ReservationInvalid": Waiting(
        _NEVER, "its reservation is not one that it may use", "name another reservation, or none"
    ),
    "BadConstraints": Waiting(
        _NEVER,
        "no node, or too few, have the features and devices that it asks for",
        "ask for other features, devices or nodes",
    ),
    "Constraints": Waiting(
        _NEVER,
        "no nodes in service meet what it asks for now",
        "ask for other features, devices or nodes",
    ),
    "MaxMemPerLimit": Waiting(
        _NEVER, "it asks for more memory than its partition allows", "ask for less memory"
    ),
    "InactiveLimit": Waiting(_NEVER, "it did nothing for too long", "submit it again"),
    "DeadLine": Waiting(_NEVER, "its deadline cannot be met", "set a later deadline"),
    "QOSResourceLimit": Waiting(_YES, "a limit of its quality of service is reached"),
    "QOSJobLimit": Waiting(_YES, "as many jobs run as its quality of service lets"),
    "QOSTimeLimit": Waiting(_NEVER, "its quality of service allows less time", "ask for less time"),
    "AssociationResourceLimit": Waiting(_YES, "a limit of its account is reached"),
    "AssociationJobLimit": Waiting(_YES, "as many jobs run as its account may have"),
    "AssociationTimeLimit": Waiting(_NEVER, "its account allows less time", "ask for less time"),
}

_LIMIT = re.compile(r"(?P<of>QOS|Assoc|)(?P<kind>Grp|Max|Min)(?P<what>\w+)")
_OF = {"QOS": "its quality of service", "Assoc": "its account or user", "": "its account"}
_THINGS = (
    ("cpu", "processor cores"),
    ("mem", "memory"),
    ("gres", "devices"),
    ("node", "nodes"),
    ("lic", "licences"),
    ("bb", "burst buffer"),
    ("billing", "billing units"),
    ("energy", "energy"),
    ("submit", "submitted jobs"),
    ("job", "running jobs"),
    ("wall", "time"),
)


def reason_code(said: str) -> str:
    """Return the code of a reason that is told as a sentence, or with nodes behind the code."""
    said = said.strip().strip("()").strip()
    # scontrol writes the spaces of a sentence as "_"
    sentence = said.replace("_", " ")
    if sentence.startswith("Nodes required for job are DOWN"):
        return "Resources"
    if sentence.startswith("launch failed requeued held"):
        return "JobLaunchFailure"
    return re.split(r"[,:(\s]", said, maxsplit=1)[0]


def waiting(reason: str) -> Waiting:
    """Return what it means that a job waits for ``reason``, Slurm's code or what squeue prints.

    A code that nobody knows is told as it is, and believed to pass.
    """
    code = reason_code(reason)
    if code in _REASONS:
        return _REASONS[code]
    if match := _LIMIT.fullmatch(code):
        return _limit(_OF[match["of"]], match["kind"], match["what"])
    return Waiting(_YES, f"Slurm says {reason.strip()}")


def _limit(whose: str, kind: str, what: str) -> Waiting:
    said = what.lower()
    per_job = "perjob" in said or "pernode" in said
    # "PerNode" and "PerJob" say for whom a limit is, not what it counts
    said = re.sub(r"per(job|node|user|account)", "", said)
    thing = next((name for key, name in _THINGS if key in said), "resources")
    if kind == "Min":
        return Waiting(
            _NEVER, f"{whose} wants a job to ask for more {thing}", f"ask for more {thing}"
        )
    if per_job and kind == "Max":
        return Waiting(
            _NEVER,
            f"{whose} does not let one job have so much: {thing}",
            f"ask for less, or name another quality of service: {thing}",
        )
    if kind == "Grp" and "runmin" not in said and ("min" in said or "wall" in said):
        return Waiting(
            _IF_HELPED,
            f"{whose} has used up what it was given: {thing} over time",
            f"{_ASK} for more, or wait until past usage counts less",
        )
    together = "all jobs together" if kind == "Grp" else "one user or account"
    return Waiting(
        _YES,
        f"{whose} allows {together} no more at a time: {thing}",
        "other jobs must end; if it alone is beyond the limit, ask for less",
    )
