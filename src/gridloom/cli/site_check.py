"""``gridloom site check``."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from gridloom.cli.flags import Grid, Json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gridloom.sites.finding import Finding

Sites = Annotated[str, Parameter(help="Sites by name. Default: all of the grid file.")]
NoProbe = Annotated[
    bool, Parameter(name="--no-probe", negative=(), help="Run nothing on the sites' nodes.")
]
ProbeTimeout = Annotated[
    str, Parameter(help="How long a probe may wait in a site's queue, as 30s or 10min.")
]


def check(
    *sites: Sites,
    grid: Grid = None,
    no_probe: NoProbe = False,
    probe_timeout: ProbeTimeout = "2min",
    json: Json = False,
) -> int:
    """Find out what keeps jobs from running at sites, and what helps.

    Asks each site's scheduler for all that jobs of the grid file need there, and runs a probe: a
    job of a few seconds on one node, which is taken out of the queue if it does not start in time.
    Exit code 1 when something must be mended.
    """
    from gridloom.base.errors import InputError, Problem
    from gridloom.base.units import parse_duration_s
    from gridloom.cli import settings
    from gridloom.cli.output import emit
    from gridloom.cli.site_checks import findings_of
    from gridloom.cli.site_lookup import named_sites
    from gridloom.sites.finding import has_failed

    try:
        timeout_s = parse_duration_s(probe_timeout)
    except ValueError as error:
        raise InputError([Problem(str(error), field="--probe-timeout")]) from error
    found = settings.read()
    seen: dict[str, tuple[str, tuple[Finding, ...]]] = {}
    for site in named_sites(sites, grid, found):
        looked = findings_of(site, found, probe_s=None if no_probe else timeout_s)
        seen[site.name] = (site.kind, looked)
        if not json:
            _tell(site.name, site.kind, looked)
    failed = [name for name, (_, looked) in seen.items() if has_failed(looked)]
    if json:
        emit({"ok": not failed, "sites": _listed(seen)})
    return 1 if failed else 0


def _listed(
    seen: "Mapping[str, tuple[str, Sequence[Finding]]]",
) -> "list[dict[str, object]]":
    from gridloom.sites.finding import has_failed

    return [
        {"site": name, "kind": kind, "ok": not has_failed(looked), "findings": looked}
        for name, (kind, looked) in seen.items()
    ]


def _tell(name: str, kind: str, looked: "Sequence[Finding]") -> None:
    from gridloom.cli.output import console, say, table

    say(f"{name} ({kind})")
    rows = [
        (one.state, f"{one.check}: {one.of}" if one.of else one.check, one.found, one.remedy)
        for one in looked
    ]
    columns = ("", "check", "found", "remedy")
    console().print(table(columns, rows, whole=("", "check")))
    say("")
