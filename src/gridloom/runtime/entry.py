"""The program of one rank: ``python -m gridloom.runtime.entry`` under the launch contract.

It begins and ends as fast as can be. Loading torch makes a million objects that all stay: to look
for garbage among them, again and again, takes a third of the time, and to free them one by one at
the end takes as long.
"""

import atexit
import gc
import os
import sys
from importlib import import_module


def start() -> int:
    """Load the program and run it; return the rank's exit code."""
    gc.disable()
    program = import_module("gridloom.runtime.program")
    gc.freeze()
    gc.enable()
    code: int = program.main()
    return code


def _leave(code: int) -> None:
    """End this process, whose threads have ended, without clearing up its memory."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    exit_code = start()
    atexit.register(_leave, exit_code)
    sys.exit(exit_code)
