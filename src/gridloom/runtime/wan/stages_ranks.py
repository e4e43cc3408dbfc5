"""The ranks of a site that hold equal copies of its stage, each with a share of every batch.

A rank speaks for itself: its micro-batches pass from it to the rank of the same number at the next
site. Inside the site they only average gradients. Where ranks other than the first can be reached
is told by the first, with its hello.
"""

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gridloom.runtime.failure import peers_guarded
from gridloom.runtime.inside.axes import Axis
from gridloom.runtime.inside.replicate import copy_together, sum_together
from gridloom.runtime.place import Place
from gridloom.runtime.wan.settings import Address


class StageRanks:
    """This rank among those of its site; every method is called by all of them at once.

    Attributes:
        count: Ranks of the site.
        rank: This one.
    """

    def __init__(self, place: Place) -> None:
        """Remember who is there; a site of one rank has nothing to say."""
        self.count, self.rank = place.size, place.rank
        self._axis = Axis(place.size, place.rank)

    def name(self, site: str) -> str:
        """Return what the rank of this number is called at a site."""
        return f"{site}/{self.rank}" if self.rank else site

    def begin_alike(self, module: nn.Module) -> None:
        """Give all ranks the weights and buffers of the first."""
        with peers_guarded(), torch.no_grad():
            copy_together([*module.parameters(), *module.buffers()], self._axis)

    def gathered(self, own: Address | None) -> tuple[Address, ...]:
        """Return where the ranks of this site listen, in order."""
        if self.count == 1 or own is None:
            return ()
        found: list[Address | None] = [None] * self.count
        with peers_guarded():
            dist.all_gather_object(found, own)
        return tuple(address for address in found if address is not None)

    def told(self, places: Mapping[int, Sequence[Address]]) -> dict[int, Address]:
        """Return where the ranks of this number are at the neighbouring sites, by side.

        Args:
            places: Where all of their ranks are, on the first rank; the others' is not looked at.
        """
        if self.count == 1:
            return {}
        one: list[Mapping[int, Sequence[Address]]] = [places]
        with peers_guarded():
            dist.broadcast_object_list(one, src=0)
        return {side: tuple(all_of_it[self.rank]) for side, all_of_it in one[0].items()}  # type: ignore[misc]

    def average(self, parameters: Sequence[nn.Parameter], loss: float) -> float:
        """Average the gradients over the ranks, in place; return the mean of their losses.

        Without parameters, only the losses are averaged.
        """
        if self.count == 1:
            return loss
        gradients: list[Tensor] = []
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(parameter.grad)
        total = torch.tensor(loss, dtype=torch.float64)
        with peers_guarded(), torch.no_grad():
            dist.all_reduce(total)
            if gradients:
                sum_together(gradients, self._axis)
                torch._foreach_div_(gradients, float(self.count))
        return float(total) / self.count
