"""Entry point of the command line; imports next to nothing, so that Ctrl-C is always quiet."""

import gc
import os
import sys
from collections.abc import Sequence

_INTERRUPTED = 130
_OBJECTS_BETWEEN_LOOKS = 100_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line, by default this process's own, and return its exit code."""
    try:
        if arguments is None:
            return _run_process()
        from gridloom.cli.commands import execute

        return execute(arguments)
    except KeyboardInterrupt:
        return _INTERRUPTED


def _run_process() -> int:
    import signal

    # Nothing is begun yet: an exception could be printed by whatever is being imported
    signal.signal(signal.SIGINT, _leave)
    gc.set_threshold(_OBJECTS_BETWEEN_LOOKS)  # most is loaded to stay: no garbage is found in it
    from gridloom.cli.commands import execute
    from gridloom.cli.stdio import make_ready

    make_ready()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return execute(sys.argv[1:])
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done but Python's own end
        gc.freeze()  # which would look all that was loaded through for garbage, more than once


def _leave(_number: int, _frame: object) -> None:
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    raise SystemExit(main())
