"""``generate:seren,jobs=10000,load=0.8``: a workload that is made, read into its spec."""

from difflib import get_close_matches
from typing import Any

from msgspec.structs import replace

from gridloom.base.errors import InputError, Problem
from gridloom.base.units import parse_count, parse_duration_s
from gridloom.sim.generate import GeneratorSpec
from gridloom.sim.generate_acme import CLUSTERS
from gridloom.sim.workload import ReadOptions

MADE = "generate:"
"""What a workload that is made begins with."""

_JOBS = 1000
_JOBS_MAX = 10_000_000


def _truth(text: str) -> bool:
    return {"yes": True, "true": True, "no": False, "false": False}[text.lower()]


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split("|") if name)


_KEYS: dict[str, Any] = {
    "jobs": parse_count,
    "devices": parse_count,
    "load": float,
    "day_swing": float,
    "peak_h": float,
    "users": parse_count,
    "user_skew": float,
    "queues": _names,
    "elastic": float,
    "scaling": float,
    "forecast_spread": float,
    "checkpoint_every_s": parse_duration_s,
    "checkpoint_s": parse_duration_s,
    "restart_s": parse_duration_s,
    "endings": _truth,
}


def read_recipe(
    text: str, options: ReadOptions, devices: int, *, elastic: bool = False
) -> GeneratorSpec:
    """Return what ``text`` asks to make.

    Args:
        text: ``generate:``, a cluster, and ``key=value`` parts, separated by commas.
        options: Kinds of device, and how jobs sit on nodes.
        devices: Of the grid; 0 when the text is to tell.
        elastic: All training jobs may run on other numbers of devices.

    Raises:
        InputError: With everything that is wrong with it.
    """
    problems: list[Problem] = []
    told: dict[str, Any] = {}
    for part in text.removeprefix(MADE).split(","):
        word = part.strip()
        key, equals, value = word.partition("=")
        if not word:
            continue
        if not equals:
            _take_cluster(word, told, problems)
        elif key not in _KEYS:
            near = get_close_matches(key, _KEYS, n=1)
            hint = f"did you mean `{near[0]}`? " if near else ""
            remedy = f"{hint}There are {', '.join(_KEYS)}"
            problems.append(Problem(f"unknown key `{key}`", remedy, field="--workload"))
        else:
            try:
                told[key] = _KEYS[key](value)
            except (ValueError, KeyError, OverflowError):
                problems.append(
                    Problem(f"{value!r} cannot be", _right(key), field=f"--workload {key}")
                )
    if not (told.get("devices") or devices) and not problems:
        remedy = "add devices=N, --grid FILE or --accelerators N"
        problems.append(Problem("says nothing of the grid", remedy, field="--workload"))
    if told.get("jobs", 0) > _JOBS_MAX:
        message = f"{told['jobs']} jobs are too many"
        problems.append(Problem(message, f"make at most {_JOBS_MAX}", field="--workload jobs"))
    if problems:
        raise InputError(problems)
    spec = GeneratorSpec(
        jobs=_JOBS, devices=devices, options=options, elastic=1.0 if elastic else 0.0
    )
    return replace(spec, **told)


def _take_cluster(word: str, told: dict[str, Any], problems: list[Problem]) -> None:
    if word in CLUSTERS:
        told["cluster"] = word
        return
    near = get_close_matches(word, CLUSTERS, n=1)
    hint = f"did you mean `{near[0]}`? " if near else ""
    remedy = f"{hint}There are {', '.join(CLUSTERS)}; the rest are parts like jobs=1000"
    problems.append(Problem(f"there is no cluster `{word}`", remedy, field="--workload"))


def _right(key: str) -> str:
    reader = _KEYS[key]
    if reader is _truth:
        return "write yes or no"
    if reader is parse_duration_s:
        return "write a duration, as 30m"
    return "write a whole number" if reader is parse_count else "write a number, as 0.8"
