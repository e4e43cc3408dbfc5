"""Policies compared on logs of clusters and on made ones: the tables of ``docs/how/policies.md``.

    python -m bench.policies philly  LOG.csv.gz
    python -m bench.policies openb   PODS.csv.gz NODES.csv.gz
    python -m bench.policies kalos | seren
    python -m bench.policies profiles PLACEMENTS.csv.gz

A log is cut into windows of equal numbers of jobs, each on a grid of its own size; a made load has
seeds. Every row of a table is compared with the baseline **of the same window or seed**; means and
the least and most of these ratios are printed. Progress, with the time of a run, goes to standard
error. Some minutes each, on one core.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import policies_loads as loads
from bench.policies_run import Case, Result, presets_table, ratios_table, run
from msgspec.structs import replace

from gridloom.base.errors import GridloomError
from gridloom.model.policy import POLICIES, Policy, Preemption, Weights, combined

Rows = list[tuple[str, list[Result]]]
Part = tuple[str, Case]


def main() -> int:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("what", choices=("philly", "openb", "kalos", "seren", "profiles"))
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--jobs", type=int, default=1500, help="of a window or a seed")
    parser.add_argument("--windows", type=int, default=3, help="or seeds")
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument(
        "--only", default="", help="tables: beginnings of their titles, joined by ;"
    )
    parser.add_argument("--without", default="", help="presets: names of slow ones, joined by ;")
    flags = parser.parse_args()
    try:
        if flags.what == "profiles":
            print(loads.placement_ratios(flags.files[0]))
            return 0
        cases = _cases(flags)
    except GridloomError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    for case in cases:
        print(f"- {case.name}: {case.about}")
    for title, parts in _tables(flags.what, cases):
        if title == "presets":
            parts = [part for part in parts if part[0] not in flags.without.split(";")]
        if not flags.only or any(title.startswith(word) for word in flags.only.split(";")):
            _show(title, parts)
    return 0


def _cases(flags: argparse.Namespace) -> list[Case]:
    if flags.what == "philly":
        return loads.philly(flags.files[0], flags.jobs, flags.windows, flags.load)
    if flags.what == "openb":
        return loads.openb(*flags.files[:2], flags.jobs, flags.windows, flags.load)
    return [
        loads.made(flags.what, flags.jobs, seed, flags.load) for seed in range(1, flags.windows + 1)
    ]


def _show(title: str, parts: Sequence[tuple[str, list[Case]]]) -> None:
    rows: Rows = [(label, [run(case, label) for case in cases]) for label, cases in parts]
    print(f"\n### {title}\n")
    print(presets_table(rows) if title == "presets" else ratios_table(rows))
    sys.stdout.flush()


Tables = list[tuple[str, list[tuple[str, list[Case]]]]]


def _tables(what: str, cases: list[Case]) -> Tables:
    """Return titles, and rows of which the first is the baseline."""

    def row(label: str, change: Callable[[Case], Case]) -> tuple[str, list[Case]]:
        return label, [change(case) for case in cases]

    def under(
        name: str, change: Callable[[Case], Case] = lambda case: case
    ) -> tuple[str, list[Case]]:
        return row(name, lambda case: replace(change(case), policy=combined(name)))

    names = ["backfill", *(name for name in POLICIES if name != "backfill")]
    tables: Tables = [("presets", [under(name) for name in names])]
    tables.append(
        (
            "backfill",
            [
                row("stop (fifo)", _with(POLICIES["fifo"])),
                row("hold", _with(Policy(blocked="hold"))),
                row("easy (backfill)", _with(POLICIES["backfill"])),
                row("conservative", _with(POLICIES["backfill-conservative"])),
                row("skip (backfill-greedy)", _with(POLICIES["backfill-greedy"])),
            ],
        )
    )
    for part in _PARTS[what]:
        tables += part(row)
    return tables


Row = Callable[[str, Callable[[Case], Case]], tuple[str, list[Case]]]


def _with(policy: Policy) -> Callable[[Case], Case]:
    return lambda case: replace(case, policy=policy)


def _prediction(row: Row) -> Tables:
    ways = ("exact", "told", "spread=0.5", "spread=1.5", "medians", "learned", "none")
    return [
        (
            f"prediction, {name}",
            [
                row(
                    way,
                    lambda c, way=way, name=name: replace(c, policy=POLICIES[name], forecast=way),
                )
                for way in ways
            ],
        )
        for name in ("backfill", "sjf")
    ]


def _preemption(row: Row) -> Tables:
    tables: Tables = []
    for name in ("srtf", "las", "fair"):
        on = POLICIES[name]
        off = replace(on, preemption=Preemption())
        tables.append(
            (
                f"preemption, {name}",
                [
                    row("without", _with(off)),
                    row("with", _with(on)),
                    row(
                        "with, saving and restarting are free",
                        lambda c, on=on: replace(loads.checkpoints(c, 0.0, 0.0), policy=on),
                    ),
                    row(
                        "with, nothing can be saved",
                        lambda c, on=on: replace(loads.checkpoints(c, loads.NEVER_S), policy=on),
                    ),
                    row(
                        "with, after 30 min of running",
                        _with(replace(on, preemption=Preemption(order=True, min_run_s=1800.0))),
                    ),
                ],
            )
        )
    return tables


def _topology(row: Row) -> Tables:
    blind = Policy(weights=Weights(time=0.0, wish=0.0, fragmentation=0.0))
    tables: Tables = [
        (
            "topology, log's times",
            [
                row("anywhere", _with(blind)),
                row("default weights", _with(Policy())),
                row("packed (must)", lambda c: replace(loads.packed(c), policy=Policy())),
                row(
                    "packed (should)",
                    lambda c: replace(loads.packed(c, required=False), policy=Policy()),
                ),
                row(
                    "packed (should), topology",
                    lambda c: replace(loads.packed(c, required=False), policy=POLICIES["topology"]),
                ),
            ],
        )
    ]
    for name, table in loads.STEP_TIMES.items():
        tables.append(
            (
                f"topology, step times of {name}",
                [
                    row(label, lambda c, t=table, p=policy: replace(loads.placed(c, t), policy=p))
                    for label, policy in (
                        ("anywhere", blind),
                        ("default weights", Policy()),
                        ("topology", POLICIES["topology"]),
                    )
                ]
                + [row("packed (must)", lambda c, t=table: loads.packed(loads.placed(c, t)))],
            )
        )
    return tables


def _defragmentation(row: Row) -> Tables:
    moving = combined("backfill+defragment")
    return [
        (
            "defragmentation",
            [
                row("packed, backfill", loads.packed),
                row("packed, +defragment", lambda c: replace(loads.packed(c), policy=moving)),
                row(
                    "packed, +defragment, moves are free",
                    lambda c: replace(loads.packed(loads.checkpoints(c, 0.0, 0.0)), policy=moving),
                ),
            ],
        )
    ]


def _kinds(row: Row) -> Tables:
    return [
        (
            "kinds of device",
            [
                row("backfill, speeds known", loads.kinds_differ),
                row(
                    "throughput",
                    lambda c: replace(loads.kinds_differ(c), policy=POLICIES["throughput"]),
                ),
                row(
                    "blind to speeds",
                    lambda c: replace(
                        loads.kinds_differ(c), policy=Policy(weights=Weights(time=0.0))
                    ),
                ),
                row(
                    "time and advantage x10",
                    lambda c: replace(
                        loads.kinds_differ(c),
                        policy=Policy(weights=Weights(time=10.0, advantage=10.0)),
                    ),
                ),
            ],
        ),
        (
            "priority of LS",
            [
                row("no priorities", lambda c: c),
                row("LS before BE", loads.priority_of_ls),
                row(
                    "LS before BE, no eviction",
                    lambda c: replace(
                        loads.priority_of_ls(c),
                        policy=Policy(preemption=Preemption(priority=False)),
                    ),
                ),
            ],
        ),
    ]


def _made(row: Row) -> Tables:
    return [
        (
            "elasticity",
            [
                row("rigid", lambda c: c),
                row("several sizes, backfill", loads.elastic),
                row(
                    "+elastic",
                    lambda c: replace(loads.elastic(c), policy=combined("backfill+elastic")),
                ),
            ],
        ),
        *(
            (
                f"price and carbon, load {load:g}",
                [
                    row(
                        name,
                        lambda c, n=name, x=load: replace(loads.at_load(c, x), policy=POLICIES[n]),
                    )
                    for name in ("backfill", "cost", "carbon")
                ],
            )
            for load in (1.0, 3.0)
        ),
        (
            "quotas",
            [
                row("no quotas", lambda c: c),
                row("a third each, lent", lambda c: loads.quotas(c, lent=True)),
                row("a third each, not lent", lambda c: loads.quotas(c, lent=False)),
                row("fair, no quotas", _with(POLICIES["fair"])),
            ],
        ),
    ]


_PARTS: dict[str, tuple[Callable[[Row], Tables], ...]] = {
    "philly": (_prediction, _preemption, _topology, _defragmentation),
    "openb": (_kinds,),
    "kalos": (_prediction, _preemption, _defragmentation),
    "seren": (_made, _prediction, _preemption, _defragmentation),
}


if __name__ == "__main__":
    sys.exit(main())
