"""Found plans as text: the table of the best, where the first one's time and memory go (pure)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from gridloom.cli.output import table
from gridloom.cli.plan_figures import Candidate, Part
from gridloom.cli.plan_words import bar, gigabytes, money, short_seconds

_BAR = 5
_LONG_BAR = 30

STEP_NAMES = {
    "compute": "compute",
    "recompute": "recompute",
    "logits": "logits and loss",
    "tensor": "tensor parallel",
    "context": "context parallel",
    "expert": "expert parallel",
    "pipeline": "pipeline sends",
    "bubble": "pipeline bubble",
    "data": "data parallel",
    "sites": "between sites",
    "update": "update",
    "fixed": "fixed",
    "jitter": "waiting for the slowest",
}
"""What the kinds of time of a training step are called."""


@dataclass(frozen=True)
class Column:
    """A column of the table of plans.

    Attributes:
        head: What stands above it.
        text: Of a part of a plan, the first one or a further one.
        trivial: It says nothing where all rows say this.
        varies: It says nothing where all rows say the same.
        spare: A narrow terminal can do without it.
        right: It holds numbers.
    """

    head: str
    text: Callable[[Candidate, Part], str]
    trivial: str | None = None
    varies: bool = False
    spare: bool = False
    right: bool = True


def plans_table(
    candidates: Sequence[Candidate], *, currency: str, stated: bool, plain: bool = False
) -> Table:
    """Return the table of plans, best first; a plan over several pools takes several lines.

    Args:
        candidates: The plans.
        currency: Of prices.
        stated: How many tokens are trained on was said; else figures are for a billion.
        plain: Bars are drawn with letters that every terminal has.
    """
    columns = [
        column
        for column in _columns(candidates[0], currency, stated=stated, plain=plain)
        if _tells(column, {column.text(c, part) for c in candidates for part in c.parts})
    ]
    rows = []
    for number, candidate in enumerate(candidates, start=1):
        for place, part in enumerate(candidate.parts):
            cells = [column.text(candidate, part) for column in columns]
            if place:
                whole = {"step", "tokens/s", "MFU", *_training_heads(currency, stated=stated)}
                pairs = zip(columns, cells, strict=True)
                cells = ["" if column.head in whole else cell for column, cell in pairs]
            rows.append(("" if place else str(number), *cells))
    heads = ("#", *(column.head for column in columns))
    return table(
        heads,
        rows,
        right=("#", *(column.head for column in columns if column.right)),
        whole=heads,
        spare=[column.head for column in columns if column.spare],
    )


def shares_table(
    rows: Sequence[tuple[str, float, str]], *, heads: tuple[str, str], plain: bool = False
) -> Table:
    """Return kinds with their amounts as bars, those that are nothing left out.

    Args:
        rows: Kind, amount, and the amount as text.
        heads: What the kinds and the amounts are called.
        plain: Bars are drawn with letters that every terminal has.
    """
    total = sum(amount for _, amount, _ in rows) or 1.0
    shown = [
        (kind, text, f"{amount / total:.1%}", bar(amount / total, _LONG_BAR, plain=plain).rstrip())
        for kind, amount, text in rows
        if amount > total * 0.0005
    ]
    columns = (*heads, "share", "")
    return table(columns, shown, right=columns[1:3])


def step_rows(lines: Mapping[str, float]) -> list[tuple[str, float, str]]:
    """Return the kinds of time of a training step, for `shares_table`."""
    return [
        (STEP_NAMES.get(kind, kind), seconds, short_seconds(seconds))
        for kind, seconds in lines.items()
    ]


def memory_rows(lines: Mapping[str, float]) -> list[tuple[str, float, str]]:
    """Return the kinds of memory of a rank, for `shares_table`."""
    return [(kind, size, gigabytes(size)) for kind, size in lines.items()]


def _tells(column: Column, texts: set[str]) -> bool:
    if column.varies:
        return len(texts) > 1
    return column.trivial is None or texts != {column.trivial}


def _columns(first: Candidate, currency: str, *, stated: bool, plain: bool) -> list[Column]:
    whole = first.parts[0].pool.count
    time, price = _training_heads(currency, stated=stated)

    def memory(_: Candidate, part: Part) -> str:
        limit = part.pool.accelerator.memory_bytes
        drawn = bar(part.memory_bytes / limit, _BAR, plain=plain)
        return f"{drawn} {part.memory_bytes / 1e9:.1f}/{limit / 1e9:.0f} GB"

    return [
        Column("pool", lambda _, p: p.pool.name, varies=True, right=False),
        Column("devices", lambda _, p: f"{p.devices:,}", f"{whole:,}"),
        Column("tp", lambda _, p: str(p.plan.tensor)),
        Column("pp", lambda _, p: str(p.plan.pipeline)),
        Column("cp", lambda _, p: str(p.plan.context), "1"),
        Column("dp", lambda _, p: str(p.plan.data)),
        Column("ep", lambda _, p: str(p.plan.expert), "1"),
        Column("vpp", lambda _, p: str(p.plan.virtual_stages), "1"),
        Column("zero", lambda _, p: str(p.plan.zero)),
        Column("mbs", lambda _, p: str(p.plan.micro_batch)),
        Column("recompute", lambda _, p: p.plan.recompute, "none", right=False),
        Column("precision", lambda _, p: p.plan.precision, varies=True, right=False),
        Column("memory", memory, right=False),
        Column("step", lambda c, _: short_seconds(c.step_s)),
        Column("tokens/s", lambda c, _: f"{c.tokens_per_s:,.0f}", spare=True),
        Column("MFU", lambda c, _: f"{c.mfu:.0%}", spare=True),
        Column(time, lambda c, _: _days(c, stated=stated)),
        Column(price, lambda c, _: money(c.bill.price), "0.00"),
    ]


def _training_heads(currency: str, *, stated: bool) -> tuple[str, str]:
    return ("days", currency) if stated else ("h/1B", f"{currency}/1B")


def _days(candidate: Candidate, *, stated: bool) -> str:
    amount = candidate.bill.days if stated else candidate.bill.time_s / 3600.0
    digits = 0 if amount >= 99.95 else 1 if amount >= 9.995 else 2
    return f"{amount:,.{digits}f}"
