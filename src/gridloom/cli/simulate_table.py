"""Tables of `simulate` at 100 columns: policies side by side, what they used, one by size."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from gridloom.base.units import format_duration
from gridloom.cli.output import console, say, table
from gridloom.cli.simulate_setup import Setup
from gridloom.sim.workload import Workload

Row = Mapping[str, Any]

_SHOWN_MAX = 200
_NONE = "-"


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        head: What it is called.
        text: What it says of a row.
        trivial: Texts that tell nothing: where all rows have them, the column is left out.
        spare: A narrow terminal can do without it.
    """

    head: str
    text: Callable[[Row], str]
    trivial: frozenset[str] = frozenset()
    spare: bool = False


def show_results(
    results: Sequence[Row], setup: Setup, workload: Workload, *, listed: bool = False
) -> None:
    """Print what the runs came to.

    Args:
        results: As `--json` has them.
        setup: Grid and jobs.
        workload: Of the first seed.
        listed: The rows that were left out are listed besides.
    """
    out = console()
    say(title(results, setup, workload))
    out.print(times_table(results))
    out.print()
    out.print(use_table(results))
    if len(results) == 1:
        out.print()
        out.print(size_table(results[0]))
        if 1 < len(results[0]["by_queue"]) <= _QUEUES_MAX:
            out.print()
            out.print(group_table(results[0]["by_queue"], "queue"))
    out.print()
    for sentence in notes(results, setup, workload, listed=listed):
        say(sentence)


def title(results: Sequence[Row], setup: Setup, workload: Workload) -> str:
    """Return what was simulated, as a sentence."""
    nodes = [node for site in setup.inventory.sites for node in site.nodes]
    devices: dict[str, int] = {}
    for node in nodes:
        devices[node.accelerator] = devices.get(node.accelerator, 0) + node.count
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in devices.items())
    on = f"{len(nodes):,} nodes" if len(nodes) > 1 else "1 node"
    jobs = _jobs(len(workload.arrivals))
    seeds = results[0].get("seeds")
    over = f"; mean over {len(seeds)} seeds, ± standard deviation" if seeds else ""
    return f"{setup.source}: {jobs} on {kinds} ({on}); times in seconds{over}"


def times_table(results: Sequence[Row]) -> Table:
    """Return how long jobs waited and took, a row a policy."""
    return _drawn(_TIMES, results)


def use_table(results: Sequence[Row]) -> Table:
    """Return what the runs used and lost, a row a policy."""
    currency = str(results[0]["currency"])
    cost = Column(currency, _number("cost", 2), frozenset({"0.00"}))
    return _drawn((*_USE, cost), results)


def size_table(result: Row) -> Table:
    """Return how jobs of each size fared."""
    return group_table(result["by_size"], "devices")


def group_table(groups: Mapping[str, Row], head: str) -> Table:
    """Return how the jobs of each group fared."""
    name = Column(head, lambda row: str(row["group"]))
    rows = [{**row, "group": group or _NONE} for group, row in groups.items()]
    return _drawn((name, *_GROUP), rows)


def notes(
    results: Sequence[Row], setup: Setup, workload: Workload, *, listed: bool = False
) -> list[str]:
    """Return what a reader should know besides, a sentence each."""
    told = []
    if workload.dropped:
        counts = ", ".join(f"{n:,} {why}" for why, n in workload.dropped_by_reason().items())
        more = "" if listed else "; --dropped lists them"
        count = len(workload.dropped)
        rows = "1 row" if count == 1 else f"{count:,} rows"
        told.append(f"left out {rows}: {counts}{more}")
    for row in results:
        if row["never_ran"]:
            first = f"; the first: {row['never']}" if row.get("never") else ""
            told.append(f"{row['policy']}: {_jobs(row['never_ran'])} never ran{first}")
        if row["unfinished"]:
            told.append(f"{row['policy']}: {_jobs(row['unfinished'])} not over")
        if row["interrupted"]:
            span = format_duration(row["simulated_s"])
            told.append(f"{row['policy']}: interrupted after {span} of simulated time")
    return [*told, *setup.notes]


def show_dropped(workload: Workload) -> None:
    """Print the rows of the log that no job was made of."""
    rows = [
        (str(one.row), one.why, one.field or _NONE, one.sentence)
        for one in workload.dropped[:_SHOWN_MAX]
    ]
    if rows:
        columns = ("row", "cause", "field", "what was found")
        console().print(table(columns, rows, right=("row",)))
    if len(workload.dropped) > _SHOWN_MAX:
        say(f"and {len(workload.dropped) - _SHOWN_MAX:,} more")


def _drawn(columns: Sequence[Column], results: Sequence[Row]) -> Table:
    texts = {column.head: [column.text(row) for row in results] for column in columns}
    kept = [column for column in columns if not set(texts[column.head]) <= column.trivial]
    heads = [column.head for column in kept]
    rows = [[texts[head][place] for head in heads] for place in range(len(results))]
    spare = [column.head for column in kept if column.spare]
    return table(heads, rows, right=heads[1:], whole=heads, spare=spare)


def _number(name: str, digits: int = 0, *, scale: float = 1.0) -> Callable[[Row], str]:
    def text(row: Row) -> str:
        value = row[name]
        return _NONE if value is None else f"{value / scale:,.{digits}f}"

    return text


def _varied(name: str, digits: int) -> Callable[[Row], str]:
    """Return a figure with its spread over seeds, where there is any."""
    plain = _number(name, digits)

    def text(row: Row) -> str:
        spread = row.get("spread", {}).get(name, 0.0)
        return f"{plain(row)} ±{spread:,.0f}" if spread else plain(row)

    return text


def _share(name: str) -> Callable[[Row], str]:
    return lambda row: _NONE if row[name] is None else f"{row[name]:.1%}"


def _policy(row: Row) -> str:
    return str(row["policy"])


def _whole(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def _jobs(count: float) -> str:
    return "1 job" if count == 1 else f"{_whole(count)} jobs"


_QUEUES_MAX = 20
_ZERO = frozenset({"0", _NONE})
_HOUR_S = 3600.0

_TIMES = (
    Column("policy", _policy),
    Column("done", lambda row: _whole(row["completed"])),
    Column("JCT mean", _varied("jct_mean_s", 1)),
    Column("p50", _number("jct_p50_s")),
    Column("p90", _number("jct_p90_s")),
    Column("p99", _number("jct_p99_s"), spare=True),
    Column("wait mean", _varied("wait_mean_s", 1)),
    Column("wait p90", _number("wait_p90_s"), spare=True),
    Column("makespan", _number("makespan_s")),
    Column("in use", _share("utilisation")),
)

_USE = (
    Column("policy", _policy),
    Column("slowdown p50", _number("slowdown_p50", 1)),
    Column("p90", _number("slowdown_p90", 1)),
    Column("fairness", _number("fairness", 2), frozenset({_NONE}), spare=True),
    Column("scattered", _share("fragmentation"), frozenset({_NONE, "0.0%"}), spare=True),
    Column("evicted", lambda row: _whole(row["preemptions"]), _ZERO),
    Column("restarts", lambda row: _whole(row["restarts"]), _ZERO, spare=True),
    Column("lost device-h", _number("lost_device_s", 0, scale=_HOUR_S), _ZERO),
    Column("kept", _share("goodput"), frozenset({_NONE, "100.0%"})),
    Column("kWh", _number("energy_kwh"), _ZERO),
    Column("kg CO2", _number("carbon_kg"), _ZERO),
    Column("CPU s", _number("cpu_s", 1), spare=True),
)

_GROUP = (
    Column("jobs", lambda row: _whole(row["jobs"])),
    Column("JCT mean", _number("jct_mean_s", 1)),
    Column("p50", _number("jct_p50_s")),
    Column("p90", _number("jct_p90_s")),
    Column("wait mean", _number("wait_mean_s", 1)),
    Column("wait p90", _number("wait_p90_s")),
    Column("slowdown p50", _number("slowdown_p50", 1), spare=True),
    Column("device-h", _number("device_s", 0, scale=_HOUR_S)),
)
