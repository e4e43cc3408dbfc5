"""``gridloom site show``."""

import math
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from gridloom.cli.flags import Grid, Json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from msgspec import Struct

    from gridloom.cli.settings import Settings
    from gridloom.model.inventory import Site as Place
    from gridloom.sites.kube.overview import Overview as KubeOverview
    from gridloom.sites.slurm.overview import Overview, Soon
    from gridloom.sites.slurm.records import Partition, Reservation

_SOON_MAX = 12
"""Ends and starts that are listed; more are counted."""
_REASONS_MAX = 12
_NODES = ("nodes", "state", "kind", "devices", "free now", "nodes all free")
_PARTITIONS = ("partition", "state", "nodes", "at most", "by default", "nodes a job", "only for")
_RESERVATIONS = ("reservation", "from", "to", "nodes", "for")
_LICENCES = ("licence", "total", "used", "free")
_QUOTAS = ("flavour", "resource", "quota", "used")
_SOON = ("when", "what", "job", "user", "nodes", "waits because")

Site = Annotated[
    str, Parameter(help="A site of the grid file; not needed where there is only one.")
]


def show(site: Site = "", /, *, grid: Grid = None, json: Json = False) -> int:
    """Show what a site has, what of it is free, and what will be soon.

    For a site under Slurm: nodes by state and kind, partitions with their limits, reservations,
    licences, and when jobs end and start. Under Kubernetes: nodes, and the quota of its queue.
    """
    from gridloom.base.errors import InputError
    from gridloom.cli import settings
    from gridloom.cli.output import emit
    from gridloom.cli.site_lookup import named_sites

    found = settings.read()
    several = named_sites([site] if site else (), grid, found)
    if len(several) > 1:
        names = ", ".join(place.name for place in several)
        raise InputError(f"there are several sites; name one of {names}")
    (one,) = several
    shows = {"slurm": _slurm, "kubernetes": _kubernetes}
    if one.kind not in shows:
        right = "`gridloom grid show` shows its nodes"
        raise InputError(f"{one.name} is a site of kind {one.kind}; {right}")
    seen, tell = shows[one.kind](one, found)
    if json:
        emit({"site": one.name, "kind": one.kind, **_plain(seen)})
    else:
        tell()
    return 0


def _slurm(site: "Place", _: "Settings") -> "tuple[Overview, Callable[[], None]]":
    from contextlib import closing

    from gridloom.base.errors import SiteError
    from gridloom.base.system import SystemClock
    from gridloom.cli.output import say
    from gridloom.cli.wiring import LoginHosts, slurm_of
    from gridloom.model.inventory import SlurmAccess
    from gridloom.sites.slurm.gather import gather
    from gridloom.sites.slurm.overview import overview

    with closing(LoginHosts(SystemClock())) as hosts:
        engine, commands = slurm_of(site, hosts)
        facts = gather(site, engine, commands, SystemClock())
        if facts.trouble:
            raise SiteError(f"{facts.trouble}; `gridloom site check {site.name}` tells more")
        starts = commands.expected_starts() if commands is not None else {}
    for what, said in facts.untold.items():
        say(f"Slurm does not tell its {what}: {said}", stderr=True)
    seen = overview(site.slurm or SlurmAccess(), facts, starts)
    return seen, lambda: _tell(site.name, seen)


def _kubernetes(site: "Place", found: "Settings") -> "tuple[KubeOverview, Callable[[], None]]":
    from contextlib import closing

    from gridloom.base.errors import SiteError
    from gridloom.base.system import SystemClock
    from gridloom.cli.wiring import kube_client
    from gridloom.sites.kube.api import Place as KubePlace
    from gridloom.sites.kube.gather import gather
    from gridloom.sites.kube.overview import overview

    assert site.kubernetes is not None  # the grid file was checked
    clock = SystemClock()
    with closing(kube_client(KubePlace.of(site.kubernetes), clock)) as api:
        facts = gather(site, api, found.runs, clock)
    if facts.trouble:
        raise SiteError(f"{facts.trouble}; `gridloom site check {site.name}` tells more")
    seen = overview(facts)
    queue = site.kubernetes.queue
    return seen, lambda: _tell_kubernetes(site.name, queue, seen)


def _plain(seen: "Struct") -> dict[str, object]:
    """Return the overview for machines: a limit that there is not is null."""
    import msgspec

    def of(value: object) -> object:
        if isinstance(value, dict):
            return {key: of(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [of(one) for one in value]
        return None if isinstance(value, float) and math.isinf(value) else value

    plain = of(msgspec.to_builtins(seen))
    assert isinstance(plain, dict)
    return plain


def _tell(site: str, seen: "Overview") -> None:
    from gridloom.cli.output import console, say, table
    from gridloom.sites.finding import few

    out = console()
    say(f"{site}: Slurm {seen.release}, {seen.running} jobs run, {seen.waiting} wait")
    rows = [
        (str(r.nodes), r.state, r.kind, str(r.devices), str(r.free), str(r.free_nodes))
        for r in seen.nodes
    ]
    out.print(table(_NODES, rows, right=(_NODES[0], *_NODES[3:])))
    for reason in _reasons(seen.out_of_service):
        say(reason)
    parts = [_partition(one) for one in seen.partitions]
    out.print(table(_PARTITIONS, parts, right=("nodes", "nodes a job"), spare=("by default",)))
    if seen.reservations:
        out.print(table(_RESERVATIONS, [_reservation(one) for one in seen.reservations]))
    if seen.licences:
        named = [(x.name, str(x.total), str(x.used), str(x.free)) for x in seen.licences]
        out.print(table(_LICENCES, named, right=_LICENCES[1:]))
    if seen.soon:
        out.print(table(_SOON, _soon(seen.soon), right=("nodes",), spare=("waits because",)))
    left = len(seen.soon) - _SOON_MAX
    more = [f"{left} more ends and starts"] if left > 0 else []
    more += [f"{seen.waiting_open} jobs wait of whose start Slurm says nothing"] * (
        seen.waiting_open > 0
    )
    if more:
        say(f"and {few(more)}")


def _tell_kubernetes(site: str, queue: str, seen: "KubeOverview") -> None:
    from gridloom.cli.output import console, say, table
    from gridloom.sites.kube.quantity import amount_text

    out = console()
    say(f"{site}: Kubernetes {seen.release}")
    rows = [(str(r.nodes), r.state.replace("_", " "), r.kind, str(r.devices)) for r in seen.nodes]
    out.print(table(_NODES[:4], rows, right=(_NODES[0], _NODES[3])))
    for reason in _reasons(seen.out_of_service):
        say(reason)
    if seen.queue:
        counts = f"{seen.pending} wait, {seen.admitted} may run"
        say(f"queue {queue}, of ClusterQueue {seen.queue}: {counts}")
        quotas = [
            (x.flavor, x.resource, *(amount_text(x.resource, n) for n in (x.nominal, x.used)))
            for x in seen.quotas
        ]
        out.print(table(_QUOTAS, quotas, right=_QUOTAS[2:]))


def _reasons(out_of_service: "Mapping[str, str]") -> list[str]:
    lines = [f"{node}: {why}" for node, why in sorted(out_of_service.items())]
    left = len(lines) - _REASONS_MAX
    return [*lines[:_REASONS_MAX], *([f"and {left} more nodes"] if left > 0 else [])]


def _partition(one: "Partition") -> tuple[str, ...]:
    most = "all" if one.max_nodes is None or math.isinf(one.max_nodes) else f"{one.max_nodes:g}"
    only = ", ".join((*one.accounts, *one.groups, *one.qos_allowed))
    return (
        one.name + (" (default)" if one.is_default else ""),
        ", ".join(one.states).lower(),
        str(len(one.nodes)),
        _long(one.max_time_s),
        _long(one.default_time_s),
        most,
        only or "everybody",
    )


def _reservation(one: "Reservation") -> tuple[str, ...]:
    whom = ", ".join((*one.users, *one.accounts, *one.groups)) or "nobody"
    return one.name, _moment(one.start_s), _moment(one.end_s), str(len(one.nodes)), whom


def _soon(soon: "Sequence[Soon]") -> list[tuple[str, ...]]:
    return [
        (_moment(x.at_s), x.what, f"{x.slurm_id} {x.name}", x.user, str(x.nodes), x.why or "-")
        for x in soon[:_SOON_MAX]
    ]


def _long(duration_s: float | None) -> str:
    from gridloom.base.units import format_duration

    if duration_s is None:
        return "-"
    return "no limit" if math.isinf(duration_s) else format_duration(duration_s)


def _moment(at_s: float | None) -> str:
    from datetime import UTC, datetime

    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M} UTC" if at_s else "-"
