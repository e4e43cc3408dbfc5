"""The states of the ranks of a site, out of what another site has sent."""

import pytest

from gridloom.runtime.wan.messages import MessageError
from gridloom.runtime.wan.site_ranks import shares_of


def body(*sizes: int, rest: bytes) -> bytes:
    return b"".join(size.to_bytes(8, "little", signed=True) for size in sizes) + rest


def test_every_rank_gets_its_own() -> None:
    shares = shares_of(body(3, 0, 2, rest=b"abcde"), 3)
    assert [bytes(share) for share in shares] == [b"abc", b"", b"de"]


@pytest.mark.parametrize(
    "told",
    [b"", b"x" * 15, body(5, rest=b"abcde"), body(3, 3, rest=b"abcde"), body(-1, 6, rest=b"abcde")],
    ids=["nothing", "less than the sizes", "one rank", "too short", "negative"],
)
def test_a_state_of_other_ranks_is_refused(told: bytes) -> None:
    with pytest.raises(MessageError, match="not of 2 ranks"):
        shares_of(told, 2)
