"""Files at a login host: whole or not at all, and gone on with where a link broke."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import asyncssh
import pytest
from tests.fakes.clock import FakeClock
from tests.fakes.login_host import LoginHost
from tests.fakes.remote_files import FakeFiles

from gridloom.sites.remote.errors import LinkDownError, LinkRefusedError, RemoteFileError
from gridloom.sites.remote.files import RemoteFiles, Status, Upload
from gridloom.sites.ssh import files as module

MIB = 1 << 20
CONTENT = bytes(range(256)) * 4096 * 10


@pytest.fixture(params=["over SSH", "fake"])
def files(request: pytest.FixtureRequest) -> RemoteFiles:
    """What is true of a login host's files, and must be of those that play them."""
    if request.param == "fake":
        return FakeFiles()
    host: LoginHost = request.getfixturevalue("host")
    return host.files()


@pytest.fixture
def there(tmp_path: Path) -> Path:
    place = tmp_path / "there"
    place.mkdir()
    return place


def upload(here: Path, there: Path) -> Upload:
    status = here.stat()
    return Upload(
        here=here, there=str(there), size=status.st_size, changed_s=int(status.st_mtime), mode=0o750
    )


def nobody(_: int) -> None:
    """Is told how far it has come."""


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def test_what_is_there_is_told(files: RemoteFiles, there: Path) -> None:
    (there / "a.txt").write_text("four")
    os.utime(there / "a.txt", (5, 7))
    (there / "link").symlink_to("a.txt")
    (there / "to nowhere").symlink_to("b")
    os.mkfifo(there / "pipe")
    file = Status(kind="file", size=4, changed_s=7)
    paths = [there / "a.txt", there / "link", there / "to nowhere", there / "a.txt" / "b"]
    assert files.statuses([*map(str, paths)]) == [file, file, None, None]
    found, missing = files.entries([str(there), f"{there}/nowhere"])
    assert missing is None
    assert found is not None
    assert {name: status.kind for name, status in found.items()} == {
        "a.txt": "file", "link": "link", "to nowhere": "link", "pipe": "other",
    }  # fmt: skip
    assert files.statuses([]) == []


def test_parts_of_files_are_read(files: RemoteFiles, there: Path) -> None:
    (there / "a").write_bytes(b"0123456789")
    parts = [(f"{there}/a", 4, 3), (f"{there}/b", 0, 9)]
    assert files.read(parts) == [b"456", b""]
    assert files.read([(f"{there}/a", 8, 100)]) == [b"89"]
    assert files.read([(f"{there}/a", 10, 100)]) == [b""]


def test_directories_are_made_as_deep_as_they_are_wanted(files: RemoteFiles, there: Path) -> None:
    wanted = [there / "a" / "b" / "c", there / "a" / "d", there / "a", there]
    for _ in range(2):
        files.make(map(str, wanted))
        assert all(path.is_dir() for path in wanted)


def test_no_directory_is_made_where_a_file_is(host: LoginHost, there: Path) -> None:
    (there / "file").touch()
    with pytest.raises(RemoteFileError, match=r"file/below at .* cannot be made"):
        host.files().make([f"{there}/file/below"])


def test_a_reader_sees_the_old_content_or_the_new(host: LoginHost, there: Path) -> None:
    files, path = host.files(), there / "lease.json"
    path.write_text("old")
    seen = []

    def look(verb: str, _: str) -> None:
        if verb == "write":
            seen.append(path.read_text())

    host.before = look
    files.write({str(path): b"new", f"{there}/other": b""})
    assert set(seen) == {"old"}
    assert path.read_text() == "new"
    assert names(there) == ["lease.json", "other"]


def test_a_write_that_is_cut_off_leaves_what_was_there(host: LoginHost, there: Path) -> None:
    clock = FakeClock()
    files, path = host.files(clock), there / "lease.json"
    path.write_text("old")
    host.before = cutting(host, "write", 1)
    with pytest.raises(LinkDownError):
        files.write({str(path): b"new"})
    assert path.read_text() == "old"
    host.start()
    clock.advance(1.0)
    files.write({str(path): b"new"})
    assert names(there) == ["lease.json"]
    assert path.read_text() == "new"


def cutting(host: LoginHost, what: str, after: int) -> Callable[[str, str], None]:
    """Return what has the host leave when something is done for the so-manieth time, once."""
    left = [after]

    def before(verb: str, _: str) -> None:
        if verb == what:
            left[0] -= 1
            if left[0] == 0:
                host.leave()

    return before


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK_BYTES", MIB)


@pytest.mark.usefixtures("chunks")
def test_an_upload_that_is_cut_off_goes_on_where_it_was(
    host: LoginHost, tmp_path: Path, there: Path
) -> None:
    clock = FakeClock()
    files, here = host.files(clock), tmp_path / "here"
    here.write_bytes(CONTENT)
    os.utime(here, (5, 1234))
    one = upload(here, there / "big")
    host.before = cutting(host, "write", 5)
    steps: list[int] = []
    with pytest.raises(LinkDownError):
        files.upload([one], steps.append)
    (part,) = names(there)
    assert part == f".big.{len(CONTENT)}-1234.part"
    assert not (there / "big").exists()
    assert 2 * MIB < sum(steps) < len(CONTENT)
    again: list[int] = []
    host.start()
    clock.advance(1.0)
    files.upload([one], again.append)
    assert sum(again) == len(CONTENT)
    assert again[0] >= sum(steps) - MIB, "no more than the last part is sent again"
    assert names(there) == ["big"]
    assert (there / "big").read_bytes() == CONTENT
    status = (there / "big").stat()
    assert (status.st_mtime, status.st_mode & 0o777) == (1234, 0o750)


@pytest.mark.usefixtures("chunks")
def test_a_download_that_is_cut_off_goes_on_where_it_was(
    host: LoginHost, tmp_path: Path, there: Path
) -> None:
    clock = FakeClock()
    files, here = host.files(clock), tmp_path / "here"
    (there / "big").write_bytes(CONTENT)
    host.before = cutting(host, "read", 5)
    steps: list[int] = []
    with pytest.raises(LinkDownError):
        files.download(f"{there}/big", here, steps.append)
    assert not here.exists()
    again: list[int] = []
    host.start()
    clock.advance(1.0)
    files.download(f"{there}/big", here, again.append)
    assert again[0] == sum(steps) > 0
    assert here.read_bytes() == CONTENT
    assert sorted(path.name for path in tmp_path.glob(".here*")) == []


@pytest.mark.usefixtures("chunks")
def test_a_file_that_changed_meanwhile_is_fetched_anew(
    host: LoginHost, tmp_path: Path, there: Path
) -> None:
    clock = FakeClock()
    files, here = host.files(clock), tmp_path / "here"
    (there / "big").write_bytes(CONTENT)
    host.before = cutting(host, "read", 5)
    with pytest.raises(LinkDownError):
        files.download(f"{there}/big", here, nobody)
    (there / "big").write_bytes(b"other")
    host.start()
    clock.advance(1.0)
    files.download(f"{there}/big", here, nobody)
    assert here.read_bytes() == b"other"
    with pytest.raises(RemoteFileError, match="any more"):
        files.download(f"{there}/gone", here, nobody)


def test_a_file_that_is_cut_short_meanwhile_is_told(
    host: LoginHost, tmp_path: Path, there: Path
) -> None:
    (there / "big").write_bytes(b"0123")

    def cut(verb: str, path: str) -> None:
        if verb == "read":
            os.truncate(path, 0)

    host.before = cut
    with pytest.raises(RemoteFileError, match="cut short meanwhile"):
        host.files().download(f"{there}/big", tmp_path / "here", nobody)


def test_a_server_that_does_not_tell_its_room_is_no_reason_to_worry(
    host: LoginHost, there: Path
) -> None:
    host.tells_room = False
    assert host.files().free_bytes(str(there)) is None
    host.before = raising(OSError(errno.EDQUOT, "Disk quota exceeded"))
    with pytest.raises(RemoteFileError, match="cannot be written"):
        host.files().write({f"{there}/a": b"1"})


def raising(error: OSError) -> Callable[[str, str], None]:
    def before(verb: str, _: str) -> None:
        if verb == "write":
            raise error

    return before


def test_many_small_files_are_as_they_are_here(
    files: RemoteFiles, tmp_path: Path, there: Path
) -> None:
    made = []
    for number in range(50):
        path = tmp_path / f"here-{number}"
        path.write_text(str(number))
        os.utime(path, (5, number))
        made.append(upload(path, there / str(number)))
    steps: list[int] = []
    files.upload(made, steps.append)
    assert sum(steps) == sum(one.size for one in made)
    assert all((there / str(n)).read_text() == str(n) for n in range(50))
    assert [(there / str(n)).stat().st_mtime for n in range(50)] == [*range(50)]
    assert len(names(there)) == 50


def test_links_are_made_in_place_of_what_is_there(files: RemoteFiles, there: Path) -> None:
    files.link({f"{there}/a": "b", f"{there}/c": "/nowhere"})
    files.link({f"{there}/a": "d"})
    assert (there / "a").readlink() == Path("d")
    files.remove([f"{there}/a", f"{there}/never"])
    assert names(there) == ["c"]


def test_files_and_directories_get_other_names(files: RemoteFiles, there: Path) -> None:
    (there / "new").mkdir()
    (there / "new" / "file").touch()
    files.rename(f"{there}/new", f"{there}/step-1")
    assert names(there / "step-1") == ["file"]
    with pytest.raises(RemoteFileError, match="step-2"):
        files.rename(f"{there}/nowhere", f"{there}/step-2")


def test_a_full_disk_is_told(host: LoginHost, there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(verb: str, _: str) -> None:
        if verb == "write":
            raise OSError(errno.ENOSPC, "No space left on device")

    files, host.before = host.files(), full
    with pytest.raises(RemoteFileError) as raised:
        files.write({f"{there}/a": b"1"})
    assert f"{there}/a at 127.0.0.1:{host.port} cannot be written" in raised.value.sentence
    assert "quota" in raised.value.remedy, "by what is free the disk is not full"
    monkeypatch.setattr(module, "_FULL_BYTES", 1 << 62)
    with pytest.raises(RemoteFileError, match="the disk is full; free space there"):
        files.write({f"{there}/a": b"1"})
    assert files.statuses([f"{there}/a"]) == [None]


def test_what_is_not_allowed_is_told_and_the_link_stays(host: LoginHost, there: Path) -> None:
    def denied(verb: str, path: str) -> None:
        if path.endswith("mine"):
            raise asyncssh.SFTPPermissionDenied("Permission denied")

    files, host.before = host.files(), denied
    with pytest.raises(RemoteFileError, match="cannot be read: permission denied"):
        files.read([(f"{there}/mine", 0, 1), (f"{there}/yours", 0, 1)])
    with pytest.raises(RemoteFileError, match="cannot be written: it is not there"):
        files.write({f"{there}/nowhere/a": b"1"})
    assert files.read([(f"{there}/yours", 0, 1)]) == [b""]
    assert host.logins == 1


def test_room_is_told_of_what_is_not_there_yet(files: RemoteFiles, there: Path) -> None:
    found = files.free_bytes(f"{there}/not/yet")
    assert found is not None
    assert found == pytest.approx(os.statvfs(there).f_bavail * os.statvfs(there).f_frsize, rel=0.1)


def test_a_host_without_files_says_what_it_lacks(host: LoginHost) -> None:
    host.stop()
    host.gives_files = False
    host.start()
    with pytest.raises(LinkRefusedError, match="gives no access to files") as raised:
        host.files().statuses(["/"])
    assert "Subsystem sftp" in raised.value.remedy
