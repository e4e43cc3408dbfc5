"""Ways for sites to be one model, side by side (pure)."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from gridloom.base.units import format_bit_rate, format_bytes
from gridloom.cli.output import table
from gridloom.cli.sync_words import Predicted, loss_words, method_words, share_words, speed_words
from gridloom.planner.site_sync import SyncChoice
from gridloom.planner.sync_forecast import SyncForecast, SyncLink


@dataclass(frozen=True)
class Line:
    """A way for sites to be one model, for a table.

    Attributes:
        words: What it is called.
        found: What is predicted of it.
        is_taken: It is the one of the plan.
    """

    words: str
    found: Predicted
    is_taken: bool = False


def choice_lines(choice: SyncChoice, taken: SyncForecast | None) -> list[Line]:
    """Return the best method of each kind and format.

    Args:
        choice: Of them.
        taken: The one of the plan, which has a line in any case; nothing where sites hold stages.
    """
    rivals = [method_line(one) for one in choice.rivals if taken is None or one.how != taken.how]
    return [*([method_line(taken, is_taken=True)] if taken is not None else []), *rivals]


def choice_table(lines: Sequence[Line]) -> Table:
    """Return ways side by side, fastest first."""
    rows = [
        (
            "*" if line.is_taken else "",
            line.words,
            speed_words(line.found),
            f"{format_bytes(line.found.bytes_per_token)}",
            loss_words(line.found),
            share_words(line.found.worth),
        )
        for line in sorted(lines, key=lambda line: -line.found.tokens_ratio)
    ]
    heads = ("", "between sites", "speed", "a token", "loss", "at equal loss")
    return table(heads, rows, right=(*heads[2:4], heads[5]))


def links_table(chosen: Sequence[tuple[SyncLink, Line]]) -> Table:
    """Return which way is for which link."""
    rows = [
        (
            format_bit_rate(link.bytes_per_s * 8),
            f"{link.rtt_s * 1000:g} ms",
            f"{link.loss:.2g}" if link.loss else "",
            line.words,
            speed_words(line.found),
            loss_words(line.found),
        )
        for link, line in chosen
    ]
    heads = ("link", "RTT", "lost", "between sites", "speed", "loss")
    return table(heads, rows, right=heads[:3])


def method_line(one: SyncForecast, *, is_taken: bool = False) -> Line:
    """Return a method for a table; with the interval that comes about, where none was told."""
    often = "" if one.how.every else f" (every {one.every} steps)"
    return Line(f"{method_words(one.how)}{often}", one, is_taken)
