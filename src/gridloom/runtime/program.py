"""What one rank of gridloom's own program does; ``gridloom.runtime.entry`` starts it."""

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import torch

from gridloom.base.codec import decode
from gridloom.base.errors import InputError
from gridloom.base.system import SystemClock
from gridloom.model.recipe import GptRecipe
from gridloom.runtime.failure import (
    PeerLostError,
    PoisonedError,
    RuntimeFailureError,
    StorageError,
)
from gridloom.runtime.place import Place, interface_of, place_in
from gridloom.runtime.records import RECIPE_FILE, append_line
from gridloom.runtime.run import Run, StopWish
from gridloom.runtime.train import Trainer
from gridloom.wire.launch import (
    EXIT_CONFIG,
    EXIT_IO,
    EXIT_PEER_LOST,
    EXIT_POISONED,
    Failure,
    Rank,
)

EXIT_FAILED = 1
_CODES = {StorageError: EXIT_IO, PoisonedError: EXIT_POISONED}


def main(environment: Mapping[str, str] = os.environ) -> int:
    """Run one rank; return its exit code.

    Args:
        environment: Has the variables of the launch contract.
    """
    stop = StopWish()
    stop.listen()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the agent
    try:
        rank = Rank.from_environment(environment)
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_CONFIG
    try:
        return _run(rank, place_in(environment), stop)
    except PeerLostError as error:
        sys.stderr.write(f"rank {rank.rank}: {error}\n")
        return EXIT_PEER_LOST
    except InputError as error:
        bare = [replace(problem, remedy="").sentence() for problem in error.problems]
        remedies = dict.fromkeys(problem.remedy for problem in error.problems if problem.remedy)
        return _fail(rank, EXIT_CONFIG, "; ".join(bare), "; ".join(remedies))
    except RuntimeFailureError as error:
        code = _CODES.get(type(error), EXIT_FAILED)
        return _fail(rank, code, error.message, error.remedy)
    except OSError as error:
        remedy = f"make room, or grant access: {error.filename or rank.run_dir}"
        return _fail(rank, EXIT_IO, f"a file cannot be used: {error}", remedy)
    except Exception as error:  # noqa: BLE001 - the last line of defence, told in full
        traceback.print_exc()
        return _fail(rank, EXIT_FAILED, f"{type(error).__name__}: {error}", "see the rank's log")


def _run(rank: Rank, place: Place, stop: StopWish) -> int:
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # or cuBLAS is not deterministic
    torch.use_deterministic_algorithms(mode=True)
    if interface := interface_of(place.address):  # gloo would take what the host name leads to
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    recipe = _read_recipe(Path(rank.run_dir) / RECIPE_FILE)
    run = Run(place, SystemClock(), stop)
    try:
        return Trainer(run, recipe, rank.attempt).run()
    finally:
        run.close()


def _read_recipe(path: Path) -> GptRecipe:
    try:
        return decode(path.read_bytes(), GptRecipe)
    except FileNotFoundError as error:
        raise InputError(f"there is no recipe at {path}: gridloom writes it") from error
    except msgspec.DecodeError as error:
        raise InputError(f"the recipe {path} cannot be used: {error}") from error


def _fail(rank: Rank, code: int, message: str, remedy: str) -> int:
    """Tell the failure to the agent and to the log; return the exit code."""
    sys.stderr.write(f"rank {rank.rank}: {message}\n")
    with contextlib.suppress(OSError):  # the disk may be what is full
        append_line(Path(rank.report_file), Failure(message=message, remedy=remedy))
    return code
