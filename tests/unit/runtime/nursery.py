"""A process that has torch loaded and makes others out of itself, each of which runs a program.

``python -m tests.unit.runtime.nursery`` reads a ``Told`` a line and forks a process for each. It
says which, and later how it ended (``Said``, twice). Loading torch takes seconds, and the tests
need some hundred ranks: so they all come from one process that has done so.
"""

import faulthandler
import gc
import os
import resource
import runpy
import selectors
import signal
import sys
import traceback
from importlib import import_module

import msgspec

LOADED = (
    *("torch._dynamo", "torch.distributed.fsdp", "torch.distributed.checkpoint"),
    *("torch.distributed.pipelining", "torch.distributed.tensor.parallel"),
    *("gridloom.runtime.library.keeping", "gridloom.runtime.library.staging"),
    *("gridloom.runtime.library.syncing", "gridloom.runtime.train"),
)
"""What ranks would load one by one: optimizers, for one, load ``torch._dynamo`` at their making."""


class Told(msgspec.Struct):
    """What a process is to be.

    Attributes:
        program: The module that it runs, as ``python -m`` does.
        words: The arguments of the program.
        environment: Variables that it has beside those of all.
        directory: Where it works.
        output_file: Where its standard output goes.
        error_file: Where its standard error goes; may be the same.
        file_bytes_max: No file may grow beyond this: a disk that is full; 0 for any.
        number: By which it is known.
    """

    program: str
    words: list[str]
    environment: dict[str, str]
    directory: str
    output_file: str
    error_file: str
    file_bytes_max: int = 0
    number: int = 0


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
    """Run the program that is told of, in a process of its own; return its exit code."""
    for stream, file in ((1, told.output_file), (2, told.error_file)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND), stream)
    faulthandler.register(signal.SIGUSR2)  # where it is, when it hangs
    os.chdir(told.directory)
    if told.file_bytes_max:
        limit = (told.file_bytes_max, told.file_bytes_max)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    os.environ.update(told.environment)  # noqa: TID251 - it is a program's beginning
    sys.argv[1:] = told.words
    try:
        runpy.run_module(told.program, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - the end of this process
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def say(said: Said) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(said) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    gc.disable()
    for module in LOADED:
        import_module(module)
    gc.freeze()  # no child looks all that through, and copies it thereby
    gc.enable()
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
