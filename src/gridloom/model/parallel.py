"""How a model is cut: degrees along the axes of the device mesh, and the sync between sites."""

from typing import Literal

import msgspec

Sync = Literal["every_step"]
"""How replica groups at different sites keep one model: gradients averaged at every step."""


class ParallelPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Degrees along the mesh axes; their product with ``data`` is the world size.

    Attributes:
        tensor: Ranks that share each matrix; they sit in one node.
        pipeline: Stages of layers.
        context: Ranks that share each sequence.
        data: Copies of the model.
        sync: How copies at different sites stay one model.
    """

    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    data: int = 1
    sync: Sync = "every_step"

    @property
    def replica_ranks(self) -> int:
        """Ranks that hold one full copy of the model."""
        return self.tensor * self.pipeline * self.context

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self.replica_ranks * self.data
