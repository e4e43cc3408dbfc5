"""Mutual TLS: certificates of the authority let in; files that do not fit are told."""

import dataclasses
import socket
from pathlib import Path

import pytest
import trustme
from tests.unit.runtime.wan.conftest import QUICK, WAIT_S, Open
from tests.unit.runtime.wan.test_transport import BODY, facts_once, up

from gridloom.base.errors import InputError
from gridloom.runtime.wan.secure import contexts
from gridloom.runtime.wan.settings import TransportSettings


def written(authority: trustme.CA, directory: Path, name: str) -> TransportSettings:
    """Write the files of one site, and return settings that name them."""
    site = authority.issue_cert(name)
    files = {
        "certificate": directory / f"{name}.pem",
        "key": directory / f"{name}.key",
        "authority": directory / f"{name}-authority.pem",
    }
    files["certificate"].write_bytes(b"".join(blob.bytes() for blob in site.cert_chain_pems))
    files["key"].write_bytes(site.private_key_pem.bytes())
    files["authority"].write_bytes(authority.cert_pem.bytes())
    return dataclasses.replace(
        QUICK,
        certificate=str(files["certificate"]),
        key=str(files["key"]),
        authority=str(files["authority"]),
    )


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def test_certificates_of_one_authority_let_in(
    site: Open, authority: trustme.CA, tmp_path: Path
) -> None:
    south = site("south", {"north": None}, written(authority, tmp_path, "south"))
    north = site("north", {"south": south.transport.address}, written(authority, tmp_path, "north"))
    up(north)
    north.transport.send("south", b"there", BODY)
    north.transport.send("south", b"small")
    south.transport.send("north", b"back", BODY)
    assert sorted(south.received(2)) == [(b"small", b""), (b"there", BODY)]
    assert north.received() == [(b"back", BODY)]


def test_a_certificate_of_another_authority_does_not(
    site: Open, authority: trustme.CA, tmp_path: Path
) -> None:
    south = site("south", {"north": None}, written(authority, tmp_path, "south"))
    address = south.transport.address
    other = site("north", {"south": address}, written(trustme.CA(), tmp_path, "north"))
    plain = site("north", {"south": address})
    for stranger in (other, plain):
        assert facts_once(stranger, "south", lambda facts: facts.trouble).session == ""
    assert "certificate verify failed" in other.transport.links()["south"].trouble
    assert facts_once(south, "north", lambda _: south.transport.strangers >= 2).session == ""


def test_one_who_does_not_finish_the_handshake_is_hung_up_on(
    site: Open, authority: trustme.CA, tmp_path: Path
) -> None:
    impatient = dataclasses.replace(written(authority, tmp_path, "south"), silence_s=0.4)
    south = site("south", {"north": None}, impatient)
    assert south.transport.address
    with socket.create_connection(south.transport.address, timeout=WAIT_S) as sock:
        assert sock.recv(100) == b""


def test_without_files_there_is_no_tls() -> None:
    assert contexts(QUICK) is None


def test_files_that_are_missing_are_all_named(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    settings = TransportSettings(
        certificate=str(tmp_path / "none"), key=str(tmp_path), authority=str(tmp_path / "empty")
    )
    with pytest.raises(InputError) as caught:
        contexts(settings)
    assert [problem.field for problem in caught.value.problems] == [
        "certificate",
        "key",
        "authority",
    ]


def test_files_that_do_not_fit_are_told(authority: trustme.CA, tmp_path: Path) -> None:
    north = written(authority, tmp_path, "north")
    south = written(authority, tmp_path, "south")
    stranger = written(trustme.CA(), tmp_path, "stranger")
    text = tmp_path / "text.pem"
    text.write_text("not PEM")
    for wrong, message in (
        (dataclasses.replace(north, key=south.key), "KEY_VALUES_MISMATCH"),
        (dataclasses.replace(north, certificate=str(text)), "certificate or key"),
        (dataclasses.replace(north, authority=str(text)), "authority: cannot be used"),
        (dataclasses.replace(north, authority=stranger.authority), "does not stand up"),
    ):
        with pytest.raises(InputError, match=message):
            contexts(wrong)
