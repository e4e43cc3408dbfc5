"""Yes-or-reason filters over sites and their nodes, and whether a job could ever run.

The filters stand in a fixed order, and the first that fails is the reason: may the site be used;
is it the right kind of device; has one enough memory; is the node kept for an earlier job; are
enough devices free for one tensor group.
"""

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from gridloom.base.units import format_bytes
from gridloom.core import explain
from gridloom.core.capacity import Capacity
from gridloom.core.gang import FreeNode, FreeSite, place
from gridloom.model.inventory import Inventory, Node, Site
from gridloom.model.reason import Reason, Refusal, Why
from gridloom.model.spec import JobSpec, Option


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What the grid has for one shape of a job.

    Attributes:
        sites: The allowed sites, with those of their nodes that passed every filter.
        looks: The same sites in numbers.
        refusals: For each site that is not enough alone, why, followed by its nodes that failed.
    """

    sites: tuple[FreeSite, ...]
    looks: tuple[explain.Look, ...]
    refusals: tuple[Refusal, ...]


def ever_fits(spec: JobSpec, inventory: Inventory) -> Reason | None:
    """Return nothing if the job can run on the empty grid, else why it never can."""
    if easiest(spec, inventory):
        return None
    if not spec.options:
        return explain.shapeless()
    smallest = _by_size(spec)[0]
    seen = survey(spec, smallest, inventory, Capacity())
    return Reason(
        code=Why.NEVER_FITS,
        sentence=explain.never_fits(spec, smallest, seen.looks),
        remedy=next(_remedies(spec, smallest, inventory)),
        refusals=seen.refusals,
    )


def easiest(spec: JobSpec, inventory: Inventory) -> Option | None:
    """Return the smallest option that can be placed on the empty grid; nothing if none can."""
    empty = Capacity()
    for option in _by_size(spec):
        if place(spec, option, survey(spec, option, inventory, empty).sites):
            return option
    return None


def survey(spec: JobSpec, option: Option, inventory: Inventory, capacity: Capacity) -> Survey:
    """Return what the grid has free for ``option``, and what every site and node lacks."""
    sites, looks, refusals = [], [], []
    for site in inventory.sites:
        if spec.sites and site.name not in spec.sites:
            refusals.append(
                Refusal(
                    code=Why.SITE_NOT_ALLOWED,
                    domain=site.name,
                    sentence=f"the job may not use {site.name}",
                )
            )
            continue
        free, refused = _site(option, site, capacity)
        look = _look(option, free, capacity)
        sites.append(free)
        looks.append(look)
        if look.found < option.plan.world_size:
            refusals.append(explain.site_refusal(option, look, refused))
        refusals.extend(refused)
    known = {site.name for site in inventory.sites}
    refusals.extend(
        Refusal(code=Why.SITE_NOT_ALLOWED, domain=name, sentence=f"the grid has no site {name}")
        for name in dict.fromkeys(spec.sites)
        if name not in known
    )
    return Survey(sites=tuple(sites), looks=tuple(looks), refusals=tuple(refusals))


def _by_size(spec: JobSpec) -> list[Option]:
    return sorted(spec.options, key=lambda option: option.plan.world_size)


def _site(option: Option, site: Site, capacity: Capacity) -> tuple[FreeSite, list[Refusal]]:
    nodes, refused = [], []
    for node in site.nodes:
        domain = f"{site.name}/{node.name}"
        free = capacity.free(domain, node)
        refusal = (
            _wrong_kind(option, node, domain)
            or _too_little_memory(option, node, domain)
            or _kept(capacity, domain)
            or _too_few(option, node, domain, len(free))
        )
        if refusal:
            refused.append(refusal)
        else:
            nodes.append(FreeNode(node=node, devices=free))
    return FreeSite(site=site, nodes=tuple(nodes)), refused


def _wrong_kind(option: Option, node: Node, domain: str) -> Refusal | None:
    if node.accelerator == option.accelerator:
        return None
    sentence = f"{domain} has {node.accelerator}, not {option.accelerator}"
    return Refusal(code=Why.WRONG_ACCELERATOR, domain=domain, sentence=sentence)


def _too_little_memory(option: Option, node: Node, domain: str) -> Refusal | None:
    """Refuse a node whose devices are known to be too small; what is unknown passes."""
    if not node.memory_bytes or option.memory_bytes <= node.memory_bytes:
        return None
    sentence = (
        f"a rank needs {format_bytes(option.memory_bytes)} and a device of {domain}"
        f" has {format_bytes(node.memory_bytes)}"
    )
    return Refusal(code=Why.TOO_LITTLE_MEMORY, domain=domain, sentence=sentence)


def _kept(capacity: Capacity, domain: str) -> Refusal | None:
    if not (earlier := capacity.held_for(domain)):
        return None
    sentence = f"{domain} is kept for {earlier}, which comes first"
    return Refusal(code=Why.HELD_FOR_EARLIER_JOB, domain=domain, sentence=sentence)


def _too_few(option: Option, node: Node, domain: str, free: int) -> Refusal | None:
    tensor = option.plan.tensor
    if free >= tensor:
        return None
    together = f", and {tensor} must be on one node" if tensor > 1 else ""
    return Refusal(
        code=Why.IN_USE if node.count >= tensor else Why.TOO_FEW_FREE,
        domain=domain,
        sentence=f"{domain} has {free} of {node.count} free{together}",
        wanted=tensor,
        found=free,
    )


def _look(option: Option, free: FreeSite, capacity: Capacity) -> explain.Look:
    domains = [
        (f"{free.site.name}/{node.name}", node)
        for node in free.site.nodes
        if not (_wrong_kind(option, node, "") or _too_little_memory(option, node, ""))
    ]
    users = [user for domain, _ in domains for user in capacity.users(domain)]
    return explain.Look(
        site=free.site.name,
        total=sum(node.count for _, node in domains),
        free=sum(len(capacity.free(domain, node)) for domain, node in domains),
        found=free.groups(option.plan) * option.plan.replica_ranks,
        users=tuple(dict.fromkeys(users)),
        held_for=next(filter(None, (capacity.held_for(domain) for domain, _ in domains)), ""),
    )


def _remedies(spec: JobSpec, option: Option, inventory: Inventory) -> Iterator[str]:
    """Yield changes that would let the job run, smallest first; each but the last was tried."""
    sites = len(inventory.sites)
    changes = [
        *(
            (replace(spec, max_sites=count), f"let it use up to {count} sites")
            for count in range(spec.max_sites + 1, sites + 1)
        ),
        *(
            (replace(spec, min_sites=count), f"let it run at {explain.number_of_sites(count)}")
            for count in range(spec.min_sites - 1, 0, -1)
        ),
        (replace(spec, sites=()), "let it use every site"),
        (
            replace(spec, options=(replace(option, memory_bytes=0),)),
            "cut the model further, so that a rank needs less memory",
        ),
        *_smaller(spec, option, inventory),
    ]
    yield from (remedy for changed, remedy in changes if easiest(changed, inventory))
    kinds = dict.fromkeys(node.accelerator for site in inventory.sites for node in site.nodes)
    yield f"add nodes with {option.accelerator}; the grid has {', '.join(kinds) or 'no nodes'}"


def _smaller(spec: JobSpec, option: Option, inventory: Inventory) -> Iterator[tuple[JobSpec, str]]:
    """Yield the same job with fewer replica groups: as many as its sites have room for."""
    plan = option.plan
    looks = survey(spec, option, inventory, Capacity()).looks
    found = sorted((look.found for look in looks), reverse=True)[: max(spec.max_sites, 0)]
    data = sum(found) // plan.replica_ranks
    smaller = replace(option, plan=replace(plan, data=data))
    yield (
        replace(spec, options=(smaller,)),
        f"ask for at most {smaller.plan.world_size} {option.accelerator}",
    )
