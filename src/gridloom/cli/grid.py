"""``gridloom grid``."""

import cyclopts

from gridloom.cli.flags import Grid, Json

app = cyclopts.App(name="grid", help_format="plaintext", result_action="return_value")


@app.command(name="show")
def show(*, grid: Grid = None, json: Json = False) -> int:
    """Show the sites, their nodes and accelerators, and the links between them."""
    from gridloom.base.units import format_bit_rate, format_bytes, format_duration
    from gridloom.cli import settings
    from gridloom.cli.output import console, emit, say, table
    from gridloom.cli.prepare import load_grid

    found = load_grid(grid, settings.read())
    inventory = found.inventory
    if json:
        emit({"source": found.source, "grid": inventory})
        return 0
    say(f"grid: {found.source}")
    out = console()
    rows = [
        (
            site.name,
            site.kind,
            node.name,
            node.address,
            f"{node.count} {node.accelerator}",
            format_bytes(node.memory_bytes) if node.memory_bytes else "unknown",
            f"{site.price_per_accelerator_hour:g} {inventory.currency}",
        )
        for site in inventory.sites
        for node in site.nodes
    ]
    columns = ("site", "kind", "node", "address", "devices", "memory each", "price each, an hour")
    out.print(table(columns, rows, right=columns[5:], spare=("kind", "address", "memory each")))
    if inventory.links:
        links = [
            (
                " - ".join(link.between),
                format_bit_rate(link.bandwidth_bits_per_s) if link.bandwidth_bits_per_s else "-",
                format_duration(link.latency_s) if link.latency_s else "-",
            )
            for link in inventory.links
        ]
        heads = ("link", "bandwidth", "latency, one way")
        out.print(table(heads, links, right=heads[1:]))
    return 0
