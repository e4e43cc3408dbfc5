"""Conservative backfill: everybody who waits is promised a start, and nobody delays a promise.

In the policy's order each job is given the earliest start at which it fits for its whole predicted
run, on top of what runs and of what is promised to those before it. Promises stay as they are, so
that with exact predictions a cycle costs little; what ends early or comes back lets jobs, in order,
start earlier where that delays no other promise (compression: Mu'alem and Feitelson, IEEE TPDS
2001), until nobody can. A promise is broken, and given anew, only if something that runs outlives
its prediction, places are lost, or a job that comes before takes them.

Places and start of each promise are in the state; all else is derived from it.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from gridloom.core import budget, holdback
from gridloom.core.bucket import Bucket
from gridloom.core.demand import Demand
from gridloom.core.gang import Finder, Spot, predicted_step_s
from gridloom.core.index import Index
from gridloom.core.outlook import LATE_S, places_of, predicted_end_s, run_of, varied
from gridloom.core.profile import Bools, Claim, Layout, Part, Profile, Promised, Window
from gridloom.core.queueing import Block, Pass, booked, comparable
from gridloom.core.rank import best_step_s
from gridloom.core.shortage import Shortage
from gridloom.core.spoken import Later, Rest, closed_to
from gridloom.core.standing import Seat, allowed_of, due_s_of, in_order
from gridloom.model.booking import Booking
from gridloom.model.life import Job, Placement


class Schedule:
    """The promises of one cycle."""

    def __init__(self, index: Index, now: float) -> None:
        self.index, self.now = index, now
        self._soon = math.nextafter(now, math.inf)
        self._bookings: list[tuple[Booking, Bools]] = []
        self._held: list[tuple[int, Bools]] = []
        self._floors: dict[str, float] = {}
        self._columns: dict[int, int] = {}
        self._next_end_s = math.inf
        self._before: list[Seat] = []
        self._later: list[tuple[float, Later]] | None = None
        self._helped: set[str] = set()
        self._short_of: dict[str, Block] = {}
        self._runs: list[Claim] = []
        self._ends: dict[str, float] = {}

    def decisions(self) -> Iterator[tuple[Bucket, Job, Block | None]]:
        """Yield, in order, who starts at the promised places now, and who is first to be blocked.

        Whoever takes a job that starts from this starts it at once. If room is made for a blocked
        one, by which it gets a reservation, all is looked at again.
        """
        again = True
        while again:
            seats, again = self._settle()
            blocked: set[int] = set()
            for seat in seats:
                bucket, job = seat.bucket, seat.job
                if seat.starts:
                    again = True
                    if (short := self._short(job)) is not None:
                        self._short_of[job.job_id] = Block(short.code, shortage=short)
                    else:
                        yield bucket, job, None
                elif id(bucket) not in blocked:
                    blocked.add(id(bucket))
                    reserved = job.reservation
                    self._before, self._later = seats[: seat.number], None
                    yield bucket, job, seat.why
                    if job.reservation is not reserved:
                        self._helped.add(job.job_id)
                        again = True
                        break
        self._before, self._later = [], None

    def rest(self, job: Job, end_s: float) -> Rest:
        """Return what bookings and those before leave to the blocked job, or to who moves for it.

        Nobody is before it who comes after the one that ``decisions`` told of last.
        """
        held = [units for number, units in self._held if number < len(self._before)]
        if self._later is None:
            self._later = list(self._laters())
        later = tuple(one for start_s, one in self._later if start_s < end_s)
        return Rest(closed_to(self.index, job, end_s, self._bookings, held), later)

    def _laters(self) -> Iterator[tuple[float, Later]]:
        """Yield what the promises to those before the blocked job leave, and from when on."""
        claims, starts = [], set()
        for seat in self._before:
            known = self.index.promises.promised.get(seat.job.job_id)
            if known is not None and seat.job.promised is not None:
                claims.append(self._claim(seat.job, known))
                starts.add(claims[-1].start_s)
            elif known is not None and seat.starts:  # it has started since
                claims.append(Claim(self.now, known.run.end_s(self.now), known.part))
        opened = self.index.capacity.openings()
        profile = Profile(self._grid, self.now, self._runs, claims, opened)
        for start_s in sorted(starts):
            slack = profile.least(start_s, math.nextafter(start_s, math.inf))
            ended = (job_id for job_id, at_s in self._ends.items() if at_s <= start_s)
            yield start_s, Later(slack[: len(opened)], frozenset(ended))

    def _short(self, job: Job) -> Shortage | None:
        """Return what the job's queue lacks for it to start, after those that have just started.

        It may lack that in the promised place alone, where the job is slower than elsewhere.
        """
        places = job.promised
        assert places is not None
        return budget.short(self.index, job, places.option, places.step_s)

    # --- one round

    def _settle(self) -> tuple[list[Seat], bool]:
        """Give everybody the promise that is due to them.

        Returns:
            All who wait, in order, and whether somebody found a place late in the round, so that
            it must be gone through again.
        """
        index, kept = self.index, self.index.promises
        self._bookings = [
            (booking, booked(index, booking)) for _, booking in sorted(index.state.bookings.items())
        ]
        self._held, self._floors = [], {}
        seats = self._seats()
        layout = self._grid = self._layout()
        profile, intact = self._as_promised(layout, seats)
        for seat in seats[intact or 0 :]:
            self._walk(profile, seat)
        rules = (
            [booking for booking, _ in self._bookings],
            [units.tobytes() for _, units in self._held],
            layout.names,
            sorted(index.ranker.prices.items()),
        )
        loose = intact is None or kept.settled is None or rules != kept.rules
        loose = loose or profile.grew(kept.settled or profile)
        waited = sum(seat.job.promised is None for seat in seats)
        while self._compress(profile, seats, all_of_them=loose):
            loose = True
        kept.settled, kept.rules = profile, rules
        due_s = due_s_of(index, seats, self._next_end_s + LATE_S)
        self.index.state.promises_due_s = due_s if due_s < math.inf else 0.0
        for gone in kept.promised.keys() - {seat.job.job_id for seat in seats}:
            del kept.promised[gone]
        return seats, sum(seat.job.promised is None for seat in seats) < waited

    def _seats(self) -> list[Seat]:
        """Return all who wait, in order; who may not have a promise loses it."""
        index = self.index
        left = index.policy.promises_max
        if len(index.tree.unit_devices) == 1:
            left = len(index.state.jobs)
        limits = Pass(index, self.now)
        known: dict[int, tuple[tuple[Demand, ...], Block, bool]] = {}
        seats = []
        for number, (bucket, job) in enumerate(in_order(index)):
            has_own = job.reservation is not None  # beside what its queue lets others have
            if has_own or (allowed := known.get(id(bucket))) is None:
                possible, blocked = allowed_of(limits, bucket, job)
                allowed = (possible, blocked, any(map(varied, possible)))
                queue = index.queues.get(bucket.queue)
                if not has_own and (queue is None or not queue.accelerator_hours):
                    known[id(bucket)] = allowed
            demands, why, differs = allowed
            if job.job_id in self._short_of:  # once in a cycle is enough
                demands, why = (), self._short_of[job.job_id]
            if demands and job.reservation is None:
                left -= 1
                demands = demands if left >= 0 else ()
            if not demands:
                _set(job, None, 0.0)
            seats.append(Seat(number, bucket, job, demands, why, differs))
        return seats

    def _layout(self) -> Layout:
        """Return the columns that those who wait need."""
        tree, kept = self.index.tree, self.index.promises
        names: set[str] = set()
        masks: dict[bytes, int] = {}
        units: list[Bools] = []
        for bucket in self.index.buckets.values():
            for demand in bucket.shape.possible if len(bucket) else ():
                names.update(name for name, _ in demand.option.rank_resources)
                mask = demand.eligible.tobytes()
                if mask not in masks:
                    masks[mask] = len(units)
                    units.append(demand.eligible)
                self._columns[id(demand)] = masks[mask]
        layout = Layout(tree, tuple(sorted(names)), units if len(tree.unit_devices) > 1 else ())
        if kept.names != layout.names:
            kept.names = layout.names
            kept.parts.clear()
            kept.promised.clear()
        return layout

    def _as_promised(self, layout: Layout, seats: Sequence[Seat]) -> tuple[Profile, int | None]:
        """Return the profile with all promises, and how many seats, the first, simply keep theirs.

        If a promise does not hold any more, or nobody can tell at a glance, it is nothing, and
        the profile that of what runs.
        """
        fixed = self._runs = self._fixed(layout)
        opened = self.index.capacity.openings()
        claims: list[Claim] = []
        due: list[tuple[Seat, Claim]] = []
        for seat in seats:
            known = self._promised(layout, seat)
            if known is None or seat.job.reservation is not None:
                break
            claims.append(self._claim(seat.job, known))
            if seat.job.promised_s == self.now:
                due.append((seat, Claim(self.now, self._soon, known.part)))
        rest = seats[len(claims) :]
        simple = (
            not (self._bookings or self.index.strict)
            and all(seat.job.promised is None for seat in rest)
            and all(seat.job.promised_s >= self.now for seat in seats[: len(claims)])
        )
        if simple:
            profile = Profile(layout, self.now, fixed, claims, opened)
            if not profile.overdrawn():
                for seat, at_once in due:
                    if profile.fits(at_once):
                        profile.take(at_once)
                        seat.starts = True
                return profile, len(claims)
        marks_s = [booking.end_s for booking, _ in self._bookings]
        return Profile(layout, self.now, fixed, (), opened, marks_s), None

    def _fixed(self, layout: Layout) -> list[Claim]:
        """Return what runs, until its predicted end, and what is kept."""
        index, parts = self.index, self.index.promises.parts
        claims = []
        ends = {job_id: end_s for end_s, job_id in index.ends}
        for job_id, held in index.holdings.items():
            end_s = ends.get(job_id, math.inf)
            if end_s + LATE_S <= self.now:  # added as the next look at it is: never again at once
                end_s = ends[job_id] = predicted_end_s(index.state.jobs[job_id], self.now)
            known = parts.get(job_id)
            if known is None or known[0] is not held:
                known = parts[job_id] = (held, layout.part(held))
            claims.append(Claim(-math.inf, end_s, known[1]))
        self._ends, self._next_end_s = ends, min(ends.values(), default=math.inf)
        for job_id in index.capacity.keepers():
            reserved = index.state.jobs[job_id].reservation is not None
            end_s = math.inf if reserved else ends.get(job_id, math.inf)
            claims.append(Claim(-math.inf, end_s, self._own(job_id)))
        for gone in parts.keys() - index.holdings.keys():
            del parts[gone]
        return claims

    def _own(self, job_id: str) -> Part:
        """Return what is kept for a job."""
        none = np.zeros(0, np.int64)
        units, devices = self.index.capacity.kept(job_id) or (none, none)
        return Part(units, devices, len(units))

    def _promised(self, layout: Layout, seat: Seat) -> Promised | None:
        """Return what a job was promised; nothing if that was nothing, or is not there any more."""
        job, places = seat.job, seat.job.promised
        if places is None:
            return None
        promised = self.index.promises.promised
        known = promised.get(job.job_id)
        if known is None or known.places is not places:
            demand = next((d for d in seat.demands if d.option == places.option), None)
            held = self.index.capacity.holding(places)
            if demand is None or int(held.devices.sum()) < places.option.devices:
                return None
            run = run_of(job, places.option, places.step_s)
            known = promised[job.job_id] = Promised(places, demand, layout.part(held), run)
        if known.demand not in seat.demands:
            return None
        if job.spec.budget.cost_max:
            dear = {self.index.tree.sites[site].name for site in self._dear(job, known.demand)}
            if any(task.site in dear for task in places.tasks):
                return None
        return known

    def _dear(self, job: Job, demand: Demand) -> list[int]:
        """Return the sites that a job cannot afford."""
        return budget.too_dear(job, demand, self.index.ranker.prices)

    def _claim(self, job: Job, known: Promised) -> Claim:
        """Return the claim of a promise; one that is due but not free yet begins at once."""
        end_s = known.run.end_s(job.promised_s)
        return Claim(max(job.promised_s, self._soon), end_s, known.part)

    # --- what is promised anew

    def _walk(self, profile: Profile, seat: Seat) -> None:
        """Let a job keep its promise on top of those before it, or give it another."""
        job, queue = seat.job, seat.bucket.queue
        floor_s = self._floors.get(queue, self.now)
        if not self._keeps(profile, seat, floor_s):
            found = self._search(profile, seat, floor_s, self._last_s(seat))
            if found is None:
                _set(job, None, 0.0)
                self._hold(seat)
            else:
                self._give(profile, seat, *found)
        self._pass_by(seat)

    def _keeps(self, profile: Profile, seat: Seat, floor_s: float) -> bool:
        """Return whether a job keeps its promise; one that is due starts, if all is free."""
        job = seat.job
        known = self._promised(profile.layout, seat) if job.reservation is None else None
        if known is None or max(job.promised_s, self.now) < floor_s:
            return False
        claim = self._claim(job, known)
        if job.promised_s <= self.now:
            at_once = Claim(self.now, known.run.end_s(self.now), known.part)
            if profile.fits(at_once) and not self._is_barred(seat, at_once):
                profile.take(at_once)
                _set(job, known.places, self.now)
                seat.starts = True
                return True
            if profile.fits(Claim(self.now, self._soon, known.part)):
                return False  # it comes too late for what was to follow it
        if not profile.fits(claim) or self._is_barred(seat, claim):
            return False
        profile.take(claim)
        return True

    def _is_barred(self, seat: Seat, claim: Claim) -> bool:
        barred = self._barred(seat, claim.start_s, claim.end_s)
        units = claim.part.columns[: claim.part.units]
        return barred is not None and bool(barred[units].any())

    def _barred(self, seat: Seat, start_s: float, end_s: float) -> Bools | None:
        """Return the units that others have booked meanwhile, or that are held for those before."""
        barred: Bools | None = None
        for booking, units in self._bookings:
            if seat.job.spec.queue in booking.queues:
                continue
            if booking.start_s < end_s and start_s < booking.end_s:
                barred = units if barred is None else barred | units
        for number, units in self._held:
            if number < seat.number:
                barred = units if barred is None else barred | units
        return barred

    def _last_s(self, seat: Seat) -> float:
        """Return until when a job may be promised to start; one with a reservation has its own."""
        return math.inf if seat.job.reservation is None else self.now

    def _pass_by(self, seat: Seat) -> None:
        """Let nobody in a strict queue start before the one in front."""
        if seat.bucket.queue in self.index.strict:
            job = seat.job
            start_s = math.inf if job.promised is None else max(job.promised_s, self.now)
            self._floors[seat.bucket.queue] = start_s

    def _hold(self, seat: Seat) -> None:
        """Keep, after a while, what a job could use to which no start can be promised."""
        if not seat.demands or seat.job.reservation is not None:
            return
        if self.now < seat.job.submitted_s + self.index.policy.patience_s:
            return
        index = self.index
        kept = np.zeros(len(index.tree.unit_devices), np.bool_)
        for _, units in self._held:
            kept |= units
        available = index.capacity.available_to(seat.job.job_id)
        more = holdback.to_keep(index, seat.demands, available, kept)
        if more is not None:
            self._held.append((seat.number, more))

    def _give(self, profile: Profile, seat: Seat, start_s: float, spot: Spot) -> None:
        """Promise a job a place."""
        job, places = seat.job, places_of(self.index, spot)
        _set(job, places, start_s)
        known = self._promised(profile.layout, seat)
        assert known is not None
        profile.take(Claim(start_s, known.run.end_s(start_s), known.part))
        seat.starts = start_s == self.now

    def _compress(self, profile: Profile, seats: Sequence[Seat], *, all_of_them: bool) -> bool:
        """Let jobs, in order, start earlier on top of everybody else; return whether one does.

        Where nothing has become free only those are asked whose run depends on where they are.
        """
        moved = False
        self._floors = {}
        for seat in seats:
            may = seat.demands and seat.job.reservation is None and not seat.starts
            if may and (all_of_them or seat.varied):
                moved |= self._earlier(profile, seat)
            self._pass_by(seat)
        return moved

    def _earlier(self, profile: Profile, seat: Seat) -> bool:
        job, claim = seat.job, None
        last_s = math.inf
        if job.promised is not None:
            known = self._promised(profile.layout, seat)
            assert known is not None
            claim = self._claim(job, known)
            last_s = self.now
            if job.promised_s > self._soon:
                last_s = math.nextafter(job.promised_s, -math.inf)
            profile.give_back(claim)
        floor_s = self._floors.get(seat.bucket.queue, self.now)
        found = self._search(profile, seat, floor_s, last_s)
        if found is not None:
            self._give(profile, seat, *found)
            return True
        if claim is not None:
            profile.take(claim)
        return False

    # --- looking for a start

    def _search(
        self, profile: Profile, seat: Seat, first_s: float, last_s: float
    ) -> tuple[float, Spot] | None:
        """Return the earliest start between two times, and where; the best place of the first."""
        best: tuple[float, Spot] | None = None
        job = seat.job
        if first_s > last_s or first_s == math.inf:
            return None
        if job.reservation is not None and job.spec.on_loss == "wait":
            return None
        if job.job_id in self._helped:  # somebody leaves for it in this cycle
            return None
        own = Claim(-math.inf, math.inf, self._own(job.job_id)) if job.reservation else None
        if own is not None:
            profile.give_back(own)
        for demand in seat.demands:
            found = self._of_shape(profile, seat, demand, (first_s, last_s))
            if found is None:
                continue
            cheaper = best is not None and comparable(seat.bucket) and found[1].cost < best[1].cost
            if best is None or found[0] < best[0] or cheaper:
                best, last_s = found, found[0]
        if own is not None:
            profile.take(own)
        return best

    def _of_shape(
        self, profile: Profile, seat: Seat, demand: Demand, between: tuple[float, float]
    ) -> tuple[float, Spot] | None:
        option, job = demand.option, seat.job
        run = run_of(job, option, best_step_s(option))
        column = profile.layout.column(self._columns[id(demand)])
        first_s, last_s = between
        for start_s in profile.starts(column, option.devices, run, first_s=first_s, last_s=last_s):
            spot = self._spot(profile, seat, demand, start_s)
            if spot is not None:
                return start_s, spot
        return None

    def _spot(self, profile: Profile, seat: Seat, demand: Demand, start_s: float) -> Spot | None:
        """Return the best place from a time on; it is looked for again if one runs longer there."""
        index, job, option = self.index, seat.job, demand.option
        run = run_of(job, option, best_step_s(option))
        while True:
            end_s = run.end_s(start_s)
            least = profile.least(start_s, end_s)
            left = least[: len(demand.eligible)]
            if job.reservation is not None:
                left = np.minimum(left, index.capacity.available_to(job.job_id))
            if (barred := self._barred(seat, start_s, end_s)) is not None:
                left = np.where(barred, 0, left)
            left = np.maximum(left, 0)
            for site in self._dear(job, demand):
                first, end = index.tree.span(0, site)
                left[first:end] = 0
            layout = profile.layout
            capacity = Window(layout, least) if layout.names else index.capacity
            spot = Finder(demand, capacity, left).best(index.ranker)
            if spot is None:
                return None
            if index.suspects[spot.units].any():  # only if there is no other place
                others = Finder(demand, capacity, np.where(index.suspects, 0, left))
                spot = others.best(index.ranker) or spot
            actual = run_of(job, option, predicted_step_s(spot))
            if actual.left_s <= run.left_s:
                return spot
            run = actual


def _set(job: Job, places: Placement | None, start_s: float) -> None:
    job.promised, job.promised_s = places, start_s
