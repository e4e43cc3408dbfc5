"""The connections of a site's first rank to those of the other sites, and their rounds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gridloom.base.system import SystemIds, entropy
from gridloom.model.parallel import SiteSync
from gridloom.runtime.run import Run
from gridloom.runtime.wan.history import Buffer, Given
from gridloom.runtime.wan.keyring import Keyring
from gridloom.runtime.wan.masked_rounds import MaskedRounds
from gridloom.runtime.wan.peers import Peers
from gridloom.runtime.wan.rounds import RoundPolicy, Rounds
from gridloom.runtime.wan.settings import Endpoint, TransportSettings
from gridloom.runtime.wan.transport import Transport


@dataclass(frozen=True)
class Agreed:
    """What the rounds of all sites have in common.

    Attributes:
        settings: What sites must agree on, as a digest.
        how: The method.
        policy: How rounds are held.
        combine: Returns one payload for several.
    """

    settings: str
    how: SiteSync
    policy: RoundPolicy
    combine: Callable[[Sequence[Given]], Buffer]


def connect(run: Run, agreed: Agreed, transport_settings: TransportSettings) -> Peers:
    """Start the connections of this rank to its counterparts at other sites."""
    place, how, policy = run.place, agreed.how, agreed.policy
    if how.kind != "outer":
        # a gradient is of no use to one who missed it: such a site is given a whole state
        policy = replace(policy, history_bytes=0)
    rounds = (
        MaskedRounds(place.site, place.sites, agreed.settings, policy, Keyring(place.site, entropy))
        if how.privacy.masked
        else Rounds(place.site, place.sites, agreed.settings, policy, agreed.combine)
    )
    transport = Transport(
        Endpoint(name=place.site, listen=place.speakers[place.site], token=place.job_id),
        {name: address for name, address in place.speakers.items() if name != place.site},
        settings=transport_settings,
        clock=run.clock,
        ids=SystemIds(),
    )
    transport.start()
    peers = Peers(rounds, transport, run.clock)
    if how.privacy.masked and not transport_settings.tls:
        peers.events.append("masks without TLS: who sits between the sites can exchange their keys")
    return peers
