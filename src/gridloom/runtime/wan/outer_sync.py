"""Sites that train by themselves and become one model in the background, fragment by fragment.

Every so many training steps a site offers the next fragment; the result is taken in when the next
but one is due, so that it may travel as long as that without anybody waiting. If it takes longer,
the next offer is made later: the interval follows what the link can carry. How many steps lie
between two offers is told, or follows from what a round costs beside a step.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gridloom.model.parallel import OUTER_WORK_SHARE
from gridloom.runtime.wan.agreement import Agreement
from gridloom.runtime.wan.history import Buffer, Given
from gridloom.runtime.wan.meeting import await_done, join, never, part
from gridloom.runtime.wan.outcome import Adopted, Outcome
from gridloom.runtime.wan.peers import LOOK_S, Peers
from gridloom.runtime.wan.state import as_buffer, as_payload

_FOLLOW_SHARE = 0.2
"""A round that another site opened is joined early after this share of the usual interval. Sites
of equal speed stay below it, and so offer after equal numbers of steps, run after run."""


_ROUNDS_SEEN = 4
"""Rounds from whose cost the interval is chosen; one alone may have met a busy machine."""

_SLOT_MAX = 1000
"""Training steps that no slot is longer than."""


@dataclass(frozen=True)
class OuterRound:
    """What one round did, for the metrics.

    Attributes:
        round: Its number, from 1.
        fragment: Which part of the parameters.
        sites: Whose offers were averaged.
        norm: Of the averaged pseudo-gradient.
        cosine: Between the pseudo-gradients of two sites; ``None`` if they did not come apart.
        stale_steps: Training steps from this site's offer to the result taken in.
        epsilon: What this site's updates had told about it by then; ``None`` where it is not
            counted.
    """

    round: int
    fragment: int
    sites: tuple[str, ...]
    norm: float
    cosine: float | None
    stale_steps: int
    epsilon: float | None = None


class OuterSync:
    """Keeps the weights of this site in step with those of the other sites.

    Attributes:
        done: Rounds taken in since the caller last took them.
    """

    def __init__(
        self, agreement: Agreement, peers: Peers, interval_steps: int, last_passes: int = 2
    ) -> None:
        """Begin with weights that are equal at all sites.

        Args:
            agreement: The weights, and what the sites agree on.
            peers: The other sites; their rounds must ``combine`` by this object's ``combine``.
            interval_steps: Training steps from an offer of a fragment to the next of the same; 0:
                as few as keep the work for rounds to a small share of the training.
            last_passes: Rounds of each fragment after the last step; equal at all sites.
        """
        self.done: list[OuterRound] = []
        self._agreement, self._peers = agreement, peers
        self._last_passes = last_passes
        self._slot = _Slot(interval_steps, len(agreement))
        self._steps_since = self._stale_steps = 0
        self._offered_s = peers.now_s()
        self._slot_s = float("inf")
        peers.rounds.payload_bytes = self._payload_bytes
        peers.check_state = agreement.check

    def after_step(self, tokens: float) -> None:
        """Do what is due after a training step on so many tokens; never waits."""
        began_s = self._peers.now_s()
        with self._peers.exposed():
            self._agreement.train(tokens)
            self._steps_since += 1
            self._stale_steps += 1
            self._peers.pump()
            self._turn(due=self._is_due())
        self._slot.note(began_s, self._peers.now_s())

    def join(self, patience_s: float, should_stop: Callable[[], bool] = never) -> list[str]:
        """As ``meeting.join``."""
        return join(self._peers, self._attend, patience_s, should_stop)

    def finish(self, patience_s: float) -> None:
        """Bring all sites to one model after the last training step, and leave.

        Waits for sites that still train, and for each of the last rounds, ``patience_s`` at most.
        """
        rounds = self._peers.rounds
        await_done(self._peers, self._follow, patience_s)
        last = rounds.last_done() + self._last_passes * len(self._agreement)
        deadline_s = self._peers.now_s() + patience_s
        while rounds.version < last and self._peers.now_s() < deadline_s:
            if not (rounds.leader() or rounds.is_outdone()):
                break  # who leaves first leaves too few for a round: its result is on the way
            version = rounds.version
            self._turn(due=True)
            self._peers.pump(LOOK_S)
            if rounds.version > version:
                deadline_s = self._peers.now_s() + patience_s
        self._take_in()
        if rounds.version >= last:
            self._agreement.level()
        part(self._peers, patience_s)

    def state_dict(self) -> dict[str, Any]:
        """Return what this site needs to go on after a stop; rounds that ended are taken in."""
        self._take_in()
        rounds = self._peers.rounds
        return {
            "steps_since": self._steps_since,
            "version": rounds.version,
            "chain": rounds.chain,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there; before ``join``."""
        self._steps_since = state["steps_since"]
        self._peers.rounds.version, self._peers.rounds.chain = state["version"], state["chain"]

    def combine(self, given: Sequence[Given]) -> Buffer:
        """Return one payload for the next round's result, out of several."""
        parts = [(part.weight, as_payload(part.payload)) for part in given]
        return as_buffer(self._agreement.combine(self._next(), parts))

    def _next(self) -> int:
        """Return the fragment of the next round."""
        return self._peers.rounds.version % len(self._agreement)

    def _payload_bytes(self, number: int) -> int:
        return self._agreement.payload_bytes((number - 1) % len(self._agreement))

    def _is_due(self) -> bool:
        if self._steps_since >= self._slot.steps:
            return True
        opened_s = self._peers.rounds.due_since_s()
        return opened_s is not None and (
            self._peers.now_s() - opened_s >= _FOLLOW_SHARE * self._slot_s
        )

    def _turn(self, *, due: bool) -> None:
        """Take results in, offer, and serve newcomers, as far as each is due."""
        rounds = self._peers.rounds
        if rounds.settled and (due or not _is_usual(rounds.settled[0])):
            self._take_in()
        if due and not rounds.is_offered() and rounds.leader() and not rounds.is_behind():
            self._offer()
            self._peers.pump()
        self._serve()

    def _attend(self) -> None:
        """Take results in and serve newcomers: sites that wait for each other need both."""
        self._take_in()
        self._serve()

    def _follow(self) -> None:
        """Take part in what others ask for, and in nothing else."""
        self._turn(due=self._peers.rounds.due_since_s() is not None)

    def _offer(self) -> None:
        now_s = self._peers.now_s()
        self._slot_s, self._offered_s = now_s - self._offered_s, now_s
        self._slot.offered()
        self._steps_since = self._stale_steps = 0
        tokens, payload = self._agreement.offer(self._next())
        self._peers.rounds.offer(tokens, as_buffer(payload), now_s)

    def _take_in(self) -> None:
        settled = self._peers.rounds.settled
        for what in settled:
            match what:
                case Outcome():
                    self._apply(what)
                case Adopted():
                    self._agreement.unpack(what.body)
        settled.clear()

    def _apply(self, outcome: Outcome) -> None:
        number = (outcome.round - 1) % len(self._agreement)
        parts = [(part.weight, as_payload(part.payload)) for part in outcome.parts]
        moved = self._agreement.settle(number, parts, included=outcome.included)
        self.done.append(
            OuterRound(
                round=outcome.round,
                fragment=number,
                sites=tuple(name for part in outcome.parts for name in part.sites),
                norm=moved.norm,
                cosine=moved.cosine,
                stale_steps=self._stale_steps,
            )
        )

    def _serve(self) -> None:
        """Give a whole state to those who lack it."""
        lacking = self._peers.rounds.wants_state()
        if lacking:
            self._take_in()
            body = (self._agreement.pack(),)
            for peer in lacking:
                self._peers.rounds.give_state(peer, body)
            self._peers.pump()


class _Slot:
    """How many training steps lie between two offers.

    Attributes:
        steps: As many; from 1.
    """

    def __init__(self, interval_steps: int, fragments: int) -> None:
        self.steps = max(1, round(interval_steps / fragments))
        self._is_told = interval_steps > 0
        self._ended_s: float | None = None
        self._work_s = self._train_s = 0.0
        self._steps_seen = self._rounds_seen = 0

    def note(self, began_s: float, ended_s: float) -> None:
        """Count a training step, and the work after it that lay between two times."""
        if self._is_told:
            return
        if self._ended_s is not None:
            self._train_s += began_s - self._ended_s
            self._steps_seen += 1
        self._ended_s = ended_s
        self._work_s += ended_s - began_s

    def offered(self) -> None:
        """Choose anew for the next round; every few rounds, from what has been seen in them."""
        self._rounds_seen += 1
        if self._is_told or self._rounds_seen < _ROUNDS_SEEN or not self._steps_seen:
            return
        step_s = self._train_s / self._steps_seen
        round_s = self._work_s / self._rounds_seen
        wanted = math.ceil(round_s / max(OUTER_WORK_SHARE * step_s, 1e-9))
        self.steps = min(max(1, wanted), _SLOT_MAX)
        self._work_s = self._train_s = 0.0
        self._steps_seen = self._rounds_seen = 0


def _is_usual(what: Outcome | Adopted) -> bool:
    """Return whether this is the round that this site took part in, and not something it missed."""
    return isinstance(what, Outcome) and what.included
