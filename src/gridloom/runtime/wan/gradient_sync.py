"""Sites that average their gradients before an update, whole or compressed.

An update waits for the sites that are in contact, and for no others: a site that cannot be heard,
or does not answer within the rounds' patience, is left out of it. A site without a quorum goes on
with its own gradients, and takes the others' state over when they are back.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from gridloom.runtime.wan.fragments import Fragments
from gridloom.runtime.wan.history import Buffer, Given
from gridloom.runtime.wan.meeting import await_done, join
from gridloom.runtime.wan.outcome import Adopted, Outcome
from gridloom.runtime.wan.outer import average
from gridloom.runtime.wan.peers import LOOK_S, Peers
from gridloom.runtime.wan.state import (
    InnerState,
    as_buffer,
    as_payload,
    pack_state,
    unpack_state,
)


class Encoder(Protocol):
    """Turns one gradient after the other into payloads, and makes good what they lose."""

    def size_bytes(self, numbers: int) -> int:
        """Return the size of the payload of so many numbers."""
        ...

    def encode(self, values: Tensor) -> Tensor:
        """Return the payload, uint8, of fp32 ``values`` ``[n]``."""
        ...

    def take_back(self, payload: Tensor) -> None:
        """Count a payload that was not used as lost."""
        ...

    def decode(self, payload: Tensor, numbers: int) -> Tensor:
        """Return fp32 ``[numbers]`` from a payload of any site."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Return what it remembers of earlier gradients."""
        ...

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from there."""
        ...


@dataclass(frozen=True)
class Trained:
    """What the sites keep equal.

    Attributes:
        weights: The weights, in one fragment.
        gradients: Returns theirs, means over this site's tokens, in one fragment.
        inner: What a newcomer is given beside the weights.
        update: Changes the weights by the gradients.
    """

    weights: Fragments
    gradients: Callable[[], Fragments]
    inner: InnerState
    update: Callable[[], None]


class GradientSync:
    """Averages the gradients of one rank with those of its peers at other sites."""

    def __init__(self, trained: Trained, encoders: tuple[Encoder, Encoder], peers: Peers) -> None:
        """Begin with weights that are equal at all sites.

        Args:
            trained: The model.
            encoders: For this site's gradients, and for averages of more than two sites.
            peers: The other sites; their rounds must ``combine`` by this object's ``combine``.
        """
        self._trained, self._peers = trained, peers
        self._encoder, self._average_encoder = encoders
        self._numbers = trained.weights.numbers(0)
        peers.rounds.payload_bytes = lambda number: self._encoder.size_bytes(self._numbers)

    def exchange(self, tokens: float) -> bool:
        """Make the update of one training step from all sites' gradients.

        Updates of rounds that the others have ended since the last call are made first. Then this
        site's gradients, though they are of the weights before, go into the next round, with which
        the update is made; or it is made with them alone, if no round comes about.

        Args:
            tokens: Behind this site's gradients.

        Returns:
            Whether they are in what the sites agree on.
        """
        rounds = self._peers.rounds
        self._peers.pump()
        own = self._trained.gradients().read(0)  # making up for what was missed overwrites them
        has_missed = bool(rounds.settled)
        is_of_another_model = any(isinstance(what, Adopted) for what in rounds.settled)
        self._take_in()
        shared = False
        if is_of_another_model:
            pass
        elif rounds.leader() and not rounds.is_behind():
            shared = self._share(own, tokens)
        elif not has_missed:
            self._go_alone(own)
        self._serve()
        return shared

    def join(self, patience_s: float) -> list[str]:
        """As ``meeting.join``."""
        return join(self._peers, self._follow, patience_s)

    def finish(self, patience_s: float) -> None:
        """Follow those who still train after the last update here, and leave."""
        await_done(self._peers, self._follow, patience_s)
        self._peers.close(patience_s)

    def state_dict(self) -> dict[str, Any]:
        """Return what this site needs to go on after a stop; rounds that ended are taken in."""
        self._take_in()
        rounds = self._peers.rounds
        encoders = [one.state_dict() for one in (self._encoder, self._average_encoder)]
        return {"encoders": encoders, "version": rounds.version, "chain": rounds.chain}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there; before ``join``."""
        for one, its in zip((self._encoder, self._average_encoder), state["encoders"], strict=True):
            one.load_state_dict(its)
        self._peers.rounds.version, self._peers.rounds.chain = state["version"], state["chain"]

    def combine(self, given: Sequence[Given]) -> Buffer:
        """Return one payload for the next round's result, out of several."""
        return as_buffer(self._average_encoder.encode(self._mean(given)))

    def _mean(self, given: Sequence[Given]) -> Tensor:
        decode = self._encoder.decode
        return average([(g.weight, decode(as_payload(g.payload), self._numbers)) for g in given])

    def _share(self, own: Tensor, tokens: float) -> bool:
        """Hold a round; return whether this site's gradients ``[n]`` are in it."""
        rounds = self._peers.rounds
        payload = self._encoder.encode(own)
        rounds.offer(tokens, as_buffer(payload), self._peers.now_s())
        # a leader that does not answer is counted out after twice the patience, and the next leads
        deadline_s = self._peers.now_s() + 4 * rounds.patience_s
        while not rounds.settled and rounds.leader() and self._peers.now_s() < deadline_s:
            self._serve()
            self._peers.pump(LOOK_S)
        if not rounds.settled:
            # as sent, so that what the encoder has kept of them is not in this update as well
            self._go_alone(self._encoder.decode(payload, self._numbers))
            return False
        shared = self._take_in()
        if not shared:
            self._encoder.take_back(payload)
        return shared

    def _go_alone(self, gradients: Tensor) -> None:
        """Make an update with ``gradients`` ``[n]`` that the other sites do not make."""
        self._trained.gradients().write(0, gradients)
        self._trained.update()
        self._peers.rounds.diverge(as_buffer(gradients.view(torch.uint8)))

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
                    self._trained.gradients().write(0, self._mean(what.parts))
                    self._trained.update()
                    shared = what.included
                case Adopted():
                    self._adopt(what)
                    shared = False
        settled.clear()
        return shared

    def _adopt(self, adopted: Adopted) -> None:
        state = unpack_state(adopted.body, self._trained.inner)
        self._trained.weights.write(0, state["weights"])

    def _serve(self) -> None:
        """Give a whole state to those who lack it; all rounds so far must have been taken in."""
        lacking = self._peers.rounds.wants_state()
        if lacking:
            own = {"weights": self._trained.weights.read(0)}
            body = (pack_state(own, self._trained.inner),)
            for peer in lacking:
                self._peers.rounds.give_state(peer, body)
            self._peers.pump()
