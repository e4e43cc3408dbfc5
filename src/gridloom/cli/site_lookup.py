"""The sites that a person means, of the grid that is in use."""

from collections.abc import Sequence
from pathlib import Path

from gridloom.base.errors import InputError
from gridloom.cli.prepare import read_grid_file
from gridloom.cli.settings import Settings
from gridloom.model.inventory import Site
from gridloom.wire.documents_values import did_you_mean


def named_sites(names: Sequence[str], grid: Path | None, settings: Settings) -> list[Site]:
    """Return sites as the grid file has them, without asking them for their nodes.

    Args:
        names: Which; none for all, in the file's order.
        grid: The flag.
        settings: What else names a grid file.

    Raises:
        InputError: The file cannot be used, or has no such site.
    """
    sites = {site.name: site for site in read_grid_file(grid, settings).inventory.sites}
    for name in names:
        if name not in sites:
            hint = did_you_mean(name, [*sites]) or f"the grid has: {', '.join(sites)}"
            raise InputError(f"there is no site {name!r}; {hint}")
    return [sites[name] for name in dict.fromkeys(names or sites)]
