"""Figures and facts of a plan in words: seconds, gigabytes, money, goodput, trust (pure)."""

from collections.abc import Sequence

from gridloom.base.units import format_bytes, format_count, format_duration
from gridloom.cli.plan_figures import Candidate, Part
from gridloom.cli.plan_trust import Error

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(share: float, width: int, *, plain: bool = False) -> str:
    """Return a bar of ``width`` characters, filled to ``share`` (0 to 1) in eighths of one."""
    share = min(max(share, 0.0), 1.0)
    if plain:
        return ("#" * round(share * width)).ljust(width)
    eighths = round(share * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


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
    if not error.runs:
        return f"how far off is unknown: nothing measured on {family} is behind it ({source})"
    if not error.share:
        return f"from {error.runs} runs on {family}; how far off others are was not measured"
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


def shared_sentence(candidate: Candidate) -> str:
    """Return what each pool of a plan over several does."""
    if candidate.way == "stages":
        shares = [f"{part.layers} layers at {part.pool.name}" for part in candidate.parts]
        what = "stages of one pipeline"
    else:
        shares = [f"{part.sequences} sequences at {part.pool.name}" for part in candidate.parts]
        what = "copies of the model at each"
    between = f"; {short_seconds(candidate.between_s)} a training step between them"
    return f"{what}: {', '.join(shares)}{between}"


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


def plan_words(part: Part) -> str:
    """Return a plan in words, as the flags name its values."""
    plan = part.plan
    named = {
        "tp": plan.tensor,
        "pp": plan.pipeline,
        "cp": plan.context,
        "dp": plan.data,
        "ep": plan.expert,
        "vpp": plan.virtual_stages,
        "mbs": plan.micro_batch,
    }
    kept = [f"{n}={v}" for n, v in named.items() if v != 1 or n in {"tp", "pp", "dp", "mbs"}]
    if plan.zero:
        kept.append(f"zero={plan.zero}")
    if plan.recompute != "none":
        kept.append(f"recompute={plan.recompute}")
    kind = part.pool.accelerator
    where = f" at {part.pool.name}" if part.pool.name != kind.name else ""
    return f"{part.devices:,} {kind.title}{where}, {' '.join(kept)}"


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
    if any(part.plan.precision.startswith("fp8") for c in candidates for part in c.parts):
        parts.append("MFU of the 16-bit peak")
    return ", ".join(parts)
