"""A user's model over the ranks of its site."""

from msgspec.structs import replace
from torch import nn

from gridloom.model.parallel import ParallelPlan
from gridloom.runtime.inside import parallelize as inside
from gridloom.runtime.inside.axes import Axes
from gridloom.runtime.inside.site_model import SiteModel
from gridloom.runtime.library.start import current


def parallelize(model: nn.Module, plan: ParallelPlan | None = None) -> SiteModel:
    """Spread a module over the ranks of the site, in place, on their devices.

    All ranks begin with the parameters of the first. After the last ``backward`` of a training
    step, and before gradients are read, comes the result's ``finish()``.

    Args:
        model: Any module; the optimizer is built afterwards, over its parameters.
        plan: How; by default as the job's ``parallel`` says, else every rank has a copy, and
            gradients are averaged.

    Raises:
        InputError: The plan does not go with the site, or not with a module of one's own.
    """
    run = current()
    if plan is None:
        said = run.place.plan
        copies = max(1, run.place.size // said.replica_ranks)
        plan = replace(said, data=copies, precision="fp32")
    return inside.parallelize(model, Axes(plan, run.device))
