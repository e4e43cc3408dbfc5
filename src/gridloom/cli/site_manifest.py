"""``gridloom site manifest``."""

from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from gridloom.cli.flags import Grid, Json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridloom.model.inventory import Site

Engine = Annotated[Literal["kube"], Parameter(help="Of what: `kube`, a Kubernetes.")]
Name = Annotated[str, Parameter(help="The site's name; not needed where the grid has only one.")]
Account = Annotated[
    str, Parameter(name="--account", help="Name of the service account. Default: gridloom.")
]


def manifest(
    engine: Engine,
    site: Name = "",
    /,
    *,
    grid: Grid = None,
    account: Account = "gridloom",
    json: Json = False,
) -> int:
    """Print the service account and the rights that gridloom needs at a site, for `kubectl apply`.

    Jobs are written in the site's namespace; nodes and queues are only read.
    """
    import sys

    from gridloom.cli import settings
    from gridloom.cli.output import emit
    from gridloom.cli.prepare import read_grid_file
    from gridloom.sites.kube.gang import FORMS
    from gridloom.sites.kube.render import to_yaml
    from gridloom.sites.kube.role import Access, role_manifests

    assert engine == "kube"
    found = read_grid_file(grid, settings.read())
    access = _find(found.inventory.sites, site, found.source).kubernetes
    assert access is not None
    rights = Access(
        name=account,
        namespace=access.namespace,
        forms=(FORMS[access.workload],),
        kueue=bool(access.queue),
    )
    objects = role_manifests(rights)
    if json:
        emit({"manifests": objects})
    else:
        sys.stdout.write(to_yaml(objects))
    return 0


def _find(sites: "Sequence[Site]", name: str, source: str) -> "Site":
    """Return the site that is meant, which is one under Kubernetes.

    Raises:
        InputError: There is none, or it is not known which.
    """
    from gridloom.base.errors import InputError, Problem
    from gridloom.wire.documents_values import did_you_mean

    known = [one.name for one in sites if one.kubernetes is not None]
    if not known:
        remedy = "write `kind: kubernetes` and `kubernetes:` for one"
        raise InputError([Problem("no site of the grid is a Kubernetes", remedy, source)])
    if not name and len(known) > 1:
        raise InputError([Problem("there are several sites", f"name one of {', '.join(known)}")])
    name = name or known[0]
    if name not in known:
        remedy = did_you_mean(name, known) or f"there are: {', '.join(known)}"
        raise InputError([Problem(f"`{name}` is no site under Kubernetes", remedy, source)])
    return next(one for one in sites if one.name == name)
