"""What a job has used, from what sacct prints or slurmdbd answers (pure)."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gridloom.base.errors import SiteError
from gridloom.base.units import parse_bytes
from gridloom.sites.slurm import values
from gridloom.sites.slurm.answer import Row, answer, find, rows
from gridloom.sites.slurm.states import JobPhase, job_phase, job_states

_COLUMNS = ("JobID", "State", "ElapsedRaw", "TotalCPU", "MaxRSS", "ConsumedEnergyRaw")
USAGE_FORMAT = ",".join(_COLUMNS)
"""The value of sacct's ``--format``, beside ``--parsable2 --noheader``."""

_CPU = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+(?:\.\d+)?)")
_ENERGY_MAX_J = 2**62
"""What is more stands for nothing: Slurm fills in its largest numbers."""


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """What one job has used.

    Attributes:
        is_over: Whether it has ended, so that there will be no more.
        elapsed_s: From its start to its end.
        cpu_s: Of processors, all its processes together.
        max_rss_bytes: Of memory, the task that had most; 0 when nobody has looked.
        energy_j: What its nodes drew; 0 when nobody has measured.
    """

    is_over: bool
    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    max_rss_bytes: int = 0
    energy_j: float = 0.0


def sacct(text: str) -> dict[int, Used]:
    """Return what jobs have used, of ``sacct`` with ``USAGE_FORMAT``, steps included.

    The parts of a heterogeneous job are told together, as its first one.

    Raises:
        SiteError: A line cannot be read.
    """
    found: dict[int, list[tuple[bool, Used]]] = {}
    for line in filter(None, text.splitlines()):
        try:
            job_id, is_step, used = _line(line)
        except ValueError as error:
            raise SiteError(f"sacct: {line[:80]!r}: {error}") from None
        found.setdefault(job_id, []).append((is_step, used))
    return {
        job_id: _sum([one for is_step, one in parts if not is_step], [one for _, one in parts])
        for job_id, parts in found.items()
    }


def rest(data: bytes) -> dict[int, Used]:
    """Return what jobs have used, of ``/slurmdb/job``.

    Raises:
        SlurmError: The answer tells of errors.
        SiteError: It is not such an answer.
    """
    found: dict[int, list[Used]] = {}
    for job_id, used in rows(answer(data), "jobs", _row):
        found.setdefault(job_id, []).append(used)
    return {job_id: _sum(parts, parts) for job_id, parts in found.items()}


def _sum(jobs: Iterable[Used], all_parts: Iterable[Used]) -> Used:
    """Return parts of one job, of which each has its own processes, together."""
    own, every = [*jobs], [*all_parts]
    return Used(
        is_over=bool(own) and all(one.is_over for one in own),
        elapsed_s=max((one.elapsed_s for one in own), default=0.0),
        cpu_s=sum(one.cpu_s for one in own),
        max_rss_bytes=max((one.max_rss_bytes for one in every), default=0),
        energy_j=sum(one.energy_j for one in own),
    )


def _line(line: str) -> tuple[int, bool, Used]:
    columns = line.split("|")
    if len(columns) != len(_COLUMNS):
        raise ValueError(f"{len(_COLUMNS)} columns were asked for")
    told = dict(zip(_COLUMNS, columns, strict=True))
    match = re.match(r"\d+", told["JobID"])
    if match is None:
        raise ValueError("it begins with no job id")
    used = Used(
        is_over=_is_over((told["State"],)),
        elapsed_s=values.count(told["ElapsedRaw"]),
        cpu_s=_cpu_s(told["TotalCPU"]),
        max_rss_bytes=parse_bytes(told["MaxRSS"]) if values.text(told["MaxRSS"]) else 0,
        energy_j=_energy_j(told["ConsumedEnergyRaw"]),
    )
    return int(match[0]), "." in told["JobID"], used


def _row(row: Row) -> tuple[int, Used]:
    job_id = values.count(find(row, "het.job_id")) or values.count(find(row, "job_id"))
    steps = [step for step in row.get("steps") or () if isinstance(step, Mapping)]
    used = Used(
        is_over=_is_over(values.words(find(row, "state.current"))),
        elapsed_s=values.count(find(row, "time.elapsed")),
        cpu_s=sum(_step_cpu_s(step) for step in steps),
        max_rss_bytes=max((_step_rss(step) for step in steps), default=0),
        energy_j=sum(
            _energy_j(find(step, "statistics.energy.consumed"))
            for step in steps
            if _name(step) != "batch"  # its nodes are counted with those of the other steps
        ),
    )
    return job_id, used


def _is_over(states: tuple[str, ...]) -> bool:
    return job_phase(job_states(states)) is JobPhase.ENDED


def _cpu_s(said: str) -> float:
    if not values.text(said):
        return 0.0
    match = _CPU.fullmatch(said.strip())
    if match is None:
        raise ValueError(f"{said!r} is no time of processors such as 1-02:03:04 or 03:04.567")
    days, hours, minutes, seconds = match.groups(default="0")
    return int(days) * 86400.0 + int(hours) * 3600.0 + int(minutes) * 60.0 + float(seconds)


def _energy_j(value: Any) -> float:
    found = values.number(value) or 0.0
    return found if 0.0 < found < _ENERGY_MAX_J else 0.0


def _step_cpu_s(step: Row) -> float:
    total = find(step, "time.total.seconds"), find(step, "time.total.microseconds")
    return values.count(total[0]) + values.count(total[1]) / 1e6


def _step_rss(step: Row) -> int:
    told = find(step, "tres.requested.max")
    most = [one for one in told if isinstance(one, Mapping)] if isinstance(told, list) else []
    return max(
        (values.count(one.get("count")) for one in most if one.get("type") == "mem"), default=0
    )


def _name(step: Row) -> str:
    return values.text(find(step, "step.name"))
