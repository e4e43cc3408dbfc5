"""What `gridloom site check` looks at, by the kind of a site."""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from gridloom import __version__
from gridloom.base.clock import Clock
from gridloom.base.errors import SiteError
from gridloom.base.files import cause_of
from gridloom.base.system import SystemClock, SystemIds
from gridloom.base.units import format_bytes
from gridloom.cli.settings import Settings
from gridloom.cli.wiring import LoginHosts, kube_client, slurm_of
from gridloom.core.turn import LeaseTerms
from gridloom.model.inventory import Site, SlurmAccess
from gridloom.sites.finding import Finding, fail, failed, has_failed, ok
from gridloom.sites.kube.api import Place
from gridloom.sites.kube.diagnose import diagnose as kube_diagnose
from gridloom.sites.kube.diagnose import holds_all as kube_holds_all
from gridloom.sites.kube.facts import Facts as KubeFacts
from gridloom.sites.kube.gather import NODES_PATH
from gridloom.sites.kube.gather import gather as kube_gather
from gridloom.sites.kube.inventory import with_nodes as kube_with_nodes
from gridloom.sites.kube.probe import probe as kube_probe
from gridloom.sites.local.inventory import discover
from gridloom.sites.probe import NOT_PROBED, Probed, diagnose_probe
from gridloom.sites.remote.check import check as check_host
from gridloom.sites.remote.check import check_python
from gridloom.sites.slurm.diagnose import diagnose, holds_all
from gridloom.sites.slurm.gang import interpreter
from gridloom.sites.slurm.gather import gather, tried
from gridloom.sites.slurm.inventory import Cluster, with_nodes
from gridloom.sites.slurm.probe import probe as slurm_probe
from gridloom.sites.slurm.relaxed import NARROWING, left_out, relaxed


def findings_of(site: Site, settings: Settings, *, probe_s: float | None) -> tuple[Finding, ...]:
    """Return what was found at a site.

    Args:
        site: As the grid file has it.
        settings: Where a probe writes what it sees.
        probe_s: How long a probe may wait; nothing for no probe.
    """
    looks: dict[str, Callable[[Site, Settings, float | None], tuple[Finding, ...]]] = {
        "local": _local,
        "slurm": _slurm,
        "kubernetes": _kubernetes,
    }
    return looks[site.kind](site, settings, probe_s)


def _local(site: Site, _: Settings, __: float | None) -> tuple[Finding, ...]:
    """This machine: whether it has what the file says."""
    here = {node.accelerator: node for found in discover().sites for node in found.nodes}
    wanted = {node.accelerator: node.count for node in site.nodes}
    return tuple(
        ok("devices", f"{here[kind].count} of {format_bytes(here[kind].memory_bytes)}", of=kind)
        if kind in here and here[kind].count >= count
        else fail(
            "devices",
            f"the grid file gives a node {count} {kind}, this machine has"
            f" {', '.join(f'{node.count} {name}' for name, node in here.items())}",
            "write what `gridloom doctor` tells",
            of=kind,
        )
        for kind, count in wanted.items()
    )


def _slurm(site: Site, settings: Settings, probe_s: float | None) -> tuple[Finding, ...]:
    with contextlib.closing(LoginHosts(SystemClock())) as hosts:
        return _slurm_by(site, settings, probe_s, hosts)


def _slurm_by(
    site: Site, settings: Settings, probe_s: float | None, hosts: LoginHosts
) -> tuple[Finding, ...]:
    clock, access = SystemClock(), site.slurm or SlurmAccess()
    engine, commands = slurm_of(site, hosts)
    reached = _login_host(access, hosts, clock)
    if has_failed(reached):
        return reached
    facts = gather(site, engine, commands, clock)
    found = diagnose(site, facts)
    if facts.trouble:
        return (*reached, *found)
    wrong = failed(found)
    site = _with_nodes(site, facts.cluster, relaxed(access, wrong))
    if commands is not None:
        facts = replace(facts, trials=tried(site, commands, wrong))
    found = diagnose(site, facts)
    if probe_s is None:
        return (*reached, *found)
    if holds_all(found):
        return (*reached, *found, NOT_PROBED)
    # A job of seconds outside of a reservation that is not there does no harm; one that somebody
    # else is charged for might
    left = wrong & NARROWING
    asked = replace(site, slurm=relaxed(site.slurm or SlurmAccess(), left))
    host = hosts.of(access.ssh) if access.ssh is not None else None

    def run(place: Path) -> Probed:
        probed = slurm_probe(asked, engine, place, timeout_s=probe_s, clock=clock, host=host)
        return replace(probed, without=left_out(access, left))

    return (*reached, *found, *_probed(site, settings, run, access.network))


def _login_host(access: SlurmAccess, hosts: LoginHosts, clock: Clock) -> tuple[Finding, ...]:
    """Return what was found of a site's login host, if it has one; the probe tells of its nodes."""
    ssh = access.ssh
    if ssh is None:
        return ()
    found = check_host(lambda: hosts.of(ssh), ssh, clock)
    if not has_failed(found) and access.container is None:
        python = interpreter(access, sys.executable)
        found += check_python(hosts.of(ssh).link, python, access.environment, __version__)
    return tuple(found)


def _kubernetes(site: Site, settings: Settings, probe_s: float | None) -> tuple[Finding, ...]:
    access, clock = site.kubernetes, SystemClock()
    assert access is not None  # the grid file was checked
    try:
        client = kube_client(Place.of(access), clock)
    except SiteError as error:
        return kube_diagnose(site, KubeFacts(trouble=str(error)))
    with contextlib.closing(client) as api:
        if not site.nodes:
            with contextlib.suppress(SiteError):  # the findings will say why
                site = kube_with_nodes(site, api.ask(NODES_PATH).body)
        facts = kube_gather(site, api, settings.runs, clock)
        found = kube_diagnose(site, facts)
        if facts.trouble or probe_s is None:
            return found
        if facts.refusal or kube_holds_all(site, found):
            return (*found, NOT_PROBED)

        def run(place: Path) -> Probed:
            return kube_probe(site, api, place, timeout_s=probe_s, clock=clock)

        return (*found, *_probed(site, settings, run, access.network))


def _with_nodes(site: Site, cluster: Cluster, right: SlurmAccess) -> Site:
    """Return the site with the nodes that it tells, if the file does not say what they are.

    Args:
        site: As the grid file has it.
        cluster: What is there.
        right: What is right of its access.
    """
    if site.nodes:
        return site
    try:
        told = with_nodes(replace(site, slurm=right), cluster)
    except SiteError:  # the findings will say why
        return site
    gres = (told.slurm or right).gres
    return replace(told, slurm=replace(site.slurm or SlurmAccess(), gres=gres))


def _probed(
    site: Site, settings: Settings, run: Callable[[Path], Probed], network: str
) -> tuple[Finding, ...]:
    """Return what a probe tells that writes into a directory among the run directories."""
    directory = settings.runs.absolute() / SystemIds().new_id(f"probe-{site.name.lower()}"[:24])
    try:
        probed = run(directory)
    except OSError as error:
        remedy = "let GRIDLOOM_HOME name a directory that can be written"
        return (fail("run directory", f"{error.filename}: {cause_of(error)}", remedy),)
    return diagnose_probe(
        probed,
        network=network,
        many_nodes=len(site.nodes) > 1,
        version=__version__,
        lease_s=site.lease_s or LeaseTerms().lease_s,
    )
