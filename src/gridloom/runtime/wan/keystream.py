"""Bytes that nobody without the key can tell from chance: ChaCha20 (RFC 8439), keyed by HKDF.

From the package `cryptography` (extra `privacy`).
"""

import importlib
import math
from typing import Any

import torch
from torch import Tensor

from gridloom.base.errors import InputError, Problem

KEY_BYTES = 32
"""Length of every key and secret."""

_CHUNK_BYTES = 1 << 20
_CHUNK_NUMBERS = 1 << 18


class Keystream:
    """An endless row of numbers that follows from a secret and a label."""

    def __init__(self, secret: bytes, label: str) -> None:
        """Begin it.

        Args:
            secret: 32 bytes.
            label: Of what it is for: another label, another row.

        Raises:
            InputError: Not 32 bytes, or the extra is not installed.
        """
        ciphers = cryptography("hazmat.primitives.ciphers")
        sha256 = cryptography("hazmat.primitives.hashes").SHA256()
        hkdf = cryptography("hazmat.primitives.kdf.hkdf").HKDF
        derivation = hkdf(sha256, KEY_BYTES, salt=None, info=label.encode())
        key = derivation.derive(checked(secret, "secret"))
        # A key serves for one row, so its nonce, counter included, may be the same every time.
        cipher = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, bytes(16)), mode=None)
        self._stream = cipher.encryptor()

    def take(self, numbers: int) -> Tensor:
        """Return the next int32 ``[numbers]``, spread evenly over all values."""
        row = bytearray(4 * numbers)
        zeros = bytes(_CHUNK_BYTES)
        for start in range(0, len(row), _CHUNK_BYTES):
            length = min(_CHUNK_BYTES, len(row) - start)
            row[start : start + length] = self._stream.update(zeros[:length])
        if not row:
            return torch.zeros(0, dtype=torch.int32)
        return torch.frombuffer(row, dtype=torch.int32)

    def normal(self, numbers: int) -> Tensor:
        """Return fp32 ``[numbers]`` of mean 0 and deviation 1 (Box and Muller, 1958).

        From 53 bits each, so that no tail is cut off below 8.5 deviations.
        """
        values = torch.empty(numbers)
        for start in range(0, numbers, _CHUNK_NUMBERS):
            part = values[start : start + _CHUNK_NUMBERS]
            pairs = (len(part) + 1) // 2
            whole = self.take(4 * pairs).view(torch.int64)
            evenly = ((whole >> 11) & (2**53 - 1)).to(torch.float64).add_(0.5).mul_(2.0**-53)
            radius = evenly[:pairs].log_().mul_(-2).sqrt_()
            angle = evenly[pairs:].mul_(2 * math.pi)
            part.copy_(torch.cat([radius * angle.cos(), radius * angle.sin()])[: len(part)])
        return values


def checked(key: bytes, name: str) -> bytes:
    """Return a key.

    Raises:
        InputError: It has not 32 bytes.
    """
    if len(key) != KEY_BYTES:
        text = f"has {len(key)} bytes"
        raise InputError([Problem(text, f"give {KEY_BYTES}", field=name)])
    return key


def cryptography(module: str) -> Any:
    """Return a module of the package `cryptography`.

    Raises:
        InputError: The extra is not installed.
    """
    try:
        return importlib.import_module(f"cryptography.{module}")
    except ImportError as error:
        text = "local data needs the package cryptography"
        raise InputError([Problem(text, "pip install 'gridloom[privacy]'")]) from error
