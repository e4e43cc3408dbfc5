"""What leaves a site whose data may not: its clipped and noised updates, and how much they tell."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from gridloom.base.errors import InputError, Problem
from gridloom.base.system import entropy
from gridloom.model.parallel import MASKED_SITES_MIN, SitePrivacy
from gridloom.runtime.compress import NotFiniteError
from gridloom.runtime.wan.agreement import LocalAgreement
from gridloom.runtime.wan.fragments import Fragments
from gridloom.runtime.wan.history import Buffer
from gridloom.runtime.wan.keystream import KEY_BYTES, Keystream
from gridloom.runtime.wan.outer import Fragment
from gridloom.runtime.wan.privacy import clipped, epsilon, length_of, noised
from gridloom.runtime.wan.state import (
    NO_STATE,
    InnerState,
    check_state,
    pack_state,
    unpack_state,
)

Normal = Callable[[int], Tensor]
"""Returns so many numbers of mean 0 and deviation 1 that nobody can foresee."""


@dataclass(frozen=True)
class PrivacySpent:
    """What the updates of a site have told about it so far, at most.

    The promise is for the site as a whole: had it had no data, its updates zero, what all others
    have seen of them would be almost as likely, by a factor of e^epsilon but for delta.

    Attributes:
        epsilon: Of differential privacy; infinite without noise.
        delta: Of differential privacy.
        rounds: In which an update of one fragment was shown, or may have been.
        noise_multiplier: Deviation of the noise over the norm that an update in such a round can
            have at most.
    """

    epsilon: float
    delta: float
    rounds: int
    noise_multiplier: float


@dataclass(frozen=True)
class Shown:
    """What a site has shown of itself, in a form that adds up over policies.

    Renyi divergences of rounds add up, and that of a round is proportional to 1 / z^2, where z is
    its noise multiplier (Mironov, 2017, propositions 1 and 7): so many rounds are as good as one
    whose multiplier is ``exposure ** -0.5``.

    Attributes:
        rounds: In which something was shown, or may have been.
        exposure: Sum of 1 / z^2 over these rounds; infinite where one was without noise.
    """

    rounds: int = 0
    exposure: float = 0.0


class Shield:
    """Clips and noises what a rank shows of its site's pseudo-gradients, and counts it.

    An update of the whole model has a norm of at most ``clip_norm``, over all fragments that it
    travels in: each of F fragments of at most ``clip_norm / sqrt(F)``.

    Attributes:
        rounds: In which something was shown by this policy, or may have been.
    """

    def __init__(
        self,
        policy: SitePrivacy,
        fragments: int,
        normal: Normal,
        site_sum: Callable[[float], float] = float,
    ) -> None:
        """Begin with nothing shown.

        Args:
            policy: With a norm to clip to.
            fragments: Of the model.
            normal: Chance of this rank alone.
            site_sum: Returns the sum of a number over the ranks of this site; all call it.

        Raises:
            InputError: There is noise, and the extra that counts it is not installed.
        """
        self.rounds = 0
        self._norm = policy.clip_norm / math.sqrt(fragments)
        self._deviation = policy.noise_multiplier * policy.clip_norm
        self._multiplier = policy.noise_multiplier * math.sqrt(fragments)
        self._delta = policy.delta
        self._normal, self._site_sum = normal, site_sum
        self._earlier = Shown()
        if self._deviation:
            epsilon(self._multiplier, 1, delta=self._delta)  # not only when the training is over

    def __call__(self, apart: Tensor) -> Tensor:
        """Return what a pseudo-gradient, fp32 ``[n]`` of this rank, is shown as.

        Raises:
            NotFiniteError: It is not finite at one of the ranks of the site; nothing was shown.
        """
        length = math.sqrt(self._site_sum(length_of(apart) ** 2))
        if not math.isfinite(length):
            raise NotFiniteError(
                "a pseudo-gradient that was to be sent to other sites is not finite",
                "look for the loss or the learning rate that caused it",
            )
        shown = noised(clipped(apart, self._norm, length=length), self._deviation, self._normal)
        self.rounds += 1
        return shown

    def spent(self) -> PrivacySpent:
        """Return what was told so far."""
        shown = self.shown()
        if shown.exposure and math.isfinite(shown.exposure):
            bound = epsilon(shown.exposure**-0.5, 1, delta=self._delta)
        else:
            bound = shown.exposure
        return PrivacySpent(bound, self._delta, shown.rounds, self._multiplier)

    def shown(self) -> Shown:
        """Return what was shown so far, earlier runs included."""
        exposure = 0.0
        if self.rounds:
            exposure = self.rounds / self._multiplier**2 if self._multiplier else math.inf
        return Shown(self._earlier.rounds + self.rounds, self._earlier.exposure + exposure)

    def follow(self, earlier: Shown) -> None:
        """Count what earlier runs of this site have shown, by whatever policy."""
        self.rounds, self._earlier = 0, earlier

    def rejoin(self, before: int, now: int) -> None:
        """Count what a last process of this site may have shown, and this one does not know of.

        Args:
            before: Rounds that this process knew of when it began.
            now: Rounds that the other sites have held by now.
        """
        if before or now:
            self.rounds += now - before + 1


def agreement(
    policy: SitePrivacy,
    fragments: Fragments,
    agreed: Sequence[Fragment],
    inner: InnerState,
    site_sum: Callable[[float], float] = float,
) -> LocalAgreement:
    """Return what a rank agrees on with other sites, that shows them what they may see.

    Args:
        policy: What that is.
        fragments: The weights.
        agreed: What the sites agree on, for each fragment.
        inner: What a newcomer is given beside the weights, if it may see all.
        site_sum: As ``Shield``.
    """
    if policy == SitePrivacy():
        return LocalAgreement(fragments, agreed, inner)
    shield = None
    if policy.clip_norm:
        normal = Keystream(entropy(KEY_BYTES), "noise").normal
        shield = Shield(policy, len(fragments), normal, site_sum)
    return PrivateAgreement(fragments, agreed, shield)


def check_sites(policy: SitePrivacy, sites: int) -> None:
    """Raise ``InputError`` if so few sites cannot hide anything from one another."""
    if policy.masked and 1 < sites < MASKED_SITES_MIN:
        text = f"a sum over {sites} sites tells each of them the other's update"
        remedy = f"mask the updates of {MASKED_SITES_MIN} sites or more, or add noise instead"
        raise InputError([Problem(text, remedy, field="sync.privacy.masked")])


class PrivateAgreement(LocalAgreement):
    """An agreement of which others are given only what the sites have agreed on.

    Neither the weights of this site nor its optimiser's moments, in which its data can be seen.

    Attributes:
        shield: All that is offered goes through it; ``None`` where it is only masked.
    """

    def __init__(
        self, fragments: Fragments, agreed: Sequence[Fragment], shield: Shield | None
    ) -> None:
        """As ``LocalAgreement``."""
        super().__init__(fragments, agreed, NO_STATE)
        self.shield = shield
        for one in agreed:
            one.shield = shield

    def pack(self) -> Buffer:
        """As ``Agreement``."""
        return pack_state(self._common(), NO_STATE)

    def check(self, body: Buffer) -> None:
        """As ``Agreement``."""
        numbers = {name: tensor.numel() for name, tensor in self._common().items()}
        check_state(body, numbers, NO_STATE)

    def unpack(self, body: Buffer) -> None:
        """As ``Agreement``; this site's optimiser goes on with what it has."""
        state = unpack_state(body, NO_STATE)
        self._adopt(state, [state[f"anchor.{n}"] for n in range(len(self))])

    def state_dict(self) -> dict[str, Any]:
        """As ``Agreement``; what was told is not forgotten."""
        state = super().state_dict()
        return state if self.shield is None else state | {"shown": asdict(self.shield.shown())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As ``Agreement``."""
        super().load_state_dict(state)
        self.remember(state)

    def remember(self, state: Mapping[str, Any]) -> None:
        """Count what earlier runs have shown, by the state of their agreement, whatever it was."""
        if self.shield is not None:
            self.shield.follow(_shown_in(state))


def _shown_in(agreed: Mapping[str, Any]) -> Shown:
    """Return what the state of an agreement tells of what was shown; all, if it does not count."""
    told = agreed.get("shown", {"rounds": 0, "exposure": math.inf})
    return Shown(told["rounds"], told["exposure"])
