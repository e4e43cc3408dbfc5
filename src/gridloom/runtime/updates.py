"""One model at several sites: the update of a training step, whatever the sites exchange.

A training loop calls ``step`` after ``backward``; what the sites exchange, and when, follows from
the job's ``SiteSync``. With one site nothing is exchanged.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from gridloom.base.codec import digest, encode
from gridloom.base.errors import InputError
from gridloom.model.parallel import SiteSync
from gridloom.runtime.averaging import Averaging, Owned
from gridloom.runtime.compress import NotFiniteError
from gridloom.runtime.contact import Combine, connect
from gridloom.runtime.run import Run
from gridloom.runtime.shards import Shards, check_update, clip, held, module_of, pieces_of
from gridloom.runtime.sync_metrics import RoundLog, SyncMeter, SyncMetrics
from gridloom.runtime.wan.agreement import Agreement, LocalAgreement
from gridloom.runtime.wan.buckets import gradient_of
from gridloom.runtime.wan.deep_encoder import check_optimizer
from gridloom.runtime.wan.events import LinkFacts
from gridloom.runtime.wan.fragments import Fragments
from gridloom.runtime.wan.gradient_sync import GradientSync, Riders
from gridloom.runtime.wan.local_data import PrivacySpent, PrivateAgreement, agreement, check_sites
from gridloom.runtime.wan.methods import check, codec, last_passes
from gridloom.runtime.wan.outer import Fragment, OuterRule
from gridloom.runtime.wan.outer_sync import OuterRound, OuterSync
from gridloom.runtime.wan.peers import Peers
from gridloom.runtime.wan.progress import Progress
from gridloom.runtime.wan.ranks import SiteAgreement
from gridloom.runtime.wan.rounds import RoundPolicy
from gridloom.runtime.wan.settings import TransportSettings
from gridloom.runtime.wan.site_ranks import SiteRanks
from gridloom.runtime.wan.state import OptimizerState, local

if TYPE_CHECKING:  # a site of one rank does without it
    from gridloom.runtime.inside.site_model import SiteModel


@dataclass(frozen=True)
class SyncOptions:
    """What ``Sync`` is told beside the method.

    Attributes:
        clip_norm: Global norm to which gradients are clipped before an update; 0 for any.
        patience_s: How long a round waits for a site in contact, and the start and the end of the
            training for sites that are not.
        bucket_bytes: Of gradients that are sent together, as soon as the backward pass has them
            all (Li et al. 2020, section 5.3, have 25 MiB); 0 for all of them at once.
        rounds: How rounds are held; its patience is overridden by ``patience_s``.
        transport: Streams, caps and certificates of the connections.
        identity: What sites must agree on beside model and method, as a digest.
        riders: Numbers that ride with gradients, and come back summed over the sites.
        stride: Training steps that an update stands for.
    """

    clip_norm: float = 0.0
    patience_s: float = 60.0
    bucket_bytes: int = 25 * 2**20
    rounds: RoundPolicy = field(default_factory=RoundPolicy)
    transport: TransportSettings = field(default_factory=TransportSettings)
    identity: str = ""
    riders: int = 0
    stride: int = 1


class Sync:
    """Makes the updates of one rank, and keeps its model and the other sites' one.

    All ranks of a site make the same calls. The first rank speaks to the other sites.

    Attributes:
        steps: Training steps behind the model. Who takes another site's state over takes this over.
        norm: Of the gradients of the last update, before they were clipped; 0 without clipping.
        traffic_bytes: Sent to and received from other sites, when this one left them.
        sums: The numbers that rode with the last update, summed over the sites in it; this site's
            own where gradients are not exchanged.
        meter: Measures the updates.
    """

    each_rank = True
    """A checkpoint keeps every rank's own state."""

    def __init__(
        self,
        run: Run,
        model: "nn.Module | SiteModel | Shards",
        optimizer: torch.optim.Optimizer,
        how: SiteSync,
        options: SyncOptions,
    ) -> None:
        """Begin; the other sites are met before the first update.

        Raises:
            InputError: The method cannot be, or not with this model.
        """
        check(how)
        check_sites(how.privacy, len(run.place.sites))
        check_optimizer(how, optimizer)
        self._run, self._how, self._options = run, how, options
        self._optimizer = optimizer
        self._cut = None if isinstance(model, nn.Module | Shards) else model
        self._held = held(model, run.place.size)
        self._held.check(how.kind, run.place.ranks_by_site)
        module = module_of(model)
        self._parameters = [p for p, _ in pieces_of(module, self._cut)]
        self.meter = SyncMeter(run, self._cut)
        self._measured = self.meter.start
        self.steps, self.norm, self.traffic_bytes = 0, 0.0, 0
        self.sums: tuple[float, ...] = ()
        self._is_restored = False
        self._since_update = 0
        self._tokens = 0.0
        self._peers: Peers | None = None
        self._told: list[str] = []
        self._log = RoundLog()
        self._ranks: SiteAgreement | None = None
        self._agreement: Agreement | None = None
        self._own: LocalAgreement | None = None
        self._outer: OuterSync | None = None
        self._averaging: Averaging | None = None
        self._is_met = self._is_alone = len(run.place.sites) == 1
        if not self._is_alone:
            self._connect(module)

    def meet(self) -> None:
        """Meet the other sites, once, and take over what they have if this site is behind.

        The first step does so too.

        Raises:
            InputError: Another site trains something else.
        """
        if self._is_met:
            return
        self._is_met = True
        if not self._is_restored:
            self._begin_with_weights()
        inner = self._speaking()
        if inner is not None and self._peers is not None:
            before = self._peers.rounds.version
            with self._peers.exposed():
                inner.join(self._options.patience_s, self._run.is_asked_to_stop)
            if isinstance(self._own, PrivateAgreement) and self._own.shield is not None:
                self._own.shield.rejoin(before, self._peers.rounds.version)
            self.meter.round = self._peers.rounds.version
        self._let_go_on()
        self._run.met()

    def step(
        self,
        tokens: float = 1.0,
        numbers: Sequence[float] = (),
        update: Callable[[], object] | None = None,
    ) -> bool:
        """Make the update that the gradients call for, and set them to zero.

        Args:
            tokens: Behind this rank's gradients, which are means over them: how much they count
                beside other sites'.
            numbers: That ride with the gradients, those of this site: equal on all its ranks.
            update: Called instead, where a library makes the update itself; it clips and sets to
                zero what it will, and may hold the passes too. For kind ``outer``.

        Returns:
            Whether there was an update: with ``accumulated``, gradients of ``every`` calls are
            gathered first.

        Raises:
            InputError: Another site trains something else, ``tokens`` is no number of tokens, or
                an ``update`` would come too late.
            PeerLostError: This process is to stop, and waits for a site that was lost.
        """
        if not 0 <= tokens < math.inf:
            raise InputError(f"a training step on {tokens:g} tokens; it is a number from 0")
        if update is not None:
            averages = self._averaging is not None or self._how.kind == "accumulated"
            check_update(self._how.kind if averages else "", self._options.clip_norm)
        self.meet()
        self.meter.phases.end("outside")
        self.sums = tuple(numbers)
        if self._cut is not None:
            self._cut.finish()
            self.meter.phases.end("within_site")
        self._tokens += tokens
        self._since_update += 1
        if self._averaging is not None:
            self._averaging.end_batch(self._since_update)
        if self._since_update < self._how.stride:
            return False
        if self._averaging is not None:
            try:
                self.sums = self._averaging.step(self._of_site(self._tokens), self.sums)
            except NotFiniteError:  # a step that is left out
                self._begin_anew()
                raise
        else:
            self._update_alone(update)
            self._train(self._tokens)
        if not self._is_alone:
            self.meter.phases.end("between_site")
        self._begin_anew(zero=update is None)
        self.meter.phases.end("optimizer")
        return True

    def metrics(self) -> SyncMetrics:
        """Return what the updates since the last call took, and what travelled behind them.

        It is measured in any case: a few looks at the clock a step. Forward and backward passes of
        a loop of one's own are not told apart: only hooks in the model could, and would slow it.
        """
        before, self._measured = self._measured, self.meter.total()
        return self._measured.since(before)

    def finish(self) -> None:
        """Bring all sites to one model after the last step, and part from them."""
        self.meet()
        patience_s, peers = self._options.patience_s, self._peers
        self.meter.phases.end("outside")
        inner = self._speaking()
        if inner is not None and peers is not None:
            with peers.exposed():
                inner.finish(patience_s)
        self._let_go_on()
        if not self._is_alone:
            self.meter.phases.end("between_site")
        self._forget_sites()

    def leave(self, patience_s: float) -> None:
        """Part from the other sites without ado, as before a stop.

        Args:
            patience_s: How long to stay in contact with those that have not ended either, so that
                what was sent to them arrives; 0 to break off, so that they find this one lost.
        """
        if self._peers is not None:
            self._peers.close(patience_s) if patience_s else self._peers.break_off()
        self._forget_sites()

    def exchange_bytes(self) -> int:
        """Return the size of all payloads with which this site once offers its whole model.

        On other ranks than the first, and with one site, 0.
        """
        sizes = None if self._peers is None else self._peers.rounds.payload_bytes
        if sizes is None:
            return 0
        payloads = len(self._agreement) if self._agreement is not None else 1
        return sum(sizes(number) for number in range(1, payloads + 1))

    def present(self) -> list[str]:
        """Return the sites in contact, this one too; nothing on other ranks than the first."""
        return [] if self._peers is None else self._peers.rounds.present()

    def rounds(self) -> list[OuterRound]:
        """Return the outer rounds that have ended since the last call."""
        self._note_rounds()
        return self._log.take()

    def unreported(self) -> list[OuterRound]:
        """Return the outer rounds that have ended since the last call of this method."""
        self._note_rounds()
        return self._log.take_unreported()

    def privacy(self) -> PrivacySpent | None:
        """Return what this site's updates have told about it so far.

        Nothing where updates are not clipped, and on other ranks than the first.
        """
        own = self._own
        if not isinstance(own, PrivateAgreement) or own.shield is None:
            return None
        return own.shield.spent() if self._run.place.is_first else None

    def links(self) -> Mapping[str, LinkFacts]:
        """Return what is known of the link to each other site."""
        return {} if self._peers is None else self._peers.links()

    def events(self) -> list[str]:
        """Return what has happened to the connections since the last call, a sentence each."""
        if self._peers is not None:
            self._told += self._peers.events
            self._peers.events = []
        events, self._told = self._told, []
        return events

    def state_dict(self) -> dict[str, Any]:
        """Return all that this rank needs to go on after a stop; all ranks must call it."""
        state: dict[str, Any] = {"since_update": self._since_update, "tokens": self._tokens}
        state |= {"steps": self.steps, "how": encode(self._how).decode()}
        if self._since_update:  # gradients that are half gathered
            state["gradients"] = {
                str(number): local(parameter.grad)
                for number, parameter in enumerate(self._parameters)
                if parameter.grad is not None
            }
        inner = self._speaking()
        if inner is not None:
            state["sync"] = inner.state_dict()
        self._let_go_on()
        agreed = self._agreement or self._averaging
        if agreed is not None:
            state["agreement"] = agreed.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there; before the first step."""
        if state["how"] != encode(self._how).decode():
            self.inherit(state)  # another method begins anew, with the weights as they are
            return
        self.steps = state["steps"]
        self._is_restored = "sync" in state or "agreement" in state
        self._since_update, self._tokens = state["since_update"], state["tokens"]
        for number, gradient in state.get("gradients", {}).items():
            local(gradient_of(self._parameters[int(number)])).copy_(gradient)
        inner = self._speaking()
        if inner is not None and "sync" in state:
            inner.load_state_dict(state["sync"])
        agreed = self._agreement or self._averaging
        if agreed is not None and "agreement" in state:
            agreed.load_state_dict(state["agreement"])
        if self._averaging is not None:
            self._averaging.end_batch(self._since_update)

    def inherit(self, state: Mapping[str, Any]) -> None:
        """Take over what holds whatever the method and the number of ranks were.

        Args:
            state: Of one of the site's ranks; tensors may be missing in it.
        """
        self.steps = state["steps"]
        if "agreement" in state and isinstance(self._own, PrivateAgreement):
            self._own.remember(state["agreement"])

    def _forget_sites(self) -> None:
        """Keep what may be asked for of the sites that were left."""
        if self._averaging is not None:
            self._averaging.stop()
        self._told = self.events()
        self._note_rounds()
        if self._peers is not None:
            self.traffic_bytes = self._peers.traffic_bytes()
        self._outer = self._averaging = self._peers = self._ranks = None

    def _note_rounds(self) -> None:
        """Keep what rounds did, for those who will ask."""
        if self._outer is None:
            return
        done, self._outer.done = self._outer.done, []
        spent = self.privacy() if done else None
        if spent is not None:
            done = [replace(one, epsilon=spent.epsilon) for one in done]
        self._log.note(done)

    def _connect(self, module: nn.Module) -> None:
        # of a library's wrappers, those for several ranks put this into a name
        names = [(n.replace("module.", ""), tuple(p.shape)) for n, p in module.named_parameters()]
        buckets = [] if self._how.kind == "outer" else [self._options.bucket_bytes]
        alike = (self._how, names, buckets + self._held.layout(), self._options.identity)
        combine = Combine()
        if self._run.place.is_first:
            settings = digest(alike)
            policy = replace(self._options.rounds, patience_s=self._options.patience_s)
            links = policy, self._options.transport
            self._peers = connect(self._run, settings, combine, self._how, links)
            self.meter.peers = self._peers
        if self._how.kind == "outer":
            self._agreement = agreement = self._agree()
            if self._peers is not None:
                passes = last_passes(self._how)
                self._outer = OuterSync(agreement, self._peers, self._how.every, passes)
                combine.by = self._outer.combine
        else:
            self._averaging = self._average(module)
            if self._peers is not None:
                riders = Riders(self._options.riders, self._run.is_asked_to_stop)
                combine.by = self._averaging.speak(self._peers, riders).combine

    def _begin_with_weights(self) -> None:
        """Let what the sites agree on begin with the weights as they are now."""
        if self._own is not None:
            self._own.restart()
        if self._peers is not None:
            self._peers.rounds.chain = self._held.fingerprint()
            if self._averaging is not None:
                self._peers.rounds.version = self.steps // self._options.stride

    def _agree(self) -> Agreement:
        """Return what this site agrees on with the others, as this rank holds it."""
        how = self._how
        fragments = Fragments(self._held.owned, how.fragments)
        rule = OuterRule(how.outer_learning_rate, how.outer_momentum)
        agreed = [Fragment(fragments.read(i), rule, codec(how)) for i in range(len(fragments))]
        site_sum = float if self._held.is_all else SiteRanks().sum
        own = self._own = agreement(how.privacy, fragments, agreed, self._inner(), site_sum)
        if self._held.is_all:
            return own
        self._ranks = SiteAgreement(own, self._held.follow, alike=self._held.alike)
        return self._ranks

    def _average(self, module: nn.Module) -> Averaging:
        """Return this site's gradients, as this rank holds them."""
        pieces = pieces_of(module, self._cut)
        owned = Owned(
            [parameter for parameter, _ in pieces],
            [is_owned for _, is_owned in pieces],
            self._cut if self._run.place.size > 1 else None,
        )
        size_bytes = self._options.bucket_bytes
        return Averaging(owned, self._how, size_bytes, self._inner(), self._update)

    def _inner(self) -> Progress:
        return Progress(OptimizerState(self._optimizer), self, only_on=self._how.kind == "outer")

    def _train(self, tokens: float) -> None:
        """Note a training step, where sites exchange weights."""
        if self._agreement is None:
            return
        tokens = self._of_site(tokens)
        if self._outer is not None:
            self._outer.after_step(tokens)
        else:
            self._agreement.train(tokens)
        self._let_go_on()

    def _of_site(self, tokens: float) -> float:
        """Return the tokens of all ranks of the site; those of one batch count once.

        Where another library has cut the batches, all ranks' count: at all sites alike.
        """
        if self._run.place.size == 1:
            return tokens
        total = torch.tensor([tokens], dtype=torch.float64)
        dist.all_reduce(total)
        if self._cut is None:
            return float(total)
        return float(total) * self._cut.axes.data_ranks / self._cut.axes.world

    def _speaking(self) -> OuterSync | GradientSync | None:
        """Return what speaks to the other sites, on the first rank."""
        return self._outer or (self._averaging.sync if self._averaging is not None else None)

    def _let_go_on(self) -> None:
        """Let the other ranks carry out what the first has decided, and all go on with it."""
        if self._averaging is not None:
            self._averaging.let_go_on()
        if self._ranks is not None:
            if self._run.place.is_first:
                self._ranks.end()
            else:
                self._ranks.follow()

    def _update_alone(self, update: Callable[[], object] | None) -> None:
        """Make an update by this site's gradients alone, or have the library make it."""
        if update is not None:
            update()
            self.steps += self._options.stride
            return
        for parameter in self._parameters if self._since_update > 1 else ():
            if parameter.grad is not None:
                parameter.grad.div_(self._since_update)
        self._update()

    def _update(self) -> None:
        if not self._is_alone:
            self.meter.phases.end("between_site")
        norm = self._options.clip_norm
        if norm > 0:
            if self._cut is not None:
                self.norm = float(self._cut.clip(norm))
            else:
                self.norm = clip(self._parameters, norm)
        if self._cut is None or self._cut.scaler is None or 0 < self.norm < math.inf:
            self._optimizer.step()  # else low precision has lost the gradients of this step
        self.steps += self._options.stride
        self.meter.phases.end("optimizer")

    def _begin_anew(self, *, zero: bool = True) -> None:
        self._since_update, self._tokens = 0, 0.0
        if self._averaging is not None:
            self._averaging.end_batch(0)
        if not zero:
            return
        if self._cut is not None:
            self._cut.gradients.zero()
        else:
            self._optimizer.zero_grad()
