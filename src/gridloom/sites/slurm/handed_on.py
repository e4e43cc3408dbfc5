"""What becomes of each option of a user's batch script: ours, Slurm's, or refused (pure)."""

import re
import signal
from collections.abc import Iterator, Sequence

import msgspec

from gridloom.base.errors import InputError, Problem
from gridloom.sites.slurm.options import Setting
from gridloom.sites.slurm.sbatch_file import SbatchFile

After = tuple[str, str]
"""The id of another job of gridloom, and when it must have what: ``afterok`` and so on."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one option.

    Attributes:
        written: As it stands there, as ``-N 4``.
        line: Where, from 1.
        sentence: What becomes of it.
        is_lost: Nobody acts on it.
    """

    written: str
    line: int
    sentence: str
    is_lost: bool = False


class HandedOn(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of the options of a script.

    Attributes:
        options: What Slurm is handed, by long names.
        told: A sentence on each option, in their order.
        after: Jobs of gridloom that it waits for.
        sites: Those that it may use, where it names clusters; empty for any.
        warning: Signal that the script itself catches; empty for none.
        needs_one_site: Why it can only run at the one site that it means; empty if it can at any.
    """

    options: tuple[tuple[str, str], ...] = ()
    told: tuple[Told, ...] = ()
    after: tuple[After, ...] = ()
    sites: tuple[str, ...] = ()
    warning: str = ""
    needs_one_site: str = ""


def handed_on(script: SbatchFile, file: str) -> HandedOn:
    """Return what becomes of each option of ``script``.

    Args:
        script: As it was read.
        file: What it is called: its name is that of a job that has none.

    Raises:
        InputError: gridloom cannot do what an option asks for, nor let Slurm do it.
    """
    problems = list(_refusals(script, file))
    kept: dict[str, str] = {}
    told = []
    after: list[After] = []
    for setting in script.settings:
        name, value = setting.name, setting.value
        sentence, is_passed = _OURS.get(name, ("Slurm gets it as it is", True))
        if name == "nodes" and not value.isdecimal():
            value = str(script.submission.components[0].nodes)
            sentence = f"gridloom and Slurm take {value}, the least of it"
        if name == "dependency":
            try:
                others, value = _dependency(value)
            except ValueError as error:
                problems.append(_problem(setting, file, str(error)))
                continue
            after += others
            is_passed = bool(value)
            sentence = "Slurm gets it as it is" if not others else sentence
        if is_passed:
            kept.pop(name, None)  # the last one counts, and Slurm's errors name it where it stood
            kept[name] = value
        told.append(_told(setting, sentence, is_lost=name in _LOST))
    if problems:
        raise InputError(sorted(problems, key=lambda problem: problem.line))
    kept.setdefault("job-name", file.rpartition("/")[2])
    said = {setting.name: setting.value for setting in script.settings}
    by_id = "dependency" in kept and re.search(r"\d", kept["dependency"])
    return HandedOn(
        options=tuple(kept.items()),
        told=(*told, *_unread(script)),
        after=tuple(after),
        sites=tuple(filter(None, said.get("clusters", said.get("cluster", "")).split(","))),
        warning=_warning(script),
        needs_one_site="it waits for a job of one Slurm" if by_id else "",
    )


_WORDS_OF_COMMAND = "it is about the command sbatch"
_SIZE = "gridloom places it by this, and Slurm gets it as it is"
_OURS: dict[str, tuple[str, bool]] = {
    **dict.fromkeys(
        (
            "nodes", "ntasks", "ntasks-per-node", "gres", "gpus", "gpus-per-node", "gpus-per-task",
            "cpus-per-task",
        ),
        (_SIZE, True),
    ),
    "job-name": ("it names the job here, too", True),
    "time": ("it is the forecast of the job, too", True),
    "account": ("Slurm gets it as it is; a queue of the grid may be called so, too", True),
    "signal": ("the script is sent it when it is stopped, too", True),
    "chdir": ("the script starts there", False),
    "array": ("each index is a job of gridloom", False),
    "dependency": ("gridloom waits for its own jobs", True),
    "requeue": ("gridloom starts it again, after a lost node and a time limit, too", True),
    "no-requeue": ("gridloom never starts it again, nor evicts it", True),
    "clusters": ("they are the sites that it may use", False),
    "cluster": ("it is the site that it may use", False),
    "comment": ("gridloom knows its jobs again by a comment of its own", False),
    **dict.fromkeys(("wait", "quiet", "verbose", "parsable"), (_WORDS_OF_COMMAND, False)),
}  # fmt: skip
_LOST = frozenset({"comment", "wait", "quiet", "verbose", "parsable"})
_REFUSED = {
    "container": "the supervisor would run in the container, too: start it by srun --container",
    "input": "a script that gridloom runs reads nothing: write `< file` in it",
    "uid": "gridloom hands in what is yours",
    "gid": "gridloom hands in what is yours",
    "wrap": "a script has commands of its own",
    **dict.fromkeys(("test-only", "help", "usage", "version"), "remove it: nothing would be run"),
}


def _refusals(script: SbatchFile, file: str) -> Iterator[Problem]:
    for setting in script.settings:
        if remedy := _REFUSED.get(setting.name):
            yield _problem(setting, file, "gridloom cannot do this", remedy)
    if len(script.submission.components) > 1:
        message = "gridloom does not run heterogeneous jobs from scripts"
        yield Problem(message, "describe the job in a job file", file)


def _problem(setting: Setting, file: str, message: str, remedy: str = "") -> Problem:
    return Problem(message, remedy, file, setting.line, f"--{setting.name}")


def _told(setting: Setting, sentence: str, *, is_lost: bool) -> Told:
    return Told(written=setting.written, line=setting.line, sentence=sentence, is_lost=is_lost)


def _unread(script: SbatchFile) -> Iterator[Told]:
    """Yield the lines that look like options and are none."""
    for line in script.ignored_lines:
        sentence = "it stands behind the first command, where sbatch reads no options"
        yield Told(written="#SBATCH", line=line, sentence=sentence, is_lost=True)
    for one in script.not_taken:
        if one.option.startswith("#"):
            yield Told(written=one.option, line=one.line, sentence=one.why, is_lost=True)


def _dependency(value: str) -> tuple[Sequence[After], str]:
    """Return the jobs of gridloom that ``value`` names, and what of it is Slurm's to see to.

    Raises:
        ValueError: It cannot be taken apart so.
    """
    ours: list[After] = []
    theirs = []
    for item in re.split(r"[,?]", value):
        kind, *ids = item.split(":")
        if all(re.fullmatch(r"\d+(_(\d+|\*))?(\+\d+)?", one) for one in ids):
            theirs.append(item)
        elif kind in ("after", "afterok", "afterany", "afternotok"):
            ours += [(one, kind) for one in ids]
        else:
            raise ValueError(f"gridloom knows no `{kind}` of a job of its own: write afterok:ID")
    if ours and "?" in value:
        raise ValueError("gridloom waits for all of its jobs: put a comma in place of each `?`")
    return ours, value if not ours else ",".join(theirs)


def _warning(script: SbatchFile) -> str:
    """Return the signal that is for the batch script itself and that it can catch."""
    asked = script.submission.signal
    if asked is None or not asked.to_batch:
        return ""
    known = {
        name.removeprefix("SIG"): int(number) for name, number in signal.Signals.__members__.items()
    }
    number = int(asked.name) if asked.name.isdigit() else known.get(asked.name, 0)
    can_be_caught = number in signal.valid_signals() - {
        signal.SIGKILL,
        signal.SIGSTOP,
        signal.SIGCHLD,
    }
    return asked.name if can_be_caught else ""
