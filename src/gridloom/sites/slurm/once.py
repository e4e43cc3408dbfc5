"""A command that is asked for again and again, and runs once (pure)."""

from collections.abc import Sequence

# Whoever asks again while the first is at work waits for it; where locks are not shared, nobody can
_ONCE = """\
cd "$1" && shift || exit
exec 9>>sbatch.lock
flock -w 50 -E 75 9 2>/dev/null
if [ $? -eq 75 ]; then
    echo "Socket timed out: the same job is still being handed in" >&2
    exit 75
fi
if [ ! -s sbatch.id ]; then
    "$@" >sbatch.new || exit
    mv sbatch.new sbatch.id
fi
cat sbatch.id
"""
_BEFORE_TOOL = ("sh", "-c", _ONCE, "sh")


def once(argv: Sequence[str], directory: str) -> tuple[str, ...]:
    """Return the command that runs ``argv`` once, and prints what it printed whenever it is asked.

    An answer that was lost on its way is had again, and the same job is not handed in twice, not
    even while the first command still waits for Slurm.

    Args:
        argv: What prints an id.
        directory: Of the job alone; the id is kept there.
    """
    return (*_BEFORE_TOOL, directory, *argv)


def tool(argv: Sequence[str]) -> str:
    """Return what a command is called, whatever it is wrapped in."""
    wrapped = len(_BEFORE_TOOL)
    return argv[wrapped + 1] if tuple(argv[:wrapped]) == _BEFORE_TOOL else argv[0]
