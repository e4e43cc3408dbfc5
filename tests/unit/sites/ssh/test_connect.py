"""Whom a login host is taken for, whom it lets in, and what helps where it does not."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from tests.fakes.login_host import LoginHost

from gridloom.sites.remote.errors import LinkDownError, LinkRefusedError, RemoteError
from gridloom.sites.ssh import connect


def said(host: LoginHost, /, **more: Any) -> RemoteError:
    with pytest.raises(RemoteError) as raised:
        host.link(**more).run(["true"], timeout_s=5.0)
    return raised.value


def test_a_host_that_is_not_known_is_not_spoken_with(host: LoginHost) -> None:
    host.known_hosts.write_text("")
    error = said(host)
    assert isinstance(error, LinkRefusedError)
    assert f"127.0.0.1:{host.port} is not among the known hosts" in error.sentence
    assert "ssh-ed25519 SHA256:" in error.sentence
    assert f"ssh-keyscan -p {host.port} 127.0.0.1 >> {host.known_hosts}" in error.remedy
    assert host.logins == 0


def test_a_host_with_another_key_than_before_may_be_another(host: LoginHost) -> None:
    known = host.known_hosts.read_text()
    host.stop()
    host.change_key()
    host.start()
    host.known_hosts.write_text(known)
    error = said(host)
    assert isinstance(error, LinkRefusedError)
    assert "has another key than the one in" in error.sentence
    assert f"ssh-keygen -R '[127.0.0.1]:{host.port}' -f {host.known_hosts}" in error.remedy


def test_a_key_that_was_taken_back_is_told(host: LoginHost) -> None:
    known = host.known_hosts.read_text()
    host.known_hosts.write_text(f"{known}@revoked {known}")
    error = said(host)
    assert isinstance(error, LinkRefusedError)
    assert "cannot be told from another host" in error.sentence


def test_a_key_that_is_not_accepted_is_told_and_nobody_is_asked(
    host: LoginHost, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(other)
    error = said(host, key_file=str(other))
    assert isinstance(error, LinkRefusedError)
    assert "does not let us in" in error.sentence
    assert f"ssh-copy-id -p {host.port} me@127.0.0.1" in error.remedy
    assert str(other) in error.remedy


def test_a_key_with_a_passphrase_is_left_to_the_agent(host: LoginHost, tmp_path: Path) -> None:
    shut = tmp_path / "shut"
    key = asyncssh.generate_private_key("ssh-rsa", key_size=1024)
    key.write_private_key(shut, "pkcs8-pem", passphrase="secret")
    assert "`ssh-add`" in said(host, key_file=str(shut)).remedy


def test_a_file_that_is_no_key_is_named(host: LoginHost, tmp_path: Path) -> None:
    assert "/nowhere/id cannot be read: No such file" in said(host, key_file="/nowhere/id").sentence
    rubbish = tmp_path / "rubbish"
    rubbish.write_text("rubbish")
    error = said(host, key_file=str(rubbish))
    assert isinstance(error, LinkRefusedError)
    assert "key_file" in error.remedy


def test_the_users_configuration_counts_and_what_the_site_says_counts_more(
    host: LoginHost, home: Path
) -> None:
    config = home / ".ssh" / "config"
    config.write_text(
        f"Host hpc\n  HostName 127.0.0.1\n  Port {host.port}\n  User me\n"
        f"  IdentityFile {host.key_file}\n  UserKnownHostsFile {host.known_hosts}\n"
    )
    alias: dict[str, Any] = {
        "host": "hpc",
        "port": 0,
        "user": "",
        "key_file": "",
        "known_hosts": "",
    }
    assert host.link(**alias).run(["echo", "in"], timeout_s=5.0).stdout == "in\n"
    assert isinstance(said(host, **alias | {"port": 1}), LinkDownError)
    config.write_text("Host hpc\n  Port many\n")
    error = said(host, **alias)
    assert isinstance(error, LinkRefusedError)
    assert "~/.ssh/config cannot be used" in error.sentence


def test_the_usual_key_is_tried_where_none_is_named(host: LoginHost, home: Path) -> None:
    (home / ".ssh" / "id_ed25519").write_bytes(host.key_file.read_bytes())
    assert host.link(key_file="").run(["echo", "in"], timeout_s=5.0).stdout == "in\n"


def test_a_host_that_is_not_there_may_be_back(host: LoginHost) -> None:
    host.stop()
    error = said(host)
    assert isinstance(error, LinkDownError)
    assert str(error) == f"127.0.0.1:{host.port} is not reached: Connection refused"
    error = said(host, host="login.invalid", port=22)
    assert isinstance(error, LinkDownError)
    assert "login.invalid is not reached: no such host is found" in error.sentence


@contextmanager
def answering(what: Callable[[socket.socket], object]) -> Iterator[int]:
    """Listen as something that is no SSH server; give the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError), server.accept()[0] as connection:
                what(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_server_that_hangs_up_may_be_back(host: LoginHost) -> None:
    with answering(lambda connection: None) as port:
        error = said(host, port=port)
    assert isinstance(error, LinkDownError)
    assert error.sentence.startswith(f"127.0.0.1:{port} is not reached: ")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (asyncssh.DISC_TOO_MANY_CONNECTIONS, LinkDownError),
        (asyncssh.DISC_PROTOCOL_ERROR, LinkRefusedError),
    ],
)
def test_a_server_that_ends_it_says_why(
    host: LoginHost, code: int, kind: type[RemoteError]
) -> None:
    def leave(connection: socket.socket) -> None:
        text = b"too many"
        body = b"\x01" + struct.pack(">I", code) + struct.pack(">I", len(text)) + text + bytes(4)
        pad = 16 - (len(body) + 5) % 8
        packet = struct.pack(">IB", len(body) + pad + 1, pad) + body + bytes(pad)
        connection.sendall(b"SSH-2.0-test\r\n" + packet)
        connection.recv(1 << 16)

    with answering(leave) as port:
        error = said(host, port=port)
    assert type(error) is kind
    assert "too many" in error.sentence


def test_a_server_that_says_nothing_is_given_up(
    host: LoginHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "_CONNECT_S", 0.1)
    silence = threading.Event()
    with answering(lambda connection: silence.wait(5.0)) as port:
        error = said(host, port=port)
        silence.set()
    assert isinstance(error, LinkDownError)
    assert error.sentence == f"127.0.0.1:{port} has not answered for 0.1 s"


def test_a_name_that_cannot_be_one_is_told(host: LoginHost) -> None:
    error = said(host, user="me\x07")
    assert isinstance(error, LinkRefusedError)
    assert "cannot be asked" in error.sentence
