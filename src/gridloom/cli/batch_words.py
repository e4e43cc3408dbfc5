"""What a user is told of a batch script that is handed in."""

from typing import Any

from gridloom.cli.batch import Script

_PLAIN = (
    "no site here has Slurm: the script runs as any other, without SLURM_* variables, srun, a time"
    " limit or files of its own for its output"
)


def options_json(script: Script) -> list[dict[str, Any]]:
    """Return what becomes of each option, for machines."""
    return [
        {"line": one.line, "option": one.written, "becomes": one.sentence, "lost": one.is_lost}
        for one in script.told
    ]


def option_lines(script: Script) -> list[str]:
    """Return what becomes of each option, a line each."""
    file = script.file.reading.source.file
    return [f"{file}:{one.line}: {one.written}: {one.sentence}" for one in script.told]


def notes(script: Script) -> list[str]:
    """Return what a user must know without asking: what of the script nobody acts on."""
    file = script.file.reading.source.file
    lost = [
        f"{file}:{one.line}: {one.written}: {one.sentence}" for one in script.told if one.is_lost
    ]
    return [
        *lost,
        *([script.counts_as] if script.counts_as else []),
        *([_PLAIN] if script.is_plain else []),
    ]
