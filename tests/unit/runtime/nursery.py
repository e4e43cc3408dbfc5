"""A process that has torch loaded and makes ranks of gridloom's own training program out of itself.

``python -m tests.unit.runtime.nursery`` reads a ``Told`` a line and forks a process for each. It
says which, and later how it ended (``Said``, twice). Loading torch takes seconds, and the tests
need some hundred ranks: so they all come from one process that has done so.
"""

import faulthandler
import os
import resource
import selectors
import signal
import sys
import traceback

import msgspec

from gridloom.runtime import entry


class Told(msgspec.Struct):
    """Who a process is to be.

    Attributes:
        number: By which it is known.
        environment: The variables of the launch contract.
        directory: Where it works.
        error_file: Where its standard error goes.
        file_bytes_max: No file may grow beyond this: a disk that is full; 0 for any.
    """

    number: int
    environment: dict[str, str]
    directory: str
    error_file: str
    file_bytes_max: int = 0


class Said(msgspec.Struct):
    """What became of it.

    Attributes:
        number: By which it is known.
        process: Its process.
        code: How it ended, negative for a signal; ``None`` at its beginning.
    """

    number: int
    process: int
    code: int | None = None


def be(told: Told) -> int:
    """Be the rank that is told of, in a process of its own; return its exit code."""
    errors = os.open(told.error_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(errors, 2)
    faulthandler.register(signal.SIGUSR2)  # where it is, when it hangs
    os.chdir(told.directory)
    if told.file_bytes_max:
        limit = (told.file_bytes_max, told.file_bytes_max)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    try:
        return entry.main(told.environment)
    except BaseException:  # noqa: BLE001 - the end of this process
        traceback.print_exc()
        return 1
    finally:
        sys.stderr.flush()


def say(said: Said) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(said) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    events = selectors.DefaultSelector()
    events.register(sys.stdin.fileno(), selectors.EVENT_READ)
    rest = b""
    while True:
        for key, _ in events.select():
            if key.data is not None:
                say(ended(key.data))
                events.unregister(key.fd)
                os.close(key.fd)
                continue
            came = os.read(key.fd, 2**16)
            if not came:
                return
            *lines, rest = (rest + came).split(b"\n")
            for line in lines:
                born = begin(msgspec.json.decode(line, type=Told))
                events.register(os.pidfd_open(born.process), selectors.EVENT_READ, born)
                say(born)


def begin(told: Told) -> Said:
    process = os.fork()
    if process:
        return Said(told.number, process)
    os.close(0)
    os._exit(be(told))


def ended(born: Said) -> Said:
    _, status = os.waitpid(born.process, 0)
    return Said(born.number, born.process, os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
