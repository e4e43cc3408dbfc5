"""Waiting for the other sites at the start and at the end of a training; nowhere else."""

from collections.abc import Callable

from gridloom.runtime.wan.peers import LOOK_S, Peers


def never() -> bool:
    """Return that nobody has asked for a stop."""
    return False


def join(
    peers: Peers,
    take_in: Callable[[], None],
    patience_s: float,
    should_stop: Callable[[], bool] = never,
) -> list[str]:
    """Meet the others before the first training step; return the sites in contact.

    Waits until all are there and this site has what they have, for ``patience_s`` at most.

    Args:
        peers: The other sites.
        take_in: Takes in what they sent.
        patience_s: How long.
        should_stop: Whether this process was asked to stop, and is not to wait any longer.

    Raises:
        InputError: A site trains with other settings than this one.
    """
    deadline_s = peers.now_s() + patience_s
    while not (peers.rounds.is_level() or should_stop()) and peers.now_s() < deadline_s:
        peers.pump(LOOK_S)
        take_in()
        peers.require_same()
    peers.events += _missing(peers, patience_s)
    return peers.rounds.present()


def await_done(peers: Peers, turn: Callable[[], None], patience_s: float) -> None:
    """Wait until all sites in contact have trained all that they were to.

    Args:
        peers: The other sites.
        turn: Takes part in what those who still train ask for.
        patience_s: How long at most.
    """
    peers.rounds.finish()
    deadline_s = peers.now_s() + patience_s
    while not peers.rounds.all_done() and peers.now_s() < deadline_s:
        peers.pump(LOOK_S)
        turn()
    turn()  # what came with the last word


def part(peers: Peers, patience_s: float) -> None:
    """Leave, and wait ``patience_s`` at most for sites that have not ended.

    If the sites have not become one model, ``Peers.events`` says so.
    """
    if not peers.rounds.is_level():
        peers.events.append(
            "the training ends with a model of this site's own: not all sites that train were in "
            "contact, or had caught up"
        )
    peers.close(patience_s)


def _missing(peers: Peers, patience_s: float) -> list[str]:
    """Return a sentence for each thing that training begins without."""
    present = peers.rounds.present()
    told = [
        f"{name} was not met in {patience_s:g} s: {facts.trouble or 'it has not called'}; "
        "training begins without it"
        for name, facts in peers.links().items()
        if name not in present and name not in peers.rounds.strangers
    ]
    if peers.rounds.is_behind():
        told.append(
            f"the state of the other sites has not come in {patience_s:g} s; "
            "training begins without it"
        )
    return told
