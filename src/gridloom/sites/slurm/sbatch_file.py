"""A user's own batch script: what its ``#SBATCH`` lines ask for, as a record (pure)."""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from gridloom.base.errors import InputError, Problem
from gridloom.sites.slurm import values
from gridloom.sites.slurm.directives import lines, split
from gridloom.sites.slurm.gres import gres
from gridloom.sites.slurm.hostlist import expand
from gridloom.sites.slurm.options import Found, Setting, Word, read
from gridloom.sites.slurm.submission import Component, Memory, Signal, Submission, Switches


class NotTaken(msgspec.Struct, frozen=True, kw_only=True):
    """An option of a script that gridloom does not act on.

    Attributes:
        option: Its long name, as ``--mail-user``.
        written: As it stands there.
        line: Where, from 1.
        why: Why not.
    """

    option: str
    written: str
    line: int
    why: str


class SbatchFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch script asks for.

    Attributes:
        submission: All that gridloom knows of it.
        tasks: Of each component: how many tasks it wants; ``None`` if it does not say.
        tasks_per_node: Of each component: how many on one node.
        not_taken: The other options, in their order.
        settings: All options of the first component, in their order.
        ignored_lines: ``#SBATCH`` lines behind the first command, which sbatch does not read.
    """

    submission: Submission
    tasks: tuple[int | None, ...] = (None,)
    tasks_per_node: tuple[int | None, ...] = (None,)
    not_taken: tuple[NotTaken, ...] = ()
    settings: tuple[Setting, ...] = ()
    ignored_lines: tuple[int, ...] = ()


def parse(script: str, file: str = "") -> SbatchFile:
    """Return what ``script`` asks for; of an option that stands there twice, the last one counts.

    Args:
        script: All of its text.
        file: What it is called, for the errors.

    Raises:
        InputError: sbatch would refuse it, or a value is none; every line that is wrong is named.
    """
    problems = list(_no_script(script, file))
    groups, ignored = _groups(script, file, problems)
    build = _Build(file=file, problems=problems)
    for number, words in enumerate(groups):
        found = read(words)
        _tell_errors(found, file, problems)
        build.start_component()
        for setting in found.settings:
            build.take(setting, is_first=number == 0)
    if problems:
        raise InputError(sorted(problems, key=lambda problem: problem.line))
    build.not_taken += _other_schedulers(script)
    return build.done(tuple(ignored))


def _other_schedulers(script: str) -> Iterator[NotTaken]:
    """Yield lines that sbatch translates from the languages of PBS and of LSF."""
    for number, line in enumerate(script.split("\n"), start=1):
        if match := re.match(r"#(PBS|BSUB)\s", line):
            why = "gridloom does not read the options of other schedulers"
            yield NotTaken(option=f"#{match[1]}", written=line, line=number, why=why)


def _no_script(script: str, file: str) -> Iterator[Problem]:
    if not script.startswith("#!"):
        yield Problem("this is no script", "the first line says #!/bin/bash", file, 1)
    if "\r\n" in script:
        line = script[: script.index("\r\n")].count("\n") + 1
        yield Problem("sbatch refuses lines that end as in DOS", "dos2unix", file, line)
    if "\0" in script:
        yield Problem("sbatch refuses a script with a NUL in it", "", file)


def _groups(script: str, file: str, problems: list[Problem]) -> tuple[list[list[Word]], list[int]]:
    """Return the words of each component, and the lines that sbatch does not read."""
    groups: list[list[Word]] = [[]]
    ignored = []
    for number, text, is_read in lines(script):
        if not is_read:
            ignored.append(number)
            continue
        try:
            words = split(text)
        except ValueError as error:
            problems.append(Problem(str(error), file=file, line=number))
            continue
        for word in words:
            if word in ("hetjob", "packjob"):
                groups.append([])
            else:
                groups[-1].append(Word(word, number))
    return groups, ignored


def _tell_errors(found: Found, file: str, problems: list[Problem]) -> None:
    for message, word in found.errors:
        problems.append(Problem(message, file=file, line=word.line, field=word.text))


@dataclass
class _Build:
    """Takes options in, one after the other."""

    file: str
    problems: list[Problem]
    job: dict[str, Any] = field(default_factory=dict)
    components: list[dict[str, Any]] = field(default_factory=list)
    settings: list[Setting] = field(default_factory=list)
    tasks: list[dict[str, int]] = field(default_factory=list)
    not_taken: list[NotTaken] = field(default_factory=list)

    def start_component(self) -> None:
        self.components.append({})
        self.tasks.append({})

    def take(self, setting: Setting, *, is_first: bool) -> None:
        self.settings += [setting] if is_first else []
        try:
            self._take(setting, is_first=is_first)
        except ValueError as error:
            message = f"{setting.value!r} is not what it takes: {error}"
            self.problems.append(
                Problem(message, file=self.file, line=setting.line, field=f"--{setting.name}")
            )

    def _take(self, setting: Setting, *, is_first: bool) -> None:
        name, value = setting.name, setting.value
        if name in JOB_OPTIONS:
            told = JOB_OPTIONS[name](value)
            if is_first:
                self.job |= told
            elif any(self.job.get(key) != what for key, what in told.items()):
                self._leave(setting, "components of one job that differ in it")
        elif name in COMPONENT_OPTIONS:
            self.components[-1] |= COMPONENT_OPTIONS[name](value)
            if name == "nodes" and not value.isalnum():
                self._leave(setting, "a number of nodes that is not one number")
        elif name in ("ntasks", "ntasks-per-node"):
            self.tasks[-1][name] = _positive(value)
        elif name == "export":
            self._export(setting)
        else:
            why = (
                "gridloom does not use it"
                if setting.is_known
                else "sbatch alone has no such option"
            )
            self._leave(setting, why)

    def _export(self, setting: Setting) -> None:
        """Take ``ALL``, ``NONE`` or ``NIL``, and variables with their values."""
        words = [word for word in setting.value.split(",") if word]
        modes = [word.upper() for word in words if word.upper() in ("ALL", "NONE", "NIL")]
        pairs = dict(word.split("=", 1) for word in words if "=" in word)
        self.job["export"] = modes[-1] if modes else "NONE"
        self.job["environment"] = pairs
        if len(modes) + len(pairs) < len(words):
            self._leave(setting, "variables of whoever submits it, by name")

    def _leave(self, setting: Setting, why: str) -> None:
        self.not_taken.append(
            NotTaken(
                option=f"--{setting.name}", written=setting.written, line=setting.line, why=why
            )
        )

    def done(self, ignored: tuple[int, ...]) -> SbatchFile:
        components = tuple(Component(**told) for told in self.components)
        # sbatch passes the submitter's variables on unless the script says otherwise
        job = {"export": "ALL"} | self.job
        return SbatchFile(
            submission=Submission(components=components, **job),
            tasks=tuple(told.get("ntasks") for told in self.tasks),
            tasks_per_node=tuple(told.get("ntasks-per-node") for told in self.tasks),
            not_taken=tuple(self.not_taken),
            settings=tuple(self.settings),
            ignored_lines=ignored,
        )


_NODE_UNITS = {"k": 1024, "m": 1024**2}


def _positive(value: str) -> int:
    if not re.fullmatch(r"0*[1-9]\d{0,8}", value.strip()) or not value.isascii():
        raise ValueError("a number of at least 1 is wanted")
    return int(value)


def _nodes(value: str) -> dict[str, Any]:
    """Take ``4``, or the least of ``2-4``; a list of several sizes by its smallest."""
    sizes = []
    for part in value.split(","):
        least = re.split(r"[-:]", part)[0]
        factor = _NODE_UNITS.get(least[-1:].lower(), 1)
        sizes.append(_positive(least if factor == 1 else least[:-1]) * factor)
    return {"nodes": min(sizes)}


def _time(value: str) -> dict[str, Any]:
    limit_s = values.duration_s(value)
    if limit_s is None:
        raise ValueError("a time is wanted, as 30, 1:30:00 or 2-00:00:00")
    # sbatch rounds up to minutes, too; 0 and UNLIMITED are no limit
    return {"time_limit_min": math.ceil(limit_s / 60) if 0 < limit_s < math.inf else None}


def _memory(per: Literal["node", "cpu", "gpu"]) -> Callable[[str], dict[str, Any]]:
    def take(value: str) -> dict[str, Any]:
        mib = (
            values.memory_mib(value) if re.fullmatch(r"\d{1,15}([KMGTkmgt][Bb]?)?", value) else None
        )
        if mib is None:
            raise ValueError("a whole amount of memory is wanted, as 64G")
        return {"memory": Memory(mib=mib, per=per)}

    return take


def _signal(value: str) -> dict[str, Any]:
    match = re.fullmatch(r"(?:([BR]{1,2}):)?(?:SIG)?([A-Za-z]\w*|\d{1,2})(?:@(\d{1,5}))?", value)
    if match is None:
        raise ValueError("a signal is wanted, as B:USR1@120")
    signal = Signal(
        name=match[2].upper(), before_s=int(match[3] or 60), to_batch="B" in (match[1] or "")
    )
    return {"signal": signal}


def _switches(value: str) -> dict[str, Any]:
    count, at, wait = value.partition("@")
    wait_s = values.duration_s(wait) if at else None
    wait_min = None if wait_s is None else math.ceil(wait_s / 60)
    return {"switches": Switches(count=_positive(count), wait_min=wait_min)}


def _gpus_per_node(value: str) -> dict[str, Any]:
    return {"gres": gres(f"gpu:{value}")}


def _exclusive(value: str) -> dict[str, Any]:
    said = value.lower() or "node"
    if said not in ("node", "user", "mcs", "topo"):
        raise ValueError("it is one of user, mcs, topo, or nothing")
    return {"exclusive": said}


def _open_mode(value: str) -> dict[str, Any]:
    mode = {"a": "append", "t": "truncate"}.get(value[:1].lower())
    if mode is None:
        raise ValueError("it is append or truncate")
    return {"open_mode": mode}


def _text(key: str) -> Callable[[str], dict[str, Any]]:
    return lambda value: {key: value}


JOB_OPTIONS: dict[str, Callable[[str], dict[str, Any]]] = {
    "job-name": _text("name"),
    "comment": _text("comment"),
    "account": _text("account"),
    "qos": _text("qos"),
    "reservation": _text("reservation"),
    "exclude": lambda value: {"exclude": expand(value)},
    "time": _time,
    "dependency": _text("dependency"),
    "array": _text("array"),
    "signal": _signal,
    "requeue": lambda _: {"requeue": True},
    "no-requeue": lambda _: {"requeue": False},
    "no-kill": lambda value: {"no_kill": value.lower() not in ("off", "no")},
    "chdir": _text("directory"),
    "output": _text("stdout"),
    "error": _text("stderr"),
    "open-mode": _open_mode,
}
"""How options of a whole job are read into fields of a ``Submission``, by their long names."""
COMPONENT_OPTIONS: dict[str, Callable[[str], dict[str, Any]]] = {
    "nodes": _nodes,
    "partition": _text("partition"),
    "constraint": _text("constraint"),
    "nodelist": lambda value: {"nodelist": expand(value)},
    "gres": lambda value: {"gres": gres(value)},
    "gpus-per-node": _gpus_per_node,
    "cpus-per-task": lambda value: {"cpus_per_task": _positive(value)},
    "mem": _memory("node"),
    "mem-per-cpu": _memory("cpu"),
    "mem-per-gpu": _memory("gpu"),
    "switches": _switches,
    "segment": lambda value: {"segment": _positive(value)},
    "licenses": lambda value: {"licences": tuple(filter(None, value.split(",")))},
    "exclusive": _exclusive,
}
"""The same of a ``Component``."""
