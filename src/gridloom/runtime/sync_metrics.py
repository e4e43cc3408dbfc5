"""What the updates of a training cost, and what travelled behind it, measured as it goes."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from gridloom.runtime.accelerator import laps
from gridloom.runtime.phases import Phases
from gridloom.runtime.records import LinkBytes, RoundMetrics
from gridloom.runtime.run import Run
from gridloom.runtime.wan.outer_sync import OuterRound
from gridloom.runtime.wan.peers import Peers

if TYPE_CHECKING:  # a site of one rank does without it
    from gridloom.runtime.inside.site_model import SiteModel


_UNREPORTED_MAX = 1000
"""Rounds that are kept for a report that may never be made."""


@dataclass(frozen=True)
class SyncMetrics:
    """What a rank's updates took in some stretch of a training.

    What other sites have to do with it is known to the first rank of a site alone; on the others
    those counts are 0, and their ``between_site_s`` is the wait for the first.

    Attributes:
        optimizer_s: Clipping, and the optimizer's step.
        within_site_s: Gradients summed inside the site, as far as ``Sync.step`` waited for it.
        within_site_hidden_s: Sums that were on their way behind the backward pass; ``None`` where
            that cannot be told: where the model is not in whole copies, and on an accelerator.
        between_site_s: Exchange with other sites while the training stood still for it: work on
            payloads, and waiting. Not the meeting before the first step.
        between_site_hidden_s: Travel to and from other sites while the training went on.
        rounds: Rounds that the model went on by.
        links: By other site, the bytes over the link to it.
    """

    optimizer_s: float
    within_site_s: float
    within_site_hidden_s: float | None
    between_site_s: float
    between_site_hidden_s: float
    rounds: int
    links: Mapping[str, LinkBytes]

    def since(self, before: Self) -> "SyncMetrics":
        """Return what came on top of an earlier count."""
        hidden_s, earlier_s = self.within_site_hidden_s, before.within_site_hidden_s
        return SyncMetrics(
            optimizer_s=self.optimizer_s - before.optimizer_s,
            within_site_s=self.within_site_s - before.within_site_s,
            within_site_hidden_s=(
                None if hidden_s is None or earlier_s is None else hidden_s - earlier_s
            ),
            between_site_s=self.between_site_s - before.between_site_s,
            between_site_hidden_s=self.between_site_hidden_s - before.between_site_hidden_s,
            rounds=self.rounds - before.rounds,
            links={
                site: link - before.links.get(site, LinkBytes())
                for site, link in self.links.items()
            },
        )


class SyncMeter:
    """Measures the updates of one rank.

    Attributes:
        phases: Of the training step: whoever has done a part of it says so.
        peers: The other sites, on the first rank.
        round: At which the training began.
        start: What was measured before anything was: also before a byte went to another site.
    """

    def __init__(self, run: Run, cut: "SiteModel | None") -> None:
        """Begin now.

        Args:
            run: This process's part.
            cut: The model, if it is spread over several ranks.
        """
        self.phases = Phases(laps(run.device, run.clock))
        self.peers: Peers | None = None
        self.round = 0
        self._gradients = None if cut is None else cut.gradients
        if self._gradients is not None:
            self._gradients.watch(run.clock)
        self.start = self.total()

    def total(self) -> SyncMetrics:
        """Return all that was measured so far; also after the other sites were left."""
        seconds, peers = self.phases.seconds(), self.peers
        links = {} if peers is None else peers.links()
        return SyncMetrics(
            optimizer_s=seconds.get("optimizer", 0.0),
            within_site_s=seconds.get("within_site", 0.0),
            within_site_hidden_s=0.0 if self._gradients is None else self._gradients.hidden_s(),
            between_site_s=seconds.get("between_site", 0.0),
            between_site_hidden_s=0.0 if peers is None else peers.hidden_s(),
            rounds=0 if peers is None else peers.rounds.version - self.round,
            links={
                site: LinkBytes(sent=facts.sent_bytes, received=facts.received_bytes)
                for site, facts in links.items()
            },
        )


class RoundLog:
    """Outer rounds, for two who ask for those since they last did: the loop, and the report."""

    def __init__(self) -> None:
        self._rounds: list[OuterRound] = []
        self._unreported: deque[OuterRound] = deque(maxlen=_UNREPORTED_MAX)

    def note(self, done: Sequence[OuterRound]) -> None:
        """Add rounds that have ended."""
        self._rounds += done
        self._unreported += done

    def take(self) -> list[OuterRound]:
        """Return those that the loop has not asked for yet."""
        taken, self._rounds = self._rounds, []
        return taken

    def take_unreported(self) -> list[OuterRound]:
        """Return those that stand in no row yet."""
        taken = list(self._unreported)
        self._unreported.clear()
        return taken


def round_metrics(rounds: Sequence[OuterRound]) -> tuple[RoundMetrics, ...]:
    """Return outer rounds as a row has them."""
    return tuple(
        RoundMetrics(
            round=one.round,
            fragment=one.fragment,
            sites=one.sites,
            norm=one.norm,
            cosine=one.cosine,
            stale_steps=one.stale_steps,
            epsilon=one.epsilon,
        )
        for one in rounds
    )
