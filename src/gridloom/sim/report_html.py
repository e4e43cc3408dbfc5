"""Simulations as one HTML page that needs nothing else."""

from collections.abc import Callable, Sequence
from html import escape

from gridloom.base.units import format_duration
from gridloom.sim.report import SIZES, Figures, Summary
from gridloom.sim.report_page import Section, Wait
from gridloom.sim.report_style import STYLE
from gridloom.sim.report_svg import gantt_chart, time_chart

_NONE = "–"  # noqa: RUF001 # a dash as long as a digit
_HOUR_S = 3600.0


def page(sections: Sequence[Section], *, notes: Sequence[str], currency: str) -> str:
    """Return the page.

    Args:
        sections: One a policy, with one seed each.
        notes: What was simulated, then what a reader should know, a sentence each.
        currency: Of every cost.
    """
    source, *others = notes or ("",)
    title = f"Simulation of {source}"
    body = [
        f"<h1>{escape(title)}</h1>",
        *(f'<p class="note">{escape(note)}</p>' for note in others),
    ]
    if len(sections) > 1:
        body += ["<h2>Policies side by side</h2>", _side_by_side(sections, currency)]
    elif sections:
        body.append(_tiles(sections[0].summary, currency))
    if sections:
        body += [*_curves(sections), "<h2>Mean wait by size of job</h2>", _by_size(sections)]
    body += [part for section in sections for part in _section(section, several=len(sections) > 1)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _curves(sections: Sequence[Section]) -> list[str]:
    named = {section.summary.policy: section for section in sections}
    return [
        "<h2>Over time</h2>",
        time_chart(
            {name: one.in_use for name, one in named.items()},
            title="Devices in use, of those available",
            share=True,
        ),
        time_chart({name: one.waiting_jobs for name, one in named.items()}, title="Waiting jobs"),
        time_chart(
            {name: one.waiting_devices for name, one in named.items()},
            title="Devices that waiting jobs want",
        ),
    ]


def _section(section: Section, *, several: bool) -> list[str]:
    policy = section.summary.policy
    parts = [f"<h2>{escape(policy)}</h2>"] if several else []
    gantt = section.gantt
    height = "a job as high as its devices" if gantt.single else "shaded by the share in use"
    parts.append(f"<h3>Who was where: a row a {escape(gantt.level)}, {height}</h3>")
    parts.append(gantt_chart(gantt, section.legend, f"Who was where under {policy}"))
    if section.waits:
        parts += ["<h3>Longest waits</h3>", _waits(section)]
    if section.faults:
        parts += ["<h3>Faults</h3>", _faults(section)]
    return parts


def _tiles(summary: Summary, currency: str) -> str:
    shown = [
        (f"of {summary.jobs:,} jobs done", f"{summary.completed:,}"),
        ("mean time to end", _time(summary.jct_mean_s)),
        ("mean wait", _time(summary.wait_mean_s)),
        ("nine in ten waited", _time(summary.wait_p90_s)),
        ("makespan", _time(summary.makespan_s)),
        ("devices in use", _share(summary.utilisation)),
        ("of that kept", _share(summary.goodput)),
        ("lost device-hours", f"{summary.lost_device_s / _HOUR_S:,.0f}"),
        ("evictions", f"{summary.preemptions:,}"),
    ]
    if summary.cost:
        shown.append((f"cost, {currency}", f"{summary.cost:,.0f}"))
    if summary.energy_kwh:
        shown.append(("energy, kWh", f"{summary.energy_kwh:,.0f}"))
    if summary.carbon_kg:
        shown.append(("CO2, kg", f"{summary.carbon_kg:,.0f}"))
    tiles = "".join(
        f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in shown
    )
    return f'<div class="tiles">{tiles}</div>'


def _side_by_side(sections: Sequence[Section], currency: str) -> str:
    columns: list[tuple[str, Callable[[Summary], str]]] = [
        ("done", lambda one: f"{one.completed:,}"),
        ("mean time to end", lambda one: _time(one.jct_mean_s)),
        ("half", lambda one: _time(one.jct_p50_s)),
        ("nine in ten", lambda one: _time(one.jct_p90_s)),
        ("mean wait", lambda one: _time(one.wait_mean_s)),
        ("makespan", lambda one: _time(one.makespan_s)),
        ("in use", lambda one: _share(one.utilisation)),
        ("kept", lambda one: _share(one.goodput)),
        ("evicted", lambda one: f"{one.preemptions:,}"),
        ("fairness", lambda one: _NONE if one.fairness is None else f"{one.fairness:.2f}"),
    ]
    summaries = [section.summary for section in sections]
    if any(one.cost for one in summaries):
        columns.append((currency, lambda one: f"{one.cost:,.0f}"))
    if any(one.carbon_kg for one in summaries):
        columns.append(("kg CO2", lambda one: f"{one.carbon_kg:,.0f}"))
    head = "".join(f"<th>{escape(name)}</th>" for name, _ in columns)
    rows = [
        f"<tr><th>{escape(one.policy)}</th>"
        + "".join(f"<td>{escape(text(one))}</td>" for _, text in columns)
        + "</tr>"
        for one in summaries
    ]
    return _table(f"<tr><th>policy</th>{head}</tr>", rows, "figures")


def _by_size(sections: Sequence[Section]) -> str:
    sizes = [size for size, _ in SIZES if any(size in s.summary.by_size for s in sections)]
    groups = {s.summary.policy: s.summary.by_size for s in sections}
    most = max(
        (one.wait_mean_s or 0.0 for by_size in groups.values() for one in by_size.values()),
        default=0.0,
    )
    head = "".join(f"<th>{escape(size)} device{'' if size == '1' else 's'}</th>" for size in sizes)
    rows = [
        f"<tr><th>{escape(policy)}</th>"
        + "".join(f"<td>{_bar(by_size.get(size), most)}</td>" for size in sizes)
        + "</tr>"
        for policy, by_size in groups.items()
    ]
    return _table(f"<tr><th>policy</th>{head}</tr>", rows, "figures")


def _bar(figures: Figures | None, most: float) -> str:
    if figures is None or figures.wait_mean_s is None:
        return _NONE
    width = 100 * figures.wait_mean_s / most if most else 0.0
    meter = f'<i class="meter" style="width:{width:.0f}%"></i>' if width >= 1 else ""
    return f"{_time(figures.wait_mean_s)}{meter}"


def _waits(section: Section) -> str:
    head = "<tr><th>job</th><th>devices</th><th>queue</th><th>handed in</th><th>waited</th>"
    rows = [_wait(wait, section.start_s) for wait in section.waits]
    return _table(f"{head}<th>why, when the scheduler was asked</th></tr>", rows, "waits")


def _wait(wait: Wait, start_s: float) -> str:
    row, told = wait.row, wait.told
    why = "not asked"
    if told is not None:
        why = f"after {format_duration(told.at_s - row.submit_s)}: {told.sentence}"
    started = "" if row.attempts else ", never ran"
    cells = (
        row.job_id,
        f"{row.devices:,}",
        row.queue or _NONE,
        format_duration(row.submit_s - start_s),
        f"{format_duration(row.wait_s)}{started}",
        why,
    )
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _faults(section: Section) -> str:
    rows = [
        f"<tr><td>{format_duration(fault.at_s - section.start_s)}</td><td>{fault.kind}</td>"
        f"<td>{escape(fault.domain)}</td>"
        f"<td>{format_duration(fault.duration_s) if fault.duration_s else 'for good'}</td></tr>"
        for fault in section.faults
    ]
    head = "<tr><th>after</th><th>what</th><th>where</th><th>how long</th></tr>"
    more = section.faults_in_all - len(section.faults)
    return _table(head, rows, "waits") + (f'<p class="note">and {more:,} more</p>' if more else "")


def _table(head: str, rows: Sequence[str], kind: str) -> str:
    return f'<table class="{kind}"><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table>'


def _time(seconds: float | None) -> str:
    return _NONE if seconds is None else format_duration(seconds) if seconds else "0s"


def _share(value: float | None) -> str:
    return _NONE if value is None else f"{value:.1%}"
