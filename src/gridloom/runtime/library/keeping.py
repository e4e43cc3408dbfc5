"""Checkpoints of a user's training."""

from pathlib import Path

from gridloom.runtime.keeper import Keeper, KeepPolicy
from gridloom.runtime.library.start import current


def checkpoint(
    directory: str | Path,
    *,
    every: int = 0,
    keep: int = 2,
    asynchronous: bool = False,
    **parts: object,
) -> Keeper:
    """Return what saves and loads the parts of a training; all ranks of a site must call it.

    Args:
        directory: Where; each site has a directory with its name in it. Under gridloom a relative
            one is in the job's run directory.
        every: Training steps from one checkpoint to the next; 0 if ``due`` is not asked.
        keep: How many of the newest stay.
        asynchronous: Training goes on while they are written.
        **parts: What is kept, each under its name: whatever has ``state_dict`` and
            ``load_state_dict``, as models, optimizers, schedulers, and what ``gl.parallelize``,
            ``gl.sync`` and ``gl.data`` return.

    Raises:
        InputError: A part has no state, or another training uses the directory.
        StorageError: The directory cannot be used.
    """
    run = current()
    policy = KeepPolicy(every, keep, asynchronous)
    return Keeper(run, Path(run.place.run_dir) / directory, policy, parts)
