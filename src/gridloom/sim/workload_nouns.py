"""A stream of jobs for the simulator: what arrives, what of a log was left out, and why."""

from collections import Counter
from typing import Literal

import msgspec
from msgspec.structs import replace

from gridloom.model.spec import JobSpec

End = Literal["", "completed", "failed", "cancelled"]
"""How a job ended in a log; empty when the log does not say."""


class Arrival(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One job, as the simulator hands it in.

    Attributes:
        job_id: Unique in the workload.
        submit_s: When it is handed in, in seconds from the workload's own zero.
        spec: What the scheduler is told.
        work_s: What it is not told: true seconds of running on the first option, at its speed.
        state: How it ended in the log.
        fail_after_s: Seconds of running after which its program fails; 0 for never.
        row: Where it stands in the log, from 1: a line, or an item of a document.
    """

    job_id: str
    submit_s: float
    spec: JobSpec
    work_s: float
    state: End = ""
    fail_after_s: float = 0.0
    row: int = 0


class Dropped(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One row of a log that no job was made of.

    Attributes:
        row: Where it stands in the log, from 1: a line, or an item of a document.
        why: Code of the cause: ``field_count``, ``malformed``, ``missing_field``,
            ``not_a_number``, ``not_whole``, ``not_a_time``, ``negative_time``,
            ``missing_duration``, ``zero_duration``, ``no_devices``, ``duplicate``, ``never_ran``,
            ``unfinished``, ``before_log``, ``step``, ``requeued``, ``partial``, ``not_a_job``,
            ``other_workload``, ``unknown_application``, ``out_of_range``, ``larger_than_grid``.
        sentence: What was found, for a person.
        field: The column or field; empty for the whole row.
    """

    row: int
    why: str
    sentence: str
    field: str = ""


class Workload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stream of jobs.

    Attributes:
        arrivals: In order of submission; at one time as they stand in the log.
        dropped: Rows that no job was made of, in the log's order.
        notes: What a reader of results should know of how the log was read, a sentence each.
        format: Name of the source's format.
        origin_s: The workload's zero in seconds since the epoch; 0 when the log has none.
        devices: Of the machine that the log was written on; 0 when the log does not say.
    """

    arrivals: tuple[Arrival, ...]
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()
    format: str = ""
    origin_s: float = 0.0
    devices: int = 0

    def dropped_by_reason(self) -> dict[str, int]:
        """Return how many rows were dropped by each code, most frequent first, then by code."""
        counts = Counter(row.why for row in self.dropped)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a log leaves open.

    Attributes:
        accelerators: Kinds that a job may run on where the log names none, best first.
        named: Kinds that the log names are taken over; else all jobs may run on ``accelerators``.
        gang: Where the ranks of a job of two or more devices sit: anywhere (``any``), or blocks
            of up to ``node_devices`` of them in one node each (``packed``).
        node_devices: Devices of one node, for ``packed``.
        elastic: Jobs may also run on other numbers of devices, where the log tells how fast.
        twins: Rows equal to an earlier one in all but the id are jobs of their own (``keep``), or
            are dropped (``drop``).
        host: Jobs need the cores and the memory of the host that the log states, besides devices.
        priorities: Priority by the name of a class of service in the log; others have 0.
        part: Which of several workloads in one file, as ``philly/1``; empty for the first.
        profiles: Text of the measured step times that belong to the log, where it has any.
        cluster: Kind of cluster in ``profiles``.
    """

    accelerators: tuple[str, ...] = ("gpu",)
    named: bool = True
    gang: Literal["any", "packed"] = "any"
    node_devices: int = 8
    elastic: bool = False
    twins: Literal["keep", "drop"] = "keep"
    host: bool = False
    priorities: dict[str, int] = msgspec.field(default_factory=dict)
    part: str = ""
    profiles: str = ""
    cluster: str = "aws"


def larger_than(workload: Workload, devices: int) -> Workload:
    """Return the workload without the jobs that need more than ``devices`` in every shape.

    They are among the dropped then, as ``larger_than_grid``; jobs that had to wait for one of them
    need not any more.
    """
    kept: list[Arrival] = []
    dropped = list(workload.dropped)
    gone: dict[str, None] = {}
    for arrival in workload.arrivals:
        least = min(option.devices for option in arrival.spec.options)
        if least <= devices:
            kept.append(arrival)
            continue
        gone[arrival.job_id] = None
        dropped.append(
            Dropped(
                row=arrival.row,
                why="larger_than_grid",
                sentence=f"{arrival.job_id} needs {least} devices, the grid has {devices}",
            )
        )
    if not gone:
        return workload
    kept = [_without(arrival, gone) for arrival in kept]
    dropped.sort(key=lambda row: row.row)  # stable: what one row was dropped for stays in order
    return replace(workload, arrivals=tuple(kept), dropped=tuple(dropped))


def _without(arrival: Arrival, gone: dict[str, None]) -> Arrival:
    """Return a job that waits for none of the ``gone``."""
    after = tuple(other for other in arrival.spec.after if other.job_id not in gone)
    if len(after) == len(arrival.spec.after):
        return arrival
    return replace(arrival, spec=replace(arrival.spec, after=after))
