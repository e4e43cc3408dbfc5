"""AdamW over the pieces of one rank, as it is and as a checkpoint keeps it."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from gridloom.model.recipe import Training
from gridloom.runtime.inside.pieces import Piece
from gridloom.runtime.inside.scaler import LossScaler

_MOMENTS = ("exp_avg", "exp_avg_sq")
_STEP = "optimizer.step"
_SCALER = "scaler."


class Update:
    """Fused AdamW; weight decay is for matrices only.

    It works on the local boxes, not on torch's distributed tensors, which would cost a dispatch
    in Python for each of them.

    Attributes:
        optimizer: The optimizer, which takes the pieces' gradients by itself at each step.
    """

    def __init__(self, pieces: Sequence[Piece], training: Training, scaler: LossScaler) -> None:
        self._scaler = scaler
        self._weights = [
            (piece, nn.Parameter(piece.tensor)) for piece in pieces if piece.tensor.numel()
        ]
        groups = [
            [weight for piece, weight in self._weights if (len(piece.shape) >= 2) == matrices]
            for matrices in (True, False)
        ]
        decays = (training.weight_decay, 0.0)
        self.optimizer = torch.optim.AdamW(
            [
                {"params": weights, "weight_decay": decay}
                for weights, decay in zip(groups, decays, strict=True)
                if weights
            ],
            lr=training.learning_rate,
            betas=(training.beta1, training.beta2),
            fused=True,
        )
        for _, weight in self._weights:
            self.optimizer.state[weight] = {
                "step": torch.zeros((), device=weight.device),
                **{name: torch.zeros_like(weight) for name in _MOMENTS},
            }

        self.optimizer.register_step_pre_hook(self._take_gradients)
        self.optimizer.register_step_post_hook(self._drop_gradients)

    def step(self, learning_rate: float) -> None:
        """Move the weights by their gradients."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step()

    def state(self, whole: Callable[[Piece, Tensor], Tensor]) -> dict[str, Tensor]:
        """Return what a checkpoint keeps beside the weights; the tensors share memory.

        Args:
            whole: Turns a box like a piece's into a part of the whole.
        """
        tensors: dict[str, Tensor] = {}
        steps = torch.zeros(())
        for piece, weight in self._weights:
            state = self.optimizer.state[weight]
            steps = state["step"].cpu()
            for name in _MOMENTS:
                tensors[f"{name}.{piece.name}"] = whole(piece, state[name])
        tensors[_STEP] = steps.clone()
        for name, value in self._scaler.state().items():
            tensors[f"{_SCALER}{name}"] = torch.tensor(value, dtype=torch.float64)
        return tensors

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what ``state`` gave."""
        for piece, weight in self._weights:
            state = self.optimizer.state[weight]
            state["step"].fill_(float(tensors[_STEP]))
            for name in _MOMENTS:
                state[name].copy_(local_box(tensors[f"{name}.{piece.name}"]))
        self._scaler.load({k: float(tensors[_SCALER + k]) for k in self._scaler.state()})

    def _take_gradients(self, *given: object) -> None:
        for piece, weight in self._weights:
            weight.grad = piece.gradient

    def _drop_gradients(self, *given: object) -> None:
        for _, weight in self._weights:
            weight.grad = None


def local_box(tensor: Tensor) -> Tensor:
    """Return this rank's box of a tensor that may be a part of a whole."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
