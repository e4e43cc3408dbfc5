"""From the nodes that a cluster tells to a site of the inventory (pure)."""

from msgspec.structs import replace

from gridloom.base.errors import SiteError
from gridloom.model.inventory import CPU, KubeAccess, Site
from gridloom.sites.kube.parse_nodes import Standing, node_labels, read_nodes
from gridloom.sites.kube.reading import items
from gridloom.sites.kube.submission import Toleration
from gridloom.sites.kube.topology_levels import find_levels

_NEVER = frozenset({Standing.TAINTED, Standing.LEAVING})


def with_nodes(site: Site, answer: object) -> Site:
    """Return the site with the nodes that its pods may get, whether they are ready now or not.

    Nodes whose taints its pods do not tolerate are left out, and those that share their devices out
    to several pods. Where some have accelerators, those without are left out, too. What kinds are
    called in the cluster is added to the site's ``devices``.

    Args:
        site: As the grid file has it.
        answer: The API's list of nodes.

    Raises:
        SiteError: It is no list of nodes, or there is none for the site.
    """
    access = site.kubernetes
    assert access is not None  # the grid file was checked
    ours = selected(answer, access)
    levels = find_levels(node_labels(ours)) if ours else ()
    found = [
        one
        for one in read_nodes(ours, levels, tolerations_of(access))
        if one.standing not in _NEVER and not one.shared and one.node.count
    ]
    with_devices = [one for one in found if one.resource != "cpu"]
    found = with_devices or found
    if not found:
        labels = ", ".join(f"{name}={value}" for name, value in access.node_selector.items())
        which = f" with {labels}, as its `node_selector` wants" if labels and not ours else ""
        raise SiteError(f"the cluster has no node for the pods of site {site.name}{which}")
    devices = {one.node.accelerator: one.resource for one in found if one.node.accelerator != CPU}
    return replace(
        site,
        nodes=tuple(one.node for one in found),
        levels=tuple(level.name.replace("-", "_") for level in levels),
        kubernetes=replace(access, devices=devices | access.devices),
    )


def selected(answer: object, access: KubeAccess) -> list[object]:
    """Return those of the API's list of nodes that have the labels that pods of a site want.

    Raises:
        SiteError: It is no list of nodes.
    """
    wanted = access.node_selector.items()
    return [one for one in items(answer) if wanted <= _labels(one).items()]


def label_values(answer: object, name: str) -> tuple[str, ...]:
    """Return the values of a label that nodes have, each once."""
    return tuple(sorted({_labels(one)[name] for one in items(answer) if name in _labels(one)}))


def first_kind(site: Site) -> str:
    """Return the kind of devices that a small job of a site asks for."""
    return site.nodes[0].accelerator if site.nodes else CPU


def tolerations_of(access: KubeAccess) -> tuple[Toleration, ...]:
    """Return what pods of a site tolerate, besides the taint of their accelerator."""
    return tuple(
        Toleration(key=one.key, value=one.value, exists=not one.value, effect=one.effect)
        for one in access.tolerations
    )


def _labels(node: object) -> dict[str, str]:
    """Return the labels of what the API tells as a node; what it is was not looked at yet."""
    about = node.get("metadata") if isinstance(node, dict) else None
    labels = about.get("labels") if isinstance(about, dict) else None
    return labels if isinstance(labels, dict) else {}
