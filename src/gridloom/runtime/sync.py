"""One model at several sites: the update of a training step, whatever the sites exchange.

A training loop calls ``step`` after ``backward``; what the sites exchange, and when, follows from
the job's ``SiteSync``. With one site nothing is exchanged.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from gridloom.base.codec import encode
from gridloom.base.system import SystemIds
from gridloom.model.parallel import SiteSync
from gridloom.runtime.run import Run
from gridloom.runtime.wan.events import LinkFacts
from gridloom.runtime.wan.fragments import Fragments
from gridloom.runtime.wan.gradient_sync import GradientSync, Trained
from gridloom.runtime.wan.history import Buffer, Given
from gridloom.runtime.wan.methods import check, codec, encoder
from gridloom.runtime.wan.outer import Fragment, OuterRule
from gridloom.runtime.wan.outer_sync import OuterRound, OuterSync
from gridloom.runtime.wan.peers import Peers
from gridloom.runtime.wan.rounds import RoundPolicy, Rounds
from gridloom.runtime.wan.settings import Endpoint, TransportSettings
from gridloom.runtime.wan.state import OptimizerState
from gridloom.runtime.wan.transport import Transport


@dataclass(frozen=True)
class SyncOptions:
    """What ``Sync`` is told beside the method.

    Attributes:
        clip_norm: Global norm to which gradients are clipped before an update; 0 for any.
        patience_s: How long a round waits for a site in contact, and the start and the end of the
            training for sites that are not.
        rounds: How rounds are held; its patience is overridden by ``patience_s``.
        transport: Streams, caps and certificates of the connections.
    """

    clip_norm: float = 0.0
    patience_s: float = 60.0
    rounds: RoundPolicy = field(default_factory=RoundPolicy)
    transport: TransportSettings = field(default_factory=TransportSettings)


class Sync:
    """Makes the updates of one rank, and keeps its model and the other sites' one."""

    def __init__(
        self,
        run: Run,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        how: SiteSync,
        options: SyncOptions,
    ) -> None:
        """Meet the other sites; weights must be equal everywhere.

        Raises:
            InputError: The settings cannot be, or the sites do not train the same thing.
        """
        check(how)
        self._how, self._options, self._optimizer = how, options, optimizer
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._since_update = 0
        self._tokens = 0.0
        self._peers: Peers | None = None
        self._outer: OuterSync | None = None
        self._gradients: GradientSync | None = None
        if len(run.place.sites) > 1:
            self._meet(run, model)

    def step(self, tokens: float = 1.0) -> bool:
        """Make the update that the gradients call for, and set them to zero.

        Args:
            tokens: Behind this rank's gradients, which are means over them: how much they count
                beside other sites'.

        Returns:
            Whether there was an update: with ``accumulated``, gradients of ``every`` calls are
            gathered first.
        """
        self._tokens += tokens
        self._since_update += 1
        if self._how.kind == "accumulated" and self._since_update < self._how.every:
            return False
        if self._since_update > 1:
            for parameter in self._parameters:
                if parameter.grad is not None:
                    parameter.grad.div_(self._since_update)
        if self._gradients is not None:
            self._gradients.exchange(self._tokens)
        else:
            self._update()
        if self._outer is not None:
            self._outer.after_step(self._tokens)
        self._zero()
        self._since_update, self._tokens = 0, 0.0
        return True

    def finish(self) -> None:
        """Bring all sites to one model after the last step, and part from them."""
        for sync in (self._outer, self._gradients):
            if sync is not None:
                sync.finish(self._options.patience_s)
        self._outer = self._gradients = self._peers = None

    def present(self) -> list[str]:
        """Return the other sites in contact."""
        return [] if self._peers is None else self._peers.rounds.present()

    def rounds(self) -> list[OuterRound]:
        """Return the outer rounds that have ended since the last call."""
        if self._outer is None:
            return []
        done, self._outer.done = self._outer.done, []
        return done

    def links(self) -> Mapping[str, LinkFacts]:
        """Return what is known of the link to each other site."""
        return {} if self._peers is None else self._peers.links()

    def events(self) -> list[str]:
        """Return what has happened to the connections since the last call, a sentence each."""
        if self._peers is None:
            return []
        events, self._peers.events = self._peers.events, []
        return events

    def _meet(self, run: Run, model: nn.Module) -> None:
        parameters = self._parameters
        settings = _digest(
            self._how, [(name, tuple(p.shape)) for name, p in model.named_parameters()]
        )
        combine = _Combine()
        self._peers = peers = connect(run, self._options, settings, combine, self._how)
        inner = OptimizerState(self._optimizer)
        if self._how.kind == "outer":
            fragments = Fragments(parameters, self._how.fragments)
            rule = OuterRule(self._how.outer_learning_rate, self._how.outer_momentum)
            agreed = [
                Fragment(fragments.read(i), rule, codec(self._how)) for i in range(len(fragments))
            ]
            self._outer = OuterSync(fragments, agreed, inner, peers, self._how.every)
            combine.by = self._outer.combine
            self._outer.join(self._options.patience_s)
            return
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        shapes = [p.shape for p in parameters]
        weights = Fragments(parameters, 1)
        gradients = Fragments([p.grad for p in parameters if p.grad is not None], 1)
        encoders = tuple(encoder(self._how, weights.numbers(0), shapes) for _ in range(2))
        self._gradients = GradientSync(
            Trained(weights, gradients, inner, self._update), (encoders[0], encoders[1]), peers
        )
        combine.by = self._gradients.combine
        self._gradients.join(self._options.patience_s)

    def _update(self) -> None:
        if self._options.clip_norm > 0:
            nn.utils.clip_grad_norm_(self._parameters, self._options.clip_norm)
        self._optimizer.step()

    def _zero(self) -> None:
        """Gradients that are exchanged stay where they are, in memory."""
        self._optimizer.zero_grad(set_to_none=self._gradients is None)


class _Combine:
    """Rounds are made before what combines their payloads."""

    by: Callable[[Sequence[Given]], Buffer]

    def __call__(self, given: Sequence[Given]) -> Buffer:
        return self.by(given)


def connect(
    run: Run,
    options: SyncOptions,
    settings: str,
    combine: Callable[[Sequence[Given]], Buffer],
    how: SiteSync,
) -> Peers:
    """Start the connections of this rank to its counterparts at other sites."""
    place = run.place
    # a gradient is of no use to one who missed it: such a site is given a whole state
    history_bytes = options.rounds.history_bytes if how.kind == "outer" else 0
    policy = replace(options.rounds, patience_s=options.patience_s, history_bytes=history_bytes)
    rounds = Rounds(place.site, place.sites, settings, policy, combine)
    transport = Transport(
        Endpoint(name=place.site, listen=place.lanes[place.site], token=place.job_id),
        {name: address for name, address in place.lanes.items() if name != place.site},
        settings=options.transport,
        clock=run.clock,
        ids=SystemIds(),
    )
    transport.start()
    return Peers(rounds, transport, run.clock)


def _digest(how: SiteSync, shapes: Sequence[tuple[str, tuple[int, ...]]]) -> str:
    """Return what sites compare before they train together."""
    return hashlib.blake2b(encode((how, shapes)), digest_size=8).hexdigest()
