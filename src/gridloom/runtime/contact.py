"""How the first rank of a site comes to speak to those of the other sites."""

from collections.abc import Callable, Sequence
from dataclasses import replace

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


class Combine:
    """Rounds are made before what combines their payloads."""

    by: Callable[[Sequence[Given]], Buffer]

    def __call__(self, given: Sequence[Given]) -> Buffer:
        """Combine payloads."""
        return self.by(given)


def connect(
    run: Run,
    settings: str,
    combine: Combine,
    how: SiteSync,
    links: tuple[RoundPolicy, TransportSettings],
) -> Peers:
    """Start the connections of this rank to its counterparts at other sites.

    Args:
        run: This process's part.
        settings: What sites must agree on, as a digest.
        combine: Will combine payloads.
        how: What the sites exchange.
        links: How rounds are held, and the connections' settings.

    Raises:
        InputError: The address cannot be listened on, or a certificate is amiss.
    """
    place, (policy, transport_settings) = run.place, links
    if how.kind != "outer":
        # a gradient is of no use to one who missed it: such a site is given a whole state
        policy = replace(policy, history_bytes=0)
    rounds = (
        MaskedRounds(place.site, place.sites, settings, policy, Keyring(place.site, entropy))
        if how.privacy.masked
        else Rounds(place.site, place.sites, settings, policy, combine)
    )
    transport = Transport(
        Endpoint(name=place.site, listen=place.speakers[place.site], token=place.job_id),
        {name: address for name, address in place.speakers.items() if name != place.site},
        settings=transport_settings,
        clock=run.clock,
        ids=SystemIds(),
        where=place.speaker_now,
    )
    transport.start()
    peers = Peers(rounds, transport, run.clock)
    if how.privacy.masked and not transport_settings.tls:
        peers.events.append("masks without TLS: who sits between the sites can exchange their keys")
    return peers
