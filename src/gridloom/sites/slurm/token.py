"""A user's JSON Web Token for slurmrestd: what it says of itself (pure).

Whether it is genuine only Slurm can tell. Slurm 22.05 answers a token that has expired as if its
controller were away, so that what is wrong is to be found in the token itself.
"""

import base64
import binascii
from datetime import UTC, datetime

import msgspec

from gridloom.base.errors import SiteError

_PREFIX = "SLURM_JWT="
"""What ``scontrol token`` prints before it."""


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """What a token claims.

    Attributes:
        user: Whose it is; empty when it does not say.
        expires_s: Until when it is good, in seconds since the epoch; ``None`` when it does not say.
    """

    user: str = ""
    expires_s: float | None = None

    def is_over(self, now_s: float) -> bool:
        """Return whether it is good no more."""
        return self.expires_s is not None and now_s >= self.expires_s


class _Payload(msgspec.Struct, frozen=True):
    exp: float | None = None
    sun: str | None = None
    username: str | None = None


def read_token(text: str, source: str) -> str:
    """Return the token of what a file holds or a command prints.

    Args:
        text: The token alone, or as ``scontrol token`` prints it.
        source: What it was read from, for the error, which does not repeat it.

    Raises:
        SiteError: There is none.
    """
    words = text.split()
    token = words[-1].removeprefix(_PREFIX).strip("\"'") if words else ""
    if not words:
        raise SiteError(f"{source} is empty instead of a token of Slurm")
    try:
        claims(token)
    except ValueError:
        raise SiteError(f"{source} has no token of Slurm, as `scontrol token` prints it") from None
    return token


def claims(token: str) -> Claims:
    """Return what a token claims.

    Raises:
        ValueError: It is none.
    """
    parts = token.split(".")
    if len(parts) != 3 or not token.isascii():
        raise ValueError("three parts with dots between make a token")
    padded = parts[1] + "=" * (-len(parts[1]) % 4)
    try:
        said = msgspec.json.decode(base64.b64decode(padded, b"-_", validate=True), type=_Payload)
    except (binascii.Error, msgspec.DecodeError) as error:
        raise ValueError(str(error)) from None
    return Claims(user=said.sun or said.username or "", expires_s=said.exp)


def complaint(claimed: Claims, user: str, source: str, now_s: float) -> str:
    """Return what is wrong with a token, as far as it says so itself; empty for nothing.

    Args:
        claimed: What it claims.
        user: Who is asked for.
        source: What it was read from.
        now_s: The time, in seconds since the epoch.
    """
    if claimed.is_over(now_s):
        assert claimed.expires_s is not None
        when = datetime.fromtimestamp(claimed.expires_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"the token of {source} has expired at {when}: put a new one there"
    if claimed.user and claimed.user != user:
        return f"the token of {source} is user {claimed.user}'s, not {user}'s"
    return ""
