"""The port through which new identities are minted."""

from typing import Protocol


class IdSource(Protocol):
    """Where names that must never repeat come from."""

    def new_id(self, prefix: str) -> str:
        """Return ``prefix`` followed by a hyphen and a short suffix that was never given before."""
        ...
