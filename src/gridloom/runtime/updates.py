"""One model at several sites: the update of a training step, whatever the sites exchange.

A training loop calls ``step`` after ``backward``; what the sites exchange, and when, follows from
the job's ``SiteSync``. With one site nothing is exchanged.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gridloom.base.codec import encode
from gridloom.base.errors import InputError, Problem
from gridloom.base.system import SystemIds
from gridloom.model.parallel import SiteSync
from gridloom.runtime.run import Run
from gridloom.runtime.wan.agreement import Agreement, LocalAgreement
from gridloom.runtime.wan.events import LinkFacts
from gridloom.runtime.wan.fragments import Fragments
from gridloom.runtime.wan.gradient_sync import GradientSync, Trained
from gridloom.runtime.wan.history import Buffer, Given
from gridloom.runtime.wan.methods import check, codec, encoder
from gridloom.runtime.wan.outer import Fragment, OuterRule
from gridloom.runtime.wan.outer_sync import OuterRound, OuterSync
from gridloom.runtime.wan.peers import Peers
from gridloom.runtime.wan.ranks import SiteAgreement
from gridloom.runtime.wan.rounds import RoundPolicy, Rounds
from gridloom.runtime.wan.settings import Endpoint, TransportSettings
from gridloom.runtime.wan.state import OptimizerState
from gridloom.runtime.wan.transport import Transport

if TYPE_CHECKING:  # a site of one rank does without it
    from gridloom.runtime.inside.site_model import SiteModel


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
    """Makes the updates of one rank, and keeps its model and the other sites' one.

    All ranks of a site make the same calls. The first rank speaks to the other sites.
    """

    each_rank = True
    """A checkpoint keeps every rank's own state."""

    def __init__(
        self,
        run: Run,
        model: "nn.Module | SiteModel",
        optimizer: torch.optim.Optimizer,
        how: SiteSync,
        options: SyncOptions,
    ) -> None:
        """Begin; the other sites are met before the first update.

        Raises:
            InputError: The method cannot be, or not with this model.
        """
        check(how)
        self._run, self._how, self._options = run, how, options
        self._optimizer = optimizer
        self._cut = None if isinstance(model, nn.Module) else model
        module = model if isinstance(model, nn.Module) else model.module
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        self._check_ranks()
        self._since_update = 0
        self._tokens = 0.0
        self._peers: Peers | None = None
        self._ranks: SiteAgreement | None = None
        self._agreement: Agreement | None = None
        self._outer: OuterSync | None = None
        self._gradients: GradientSync | None = None
        self._is_met = len(run.place.sites) == 1
        if not self._is_met:
            self._connect(module)

    def step(self, tokens: float = 1.0) -> bool:
        """Make the update that the gradients call for, and set them to zero.

        Args:
            tokens: Behind this rank's gradients, which are means over them: how much they count
                beside other sites'.

        Returns:
            Whether there was an update: with ``accumulated``, gradients of ``every`` calls are
            gathered first.

        Raises:
            InputError: Another site trains something else, or ``tokens`` is no number of tokens.
        """
        if not 0 <= tokens < math.inf:
            raise InputError(f"a training step on {tokens:g} tokens; it is a number from 0")
        self._meet()
        if self._cut is not None:
            self._cut.finish()
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
        self._after_step(self._tokens)
        self._zero()
        self._since_update, self._tokens = 0, 0.0
        return True

    def finish(self) -> None:
        """Bring all sites to one model after the last step, and part from them."""
        self._meet()
        patience_s = self._options.patience_s
        if self._outer is not None:
            self._outer.finish(patience_s)
        if self._gradients is not None:
            self._gradients.finish(patience_s)
        self._let_go_on()
        self._outer = self._gradients = self._peers = self._ranks = None

    def present(self) -> list[str]:
        """Return the sites in contact, this one too; nothing on other ranks than the first."""
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

    def state_dict(self) -> dict[str, Any]:
        """Return all that this rank needs to go on after a stop; all ranks must call it."""
        state: dict[str, Any] = {"since_update": self._since_update, "tokens": self._tokens}
        if self._since_update:  # gradients that are half gathered
            state["gradients"] = {
                str(number): parameter.grad
                for number, parameter in enumerate(self._parameters)
                if parameter.grad is not None
            }
        inner = self._outer or self._gradients
        if inner is not None:
            state["sync"] = inner.state_dict()
        self._let_go_on()
        if self._agreement is not None:
            state["agreement"] = self._agreement.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there; before the first step."""
        self._since_update, self._tokens = state["since_update"], state["tokens"]
        for number, gradient in state.get("gradients", {}).items():
            parameter = self._parameters[int(number)]
            if parameter.grad is None:
                parameter.grad = gradient.clone()
            else:
                parameter.grad.copy_(gradient)
        inner = self._outer or self._gradients
        if inner is not None and "sync" in state:
            inner.load_state_dict(state["sync"])
        if self._agreement is not None and "agreement" in state:
            self._agreement.load_state_dict(state["agreement"])

    def _check_ranks(self) -> None:
        place = self._run.place
        if place.size == 1:
            return
        if self._cut is None:
            text = "a module of one rank, in a site that has several"
            remedy = "give gl.sync what gl.parallelize returned"
            raise InputError([Problem(text, remedy=remedy, field="model")])
        if len(place.sites) > 1 and self._how.kind != "outer":
            text = f"{self._how.kind} is for sites of one rank; here each has {place.size}"
            raise InputError([Problem(text, remedy="take outer", field="sync.kind")])

    def _connect(self, module: nn.Module) -> None:
        names = [(name, tuple(p.shape)) for name, p in module.named_parameters()]
        combine = _Combine()
        is_first = self._run.place.is_first
        if is_first:
            settings = _digest(self._how, names)
            self._peers = connect(self._run, self._options, settings, combine, self._how)
            self._peers.rounds.chain = _fingerprint(self._owned())
        if self._how.kind == "outer":
            self._agreement = agreement = self._agree()
            if self._peers is not None:
                self._outer = OuterSync(agreement, self._peers, self._how.every)
                combine.by = self._outer.combine
        elif self._peers is not None:
            self._gradients = self._average(self._peers)
            combine.by = self._gradients.combine

    def _agree(self) -> Agreement:
        """Return what this site agrees on with the others, as this rank holds it."""
        how = self._how
        fragments = Fragments(self._owned(), how.fragments)
        rule = OuterRule(how.outer_learning_rate, how.outer_momentum)
        agreed = [Fragment(fragments.read(i), rule, codec(how)) for i in range(len(fragments))]
        own = LocalAgreement(fragments, agreed, OptimizerState(self._optimizer))
        if self._cut is None or self._run.place.size == 1:
            return own
        self._ranks = SiteAgreement(own, self._cut.spread)
        return self._ranks

    def _owned(self) -> list[Tensor]:
        """Return the weights that this rank speaks for, as plain tensors."""
        if self._cut is None:
            return list(self._parameters)
        return [piece.tensor for piece in self._cut.parameters if piece.owner]

    def _average(self, peers: Peers) -> GradientSync:
        """Return what averages this rank's gradients with those of other sites."""
        parameters, how = self._parameters, self._how
        weights = Fragments(parameters, 1)
        shapes = [p.shape for p in parameters]
        own, ours = (encoder(how, weights.numbers(0), shapes) for _ in range(2))
        inner = OptimizerState(self._optimizer)
        trained = Trained(weights, self._present_gradients, inner, self._update)
        return GradientSync(trained, (own, ours), peers)

    def _present_gradients(self) -> Fragments:
        """Return the gradients where they are now; zeros for parameters without one."""
        for parameter in self._parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        return Fragments([p.grad for p in self._parameters if p.grad is not None], 1)

    def _meet(self) -> None:
        """Meet the other sites, once, and take over what they have if this site is behind."""
        if self._is_met:
            return
        self._is_met = True
        inner = self._outer or self._gradients
        if inner is not None:
            inner.join(self._options.patience_s)
        self._let_go_on()

    def _after_step(self, tokens: float) -> None:
        if self._agreement is None:
            return
        if self._ranks is not None:
            total = torch.tensor([tokens], dtype=torch.float64)
            dist.all_reduce(total)
            tokens = float(total)
        if self._outer is not None:
            self._outer.after_step(tokens)
        else:
            self._agreement.train(tokens)
        self._let_go_on()

    def _let_go_on(self) -> None:
        """Let the other ranks carry out what the first has decided, and all go on with it."""
        if self._ranks is not None:
            if self._run.place.is_first:
                self._ranks.end()
            else:
                self._ranks.follow()

    def _update(self) -> None:
        norm = self._options.clip_norm
        if norm > 0:
            if self._cut is not None:
                self._cut.clip(norm)
            else:
                nn.utils.clip_grad_norm_(self._parameters, norm)
        self._optimizer.step()

    def _zero(self) -> None:
        if self._cut is not None:
            self._cut.gradients.zero()
        else:
            self._optimizer.zero_grad()


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
        Endpoint(name=place.site, listen=place.speakers[place.site], token=place.job_id),
        {name: address for name, address in place.speakers.items() if name != place.site},
        settings=options.transport,
        clock=run.clock,
        ids=SystemIds(),
    )
    transport.start()
    return Peers(rounds, transport, run.clock)


def _fingerprint(weights: Sequence[Tensor]) -> str:
    """Return what names the weights that a training begins with: another start, another chain."""
    digest = hashlib.blake2b(digest_size=8)
    for tensor in weights:
        digest.update(tensor.detach().cpu().float().numpy().tobytes())
    return digest.hexdigest()


def _digest(how: SiteSync, shapes: Sequence[tuple[str, tuple[int, ...]]]) -> str:
    """Return what sites compare before they train together."""
    return hashlib.blake2b(encode((how, shapes)), digest_size=8).hexdigest()
