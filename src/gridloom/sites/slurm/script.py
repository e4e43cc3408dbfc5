"""From what a job asks for to the batch script that asks for it and starts one command (pure).

The script starts one ``srun``, which runs the command once on each node, waits for it and ends as
it does. Slurm gives the warning of ``--signal=B:...`` to the batch shell alone: the shell hands it
on, through srun, to the tasks, which must catch it. At a preemption, a cancellation or the time
limit the tasks get TERM from Slurm; the shell, which gets it later or never, hands it on as USR1,
because an srun that gets TERM kills its tasks at once.
"""

import re
import shlex
from collections.abc import Iterator, Sequence

from gridloom.base.errors import InputError, Problem
from gridloom.sites.slurm.directives import MAGIC, directive
from gridloom.sites.slurm.gres import gres_text
from gridloom.sites.slurm.hostlist import compress
from gridloom.sites.slurm.submission import Component, Container, Mount, Signal, Submission

_HET = f"{MAGIC} hetjob"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIGNAL = re.compile(r"[A-Z][A-Z0-9]*|\d{1,2}")
_UNCATCHABLE = frozenset({"KILL", "STOP", "9", "19"})
_PATH = re.compile(r"[^,:\s]+")
_TO_TASKS = {"USR1": "USR1", "USR2": "USR2", "10": "USR1", "12": "USR2"}
"""Signals that srun hands on; of others it makes something of its own, mostly an end."""

# A trap ends `wait` before the step has ended: only a wait that none interrupted tells how it did.
# A warning before srun has its step is lost: there is nothing to save yet.
_WAIT = """\
step=
forward() {
    again=1
    [ -z "$step" ] || kill -s "$1" "$step" 2>/dev/null
}
%(traps)s

%(srun)s &
step=$!
again=1
while [ -n "$again" ]; do
    again=
    wait "$step"
    status=$?
done
exit "$status"
"""


def render(submission: Submission, command: Sequence[str]) -> str:
    """Return the batch script that asks for ``submission`` and runs ``command`` once a node.

    It ends as ``srun`` does: with the largest exit status of the tasks.

    Raises:
        InputError: It cannot be written; every reason is told.
    """
    problems = list(_problems(submission, command))
    if problems:
        raise InputError(problems)
    parts = ["#!/bin/bash", *_directives(submission), ""]
    exports = [
        f"export {name}={shlex.quote(value)}"
        for name, value in sorted(submission.environment.items())
    ]
    parts += [*exports, ""] if exports else []
    parts += [f"command=({shlex.join(_contained(submission.container, command))})", ""]
    return (
        "\n".join(parts)
        + "\n"
        + _WAIT
        % {
            "traps": _traps(submission.signal),
            "srun": _srun(submission),
        }
    )


def signal_text(signal: Signal) -> str:
    """Return a signal as it is asked for, as ``B:USR1@60``."""
    return f"{'B:' if signal.to_batch else ''}{signal.name}@{signal.before_s}"


def _directives(submission: Submission) -> list[str]:
    found = []
    problems = []
    for number, component in enumerate(submission.components):
        if number:
            found += ["", _HET]
        asked = [*_of_job(submission)] if number == 0 else []
        for option, value in (*asked, *_of_every(submission), *_of_component(component)):
            try:
                found.append(directive(option, value))
            except ValueError as error:
                problems.append(
                    Problem(f"{value[:60]!r} cannot be asked for: {error}", field=option)
                )
    if problems:
        raise InputError(problems)
    return found


def _of_job(submission: Submission) -> Iterator[tuple[str, str]]:
    """Yield what is asked for once: sbatch takes it over to all components."""
    signal = submission.signal
    told = {
        "job-name": submission.name,
        "dependency": submission.dependency,
        "array": submission.array,
        "signal": signal_text(signal) if signal else "",
        "chdir": submission.directory,
        "output": submission.stdout,
        "error": submission.stderr,
        "open-mode": submission.open_mode,
        "export": submission.export,
        "mail-type": "NONE",
    }
    yield from ((option, value) for option, value in told.items() if value)
    if submission.requeue is not None:
        yield ("requeue" if submission.requeue else "no-requeue"), ""
    if submission.no_kill:
        yield "no-kill", ""


def _of_every(submission: Submission) -> Iterator[tuple[str, str]]:
    """Yield what is asked for again in every component: not every release takes it over."""
    limit = submission.time_limit_min
    told = {
        "comment": submission.comment,
        "account": submission.account,
        "qos": submission.qos,
        "reservation": submission.reservation,
        "exclude": compress(submission.exclude),
        "time": "" if limit is None else str(limit),
    }
    yield from ((option, value) for option, value in told.items() if value)


def _of_component(component: Component) -> Iterator[tuple[str, str]]:
    memory, switches = component.memory, component.switches
    per = "" if memory is None or memory.per == "node" else f"-per-{memory.per}"
    wait = "" if switches is None or switches.wait_min is None else f"@{switches.wait_min}"
    told = {
        "partition": component.partition,
        "constraint": component.constraint,
        "nodes": str(component.nodes),
        "ntasks": str(component.nodes),
        "ntasks-per-node": "1",
        "nodelist": compress(component.nodelist),
        "gres": ",".join(map(gres_text, component.gres)),
        "cpus-per-task": str(component.cpus_per_task or ""),
        f"mem{per}": "" if memory is None else f"{memory.mib}M" if memory.mib else "0",
        "switches": "" if switches is None else f"{switches.count}{wait}",
        "segment": str(component.segment or ""),
        "licenses": ",".join(component.licences),
    }
    yield from ((option, value) for option, value in told.items() if value)
    if component.exclusive:
        yield "exclusive", "" if component.exclusive == "node" else component.exclusive


def _traps(signal: Signal | None) -> str:
    """Return the lines that hand signals on; TERM becomes the warning that the tasks expect."""
    name = signal.name if signal else "USR1"
    warning = _TO_TASKS.get(name, "USR1")
    handed_on = {"USR1": "USR1", "TERM": warning, name: warning}
    return "\n".join(f"trap 'forward {to}' {caught}" for caught, to in handed_on.items())


def _srun(submission: Submission) -> str:
    """Return the command line of the one step; a component of a heterogeneous job is one part."""
    container = submission.container
    pyxis = _pyxis(container) if container and container.engine == "pyxis" else []
    common = [
        "--kill-on-bad-exit=0",  # the others save what they have before they end
        "--wait=0",
        "--mpi=none",
        "--cpu-bind=none",
        "--export=ALL",
        *(["--no-kill"] if submission.no_kill else []),
        *pyxis,
    ]
    parts = []
    for number, component in enumerate(submission.components):
        size = [f"--nodes={component.nodes}", f"--ntasks={component.nodes}", "--ntasks-per-node=1"]
        # srun does not take this over from the job, since 22.05
        size += [f"--cpus-per-task={component.cpus_per_task}"] if component.cpus_per_task else []
        het = [f"--het-group={number}"] if len(submission.components) > 1 else []
        options = shlex.join([*common, *het, *size])
        parts.append(f'{options} "${{command[@]}}"')
    return "srun " + " : \\\n    ".join(parts)


def _contained(container: Container | None, command: Sequence[str]) -> list[str]:
    """Return the command as each task executes it."""
    argv = list(command)
    if container and container.engine == "apptainer":
        binds = [f"--bind={_mount(mount)}" for mount in container.mounts]
        gpus = {"": [], "nvidia": ["--nv"], "amd": ["--rocm"]}[container.gpus]
        start = [f"--pwd={container.directory}"] if container.directory else []
        argv = ["apptainer", "exec", *gpus, *binds, *start, container.image, *argv]
    if ":" in argv:  # srun would take it for the beginning of another component
        argv = ["/bin/bash", "-c", f"exec {shlex.join(argv)}"]
    return argv


def _pyxis(container: Container) -> list[str]:
    mounts = [_mount(mount) for mount in container.mounts]
    return [
        f"--container-image={container.image}",
        *([f"--container-mounts={','.join(mounts)}"] if mounts else []),
        *([f"--container-workdir={container.directory}"] if container.directory else []),
    ]


def _mount(mount: Mount) -> str:
    return f"{mount.source}:{mount.target}{':ro' if mount.is_read_only else ''}"


def _problems(submission: Submission, command: Sequence[str]) -> Iterator[Problem]:
    """Yield what no script could say, or would say wrongly."""
    yield from _command_problems(submission, command)
    signal, limit = submission.signal, submission.time_limit_min
    if signal and (not _SIGNAL.fullmatch(signal.name) or signal.name in _UNCATCHABLE):
        message = f"{signal.name!r} is no signal that a program can act on"
        yield Problem(message, "as USR1", field="signal")
    if not submission.components:
        yield Problem("a job has at least one component", field="components")
    if submission.array and len(submission.components) > 1:
        yield Problem("Slurm has no arrays of heterogeneous jobs", field="array")
    if limit is not None and limit < 1:
        yield Problem("the shortest time limit is one minute", field="time_limit_min")
    for component in submission.components:
        yield from _component_problems(component)


def _command_problems(submission: Submission, command: Sequence[str]) -> Iterator[Problem]:
    if not command:
        yield Problem("the command is empty", field="command")
    if any("\0" in word for word in command):
        yield Problem("a NUL cannot be passed to a program", field="command")
    for name, value in submission.environment.items():
        if "\0" in value:
            yield Problem(f"a NUL cannot be passed to a program, as in {name}", field="environment")
        if not _NAME.fullmatch(name):
            yield Problem(f"{name!r} is not a name of a variable", field="environment")
    for mount in submission.container.mounts if submission.container else ():
        if not (_PATH.fullmatch(mount.source) and _PATH.fullmatch(mount.target)):
            message = f"{mount.source!r} cannot be mounted on {mount.target!r}"
            yield Problem(message, "paths without spaces, commas and colons", field="mounts")


def _component_problems(component: Component) -> Iterator[Problem]:
    least = {
        "nodes": component.nodes,
        "cpus_per_task": component.cpus_per_task,
        "segment": component.segment,
        "switches": component.switches.count if component.switches else None,
    }
    for field, value in least.items():
        if value is not None and value < 1:
            yield Problem(f"{value} is less than one", field=field)
    if component.memory and component.memory.mib < 0:
        yield Problem("memory cannot be negative", field="memory")
    for gres in component.gres:
        if not re.fullmatch(r"[^\s,:()]+", gres.name) or not re.fullmatch(r"[^\s,()]*", gres.type):
            yield Problem(f"{gres_text(gres)!r} is no device", "as gpu:h100:8", field="gres")
