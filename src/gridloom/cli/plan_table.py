"""Found plans as text: the table of the best, where the first one's time and memory go (pure)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from gridloom.base.units import format_bytes, format_count, format_duration
from gridloom.cli.output import table
from gridloom.cli.plan_figures import Candidate, Part
from gridloom.cli.plan_trust import Error

_EIGHTHS = " ▏▎▍▌▋▊▉█"
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


def bar(share: float, width: int, *, plain: bool = False) -> str:
    """Return a bar of ``width`` characters, filled to ``share`` (0 to 1) in eighths of one."""
    share = min(max(share, 0.0), 1.0)
    if plain:
        return ("#" * round(share * width)).ljust(width)
    eighths = round(share * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


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
        for column in _columns(currency, stated=stated, plain=plain)
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


def same_for_all(candidates: Sequence[Candidate]) -> str:
    """Return what all plans have in common and the table does not show; nothing when nothing."""
    shown = {"precision": "", "optimizer": "", "schedule": ""}
    parts = []
    for name in shown:
        values = {str(getattr(p.plan, name)) for c in candidates for p in c.parts}
        if len(values) == 1:
            parts.append(values.pop())
    batches = {candidate.global_batch for candidate in candidates}
    if len(batches) == 1:
        parts.append(f"global batch {batches.pop():,}")
    return ", ".join(parts)


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


def short_seconds(seconds: float) -> str:
    """Return a time of a step or a part of it: ``26.7 s``, ``145 ms``."""
    if seconds >= 0.9995:
        digits = 0 if seconds >= 99.95 else 1 if seconds >= 9.995 else 2
        return f"{seconds:,.{digits}f} s"
    milliseconds = seconds * 1000
    return f"{milliseconds:.0f} ms" if milliseconds >= 99.5 else f"{milliseconds:.3g} ms"


def gigabytes(size_bytes: float) -> str:
    """Return bytes in GB: ``61.2 GB``, ``0.05 GB``."""
    size = size_bytes / 1e9
    if size >= 1000:
        return f"{size:,.0f} GB"
    return f"{size:.1f} GB" if size >= 0.95 else f"{size:.2g} GB"


def money(amount: float) -> str:
    """Return an amount of money without cents from 100 on: ``1,234,567``, ``12.34``."""
    return f"{amount:,.0f}" if amount >= 99.995 else f"{amount:.2f}"


def trust_sentence(error: Error, family: str, source: str) -> str:
    """Return how far a predicted step time can be trusted."""
    if not error.share:
        return f"unknown: nothing measured on {family} stands behind it (constants: {source})"
    runs = f"{error.runs} runs" if error.runs != 1 else "1 run"
    groups = f"{error.groups} sources" if error.groups != 1 else "1 source"
    return (
        f"±{error.share:.0%} for nine of ten predictions, from {runs} on {family} ({groups};"
        " each predicted without itself)"
    )


def goodput_sentences(candidate: Candidate) -> list[tuple[str, str]]:
    """Return what interruptions cost and how often a checkpoint pays, as labels and texts."""
    found, written = candidate.goodput, candidate.checkpoint
    each = format_duration(found.interval_s)
    steps = max(1, round(found.interval_s / candidate.step_s))
    behind = " behind training" if written.behind_s else ""
    write_s = written.behind_s or written.blocking_s
    return [
        (
            "goodput",
            f"{found.useful:.1%} useful; lost {found.lost:.1%}, restarts {found.restart:.1%},"
            f" checkpoints {found.checkpoint:.1%}; interrupted each"
            f" {format_duration(found.mtbf_s)}",
        ),
        (
            "checkpoint",
            f"each {each} ({steps:,} training steps): {format_bytes(written.state_bytes)}, written"
            f" in {short_seconds(write_s)}{behind}",
        ),
    ]


def training_sentence(candidate: Candidate, currency: str, tokens: float, *, stated: bool) -> str:
    """Return what the whole training takes."""
    taken = candidate.bill
    parts = [
        format_duration(taken.time_s),
        f"{taken.device_hours:,.0f} device-hours",
        f"{money(taken.price)} {currency}" if taken.price else "",
        f"{taken.energy_kwh:,.0f} kWh",
        f"{taken.carbon_kg:,.0f} kg of carbon dioxide" if taken.carbon_kg else "",
    ]
    count = format_count(tokens)
    amount = f"{count} tokens" if stated else f"each {count} tokens"
    return f"{amount}: {', '.join(part for part in parts if part)}"


def plan_words(candidate: Candidate, part: Part) -> str:
    """Return a plan in words, as the flags name its values."""
    plan = part.plan
    named = {
        "tp": plan.tensor,
        "pp": plan.pipeline,
        "cp": plan.context,
        "dp": plan.data,
        "ep": plan.expert,
        "vpp": plan.virtual_stages,
        "zero": plan.zero,
        "mbs": plan.micro_batch,
    }
    kept = [f"{n}={v}" for n, v in named.items() if v != 1 or n in {"tp", "pp", "dp", "mbs"}]
    kept = [word for word in kept if word != "zero=0"]
    if plan.recompute != "none":
        kept.append(f"recompute={plan.recompute}")
    where = f"{part.pool.name}: " if len(candidate.parts) > 1 else ""
    return f"{where}{part.devices} {part.pool.accelerator.title}, {' '.join(kept)}"


def _tells(column: Column, texts: set[str]) -> bool:
    if column.varies:
        return len(texts) > 1
    return column.trivial is None or texts != {column.trivial}


def _columns(currency: str, *, stated: bool, plain: bool) -> list[Column]:
    time, price = _training_heads(currency, stated=stated)

    def memory(_: Candidate, part: Part) -> str:
        limit = part.pool.accelerator.memory_bytes
        drawn = bar(part.memory_bytes / limit, _BAR, plain=plain)
        return f"{drawn} {part.memory_bytes / 1e9:.1f}/{limit / 1e9:.0f} GB"

    return [
        Column("pool", lambda c, p: p.pool.name if len(c.parts) > 1 else "", "", right=False),
        Column("devices", lambda _, p: f"{p.devices:,}", varies=True),
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
    return f"{amount:,.0f}" if amount >= 99.95 else f"{amount:.3g}"
