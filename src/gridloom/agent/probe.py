"""``python -m gridloom.agent.probe DIRECTORY [NETWORK]``: tells what a job would find on a node."""

import platform
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from gridloom import __version__
from gridloom.base.clock import Clock
from gridloom.base.codec import encode
from gridloom.base.errors import SiteError
from gridloom.base.files import replace_file
from gridloom.base.sockets import own_address, own_addresses
from gridloom.base.system import SystemClock
from gridloom.wire.probe import ANSWER_FILE, ANSWER_WAIT_S, PROBE_LOST, SEEN_FILE, ProbeSeen

_LOOK_S = 0.05


def probe(directory: Path, network: str, clock: Clock) -> ProbeSeen:
    """Say where this is; wait for the answer, and say when it came.

    Args:
        directory: Where both are written.
        network: In which this node's address is to be; empty for that of its host name.
        clock: Ours.
    """
    address, trouble = "", ""
    try:
        address = own_address(network)
    except SiteError as error:
        trouble = str(error)
    seen = ProbeSeen(
        node=socket.gethostname(),
        address=address,
        trouble=trouble,
        addresses=own_addresses(),
        python=platform.python_version(),
        gridloom=__version__,
        now_s=clock.now_s(),
    )
    replace_file(directory / SEEN_FILE, encode(seen))
    until_s = clock.monotonic_s() + ANSWER_WAIT_S
    while not (directory / ANSWER_FILE).exists():
        if clock.monotonic_s() > until_s:
            return seen
        clock.sleep(_LOOK_S)
    seen = replace(seen, heard_s=clock.now_s())
    replace_file(directory / SEEN_FILE, encode(seen))
    return seen


def main(arguments: Sequence[str]) -> int:
    """Probe for a command line; 1 when there is nowhere to write."""
    directory = Path(arguments[0])
    if not directory.is_dir():
        sys.stderr.write(f"{PROBE_LOST} {directory}\n")
        return 1
    probe(directory, arguments[1] if len(arguments) > 1 else "", SystemClock())
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
