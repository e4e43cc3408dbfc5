"""How the text of ``run`` becomes the command line of one rank.

gridloom starts every rank itself and tells it who it is, which is torchrun's work; a ``run`` that
begins with torchrun therefore loses torchrun and keeps the script with its arguments.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from gridloom.base.errors import Problem
from gridloom.wire.documents_values import did_you_mean

_LAUNCH_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_LEGACY = "torch.distributed.launch"
_PYTHON = re.compile(r"(?:.*/)?(?:python|pypy)(?:\d+(?:\.\d+)*)?")
_PYTHON_OPTIONS_WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")
_SHELLS = ("bash", "sh", "dash", "zsh")
_TORCHRUN = re.compile(r"(?:.*/)?torchrun")
_TORCHRUN_IN_TEXT = re.compile(
    r"(?:^|[\s;&|(/])torchrun(?=\s|$)|-m\s+torch\.distributed\.(?:run|launch)\b"
)
_ASSIGNMENT = re.compile(r"\s*[A-Za-z_][A-Za-z0-9_]*=")
_BUILTINS = frozenset(
    ("exit", "cd", "export", "source", "set", "ulimit", ".", "eval", "exec", "trap", "umask",
     "unset", "wait", "shopt", "alias", "declare", "local", "readonly", "shift", "return", ":")
)  # fmt: skip
"""Words that only a shell knows: no program has these names, or it could do nothing."""
_SHELL_CHARACTERS = frozenset("|&;<>()$`*?[]{}~#\n")
_IN_DOUBLE_QUOTES = frozenset("$`")

_WITH_VALUE = (
    "nnodes", "nproc-per-node", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf",
    "max-restarts", "monitor-interval", "start-method", "event-log-handler", "role", "log-dir",
    "redirects", "tee", "local-ranks-filter", "node-rank", "master-addr", "master-port",
    "local-addr", "logs-specs", "numa-binding", "signals-to-handle", "duplicate-stdout-filters",
    "duplicate-stderr-filters", "shutdown-timeout",
)  # fmt: skip
_FLAGS = ("standalone", "module", "no-python", "run-path", "use-env", "virtual-local-rank")
_SHORT = {"-m": "module", "-r": "redirects", "-t": "tee"}


@dataclass(frozen=True)
class Command:
    """What one rank executes, as far as the text of ``run`` says.

    Attributes:
        argv: The command line; empty when there are problems.
        max_restarts: What torchrun was told; None when it was told nothing.
        problems: What is wrong with the text, without file and line.
    """

    argv: tuple[str, ...] = ()
    max_restarts: int | None = None
    problems: tuple[Problem, ...] = ()


class _Refused(Exception):  # noqa: N818 - never leaves this module
    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.problem = Problem(message, remedy)


def parse_command(text: str) -> Command:
    """Return what one rank executes for ``text``.

    Text that needs a shell (pipes, variables, globs, several lines) is given to ``bash -c``, which
    replaces itself by a last simple command, so that signals reach the program.
    """
    if not text.strip():
        return Command(problems=(Problem("the command is empty", "write a command line"),))
    joined = re.sub(r"\\\n[ \t]*", " ", text).strip()
    try:
        if _needs_shell(joined):
            return _shell(joined)
        words = tuple(shlex.split(joined))
        if words[0] in _BUILTINS:
            return _shell(joined)
        options = _launcher_arguments(words)
        if options is not None:
            return _without_torchrun(options, legacy=_LEGACY in words)
        return Command(("python", *words) if words[0].endswith(".py") else words)
    except _Refused as refused:
        return Command(problems=(refused.problem,))
    except ValueError:  # from shlex
        problem = Problem("a quote in the command is not closed", "close it")
        return Command(problems=(problem,))


def script_path(argv: Sequence[str]) -> str | None:
    """Return the script that ``argv`` runs, relative to the work directory, if it runs one.

    Modules (``-m``), code (``-c``) and programs found on ``PATH`` are not scripts.
    """
    if not argv:
        return None
    if _PYTHON.fullmatch(argv[0]):
        return _first_argument(argv[1:], _PYTHON_OPTIONS_WITH_VALUE)
    if argv[0].rpartition("/")[2] in _SHELLS:
        if tuple(argv[1:2]) == ("-c",):
            return _script_of_exec(argv[2:])
        return _first_argument(argv[1:], ("-o", "-O"))
    return argv[0] if "/" in argv[0] and not argv[0].startswith("/") else None


def _first_argument(arguments: Sequence[str], with_value: tuple[str, ...]) -> str | None:
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument.startswith(("-m", "-c")) or argument == "-":
            return None
        elif argument.startswith("-"):
            skip = argument in with_value
        else:
            return argument
    return None


def _script_of_exec(texts: Sequence[str]) -> str | None:
    # Only the text that `_without_torchrun` writes is understood; a user's shell text is not.
    if not texts or not texts[0].startswith("exec "):
        return None
    return script_path(shlex.split(texts[0])[1:])


def _needs_shell(text: str) -> bool:
    """Whether an unquoted character of ``text`` means something to a shell only."""
    if _ASSIGNMENT.match(text):
        return True
    quote = ""
    characters = iter(text)
    for character in characters:
        if character == "\\" and quote != "'":
            next(characters, "")
        elif quote:
            if character == quote:
                quote = ""
            elif quote == '"' and character in _IN_DOUBLE_QUOTES:
                return True
        elif character in "'\"":
            quote = character
        elif character in _SHELL_CHARACTERS:
            return True
    return False


def _shell(text: str) -> Command:
    if _TORCHRUN_IN_TEXT.search(text):
        raise _Refused(
            "torchrun stands inside shell text, so that every rank would start ranks of its own",
            "write `python` in place of torchrun and its options: gridloom starts the ranks",
        )
    return Command(("bash", "-c", text))


def _launcher_arguments(words: tuple[str, ...]) -> list[str] | None:
    """Return the arguments of torchrun, or None when ``words`` do not run it."""
    if _TORCHRUN.fullmatch(words[0]):
        return [*words[1:]]
    if _PYTHON.fullmatch(words[0]) and "-m" in words:
        index = words.index("-m")
        before = _first_argument(words[1:index], _PYTHON_OPTIONS_WITH_VALUE)
        if before is None and words[index + 1 : index + 2] in [(m,) for m in _LAUNCH_MODULES]:
            return [*words[index + 2 :]]
    return None


def _without_torchrun(arguments: list[str], *, legacy: bool) -> Command:
    flags: set[str] = set()
    max_restarts: int | None = None
    while arguments and arguments[0].startswith("-"):
        word = arguments.pop(0)
        if word == "--":
            break
        name, value = _option(word)
        if name in _FLAGS:
            flags.add(name)
            continue
        if value is None:
            if not arguments:
                raise _Refused(f"torchrun's `{word}` lacks its value", f"write `{word} VALUE`")
            value = arguments.pop(0)
        if name == "max-restarts":
            max_restarts = _restarts(value)
    if not arguments:
        raise _Refused("torchrun is given no script", "write `torchrun train.py`")
    return Command(_rank_argv(arguments, flags, legacy=legacy), max_restarts)


def _rank_argv(arguments: list[str], flags: set[str], *, legacy: bool) -> tuple[str, ...]:
    if "no-python" in flags:
        return tuple(arguments)
    module = ("-m",) if "module" in flags else ()
    argv = ("python", *module, *arguments)
    if legacy and "use-env" not in flags:
        # torch.distributed.launch hands the script its local rank, which differs by rank.
        front = shlex.join(argv[: len(module) + 2])
        rest = "".join(f" {shlex.quote(argument)}" for argument in arguments[1:])
        return ("bash", "-c", f'exec {front} --local-rank="$LOCAL_RANK"{rest}')
    return argv


def _option(word: str) -> tuple[str, str | None]:
    """Return torchrun's name of the option ``word`` and the value in it, if any."""
    if not word.startswith("--"):
        for short, name in _SHORT.items():
            if word == short:
                return name, None
            if word.startswith(short) and name not in _FLAGS:
                return name, word[len(short) :].removeprefix("=")
    spelled, equals, value = word.partition("=")
    wanted = spelled.removeprefix("--").replace("_", "-")
    known = (*_WITH_VALUE, *_FLAGS)
    # argparse, and so torchrun, accepts a beginning that fits one option only.
    names = [wanted] if wanted in known else [name for name in known if name.startswith(wanted)]
    if not word.startswith("--") or len(names) != 1:
        remedy = did_you_mean(wanted, [*known]).replace("`", "`--", 1)
        raise _Refused(f"torchrun has no option `{spelled}`", remedy or "remove it")
    return names[0], value if equals else None


def _restarts(value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", value):
        raise _Refused(f"`--max-restarts` is `{value}`", "write a whole number of at least 0")
    return int(value)
