"""Accelerator-hours: what a queue may use in one period, held at each start, settled at the end.

A device-second counts in the period in which it is used. What runs holds what it is predicted to
use still, so that a job starts only if it can go on to its end, as in Slurm with
``AccountingStorageEnforce=safe`` (slurm.conf(5)); a hold that reaches into the next period counts
there with that part.
"""

import math

import msgspec
from msgspec.structs import replace

from gridloom.base.units import format_duration
from gridloom.core.shortage import Shortage
from gridloom.model.quota import Queue
from gridloom.model.reason import Why

_HOUR_S = 3600.0
_SLACK_S = 1e-3
"""Device-seconds by which a sum may be too large: less than any use, more than its rounding."""


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """What a running attempt keeps of its queue's allowance.

    Attributes:
        devices: How many it uses.
        started_s: Since when.
        predicted_s: How long it is predicted to run; 0 when unknown: it then holds what it used.
    """

    devices: int
    started_s: float
    predicted_s: float = 0.0

    def until_s(self, now: float) -> float:
        """Return when it is predicted to end; an attempt that should have ended by now: now."""
        return max(self.started_s + self.predicted_s, now)

    def used_s(self, begin_s: float, now: float) -> float:
        """Return the device-seconds that it used since ``begin_s``."""
        return self.devices * (now - max(self.started_s, begin_s))


class Account(msgspec.Struct, kw_only=True):
    """One queue's.

    Attributes:
        since_s: When the period began that ``spent_s`` is of.
        spent_s: Device-seconds in it of attempts that ended.
        holds: By attempt, those that run.
    """

    since_s: float = 0.0
    spent_s: float = 0.0
    holds: dict[str, Hold] = msgspec.field(default_factory=dict)


class Allowance(msgspec.Struct, kw_only=True):
    """The accounts of all queues that have ``accelerator_hours``.

    A queue whose ``period_s`` changes begins anew with what runs. What starts while a queue has no
    limit is not counted, even if it gets one before that ends.

    Attributes:
        accounts: By queue.
    """

    accounts: dict[str, Account] = msgspec.field(default_factory=dict)

    def hold(
        self, queue: Queue, attempt: str, *, devices: int, predicted_s: float, now: float
    ) -> None:
        """Count an attempt that starts.

        Args:
            queue: Whose.
            attempt: Its name, unique in the queue.
            devices: How many it uses.
            predicted_s: How long it is predicted to run; 0 when unknown.
            now: When it starts.
        """
        if queue.accelerator_hours:
            account = self.accounts.setdefault(queue.name, Account())
            account.holds[attempt] = Hold(devices=devices, started_s=now, predicted_s=predicted_s)

    def delay(self, queue: str, attempt: str, now: float) -> None:
        """Count an attempt that waited in its site's queue from ``now`` on."""
        holds = self.accounts[queue].holds
        if (held := holds.get(attempt)) is not None:
            holds[attempt] = replace(held, started_s=now)

    def settle(self, queue: Queue, attempt: str, now: float) -> None:
        """Count what an attempt that ends has used, and no longer what it was predicted to."""
        account = self._account(queue)
        held = account.holds.pop(attempt, None)
        if held is None:
            return
        begin_s = period_start_s(queue, now)
        if account.since_s != begin_s:
            account.since_s, account.spent_s = begin_s, 0.0
        account.spent_s += held.used_s(begin_s, now)

    def claimed_s(self, queue: Queue, now: float) -> tuple[float, float]:
        """Return the device-seconds used and held of this period, and held of the next.

        It costs the number of attempts that run in the queue.
        """
        end_s = next_period_s(queue, now)
        after_s = end_s + queue.period_s
        ahead_s, next_s = [], []
        for hold in self._account(queue).holds.values():
            until_s = hold.until_s(now)
            ahead_s.append(hold.devices * (min(until_s, end_s) - now))
            if until_s > end_s:
                next_s.append(hold.devices * (min(until_s, after_s) - end_s))
        # exactly rounded sums: they do not depend on the order, which a snapshot does not keep
        return self.used_s(queue, now) + math.fsum(ahead_s), math.fsum(next_s)

    def used_s(self, queue: Queue, now: float) -> float:
        """Return the device-seconds used of this period, by what ended and by what runs."""
        account = self._account(queue)
        begin_s = period_start_s(queue, now)
        spent_s = account.spent_s if account.since_s == begin_s else 0.0
        return spent_s + math.fsum([hold.used_s(begin_s, now) for hold in account.holds.values()])

    def shortage(
        self, queue: Queue, *, devices: int, predicted_s: float, now: float
    ) -> Shortage | None:
        """Return nothing if a job may start now, else what stands against it.

        What it would use of this period and of the next must be left there; holds and the job
        itself use less of each later one. A job of unknown duration needs something to be left.
        """
        limit_s = queue.accelerator_hours * _HOUR_S
        if not limit_s:
            return None
        end_s = next_period_s(queue, now)
        this_s = min(predicted_s, end_s - now)
        wanted_s = devices * this_s
        wanted_next_s = devices * min(predicted_s - this_s, queue.period_s)
        claimed_s, claimed_next_s = self.claimed_s(queue, now)
        raised_s = max(claimed_s + wanted_s, claimed_next_s + wanted_next_s)
        if claimed_s + wanted_s > limit_s + _SLACK_S or claimed_s > limit_s - _SLACK_S:
            ends = f"before the period ends in {format_duration(end_s - now)}"
            needs = f"the job needs {_hours(wanted_s)}" if predicted_s else "none is left"
            sentence = f"{self._standing(queue, claimed_s, now)}; {needs} {ends}"
            return _short(queue, sentence, limit_s - claimed_s, wanted_s, raised_s)
        if claimed_next_s + wanted_next_s > limit_s + _SLACK_S:
            kept = f"; what runs keeps {_hours(claimed_next_s)}" if claimed_next_s else ""
            sentence = (
                f"the job needs {_hours(wanted_next_s)} of the {_hours(limit_s)} accelerator-hours"
                f" that queue `{queue.name}` has in the next period{kept}"
            )
            return _short(queue, sentence, limit_s - claimed_next_s, wanted_next_s, raised_s)
        return None

    def _account(self, queue: Queue) -> Account:
        return self.accounts.get(queue.name) or Account()

    def _standing(self, queue: Queue, claimed_s: float, now: float) -> str:
        """Return what the queue has used, and what it holds beyond that, in words."""
        used_s = self.used_s(queue, now)
        kept_s = claimed_s - used_s
        kept = f", and what runs keeps {_hours(kept_s)} more" if kept_s > _SLACK_S else ""
        hours = f"{_hours(used_s)} of its {_hours(queue.accelerator_hours * _HOUR_S)}"
        return f"queue `{queue.name}` has used {hours} accelerator-hours{kept}"


def period_start_s(queue: Queue, now: float) -> float:
    """Return when the queue's period that holds ``now`` began."""
    return _period(queue, now) * queue.period_s


def next_period_s(queue: Queue, now: float) -> float:
    """Return when the queue's next period begins, which is later than ``now``."""
    return (_period(queue, now) + 1.0) * queue.period_s


def _period(queue: Queue, now: float) -> float:
    """Return the number of the period that holds ``now``; its rounded first moment is in it."""
    period = now // queue.period_s
    return period + 1.0 if (period + 1.0) * queue.period_s <= now else period


def _hours(device_s: float) -> str:
    """Return hours with one decimal where they are not whole; never 0 for more than that."""
    hours = device_s / _HOUR_S
    return f"{hours:.0f}" if hours == round(hours) else f"{max(hours, 0.1):.1f}"


def _short(
    queue: Queue, sentence: str, left_s: float, wanted_s: float, raised_s: float
) -> Shortage:
    """Return the refusal; time helps unless the job alone is too much for the period."""
    alone = wanted_s > queue.accelerator_hours * _HOUR_S + _SLACK_S
    hours = math.ceil((raised_s - _SLACK_S) / _HOUR_S)
    remedy = f"raise `accelerator_hours` of queue `{queue.name}` to {hours}, or ask for less"
    return Shortage(
        code=Why.ACCELERATOR_HOURS,
        limiting=f"queue `{queue.name}`",
        sentence=sentence,
        wanted=math.ceil((wanted_s - _SLACK_S) / _HOUR_S),
        found=max(0, math.floor((left_s + _SLACK_S) / _HOUR_S)),
        remedy=remedy if alone else "",
    )
