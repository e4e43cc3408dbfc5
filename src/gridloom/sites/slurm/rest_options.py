"""The options of a user's batch script in the words of slurmrestd, which reads none (pure).

What 22.05 makes of each was tried beside sbatch: it takes most in sbatch's own spelling. Of a
signal to the batch script and of nodes by name it knows nothing. Nodes said as a list, as its own
description has them, are forgotten again; as text they count.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gridloom.base.errors import Problem
from gridloom.sites.slurm import values

Said = dict[str, Any]
_Take = Callable[[str], Said]


def option_fields(options: Mapping[str, str], version: int) -> Said:
    """Return the fields of a job that say more than a ``Submission`` can, or otherwise.

    ``None`` stands for fields that are to be left out.

    Args:
        options: By their long names.
        version: Of slurmrestd's interface, as 38 for v0.0.38.
    """
    tasks, nodes = task_count(options), options.get("nodes")
    # Without tasks for all of several nodes there would be a processor on one of them only
    tasks = tasks or int(nodes if nodes and nodes != "1" else 0)
    known, flags = _known(version), []
    said: Said = {
        "tasks": tasks or None,
        "tasks_per_node": int(options["ntasks-per-node"]) if "ntasks-per-node" in options else None,
        "nodes": nodes,
        **_devices(options, version),
    }
    for name, value in options.items():
        if name in known:
            told = known[name](value)
            flags += told.pop("flags", [])
            said |= told
    if version >= _WITH_TASKS:
        said |= {"tres_per_task": _of_task(options), "tres_bind": _bound(options)}
    return said | ({"flags": flags} if flags else {})


def option_problems(
    options: Mapping[str, str], taken: frozenset[str], version: int
) -> Iterator[Problem]:
    """Yield options that cannot be asked for, and values that are none.

    Args:
        options: By their long names.
        taken: Those that a ``Submission`` says.
        version: Of slurmrestd's interface, as 38 for v0.0.38.
    """
    known = _known(version)
    for name, value in options.items():
        if name in taken or name in _OTHERWISE:
            continue
        if name not in known:
            message = f"slurmrestd's v0.0.{version} cannot be asked for this"
            yield Problem(message, "remove it, or hand the job in with sbatch", field=f"--{name}")
            continue
        try:
            known[name](value)
        except ValueError:
            yield Problem(f"{value!r} is not what it takes", field=f"--{name}")


def task_count(options: Mapping[str, str]) -> int:
    """Return how many tasks a script asks for, as far as sbatch counts them itself; else 0."""
    nodes = int(options.get("nodes", "0"))
    if "ntasks" in options:
        return int(options["ntasks"])
    if "overcommit" in options and "ntasks-per-node" not in options:
        return nodes
    return nodes * int(options.get("ntasks-per-node", "0"))


def script_variables(options: Mapping[str, str], version: int) -> dict[str, str]:
    """Return the variables by which sbatch tells a script, and `srun` in it, what it has asked for.

    Slurm itself tells the rest.

    Args:
        options: By their long names.
        version: Of slurmrestd's interface, as 38 for v0.0.38.
    """
    found = {
        f"SLURM_{name.upper().replace('-', '_')}": value or "1"
        for name, value in options.items()
        if name in _TOLD and not (version >= _WITH_TASKS and name in _TOLD_OTHERWISE)
    }
    if tasks := task_count(options):
        found |= {"SLURM_NTASKS": str(tasks), "SLURM_NPROCS": str(tasks)}
    if "mem-per-gpu" in options:
        found["SLURM_MEM_PER_GPU"] = str(values.memory_mib(options["mem-per-gpu"]))
    if options.get("hint") == "nomultithread":
        found["SLURM_THREADS_PER_CORE"] = "1"
    if version >= _WITH_TASKS:
        newer = {"SLURM_TRES_PER_TASK": _of_task(options), "SLURM_TRES_BIND": _bound(options)}
        found |= {name: value for name, value in newer.items() if value}
    return found


FIRST_TYPED = 39
"""The version since which numbers are objects and choices lists; older ones say them plainly."""
_WITH_TASKS = 41
"""Since 24.05 what a task needs is one thing, for jobs and for `srun`: processors and devices."""
_TOLD = frozenset(
    {
        "ntasks-per-node", "ntasks-per-core", "ntasks-per-socket", "ntasks-per-gpu", "overcommit",
        "cpus-per-task", "cpus-per-gpu", "gpus", "gpus-per-node", "gpus-per-socket",
        "gpus-per-task", "gpu-bind", "gpu-freq", "distribution", "hint", "mem-bind", "network",
        "open-mode", "threads-per-core",
    }
)  # fmt: skip
_TOLD_OTHERWISE = frozenset({"gpus-per-task", "gpu-bind"})
_OTHERWISE = frozenset({"nodes", "ntasks", "ntasks-per-node", "gres", "gpus-per-node", "export"})
"""Said by ``option_fields`` itself, or by the variables of the job."""


def _of_task(options: Mapping[str, str]) -> str:
    each = [f"cpu={options['cpus-per-task']}"] if "cpus-per-task" in options else []
    for one in filter(None, options.get("gpus-per-task", "").split(",")):
        kind, colon, count = one.rpartition(":")
        each.append(f"gres/gpu{colon}{kind}={count}")
    return ",".join(each)


def _bound(options: Mapping[str, str]) -> str:
    """Return how tasks are bound to devices: to their own, unless it is said."""
    if "gpu-bind" in options:
        return f"gres/gpu:{options['gpu-bind']}"
    each = [one.rpartition(":")[2] for one in options.get("gpus-per-task", "").split(",") if one]
    return f"gres/gpu:per_task:{each[0]}" if each else ""


def _known(version: int) -> Mapping[str, _Take]:
    return _PLAIN if version < FIRST_TYPED else _TYPED


def _devices(options: Mapping[str, str], version: int) -> Said:
    """Return the devices of each node, which two options may name."""
    gres, gpus = options.get("gres", ""), options.get("gpus-per-node", "")
    if version < FIRST_TYPED:
        return {"gres": gres, "gpus_per_node": gpus}
    each = [*filter(None, gres.split(",")), *(f"gpu:{one}" for one in gpus.split(",") if one)]
    return {"tres_per_node": ",".join(f"gres/{one}" for one in each)}


def _text(field: str) -> _Take:
    return lambda value: {field: value}


def _whole(field: str) -> _Take:
    return lambda value: {field: int(value)}


def _number(field: str, read: Callable[[str], int]) -> _Take:
    return lambda value: {field: {"set": True, "infinite": False, "number": read(value)}}


def _gpus(field: str) -> _Take:
    return lambda value: {field: ",".join(f"gres/gpu:{one}" for one in value.split(","))}


def _yes(field: str) -> _Take:
    return lambda _: {field: True}


def _flag(name: str) -> _Take:
    return lambda _: {"flags": [name]}


def _minutes(value: str) -> int:
    limit_s = values.duration_s(value)
    if limit_s is None or math.isinf(limit_s):
        raise ValueError("it is no time")
    return math.ceil(limit_s / 60)


def _nice(value: str) -> Said:
    return {"nice": int(value or "100")}


def _hint(value: str) -> Said:
    threads = {"threads_per_core": 1} if value == "nomultithread" else {}
    return {"cpu_binding_hint": value, **threads}


def _binding(value: str) -> Said:
    names = {"enforce-binding": "ENFORCED", "disable-binding": "DISABLED"}
    if value not in names:
        raise ValueError("it is no such flag")
    return {"flags": [f"GRES_BINDING_{names[value]}"]}


def _oversubscribe(_: str) -> Said:
    return {"shared": ["oversubscribe"]}


def _disk(value: str) -> Said:
    mib = values.memory_mib(value)
    if mib is None:
        raise ValueError("it is no size")
    return {"temporary_disk_per_node": mib}


def _is_yes(value: str) -> bool:
    return value.lower() in ("yes", "y", "1", "true")


def _kill(value: str) -> Said:
    return {"flags": [f"{'' if _is_yes(value) else 'NO_'}KILL_INVALID_DEPENDENCY"]}


def _mail(value: str) -> Said:
    asked: Sequence[str] = value.upper().split(",")
    kinds = [kind for one in asked for kind in _MAIL.get(one, (one,))]
    return {"mail_type": [re.sub(r"^TIME_LIMIT_(\d\d)$", r"TIME=\1%", kind) for kind in kinds]}


_MAIL: dict[str, tuple[str, ...]] = {
    "NONE": (),
    "ALL": ("BEGIN", "END", "FAIL", "REQUEUE", "STAGE_OUT", "INVALID_DEPENDENCY"),
    "TIME_LIMIT": ("TIME=100%",),
    "INVALID_DEPEND": ("INVALID_DEPENDENCY",),
}
_BOTH: dict[str, _Take] = {
    "acctg-freq": _text("account_gather_frequency"),
    "bb": _text("burst_buffer"),
    "cluster-constraint": _text("cluster_constraint"),
    "core-spec": _whole("core_specification"),
    "cpu-freq": _text("cpu_frequency"),
    "distribution": _text("distribution"),
    "hold": _yes("hold"),
    "mail-user": _text("mail_user"),
    "mcs-label": _text("mcs_label"),
    "mincpus": _whole("minimum_cpus_per_node"),
    "nice": _nice,
    "ntasks-per-core": _whole("tasks_per_core"),
    "ntasks-per-socket": _whole("tasks_per_socket"),
    "prefer": _text("prefer"),
    "sockets-per-node": _whole("sockets_per_node"),
    "thread-spec": _whole("thread_specification"),
    "threads-per-core": _whole("threads_per_core"),
    "wckey": _text("wckey"),
}
_PLAIN: dict[str, _Take] = _BOTH | {
    "begin": _text("begin_time"),
    "cores-per-socket": _whole("cores_per_socket"),
    "cpus-per-gpu": _text("cpus_per_gpu"),
    "deadline": _text("deadline"),
    "delay-boot": _whole("delay_boot"),
    "gpu-bind": _text("gpu_binding"),
    "gpu-freq": _text("gpu_frequency"),
    "gpus": _text("gpus"),
    "gpus-per-socket": _text("gpus_per_socket"),
    "gpus-per-task": _text("gpus_per_task"),
    "gres-flags": _text("gres_flags"),
    "hint": _hint,
    "kill-on-invalid-dep": lambda value: {"kill_on_invalid_dependency": _is_yes(value)},
    "mail-type": _text("mail_type"),
    "mem-bind": _text("memory_binding"),
    "oversubscribe": _yes("oversubscribe"),
    "priority": _text("priority"),
    "share": _yes("oversubscribe"),
    "spread-job": _yes("spread_job"),
    "time-min": lambda value: {"time_minimum": _minutes(value)},
    "use-min-nodes": _yes("minimum_nodes"),
    "wait-all-nodes": _whole("wait_all_nodes"),
}
_TYPED: dict[str, _Take] = _BOTH | {
    "contiguous": _yes("contiguous"),
    "cpus-per-gpu": _gpus("cpus_per_tres"),
    "delay-boot": lambda value: {"delay_boot": 60 * int(value)},  # in seconds
    "gpu-bind": lambda value: {"tres_bind": f"gres/gpu:{value}"},
    "gpu-freq": lambda value: {"tres_freq": f"gpu:{value}"},
    "gpus": _gpus("tres_per_job"),
    "gpus-per-socket": _gpus("tres_per_socket"),
    "gpus-per-task": _gpus("tres_per_task"),
    "gres-flags": _binding,
    "hint": lambda value: {"threads_per_core": 1} if value == "nomultithread" else {},
    "kill-on-invalid-dep": _kill,
    "mail-type": _mail,
    "network": _text("network"),
    "overcommit": _yes("overcommit"),
    "oversubscribe": _oversubscribe,
    "priority": _number("priority", int),
    "reboot": _yes("reboot"),
    "share": _oversubscribe,
    "spread-job": _flag("SPREAD_JOB"),
    "time-min": _number("time_minimum", _minutes),
    "tmp": _disk,
    "use-min-nodes": _flag("PREFER_MINIMUM_NODE_COUNT"),
    "wait-all-nodes": lambda value: {"wait_all_nodes": _is_yes(value)},
}
