"""The mesh of one site: which ranks hold which part of the model, and their process groups.

The site's ranks are the ranks of torch's default process group. Tensor ranks are neighbours, then
context, then pipeline, then data: who talks most is nearest (Narayanan et al. 2021, section 3).
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from gridloom.model.parallel import ParallelPlan
from gridloom.model.recipe import GptShape
from gridloom.runtime.inside.check import check_plan


@dataclass(frozen=True)
class Axis:
    """One axis of the mesh, as one rank sees it.

    Attributes:
        size: Ranks along it.
        position: This rank's place among them.
        group: Their process group; ``None`` when there is one rank.
    """

    size: int = 1
    position: int = 0
    group: dist.ProcessGroup | None = None


class Axes:
    """The axes of a site of which this process is one rank.

    A copy of the model lies over ``tensor x context x pipeline`` ranks; ``data_ranks`` copies
    each read a share of the batch. Over ``data x context`` ranks the weights of a part are equal,
    and their gradients are summed: ``replicate`` (whole copies) times ``shard`` (one copy spread
    over them). The weights of experts are spread over ``expert`` of these ranks, and repeated
    over the ``expert_data`` others.

    Attributes:
        plan: How the model is cut.
        device: Where this rank computes.
        rank: This rank in the site.
        world: Ranks of the site.
        tensor: Ranks that share each matrix.
        context: Ranks that share each sequence.
        pipeline: Ranks that hold the stages.
        replicate: Ranks with equal weights.
        shard: Ranks over which weights are sharded.
        expert: Ranks over which experts are spread.
        expert_data: Ranks with equal experts.
        ends: The first and the last stage, where the model is tied; on other ranks one rank.
        mesh: Pipeline, tensor, replicate and shard axes, as far as they have several ranks;
            ``None`` for one rank.
        expert_mesh: Pipeline, tensor, expert and expert_data axes likewise.
    """

    def __init__(
        self, plan: ParallelPlan, device: torch.device, shape: GptShape | None = None
    ) -> None:
        """Build the groups; every rank of the site must do so at the same time.

        Args:
            plan: How the model is cut.
            device: Where this rank computes.
            shape: Of gridloom's own model; ``None`` for a module of the user's.

        Raises:
            InputError: The plan does not go with the site, or with the model.
        """
        started = dist.is_initialized()
        self.world = dist.get_world_size() if started else 1
        self.rank = dist.get_rank() if started else 0
        check_plan(plan, self.world, shape)
        self.plan, self.device, self.shape = plan, device, shape
        sizes = (plan.data, plan.pipeline, plan.context, plan.tensor)
        ranks = torch.arange(self.world).view(sizes)
        self.data_rank = int((ranks == self.rank).nonzero()[0, 0])
        copies = plan.data * plan.context
        shard = (plan.shard or copies) if plan.zero else 1
        by_part = ranks.permute(1, 3, 0, 2)  # pipeline, tensor, data, context
        parts = ("pipeline", "tensor")
        split = by_part.reshape(plan.pipeline, plan.tensor, copies // shard, shard)
        self.mesh = _mesh(device, split, (*parts, "replicate", "shard"))
        self.tensor = _axis(self.mesh, "tensor")
        self.pipeline = _axis(self.mesh, "pipeline")
        self.replicate, self.shard = _axis(self.mesh, "replicate"), _axis(self.mesh, "shard")
        self.context = Axis()
        if plan.context > 1:
            self.context = _axis(_mesh(device, by_part, (*parts, "data", "context")), "context")
        self.expert_mesh, self.expert = self.mesh, Axis()
        self.expert_data = self.replicate
        if plan.expert > 1:
            split = by_part.reshape(plan.pipeline, plan.tensor, copies // plan.expert, plan.expert)
            # ranks of one expert axis are neighbours; in the mesh it comes first, because the
            # experts are cut along it first, and what is left along the other
            split = split.transpose(2, 3)
            self.expert_mesh = _mesh(device, split, (*parts, "expert", "expert_data"))
            self.expert = _axis(self.expert_mesh, "expert")
            self.expert_data = _axis(self.expert_mesh, "expert_data")
        self.ends = self._ends(by_part)

    @property
    def data_ranks(self) -> int:
        """Copies of the model in the site: shares that the site's batch is cut into."""
        return self.plan.data

    @property
    def is_spread(self) -> bool:
        """Whether the plan has ranks hold different parts of the model, and none a whole copy."""
        return self.plan.is_spread

    def _ends(self, by_part: torch.Tensor) -> Axis:
        """Join each rank of the first stage to its like of the last, where they share weights."""
        stages = self.pipeline.size
        if self.shape is None or not self.shape.tied_embeddings or stages == 1:
            return Axis()
        if stages == 2:
            return self.pipeline
        pairs = torch.stack((by_part[0].flatten(), by_part[-1].flatten()), dim=1).tolist()
        own, _ = dist.new_subgroups_by_enumeration(pairs)
        if self.pipeline.position not in (0, stages - 1):
            return Axis()
        return Axis(2, int(self.pipeline.position > 0), own)


def _mesh(device: torch.device, ranks: torch.Tensor, names: tuple[str, ...]) -> DeviceMesh | None:
    """Build a mesh of the axes that have more than one rank; ``None`` when none has."""
    kept = [i for i, size in enumerate(ranks.shape) if size > 1]
    if not kept:
        return None
    squeezed = ranks.reshape([ranks.shape[i] for i in kept])
    return DeviceMesh(device.type, squeezed, mesh_dim_names=tuple(names[i] for i in kept))


def _axis(mesh: DeviceMesh | None, name: str) -> Axis:
    if mesh is None or name not in (mesh.mesh_dim_names or ()):
        return Axis()
    group = mesh.get_group(name)
    return Axis(dist.get_world_size(group), dist.get_rank(group), group)
