"""What is sent to slurmrestd to hand in a job: the body of ``job/submit`` (pure).

slurmrestd does not read a script's ``#SBATCH`` lines: all that is asked for stands in the body. It
refuses keys that it does not know. Two shapes are known: that of v0.0.36 to v0.0.38 (20.11 to
22.05), which says numbers plainly and cannot name nodes, and that of v0.0.39 to v0.0.44.
"""

import re
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from gridloom.base.errors import InputError, Problem
from gridloom.sites.slurm.gres import gres_text
from gridloom.sites.slurm.rest_options import (
    FIRST_TYPED,
    option_fields,
    option_problems,
    script_variables,
)
from gridloom.sites.slurm.sbatch_file import COMPONENT_OPTIONS, JOB_OPTIONS
from gridloom.sites.slurm.script import signal_text
from gridloom.sites.slurm.submission import Component, Submission

VERSIONS = tuple(f"v0.0.{number}" for number in range(44, 35, -1))
"""Those of slurmrestd's interface that are known, the newest first: of 20.11 to 25.11."""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where programs are looked for, unless the submission says so: nothing else would."""
_SAID = frozenset({*JOB_OPTIONS, *COMPONENT_OPTIONS})
"""Options of scripts that a ``Submission`` has fields for."""


def submit_body(submission: Submission, script: str, api: str) -> dict[str, Any]:
    """Return the body that hands in ``script``.

    Args:
        submission: What the job asks for.
        script: What ``render`` made of it, or another.
        api: Version of slurmrestd's interface, as ``v0.0.38``.

    Raises:
        InputError: That version cannot say all that is asked for, or there is no such version.
    """
    match = re.fullmatch(r"v0\.0\.(\d{2})", api)
    if match is None:
        raise InputError(f"{api!r} is no version of slurmrestd's interface, such as v0.0.40")
    version, options = int(match[1]), dict(submission.options)
    is_plain = version < FIRST_TYPED
    problems = list(_unsayable(submission, api)) if is_plain else []
    problems += option_problems(options, _SAID, version)
    if problems:
        raise InputError(problems)
    more: dict[str, Any] = {}
    if options:
        variables = submission.environment | script_variables(options, version)
        submission = replace(submission, environment=variables)
        more = option_fields(options, version)
    say = _plain if is_plain else _typed
    said = [say(submission, part) | more for part in submission.components]
    if version == FIRST_TYPED:
        said = [_as_in_v39(one) for one in said]
    jobs = [
        {key: value for key, value in one.items() if value not in ("", [], None)} for one in said
    ]
    return {"script": script, **({"jobs": jobs} if len(jobs) > 1 else {"job": jobs[0]})}


def _unsayable(submission: Submission, api: str) -> Iterator[Problem]:
    for component in submission.components:
        asked = {
            "nodelist": component.nodelist,
            "switches": component.switches,
            "segment": component.segment,
        }
        for field, value in ({"exclude": submission.exclude} | asked).items():
            if value:
                yield Problem(_cannot(api), "hand the job in with sbatch", field=field)
    wanted = dict(submission.options).get("signal", "")
    if submission.signal is not None and submission.signal.to_batch and wanted:
        remedy = "remove it, or hand the job in with sbatch"
        yield Problem(f"{_cannot(api)}: {wanted}", remedy, field="--signal")


def _cannot(api: str) -> str:
    return f"slurmrestd's {api} cannot be asked for this"


def _common(submission: Submission, component: Component) -> dict[str, Any]:
    """Return what both shapes say with the same words."""
    return {
        "name": submission.name,
        "comment": submission.comment,
        "account": submission.account,
        "qos": submission.qos,
        "reservation": submission.reservation,
        "dependency": submission.dependency,
        "array": submission.array,
        "requeue": submission.requeue,
        "current_working_directory": submission.directory or "/",
        "standard_output": submission.stdout,
        "standard_error": submission.stderr,
        "partition": component.partition,
        "constraints": component.constraint,
        "tasks": component.nodes,
        "tasks_per_node": 1,
        "cpus_per_task": component.cpus_per_task,
        "licenses": ",".join(component.licences),
    }


def _plain(submission: Submission, component: Component) -> dict[str, Any]:
    memory, signal = component.memory, submission.signal
    is_ours = not submission.options or (signal is not None and not signal.to_batch)
    return _common(submission, component) | {
        "environment": {"PATH": _PATH} | submission.environment,
        "nodes": str(component.nodes),
        "time_limit": submission.time_limit_min,
        "gres": ",".join(map(gres_text, component.gres)),
        f"memory_per_{memory.per if memory else 'node'}": memory.mib if memory else None,
        "exclusive": "exclusive" if component.exclusive == "node" else component.exclusive,
        # "B:" is refused, though its own description has it: the tasks get the warning themselves,
        # as they would from the batch script. One of the user's own would have to get it itself
        "signal": signal_text(replace(signal, to_batch=False)) if signal and is_ours else "",
        "open_mode": submission.open_mode,
        "no_kill": "set" if submission.no_kill else "",
    }


def _typed(submission: Submission, component: Component) -> dict[str, Any]:
    memory, signal, switches = component.memory, submission.signal, component.switches
    environment = {"PATH": _PATH} | submission.environment
    per_gpu = memory is not None and memory.per == "gpu"
    said: dict[str, Any] = {
        "environment": [f"{name}={value}" for name, value in sorted(environment.items())],
        "nodes": str(component.nodes),
        "time_limit": _number(submission.time_limit_min),
        "tres_per_node": ",".join(f"gres/{gres_text(gres)}" for gres in component.gres),
        "memory_per_tres": f"gres/gpu:{memory.mib}" if memory and per_gpu else "",
        "shared": _shared(component.exclusive),
        "required_nodes": list(component.nodelist),
        "excluded_nodes": list(submission.exclude),
        "required_switches": _number(switches.count if switches else None),
        "segment_size": _number(component.segment),
        "open_mode": [submission.open_mode.upper()] if submission.open_mode else [],
        "kill_on_node_fail": False if submission.no_kill else None,
    }
    if memory and not per_gpu:
        said[f"memory_per_{memory.per}"] = _number(memory.mib)
    if switches and switches.wait_min is not None:
        said["wait_for_switch"] = switches.wait_min * 60
    if signal:
        said["kill_warning_signal"] = signal.name
        said["kill_warning_delay"] = _number(signal.before_s)
        said["kill_warning_flags"] = ["BATCH_JOB"] if signal.to_batch else []
    return _common(submission, component) | said


def _number(value: int | None) -> dict[str, Any] | None:
    return None if value is None else {"set": True, "infinite": False, "number": value}


def _shared(exclusive: str) -> list[str]:
    return ["none" if exclusive == "node" else exclusive] if exclusive else []


def _as_in_v39(said: dict[str, Any]) -> dict[str, Any]:
    """Say who else may be on the nodes as only 23.02 has it."""
    shared = said.pop("shared", [])
    if shared == ["oversubscribe"]:
        return said | {"oversubscribe": True}
    return said | {"exclusive": ["true" if one == "none" else one for one in shared]}
