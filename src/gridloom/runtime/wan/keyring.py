"""The keys that one process holds, and the masks that it makes with them."""

import hashlib
from collections.abc import Callable, Sequence

from torch import Tensor

from gridloom.base.codec import encode
from gridloom.runtime.wan.keystream import KEY_BYTES
from gridloom.runtime.wan.mask_messages import Roster
from gridloom.runtime.wan.masks import masked, pair_secret, public_key


class Keyring:
    """This process's key, and those of the processes that it has met.

    A key lives as long as its process and is kept nowhere: what was masked yesterday cannot be
    read with what is found on a disk today.

    Attributes:
        public: This process's public key.
    """

    def __init__(self, me: str, chance: Callable[[int], bytes]) -> None:
        """Draw a key.

        Args:
            me: Name of this site.
            chance: Returns so many bytes that nobody else can foresee.

        Raises:
            InputError: The extra `privacy` is not installed.
        """
        self._me, self._chance = me, chance
        self._private = chance(KEY_BYTES)
        self.public = public_key(self._private)
        self._secrets: dict[str, bytes] = {}
        self._prints = {me: fingerprint(self.public)}

    def learn(self, peer: str, public: bytes) -> None:
        """Take the key of another site's process, in the place of that of the process before.

        Raises:
            InputError: It is no key.
        """
        self._secrets[peer] = pair_secret(self._private, public)
        self._prints[peer] = fingerprint(public)

    def forget(self, peer: str) -> None:
        """Another site's process has ended."""
        self._secrets.pop(peer, None)
        self._prints.pop(peer, None)

    def prints(self) -> dict[str, str]:
        """Return the fingerprints of all keys held, by site, the own one too."""
        return dict(self._prints)

    def seed(self) -> bytes:
        """Return a new seed."""
        return self._chance(KEY_BYTES)

    def masked(self, vector: Tensor, members: Sequence[str], label: str) -> Tensor:
        """Return int32 ``[n]`` under the masks of this site's pairs with the other members."""
        others = {name: self._secrets[name] for name in members if name != self._me}
        return masked(vector, self._me, others, label)

    def label(self, leader: str, roster: Roster) -> str:
        """Return what names one try of one round, and no other: of any leader's any process."""
        names = (leader, self._prints.get(leader, ""), roster)
        return hashlib.blake2b(encode(names), digest_size=16).hexdigest()


def fingerprint(public: bytes) -> str:
    """Return what names a public key."""
    return hashlib.sha256(public).hexdigest()[:32]


def agreeing(keys: dict[str, dict[str, str]]) -> list[str]:
    """Return sites each two of which hold each other's keys, as many as are found.

    Who lacks most keys, or whose key most others lack, is left out first; of several, the last.

    Args:
        keys: Which keys each site holds, its own too, in the order of the sites.
    """
    names = list(keys)
    while True:
        lacking = [
            sum(_differ(keys, one, other) for other in names if other != one) for one in names
        ]
        if not any(lacking):
            return names
        worst = max(range(len(names)), key=lambda place: (lacking[place], place))
        del names[worst]


def _differ(keys: dict[str, dict[str, str]], one: str, other: str) -> bool:
    """Return whether either of two sites has not the other's key."""
    return any(keys[a].get(b) != keys[b].get(b) for a, b in ((one, other), (other, one)))
