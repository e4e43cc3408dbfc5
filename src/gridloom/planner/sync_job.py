"""The sync method of a job: its situation, from what it asks for and what the grid has (pure)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from msgspec.structs import replace

from gridloom.model.inventory import CPU, Inventory, Link
from gridloom.model.parallel import SiteSync
from gridloom.model.spec import JobSpec
from gridloom.planner.shape import parameter_count, step_flops
from gridloom.planner.sync_forecast import SyncLink, SyncSituation

UNKNOWN_LINK = SyncLink(bytes_per_s=12.5e6, rtt_s=0.04)
"""Taken for a link that the grid file does not describe: 100 Mbit/s and 40 ms there and back."""

CPU_FLOPS = 40e9
"""Flop/s of a CPU core in fp32 that small models were seen to reach, 30 to 90 Gflop/s; rough, and
enough: on slow links every method but outer steps is out of the question by far."""


@dataclass(frozen=True)
class JobSync:
    """What a job's sites have to exchange, and what had to be assumed.

    Attributes:
        situation: Of the largest of its shapes, at as many sites as it may use.
        unknown: Pairs of sites whose link the grid does not describe.
    """

    situation: SyncSituation
    unknown: tuple[tuple[str, str], ...] = ()


def job_sync(spec: JobSpec, inventory: Inventory, step_s: float = 0.0) -> JobSync | None:
    """Return the situation of a job of the recipe; nothing when it uses one site, or no recipe.

    Args:
        spec: The job, with its shapes.
        inventory: The grid.
        step_s: Of a training step of the first shape, as if its sites were one; 0: from what CPU
            cores do.
    """
    recipe, option = spec.recipe, spec.options[0]
    used = sites_with(inventory, spec.sites, option.accelerator)
    sites = min(spec.max_sites, len(used), option.plan.world_size)
    if recipe is None or sites < 2:
        return None
    training, shape = recipe.training, recipe.shape
    tokens = training.global_batch * training.sequence_length
    ranks = option.plan.world_size
    flops = step_flops(shape, tokens, training.sequence_length)
    links, unknown = links_between(used, inventory.links)
    situation = SyncSituation(
        parameters=parameter_count(shape),
        width=shape.hidden,
        tokens=float(training.steps * tokens),
        step_s=step_s or flops / (ranks * CPU_FLOPS),
        step_tokens=float(tokens),
        sites=sites,
        links=links,
        ranks=max(1, ranks // sites),
        is_sharded=option.plan.zero > 0,
        shares_cores=option.accelerator == CPU,
    )
    return JobSync(situation, unknown)


def with_sync(spec: JobSpec, how: SiteSync) -> JobSpec:
    """Return the job with one method in all that it says.

    All shapes have the same one: after a restart on another number of devices, the state that
    was saved must still fit.
    """
    return replace(
        spec,
        options=tuple(
            replace(option, plan=replace(option.plan, site_sync=how)) for option in spec.options
        ),
        recipe=replace(spec.recipe, sync=how) if spec.recipe is not None else None,
    )


def sites_with(inventory: Inventory, allowed: Sequence[str], accelerator: str) -> tuple[str, ...]:
    """Return the sites that have such devices and may be used; without ``allowed``, any."""
    return tuple(
        site.name
        for site in inventory.sites
        if (not allowed or site.name in allowed)
        and any(node.accelerator == accelerator for node in site.nodes)
    )


def links_between(
    sites: Sequence[str], links: Iterable[Link]
) -> tuple[tuple[SyncLink, ...], tuple[tuple[str, str], ...]]:
    """Return the links between any two of ``sites``, and the pairs without a known one.

    Which of them a job will use is not known before it is placed; what is slowest counts.
    """
    known = {
        frozenset(link.between): SyncLink(
            bytes_per_s=link.bandwidth_bits_per_s / 8, rtt_s=2 * link.latency_s, loss=link.loss
        )
        for link in links
        if link.bandwidth_bits_per_s
    }
    pairs = tuple(combinations(sites, 2))
    found = tuple(known.get(frozenset(pair), UNKNOWN_LINK) for pair in pairs)
    return found, tuple(pair for pair in pairs if frozenset(pair) not in known)
