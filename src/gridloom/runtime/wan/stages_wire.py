"""A tensor between two stages as bytes, and back: in 32, 16 or 8 bits a number.

With 8 bits nothing that was lost is added to what comes next, as feedback does for gradients of
weights: those are addends of one sum, while the activations of two micro-batches belong to
different samples, and what one has lost is noise to the other. Instead activations are rounded to
the nearest level, where they are off least, and gradients by chance, so that they are exact in the
mean, and with them the gradients of all weights before the link, into which they are summed.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gridloom.base.errors import InputError, Problem
from gridloom.runtime.compress import Blocks, Cast, Codec, NotFiniteError, seeded
from gridloom.runtime.failure import PoisonedError
from gridloom.runtime.wan.history import Buffer
from gridloom.runtime.wan.messages import MessageError
from gridloom.runtime.wan.stages_messages import Dtype, Values
from gridloom.runtime.wan.state import as_buffer, as_payload

BITS = (32, 16, 8)

_DTYPES: dict[Dtype, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


class Wire:
    """Packs and unpacks what one stage sends and gets.

    Attributes:
        device: Where the stage computes.
    """

    def __init__(self, bits: int, seed: int, site: str, device: torch.device) -> None:
        """Choose the codec.

        Args:
            bits: Of a number: 32, 16 (bf16) or 8.
            seed: Of the chance by which gradients are rounded.
            site: This one.
            device: Where it computes.

        Raises:
            InputError: Another number of bits.
        """
        if bits not in BITS:
            text = f"is {bits}; a number takes 32, 16 or 8 bits"
            raise InputError([Problem(text, field="pipeline.bits")])
        self.device = device
        self._bits, self._seed, self._site = bits, seed, site

    def size_bytes(self, numbers: int) -> int:
        """Return the size of the payload of so many numbers."""
        return self._codec().size_bytes(numbers)

    def pack(self, what: Values, tensor: Tensor) -> Buffer:
        """Return the payload of a tensor; the same one whenever it is packed.

        Raises:
            PoisonedError: A number is not finite.
        """
        chance = None
        if what.is_gradient and self._bits == min(BITS):
            slot = f"{what.step}/{what.micro_batch}"  # begun again or not: equal results
            chance = seeded(self._seed, self._site, slot, self.device)
        try:
            payload = self._codec(chance).encode(tensor.detach().float().flatten())
        except NotFiniteError as error:
            kind = "gradients" if what.is_gradient else "activations"
            remedy = "lower the learning rate, and go on from a checkpoint"
            raise PoisonedError(f"{kind} to be sent are not finite", remedy) from error
        return as_buffer(payload.cpu())

    def unpack(self, what: Values, body: Buffer) -> Tensor:
        """Return the tensor, on the device.

        Raises:
            MessageError: The payload is not of a tensor of that shape.
        """
        try:
            payload = as_payload(body).to(self.device)
            numbers = self._codec().decode(payload, math.prod(what.shape))
            return numbers.view(what.shape).to(_DTYPES[what.dtype])
        except ValueError as error:
            raise MessageError(f"a tensor of {list(what.shape)} that is none: {error}") from error

    def _codec(self, chance: torch.Generator | None = None) -> Codec:
        match self._bits:
            case 32:
                return Cast(torch.float32)
            case 16:
                return Cast(torch.bfloat16)
            case _:
                return Blocks(8, generator=chance)


class Snapshot:
    """What a forward pass changes beside the gradients, so that it can be made again.

    That is random numbers, as for dropout, and a module's buffers, as running means.
    """

    def __init__(self, module: torch.nn.Module, device: torch.device) -> None:
        """Remember it."""
        self._buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
        self._random: list[tuple[Callable[[Tensor], object], Tensor]] = []
        self._random.append((torch.set_rng_state, torch.get_rng_state()))
        if device.type != "cpu":
            of_kind = torch.get_device_module(device)
            state = of_kind.get_rng_state(device)
            self._random.append((lambda kept: of_kind.set_rng_state(kept, device), state))

    def restore(self) -> None:
        """Make it what it was."""
        with torch.no_grad():
            for buffer, kept in self._buffers:
                buffer.copy_(kept)
        for put, state in self._random:
            put(state)


def dtype_of(tensor: object) -> Dtype | None:
    """Return the name of a tensor's number format; ``None`` for what cannot be sent."""
    if not isinstance(tensor, Tensor):
        return None
    return next((name for name, dtype in _DTYPES.items() if tensor.dtype == dtype), None)


def squares_of(gradients: Sequence[Tensor]) -> float:
    """Return the sum of the squares of all numbers, in fp64."""
    if not gradients:
        return 0.0
    norms = torch._foreach_norm(list(gradients), 2, dtype=torch.float32)
    return float(torch.stack(norms).double().square().sum())
