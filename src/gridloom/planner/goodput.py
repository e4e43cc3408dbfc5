"""Useful share of a job's time: failures by scale, checkpoints, and how often to write them.

Everything is a number or an array with one entry a case, in seconds unless a name says otherwise.
Failures are independent and come at a constant rate, one a device.
"""

from dataclasses import dataclass, replace

import numpy as np

from gridloom.planner.cases import Cases, Column
from gridloom.planner.costs import CostModel
from gridloom.planner.models.parameters import parameter_columns

DEVICE_MTBF_S = 16_384 * 54 * 86_400 / 419
"""Device-seconds from one unexpected interruption to the next: about 50,700 device-hours.

Llama 3 (Grattafiori et al., 2024, section 3.3.4): 419 unexpected interruptions in 54 days of
pre-training on 16,384 H100, 78 % of them for confirmed or suspected hardware issues.
"""

RESTART_S = 600.0
"""From an interruption until training steps again: MegaScale finds and removes the faulty node in
less than ten minutes on average (Jiang et al., 2024, section 4)."""

STORAGE_BYTES_PER_S = 0.125e9
"""Sustained rate of writing to shared storage, of one device with its share of the node.

Llama 3 (section 3.3.1): 2 TB/s sustained for 16,384 devices.
"""

USEFUL_MIN = 1e-6
"""A training of which a smaller share is useful never ends."""


@dataclass(frozen=True, kw_only=True)
class Resilience:
    """What a job meets and how it is prepared.

    Attributes:
        device_mtbf_s: Mean time between interruptions of one device with its share of everything.
        restart_s: From an interruption until training steps again.
        storage_bytes_per_s: Rate of writing a checkpoint, of one device.
        in_background: Training goes on once the state is copied to the host's memory, and the
            checkpoint is written behind it.
    """

    device_mtbf_s: Column = DEVICE_MTBF_S
    restart_s: Column = RESTART_S
    storage_bytes_per_s: Column = STORAGE_BYTES_PER_S
    in_background: bool = False


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What one checkpoint takes.

    Attributes:
        blocking_s: Training stands still.
        behind_s: It is written behind training: until then the one before it is the newest.
        state_bytes: All that is written.
    """

    blocking_s: Column
    behind_s: Column = 0.0
    state_bytes: Column = 0.0


@dataclass(frozen=True, kw_only=True)
class Goodput:
    """Where a job's time goes; the four shares add up to 1.

    Attributes:
        useful: Training steps that count.
        checkpoint: Training stands still for a checkpoint.
        restart: From an interruption until training steps again.
        lost: Training steps that an interruption undid.
        interval_s: Training from one checkpoint to the next.
        mtbf_s: Mean time from one interruption of the job to the next.
    """

    useful: Column
    checkpoint: Column
    restart: Column
    lost: Column
    interval_s: Column
    mtbf_s: Column


def job_mtbf_s(devices: Column, device_mtbf_s: Column = DEVICE_MTBF_S) -> Column:
    """Return the mean time from one interruption of a job on ``devices`` to the next.

    Any device stops the whole job, so that the rates add up.
    """
    return device_mtbf_s / devices


def state_bytes(cases: Cases) -> Column:
    """Return what a checkpoint holds of the whole model: weights, fp32 copy and moments."""
    plan = cases.plan
    width = plan.weight_bits / 8 + plan.master_bytes + plan.moment_bytes
    return parameter_columns(cases.model).total * width


def checkpoint(cases: Cases, resilience: Resilience) -> Checkpoint:
    """Return what one checkpoint takes; all devices write their shares at once."""
    plan = cases.plan
    devices = plan.tensor * plan.pipeline * plan.context * plan.data
    state = state_bytes(cases)
    write_s = state / devices / resilience.storage_bytes_per_s
    if not resilience.in_background:
        return Checkpoint(blocking_s=write_s, state_bytes=state)
    copy_s = state / devices / cases.machine.host_bytes_per_s
    return Checkpoint(blocking_s=copy_s, behind_s=write_s, state_bytes=state)


def young_interval_s(blocking_s: Column, mtbf_s: Column) -> Column:
    """Return the training between two checkpoints that costs least, to first order.

    ``sqrt(2 d M)`` with ``d`` the time of a checkpoint and ``M`` the mean time between failures
    (Young, 1974).
    """
    return np.sqrt(2.0 * blocking_s * mtbf_s)


def daly_interval_s(blocking_s: Column, mtbf_s: Column) -> Column:
    """Return the training between two checkpoints that costs least, to higher order.

    ``sqrt(2 d M) (1 + 1/3 sqrt(d / 2M) + 1/9 (d / 2M)) - d`` below ``d = 2 M``, and ``M`` from
    there on (Daly, 2006, equation 37).
    """
    ratio = np.minimum(blocking_s / (2.0 * mtbf_s), 1.0)
    first = young_interval_s(blocking_s, mtbf_s)
    higher = first * (1.0 + np.sqrt(ratio) / 3.0 + ratio / 9.0) - blocking_s
    return np.where(blocking_s < 2.0 * mtbf_s, higher, mtbf_s)


def goodput(
    mtbf_s: Column, written: Checkpoint, restart_s: Column, interval_s: Column | None = None
) -> Goodput:
    """Return where the time goes.

    Work that takes ``T`` without failures and checkpoints takes
    ``M exp(R / M) (exp((t + d) / M) - 1) T / t`` with checkpoints each ``t`` (Daly, 2006, equation
    20): every piece of ``t + d`` is repeated until it ends without a failure. A checkpoint that is
    written behind training puts off the moment from which it counts, so that a failure undoes
    that much more: it is added to ``R``. Restarts take ``1 - exp(-R / M)`` of the time: they begin
    at the rate of failures, and a failure may cut one short.

    Args:
        mtbf_s: Of the job.
        written: What one checkpoint takes.
        restart_s: From an interruption until training steps again.
        interval_s: Training between two checkpoints; the best one when nothing.
    """
    blocking_s = written.blocking_s
    if interval_s is None:
        # A checkpoint begins when the one before it is written, at the earliest.
        interval_s = np.maximum(daly_interval_s(blocking_s, mtbf_s), written.behind_s)
    after_s = restart_s + written.behind_s
    # Beyond e^700 a piece never ends; the useful share is 0 then, without an overflow.
    piece = np.expm1(np.minimum((interval_s + blocking_s) / mtbf_s, 700.0))
    useful = interval_s / mtbf_s * np.exp(-after_s / mtbf_s) / piece
    stands = useful * blocking_s / interval_s
    restart = -np.expm1(-restart_s / mtbf_s)
    return Goodput(
        useful=useful,
        checkpoint=stands,
        restart=restart,
        lost=1.0 - useful - stands - restart,
        interval_s=interval_s,
        mtbf_s=mtbf_s,
    )


def goodput_of(cases: Cases, resilience: Resilience) -> Goodput:
    """Return where the time of each case goes, with checkpoints as often as is best."""
    plan = cases.plan
    devices = plan.tensor * plan.pipeline * plan.context * plan.data
    mtbf_s = job_mtbf_s(devices, resilience.device_mtbf_s)
    return goodput(mtbf_s, checkpoint(cases, resilience), resilience.restart_s)


def with_interruptions(costs: CostModel, resilience: Resilience) -> CostModel:
    """Return ``costs`` with the time of a training step drawn out by what is not useful.

    A search then ranks and limits plans by the time that a training really takes. The lines of a
    training step have one more, ``interruptions``.
    """

    def step_s(cases: Cases) -> Column:
        useful = np.asarray(goodput_of(cases, resilience).useful)
        drawn_out = costs.step_s(cases) / np.maximum(useful, USEFUL_MIN)
        return np.where(useful < USEFUL_MIN, np.inf, drawn_out)

    def step_lines(cases: Cases) -> dict[str, float]:
        lines = dict(costs.step_lines(cases))
        useful = max(float(goodput_of(cases, resilience).useful), USEFUL_MIN)
        lines["interruptions"] = sum(lines.values()) * (1.0 / useful - 1.0)
        return lines

    return replace(costs, step_s=step_s, step_lines=step_lines)
