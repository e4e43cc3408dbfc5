"""One connection is kept, and made anew when it breaks, without haste."""

import asyncio
import contextlib
import threading

import pytest
from tests.fakes.clock import FakeClock
from tests.fakes.login_host import LoginHost

from gridloom.base.system import SystemClock
from gridloom.sites.remote.errors import LinkDownError, LinkRefusedError
from gridloom.sites.remote.link import Done
from gridloom.sites.ssh.hosts import SshHosts
from gridloom.sites.ssh.link import SshLink

S = 10.0


def fails(link: SshLink) -> str:
    with pytest.raises(LinkDownError) as raised:
        link.run(["true"], timeout_s=S)
    return str(raised.value)


def test_commands_get_their_words_and_their_input_over_one_connection(host: LoginHost) -> None:
    link = host.link()
    words = ["printf", "%s|", "a b", "$HOME", "it's", "\x1f;*"]
    assert link.run(words, timeout_s=S).stdout == "a b|$HOME|it's|\x1f;*|"
    done = link.run(["sh", "-c", "cat; echo no >&2; exit 3"], "told", timeout_s=S)
    assert done == Done(code=3, stdout="told", stderr="no\n")
    assert link.run(["true"], "x" * 10_000_000, timeout_s=S).code == 0
    assert host.logins == 1


def test_a_command_that_a_signal_ended_has_not_succeeded(host: LoginHost) -> None:
    done = host.link().run(["sh", "-c", "exec 2>/dev/null; kill -9 $PPID"], timeout_s=S)
    assert (done.code, done.stderr) == (-1, "\nended by SIGKILL")


def test_calls_of_many_threads_share_a_connection(host: LoginHost) -> None:
    link, said = host.link(), list[str]()
    threads = [
        threading.Thread(
            target=lambda n=n: said.append(link.run(["echo", str(n)], timeout_s=S).stdout.strip())
        )
        for n in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said, key=int) == [str(n) for n in range(20)]
    assert host.logins == 1


def loops() -> int:
    return sum(thread.name == "ssh" for thread in threading.enumerate())


def test_who_has_looked_leaves(host: LoginHost) -> None:
    hosts, before = SshHosts(FakeClock()), loops()
    assert hosts.of(host.access()).link.run(["echo", "seen"], timeout_s=S).stdout == "seen\n"
    assert (host.open, loops()) == (1, before + 1)
    hosts.close()
    assert loops() == before
    while host.open:  # until it has heard of it
        SystemClock().sleep(0.01)


def test_a_link_that_was_cut_is_up_again_with_the_next_call(host: LoginHost) -> None:
    link = host.link()
    link.run(["true"], timeout_s=S)
    host.cut()
    with contextlib.suppress(LinkDownError):  # unless it was noticed by then
        link.run(["true"], timeout_s=S)
    assert link.run(["echo", "back"], timeout_s=S).stdout == "back\n"


def test_a_command_that_is_cut_off_has_said_nothing(
    host: LoginHost, tmp_path_factory: pytest.TempPathFactory
) -> None:
    link, begun = host.link(), tmp_path_factory.mktemp("run") / "begun"

    def cut() -> None:
        while not begun.exists():
            continue
        host.cut()

    threading.Thread(target=cut).start()
    with pytest.raises(LinkDownError):
        link.run(["sh", "-c", f"touch {begun}; sleep 20"], timeout_s=S)


def test_a_command_that_hangs_is_given_up_and_others_are_served(host: LoginHost) -> None:
    link = host.link()
    with pytest.raises(LinkDownError, match=r"sleep at 127\.0\.0\.1:\d+ has not answered for 0\.1"):
        link.run(["sleep", "20"], timeout_s=0.1)
    assert link.run(["echo", "well"], timeout_s=S).stdout == "well\n"
    assert host.logins == 1


def test_a_host_that_does_not_answer_at_all_is_given_up(host: LoginHost) -> None:
    link = host.link()
    link.run(["true"], timeout_s=S)

    async def never() -> None:
        await asyncio.Event().wait()

    with pytest.raises(LinkDownError, match=r"has not answered for 0\.1 s"):
        link.call(never, timeout_s=0.1)
    assert link.run(["echo", "again"], timeout_s=S).stdout == "again\n"
    assert host.logins == 2, "over a new connection"


def test_a_host_that_is_away_is_tried_less_and_less_often(host: LoginHost) -> None:
    clock = FakeClock()
    link = host.link(clock)
    host.stop()
    for wait_s in (1.0, 1.0, 2.0, 2.0, 4.0, 4.0):
        fails(link)
        host.start()
        clock.advance(wait_s - 0.5)
        fails(link)  # though it is back: nobody has looked
        host.stop()
        clock.advance(0.5)
    fails(link)
    host.start()
    clock.advance(8.0)
    assert link.run(["echo", "back"], timeout_s=S).stdout == "back\n"
    host.stop()
    fails(link)
    fails(link)
    clock.advance(1.0)
    host.start()
    assert link.run(["echo", "back"], timeout_s=S).stdout == "back\n", "soon, as at first"


def test_who_is_not_let_in_does_not_knock_often(host: LoginHost) -> None:
    clock = FakeClock()
    link = host.link(clock)
    known = host.known_hosts.read_text()
    host.known_hosts.write_text("")
    for wait_s in (10.0, 30.0, 60.0, 300.0, 300.0):
        with pytest.raises(LinkRefusedError):
            link.run(["true"], timeout_s=S)
        clock.advance(wait_s - 1.0)
        with pytest.raises(LinkRefusedError, match="known hosts"):
            link.run(["true"], timeout_s=S)
        clock.advance(1.0)
    host.known_hosts.write_text(known)
    assert link.run(["echo", "in"], timeout_s=S).stdout == "in\n"


def test_who_was_let_in_once_waits_to_be_let_in_again(host: LoginHost) -> None:
    link = host.link()
    link.run(["true"], timeout_s=S)
    host.known_hosts.write_text("")
    host.cut()
    fails(link)
    assert "is not among the known hosts" in fails(link)
    assert "ssh-keyscan" in fails(link)
