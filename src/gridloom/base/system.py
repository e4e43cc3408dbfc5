"""The only module that reads the machine's clocks and its entropy."""

import secrets
import time

_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"  # no 0/o, 1/l/i: ids are read aloud and typed
_SUFFIX_LENGTH = 6


class SystemClock:
    """The machine's own clocks."""

    def now_s(self) -> float:
        """Return seconds since the Unix epoch (UTC)."""
        return time.time()

    def monotonic_s(self) -> float:
        """Return seconds on a clock that never runs backwards."""
        return time.monotonic()

    def sleep(self, duration_s: float) -> None:
        """Wait for ``duration_s`` seconds."""
        time.sleep(duration_s)


class SystemIds:
    """Ids from the operating system's entropy: six letters, about 9e8 values a prefix."""

    def new_id(self, prefix: str) -> str:
        """Return ``prefix-xxxxxx``."""
        suffix = "".join(secrets.choice(_ALPHABET) for _ in range(_SUFFIX_LENGTH))
        return f"{prefix}-{suffix}"


def entropy(count: int) -> bytes:
    """Return so many bytes of the operating system's entropy, for keys."""
    return secrets.token_bytes(count)
