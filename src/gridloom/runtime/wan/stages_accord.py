"""How the stages of a pipeline agree on a training step: that it is over, or begun again. Pure.

A stage that has all its gradients, and whose next stage has said so too, tells the one before.
When the first has heard it, nothing is missing anywhere: it says so to all, weights move, and
that step can no longer be given up. Before it, any stage whose own gradients are not all there
may begin the step again, by a word to its neighbours, who pass it on: no stage's weights have
moved, as the first cannot have heard what this one has not said.
"""

import math
from dataclasses import dataclass, replace

from gridloom.base.errors import InputError, Problem
from gridloom.runtime.failure import PeerLostError
from gridloom.runtime.wan.stages_messages import Again, Agreed, AnyMessage, Hello, Ready, Stamp

BEFORE, AFTER = -1, 1
"""The two sides of a stage, where there is a neighbour."""


@dataclass(frozen=True)
class Own:
    """What one stage has to say of a step, once it has all its gradients.

    Attributes:
        loss: Mean over the batch, on the last stage.
        squares: Sum of the squares of its gradients.
        stop: It was asked to stop.
        delay_s: Round trip and transfers of a micro-batch on the link to the next stage.
        period_s: From one micro-batch to the next, on this stage or that link.
    """

    loss: float
    squares: float
    stop: bool
    delay_s: float
    period_s: float


class Accord:
    """What one stage knows of the step that all are in.

    A training step is one step of an accord, or two: where a site has several ranks, all passes
    are agreed on first, then the norm of what the ranks have averaged. An evaluation is one, too.

    Attributes:
        done: Steps of the accord that are over.
        trained: Training steps that are over.
        outcome: Of the step, once it is over.
        behind: What the stages after this one last said.
        outbox: To which side, and what, until the caller takes it.
    """

    def __init__(self, *, first: bool, last: bool, settings: str) -> None:
        """Begin before the first step.

        Args:
            first: No stage is before this one.
            last: None is after it.
            settings: A digest of what all must have alike.
        """
        self.done = self.trained = 0
        self.outcome: Agreed | None = None
        self.behind: Ready | None = None
        self.outbox: list[tuple[int, AnyMessage]] = []
        self._is_first, self._is_last, self._settings = first, last, settings
        self._again = 0
        self._next: Stamp = (0, 0)  # the newest heard of the step after this one
        self._own: Own | None = None
        self._is_behind_ready = False

    @property
    def stamp(self) -> Stamp:
        """The step that is due, and how often it has been begun again."""
        return self.done + 1, self._again

    @property
    def sides(self) -> tuple[int, ...]:
        """Where there are neighbours."""
        return (BEFORE,) * (not self._is_first) + (AFTER,) * (not self._is_last)

    @property
    def may_give_up(self) -> bool:
        """Whether nothing that this stage has said can have moved weights."""
        return self._own is None

    def hello(self) -> Hello:
        """Return the first word to a new process."""
        done, again = self.done, self.stamp[1]
        return Hello(done=done, again=again, trained=self.trained, settings=self._settings)

    def met(self, peer: str, hello: Hello, *, before: bool) -> None:
        """Take in the first word of a neighbour.

        Args:
            peer: Its name.
            hello: What it said.
            before: It was met before: this is another process of it.

        Raises:
            InputError: It trains something else, or goes on from another step.
            PeerLostError: It was started again, at another step.
        """
        if hello.settings != self._settings:
            text = f"{peer} and this site are not stages of the same pipeline"
            remedy = "give every site the same layers, loss, seed and settings"
            raise InputError([Problem(text, remedy, field="pipeline")])
        there, here = hello.trained, self.trained
        if hello.done != self.done and before:
            text = f"{peer} was started again after step {there}, and this site is at {here}"
            remedy = "start all sites again, from checkpoints of the same step"
            raise PeerLostError(text, remedy)
        if hello.done != self.done:
            text = f"{peer} goes on after step {there}, and this site after step {here}"
            least = min(there, here)
            remedy = f"remove the checkpoints after step {least}, so that all begin there"
            raise InputError([Problem(text, remedy, field="checkpoint")])
        self.heard(None, (hello.done + 1, hello.again))

    def heard(self, side: int | None, stamp: Stamp) -> None:
        """Take in the stamp of a message: if it is newer, this step is begun again here too.

        Args:
            side: Who sent it, and need not be told.
            stamp: Its stamp.
        """
        step, again = stamp
        if step > self.done + 1:
            self._next = max(self._next, stamp)
        elif step == self.done + 1 and again > self._again:
            self._again = again
            self._begin_again(side)

    def give_up(self) -> None:
        """Begin the step again, and tell the neighbours."""
        self._again += 1
        self._begin_again(None)

    def complete(self, own: Own) -> None:
        """Note that this stage has all its gradients."""
        self._own = own
        self._tell()

    def ready(self, message: Ready) -> None:
        """Take in that the stages after this one have all their gradients."""
        self.heard(AFTER, (message.step, message.again))
        if (message.step, message.again) == self.stamp:
            self.behind, self._is_behind_ready = message, True
            self._tell()

    def agreed(self, message: Agreed) -> None:
        """Take in that the step is over; it is passed on.

        Raises:
            PeerLostError: It is one that this stage has had to give up, as a neighbour was started
                again in the middle of it.
        """
        if self._own is None or (message.step, message.again) != self.stamp:
            text = f"the step after {self.trained} is over elsewhere, and was given up here"
            remedy = "start all sites again, from checkpoints of the same step"
            raise PeerLostError(text, remedy)
        self.outcome = message
        if not self._is_last:
            self.outbox.append((AFTER, message))

    def go_on_from(self, trained: int) -> None:
        """Begin after so many training steps."""
        self.done = self.trained = trained

    def commit(self, *, trains: bool = True) -> None:
        """Note that the step is over, and go on to the next.

        Args:
            trains: Weights move: a training step is over with it.
        """
        self.done += 1
        self.trained += trains
        self._again = self._next[1] if self._next[0] == self.done + 1 else 0
        self._own, self.outcome, self._is_behind_ready = None, None, False
        if self._again:  # who told it was ahead of this stage; the others may not have heard of it
            self._begin_again(None)

    def _begin_again(self, told: int | None) -> None:
        self._own, self._is_behind_ready = None, False
        step, again = self.stamp
        others = [side for side in self.sides if side != told]
        self.outbox += [(side, Again(step=step, again=again)) for side in others]

    def _tell(self) -> None:
        """Say what is known of the stages from here on, if all of it is."""
        own = self._own
        if own is None or not (self._is_last or self._is_behind_ready):
            return
        if self.behind is not None and not self._is_last:
            own = _joined(own, self.behind)
        step, again = self.stamp
        if self._is_first:
            norm = math.sqrt(own.squares) if own.squares >= 0 else math.nan
            self.agreed(Agreed(step=step, again=again, loss=own.loss, norm=norm, stop=own.stop))
        else:
            said = Ready(
                step=step,
                again=again,
                loss=own.loss,
                squares=own.squares,
                stop=own.stop,
                delay_s=own.delay_s,
                period_s=own.period_s,
            )
            self.outbox.append((BEFORE, said))


def _joined(own: Own, behind: Ready) -> Own:
    return replace(
        own,
        loss=behind.loss,
        squares=own.squares + behind.squares,
        stop=own.stop or behind.stop,
        delay_s=own.delay_s + behind.delay_s,
        period_s=max(own.period_s, behind.period_s),
    )
