"""Sites that average their gradients before an update, whole or compressed.

An update waits for the sites that are in contact, and for no others: a site that cannot be heard,
or does not answer within the rounds' patience, is left out of it. A site without a quorum goes on
with its own gradients, and takes the others' state over when they are back. Before it counts as
lost, a site that was in contact is waited for, as long as the rounds' policy says.

Gradients are cut into buckets. The payload of a round is that of all buckets, so that a round holds
a whole step or nothing of it; but what is ready of it is sent ahead, while the rest is still made.
A few plain numbers may ride at its end: every site gives its own, and gets the sums.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from gridloom.runtime.compress import NotFiniteError
from gridloom.runtime.failure import PeerLostError
from gridloom.runtime.wan.averaged import Averaged
from gridloom.runtime.wan.history import Buffer, Given
from gridloom.runtime.wan.meeting import await_done, join, never, part
from gridloom.runtime.wan.outcome import Adopted, Outcome
from gridloom.runtime.wan.outer import Parts
from gridloom.runtime.wan.peers import LOOK_S, Peers
from gridloom.runtime.wan.state import as_buffer, as_payload


@dataclass(frozen=True)
class Riders:
    """Plain numbers at the end of every payload, and who wants to know of them.

    Attributes:
        count: How many there are.
        should_stop: Whether this process was asked to stop.
    """

    count: int = 0
    should_stop: Callable[[], bool] = never

    @property
    def size_bytes(self) -> int:
        """What they add to a payload."""
        return 8 * self.count

    def of(self, numbers: Sequence[float]) -> list[Tensor]:
        """Return numbers as the end of a payload; nothing if none are to ride."""
        rode = torch.tensor(numbers, dtype=torch.float64).view(torch.uint8)
        return [rode] if self.count else []

    def sums(self, given: Sequence[Given]) -> tuple[float, ...]:
        """Return what rides on payloads, summed up."""
        total = torch.zeros(self.count, dtype=torch.float64)
        for one in given if self.count else ():
            total += as_payload(one.payload)[-self.size_bytes :].clone().view(torch.float64)
        return tuple(total.tolist())


class GradientSync:
    """Averages the gradients of a site with those of others.

    Attributes:
        sums: What rode with the gradients of the last update, summed over the sites in it.
    """

    def __init__(self, averaged: Averaged, peers: Peers, riders: Riders | None = None) -> None:
        """Begin with weights that are equal at all sites.

        Args:
            averaged: The gradients.
            peers: The other sites; their rounds must ``combine`` by this object's ``combine``.
            riders: What rides along; by default nothing.
        """
        self.sums: tuple[float, ...] = ()
        self._riders = riders or Riders()
        self._averaged, self._peers = averaged, peers
        self._stages = averaged.stages()
        sizes_bytes = {stage: averaged.sizes_bytes(stage) for stage in self._stages}
        self._all_spans = {stage: _spans(sizes) for stage, sizes in sizes_bytes.items()}
        rode = self._riders.size_bytes
        self._all_bytes = {stage: sum(sizes) + rode for stage, sizes in sizes_bytes.items()}
        self._stage = self._stages[0]
        self._ahead = 0
        peers.rounds.payload_bytes = self._payload_bytes
        peers.check_state = averaged.check

    def begin(self, bucket: int) -> None:
        """Send a bucket of a step ahead, if it is its turn and there is anybody to send it to.

        The last one goes with the offer.
        """
        rounds = self._peers.rounds
        is_next = bucket == self._ahead and bucket < len(self._spans) - 1
        if not is_next or rounds.settled or not rounds.leader() or rounds.is_behind():
            return
        self._turn_to(rounds.version + 1)
        with contextlib.suppress(NotFiniteError):  # `exchange` will meet it again
            self._send_ahead(bucket)

    def exchange(self, tokens: float, numbers: Sequence[float] = ()) -> bool:
        """Make the update of one training step from all sites' gradients.

        Updates of rounds that the others have ended since the last call are made first. Then this
        site's gradients, though they are of the weights before, go into the next round, with which
        the update is made; or it is made with them alone, if no round comes about.

        Args:
            tokens: Behind this site's gradients.
            numbers: That ride along, as many as the riders say.

        Returns:
            Whether they are in what the sites agree on.

        Raises:
            NotFiniteError: They are not finite; nothing was sent, and there was no update.
            PeerLostError: This site is to stop, and waits for one that was lost.
        """
        self.sums = tuple(numbers)
        with self._peers.exposed():
            return self._exchange(tokens)

    def _exchange(self, tokens: float) -> bool:
        """Return whether this site's gradients are in what the sites agree on now."""
        rounds = self._peers.rounds
        self._peers.pump()
        has_missed = bool(rounds.settled)
        is_of_another_model = any(isinstance(what, Adopted) for what in rounds.settled)
        self._take_in()
        shared = False
        if self._is_held() and not rounds.is_behind() and not is_of_another_model:
            shared = self._share(tokens)
        elif has_missed:
            self._averaged.drop()
        else:
            self._go_alone(as_sent=False)
        self._ahead = 0
        self._serve()
        return shared

    def join(self, patience_s: float, should_stop: Callable[[], bool] = never) -> list[str]:
        """As ``meeting.join``."""
        return join(self._peers, self._follow, patience_s, should_stop)

    def finish(self, patience_s: float) -> None:
        """Follow those who still train after the last update here, and leave."""
        await_done(self._peers, self._follow, patience_s)
        part(self._peers, patience_s)

    def state_dict(self) -> dict[str, Any]:
        """Return what this site needs to go on after a stop; rounds that ended are taken in."""
        self._take_in()
        return {"version": self._peers.rounds.version, "chain": self._peers.rounds.chain}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there; before ``join``."""
        self._peers.rounds.version, self._peers.rounds.chain = state["version"], state["chain"]

    def combine(self, given: Sequence[Given]) -> Buffer:
        """Return one payload for the next round's result, out of several."""
        self._turn_to(self._peers.rounds.version + 1)
        payloads = [
            self._averaged.combine(bucket, self._parts(given, bucket))
            for bucket in range(len(self._spans))
        ]
        return as_buffer(torch.cat([*payloads, *self._riders.of(self._riders.sums(given))]))

    @property
    def _spans(self) -> list[slice]:
        """Where the payload of each bucket lies in that of all, in this stage."""
        return self._all_spans[self._stage]

    def _stage_of(self, number: int) -> int:
        """Return the stage that a round is of."""
        return max(stage for stage in self._stages if stage <= number)

    def _payload_bytes(self, number: int) -> int:
        return self._all_bytes[self._stage_of(number)]

    def _turn_to(self, number: int) -> None:
        """Go on with payloads of the size that they have in a round."""
        stage = self._stage_of(number)
        if stage != self._stage:
            self._averaged.at(stage)
            self._stage, self._ahead = stage, 0

    def _parts(self, given: Sequence[Given], bucket: int) -> Parts:
        """Return a bucket's share of payloads."""
        return [(one.weight, as_payload(one.payload)[self._spans[bucket]]) for one in given]

    def _share(self, tokens: float) -> bool:
        """Hold a round; return whether this site's gradients are in it."""
        rounds = self._peers.rounds
        self._turn_to(rounds.version + 1)
        rounds.offer(tokens, self._offered(), self._peers.now_s())
        # a leader that does not answer is counted out after twice the patience, and the next leads
        deadline_s = self._peers.now_s() + 4 * rounds.patience_s
        while not rounds.settled and self._is_held() and self._peers.now_s() < deadline_s:
            self._serve()
            self._peers.pump(LOOK_S)
        if not rounds.settled:
            self._go_alone(as_sent=True)
            return False
        shared = self._take_in()
        if not shared:
            self._averaged.take_back()
        return shared

    def _is_held(self) -> bool:
        """Return whether a round is held now, or when a site that was just lost is back in time."""
        missing = self._peers.rounds.missing(self._peers.now_s())
        if missing and self._riders.should_stop():
            raise PeerLostError(f"{', '.join(missing)} went away")
        return bool(missing or self._peers.rounds.leader())

    def _offered(self) -> Buffer:
        """Return the payload of the whole step; all but its last bucket is on its way already."""
        try:
            while self._ahead < len(self._spans) - 1:
                self._send_ahead(self._ahead)
            payloads = [self._averaged.encode(bucket) for bucket in range(len(self._spans))]
        except NotFiniteError:
            self._ahead = 0
            self._averaged.drop()
            raise
        whole = as_buffer(torch.cat([*payloads, *self._riders.of(self.sums)]))
        self._peers.complete(whole)
        return whole

    def _send_ahead(self, bucket: int) -> None:
        payload: Tensor = self._averaged.encode(bucket)
        self._peers.send_ahead(as_buffer(payload), begins=bucket == 0)
        self._ahead = bucket + 1

    def _go_alone(self, *, as_sent: bool) -> None:
        """Make an update that the other sites do not make."""
        self._peers.rounds.diverge(self._averaged.go_alone(as_sent=as_sent))

    def _follow(self) -> None:
        """Keep up with the others without taking part."""
        self._take_in()
        self._serve()

    def _take_in(self) -> bool:
        """Make the updates of rounds that have ended; return whether the last has an own part."""
        settled, shared = self._peers.rounds.settled, False
        for what in settled:
            match what:
                case Outcome():
                    self.sums = self._riders.sums(what.parts)
                    self._turn_to(what.round)
                    for bucket in range(len(self._spans)):
                        self._averaged.take(bucket, self._parts(what.parts, bucket))
                    self._averaged.update()
                    shared = what.included
                case Adopted():
                    self._averaged.unpack(what.body)
                    shared = False
        settled.clear()
        return shared

    def _serve(self) -> None:
        """Give a whole state to those who lack it; all rounds so far must have been taken in."""
        lacking = self._peers.rounds.wants_state()
        if lacking:
            body = (self._averaged.pack(),)
            for peer in lacking:
                self._peers.rounds.give_state(peer, body)
            self._peers.pump()


def _spans(sizes_bytes: Sequence[int]) -> list[slice]:
    """Return where things of these sizes lie, end to end."""
    return [slice(*ends) for ends in pairwise([0, *accumulate(sizes_bytes)])]
