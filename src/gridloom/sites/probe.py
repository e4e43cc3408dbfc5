"""What a probe on a node tells of a site (pure)."""

import ipaddress
from collections.abc import Iterator, Sequence

import msgspec

from gridloom.base.units import format_duration
from gridloom.sites.finding import Finding, fail, few, ok, warn, without
from gridloom.wire.probe import PROBE_LOST, ProbeSeen

_SKEW_MAX_S = 1.0
_SLOW_FILE_S = 2.0
_LINES_MAX = 3
_STUCK = (
    ("image", "mend `image:` of the site, and `pull_secrets:` where its registry is not open"),
    ("PodSecurity", "let the namespace allow it, or take `runs: {claim: ...}` for a node's path"),
    ("persistentvolumeclaim", "make the claim, or mend `runs:` and `volumes:` of the site"),
    ("taint", "write `tolerations:` at the site for the taints that are named"),
)
"""What helps, by a word of what the engine says."""
_NO_PYTHON = (
    "no such file or directory",
    "command not found",
    "not found in path",
    "not found in $path",
)
_NAMED = "`python:` of the site names the interpreter there"

NOT_PROBED = warn(
    "probe",
    "it was not run: what is wrong above would keep it from starting",
    "mend that and look again; --no-probe leaves the probe out",
)
"""Where it is known that no job would start."""
_SHARED_HERE = (
    "let GRIDLOOM_HOME name a directory on a file system that this machine and the nodes share"
)
_SHARED_THERE = (
    "let `directory:` under `ssh:` of the site name one that the login host and the nodes share"
)


class Probed(msgspec.Struct, frozen=True, kw_only=True):
    """How a probe went.

    Times are by our clock, in seconds since the epoch; ``None`` for what did not happen.

    Attributes:
        engine: Who runs jobs there, as ``Slurm``.
        directory: Where the probe was to write.
        python: By which interpreter.
        without: Settings of the site, wrong ones, that it was handed in without.
        is_far: Whether that directory is not ours, but one of a login host.
        refusal: Why the engine did not take it; empty if it did.
        stuck: Why it can never start, in the engine's words; empty if it can.
        waits: Why it has not started in all the time it was given; empty if it has.
        ended: How it ended without a word; empty if it spoke or still runs.
        log: What it printed, where that could be seen; nothing where there was no such file.
        submitted_s: When it was handed in.
        started_s: When it was first seen to run.
        spoke_s: When its first word was seen.
        answered_s: When that was answered.
        heard_s: When it was seen that the answer had come.
        seen: What it said.
        given_up_s: For how long it was waited for.
    """

    engine: str
    directory: str
    python: str
    without: tuple[str, ...] = ()
    is_far: bool = False
    refusal: str = ""
    stuck: str = ""
    waits: str = ""
    ended: str = ""
    log: str | None = None
    submitted_s: float = 0.0
    started_s: float | None = None
    spoke_s: float | None = None
    answered_s: float | None = None
    heard_s: float | None = None
    seen: ProbeSeen | None = None
    given_up_s: float = 0.0


def diagnose_probe(
    probed: Probed, *, network: str, many_nodes: bool, version: str, lease_s: float
) -> tuple[Finding, ...]:
    """Return what a probe tells.

    Args:
        probed: How it went.
        network: Where the grid file says that nodes reach each other; empty for nothing.
        many_nodes: Whether jobs of the site may need several nodes.
        version: Of gridloom here.
        lease_s: How long a supervisor runs on without a word, by the wall clock.
    """
    if probed.refusal:
        remedy = "what is wrong above is most likely the cause"
        said = f"{probed.engine} did not take it{without(probed.without)}: {probed.refusal}"
        return (fail("probe", said, remedy),)
    seen = probed.seen
    if seen is None:
        return (_silence(probed),)
    found = [_times(probed), _python(probed, seen, version), _directory(probed)]
    found += [_network(seen, network, many_nodes=many_nodes), *_clock(probed, seen, lease_s)]
    return tuple(found)


def _silence(probed: Probed) -> Finding:
    given_up = format_duration(probed.given_up_s)
    if probed.stuck:
        if _has_no_python(probed, probed.stuck):
            return fail("python", probed.stuck, f"{_NAMED}: it must be there in the image")
        remedy = next((one for word, one in _STUCK if word in probed.stuck), "mend the cause there")
        return fail("probe", f"it cannot start: {probed.stuck}", remedy)
    if probed.waits:
        return warn(
            "probe",
            f"it waited for {given_up}{without(probed.without)} and was taken out of the queue:"
            f" {probed.waits}",
            "wait longer with --probe-timeout, or leave the probe out with --no-probe",
        )
    if not probed.ended:
        found = f"it has run, and said nothing in {given_up}"
        return fail("probe", found, f"look at {probed.python} on the nodes: does it start at all?")
    if probed.log is None:
        return fail(
            "run directory",
            f"{probed.ended}, and what it wrote into {probed.directory} is not here: the nodes see"
            " another directory under that name, or none",
            _SHARED_THERE if probed.is_far else _SHARED_HERE,
        )
    return _log(probed, [line.strip() for line in probed.log.splitlines() if line.strip()])


def _has_no_python(probed: Probed, said: str) -> bool:
    return probed.python in said and any(words in said.lower() for words in _NO_PYTHON)


def _log(probed: Probed, lines: Sequence[str]) -> Finding:
    """Return what a probe's output tells that ended without a report."""
    for line in lines:
        if PROBE_LOST in line:
            found = f"{line}: the run directories here are not what is seen there"
            remedy = "let `runs:` of the site name their file system"
            return fail("run directory", found, _SHARED_THERE if probed.is_far else remedy)
    for line in lines:
        if "No module named" in line:
            remedy = f"install gridloom for it there; {_NAMED}"
            return fail("python", f"on the node: {line}", remedy)
    for line in lines:
        if _has_no_python(probed, line):
            remedy = f"{_NAMED}: it must be at the same path on every node"
            return fail("python", f"on the node: {line}", remedy)
    said = " / ".join(lines[-_LINES_MAX:]) or "it printed nothing"
    return fail("probe", f"{probed.ended} without a report: {said}", _NAMED)


def _times(probed: Probed) -> Finding:
    assert probed.spoke_s is not None
    started_s = probed.started_s if probed.started_s is not None else probed.spoke_s
    waited_s = max(0.0, started_s - probed.submitted_s)
    began_s = max(0.0, probed.spoke_s - started_s)
    queue, start = format_duration(waited_s), format_duration(began_s)
    said = (
        f"{queue} in the queue{without(probed.without)}, {start} from its start to its first report"
    )
    return ok("probe", said)


def _python(probed: Probed, seen: ProbeSeen, version: str) -> Finding:
    found = f"{seen.python} on {seen.node} with gridloom {seen.gridloom}"
    if seen.gridloom != version:
        remedy = "install the same version there: orders and reports must be understood"
        return fail("python", f"{found}, and here is {version}", remedy)
    return ok("python", found)


def _directory(probed: Probed) -> Finding:
    if probed.heard_s is None or probed.answered_s is None:
        return fail(
            "run directory",
            f"what is written into {probed.directory} here is not seen on the node in time",
            "use a file system whose caches are shorter than seconds, or mount it with actimeo=1",
        )
    took_s = probed.heard_s - probed.answered_s
    if took_s > _SLOW_FILE_S:
        return warn(
            "run directory",
            f"a file and its answer took {format_duration(took_s)} through {probed.directory}",
            "mount it with shorter caches (actimeo=1): leases are renewed through it",
        )
    return ok("run directory", f"{probed.directory} is seen by both")


def _network(seen: ProbeSeen, network: str, *, many_nodes: bool) -> Finding:
    if seen.trouble:
        has = few(_reachable(seen), 8)
        has = f"other nodes may reach it at {has}" if has else "it has no address for other nodes"
        return fail("network", seen.trouble, f"mend `network:` of the site; {has}")
    if many_nodes and not network and ipaddress.ip_address(seen.address).is_loopback:
        has = few(_reachable(seen), 8)
        remedy = f"write a `network:` of the site that holds {has}"
        remedy = remedy if has else "connect it: it has no address for other nodes"
        found = f"{seen.node} takes {seen.address} for its address: no other node reaches it there"
        return fail("network", found, remedy)
    return ok("network", f"{seen.node} is reached at {seen.address}")


def _reachable(seen: ProbeSeen) -> list[str]:
    """Return the node's addresses at which others may reach it."""
    known = map(ipaddress.ip_address, seen.addresses)
    return [str(one) for one in known if not (one.is_loopback or one.is_link_local)]


def _clock(probed: Probed, seen: ProbeSeen, lease_s: float) -> Iterator[Finding]:
    """Tell how far clocks are apart at least: the node saw the answer after it was written."""
    if seen.heard_s is None or probed.answered_s is None or probed.heard_s is None:
        return
    ahead_s, behind_s = seen.heard_s - probed.heard_s, probed.answered_s - seen.heard_s
    remedy = "let both machines take their time from NTP"
    if ahead_s > lease_s / 2:
        found = f"the node's clock is {format_duration(ahead_s)} ahead of ours: leases of"
        found = f"{found} {format_duration(lease_s)} lapse there too early"
        yield fail("clock", found, remedy, of="node")
    elif max(ahead_s, behind_s) > _SKEW_MAX_S:
        way = "ahead of" if ahead_s > 0 else "behind"
        apart = format_duration(max(ahead_s, behind_s))
        yield warn("clock", f"the node's clock is {apart} {way} ours", remedy, of="node")
    else:
        yield ok("clock", "the node's clock and ours agree", of="node")
