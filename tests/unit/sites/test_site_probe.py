"""What a probe on a node tells of a site."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.fakes.clock import FakeClock

from gridloom import __version__
from gridloom.agent.probe import main, probe
from gridloom.base.codec import decode
from gridloom.sites.finding import Finding, few
from gridloom.sites.probe import Probed, diagnose_probe
from gridloom.wire.probe import ANSWER_FILE, ANSWER_WAIT_S, PROBE_LOST, SEEN_FILE, ProbeSeen

SEEN = ProbeSeen(
    node="n1",
    address="10.0.0.1",
    addresses=("127.0.0.1", "10.0.0.1"),
    python="3.11.2",
    gridloom="1.0",
    now_s=1003.0,
    heard_s=1003.6,
)
PROBED = Probed(
    engine="Slurm",
    directory="/data/ann/probes",
    python="/opt/python",
    submitted_s=1000.0,
    started_s=1002.0,
    spoke_s=1003.2,
    answered_s=1003.3,
    heard_s=1003.8,
    seen=SEEN,
    given_up_s=120.0,
)


def look(probed: Probed, **more: object) -> tuple[Finding, ...]:
    told = {"network": "", "many_nodes": True, "version": "1.0", "lease_s": 6.0, **more}
    return diagnose_probe(probed, **told)  # type: ignore[arg-type]


def silent(**more: object) -> Probed:
    return replace(PROBED, seen=None, **more)


def test_all_is_well() -> None:
    found = look(PROBED)
    assert {one.state for one in found} == {"ok"}
    assert [one.check for one in found] == ["probe", "python", "run directory", "network", "clock"]
    assert found[0].found == "2s in the queue, 1s from its start to its first report"


WRONG = {
    "refused": (
        silent(refusal="Invalid qos"),
        {},
        ("fail", "probe", "Slurm did not take it: Invalid qos"),
    ),
    "waits": (silent(waits="jobs go first"), {}, ("warn", "probe", "waited for 2m 00s")),
    "says nothing": (silent(log="x"), {}, ("fail", "probe", "said nothing in 2m 00s")),
    "not shared": (
        silent(ended="the probe, job 7 on n1, is failed"),
        {},
        ("fail", "run directory", "/data/ann/probes is not here"),
    ),
    "no gridloom": (
        silent(ended="x", log="a\n/opt/python: No module named gridloom.agent\nsrun: error"),
        {},
        ("fail", "python", "on the node: /opt/python: No module named gridloom.agent"),
    ),
    "no python": (
        silent(
            ended="x", log="slurmstepd: error: execve(): /opt/python: No such file or directory"
        ),
        {},
        ("fail", "python", "execve(): /opt/python"),
    ),
    "not the same volume": (
        silent(ended="x", log="there is no directory /runs/probe-x\n"),
        {},
        ("fail", "run directory", "/runs/probe-x: the run directories here are not"),
    ),
    "stuck": (
        silent(stuck="the image cannot be fetched: not found"),
        {},
        ("fail", "probe", "it cannot start: the image"),
    ),
    "something else": (
        silent(ended="job 7 is failed", log="a\n\nb\nc\nd\n"),
        {},
        ("fail", "probe", "job 7 is failed without a report: b / c / d"),
    ),
    "nothing printed": (silent(ended="x", log="\n"), {}, ("fail", "probe", "printed nothing")),
    "another version": (PROBED, {"version": "1.1"}, ("fail", "python", "and here is 1.1")),
    "answer not seen": (
        replace(PROBED, heard_s=None, seen=replace(SEEN, heard_s=None)),
        {},
        ("fail", "run directory", "is not seen on the node in time"),
    ),
    "slow files": (
        replace(PROBED, answered_s=1001.0),
        {},
        ("warn", "run directory", "took 3s through"),
    ),
    "no address": (
        replace(PROBED, seen=replace(SEEN, address="", trouble="n1 has no address in 10.9.0.0/16")),
        {},
        ("fail", "network", "no address in 10.9.0.0/16"),
    ),
    "loopback": (
        replace(PROBED, seen=replace(SEEN, address="127.0.1.1")),
        {},
        ("fail", "network", "n1 takes 127.0.1.1 for its address"),
    ),
    "ahead": (
        replace(PROBED, seen=replace(SEEN, heard_s=1005.8)),
        {},
        ("warn", "clock", "2s ahead of ours"),
    ),
    "far ahead": (
        replace(PROBED, seen=replace(SEEN, heard_s=1033.8)),
        {},
        ("fail", "clock", "30s ahead of ours: leases of 6s lapse"),
    ),
    "behind": (
        replace(PROBED, seen=replace(SEEN, heard_s=973.3)),
        {},
        ("warn", "clock", "30s behind ours"),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_one_thing_is_wrong(name: str) -> None:
    probed, more, (state, check, words) = WRONG[name]
    (only,) = [one for one in look(probed, **more) if one.state != "ok"]
    assert (only.state, only.check) == (state, check)
    assert words in only.found
    assert only.remedy


def test_only_addresses_that_others_may_reach_are_named() -> None:
    has = ("127.0.0.1", "::1", "169.254.3.4", "fe80::1", "10.0.0.1", "2001:db8::7")
    lost = replace(SEEN, address="", addresses=has, trouble="n1 has no address in 10.9.0.0/16")
    for seen in (lost, replace(lost, address="127.0.1.1", trouble="")):
        (only,) = [one for one in look(replace(PROBED, seen=seen)) if one.state != "ok"]
        assert "10.0.0.1, 2001:db8::7" in only.remedy
        assert not any(one in only.remedy for one in has[:4])
    alone = replace(lost, addresses=has[:4])
    for seen in (alone, replace(alone, address="127.0.1.1", trouble="")):
        (only,) = [one for one in look(replace(PROBED, seen=seen)) if one.state != "ok"]
        assert "has no address for other nodes" in only.remedy


def test_a_probe_without_what_is_wrong_says_so() -> None:
    for probed in (PROBED, silent(waits="x"), silent(refusal="x")):
        first, *_ = look(replace(probed, without=("reservation",)))
        assert " without `reservation:`" in first.found


def test_loopback_is_right_where_it_is_meant_or_alone() -> None:
    here = replace(PROBED, seen=replace(SEEN, address="127.0.0.1"), started_s=None)
    found: tuple[Finding, ...] = ()
    for more in ({"network": "127.0.0.0/8"}, {"many_nodes": False}):
        found = look(here, **more)
        assert {one.state for one in found} == {"ok"}
    assert found[0].found.startswith("3s in the queue, 0ms")


def test_names_beyond_a_few_are_counted() -> None:
    assert few("abc", 2) == "a, b and 1 more"


class Answering(FakeClock):
    """Somebody answers while the probe sleeps."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory

    def sleep(self, duration_s: float) -> None:
        assert decode((self.directory / SEEN_FILE).read_bytes(), ProbeSeen).heard_s is None
        (self.directory / ANSWER_FILE).touch()
        self.advance(duration_s)


def test_a_probe_says_where_it_is_and_when_it_was_answered(tmp_path: Path) -> None:
    clock = Answering(tmp_path)
    seen = probe(tmp_path, "127.0.0.0/8", clock)
    assert decode((tmp_path / SEEN_FILE).read_bytes(), ProbeSeen) == seen
    assert (seen.address, seen.trouble, seen.gridloom) == ("127.0.0.1", "", __version__)
    assert seen.heard_s is not None
    assert seen.heard_s > seen.now_s


def test_a_probe_without_an_answer_ends(tmp_path: Path) -> None:
    clock = FakeClock()
    before_s = clock.monotonic_s()
    seen = probe(tmp_path, "198.51.100.0/24", clock)
    assert seen.heard_s is None
    assert "no address in 198.51.100.0/24" in seen.trouble
    assert "127.0.0.1" in seen.addresses
    assert clock.monotonic_s() - before_s == pytest.approx(ANSWER_WAIT_S, abs=0.2)


def test_a_probe_that_sees_no_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "x")]) == 1
    assert PROBE_LOST in capsys.readouterr().err


def test_a_probe_as_a_program(tmp_path: Path) -> None:
    (tmp_path / ANSWER_FILE).touch()
    assert main([str(tmp_path), "127.0.0.0/8"]) == 0
    assert (tmp_path / SEEN_FILE).exists()
