"""PowerSGD (Vogels et al., 2019, arXiv:1905.13727) for one exchange: matrices as thin factors."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from gridloom.runtime.compress.codec import (
    Cast,
    Codec,
    Stateful,
    require_finite,
    require_length,
    viewed,
    within,
)

_FP32 = Cast(torch.float32)


class LowRank:
    """Every matrix as the product of two thin ones; everything else by another codec.

    A site's matrix M ``[rows, columns]`` is sent as P = orthonormal basis of M Q' and Q = M^T P,
    where Q' is the Q of the round before: one step of the power iteration a round, so that P comes
    to span the directions in which most happens. It decodes to P Q^T = P P^T M.

    The paper averages P over all workers before it makes it orthonormal, and Q afterwards: two
    all-reduces that wait for one another, and one common subspace. Here each site has a subspace
    of its own and sends both factors at once: one exchange, one latency of the WAN, no collective,
    any number of sites. The price is that who averages N sites receives N pairs of factors; the
    gain is that their mean has a rank of up to N times the rank of each. It is right because P P^T
    is a projection: what is lost, M - P P^T M, is never longer than M and holds nothing of what
    was sent, so with ``Feedback`` each site's codec meets the condition under which compressed
    descent converges (Karimireddy et al., 2019), whatever the others do.

    Matrices are scaled by a power of two first, so that no product overflows. Payload: exponents
    (int32), then P and Q of each matrix, then the rest.
    """

    def __init__(
        self,
        shapes: Sequence[Sequence[int]],
        rank: int,
        *,
        factors: torch.dtype = torch.float32,
        rest: Codec = _FP32,
        seed: int = 0,
    ) -> None:
        """Set what the numbers are.

        Args:
            shapes: Of the tensors that the numbers are, in their order. One of more than two
                dimensions is a matrix of ``shape[0]`` rows.
            rank: Columns of the factors, 1 to 64; a matrix that would not shrink is not factored.
            factors: What the factors are sent as: fp32, or bf16 for half the bytes.
            rest: Codec of all that is not factored: vectors, and small matrices.
            seed: Of the first Q.

        Raises:
            ValueError: Another rank.
        """
        if not 1 <= rank <= 64:
            raise ValueError(f"a rank of {rank}; it lies from 1 to 64")
        self._rank, self._factors, self._rest = rank, factors, rest
        self._shapes = [_as_matrix(shape) for shape in shapes]
        self._numbers = [rows * columns for rows, columns in self._shapes]
        self._thin = [rank * (r + c) < r * c for r, c in self._shapes]
        generator = torch.Generator().manual_seed(seed)
        self._q = [
            torch.randn(columns, rank, generator=generator)
            for (_, columns), thin in zip(self._shapes, self._thin, strict=True)
            if thin
        ]

    def size_bytes(self, numbers: int) -> int:
        """As ``Codec``.

        Raises:
            ValueError: Not as many numbers as the shapes have.
        """
        if numbers != sum(self._numbers):
            raise ValueError(f"{numbers} numbers; the shapes hold {sum(self._numbers)}")
        return self._head_bytes() + self._rest.size_bytes(self._rest_numbers())

    def encode(self, values: Tensor) -> Tensor:
        """As ``Codec``; the next call starts from this one's Q."""
        self.size_bytes(len(values))
        require_finite(values)
        parts = list(zip(values.split(self._numbers), self._shapes, self._thin, strict=True))
        left = [part for part, _, thin in parts if not thin]
        rest = self._rest.encode(torch.cat(left) if left else values[:0])
        matrices = [part.view(shape) for part, shape, thin in parts if thin]
        exponents, factors = [], []
        for number, matrix in enumerate(matrices):
            exponent, p, q = self._factor(matrix, self._q[number].to(values.device))
            exponents.append(exponent)
            factors += [p.flatten(), q.flatten()]
            if bool(q.any()):  # of a matrix of zeros no direction can be learnt
                self._q[number] = q.to(torch.float32)
        told = torch.tensor(exponents, dtype=torch.int32, device=values.device).view(torch.uint8)
        sent = [factor.view(torch.uint8) for factor in factors]
        return torch.cat([told, *sent, rest])

    def decode(self, payload: Tensor, numbers: int) -> Tensor:
        """As ``Codec``."""
        require_length(payload, self.size_bytes(numbers), numbers)
        head, count = self._head_bytes(), sum(self._thin)
        exponents = viewed(payload[: 4 * count], torch.int32).tolist()
        factors = viewed(payload[4 * count : head], self._factors).to(torch.float32)
        rest = self._rest.decode(payload[head:], self._rest_numbers())
        values = torch.empty(numbers, device=payload.device)
        parts = zip(values.split(self._numbers), self._shapes, self._thin, strict=True)
        for part, (rows, columns), thin in parts:
            if thin:
                p, q, factors = factors.split(self._split(rows, columns, len(factors)))
                self._multiply(p.view(rows, -1), q.view(columns, -1), exponents.pop(0), part)
            else:
                part.copy_(rest[: len(part)])
                rest = rest[len(part) :]
        return values

    def state_dict(self) -> dict[str, Tensor]:
        """As ``Stateful``: the factors Q to go on from."""
        state = {f"q.{number}": q.clone() for number, q in enumerate(self._q)}
        inner = self._rest.state_dict() if isinstance(self._rest, Stateful) else {}
        return state | {f"rest.{name}": tensor for name, tensor in inner.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """As ``Stateful``."""
        self._q = [state[f"q.{number}"].clone() for number in range(len(self._q))]
        if isinstance(self._rest, Stateful):
            self._rest.load_state_dict(within(state, "rest."))

    def _factor(self, matrix: Tensor, last: Tensor) -> tuple[int, Tensor, Tensor]:
        """Return the exponent of the scale, P and Q of a matrix."""
        exponent = max(-120, min(127, int(torch.frexp(matrix.abs().amax()).exponent)))
        scaled = matrix * 2.0**-exponent
        p = torch.linalg.qr(scaled @ last).Q
        q = scaled.T @ p
        return exponent, p.to(self._factors).contiguous(), q.to(self._factors).contiguous()

    def _multiply(self, p: Tensor, q: Tensor, exponent: int, out: Tensor) -> None:
        product = torch.mm(p, q.T, out=out.view(len(p), len(q)))
        product.mul_(2.0**exponent)
        if exponent > 100:  # a projection may be larger somewhere than what it is of
            most = torch.finfo(torch.float32).max
            product.clamp_(-most, most)

    def _split(self, rows: int, columns: int, left: int) -> list[int]:
        p, q = rows * self._rank, columns * self._rank
        return [p, q, left - p - q]

    def _head_bytes(self) -> int:
        thin = [shape for shape, is_thin in zip(self._shapes, self._thin, strict=True) if is_thin]
        numbers = sum(self._rank * (rows + columns) for rows, columns in thin)
        return 4 * len(thin) + numbers * self._factors.itemsize

    def _rest_numbers(self) -> int:
        pairs = zip(self._numbers, self._thin, strict=True)
        return sum(count for count, is_thin in pairs if not is_thin)


def _as_matrix(shape: Sequence[int]) -> tuple[int, int]:
    """Return rows and columns of a tensor's numbers; a vector is one column."""
    if len(shape) < 2:
        return math.prod(shape), 1
    return shape[0], math.prod(shape[1:])
