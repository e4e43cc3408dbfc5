"""The report of a job as one HTML page that needs nothing else (pure)."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from gridloom.base.units import format_bytes, format_count, format_duration
from gridloom.control.summary import Metric, newest_by_step
from gridloom.control.svg import Points, line_chart, share_bars, stacked_chart
from gridloom.control.time_spent import PARTS, shares

_SEEN = 0.005
"""Share of a step's time below which a part is not worth a word."""

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1f24; --dim: #667085; --rule: #e4e7ec; --back: #fff;
  --c0: #2563eb; --c1: #f59e0b; --c2: #dc2626; --c3: #16a34a; --c4: #9333ea; --c5: #0891b2;
  --c6: #db2777; --c7: #98a2b3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --dim: #98a2b3; --rule: #344054;
  --back: #14171c; --c0: #60a5fa; --c1: #fbbf24; --c2: #f87171; --c3: #4ade80; --c4: #c084fc;
  --c5: #22d3ee; --c6: #f472b6; --c7: #667085; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back);
  max-width: 760px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
.state { color: var(--dim); margin: 0 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; } th { font-weight: 500; color: var(--dim); white-space: nowrap; }
td { overflow-wrap: anywhere; }
figure { margin: 0; } svg { width: 100%; height: auto; }
svg text { font-size: 12px; fill: var(--dim); }
.grid { stroke: var(--rule); } .tick { stroke: var(--dim); }
.line { fill: none; stroke-width: 1.6; } .area { opacity: .85; }
.line.c0 { stroke: var(--c0); } .line.c1 { stroke: var(--c1); } .line.c2 { stroke: var(--c2); }
.area.c0 { fill: var(--c0); } .area.c1 { fill: var(--c1); } .area.c2 { fill: var(--c2); }
.area.c3 { fill: var(--c3); } .area.c4 { fill: var(--c4); } .area.c5 { fill: var(--c5); }
.area.c6 { fill: var(--c6); } .area.c7 { fill: var(--c7); }
figcaption span { margin-right: 1.2rem; color: var(--dim); font-size: .85rem; }
figcaption i { display: inline-block; width: .7rem; height: .7rem; margin-right: .35rem;
  border-radius: 2px; }
i.c0 { background: var(--c0); } i.c1 { background: var(--c1); } i.c2 { background: var(--c2); }
i.c3 { background: var(--c3); } i.c4 { background: var(--c4); } i.c5 { background: var(--c5); }
i.c6 { background: var(--c6); } i.c7 { background: var(--c7); }
"""


def report_html(summary: Mapping[str, Any], metrics: Sequence[Metric]) -> str:
    """Return the page: what the job came to, and its curves over the training step.

    Args:
        summary: As `gridloom.control.summary.summary` returns it.
        metrics: Lines of ``metrics.jsonl``, oldest first.
    """
    name = escape(str(summary["name"]))
    state = escape(f"{summary['job']} · {summary['state']}")
    body = [
        f"<h1>{name}</h1>",
        f'<p class="state">{state}</p>',
        _table(summary_rows(summary)),
        "<h2>Attempts</h2>",
        _table([(f"attempt {a['number']}", attempt_line(a)) for a in summary["attempts"]]),
        *_time_bars(summary["time"]),
        *_charts(newest_by_step(metrics)),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name}</title><style>{_STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n"
        "</body></html>\n"
    )


def summary_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a person wants to know of a finished job, as rows of a label and a text."""
    rows = [("state", _state(summary)), ("attempts", _attempts(summary))]
    if summary["steps"]:
        repeated = summary["steps_repeated"]
        again = f", {repeated} of them done twice after a failure" if repeated else ""
        rows.append(("training steps", f"{summary['steps']}{again}"))
    if summary["loss"]:
        first, last = summary["loss"]["first"], summary["loss"]["last"]
        rows.append(("loss", f"{first:.4f} at first, {last:.4f} at last"))
    if summary["bits_per_byte"] is not None:
        bigram = summary["bigram_bits_per_byte"]
        beside = f" (a byte-bigram model: {bigram:.3f})" if bigram is not None else ""
        text = f"{summary['bits_per_byte']:.3f} bits per byte{beside}"
        rows.append(("held-out text", text))
    if summary["tokens_per_s"]:
        rows.append(("speed", f"{format_count(summary['tokens_per_s'])} tokens/s (median step)"))
    if summary["mfu"]:
        rows.append(("MFU", f"{summary['mfu']:.1%} of the devices' peak rate (median step)"))
    rows += _step_rows(summary["step_s"])
    rows += _time_rows(summary["time"])
    rows += [
        (f"site {name}", f"{_spans(site['ranks'])} on {', '.join(site['nodes'])}")
        for name, site in summary["sites"].items()
    ]
    rows += _traffic_rows(summary["bytes"])
    rows += _memory_rows(summary["memory_bytes_per_rank"])
    cost = summary["cost"]
    rows.append(("running time", format_duration(summary["run_s"])))
    if cost["per_hour"]:
        amount = f"{cost['amount']:.4f} {cost['currency']} at {cost['per_hour']:g} an hour"
        rows.append(("cost", amount))
    if summary["energy_wh"]:
        rows.append(("energy", f"{summary['energy_wh']:g} Wh by the sites' stated power"))
    return rows


def attempt_line(attempt: Mapping[str, Any]) -> str:
    """Return one attempt as a sentence."""
    parts = []
    if attempt.get("queued_s"):
        parts.append(f"waited {format_duration(attempt['queued_s'])} in its sites' queues")
    if attempt["first_step"]:
        parts.append(f"training steps {attempt['first_step']} to {attempt['last_step']}")
    if attempt["resumed"] and attempt["first_step"]:
        parts.append("resumed" if attempt["first_step"] > 1 else "started over")
    parts += attempt["notes"]
    parts += [_use(use) for use in attempt.get("used", ())]
    if attempt["sentence"]:
        parts.append(f"{attempt['ended_because']}: {attempt['sentence']}")
    return "; ".join(parts) or "no training step"


def _use(use: Mapping[str, Any]) -> str:
    """Return what one site's accounts say as a clause."""
    parts = [f"{use['cpu_s']:.1f} s of processors in {format_duration(use['elapsed_s'])}"]
    if use["max_rss_bytes"]:
        parts.append(f"{format_bytes(use['max_rss_bytes'])} in the largest task")
    if use["energy_wh"]:
        parts.append(f"{use['energy_wh']:g} Wh")
    return f"{use['site']} counts {', '.join(parts)} (its job {use['site_job']})"


def _state(summary: Mapping[str, Any]) -> str:
    reason = summary["reason"]
    if not reason or summary["state"] == "succeeded":
        return str(summary["state"])
    return f"{summary['state']}: {reason['sentence']}"


def _attempts(summary: Mapping[str, Any]) -> str:
    count, evictions = len(summary["attempts"]), summary["evictions"]
    if not evictions:
        return str(count)
    return f"{count}; evicted {'once' if evictions == 1 else f'{evictions} times'}"


def _traffic_rows(traffic: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    if traffic is None:
        return []
    rows = []
    for label, key in (
        ("bytes within sites", "within_sites"),
        ("bytes between sites", "between_sites"),
    ):
        counts = [(traffic[key][how], how) for how in ("measured", "predicted")]
        parts = [
            f"{format_bytes(count)} {how}"
            for count, how in counts
            if count or (how == "predicted" and count is not None)
        ]
        rows += [(label, ", ".join(parts))] if parts else []
    links = [
        f"{format_bytes(link['sent'])} to {site}, {format_bytes(link['received'])} from it"
        for site, link in traffic["links"].items()
    ]
    rows += [("links of the first site", "; ".join(links))] if links else []
    return rows


def _memory_rows(memory: Mapping[str, Any]) -> list[tuple[str, str]]:
    predicted, measured = memory["predicted"], memory["measured"]
    parts = [f"{format_bytes(measured)} measured"] if measured else []
    parts += [f"{format_bytes(predicted)} predicted"] if predicted else []
    return [("memory a rank", ", ".join(parts))] if parts else []


def _step_rows(step_s: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return how long a training step took beside what was predicted; nothing without that."""
    predicted, measured = step_s["predicted"], step_s["measured"]
    if not predicted or not measured:
        return []
    text = f"{measured:.3g} s measured (median), {predicted:.3g} s predicted"
    return [("a training step", f"{text} ({predicted / measured - 1:+.0%})")]


def _time_rows(time: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return where the time of a training step went at each site, and what travelled behind it."""
    rows = []
    for site, parts in time.items():
        told = [f"{name} {share:.0%}" for name, share in shares(parts).items() if share >= _SEEN]
        rows.append((f"time at {site}", f"{parts['step_s']:.3g} s a step: {', '.join(told)}"))
    links = []
    for site, parts in time.items():
        exposed_s, hidden_s = parts["between_site_s"] or 0.0, parts["between_site_hidden_s"] or 0.0
        if exposed_s + hidden_s > 0:
            links.append(f"{site} {exposed_s:.3g} s exposed, {hidden_s:.3g} s hidden")
    if links:
        rows.append(("exchange between sites", f"a step: {'; '.join(links)}"))
    return rows


def _spans(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]}-{ranks[-1]}"


def _table(rows: Sequence[tuple[str, str]]) -> str:
    cells = "".join(
        f"<tr><th>{escape(label)}</th><td>{escape(text)}</td></tr>" for label, text in rows
    )
    return f"<table>{cells}</table>"


def _time_bars(time: Mapping[str, Any]) -> list[str]:
    bars = {site: shares(parts) for site, parts in time.items()}
    return [share_bars(bars, title="Where the time goes at each site")] if bars else []


def _charts(kept: Mapping[int, Metric]) -> list[str]:
    if not kept:
        return []
    is_split = all(metric.get("forward_s") is not None for metric in kept.values())
    once = ("forward and backward",) if is_split else ("forward", "backward")
    parts = {
        name: _points(kept, key, default=0.0)
        for name, key in PARTS.items()
        if name not in once and any(metric.get(key) for metric in kept.values())
    }
    charts = [
        line_chart({"loss": _points(kept, "loss")}, title="Loss", y_label="nats a token"),
        line_chart(
            {"speed": _points(kept, "tokens_per_s")},
            title="Speed",
            y_label="tokens/s",
            from_zero=True,
        ),
    ]
    if parts:
        title = "Where a training step spends its time"
        charts.append(stacked_chart(parts, title=title, y_label="seconds"))
    return charts


def _points(kept: Mapping[int, Metric], key: str, default: float | None = None) -> Points:
    found = ((step, metric.get(key)) for step, metric in kept.items())
    pairs = ((step, default if value is None else value) for step, value in found)
    return [(float(step), float(value)) for step, value in pairs if value is not None]
