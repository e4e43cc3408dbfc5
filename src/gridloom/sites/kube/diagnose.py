"""From what is known of a cluster to what is wrong with a site, and what helps (pure)."""

from collections import Counter
from collections.abc import Iterable, Iterator

from gridloom.model.inventory import CPU, KubeAccess, Site
from gridloom.sites.finding import Finding, clock, fail, few, ok, warn
from gridloom.sites.kube.facts import Facts
from gridloom.sites.kube.inventory import first_kind
from gridloom.sites.kube.parse_kueue import ClusterQueue
from gridloom.sites.kube.parse_nodes import KubeNode, Standing
from gridloom.sites.kube.quantity import amount, amount_text, parse_quantity

_IN_FILE = "under `kubernetes:` of the site in the grid file"
_ASK = "ask who runs the cluster"
_MANIFEST = "`gridloom site manifest kube` prints the account and the rights that are needed"
_MISSING, _FORBIDDEN = 404, 403
_GPU = "nvidia.com/gpu"

_TROUBLES = (
    ("gridloom[kube]", "install it here"),
    (
        "cannot be used",
        f"write `kubeconfig:` and `context:` {_IN_FILE}, or let KUBECONFIG name the file",
    ),
    ("does not accept our token", "log in to the cluster again: the token has expired or is wrong"),
    ("token cannot be had", "log in to the cluster again: the token has expired or is wrong"),
    (
        "CERTIFICATE",
        "take the kubeconfig anew: its certificate authority is not the server's, or has expired",
    ),
    (
        "certificate",
        "take the kubeconfig anew: its certificate authority is not the server's, or has expired",
    ),
)


def diagnose(site: Site, facts: Facts) -> tuple[Finding, ...]:
    """Return what was found, in the order in which a person would look.

    Args:
        site: As the grid file has it.
        facts: What is known of its cluster.
    """
    access = site.kubernetes
    assert access is not None  # the grid file was checked
    if facts.trouble:
        remedy = next((one for words, one in _TROUBLES if words in facts.trouble), "")
        remedy = remedy or "look that this machine reaches it: `kubectl version` should answer"
        return (fail("api", facts.trouble, remedy),)
    return (
        ok("api", f"Kubernetes {facts.release}"),
        *_clock(facts),
        *_rights(facts, access),
        *_queue(site, access, facts),
        *_devices(site, access, facts),
        *_claims(facts, access),
        *_trial(facts, access),
    )


def holds_all(site: Site, findings: Iterable[Finding]) -> bool:
    """Return whether what was found keeps every small job of the site waiting for ever."""
    kind = first_kind(site)
    holds = (("nodes", ""), ("nodes", kind), ("devices", kind))
    return any(
        one.check in ("queue", "volumes", "pods") or (one.check, one.of) in holds
        for one in findings
        if one.state == "fail"
    )


def _clock(facts: Facts) -> Iterator[Finding]:
    if facts.told_s is not None:
        yield clock("API server", "the API server's", facts.told_s, facts.asked_s)


def _rights(facts: Facts, access: KubeAccess) -> Iterator[Finding]:
    if any(said.startswith("do anything") for said in facts.denied):
        remedy = f"write another `namespace:` {_IN_FILE}, or: {_MANIFEST}"
        yield fail("rights", f"the account may not {'; '.join(facts.denied)}", remedy)
    elif facts.denied:
        yield fail("rights", f"the account may not {'; '.join(facts.denied)}", _MANIFEST)
    else:
        yield ok("rights", f"all that are needed in {access.namespace}")


def _queue(site: Site, access: KubeAccess, facts: Facts) -> Iterator[Finding]:
    wanted = access.queue
    if not wanted:
        return
    if not facts.has_kueue:
        remedy = f"install Kueue there, or leave `queue:` out {_IN_FILE}"
        yield fail("queue", "the cluster has no Kueue", remedy)
        return
    if facts.queues is None:
        return  # that they may not be read was said with the rights
    ours = next((one for one in facts.queues if one.name == wanted), None)
    if ours is None:
        names = few(one.name for one in facts.queues) or "there is none"
        found = f"namespace {access.namespace} has no LocalQueue {wanted}"
        yield fail("queue", found, f"write `queue:` {_IN_FILE}: {names}")
    elif ours.stop or not ours.active:
        said = f"it is stopped ({ours.stop})" if ours.stop else ours.sentence
        yield fail("queue", f"LocalQueue {wanted} passes nothing on: {said}", _ASK)
    elif facts.cluster_queue is None:
        yield ok("queue", f"{wanted}, of ClusterQueue {ours.cluster_queue}")
    else:
        yield from _cluster_queue(site, access, facts, facts.cluster_queue)


def _cluster_queue(
    site: Site, access: KubeAccess, facts: Facts, queue: ClusterQueue
) -> Iterator[Finding]:
    if queue.stop or not queue.active:
        said = f"it is stopped ({queue.stop})" if queue.stop else queue.sentence
        yield fail("queue", f"ClusterQueue {queue.name} admits nothing: {said}", _ASK)
        return
    needs = _needs(access)
    kinds = {_resource(access, node.accelerator) for node in site.nodes}
    for resource in sorted(kinds | needs.keys()):
        quotas = [one for one in queue.quotas if one.resource == resource]
        gone = [one.flavor for one in quotas if one.flavor not in (facts.flavors or (one.flavor,))]
        if not quotas:
            has = few(dict.fromkeys(one.resource for one in queue.quotas)) or "nothing"
            found = f"no flavour of ClusterQueue {queue.name} has {resource}, they have {has}"
            remedy = f"{_ASK} to add it to the queue's resource groups"
            yield fail("queue", found, remedy, of=resource)
        elif gone:
            found = f"ClusterQueue {queue.name} names flavours that are not there: {few(gone)}"
            yield fail("queue", found, f"{_ASK} to make the ResourceFlavor", of=resource)
        elif not any(one.nominal or _borrows(one.borrowing, queue) for one in quotas):
            found = f"ClusterQueue {queue.name} has a quota of 0 {resource}, and cannot borrow"
            remedy = f"{_ASK} for quota, or write another `queue:`"
            yield fail("queue", found, remedy, of=resource)
        elif needs.get(resource, 0) > (most := max(one.nominal for one in quotas)) and (
            not queue.cohort  # else it may borrow
        ):
            asks, has = amount_text(resource, needs[resource]), amount_text(resource, most)
            found = f"a pod asks for {asks} of {resource}, ClusterQueue {queue.name} has {has}"
            yield fail("queue", found, f"ask for less in `resources:` {_IN_FILE}", of=resource)
        else:
            own = amount_text(resource, sum(one.nominal for one in quotas))
            used = amount_text(resource, sum(one.used for one in quotas))
            yield ok("queue", f"{access.queue}: {used} of {own} used", of=resource)


def _needs(access: KubeAccess) -> dict[str, int]:
    """Return what each pod asks for besides its devices, as quotas count it."""
    return {
        name: amount(name, parse_quantity(quantity)) for name, quantity in access.resources.items()
    }


def _borrows(limit: int | None, queue: ClusterQueue) -> bool:
    return bool(queue.cohort) and limit != 0


def _devices(site: Site, access: KubeAccess, facts: Facts) -> Iterator[Finding]:
    if facts.nodes is None:
        return
    if not facts.nodes:
        yield from _no_nodes(access, facts)
        return
    wanted: Counter[tuple[str, str]] = Counter()
    for node in site.nodes:
        key = (node.accelerator, _resource(access, node.accelerator))
        wanted[key] = max(wanted[key], node.count)
    for (kind, resource), count in wanted.items():
        there = [node for node in facts.nodes if _has(node, resource)]
        if not there:
            has = few(sorted({node.resource for node in facts.nodes}))
            remedy = f"{_ASK} for the vendor's device plugin, or write `devices: {{{kind}: NAME}}`"
            found = f"no node offers {resource} for {kind}; they offer: {has}"
            yield fail("devices", found, f"{remedy} {_IN_FILE}", of=kind)
            continue
        most = max(node.node.count for node in there)
        if most < count:
            found = f"the grid file gives a node {count} {kind}, the largest has {most}"
            yield fail("devices", found, f"write `{kind}:{most}`", of=f"{kind} a node")
        else:
            yield ok("devices", f"{most} {resource} a node", of=kind)
        yield from _pods(access, there, kind)
        yield from _standing(there, kind)


def _no_nodes(access: KubeAccess, facts: Facts) -> Iterator[Finding]:
    if not access.node_selector:
        yield fail("nodes", "the cluster has no nodes", _ASK)
        return
    wanted = ", ".join(f"{name}={value}" for name, value in access.node_selector.items())
    have = "; ".join(
        f"{name}: {few(values)}" if values else f"none has the label {name}"
        for name, values in facts.labels.items()
    )
    remedy = f"mend `node_selector:` {_IN_FILE}; of these labels nodes have: {have}"
    yield fail("nodes", f"no node has the labels {wanted}", remedy)


def _pods(access: KubeAccess, nodes: list[KubeNode], kind: str) -> Iterator[Finding]:
    """Tell what a pod asks for that no node can give, even when nothing runs on it."""
    for resource, need in _needs(access).items():
        most = max(node.offers.get(resource, 0) for node in nodes)
        if need > most:
            asks, has = amount_text(resource, need), amount_text(resource, most)
            found = f"a pod asks for {asks} of {resource}, the largest node with {kind} has {has}"
            remedy = f"ask for less in `resources:` {_IN_FILE}: a node keeps some for itself"
            if not most:
                found = f"a pod asks for {resource}, and no node with {kind} has any"
                remedy = f"remove it from `resources:` {_IN_FILE}, or {_ASK} for its device plugin"
            yield fail("pods", found, remedy, of=f"{resource}, {kind}")


def _has(node: KubeNode, resource: str) -> bool:
    return node.resource == resource and node.node.count > 0


def _standing(nodes: list[KubeNode], kind: str) -> Iterator[Finding]:
    out = [node for node in nodes if node.standing is not Standing.USABLE]
    if not out:
        yield ok("nodes", f"{len(nodes)} in service", of=kind)
        return
    reasons = "; ".join(f"{node.host}: {node.sentence}" for node in out[:6])
    more = f" and {len(out) - 6} more" if len(out) > 6 else ""
    keys = sorted({taint.key for node in out for taint in node.taints})
    tolerate = ", ".join(f"{{key: {key}}}" for key in keys)
    remedy = _ASK
    if any(node.standing is Standing.TAINTED for node in out):
        remedy = f"if jobs may run there, write `tolerations: [{tolerate}]` {_IN_FILE}"
    if len(out) == len(nodes):
        yield fail("nodes", f"none takes our pods: {reasons}{more}", remedy, of=kind)
    else:
        found = f"{len(out)} of {len(nodes)} do not take our pods: {reasons}{more}"
        yield warn("nodes", found, remedy, of=kind)


def _claims(facts: Facts, access: KubeAccess) -> Iterator[Finding]:
    for claim in facts.missing_claims:
        found = f"namespace {access.namespace} has no PersistentVolumeClaim {claim}"
        remedy = f"make it, or mend `runs:` and `volumes:` {_IN_FILE}"
        yield fail("volumes", found, remedy, of=claim)


def _trial(facts: Facts, access: KubeAccess) -> Iterator[Finding]:
    if not facts.refusal:
        yield ok("trial", f"a {access.workload} of one pod would be taken")
    elif facts.refusal_code == _MISSING and "namespaces" in facts.refusal:
        found = f"there is no namespace {access.namespace}"
        yield fail("namespace", found, f"make it, or write another `namespace:` {_IN_FILE}")
    elif facts.refusal_code == _MISSING:
        remedy = f"install it there, or write `workload: job` {_IN_FILE}"
        yield fail("workload", f"the cluster does not know a {access.workload}", remedy)
    elif facts.refusal_code == _FORBIDDEN and facts.denied:
        return  # it was said with the rights
    else:
        yield fail("trial", f"a job would not be taken: {facts.refusal}", f"mend it {_IN_FILE}")
    if insecure := [said for said in facts.warnings if "PodSecurity" in said]:
        remedy = (
            "let the namespace allow it (label pod-security.kubernetes.io/enforce), or take"
            " `runs: {claim: ...}` for a path of the node"
        )
        yield fail("pod security", "; ".join(insecure), remedy)
    if others := [said for said in facts.warnings if said not in insecure]:
        yield warn("warnings", "; ".join(others), _ASK)


def _resource(access: KubeAccess, kind: str) -> str:
    return "cpu" if kind == CPU else access.devices.get(kind, _GPU)
