"""The life of attempts in a simulated world: they start, train, save and end, and say so."""

from collections.abc import Callable, Iterable
from typing import Final

from gridloom.model.action import StopTask
from gridloom.model.event import (
    AnyEvent,
    CancelRequested,
    CheckpointSaved,
    TaskEnded,
    TaskReady,
    TaskRefused,
    TaskRunning,
)
from gridloom.model.life import Outcome
from gridloom.model.reason import EVICTED, Reason, Why
from gridloom.sim.engine import Agenda, Urgency
from gridloom.sim.floor import Floor
from gridloom.sim.run import Phase, Run
from gridloom.sim.terms import SimTerms

_WELL = "all ranks ended well"
_AT_WORK = frozenset({Phase.STARTING, Phase.TRAINING})

# Python 3.11 takes 0.2 us to look a member of an enum up, and these are on every attempt's way
_STARTING: Final = Phase.STARTING
_TRAINING: Final = Phase.TRAINING
_SAVING: Final = Phase.SAVING
_DONE: Final = Phase.DONE
_DEAD: Final = Phase.DEAD
_END: Final = Urgency.END
_START: Final = Urgency.START


class Attempts:
    """What befalls live attempts, and the facts that they give rise to.

    Attributes:
        facts: What the scheduler must be told next.
        floor: Where they run.
        agenda: What will happen.
        terms: By which rules.
    """

    def __init__(
        self, agenda: Agenda, floor: Floor, terms: SimTerms, closed: Callable[[Run], None]
    ) -> None:
        """Begin without any.

        Args:
            agenda: Where their future is noted.
            floor: Where they run.
            terms: By which rules.
            closed: What to call with an attempt whose last task has ended.
        """
        self.agenda, self.floor, self.terms = agenda, floor, terms
        self.facts: list[AnyEvent] = []
        self._conditions = floor.conditions
        self._closed = closed

    def start(self, run: Run) -> None:
        """Begin an attempt."""
        self.floor.enter(run)
        self._rerate_neighbours(run)
        self.agenda.put(run.started_s + self.terms.start_s, _START, self._hear, run)

    def stop(self, run: Run, action: StopTask) -> None:
        """Carry out the order to stop one live task."""
        run.evicted = run.evicted or action.reason.code in EVICTED
        if not self._conditions.is_up(action.domain):
            return  # nobody is there; the loss is told when it is detected
        if not self._conditions.is_reachable(action.domain):
            run.orders[action.domain] = action
        elif action.grace_s <= 0:
            self._kill(run, action)
        elif run.phase in _AT_WORK:
            self._save(run, action)
        elif run.phase is _DEAD and run.ending is None:
            at_s = self.agenda.now_s + action.grace_s
            run.ending = self.agenda.put(at_s, _END, self._stopped, (run, action, False))

    def rerate(self, run: Run) -> None:
        """Let a training attempt go on as fast as the conditions allow from now on."""
        if run.phase is not _TRAINING or run.is_over:
            return
        rate = self.floor.rate(run)
        if rate == run.rate:
            return
        run.settle(self.agenda.now_s)
        run.rate = rate
        self._plan_end(run)
        self._plan_checkpoint(run)

    def break_off(self, run: Run) -> None:
        """Let an attempt train no more: a part of it is gone."""
        if run.is_over or run.phase is _DEAD:
            return
        run.settle(self.agenda.now_s)
        if run.phase is not _DONE or run.live:
            self._drop_plans(run)
            run.phase = _DEAD

    def end_tasks(self, run: Run, domains: Iterable[str], outcome: Outcome) -> None:
        """Let live tasks end, and say so."""
        action = run.action
        for domain in domains:
            del run.live[domain]
            self.facts.append(
                TaskEnded(
                    job_id=action.job_id,
                    attempt=action.attempt,
                    epoch=action.epoch,
                    domain=domain,
                    outcome=outcome,
                )
            )
        if not run.live and not run.is_over:
            self.close(run)

    def signs_of_life(self, run: Run, domains: Iterable[str]) -> None:
        """Say that tasks run."""
        action = run.action
        for domain in domains:
            self.facts.append(
                TaskRunning(
                    job_id=action.job_id,
                    attempt=action.attempt,
                    epoch=action.epoch,
                    domain=domain,
                )
            )

    def reached(self, run: Run) -> None:
        """Deliver what was held up while tasks of an attempt could not be reached."""
        if run.is_over:
            return
        if run.unheard:
            self.agenda.put(self.agenda.now_s + self.terms.start_s, _START, self._hear, run)
        here = self._conditions.reachable(run.live)
        if run.outcome is not None:
            self.end_tasks(run, here, run.outcome)
            return
        if self.terms.heartbeat_s > 0 and run.phase is not _DEAD:
            self.signs_of_life(run, [domain for domain in here if domain not in run.unheard])
        for domain in here:
            if domain in run.orders:
                self.stop(run, run.orders.pop(domain))
        self.rerate(run)

    def close(self, run: Run) -> None:
        """Let the attempt be over: its devices and links are free."""
        self._drop_plans(run)
        if run.ending is not None:
            self.agenda.cancel(run.ending)
            run.ending = None
        self._closed(run)
        self.floor.leave(run, self.agenda.now_s)
        self._rerate_neighbours(run)

    def _rerate_neighbours(self, run: Run) -> None:
        if run.links:
            for other in self.floor.neighbours(run):
                self.rerate(other)

    def _hear(self, run: Run) -> None:
        """The tasks give their first signs of life, those that can."""
        if run.is_over:
            return
        conditions, action = self._conditions, run.action
        heard = run.unheard
        unreached: list[str] = []
        if conditions.cut or conditions.down or conditions.refusing:
            heard, unreached = self._sorted_out(run)
        run.unheard = unreached
        if run.leases:
            heard = self._with_right(run, heard)
        self.signs_of_life(run, heard)
        if unreached or run.phase is not _STARTING:
            return
        restart_s = run.life.arrival.spec.forecast.restart_s if action.restart_count else 0.0
        if restart_s > 0:
            at_s = self.agenda.now_s + restart_s
            run.ending = self.agenda.put(at_s, _START, self._train, run)
        else:
            self._train(run)

    def _sorted_out(self, run: Run) -> tuple[list[str], list[str]]:
        """Return the tasks that start, and those that cannot be reached; the others end here."""
        heard, unreached, refused, lost = [], [], [], []
        for domain in [domain for domain in run.unheard if domain in run.live]:
            if not self._conditions.is_reachable(domain):
                unreached.append(domain)
            elif not self._conditions.is_up(domain):
                lost.append(domain)
            elif self._conditions.refuses(domain):
                refused.append(domain)
            else:
                heard.append(domain)
        if refused or lost:
            self.break_off(run)
        for domain in refused:
            self._refuse(run, domain)
        if self.terms.heartbeat_s <= 0:
            known = [one for one in lost if self._conditions.standing(one)[0] == "lost"]
            self.end_tasks(run, known, outcome(Why.NODE_LOST, "the node is gone", self._now_s))
        return heard, unreached

    def _with_right(self, run: Run, heard: list[str]) -> list[str]:
        """Return the tasks that may start; a lease that lapsed on the way ends the others here."""
        late = [domain for domain in heard if run.leases[domain] <= self._now_s]
        if late:
            self.break_off(run)
            sentence = "the lease had lapsed before the task was started"
            self.end_tasks(run, late, outcome(Why.LEASE_LAPSED, sentence, self._now_s))
        return [domain for domain in heard if domain not in late]

    def _refuse(self, run: Run, domain: str) -> None:
        action, sentence = run.action, f"{domain} starts nothing"
        del run.live[domain]
        self.facts.append(
            TaskRefused(
                job_id=action.job_id,
                attempt=action.attempt,
                epoch=action.epoch,
                domain=domain,
                reason=Reason(code=Why.REFUSED, sentence=sentence),
            )
        )
        if not run.live:
            self.close(run)

    def _train(self, run: Run) -> None:
        """The whole gang is there and trains from now on."""
        if run.is_over or run.phase is not _STARTING:
            return
        run.settle(self.agenda.now_s)
        run.phase, run.ending = _TRAINING, None
        action = run.action
        self.facts.append(
            TaskReady(
                job_id=action.job_id,
                attempt=action.attempt,
                epoch=action.epoch,
                domain=action.placement.tasks[0].domain,
                resumed_step=run.step_of(run.progress.kept_s),
            )
        )
        self.rerate(run)

    def _finish(self, run: Run) -> None:
        """All of its work is done, or its program fails."""
        life, now_s, run.ending = run.life, self.agenda.now_s, None
        run.progress.finish(life.target_s, run.rate)
        run.since_s, run.phase = now_s, _DONE
        self._drop_plans(run)
        if life.fails:
            sentence = "rank 0 exited with status 1"
            run.outcome = outcome(Why.EXITED, sentence, now_s, exit_code=1)
        elif life.arrival.state == "cancelled":  # its user had seen enough
            self.facts.append(CancelRequested(job_id=life.arrival.job_id))
            return
        else:
            run.progress.keep_all()
            run.outcome = outcome(Why.COMPLETED, _WELL, now_s)
        self.end_tasks(run, self._conditions.reachable(run.live), run.outcome)

    def _checkpoint(self, run: Run) -> None:
        """A periodic checkpoint is complete, and is told."""
        run.checkpoint = None
        run.settle(self._now_s)
        self._tell_checkpoint(run)
        self._plan_checkpoint(run)

    def _save(self, run: Run, action: StopTask) -> None:
        """Begin to save, or to be killed for want of time."""
        now_s, save_s = self._now_s, 0.0
        if run.phase is _TRAINING:
            save_s = run.life.arrival.spec.forecast.checkpoint_s
        run.settle(now_s)
        self._drop_plans(run)
        run.phase = _SAVING
        conditions = self._conditions
        whole = all(conditions.is_reachable(one) and conditions.is_up(one) for one in run.live)
        saved = whole and action.grace_s >= save_s
        at_s = now_s + (save_s if saved else action.grace_s)
        run.ending = self.agenda.put(at_s, _END, self._stopped, (run, action, saved))

    def _stopped(self, argument: tuple[Run, StopTask, bool]) -> None:
        """The grace of a stop is over, or its state is saved."""
        run, action, saved = argument
        run.ending = None
        run.settle(self._now_s)
        saved = saved and run.phase is _SAVING
        if saved:
            run.progress.keep_all()
            self._tell_checkpoint(run)
        conditions = self._conditions
        here = [one for one in run.live if conditions.is_reachable(one) and conditions.is_up(one)]
        how = "rank 0 saved its state and stopped" if saved else "killed"
        sentence = f"{action.reason.sentence}: {how}"
        if not saved:
            self.break_off(run)
        self.end_tasks(run, here, outcome(Why.STOP_REQUESTED, sentence, self._now_s))

    def _kill(self, run: Run, action: StopTask) -> None:
        self.break_off(run)
        sentence = f"{action.reason.sentence}: killed"
        if action.domain in run.live:
            end = outcome(Why.STOP_REQUESTED, sentence, self._now_s)
            self.end_tasks(run, [action.domain], end)

    def _plan_end(self, run: Run) -> None:
        if run.ending is not None:
            self.agenda.cancel(run.ending)
        run.ending = None
        if run.rate > 0:
            agenda, wall_s = self.agenda, run.progress.wall_until(run.life.target_s, run.rate)
            run.ending = agenda.put(agenda.now_s + wall_s, _END, self._finish, run)

    def _plan_checkpoint(self, run: Run) -> None:
        if not self.terms.report_checkpoints:
            return
        if run.checkpoint is not None:
            self.agenda.cancel(run.checkpoint)
        run.checkpoint = None
        if run.rate > 0:
            at_s = self._now_s + run.progress.wall_until_complete()
            run.checkpoint = self.agenda.put(at_s, _END, self._checkpoint, run)

    def _drop_plans(self, run: Run) -> None:
        """Cancel what was planned; a stop that is under way goes on."""
        if run.ending is not None and run.phase is not _SAVING:
            self.agenda.cancel(run.ending)
            run.ending = None
        if run.checkpoint is not None:
            self.agenda.cancel(run.checkpoint)
            run.checkpoint = None

    def _tell_checkpoint(self, run: Run) -> None:
        action, step = run.action, run.step_of(run.progress.kept_s)
        domain = action.placement.tasks[0].domain
        if not self.terms.report_checkpoints or not step or domain not in run.live:
            return
        if self._conditions.is_reachable(domain):
            self.facts.append(
                CheckpointSaved(
                    job_id=action.job_id,
                    attempt=action.attempt,
                    epoch=action.epoch,
                    domain=domain,
                    step=step,
                )
            )

    @property
    def _now_s(self) -> float:
        return self.agenda.now_s


def outcome(code: Why, sentence: str, now_s: float, *, exit_code: int = 0) -> Outcome:
    """Return how a task ended."""
    rank = 0 if exit_code else -1
    return Outcome(code=code, sentence=sentence, rank=rank, exit_code=exit_code, ended_s=now_s)
