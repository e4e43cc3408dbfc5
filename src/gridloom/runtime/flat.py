"""A model whose parameters, gradients and moments lie in a few flat tensors.

The gradients of all parameters are views of one bucket, which is what is exchanged each step: no
copy before, none after. The bucket ends in a tail of plain numbers that ride along.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from gridloom.model.recipe import Training


class FlatModel:
    """A model laid out flat, matrices before vectors, with its AdamW.

    Weight decay is for matrices only, so the flat tensor has two parts and the optimiser two
    tensors, however many parameters the model has.

    Attributes:
        parameters: Number of parameters.
        bucket: fp32 gradients ``[parameters]`` followed by the tail.
        optimizer: AdamW over the flat parts.
    """

    def __init__(self, model: nn.Module, training: Training, tail: int) -> None:
        named = sorted(model.named_parameters(), key=lambda pair: pair[1].dim() < 2)
        self.parameters = sum(parameter.numel() for _, parameter in named)
        device = named[0][1].device
        self.bucket = torch.zeros(self.parameters + tail, device=device)
        self._weights = torch.empty(self.parameters, device=device)
        self._moments = {
            key: torch.zeros(self.parameters, device=device) for key in ("exp_avg", "exp_avg_sq")
        }
        self._places: dict[str, tuple[slice, torch.Size]] = {}
        start = vectors = 0
        for name, parameter in named:
            place = slice(start, start + parameter.numel())
            self._places[name] = (place, parameter.shape)
            self._weights[place] = parameter.detach().flatten()
            parameter.data = self._weights[place].view(parameter.shape)
            parameter.grad = self.bucket[place].view(parameter.shape)
            start = place.stop
            vectors = start if parameter.dim() >= 2 else vectors
        self.optimizer = self._adamw(training, (slice(0, vectors), slice(vectors, start)))

    @property
    def gradients(self) -> Tensor:
        """The part of the bucket that holds gradients, ``[parameters]``."""
        return self.bucket[: self.parameters]

    @property
    def tail(self) -> Tensor:
        """The part of the bucket that rides along."""
        return self.bucket[self.parameters :]

    def tensors(self) -> dict[str, Tensor]:
        """Return all state that outlives a step, by name, as views that may be written to."""
        flat = {"weight": self._weights, **self._moments}
        return {
            f"{kind}.{name}": whole[place].view(shape)
            for kind, whole in flat.items()
            for name, (place, shape) in self._places.items()
        }

    def load(self, tensors: Mapping[str, Tensor], steps_taken: int) -> None:
        """Copy saved state in, and tell AdamW how many steps its moments have seen."""
        for name, view in self.tensors().items():
            view.copy_(tensors[name])
        for state in self.optimizer.state.values():
            state["step"].fill_(float(steps_taken))

    def update(self, tokens: float, learning_rate: float, clip_norm: float) -> float:
        """Turn summed gradients into means, clip, take one AdamW step; return the norm unclipped.

        Args:
            tokens: Tokens the gradients were summed over, all ranks together.
            learning_rate: For this step.
            clip_norm: Global norm allowed; 0 for any.
        """
        norm = float(torch.linalg.vector_norm(self.gradients)) / tokens
        clip = min(1.0, clip_norm / (norm + 1e-6)) if clip_norm > 0 else 1.0
        self.gradients.mul_(clip / tokens)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step()
        return norm

    def _adamw(self, training: Training, parts: tuple[slice, slice]) -> torch.optim.AdamW:
        flat = [nn.Parameter(self._weights[part]) for part in parts]
        optimizer = torch.optim.AdamW(
            [
                {"params": [flat[0]], "weight_decay": training.weight_decay},
                {"params": [flat[1]], "weight_decay": 0.0},
            ],
            lr=training.learning_rate,
            betas=(training.beta1, training.beta2),
            fused=True,
        )
        for parameter, part in zip(flat, parts, strict=True):
            parameter.grad = self.bucket[part]
            optimizer.state[parameter] = {
                "step": torch.zeros((), device=parameter.device),
                **{key: moment[part] for key, moment in self._moments.items()},
            }
        return optimizer
