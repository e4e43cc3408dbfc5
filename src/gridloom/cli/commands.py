"""Names the verbs, loads one, and turns whatever it raises into a sentence and an exit code."""

import sys
from collections.abc import Sequence

import cyclopts

from gridloom import __version__
from gridloom.base.errors import GridloomError, InputError
from gridloom.cli.stdio import discard

_VERBS = {
    "run": "Run a job and follow it to its end.",
    "submit": "Hand in a job and return at once.",
    "ps": "List jobs.",
    "status": "Show one job.",
    "logs": "Show what the ranks of a job print.",
    "why": "Explain why a job waits, or why it ended.",
    "eta": "Forecast when a job starts and ends.",
    "whatif": "Forecast what another policy, queue, size or grid would change for a job.",
    "stop": "Stop a job with its state saved.",
    "resume": "Let a stopped or failed job go on, and follow it.",
    "cancel": "End a job for good.",
    "node": "Take nodes out of work, and back.",
    "grid": "Show the sites and their accelerators.",
    "site": "Look at sites: what they have, and what keeps jobs from running there.",
    "plan": "Find the best ways to train a model on given devices.",
    "simulate": "Run a log of jobs through the scheduler in simulated time.",
    "scenario": "Play stories against the scheduler and check what they expect.",
    "schema": "Print the JSON Schema of a job file or a grid file.",
    "doctor": "Check this machine and the state directory.",
    "control": "Run the control plane itself.",
    "version": "Print the version.",
}

_GROUPS = frozenset({"grid", "node", "plan", "site"})
"""Verbs with verbs of their own."""


def build(verb: str = "") -> cyclopts.App:
    """Return the command line; of ``verb`` with its long help, which needs its module."""
    app = cyclopts.App(
        name="gridloom",
        help="One computer for training large models, woven from many sites.",
        version=__version__,
        help_format="plaintext",
        result_action="return_value",
        default_parameter=cyclopts.Parameter(show_default=False),
        suppress_keyboard_interrupt=False,
        print_error=False,
        exit_on_error=False,
        verbose=False,
    )
    for place, (name, help_) in enumerate(_VERBS.items()):
        target = f"gridloom.cli.{name}:{'app' if name in _GROUPS else name}"
        app.command(target, name=name, help=None if name == verb else help_, sort_key=place)
    app.command(
        "gridloom.cli.completion:install",
        name="--install-completion",
        help="Install completion for your shell.",
    )
    return app


def execute(words: Sequence[str]) -> int:
    """Run one command line and return its exit code: 0 done, 1 the work failed, 2 bad input."""
    known: GridloomError
    try:
        code = build(words[0] if words else "")(list(words)) or 0
        sys.stdout.flush()  # while a broken pipe can still be told from a fault of ours
    except GridloomError as error:
        known = error
    except cyclopts.CycloptsError as error:
        known = _usage(error)
    except BrokenPipeError:  # the reader, as `head`, has seen enough
        discard(sys.stdout)
        return 0
    except (OSError, UnicodeError) as error:
        from gridloom.cli.faults import told

        known = told(error)
    else:
        return int(code)
    _complain(known, as_json="--json" in words)
    return known.exit_code


def _complain(known: GridloomError, *, as_json: bool) -> None:
    """Tell what went wrong where it can be told: one of the two streams may be the very fault."""
    if not (as_json and _tell(known, as_json=True)) and not _tell(known, as_json=False):
        discard(sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:
        discard(sys.stdout)


def _tell(known: GridloomError, *, as_json: bool) -> bool:
    from gridloom.cli.output import complain  # rich costs time that a quick verb does not need

    try:
        complain(known, as_json=as_json)
    except OSError:
        return False
    return True


def _usage(error: cyclopts.CycloptsError) -> InputError:
    verb = "".join(f"{word} " for word in error.command_chain or ())
    if isinstance(error, cyclopts.UnusedCliTokensError):
        said = f"too many arguments: {' '.join(error.unused_tokens or ())}"
    else:
        said, _, _ = " ".join(str(error).split()).partition(" Available commands:")
    return InputError(f"{said.rstrip('.')}; `gridloom {verb}--help` tells more")
