"""Nodes that sites tell themselves, because the grid file leaves them out."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gridloom.base.codec import decode, encode
from gridloom.base.errors import InputError, Problem, SiteError
from gridloom.base.files import replace_file
from gridloom.base.system import SystemClock
from gridloom.base.units import format_duration
from gridloom.cli.settings import Settings
from gridloom.cli.wiring import LoginHosts, kube_client, slurm_of
from gridloom.model.inventory import Inventory, Site
from gridloom.sites.kube.api import Place
from gridloom.sites.kube.gather import NODES_PATH
from gridloom.sites.kube.inventory import with_nodes as kube_with_nodes
from gridloom.sites.slurm.gather import cluster
from gridloom.sites.slurm.inventory import with_nodes


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a site told last.

    Attributes:
        asked: The site as the grid file had it.
        site: The same with its nodes.
        told_s: When.
    """

    asked: Site
    site: Site
    told_s: float


def with_told_nodes(
    inventory: Inventory, settings: Settings, source: str
) -> tuple[Inventory, tuple[str, ...]]:
    """Return the inventory with the nodes of sites that tell them, and what is to be known of it.

    A site that does not answer has the nodes that it told last.

    Args:
        inventory: Of the grid file.
        settings: Where it is kept what sites told.
        source: The grid file, for the errors.

    Raises:
        InputError: A site answers, and has no nodes for what the file asks.
        SiteError: It does not answer, and never has.
    """
    sites, notes = [], []
    for site in inventory.sites:
        found, note = (site, "") if site.nodes else _asked(site, settings, source)
        sites.append(found)
        notes += [note] if note else []
    return replace(inventory, sites=tuple(sites)), tuple(notes)


def _asked(site: Site, settings: Settings, source: str) -> tuple[Site, str]:
    file, clock = settings.told_nodes / f"{site.name}.json", SystemClock()
    try:
        read = _KINDS[site.kind](site)
    except SiteError as error:
        kept = _kept(file, site)
        if kept is None:
            raise SiteError(
                f"the nodes of site {site.name} cannot be told: {error}; "
                f"`gridloom site check {site.name}` tells more, or write its `nodes:` in {source}"
            ) from error
        age = format_duration(max(0.0, clock.now_s() - kept.told_s))
        return kept.site, f"site {site.name} does not answer: its nodes are those of {age} ago"
    try:
        found = read()
    except SiteError as error:
        remedy = f"`gridloom site check {site.name}` tells more"
        field = f"sites.{site.name}.{site.kind}"
        raise InputError([Problem(str(error), remedy, file=source, field=field)]) from error
    _keep(file, _Told(asked=site, site=found, told_s=clock.now_s()))
    return found, ""


def _slurm(site: Site) -> Callable[[], Site]:
    with contextlib.closing(LoginHosts(SystemClock())) as hosts:
        told = cluster(*slurm_of(site, hosts))
    return lambda: with_nodes(site, told)


def _kubernetes(site: Site) -> Callable[[], Site]:
    access = site.kubernetes
    assert access is not None  # the grid file was checked
    with contextlib.closing(kube_client(Place.of(access), SystemClock())) as api:
        told = api.ask(NODES_PATH).body
    return lambda: kube_with_nodes(site, told)


_KINDS: dict[str, Callable[[Site], Callable[[], Site]]] = {
    "slurm": _slurm,
    "kubernetes": _kubernetes,
}
"""Asks a site; what is returned makes a site with nodes of the answer."""


def _kept(file: Path, site: Site) -> _Told | None:
    """Return what the site told last, if it was asked for the same."""
    try:
        kept = decode(file.read_bytes(), _Told)
    except (OSError, msgspec.MsgspecError):
        return None
    return kept if kept.asked == site else None


def _keep(file: Path, told: _Told) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, encode(told), durable=False)
    except OSError:  # what is only looked at must not need a state directory that can be written
        return
