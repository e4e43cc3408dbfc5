"""What one stage and its neighbours say to each other during a step, and when it is given up."""

from collections.abc import Callable
from dataclasses import dataclass

from msgspec import structs

from gridloom.base.clock import Clock
from gridloom.runtime.failure import PeerLostError, PoisonedError, RuntimeFailureError
from gridloom.runtime.wan.history import Buffer
from gridloom.runtime.wan.settings import Address
from gridloom.runtime.wan.stages_accord import Accord
from gridloom.runtime.wan.stages_link import Neighbours
from gridloom.runtime.wan.stages_messages import (
    Again,
    Agreed,
    AnyMessage,
    Fault,
    Hello,
    Ready,
    Stamp,
    Values,
)

_LOOK_S = 0.05
"""How long one look for messages takes while there is nothing else to do."""


@dataclass(frozen=True)
class Arrived:
    """A tensor from a neighbour.

    Attributes:
        peer: Its site.
        values: What it is.
        body: Its payload.
    """

    peer: str
    values: Values
    body: Buffer


class Talk:
    """Carries the accord of a stage, and hands its tensors on, over connections.

    Attributes:
        accord: What the stages agree on.
        neighbours: Whom this stage speaks to.
        is_trying: Passes are being made, which may have to be made again.
        waited_s: Seconds for which there was nothing else to do.
        ranks: Where the ranks of this site listen, for neighbours to be told.
        told: Where those of the neighbours do, by side.
    """

    def __init__(
        self, accord: Accord, neighbours: Neighbours, clock: Clock, patience: tuple[float, float]
    ) -> None:
        """Put them together.

        Args:
            accord: Of this stage.
            neighbours: Of this stage.
            clock: Time.
            patience: Seconds after which a step is given up for a link that fails, and after which
                the whole training is if nothing has come.
        """
        self.accord, self.neighbours = accord, neighbours
        self.is_trying = False
        self.waited_s = 0.0
        self.ranks: tuple[Address, ...] = ()
        self.told: dict[int, tuple[Address, ...]] = {}
        self._clock = clock
        self._stall_s, self._patience_s = patience
        self._arrived: list[Arrived] = []
        self._known: set[int] = set()
        self._idle_since_s: float | None = None
        self._is_over = False

    def await_neighbours(self) -> None:
        """Wait until all neighbours are in contact and have said where they stand.

        Raises:
            InputError: One of them trains something else, or goes on from another step.
            PeerLostError: One did not come.
        """
        while not self.neighbours.is_there():
            self.wait()

    def values(self, stamp: Stamp) -> list[Arrived]:
        """Return the tensors that have come for a try, and forget those of earlier ones."""
        due = [one for one in self._arrived if one.values.stamp == stamp]
        self._arrived = [one for one in self._arrived if one.values.stamp > stamp]
        return due

    def wait(self) -> None:
        """Take in what comes while there is nothing to do; errors as ``await_neighbours``."""
        started_s = self._clock.monotonic_s()
        if self._idle_since_s is None:
            self._idle_since_s = started_s
        if self._pump(_LOOK_S):
            self._idle_since_s = None
        self.waited_s += self._clock.monotonic_s() - started_s
        self._check_patience()

    def look(self) -> None:
        """Take in what has come, without waiting; errors as ``await_neighbours``."""
        self._idle_since_s = None
        self._pump(0.0)

    def say(self) -> None:
        """Send what the accord has to say."""
        for side, message in self.accord.outbox:
            self.neighbours.send(side, message)
        self.accord.outbox.clear()

    def part(self, timeout_s: float) -> None:
        """Leave, once the neighbours hold all that was said or the time is over."""
        self._is_over = True
        self.neighbours.close(timeout_s)

    def give_in(self, error: BaseException) -> None:
        """Tell the neighbours that this stage gives up for good, and why, and leave."""
        if not self._is_over:
            why = str(error) or type(error).__name__
            fault = Fault(why=why, is_poisoned=isinstance(error, PoisonedError))
            for side in self.accord.sides:
                self.neighbours.send(side, fault)
            self._is_over = True
            self.neighbours.close()

    def _pump(self, timeout_s: float) -> bool:
        """Return whether something came."""
        if self._is_over:
            raise PeerLostError("this pipeline has ended", "start the training again")
        self.say()
        came = self.neighbours.poll(timeout_s)
        for side in self.neighbours.anew:
            if self.is_trying:
                self.accord.give_up()
            self.neighbours.send(side, structs.replace(self.accord.hello(), ranks=self.ranks))
        self.neighbours.anew.clear()
        for side, message, body in came:
            self._take(side, message, body)
        stalled = self.neighbours.down_s() > self._stall_s
        if stalled and self.is_trying and self.accord.may_give_up:
            self.is_trying = False
            self.accord.give_up()
        self.say()
        return bool(came)

    def _take(self, side: int, message: AnyMessage, body: Buffer) -> None:
        peer = self.neighbours.names[side]
        match message:
            case Hello():
                self.accord.met(peer, message, before=side in self._known)
                self._known.add(side)
                self.told[side] = message.ranks
            case Values():
                self.accord.heard(side, message.stamp)
                self._arrived.append(Arrived(peer, message, body))
            case Again():
                self.accord.heard(side, (message.step, message.again))
            case Ready():
                self.accord.ready(message)
            case Agreed():
                self.accord.agreed(message)
            case Fault():
                raise _raised(peer, message)

    def _check_patience(self) -> None:
        if self._idle_since_s is None:
            return
        idle_s = self._clock.monotonic_s() - self._idle_since_s
        missing = self.neighbours.missing()
        if self.neighbours.has_left():
            raise PeerLostError(f"out of contact in the middle of a training: {missing}")
        if idle_s > self._patience_s:
            state = f"out of contact: {missing}" if missing else "the neighbours are in contact"
            text = f"nothing has come from the stages beside this one for {idle_s:.0f} s"
            remedy = "start all sites again, from their checkpoints"
            raise PeerLostError(f"{text}; {state}", remedy)


def _raised(peer: str, fault: Fault) -> RuntimeFailureError:
    kind: Callable[[str], RuntimeFailureError] = (
        PoisonedError if fault.is_poisoned else PeerLostError
    )
    return kind(f"{peer} has given up: {fault.why}")
