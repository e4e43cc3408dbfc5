"""``gridloom --install-completion``."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

Shell = Literal["bash", "zsh", "fish"]


def install(
    *,
    shell: Annotated[Shell | None, Parameter(help="Else the shell that this runs in.")] = None,
    output: Annotated[
        Path | None, Parameter(help="Where the script goes, and nothing else is changed.")
    ] = None,
) -> int:
    """Install completion for your shell, and load it in the shell's start-up file."""
    from cyclopts.completion import ShellDetectionError

    from gridloom.base.errors import InputError
    from gridloom.cli.commands import build
    from gridloom.cli.output import say

    try:
        path = build().install_completion(shell=shell, output=output, add_to_startup=output is None)
    except ShellDetectionError as error:
        raise InputError("which shell this is cannot be told: add --shell bash") from error
    except OSError as error:
        raise InputError(f"{error.filename or output}: {error.strerror}") from error
    say(f"completion is installed in {path}; a new shell has it")
    return 0
