"""Gradients averaged between sites, for a model however it is cut over the ranks of a site."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from gridloom.base.errors import InputError, Problem
from gridloom.model.parallel import SiteSync
from gridloom.runtime.compress import NotFiniteError
from gridloom.runtime.wan.averaged import Encoder, LocalGradients, Trained
from gridloom.runtime.wan.backward import Backward, InOrder
from gridloom.runtime.wan.buckets import Buckets, gradient_of
from gridloom.runtime.wan.gradient_sync import GradientSync, Riders
from gridloom.runtime.wan.methods import encoder
from gridloom.runtime.wan.peers import Peers
from gridloom.runtime.wan.site_gradients import SiteGradients
from gridloom.runtime.wan.site_ranks import SiteRanks
from gridloom.runtime.wan.state import InnerState

if TYPE_CHECKING:  # a site of one rank does without it
    from gridloom.runtime.inside.axes import Axes
    from gridloom.runtime.inside.site_model import SiteModel


@dataclass(frozen=True)
class Owned:
    """What is trained on this rank.

    Attributes:
        parameters: In the order of the forward pass.
        owned: Whether this rank speaks for its part of each.
        cut: The model, if it is spread over several ranks.
    """

    parameters: Sequence[nn.Parameter]
    owned: Sequence[bool]
    cut: "SiteModel | None"


class Averaging:
    """The gradients of a site's training steps, as this rank holds them; all ranks make one.

    Attributes:
        ranks: The ranks of the site, if it has several.
        sync: Towards the other sites, on the first rank.
    """

    def __init__(
        self,
        model: Owned,
        how: SiteSync,
        bucket_bytes: int,
        inner: InnerState,
        update: Callable[[], None],
    ) -> None:
        """Lay out what is exchanged.

        Args:
            model: What is trained.
            how: The method.
            bucket_bytes: Of gradients that are sent together; 0 for all.
            inner: What a newcomer is given beside the weights.
            update: Changes the weights by gradients that are the same in all copies.

        Raises:
            InputError: The method is not for a model that is cut so.
        """
        self.ranks: SiteGradients | None = None
        self.sync: GradientSync | None = None
        self._model, self._how, self._update = model, how, update
        self._buckets = Buckets(model.parameters, model.owned, bucket_bytes)
        if model.cut is not None:
            self._fit()
        self._own = LocalGradients(self._trained(inner), self._encoders())
        if model.cut is not None:
            alike = not model.cut.axes.is_spread
            self.ranks = SiteGradients(self._own, model.cut.spread, alike=alike)
        self._averaged = self.ranks or self._own
        self._gathered, self._is_active = 0, False
        self._order = InOrder(self._buckets.parameters, self._send_ahead)
        self._absent: list[nn.Parameter] = []
        self._backward: Backward | None = None
        if len(self._buckets) > 1:
            self._listen()

    def speak(self, peers: Peers, riders: Riders | None = None) -> GradientSync:
        """Exchange with other sites; the first rank."""
        self.sync = GradientSync(self._averaged, peers, riders)
        return self.sync

    def end_batch(self, gathered: int) -> None:
        """Note how many batches' gradients are gathered for the next update; all ranks call it."""
        self._gathered = gathered
        self._order.restart(self._absent)

    def step(self, tokens: float, numbers: tuple[float, ...] = ()) -> tuple[float, ...]:
        """Make the update of all sites, with the gradients of all batches; all ranks call it.

        Args:
            tokens: Of the whole site, behind its gradients.
            numbers: Of the whole site, that ride with them.

        Returns:
            The numbers, summed over the sites in the update.

        Raises:
            NotFiniteError: They are not finite, on some rank; raised on every rank.
        """
        self._averaged.begin(self._gathered)
        self._averaged.keep()
        try:
            try:
                if self.sync is not None:
                    self.sync.exchange(tokens, numbers)
                    numbers = self.sync.sums
            finally:
                self.let_go_on()
        finally:
            self._averaged.let_go()
            if self._backward is not None:
                self._absent = self._backward.end_step()
            self._is_active = True
        return numbers if self.ranks is None else self.ranks.of_first(numbers)

    def let_go_on(self) -> None:
        """Let the other ranks carry out what the first has decided, and all go on with it."""
        if self.ranks is not None:
            if self.sync is not None:
                self.ranks.end()
            else:
                self.ranks.follow()

    def stop(self) -> None:
        """Exchange no more."""
        self._is_active = False
        if self._backward is not None:
            self._backward.stop()

    def state_dict(self) -> dict[str, Any]:
        """Return what this rank needs to go on after a stop."""
        return self._averaged.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._averaged.load_state_dict(state)

    def _trained(self, inner: InnerState) -> Trained:
        buckets = self._buckets
        return Trained(buckets.weights, buckets.gradients, inner, self._update_all)

    def _encoders(self) -> list[Callable[[], Encoder]]:
        sizes = [weights.numbers(0) for weights in self._buckets.weights]
        return [
            partial(encoder, self._how, numbers, self._buckets.shapes(bucket))
            for bucket, numbers in enumerate(sizes)
        ]

    def _fit(self) -> None:
        """Make the buckets fit those of the other ranks of the site.

        Raises:
            InputError: A codec for whole matrices, and a rank has parts of them; on all ranks.
        """
        own = torch.tensor([len(self._buckets), self._buckets.are_cut()])
        counts, cut = SiteRanks().table(own).T
        self._buckets.fill_up(int(counts.max()))  # stages of a pipeline have different parameters
        if self._how.codec == "low_rank" and cut.any():
            text = "low_rank works on whole matrices; here ranks have parts of them"
            remedy = "take blocks or top_k, or give each rank whole copies: a plan without zero"
            raise InputError([Problem(text, remedy=remedy, field="sync.codec")])

    def _listen(self) -> None:
        """Have buckets sent on their way during the backward, if they are complete then.

        Where ranks hold parts of products, sums are complete only after it.
        """
        cut = self._model.cut
        if cut is None or (_is_data_alone(cut.axes) and cut.axes.shard.size > 1):
            self._backward = Backward(self._model.parameters, self._order.came)
        elif _is_data_alone(cut.axes):
            cut.gradients.listen(self._order.came)

    def _send_ahead(self, bucket: int) -> None:
        """Send gradients on their way while the backward pass goes on with those before them.

        Not in the first step: ranks come to meet the other sites at different moments of it.
        """
        wanted = self._how.stride
        if not self._is_active or self._gathered + 1 < wanted:
            return
        self._averaged.begin(self._gathered + 1)
        if self.sync is not None:
            self.sync.begin(bucket)
        with contextlib.suppress(NotFiniteError):  # `step` will meet it again
            self.let_go_on()

    def _update_all(self) -> None:
        """Make an update with gradients that only the owners have."""
        if self._model.cut is not None:
            for parameter in self._model.parameters:
                gradient_of(parameter)
            self._model.cut.gradients.spread()
        self._update()


def _is_data_alone(axes: "Axes") -> bool:
    """Return whether all ranks of a site have the whole model, or shards of all its parameters."""
    return axes.tensor.size == axes.pipeline.size == axes.expert.size == 1
