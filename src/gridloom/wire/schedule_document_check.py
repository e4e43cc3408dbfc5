"""What a job says to the scheduler, checked against itself and against the grid."""

from collections.abc import Callable, Iterator, Sequence

from gridloom.model.inventory import Inventory, Site
from gridloom.wire.documents_check import Finding, Reading
from gridloom.wire.documents_names import node_domains
from gridloom.wire.documents_values import did_you_mean
from gridloom.wire.job_document import JobDocument
from gridloom.wire.source_tree import Path
from gridloom.wire.topology_document import LEVEL_WORDS
from gridloom.wire.topology_document_check import label_findings, resource_problem

Job = Reading[JobDocument]

_GROUPS = ("tensor", "replica", "gang")
_RANK_FIELDS = {"cpus": "cpus_per_rank", "memory": "memory_per_rank"}


def check_schedule(job: Job) -> Iterator[Finding]:
    """Yield what does not fit together in what the job says to the scheduler."""
    for check in (_sizes, _groups, _names, _places, _after):
        yield from check(job)


def check_schedule_against_grid(job: Job, inventory: Inventory) -> Iterator[Finding]:
    """Yield what the job names that the grid does not have."""
    for check in _AGAINST_GRID:
        yield from check(job, inventory)


def _sizes(job: Job) -> Iterator[Finding]:
    """Yield wishes for another number of devices where only one is allowed."""
    devices = job.value("resources", "accelerators")
    if devices is not None and devices.least == devices.most:
        remedy = f"write `accelerators: {devices.kind}:{max(devices.least // 2, 1)}-{devices.most}`"
        if job.value("elastic"):
            yield ("elastic",), f"`{devices.kind}:{devices.most}` is one size only", remedy
        if job.value("on_loss") == "shrink":
            yield ("on_loss",), f"`{devices.kind}:{devices.most}` cannot shrink", remedy
    tensor, most = job.value("parallel", "tensor"), job.value("resources", "ranks_per_node_max")
    if tensor and most and most < tensor:
        message = f"{tensor} ranks that share a matrix sit on one node, and {most} may"
        yield ("resources", "ranks_per_node_max"), message, f"write at least {tensor}"


def _groups(job: Job) -> Iterator[Finding]:
    level = _level(job, "tensor")
    if level not in (None, "island", "node"):
        message = f"ranks that share a matrix sit on one node, and not in a `{level}`"
        yield ("placement", "tensor"), message, "write `island` or `node`"
    level, fewest = _level(job, "gang"), job.value("resources", "min_sites")
    required = job.value("placement", "gang", "required")
    if level is not None and required and fewest is not None and fewest > 1:
        message = f"ranks at {fewest} sites cannot all sit in one `{level}`"
        yield ("placement", "gang"), message, "write `replica: ...`, or `required: false`"


def _level(job: Job, group: str) -> str | None:
    """Return the level that a group of ranks wants, in either form."""
    raw = job.raw("placement", group)
    level = raw.get("level") if isinstance(raw, dict) else raw
    return level if isinstance(level, str) else None


def _names(job: Job) -> Iterator[Finding]:
    yield from label_findings(("resources", "labels"), job.raw("resources", "labels"))
    for name in job.keys("resources", "per_rank"):
        here = ("resources", "per_rank", name)
        if name in _RANK_FIELDS:
            yield here, f"`{name}` has a field of its own", f"write `{_RANK_FIELDS[name]}`"
        elif problem := resource_problem(name):
            message, remedy = problem
            for word, field in _RANK_FIELDS.items():
                remedy = remedy.replace(f"`{word}`", f"`{field}`")
            yield here, message, remedy


def _places(job: Job) -> Iterator[Finding]:
    """Yield sites of the job's nodes and data that are not among its sites."""
    sites = job.value("resources", "sites") or ()
    for item in job.value("resources", "nodes") or ():
        site = item.partition("/")[0]
        if sites and site not in sites:
            message = f"`{item}` is at none of the job's sites"
            yield ("resources", "nodes"), message, "add its site to `sites`, or remove it"
    data = job.value("data", "sites") or ()
    if job.value("data", "required") and not data:
        yield ("data", "required"), "is read with `data.sites` only", "write `sites: [north]`"
    elif job.value("data", "required") and sites and not set(data) & set(sites):
        message = "none of the sites with the data is among the job's sites"
        yield ("data", "sites"), message, "add one to `resources.sites`, or drop `required`"


def _after(job: Job) -> Iterator[Finding]:
    raw = job.raw("after")
    items = raw if isinstance(raw, list) else []
    seen: list[str] = []
    for i, item in enumerate(items):
        other = item.get("job") if isinstance(item, dict) else item
        if isinstance(other, str) and other in seen:
            yield ("after", i), f"`{other}` is named twice", "keep one"
        if isinstance(other, str):
            seen.append(other)


def _queue(job: Job, inventory: Inventory) -> Iterator[Finding]:
    known = [queue.name for queue in inventory.queues]
    wanted = job.value("queue")
    if wanted is not None and wanted not in known:
        has = f"the grid has: {', '.join(known)}" if known else "remove it: the grid has no queues"
        yield ("queue",), f"the grid has no queue `{wanted}`", did_you_mean(wanted, known) or has
    elif len(known) > 1 and not job.given("queue"):
        yield ("queue",), "is missing, and the grid has several", f"write one of {', '.join(known)}"


def _data(job: Job, inventory: Inventory) -> Iterator[Finding]:
    known = [site.name for site in inventory.sites]
    for name in job.value("data", "sites") or ():
        if name not in known:
            remedy = did_you_mean(name, known) or f"the grid has: {', '.join(known)}"
            yield ("data", "sites"), f"the grid has no site `{name}`", remedy


def _nodes(job: Job, inventory: Inventory) -> Iterator[Finding]:
    wanted = job.value("resources", "nodes") or ()
    known = {f"{site.name}/{node.name}" for site in inventory.sites for node in site.nodes}
    for item in wanted:
        missing = next((name for name in node_domains((item,)) if name not in known), "")
        if missing:
            site = missing.partition("/")[0]
            few = [name for name in sorted(known) if name.startswith(f"{site}/")][:3]
            sites = [each.name for each in inventory.sites]
            remedy = did_you_mean(site, sites) if not few else f"there are: {', '.join(few)}, ..."
            yield ("resources", "nodes"), f"the grid has no node `{missing}`", remedy


def _labels(job: Job, inventory: Inventory) -> Iterator[Finding]:
    wanted = job.raw("resources", "labels")
    for name, value in wanted.items() if isinstance(wanted, dict) else ():
        has = {node.labels.get(name) for site in _allowed(job, inventory) for node in site.nodes}
        values = sorted(each for each in has if each is not None)
        if not values:
            names = sorted(
                {label for site in inventory.sites for node in site.nodes for label in node.labels}
            )
            remedy = did_you_mean(name, names) or _has(names)
            yield ("resources", "labels", name), f"no node is labelled with `{name}`", remedy
        elif isinstance(value, str) and value not in values:
            remedy = did_you_mean(value, values) or _has(values)
            yield ("resources", "labels", name), f"no node has `{name}: {value}`", remedy


def _resources(job: Job, inventory: Inventory) -> Iterator[Finding]:
    known = {name for site in inventory.sites for node in site.nodes for name in node.resources}
    wanted: list[tuple[Path, str, str]] = [
        (("resources", "per_rank", name), name, name)
        for name in job.keys("resources", "per_rank")
        if resource_problem(name) is None
    ]
    for field, name in (("cpus_per_rank", "cpus"), ("memory_per_rank", "memory_gib")):
        if job.given("resources", field):
            wanted.append((("resources", field), name, name.removesuffix("_gib")))
    for path, name, shown in wanted:
        if name not in known:
            message = f"no node of the grid says how much `{shown}` it has"
            near = did_you_mean(name, sorted(known))
            yield path, message, near or f"write `resources: {{{shown}: ...}}` at its nodes"


def _levels(job: Job, inventory: Inventory) -> Iterator[Finding]:
    levels = [level for site in _allowed(job, inventory) for level in site.levels]
    known = [*dict.fromkeys([*LEVEL_WORDS, *levels])]
    for group in _GROUPS:
        level = _level(job, group)
        if level is not None and level not in known:
            remedy = f"{did_you_mean(level, known)} the grid has: {', '.join(known)}".strip()
            yield ("placement", group), f"no site has a level `{level}`", remedy


def _allowed(job: Job, inventory: Inventory) -> Sequence[Site]:
    """Return the sites that the job may use; all where none of those it names exists."""
    names = job.value("resources", "sites") or ()
    return [site for site in inventory.sites if site.name in names] or inventory.sites


def _has(words: Sequence[str]) -> str:
    few = ", ".join(words[:8]) + (", ..." if len(words) > 8 else "")
    return f"there are: {few}" if words else "no node of the grid has labels"


_AGAINST_GRID: tuple[Callable[[Job, Inventory], Iterator[Finding]], ...] = (
    _queue, _data, _nodes, _labels, _resources, _levels,
)  # fmt: skip
