"""What is made of what a slurmrestd, or nobody, answers."""

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.fakes.clock import FakeClock
from tests.fakes.slurmrestd import Slurmrestd, slurmrestd
from tests.unit.sites.slurm.tokens import token

from gridloom.base.errors import SiteError
from gridloom.model.inventory import SlurmRest
from gridloom.sites.slurm import rest_client
from gridloom.sites.slurm.engine import AwayError
from gridloom.sites.slurm.rest_client import RestClient

PING = "/slurm/v0.0.38/ping"


@pytest.fixture
def server() -> Iterator[Slurmrestd]:
    with slurmrestd() as fake:
        yield fake


class Desk:
    """A user whose token lies in a file."""

    def __init__(self, place: Path, url: str, **more: Any) -> None:
        self.clock = FakeClock()
        self.file = place / "token"
        self.file.write_text(token())
        said: dict[str, Any] = {"url": url, "user": "alice", "token_file": str(self.file)}
        self.client = RestClient(SlurmRest(**said | more), self.clock)

    def fails(self, kind: type[SiteError]) -> str:
        with pytest.raises(SiteError) as raised:
            self.client.call("GET", PING)
        assert type(raised.value) is kind
        said = str(raised.value)
        for part in token().split("."):
            assert part not in said
        return said


@pytest.fixture
def desk(tmp_path: Path, server: Slurmrestd) -> Desk:
    return Desk(tmp_path, server.url)


def test_a_user_asks_with_a_token(desk: Desk, server: Slurmrestd) -> None:
    server.answers["POST", "job/submit"] = (200, {"job_id": 7})
    said = desk.client.call("POST", "/slurm/v0.0.38/job/submit", {"a": [1]})
    assert (said.status, said.body, server.bodies) == (200, b'{"job_id": 7}', [{"a": [1]}])
    told = {name: server.headers[name] for name in ("X-SLURM-USER-NAME", "X-SLURM-USER-TOKEN")}
    assert told == {"X-SLURM-USER-NAME": "alice", "X-SLURM-USER-TOKEN": token()}


def test_a_file_is_read_whenever_it_is_needed(desk: Desk, server: Slurmrestd) -> None:
    for expires_s in (3e6, 4e6):
        new = token(expires_s=expires_s)
        server.tokens = {new}
        desk.file.write_text(f"SLURM_JWT={new}\n")
        assert desk.client.call("GET", PING).status == 200
    server.tokens = {"another"}
    where = f"slurmrestd at {server.url} does not accept user alice with the token of {desk.file}"
    assert desk.fails(SiteError) == f"{where} (HTTP 401)"
    desk.file.write_text(token(expires_s=5.0))
    assert "has expired at 1970-01-01 00:00:05 UTC: put a new one" in desk.fails(AwayError)
    desk.file.write_text("")
    assert desk.fails(SiteError) == f"{desk.file} is empty instead of a token of Slurm"
    desk.file.unlink()
    said = f"the token in {desk.file} cannot be read: No such file or directory"
    assert desk.fails(SiteError) == said


def test_a_command_is_asked_for_a_token_when_one_is_needed(
    tmp_path: Path, server: Slurmrestd
) -> None:
    script, asked = tmp_path / "give", tmp_path / "asked"
    script.write_text(f'#!/bin/sh\necho "$1" >> {asked}\necho SLURM_JWT=$(cat {tmp_path}/token)\n')
    script.chmod(0o755)
    desk = Desk(tmp_path, server.url, token_file="", token_command=(str(script), "a b"))
    for _ in range(3):
        desk.client.call("GET", PING)
    assert asked.read_text() == "a b\n"
    desk.clock.jump(2_000_000.0 - desk.clock.now_s() - 59.0)
    new = token(expires_s=3e6)
    desk.file.write_text(new)
    server.tokens = {new}
    desk.client.call("GET", PING)
    assert asked.read_text() == "a b\n" * 2, "a minute before it expires"
    desk.clock.advance(31.0)
    newer = token(expires_s=4e6)
    desk.file.write_text(newer)
    server.tokens = {newer}
    assert desk.client.call("GET", PING).status == 200, "asked again because it was not accepted"
    server.tokens = {"another"}
    assert "with the token of `" in desk.fails(SiteError)
    assert asked.read_text() == "a b\n" * 3, "but not again at once"


@pytest.mark.parametrize(
    ("command", "kind", "said"),
    [
        (("/nonexistent/tool",), SiteError, "cannot be run for a token: No such file"),
        (("/bin/sh", "-c", "exit 3"), AwayError, "`/bin/sh` for a token ended with 3"),
        (("/bin/sh", "-c", "echo no >&2; exit 1"), AwayError, "for a token ended with 1: no"),
        (("/bin/sh", "-c", "exec sleep 9"), AwayError, "has printed no token for 0.2 s"),
        (("/bin/echo",), SiteError, "`/bin/echo` is empty instead of a token"),
    ],
)
def test_a_command_that_gives_none(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    kind: type[SiteError],
    said: str,
) -> None:
    monkeypatch.setattr(rest_client, "_COMMAND_TIMEOUT_S", 0.2)
    desk = Desk(tmp_path, "http://127.0.0.1:9", token_file="", token_command=command)
    assert said in desk.fails(kind)


def test_nobody_answers(tmp_path: Path, desk: Desk, server: Slurmrestd) -> None:
    gone = Desk(tmp_path, "http://127.0.0.1:9")
    assert gone.fails(AwayError) == "slurmrestd at http://127.0.0.1:9: Connection refused"
    server.answers["GET", "ping"] = (503, "")
    assert desk.fails(AwayError) == f"slurmrestd at {server.url} answers HTTP 503"


def test_something_else_answers(tmp_path: Path, server: Slurmrestd) -> None:
    plain = Desk(tmp_path, server.url.replace("http:", "https:"))
    assert "slurmrestd at https://localhost" in plain.fails(AwayError)


def test_why_slurm_seems_to_be_away(desk: Desk) -> None:
    said = SiteError("Slurm error 5005, Zero Bytes")
    assert str(desk.client.away(said)) == (
        "Slurm error 5005, Zero Bytes: the controller is away, or does not accept the token of "
        f"{desk.file}"
    )
    desk.file.write_text(token("bob"))
    assert str(desk.client.away(said)) == f"the token of {desk.file} is user bob's, not alice's"
    desk.file.unlink()
    assert "cannot be read" in str(desk.client.away(said))


def test_who_vouches_for_the_server(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    (tmp_path / "none.pem").write_text("nonsense")
    with slurmrestd(context=context) as fake:
        trusting = Desk(tmp_path, fake.url, ca_file=str(tmp_path / "ca.pem"))
        assert trusting.client.call("GET", PING).status == 200
        said = Desk(tmp_path, fake.url).fails(SiteError)
        assert said.startswith(f"the certificate of {fake.url} is not accepted: ")
        assert said.endswith("`rest.ca_file` names the certificates of those who vouch for it")
        for name in ("none.pem", "missing.pem"):
            spoilt = Desk(tmp_path, fake.url, ca_file=str(tmp_path / name))
            assert f"no certificates can be read from {tmp_path / name}: " in spoilt.fails(
                SiteError
            )
