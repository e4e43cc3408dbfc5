"""The tables on the page about sync methods, from the planner's own rows and choices.

`python -m tests.golden.sync_page` writes them between their marks.
"""

from dataclasses import replace
from pathlib import Path

from gridloom.base.units import format_bit_rate, format_count
from gridloom.cli.sync_words import loss_words, method_words, speed_words
from gridloom.planner.site_sync import by_link
from gridloom.planner.sync_forecast import CODEC_S_PER_MILLION, SyncLink, SyncSituation
from gridloom.planner.sync_measured import LOSS_ROWS

PAGE = Path(__file__).parents[2] / "docs" / "how" / "sync.md"
LINKS = (
    SyncLink(bytes_per_s=1.25e6, rtt_s=0.04),
    SyncLink(bytes_per_s=12.5e6, rtt_s=0.04),
    SyncLink(bytes_per_s=125e6, rtt_s=0.15, loss=0.001),
    SyncLink(bytes_per_s=1.25e9, rtt_s=0.04),
)
SMALL = SyncSituation(
    parameters=1_330_000,
    width=192,
    tokens=3e6,
    step_s=0.25,
    step_tokens=4096,
    links=LINKS[:1],
)
SITUATIONS = {
    "1.3M parameters, 3M tokens, 0.25 s a step, CPUs": SMALL,
    "12M parameters, 20M tokens, 0.5 s a step, CPUs": replace(
        SMALL, parameters=12_000_000, width=384, tokens=20e6, step_s=0.5, step_tokens=512
    ),
    "1B parameters, 20B tokens, 2 s a step, accelerators": replace(
        SMALL,
        parameters=1_000_000_000,
        width=2048,
        tokens=20e9,
        step_s=2.0,
        step_tokens=1e6,
        shares_cores=False,
    ),
}


def codecs() -> str:
    """Return what codecs take, as Markdown."""
    names = " | ".join(f"`{name}`" for name in CODEC_S_PER_MILLION)
    values = " | ".join(f"{seconds * 1000:g} ms" for seconds in CODEC_S_PER_MILLION.values())
    return f"| {names} |\n|{'---:|' * len(CODEC_S_PER_MILLION)}\n| {values} |\n"


def rows() -> str:
    """Return the measured losses."""
    lines = ["| parameters | tokens | every | fragments | bits | loss | seeds | from |"]
    lines.append("|---:|---:|---:|---:|---:|---:|---:|---|")
    for row in LOSS_ROWS:
        cells = [format_count(row.parameters), format_count(row.tokens), f"{row.every}"]
        cells += [f"{count}" if count else "?" for count in (row.fragments, row.bits)]
        spread = f" ± {row.spread:.1%}" if row.spread else ""
        cells += [f"{row.loss:+.1%}{spread}", f"{row.seeds}", f"`{row.command}`"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def links() -> str:
    """Return which method is for which link."""
    lines = ["| model | link | RTT | lost | method | speed | loss |"]
    lines.append("|---|---:|---:|---:|---|---:|---|")
    for name, situation in SITUATIONS.items():
        for link, found in by_link(situation, LINKS):
            cells = [name, format_bit_rate(link.bytes_per_s * 8), f"{link.rtt_s * 1000:g} ms"]
            cells += [f"{link.loss:.1%}" if link.loss else "", method_words(found.how)]
            lines.append(f"| {' | '.join([*cells, speed_words(found), loss_words(found)])} |")
            name = ""
    return "\n".join(lines) + "\n"


def rewritten(text: str) -> str:
    """Return the page with its tables as they should be."""
    for name, made in (("codecs", codecs()), ("rows", rows()), ("links", links())):
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        before, rest = text.split(start)
        _, after = rest.split(end)
        text = f"{before}{start}{made}{end}{after}"
    return text


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
