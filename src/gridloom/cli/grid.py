"""``gridloom grid``."""

from typing import TYPE_CHECKING

import cyclopts

from gridloom.cli.flags import Grid, Json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gridloom.model.booking import Booking
    from gridloom.model.quota import Queue

_QUEUE = ("queue", "cohort", "owns", "may borrow", "lends", "accelerator-hours")
_BOOKING = ("booking", "from", "to", "where", "only for", "what for")
_NODES_MAX = 4
"""Nodes of a booking that are named; more are counted."""

app = cyclopts.App(name="grid", help_format="plaintext", result_action="return_value")


@app.command(name="show")
def show(*, grid: Grid = None, json: Json = False) -> int:
    """Show the sites, their nodes and accelerators, links, queues and bookings."""
    from gridloom.base.units import format_bit_rate, format_bytes, format_duration
    from gridloom.cli import settings
    from gridloom.cli.output import console, emit, say, table
    from gridloom.cli.prepare import load_grid

    found = load_grid(grid, settings.read())
    inventory = found.inventory
    if json:
        told = {"source": found.source, "grid": inventory, "bookings": found.bookings}
        emit({**told, "notes": found.notes})
        return 0
    say(f"grid: {found.source}")
    for note in found.notes:
        say(note, stderr=True)
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
    if inventory.queues:
        say(f"queues, under policy {inventory.policy.name}:")
        out.print(table(_QUEUE, [_queue(queue) for queue in inventory.queues], right=_QUEUE[5:]))
    if found.bookings:
        out.print(table(_BOOKING, [_booking(booking) for booking in found.bookings]))
    return 0


def _queue(queue: "Queue") -> tuple[str, ...]:
    borrow = _amounts(queue.borrow_max, "all there is") if queue.cohort else "-"
    hours = f"{queue.accelerator_hours:g}" if queue.accelerator_hours else "-"
    return (
        queue.name,
        queue.cohort or "-",
        _amounts(queue.nominal, "no limit"),
        borrow,
        _amounts(queue.lend_max, "all of it") if queue.cohort else "-",
        hours,
    )


def _amounts(devices: "Mapping[str, int] | None", unlimited: str) -> str:
    if devices is None:
        return unlimited
    return ", ".join(f"{count} {kind}" for kind, count in devices.items()) or "nothing"


def _booking(booking: "Booking") -> tuple[str, ...]:
    from datetime import UTC, datetime

    first, after = (
        f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M} UTC"
        for at_s in (booking.start_s, booking.end_s)
    )
    where = ", ".join(booking.nodes[:_NODES_MAX])
    if len(booking.nodes) > _NODES_MAX:
        where += f" and {len(booking.nodes) - _NODES_MAX} more"
    only = ", ".join(booking.queues) or "nobody"
    return booking.name, first, after, where, only, booking.sentence or "-"
