"""The tables on the page about sync methods, from the planner's own rows and choices.

`python -m tests.golden.sync_page` writes them between their marks.
"""

from dataclasses import replace
from pathlib import Path

from gridloom.base.units import format_bit_rate, format_count
from gridloom.cli.stages_words import winner_line
from gridloom.cli.sync_words import loss_words, speed_words
from gridloom.planner.site_stages import SiteStages, StageHop, weighed_by_link
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
LARGE = replace(
    SMALL,
    parameters=1_000_000_000,
    width=2048,
    tokens=20e9,
    step_s=2.0,
    step_tokens=1e6,
    ranks=8,
    shares_cores=False,
)


def halves(situation: SyncSituation, micro_batches: int) -> SiteStages:
    """Return one model, half of its layers at each of two sites that are as fast as one another.

    Activations are fp32 on CPUs, bf16 on accelerators; each rank of a site is a copy of its half.
    """
    slot_s = situation.step_s / micro_batches
    return SiteStages(
        sites=("north", "south"),
        layers=(12, 12),
        fill_s=(slot_s, slot_s),
        slot_s=(slot_s, slot_s),
        micro_batches=micro_batches,
        numbers=situation.step_tokens * situation.width / micro_batches,
        copies=situation.ranks,
        hops=(StageHop(link=situation.links[0]),),
        exact_bits=32 if situation.shares_cores else 16,
        least_depths=(2, 1),
        depths=(float(micro_batches),) * 2,
        step_tokens=situation.step_tokens,
        shares_cores=situation.shares_cores,
    )


SITUATIONS = {
    "1.3M parameters, 3M tokens, 0.25 s a step, CPUs": (SMALL, 8),
    "12M parameters, 20M tokens, 0.5 s a step, CPUs": (
        replace(SMALL, parameters=12_000_000, width=384, tokens=20e6, step_s=0.5, step_tokens=512),
        4,
    ),
    "1B parameters, 20B tokens, 2 s a step, 8 + 8 accelerators": (LARGE, 64),
    "13B parameters, 20B tokens, 12 s a step, 8 + 8 accelerators": (
        replace(LARGE, parameters=13_000_000_000, width=5120, step_s=12.0),
        64,
    ),
}
"""Models on two sites, and into how many micro-batches a step is cut if they hold stages."""


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
    """Return which way is for which link."""
    lines = ["| model | link | RTT | lost | method, or stages | speed | loss | speed of stages |"]
    lines.append("|---|---:|---:|---:|---|---:|---|---:|")
    for name, (situation, micro_batches) in SITUATIONS.items():
        stages = halves(situation, micro_batches)
        for link, weighed in weighed_by_link(situation, stages, LINKS):
            line = winner_line(weighed)
            assert line is not None
            assert weighed.stages is not None
            cells = [name, format_bit_rate(link.bytes_per_s * 8), f"{link.rtt_s * 1000:g} ms"]
            cells += [f"{link.loss:.1%}" if link.loss else "", line.words]
            cells += [speed_words(line.found), loss_words(line.found), speed_words(weighed.stages)]
            lines.append(f"| {' | '.join(cells)} |")
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
