"""What the supervisor of one task tells the control plane: numbered lines of JSON."""

import msgspec

from gridloom.model.life import Arrival, Outcome


class Report(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """One numbered line of a supervisor.

    Attributes:
        seq: From 1, without gaps.
        epoch: Of the attempt.
        now_s: When, in seconds since the epoch, by the supervisor's clock.
    """

    seq: int
    epoch: int
    now_s: float


class Alive(Report, frozen=True, kw_only=True, tag="alive"):
    """The processes run: the first report of a task, then its heartbeat."""


class Arrived(Report, frozen=True, kw_only=True, tag="arrived"):
    """The supervisor is on its node and waits for the rendezvous: the first report, then repeated.

    Attributes:
        arrival: Where that is.
    """

    arrival: Arrival


class StepSeen(Report, frozen=True, kw_only=True, tag="step"):
    """A rank reported this training step."""

    step: int


class CheckpointSeen(Report, frozen=True, kw_only=True, tag="checkpoint"):
    """A rank reported a complete checkpoint."""

    step: int


class ReadySeen(Report, frozen=True, kw_only=True, tag="ready"):
    """A rank is set up and trains from now on.

    Attributes:
        resumed_step: Training step of the checkpoint it continues from; 0 for a fresh start.
        notes: What a person should know of where it starts.
        independent_sites: Whether the sites go on without a lost one, and let it in again.
    """

    resumed_step: int
    notes: tuple[str, ...] = ()
    independent_sites: bool = False


class Ended(Report, frozen=True, kw_only=True, tag="ended"):
    """No process of the task is left."""

    outcome: Outcome


AnyReport = Arrived | Alive | ReadySeen | StepSeen | CheckpointSeen | Ended

REPORTS: msgspec.json.Decoder[AnyReport] = msgspec.json.Decoder(AnyReport)
"""Reads one report; raises ``msgspec.MsgspecError`` for what is none."""
