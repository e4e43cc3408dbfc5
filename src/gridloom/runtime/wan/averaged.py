"""Gradients that sites average, bucket by bucket, as one rank of a site holds them."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from gridloom.runtime.wan.fragments import Fragments
from gridloom.runtime.wan.history import Buffer
from gridloom.runtime.wan.outer import Parts, average
from gridloom.runtime.wan.state import InnerState, check_state, pack_state, unpack_state


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

    def withdraw(self, payload: Tensor, values: Tensor) -> None:
        """Undo ``encode``: the payload was not used, and the values will not come again."""
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


@runtime_checkable
class Staged(Protocol):
    """An encoder whose payloads have another size from some rounds on."""

    def stages(self) -> list[int]:
        """Return these rounds, the first of all, 1, too."""
        ...

    def at(self, round_: int) -> None:
        """Note that payloads are for rounds of the stage that begins with this one."""
        ...

    def size_at(self, numbers: int, round_: int) -> int:
        """Return the size of the payload of so many numbers in a round."""
        ...

    def for_averages(self) -> Encoder:
        """Return one for averages of what such encoders have sent."""
        ...


@dataclass(frozen=True)
class Trained:
    """What the sites keep equal, as far as this rank owns it.

    Attributes:
        weights: The weights, a bucket each, in one fragment.
        gradients: Returns those of a bucket where they are now: means over the site's tokens.
        inner: What a newcomer is given beside the weights.
        update: Changes the weights by the gradients, those of copies at other ranks too.
    """

    weights: Sequence[Fragments]
    gradients: Callable[[int], Fragments]
    inner: InnerState
    update: Callable[[], None]


class Averaged(Protocol):
    """The gradients of a site's training step, and the model they are of.

    ``keep`` comes after the backward pass and ``let_go`` at the end of the step; a bucket may be
    encoded before. These and ``begin`` are called by every rank of the site, everything else by
    the first.
    """

    def stages(self) -> list[int]:
        """Return the rounds from which on payloads have another size: 1, and perhaps others."""
        ...

    def at(self, stage: int) -> None:
        """Begin with payloads of a stage; what was encoded of this step is undone."""
        ...

    def sizes_bytes(self, stage: int = 1) -> list[int]:
        """Return the size of the payload of every bucket in a stage."""
        ...

    def begin(self, sums: int) -> None:
        """Note that the gradients of this step are sums over so many batches; else over one."""
        ...

    def keep(self) -> list[int]:
        """Note the gradients of this step: updates that are made up for overwrite them.

        Returns:
            Buckets that were encoded before and have changed since; that is undone.
        """
        ...

    def let_go(self) -> None:
        """The step is over: its gradients are used, dropped or sent."""
        ...

    def encode(self, bucket: int) -> Tensor:
        """Return the payload, uint8, of a bucket's gradients in this step.

        Raises:
            NotFiniteError: They are not all finite; on every rank.
        """
        ...

    def take_back(self) -> None:
        """Count the payloads of this step as lost: nobody has used them."""
        ...

    def drop(self) -> None:
        """Forget the gradients of this step, as if there had been no such step."""
        ...

    def combine(self, bucket: int, parts: Parts) -> Tensor:
        """Return one payload for the average of several."""
        ...

    def take(self, bucket: int, parts: Parts) -> None:
        """Make the average of payloads a bucket's gradients."""
        ...

    def update(self) -> None:
        """Make the update, with the buckets as they were taken."""
        ...

    def go_alone(self, *, as_sent: bool) -> Buffer:
        """Make the update with this step's own gradients; return what tells it from any other.

        Args:
            as_sent: As the payloads have them, so that what the encoders have kept of them is not
                in this update as well.
        """
        ...

    def pack(self) -> Buffer:
        """Return all that a newcomer needs."""
        ...

    def check(self, body: Buffer) -> None:
        """Raise ``MessageError`` if ``unpack`` could not take a state over; nothing changes."""
        ...

    def unpack(self, body: Buffer) -> None:
        """Take over what another site's ``pack`` gave."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return what this rank needs to go on after a stop."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        ...


class OwnAveraged(Averaged, Protocol):
    """What one of several ranks of a site has of it."""

    def follow_up(self, body: Buffer) -> None:
        """Take over what goes with the weights in a state, on a rank that owns none of them."""
        ...


class LocalGradients:
    """What this rank owns (plays ``Averaged`` for a site of one rank)."""

    def __init__(self, trained: Trained, encoders: Sequence[Callable[[], Encoder]]) -> None:
        """Join what belongs together.

        Args:
            trained: The model.
            encoders: Makes one for each bucket: for its gradients, and one more for averages if
                this site combines payloads of others.
        """
        self._trained = trained
        self._numbers = [weights.numbers(0) for weights in trained.weights]
        self._makers = list(encoders)
        self._encoders = [make() for make in encoders]
        self._average_encoders: dict[int, Encoder] = {}
        self._kept: dict[int, Tensor] = {}
        self._sent: dict[int, Tensor] = {}
        self._sums = 1
        self._stage = 1

    def stages(self) -> list[int]:
        """As ``Averaged``."""
        staged = [one.stages() for one in self._encoders if isinstance(one, Staged)]
        return staged[0] if staged else [1]

    def at(self, stage: int) -> None:
        """As ``Averaged``."""
        self.drop()
        self._stage = stage
        for one in (*self._encoders, *self._average_encoders.values()):
            if isinstance(one, Staged):
                one.at(stage)

    def begin(self, sums: int) -> None:
        """As ``Averaged``."""
        self._sums = sums

    def sizes_bytes(self, stage: int = 1) -> list[int]:
        """As ``Averaged``."""
        pairs = zip(self._encoders, self._numbers, strict=True)
        return [
            one.size_at(numbers, stage) if isinstance(one, Staged) else one.size_bytes(numbers)
            for one, numbers in pairs
        ]

    def keep(self) -> list[int]:
        """As ``Averaged``."""
        changed = []
        for bucket in range(len(self._numbers)):
            values = self._read(bucket)
            if bucket in self._sent and not torch.equal(values, self._kept[bucket]):
                self._withdraw(bucket)
                changed.append(bucket)
            self._kept[bucket] = values
        return changed

    def let_go(self) -> None:
        """As ``Averaged``."""
        self._kept.clear()
        self._sent.clear()
        self._sums = 1

    def encode(self, bucket: int) -> Tensor:
        """As ``Averaged``."""
        if bucket not in self._sent:
            if bucket not in self._kept:
                self._kept[bucket] = self._read(bucket)
            self._sent[bucket] = self._encoders[bucket].encode(self._kept[bucket])
        return self._sent[bucket]

    def take_back(self) -> None:
        """As ``Averaged``."""
        for bucket, payload in self._sent.items():
            self._encoders[bucket].take_back(payload)

    def drop(self) -> None:
        """As ``Averaged``."""
        for bucket in sorted(self._sent):
            self._withdraw(bucket)

    def combine(self, bucket: int, parts: Parts) -> Tensor:
        """As ``Averaged``.

        What this loses is made good in the next round that this site leads (Tang et al., 2019).
        """
        if bucket not in self._average_encoders:
            self._average_encoders[bucket] = self._for_averages(bucket)
        return self._average_encoders[bucket].encode(self._mean(bucket, parts))

    def take(self, bucket: int, parts: Parts) -> None:
        """As ``Averaged``."""
        self._trained.gradients(bucket).write(0, self._mean(bucket, parts))

    def update(self) -> None:
        """As ``Averaged``."""
        self._trained.update()

    def go_alone(self, *, as_sent: bool) -> Buffer:
        """As ``Averaged``; returns a digest of 16 bytes."""
        if not as_sent:
            self.drop()
        digest = hashlib.blake2b(digest_size=16)
        for bucket, kept in sorted(self._kept.items()):
            values = self._decode(bucket, self._sent[bucket]) if as_sent else kept
            self._trained.gradients(bucket).write(0, values)
            digest.update(values.view(torch.uint8).numpy().data)
        self._trained.update()
        return digest.digest()

    def pack(self) -> Buffer:
        """As ``Averaged``."""
        weights = enumerate(self._trained.weights)
        return pack_state({f"weights.{n}": one.read(0) for n, one in weights}, self._trained.inner)

    def check(self, body: Buffer) -> None:
        """As ``Averaged``."""
        numbers = {f"weights.{bucket}": count for bucket, count in enumerate(self._numbers)}
        check_state(body, numbers, self._trained.inner)

    def unpack(self, body: Buffer) -> None:
        """As ``Averaged``."""
        state = unpack_state(body, self._trained.inner)
        for bucket, weights in enumerate(self._trained.weights):
            weights.write(0, state[f"weights.{bucket}"])

    def follow_up(self, body: Buffer) -> None:
        """As ``OwnAveraged``."""
        unpack_state(body, self._trained.inner)

    def state_dict(self) -> dict[str, Any]:
        """As ``Averaged``; between two steps."""
        return {
            "own": {str(n): one.state_dict() for n, one in enumerate(self._encoders)},
            "average": {str(n): one.state_dict() for n, one in self._average_encoders.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As ``Averaged``."""
        for bucket, encoder in enumerate(self._encoders):
            encoder.load_state_dict(state["own"][str(bucket)])
        for bucket in range(len(self._makers)):
            if str(bucket) in state["average"]:
                self._average_encoders[bucket] = self._for_averages(bucket)
                self._average_encoders[bucket].load_state_dict(state["average"][str(bucket)])

    def _for_averages(self, bucket: int) -> Encoder:
        made = self._makers[bucket]()
        if not isinstance(made, Staged):
            return made
        made.at(self._stage)
        return made.for_averages()

    def _read(self, bucket: int) -> Tensor:
        values = self._trained.gradients(bucket).read(0)
        return values if self._sums == 1 else values.div_(self._sums)

    def _withdraw(self, bucket: int) -> None:
        self._encoders[bucket].withdraw(self._sent.pop(bucket), self._kept[bucket])

    def _decode(self, bucket: int, payload: Tensor) -> Tensor:
        return self._encoders[bucket].decode(payload, self._numbers[bucket])

    def _mean(self, bucket: int, parts: Parts) -> Tensor:
        return average([(weight, self._decode(bucket, payload)) for weight, payload in parts])
