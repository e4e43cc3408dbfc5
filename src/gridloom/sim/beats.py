"""Heartbeats and leases of a simulated world: signs of life, silence, and what follows from it."""

from collections.abc import Iterable

from gridloom.model.reason import Why
from gridloom.sim.attempts import Attempts, outcome
from gridloom.sim.engine import Urgency
from gridloom.sim.run import Run


class Beats:
    """Sees that live tasks are heard from, and that those which cannot be come to their end."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts, self._agenda = attempts, attempts.agenda
        self._terms, self._conditions = attempts.terms, attempts.floor.conditions

    def start(self, run: Run) -> None:
        """Begin to hear from an attempt."""
        run.leases = dict.fromkeys(run.live, run.action.lease_until_s)
        begin_s = run.started_s + self._terms.start_s
        self._agenda.put(begin_s + self._terms.heartbeat_s, Urgency.BEAT, self._beat, run)

    def _beat(self, run: Run) -> None:
        """Live tasks give a sign of life; those that cannot are on the way to their lapse."""
        if run.is_over:
            return
        now_s, lapsed, alive = self._agenda.now_s, list[str](), list[str]()
        for domain in run.live:
            if not (self._conditions.is_reachable(domain) and self._conditions.is_up(domain)):
                self._fall_silent(run, domain)
            elif now_s >= run.leases[domain]:
                lapsed.append(domain)
            elif domain not in run.unheard:
                alive.append(domain)
        self._attempts.signs_of_life(run, alive)
        if lapsed:
            self._lapsed(run, lapsed)
        if not run.is_over:
            at_s = now_s + self._terms.heartbeat_s
            self._agenda.put(at_s, Urgency.BEAT, self._beat, run)

    def _fall_silent(self, run: Run, domain: str) -> None:
        if domain in run.silent:
            return
        run.silent[domain] = None
        lapse_s = run.leases[domain]
        self._agenda.put(lapse_s, Urgency.END, self._lapse, (run, domain))
        deemed_s = lapse_s + self._terms.lease.kill_margin_s
        self._agenda.put(deemed_s, Urgency.END, self._deem_dead, (run, domain))

    def _lapse(self, argument: tuple[Run, str]) -> None:
        """A task that hears nothing stops itself when its lease lapses."""
        run, domain = argument
        due = self._agenda.now_s >= run.leases[domain]
        if due and domain in run.silent and domain in run.live:
            self._attempts.break_off(run)

    def _deem_dead(self, argument: tuple[Run, str]) -> None:
        """The scheduler takes the task for dead now, without a word from us."""
        run, domain = argument
        dead_s = run.leases[domain] + self._terms.lease.kill_margin_s
        if self._agenda.now_s < dead_s or run.is_over:
            return
        if domain in run.silent and domain in run.live:
            del run.live[domain]
            if not run.live:
                self._attempts.close(run)

    def _lapsed(self, run: Run, domains: Iterable[str]) -> None:
        self._attempts.break_off(run)
        sentence = "the control plane has not renewed the lease: killed"
        self._attempts.end_tasks(
            run, domains, outcome(Why.LEASE_LAPSED, sentence, self._agenda.now_s)
        )
