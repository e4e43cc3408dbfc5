"""Predicted seconds of a training step of gridloom's own recipe, on devices of the catalogue."""

from collections.abc import Callable, Sequence
from math import gcd

from msgspec.structs import replace

from gridloom.model.inventory import Inventory, Site
from gridloom.model.parallel import ParallelPlan, SiteSync
from gridloom.model.recipe import GptShape, Training
from gridloom.model.transformer import Transformer
from gridloom.planner.cases import Cases, model_columns, plan_columns
from gridloom.planner.catalogue import find_accelerator
from gridloom.planner.constants import Constants
from gridloom.planner.hardware import Fabric, machine_columns
from gridloom.planner.recipe_memory import micro_batch
from gridloom.planner.step_time import step_time


def recipe_step_s(
    recipe: tuple[GptShape, Training],
    accelerator: str,
    plan: ParallelPlan,
    fabric: Fabric,
    constants: Callable[[str], Constants],
) -> float:
    """Return the seconds of a training step; 0 where `why_unpredicted` says why.

    Args:
        recipe: The model, and how it is trained.
        accelerator: Kind of device.
        plan: How the model is cut; a rank is a device.
        fabric: The network that they find.
        constants: Of a family of accelerators.
    """
    shape, training = recipe
    kind = find_accelerator(accelerator)
    if kind is None or why_unpredicted(training, accelerator):
        return 0.0
    cases = Cases(
        model=model_columns(as_transformer(shape)),
        plan=plan_columns(as_plan(training, plan)),
        machine=machine_columns(kind, fabric),
        sequence=training.sequence_length,
        global_batch=training.global_batch,
    )
    return float(step_time(cases, constants(kind.family)).total_s)


def why_unpredicted(training: Training, accelerator: str) -> str:
    """Return why no time can be predicted; nothing when it can."""
    if find_accelerator(accelerator) is None:
        return f"the planner has no data sheet of `{accelerator}` devices"
    if training.precision == "fp32":
        # The recipe leaves fp32 products at full precision; data sheets state TF32's rate.
        return "rates of fp32 products without TF32 are not in its data sheets"
    return ""


def as_transformer(shape: GptShape) -> Transformer:
    """Return the recipe's model as the planner's noun."""
    return Transformer(
        name="gpt",
        layers=shape.layers,
        hidden=shape.hidden,
        ffn=shape.ffn,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        vocabulary=shape.vocabulary,
        tied=shape.tied_embeddings,
        experts=shape.experts,
    )


def as_plan(training: Training, plan: ParallelPlan) -> ParallelPlan:
    """Return what the recipe makes of a cut today: eager kernels, one exchange at the end."""
    return replace(
        plan,
        micro_batch=micro_batch(training, plan),
        precision=training.precision,
        native_attention=False,
        fused=False,
        overlap_gradients=False,
        gradient_bytes=4,
        site_sync=SiteSync(),
    )


def fabric_of(inventory: Inventory, accelerator: str, ranks: int, sites: Sequence[str]) -> Fabric:
    """Return the network that ``ranks`` devices at as few of ``sites`` as they need would find.

    Args:
        inventory: The grid.
        accelerator: Kind of device.
        ranks: Devices.
        sites: At which they may be; empty for any.
    """
    allowed = [site for site in inventory.sites if not sites or site.name in sites]
    held = sorted(allowed, key=lambda site: -_count(site, accelerator))
    used: list[Site] = []
    for site in held:
        if sum(_count(one, accelerator) for one in used) >= ranks:
            break
        used.append(site)
    counts = [n.count for s in used for n in s.nodes if n.accelerator == accelerator]
    names = {site.name for site in used}
    links = [link for link in inventory.links if set(link.between) <= names]
    rates = [link.bandwidth_bits_per_s / 8 for link in links if link.bandwidth_bits_per_s]
    return Fabric(
        node=gcd(*counts) if len(counts) > 1 else 0,
        sites=max(1, len(used)),
        wan_bytes_per_s=min(rates, default=0.0),
        wan_latency_s=max((link.latency_s for link in links), default=0.0),
    )


def _count(site: Site, accelerator: str) -> int:
    return sum(node.count for node in site.nodes if node.accelerator == accelerator)
