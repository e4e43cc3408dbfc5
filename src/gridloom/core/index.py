"""What follows from the state, kept beside it so that a step need not look at everything.

Nothing here is written down: built anew from the state, it is the same and decides the same.
"""

import bisect
import heapq
import math
from typing import Final

import numpy as np

from gridloom.base.errors import BrokenError
from gridloom.core import order, progress
from gridloom.core.bucket import Bucket, Shape
from gridloom.core.capacity import Capacity, Holding
from gridloom.core.dependencies import unmet_dependencies
from gridloom.core.gang import Spot, predicted_step_s
from gridloom.core.ledger import Ledger
from gridloom.core.profile import Kept
from gridloom.core.rank import Ranker
from gridloom.core.shortage import Shortage
from gridloom.core.state import State
from gridloom.core.topology import Tree
from gridloom.model.inventory import Inventory
from gridloom.model.life import HOLDING, JOB_TRANSITIONS, OVER, Job, JobState, Placement
from gridloom.model.policy import Policy
from gridloom.model.spec import JobSpec

_MOMENT_S = 1e-3
"""After a time at which something may still be done, how long until it may not."""

_NOTHING = Inventory(sites=())

# Python 3.11 takes 0.2 us to look a member of an enum up, and these are on everybody's way
_QUEUED: Final = JobState.QUEUED
_STARTING: Final = JobState.STARTING
_STOPPING: Final = JobState.STOPPING


class Index:
    """Everything that is derived from the state.

    Attributes:
        state: What it is derived from.
        policy: By which jobs are placed.
        tree: The grid as arrays.
        capacity: What is free.
        ledger: What the queues use.
        ranker: What places are worth.
        holdings: What each job holds, by number, in the order of starting.
        queues: By name.
        reclaims: Whether any of them owns devices that it may want back.
        strict: Queues in which a job that cannot start holds up those behind it.
        buckets: Waiting jobs by queue and shape.
        suspects: For each unit whether its node has failed the last job there.
        any_suspects: Whether any has.
        ends: When those that hold devices are predicted to end, in order; without the unknown.
        running_at: How many jobs hold devices, by priority.
        promises: What promises are made from, where they are kept.
        changes: How often who holds what has changed, or who was told to leave it.
        charges: How often the use of a quota has changed.
        looks: How often something had to be looked at again.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.changes = self.looks = self.charges = 0
        self._due: list[tuple[float, str]] = []
        self._again_at: set[float] = set(state.again)
        self.rebuild()

    def rebuild(self) -> None:
        """Derive everything anew; whether a cycle is due stays as it was."""
        dirty = self.dirty
        inventory = self.state.inventory or _NOTHING
        self.policy: Policy = inventory.policy
        self.tree = Tree(inventory)
        self.capacity = Capacity(self.tree)
        self.ledger = Ledger(inventory.queues, inventory.cohorts, self.tree.totals)
        self._short: dict[tuple[str, str, int], Shortage | None] = {}
        self._all_short: dict[tuple[str, tuple[tuple[str, int], ...]], bool] = {}
        self._shares: dict[str, tuple[float, ...]] = {}
        self._rights: dict[tuple[str, str], int] = {}
        self.reclaims = any(queue.nominal for queue in inventory.queues)
        self.queues = {queue.name: queue for queue in inventory.queues}
        self.strict = frozenset(q.name for q in inventory.queues if q.order == "strict")
        self.leases_s = {site.name: site.lease_s for site in inventory.sites}
        self._closed = any(site.queues for site in inventory.sites)
        self.reprice()
        self.holdings: dict[str, Holding] = {}
        self.running_at: dict[int, int] = {}
        self.promises = Kept()
        self.ends: list[tuple[float, str]] = []
        self._end_of: dict[str, float] = {}
        self.buckets: dict[tuple[object, ...], Bucket] = {}
        self._shapes: dict[tuple[object, ...], Shape] = {}
        self._bucket_of: dict[str, Bucket] = {}
        self._followers: dict[str, list[str]] = {}
        self._charged: dict[str, tuple[str, int]] = {}
        self.reopen()
        self.suspect()
        jobs = self.state.jobs.values()
        for job in sorted(
            (job for job in jobs if job.state in HOLDING), key=lambda job: job.attempts[-1].epoch
        ):
            self.occupy(job)
        for job in order.queued(jobs):
            self.enqueue(job)
        for job in order.in_order(job for job in jobs if job.reservation or job.spares):
            self.keep(job)
        self.dirty = dirty

    @property
    def dirty(self) -> bool:
        """Whether a cycle could change anything."""
        return not self.state.settled

    @dirty.setter
    def dirty(self, dirty: bool) -> None:
        self.state.settled = not dirty

    def reprice(self) -> None:
        """Take the signals of the moment."""
        self.ranker = Ranker(self.tree, self.policy.weights, self.state.signals)
        self.dirty = True

    def reopen(self) -> None:
        """Let new work use exactly the nodes that bear no mark."""
        marks = self.state.marks
        self.capacity.open(
            [
                domain not in marks and self.tree.sites[site].name not in marks
                for domain, site in zip(
                    self.tree.domains, self.tree.node_site.tolist(), strict=True
                )
            ]
        )
        self.dirty = True

    def suspect(self) -> None:
        """Take in which nodes have failed jobs lately: they are used where others would do not."""
        self.suspects = self.tree.per_unit(
            [domain in self.state.failures for domain in self.tree.domains]
        )
        self.any_suspects = bool(self.suspects.any())
        self.dirty = True

    def shape(self, spec: JobSpec) -> Shape:
        """Return the shape of a job, the same for all that ask alike."""
        key = (
            spec.options,
            spec.sites,
            spec.min_sites,
            spec.max_sites,
            spec.queue if self._closed else "",
            spec.nodes,
            tuple(sorted(spec.labels.items())) if spec.labels else (),
            spec.ranks_per_node_max,
            spec.data_sites,
            spec.data_required,
        )
        if key not in self._shapes:
            self._shapes[key] = Shape(spec, self.tree)
        return self._shapes[key]

    def move(self, job: Job, to: JobState) -> None:
        """Let ``job`` enter the state ``to``: the only place where a job's state changes.

        Raises:
            BrokenError: The table of transitions has no such step.
        """
        if to not in JOB_TRANSITIONS[job.state]:
            raise BrokenError(f"job {job.job_id} cannot go from {job.state} to {to}")
        before, job.state = job.state, to
        if to is _STOPPING:
            self.changes += 1
        if before is _QUEUED:
            self._dequeue(job)
        if before in HOLDING and to not in HOLDING:
            self._vacate(job)
        if to is _QUEUED:
            self.enqueue(job)
        if self._followers and (to in OVER or to is _STARTING):
            for follower in self._followers.pop(job.job_id, ()):
                if (waiting := self.state.jobs.get(follower)) is not None:
                    self.requeue(waiting)

    def enqueue(self, job: Job) -> None:
        """Let a queued job wait for devices, unless it must wait for something else first."""
        if progress.is_limited(job):
            self.watch(job)
        if job.not_before_s > self.state.now_s:
            self.watch(job, job.not_before_s)
            return
        if job.spec.after and (unmet := unmet_dependencies(self.state, job)):
            for other in unmet:
                self._followers.setdefault(other, []).append(job.job_id)
            return
        shape = self.shape(job.spec)
        key = job.spec.queue, id(shape)
        if (bucket := self.buckets.get(key)) is None:
            bucket = self.buckets[key] = Bucket(job.spec.queue, shape)
        bucket.push(order.key(job, self.policy, self.state.now_s), job)
        if self.policy.order == "deadline" and order.keeps_deadline(job, self.state.now_s):
            self.again(job.spec.deadline_s - order.latest_start_margin_s(job) + _MOMENT_S)
        self._bucket_of[job.job_id] = bucket
        self.dirty = True

    def followers(self, job: Job) -> list[Job]:
        """Return the queued jobs that wait for this one to start or end."""
        names = self._followers.get(job.job_id, ())
        return [self.state.jobs[name] for name in names if name in self.state.jobs]

    def unmeet(self, job: Job) -> None:
        """Let jobs that were to start after this one's end wait again, as it goes on."""
        for waiting in order.queued(self.state.jobs.values()):
            if any(need.job_id == job.job_id for need in waiting.spec.after):
                self._dequeue(waiting)
                self.enqueue(waiting)

    def reorder(self) -> None:
        """Put jobs behind that cannot keep their deadlines any more."""
        if self.policy.order != "deadline":
            return
        for job_id, bucket in self._bucket_of.items():
            job = self.state.jobs[job_id]
            bucket.drop(job)
            bucket.push(order.key(job, self.policy, self.state.now_s), job)

    def requeue(self, job: Job) -> None:
        """Look again whether a queued job waits for devices only."""
        if job.state is _QUEUED and job.job_id not in self._bucket_of:
            self.enqueue(job)

    def bucket(self, job: Job) -> Bucket | None:
        """Return where a job waits for devices; nothing if it does not."""
        return self._bucket_of.get(job.job_id)

    def place(self, spot: Spot) -> tuple[Placement, Holding]:
        """Return a placement at a spot, with the level that it reaches and its step time."""
        reached = self.ranker.placement_level(spot.site, spot.gang), predicted_step_s(spot)
        return self.capacity.place(
            spot.demand.option, spot.units, spot.devices, self.ranker.prices, reached
        )

    def occupy(self, job: Job, held: Holding | None = None) -> None:
        """Note what the job's attempt holds."""
        attempt = job.attempts[-1]
        option = attempt.placement.option
        if held is None:
            held = self.capacity.holding(attempt.placement)
        self.capacity.take(held)
        self.holdings[job.job_id] = held
        self.changes += 1
        self._note_end(job)
        priority = job.spec.priority
        self.running_at[priority] = self.running_at.get(priority, 0) + 1
        self.ledger.take(job.spec.queue, option.accelerator, option.devices)
        self._recount()
        lapse_s = min([task.lease_until_s for task in attempt.tasks.values()], default=0.0)
        soon = progress.is_limited(job) or attempt.absent
        self.watch(job, 0.0 if soon else lapse_s)
        self.dirty = True

    def retime(self, job: Job) -> None:
        """Take in that a running job will end at another time."""
        self._forget_end(job)
        self._note_end(job)
        self.dirty = True

    def keep(self, job: Job) -> None:
        """Keep the places of the job's reservation, and its spare nodes, for it."""
        kept: dict[int, int] = {}
        if job.reservation is not None:
            held = self.capacity.holding(job.reservation)
            kept.update(zip(held.units.tolist(), held.devices.tolist(), strict=True))
        for domain in job.spares:
            for unit in self.tree.units_of(domain):
                kept[unit] = int(self.tree.unit_devices[unit])
        units = sorted(kept)
        devices = [kept[unit] for unit in units]
        self.capacity.keep(job.job_id, np.array(units, np.int64), np.array(devices, np.int64))
        self._charge(job)
        self.watch(job)
        self.dirty = True

    def shortage(self, job: Job, kind: str, devices: int) -> Shortage | None:
        """Return what the job's queue lacks for it beside what is reserved for the job itself."""
        own = self._charged.get(job.job_id)
        if own is None:
            key = job.spec.queue, kind, devices
            if key not in self._short:
                self._short[key] = self.ledger.shortage(*key)
            return self._short[key]
        self.ledger.give_back(job.spec.queue, *own)
        short = self.ledger.shortage(job.spec.queue, kind, devices)
        self.ledger.take(job.spec.queue, *own)
        return short

    def path_share(self, queue: str) -> tuple[float, ...]:
        """Return the shares by which queues are ordered, as ``Ledger.path_share`` does."""
        share = self._shares.get(queue)
        if share is None:
            share = self._shares[queue] = self.ledger.path_share(queue)
        return share

    def is_short(self, bucket: Bucket) -> bool:
        """Return whether a bucket's queue has too little left for any of its shapes.

        A job for which something is reserved has that besides.
        """
        key = bucket.queue, bucket.shape.needs
        short = self._all_short.get(key)
        if short is None:
            short = self._all_short[key] = all(
                self.ledger.room(bucket.queue, kind) < devices for kind, devices in key[1]
            )
        return short

    def owes(self, bucket: Bucket) -> bool:
        """Return whether the queue of a bucket has the first right to what its jobs could take."""
        for demand in bucket.shape.possible:
            key = bucket.queue, demand.option.accelerator
            if key not in self._rights:
                self._rights[key] = self.ledger.owed(*key, self.tree.totals[key[1]])
            if demand.devices <= self._rights[key]:
                return True
        return False

    def _charge(self, job: Job) -> None:
        """Count what is reserved for a job as its queue's: nobody else may start on that quota."""
        self._recount()
        if (before := self._charged.pop(job.job_id, None)) is not None:
            self.ledger.give_back(job.spec.queue, *before)
        if job.reservation is not None:
            option = job.reservation.option
            self._charged[job.job_id] = option.accelerator, option.devices
            self.ledger.take(job.spec.queue, option.accelerator, option.devices)

    def _recount(self) -> None:
        """Take in that queues use more or less of their quotas."""
        self.charges += 1
        self._short.clear()
        self._all_short.clear()
        self._shares.clear()
        self._rights.clear()

    def reserve(self, job: Job, places: Placement, until_s: float) -> None:
        """Reserve places for a job."""
        job.reservation, job.reserved_until_s = places, until_s
        self.keep(job)

    def unreserve(self, job: Job) -> None:
        """Give up what is reserved for the job, if anything is."""
        if job.reservation is not None:
            job.reservation, job.reserved_until_s = None, 0.0
            self._keep_rest(job)

    def spare(self, job: Job, domains: tuple[str, ...]) -> None:
        """Keep exactly these nodes as spares of the job."""
        if job.spares != domains:
            job.spares = domains
            self._keep_rest(job)

    def _keep_rest(self, job: Job) -> None:
        self.capacity.release(job.job_id)
        self._charge(job)
        if job.spares or job.reservation is not None:
            self.keep(job)
        self.dirty = True

    def watch(self, job: Job, at_s: float = 0.0) -> None:
        """See to it that the job's timers are looked at."""
        heapq.heappush(self._due, (at_s, job.job_id))

    @property
    def moment(self) -> tuple[int, ...]:
        """Changes whenever somebody may have others evicted who had nobody to evict before.

        That is when who holds what changes or who leaves it, what is kept, open or charged, and
        when something that had to wait may be done.
        """
        return self.changes, self.looks, self.charges, self.capacity.grown

    def again(self, at_s: float) -> None:
        """Let the next cycle after that time look at everything anew; the present is too early."""
        at_s = max(at_s, math.nextafter(self.state.now_s, math.inf))
        if at_s not in self._again_at:
            self._again_at.add(at_s)
            heapq.heappush(self.state.again, at_s)

    def next_again_s(self, now: float) -> float:
        """Return the first such time after now; those that have come make the index dirty."""
        state, again = self.state, self.state.again
        while again and again[0] <= now:
            self._again_at.discard(heapq.heappop(again))
            self.looks += 1
            self.dirty = True
        if 0 < state.promises_due_s <= now:
            state.promises_due_s = 0.0
            self.looks += 1
            self.dirty = True
        return min(again[0] if again else math.inf, state.promises_due_s or math.inf)

    def due(self) -> list[tuple[float, str]]:
        """Return the heap of the times at which jobs are to be looked at; too early is allowed."""
        return self._due

    def _note_end(self, job: Job) -> None:
        end_s = progress.end_s(job, job.attempts[-1])
        if end_s < math.inf:
            self._end_of[job.job_id] = end_s
            bisect.insort(self.ends, (end_s, job.job_id))

    def _forget_end(self, job: Job) -> None:
        end_s = self._end_of.pop(job.job_id, None)
        if end_s is not None:
            del self.ends[bisect.bisect_left(self.ends, (end_s, job.job_id))]

    def _dequeue(self, job: Job) -> None:
        job.promised = None
        bucket = self._bucket_of.pop(job.job_id, None)
        if bucket is not None:
            bucket.drop(job)
            self.dirty = True

    def _vacate(self, job: Job) -> None:
        option = job.attempts[-1].placement.option
        self.capacity.give_back(self.holdings.pop(job.job_id))
        self.changes += 1
        self._forget_end(job)
        priority = job.spec.priority
        self.running_at[priority] -= 1
        if not self.running_at[priority]:
            del self.running_at[priority]
        self.ledger.give_back(job.spec.queue, option.accelerator, option.devices)
        self._recount()
        self.dirty = True
