"""What keeps a login host from being used: each finding with its cause and what helps."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from gridloom.base.clock import Clock
from gridloom.base.errors import SiteError
from gridloom.base.units import format_bytes, format_duration
from gridloom.model.inventory import SshAccess
from gridloom.sites.finding import Finding, clock, fail, ok, warn
from gridloom.sites.remote.errors import RemoteError
from gridloom.sites.remote.host import Host
from gridloom.sites.remote.link import Done, Link

_ASK_S = 20.0
_SLOW_S = 1.0
"""Of a small file, which a lease is."""
_IDLE_S = 2.0
"""Of a command that does nothing, over a connection that is there."""
_ROOM_BYTES_MIN = 1 << 30
_MARK = "gridloom asks"
_QUESTION = f"echo '{_MARK}'; id -un; date +%s"
_START_UP = "what start-up files of the shell there do, as ~/.bashrc, is done before each command"
_TRY_AGAIN = f"try again; `ssh HOST true` should end at once, too: {_START_UP}"
_IN_FILE = "under `ssh:` of the site in the grid file"


def check(host: Callable[[], Host], access: SshAccess, ours: Clock) -> list[Finding]:
    """Return what was found of a login host and of the directory that is to be ours there.

    Args:
        host: Returns the login host; raises ``SiteError`` if there can be none.
        access: How it is reached.
        ours: Our clock.
    """
    try:
        reached = host()
        before_s, began_s = ours.now_s(), ours.monotonic_s()
        said = reached.link.run(["sh", "-c", _QUESTION], timeout_s=_ASK_S)
        after_s, took_s = ours.now_s(), ours.monotonic_s() - began_s
    except SiteError as error:
        return [_trouble("ssh", error)]
    found = [*_greeting(reached.link, said, took_s), *_clock(said, (before_s, after_s))]
    try:
        found += _idle_command(reached.link, ours)
        found += _directory(reached, access, ours)
    except SiteError as error:
        found.append(_trouble("directory", error))
    return found


def check_python(
    link: Link, python: str, variables: Mapping[str, str], version: str
) -> Iterator[Finding]:
    """Yield whether an interpreter of the login host has gridloom; nodes may have another one.

    Args:
        link: To the login host.
        python: The interpreter.
        variables: Of the site's jobs.
        version: Of gridloom here.
    """
    code = "import gridloom; print(gridloom.__version__)"
    words = ("env", *(f"{name}={value}" for name, value in variables.items()), python, "-c", code)
    named = "`python:` of the site names the interpreter there"
    try:
        done = link.run(words, timeout_s=_ASK_S)
    except SiteError as error:
        yield _trouble("python", error)
        return
    lines = done.stderr.strip().splitlines()
    if done.code:
        found = f"{python} at {link.place}: {lines[-1] if lines else f'exit status {done.code}'}"
        yield warn("python", found, f"install gridloom for it there; {named}")
    elif done.stdout.strip() != version:
        found = f"gridloom {done.stdout.strip()} at {link.place}, and here is {version}"
        yield warn("python", found, f"install the same version there; {named}")
    else:
        yield ok("python", f"{python} at {link.place} with gridloom {version}")


def _trouble(what: str, error: SiteError) -> Finding:
    if isinstance(error, RemoteError):
        return fail(what, error.sentence, error.remedy or _TRY_AGAIN)
    sentence, _, remedy = str(error).partition("; ")
    return fail(what, sentence, remedy)


def _greeting(link: Link, said: Done, took_s: float) -> Iterator[Finding]:
    lines = said.stdout.splitlines()
    if said.code or _MARK not in lines:
        printed = (said.stderr or said.stdout).strip().splitlines()
        why = f": {printed[-1]}" if printed else ""
        remedy = "let its shell run commands where nobody logs in (`ssh HOST true`)"
        yield fail("ssh", f"{link.place} lets us in, and runs no commands{why}", remedy)
        return
    at = lines.index(_MARK)
    if at:
        yield fail(
            "ssh",
            f"a start-up file of the shell at {link.place} prints {lines[0]!r} before a command's"
            " own output",
            "let it print nothing where nobody logs in",
        )
        return
    yield ok("ssh", f"{link.place} lets us in as {_line(lines, 1)}, in {format_duration(took_s)}")


def _idle_command(link: Link, ours: Clock) -> Iterator[Finding]:
    began_s = ours.monotonic_s()
    link.run(["true"], timeout_s=_ASK_S)
    took_s = ours.monotonic_s() - began_s
    if took_s > _IDLE_S:
        found = f"a command that does nothing takes {format_duration(took_s)} at {link.place}"
        yield warn("ssh", found, f"let that be quick where nobody logs in: {_START_UP}")


def _clock(said: Done, asked_s: tuple[float, float]) -> Iterator[Finding]:
    with contextlib.suppress(ValueError):  # what was not said is told above
        yield clock(
            "login host", "the login host's", float(_line(said.stdout.splitlines(), 2)), asked_s
        )


def _directory(host: Host, access: SshAccess, ours: Clock) -> Iterator[Finding]:
    directory = access.directory
    path = f"{directory}/.gridloom-check"
    host.files.make([directory])
    began_s = ours.monotonic_s()
    host.files.write({path: _MARK.encode()})
    took_s = ours.monotonic_s() - began_s
    is_read = host.files.read([(path, 0, len(_MARK))]) == [_MARK.encode()]
    host.files.remove([path])
    if not is_read:
        remedy = f"name another `directory:` {_IN_FILE}"
        yield fail("directory", f"what is written into {directory} is not read there", remedy)
        return
    free = host.files.free_bytes(directory)
    room = f", with {format_bytes(free)} free" if free is not None else ""
    if free is not None and free < _ROOM_BYTES_MIN:
        remedy = f"free space there, or name another `directory:` {_IN_FILE}"
        yield warn("directory", f"{directory} has {format_bytes(free)} free", remedy)
    elif took_s > _SLOW_S:
        found = f"a small file into {directory} took {format_duration(took_s)}"
        yield warn("directory", found, "leases go that way: name a `lease:` at the site of minutes")
    else:
        yield ok("directory", f"{directory} can be written{room}")
    if access.workdir:
        status = host.files.statuses([access.workdir])[0]
        if status is None or status.kind != "directory":
            remedy = f"mend `workdir:` {_IN_FILE}, or leave it out: then it is copied"
            yield fail("directory", f"there is no directory {access.workdir}", remedy)


def _line(lines: Sequence[str], number: int) -> str:
    return lines[number] if number < len(lines) else ""
