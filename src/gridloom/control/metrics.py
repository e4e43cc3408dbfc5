"""Lines of `metrics.jsonl`, read so that whatever a program wrote can do no harm (pure)."""

from typing import Any

import msgspec

_NUMBERS = (
    "loss",
    "tokens",
    "tokens_per_s",
    "step_s",
    "compute_s",
    "within_site_s",
    "between_site_s",
    "data_s",
    "checkpoint_s",
    "forward_s",
    "backward_s",
    "optimizer_s",
    "other_s",
    "mfu",
)


def decode_metric(line: bytes) -> dict[str, Any] | None:
    """Return one line, or nothing when it is none: cut short by a crash, or not of a training step.

    ``step`` and ``attempt`` are integers then; of the other numbers that are read here each is a
    number, or None when it is missing or was not finite; ``sites`` holds objects by name.
    """
    try:
        metric = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    if not isinstance(metric, dict) or not _is_count(metric.get("step")):
        return None
    if not _is_count(metric.setdefault("attempt", 1)):
        return None
    for name in _NUMBERS:
        metric[name] = metric[name] if _is_number(metric.get(name)) else None
    sites = metric.get("sites")
    metric["sites"] = (
        {name: site for name, site in sites.items() if isinstance(site, dict)}
        if isinstance(sites, dict)
        else {}
    )
    return metric


def number(value: object) -> float:
    """Return ``value`` when it is a number, else 0."""
    return float(value) if isinstance(value, int | float) and _is_number(value) else 0.0


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
