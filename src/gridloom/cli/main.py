"""Entry point of the command line: names the verbs, loads one, turns errors into exit codes."""

import os
import sys
from collections.abc import Sequence

import cyclopts

from gridloom import __version__
from gridloom.base.errors import GridloomError, InputError

_VERBS = {
    "run": "Run a job and follow it to its end.",
    "submit": "Hand in a job and return at once.",
    "ps": "List jobs.",
    "status": "Show one job.",
    "logs": "Show what the ranks of a job print.",
    "why": "Explain why a job waits, or why it ended.",
    "stop": "Stop a job with its state saved.",
    "resume": "Let a stopped or failed job go on, and follow it.",
    "cancel": "End a job for good.",
    "grid": "Show the sites and their accelerators.",
    "schema": "Print the JSON Schema of a job file or a grid file.",
    "doctor": "Check this machine and the state directory.",
    "control": "Run the control plane itself.",
    "version": "Print the version.",
}


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
        target = f"gridloom.cli.{name}:{'app' if name == 'grid' else name}"
        app.command(target, name=name, help=None if name == verb else help_, sort_key=place)
    app.command(
        "gridloom.cli.completion:install",
        name="--install-completion",
        help="Install completion for your shell.",
    )
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code: 0 done, 1 the work failed, 2 bad input."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = build(words[0] if words else "")(words) or 0
        sys.stdout.flush()  # while a broken pipe can still be told from a fault of ours
    except (GridloomError, cyclopts.CycloptsError) as error:
        from gridloom.cli.output import complain  # rich costs time that a quick verb does not need

        known = error if isinstance(error, GridloomError) else _usage(error)
        complain(known, as_json="--json" in words)
        return known.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader, as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return int(code)


def _usage(error: cyclopts.CycloptsError) -> InputError:
    verb = "".join(f"{word} " for word in error.command_chain or ())
    if isinstance(error, cyclopts.UnusedCliTokensError):
        said = f"too many arguments: {' '.join(error.unused_tokens or ())}"
    else:
        said, _, _ = " ".join(str(error).split()).partition(" Available commands:")
    return InputError(f"{said.rstrip('.')}; `gridloom {verb}--help` tells more")


if __name__ == "__main__":
    raise SystemExit(main())
