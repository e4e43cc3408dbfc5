"""``gridloom site show``."""

import math
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from gridloom.cli.flags import Grid, Json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridloom.sites.slurm.overview import Overview, Soon
    from gridloom.sites.slurm.records import Partition, Reservation

_SOON_MAX = 12
"""Ends and starts that are listed; more are counted."""
_REASONS_MAX = 12
_NODES = ("nodes", "state", "kind", "devices", "free now", "nodes all free")
_PARTITIONS = ("partition", "state", "nodes", "at most", "by default", "nodes a job", "only for")
_RESERVATIONS = ("reservation", "from", "to", "nodes", "for")
_LICENCES = ("licence", "total", "used", "free")
_SOON = ("when", "what", "job", "user", "nodes", "waits because")

Site = Annotated[str, Parameter(help="A site of the grid file.")]


def show(site: Site, /, *, grid: Grid = None, json: Json = False) -> int:
    """Show what a site has, what of it is free, and what will be soon.

    For a site under Slurm: nodes by state and kind, partitions with their limits, reservations,
    licences, and when jobs end and start.
    """
    from gridloom.base.errors import InputError, SiteError
    from gridloom.base.system import SystemClock
    from gridloom.cli import settings
    from gridloom.cli.output import emit
    from gridloom.cli.site_lookup import named_sites
    from gridloom.cli.wiring import slurm_of
    from gridloom.model.inventory import SlurmAccess
    from gridloom.sites.slurm.gather import gather
    from gridloom.sites.slurm.overview import overview

    (found,) = named_sites([site], grid, settings.read())
    if found.kind != "slurm":
        right = "`gridloom grid show` shows its nodes"
        raise InputError(f"{site} is a site of kind {found.kind}; {right}")
    engine, commands = slurm_of(found)
    facts = gather(found, engine, commands, SystemClock())
    if facts.trouble:
        raise SiteError(f"{facts.trouble}; `gridloom site check {site}` tells more")
    starts = commands.expected_starts() if commands is not None else {}
    seen = overview(found.slurm or SlurmAccess(), facts, starts)
    if json:
        emit({"site": site, "kind": found.kind, **_plain(seen)})
    else:
        _tell(site, seen)
    return 0


def _plain(seen: "Overview") -> dict[str, object]:
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
    for reason in _reasons(seen):
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


def _reasons(seen: "Overview") -> list[str]:
    lines = [f"{node} is {why}" for node, why in sorted(seen.out_of_service.items())]
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
