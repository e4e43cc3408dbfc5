"""What passes between a look at a site and the probe that it runs on a node there.

Files in a directory that both should see. The probe writes ``seen.json`` when it comes up. Who
looks answers with ``answer``, and the probe says in a new ``seen.json`` when it saw that: so it is
known how far apart the two clocks are at least, and how long a file takes from one to the other.
"""

import msgspec

SEEN_FILE = "seen.json"
ANSWER_FILE = "answer"
PROBE_LOST = "there is no directory"
"""What a probe prints that does not see where to write."""
ANSWER_WAIT_S = 10.0
"""How long the probe waits for the answer."""


class ProbeSeen(msgspec.Struct, frozen=True, kw_only=True):
    """Where a probe came up, and with what.

    Attributes:
        node: The node's name.
        address: By which others reach it; empty when it has none.
        trouble: Why it has none.
        addresses: All that it has.
        python: Version of its Python.
        gridloom: Version of gridloom there.
        now_s: Its clock when it came up.
        heard_s: Its clock when it saw the answer; nothing before.
    """

    node: str
    address: str = ""
    trouble: str = ""
    addresses: tuple[str, ...] = ()
    python: str
    gridloom: str
    now_s: float
    heard_s: float | None = None
