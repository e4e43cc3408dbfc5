"""What goes wrong, as data: faults, scripts of them, and faults drawn by rates."""

import csv
import math
import random
import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from gridloom.base.errors import InputError, Problem
from gridloom.base.units import parse_duration_s
from gridloom.model.inventory import Inventory
from gridloom.wire.documents_values import did_you_mean, found
from gridloom.wire.source import read_source

Kind = Literal["down", "reclaim", "cut", "slow", "maintenance", "kill", "refuse"]
"""``down``: gone without a word, with all that runs there. ``reclaim``: the same by the owner,
known at once. ``cut``: the network to a site, or a link ``a|b``, is interrupted. ``slow``: training
steps of a gang with a task there, or what it sends over the link, take longer. ``maintenance``: no
work for a while. ``kill``: processes die, the node is well. ``refuse``: nothing is started."""

KINDS: tuple[str, ...] = get_args(Kind)
_LINKED = frozenset({"cut", "slow"})
_NOTICED = frozenset({"reclaim", "maintenance"})


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that goes wrong.

    Attributes:
        at_s: When.
        kind: What.
        domain: Where: ``site/node``, ``site`` for all of its nodes, or ``site|site`` for the link
            between two.
        duration_s: How long it lasts; 0: for ever.
        factor: By how much slower, for ``slow``.
        notice_s: How long before it is announced, for ``reclaim`` (the node is drained from then
            on) and for ``maintenance`` (it is booked).
    """

    at_s: float
    kind: Kind
    domain: str
    duration_s: float = 0.0
    factor: float = 1.0
    notice_s: float = 0.0


class Hazard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How often something goes wrong.

    Attributes:
        kind: What.
        mtbf_s: Mean seconds of being well between two faults of one unit.
        per: What a unit is. Devices of a node fail apart and take the node with them.
        accelerator: Only nodes with this kind of device; empty for all.
        site: Only there; empty for everywhere.
        shape: Of the Weibull distribution of the times between: 1 is the exponential one, less
            than 1 has faults come in bunches, more than 1 is wear.
        repair_s: Mean duration; 0: for ever.
        repair_shape: As ``shape``, for the durations; 0: all alike.
        factor: As a fault's.
        notice_s: As a fault's.
    """

    kind: Kind
    mtbf_s: float
    per: Literal["accelerator", "node", "site"] = "node"
    accelerator: str = ""
    site: str = ""
    shape: float = 1.0
    repair_s: float = 0.0
    repair_shape: float = 0.0
    factor: float = 1.0
    notice_s: float = 0.0


def drawn(
    inventory: Inventory,
    hazards: Sequence[Hazard],
    *,
    seed: int,
    until_s: float,
    from_s: float = 0.0,
) -> tuple[Fault, ...]:
    """Return the faults of a grid between two times, in order.

    Every unit has a stream of its own, so that a larger grid, or one more hazard, leaves the faults
    of the others as they were. The first of n fresh devices to fail, each by a Weibull distribution
    of shape k and scale s, is again Weibull, of scale s / n^(1/k): the distribution is closed under
    minima (Weibull 1951).

    Raises:
        InputError: A hazard makes no sense.
    """
    problems = [one for hazard in hazards for one in _hazard_problems(hazard)]
    if problems:
        raise InputError(problems)
    faults: list[Fault] = []
    for number, hazard in enumerate(hazards):
        for domain, count in _units(inventory, hazard):
            rng = random.Random(f"{seed}/{number}/{domain}")
            faults.extend(_stream(hazard, domain, rng, (from_s, until_s, count)))
    return in_order(faults)


def in_order(faults: Sequence[Fault]) -> tuple[Fault, ...]:
    """Return faults by time, then by domain, then by kind."""
    return tuple(sorted(faults, key=lambda one: (one.at_s, one.domain, one.kind, one.duration_s)))


def parse_faults(
    text: str, file: str = "", inventory: Inventory | None = None
) -> tuple[Fault, ...]:
    """Return the faults that a script lists, in order of time.

    A script is YAML with a list ``faults``, or CSV whose first line names the columns; both know
    ``at``, ``kind``, ``domain``, ``for``, ``factor`` and ``notice``.

    Args:
        text: The script.
        file: Its name, as the user gave it.
        inventory: The grid; with it, domains that it does not have are refused.

    Raises:
        InputError: With everything that is wrong, and where.
    """
    rows, problems = _csv_rows(text, file) if _is_csv(text) else _yaml_rows(text, file)
    known = _domains(inventory) if inventory is not None else None
    faults = [_Row(file, row, problems).fault(known) for row in rows]
    if problems:
        raise InputError(sorted(problems, key=lambda one: one.line))
    return in_order([fault for fault in faults if fault is not None])


def _hazard_problems(hazard: Hazard) -> list[Problem]:
    checks = (
        ("mtbf_s", hazard.mtbf_s > 0, "write a number above 0"),
        ("shape", hazard.shape > 0, "write a number above 0"),
        ("repair_s", hazard.repair_s >= 0, "write a number of at least 0"),
        ("repair_shape", hazard.repair_shape >= 0, "write a number of at least 0"),
        ("factor", hazard.kind != "slow" or hazard.factor > 1, "write a number above 1"),
    )
    return [
        Problem(found(getattr(hazard, field)), remedy, field=field)
        for field, right, remedy in checks
        if not right
    ]


def _units(inventory: Inventory, hazard: Hazard) -> list[tuple[str, int]]:
    """Return the units of a hazard, with the number of things in each that can fail."""
    sites = [site for site in inventory.sites if hazard.site in ("", site.name)]
    if hazard.per == "site":
        return [(site.name, 1) for site in sites]
    return [
        (f"{site.name}/{node.name}", node.count if hazard.per == "accelerator" else 1)
        for site in sites
        for node in site.nodes
        if node.count and hazard.accelerator in ("", node.accelerator)
    ]


def _stream(
    hazard: Hazard, domain: str, rng: random.Random, span: tuple[float, float, int]
) -> list[Fault]:
    at_s, until_s, count = span
    faults: list[Fault] = []
    while True:
        scale_s = hazard.mtbf_s / math.gamma(1 + 1 / hazard.shape) / count ** (1 / hazard.shape)
        at_s += rng.weibullvariate(scale_s, hazard.shape)
        if at_s >= until_s:
            return faults
        duration_s = hazard.repair_s
        if duration_s and hazard.repair_shape:
            scale_s = duration_s / math.gamma(1 + 1 / hazard.repair_shape)
            duration_s = rng.weibullvariate(scale_s, hazard.repair_shape)
        fault = Fault(
            at_s=at_s,
            kind=hazard.kind,
            domain=domain,
            duration_s=duration_s,
            factor=hazard.factor,
            notice_s=hazard.notice_s,
        )
        faults.append(fault)
        if not duration_s and hazard.kind != "kill":  # processes die at once; the rest lasts
            return faults
        at_s += duration_s


_COLUMNS = ("at", "kind", "domain", "for", "factor", "notice")
_CSV = re.compile(r"\s*[A-Za-z_]+\s*,")


class _Written(NamedTuple):
    """A fault as written: its line, its fields, and their own lines where they have any."""

    line: int
    fields: dict[str, Any]
    lines: dict[str, int]


def _is_csv(text: str) -> bool:
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return _CSV.match(next(lines, "")) is not None


def _csv_rows(text: str, file: str) -> tuple[list[_Written], list[Problem]]:
    numbered = enumerate(csv.reader(text.splitlines()), 1)
    lines = [(n, cells) for n, cells in numbered if any(cells) and not cells[0].startswith("#")]
    header = [name.strip() for name in lines[0][1]]
    problems = []
    rows: list[_Written] = []
    for line, cells in lines[1:]:
        if len(cells) > len(header):
            message = f"found {len(cells)} cells under {len(header)} columns"
            problems.append(Problem(message, "", file, line))
        pairs = zip(header, (cell.strip() for cell in cells), strict=False)
        known = {name: cell for name, cell in pairs if cell and name in _COLUMNS}
        rows.append(_Written(line, known, {}))
    problems += [_unknown(one, file, lines[0][0]) for one in header if one not in _COLUMNS]
    return rows, problems


def _yaml_rows(text: str, file: str) -> tuple[list[_Written], list[Problem]]:
    source = read_source(text.encode(), file)
    problems = list(source.problems)
    problems += [
        source.problem((name,), f"unknown field `{name}`", "write `faults`, a list")
        for name in source.data
        if name != "faults"
    ]
    listed = source.data.get("faults")
    if not isinstance(listed, list):
        problems.append(Problem("the list `faults` is missing", "write `faults:`", file))
        return [], problems
    rows = []
    for number, item in enumerate(listed):
        path = ("faults", number)
        if not isinstance(item, dict):
            problems.append(source.problem(path, found(item), "write `at:`, `kind:`, `domain:`"))
            continue
        texts = {k: source.texts.get((*path, k), v) for k, v in item.items() if v is not None}
        lines = {k: source.line((*path, k)) for k in texts}
        rows.append(_Written(source.line(path), texts, lines))
    return rows, problems


def _unknown(name: str, file: str, line: int) -> Problem:
    remedy = did_you_mean(name, [*_COLUMNS]) or f"known are {', '.join(_COLUMNS)}"
    return Problem(f"unknown field `{name}`", remedy, file, line)


def _domains(inventory: Inventory) -> list[str]:
    names = [site.name for site in inventory.sites]
    nodes = [f"{site.name}/{node.name}" for site in inventory.sites for node in site.nodes]
    return [*names, *nodes]


class _Row:
    """One fault as written, and where its problems go."""

    def __init__(self, file: str, row: _Written, problems: list[Problem]) -> None:
        self._file, self._row, self._fields = file, row, row.fields
        self._problems = problems

    def fault(self, known: list[str] | None) -> Fault | None:
        """Return the fault, or nothing after noting what is wrong with it."""
        before = len(self._problems)
        self._problems += [
            _unknown(name, self._file, self._row.lines.get(name, self._row.line))
            for name in self._fields
            if name not in _COLUMNS
        ]
        at_s = self._duration("at", required=True)
        kind, domain = self._kind(), self._domain(known)
        duration_s, notice_s = self._duration("for"), self._duration("notice")
        factor = self._factor(kind)
        if "|" in domain and kind and kind not in _LINKED:
            self._wrong("domain", f"a link cannot be `{kind}`", "name a site or a node")
        if kind == "cut" and "/" in domain:
            self._wrong("domain", "only a site or a link can be cut", "write `down` for a node")
        if notice_s and kind and kind not in _NOTICED:
            self._wrong("notice", f"`{kind}` comes without notice", "leave it out")
        if len(self._problems) > before:
            return None
        return Fault(
            at_s=at_s,
            kind=kind,  # type: ignore[arg-type] # one of KINDS
            domain=domain,
            duration_s=duration_s,
            factor=factor,
            notice_s=notice_s,
        )

    def _kind(self) -> str:
        kind = str(self._fields.get("kind", ""))
        if kind in KINDS:
            return kind
        remedy = did_you_mean(kind, [*KINDS]) if kind else ""
        said = found(kind) if kind else "no kind is given"
        self._wrong("kind", said, remedy or f"write one of {', '.join(KINDS)}")
        return ""

    def _domain(self, known: list[str] | None) -> str:
        domain = str(self._fields.get("domain", ""))
        if not domain:
            self._wrong("domain", "no domain is given", "write `site/node`, `site` or `site|site`")
            return ""
        ends = domain.split("|")
        if len(ends) > 2 or ("|" in domain and ("/" in domain or ends[0] == ends[1])):
            self._wrong("domain", found(domain), "write a link as `site|site`")
        for end in ends:
            if known is not None and end not in known:
                remedy = did_you_mean(end, known) or "name a site or a node of the grid"
                self._wrong("domain", f"the grid has no `{end}`", remedy)
        return domain

    def _duration(self, field: str, *, required: bool = False) -> float:
        text = self._fields.get(field)
        if text is None:
            if required:
                self._wrong(field, "no time is given", "write a duration such as `90s` or `2h`")
            return 0.0
        try:
            duration_s = parse_duration_s(str(text))
        except ValueError:
            duration_s = -1.0
        if not 0 <= duration_s < math.inf:
            self._wrong(field, found(text), "write a duration such as `90s` or `2h`")
        return duration_s

    def _factor(self, kind: str) -> float:
        text = self._fields.get("factor")
        if text is None:
            if kind == "slow":
                self._wrong("factor", "no factor is given", "write a number above 1")
            return 1.0
        try:
            factor = float(text)
        except (TypeError, ValueError):
            factor = math.nan
        if not 1 < factor < math.inf:
            self._wrong("factor", found(text), "write a number above 1")
        elif kind and kind != "slow":
            self._wrong("factor", f"`{kind}` has no factor", "leave it out")
        return factor

    def _wrong(self, field: str, message: str, remedy: str) -> None:
        line = self._row.lines.get(field, self._row.line)
        self._problems.append(Problem(message, remedy, self._file, line, field))
