"""Single values of Slurm, in every way in which it tells them."""

import math
from typing import Any

import pytest

from gridloom.sites.slurm import values
from gridloom.sites.slurm.gres import gres
from gridloom.sites.slurm.records import ExitCode, Gres

SET = {"set": True, "infinite": False, "number": 7}
NOT_SET = {"set": False, "infinite": False, "number": 0}
INFINITE = {"set": False, "infinite": True, "number": 0}


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (7, 7),
        (1.5, 1.5),
        ("7", 7),
        (" -7 ", -7),
        ("1.5", 1.5),
        (SET, 7),
        (NOT_SET, None),
        (INFINITE, math.inf),
        ("UNLIMITED", math.inf),
        ("infinite", math.inf),
        (None, None),
        ("", None),
        ("N/A", None),
        (2**32 - 1, math.inf),
        (2**32 - 2, None),
        (2**64 - 1, math.inf),
        (2**64 - 2, None),
        (4294881265, 4294881265),  # a real priority
    ],
    ids=repr,
)
def test_numbers(value: object, number: float | None) -> None:
    assert values.number(value) == number


@pytest.mark.parametrize("value", ["seven", [], True, {"set": True, "number": "x"}])
def test_what_is_no_number(value: object) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        values.number(value)


def test_whole_numbers() -> None:
    assert values.integer(SET) == 7
    assert values.integer(INFINITE) is None
    assert (values.count(NOT_SET), values.count("3")) == (0, 3)
    assert (values.limit(-1), values.limit(4)) == (math.inf, 4)
    assert [values.minutes_s(v) for v in (60, -1, None, INFINITE)] == [
        3600,
        math.inf,
        None,
        math.inf,
    ]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("a", "a"),
        (" a ", "a"),
        ("(null)", ""),
        ("None", ""),
        (None, ""),
        (3, "3"),
        (True, ""),
        ([], ""),
    ],
    ids=repr,
)
def test_text(value: object, said: str) -> None:
    assert values.text(value) == said


def test_words() -> None:
    assert values.words("a,b") == values.words(["a", "b", ""]) == ("a", "b")
    assert values.words("(null)") == values.words(None) == ()
    assert values.hosts("n[1-2],x") == values.hosts(["n[1-2]", "x"]) == ("n1", "n2", "x")
    assert values.hosts("None assigned") == ()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (1795959493, 1795959493),
        ("1795959493", 1795959493),
        ("2026-11-29T13:38:13", 1795959493),
        ("2026-11-29T14:38:13+01:00", 1795959493),
        (0, None),
        ("Unknown", None),
        ("None", None),
        (NOT_SET, None),
        (INFINITE, None),
    ],
    ids=repr,
)
def test_times(value: object, seconds: float | None) -> None:
    assert values.time_s(value) == seconds


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("30", 1800),
        ("1:30", 90),
        ("5:00", 300),
        ("01:00:00", 3600),
        ("1-12", 129600),
        ("2-00:30", 174600),
        ("1:0:0", 3600),
        ("90:5", 5405),
        ("1-2:3:4", 93784),
        ("3-00:00:00", 259200),
        ("UNLIMITED", math.inf),
        ("Partition_Limit", None),
        ("NOT_SET", None),
        ("", None),
    ],
    ids=repr,
)
def test_durations(value: str, seconds: float | None) -> None:
    assert values.duration_s(value) == seconds


@pytest.mark.parametrize(
    ("value", "mib"),
    [
        ("64M", 64),
        ("3G", 3072),
        ("1.5T", 1572864),
        ("2000", 2000),
        (2000, 2000),
        ("1GB", 1024),
        ("512K", 0),
        ("", None),
        (None, None),
        (SET, 7),
    ],
    ids=repr,
)
def test_memory(value: object, mib: int | None) -> None:
    assert values.memory_mib(value) == mib


@pytest.mark.parametrize(
    ("value", "devices"),
    [
        ("gpu:h100:8", [("gpu", "h100", 8, ())]),
        ("gpu:8", [("gpu", "", 8, ())]),
        ("gpu", [("gpu", "", 1, ())]),
        ("gpu:h100", [("gpu", "h100", 1, ())]),
        ("gres:gpu:h100:4", [("gpu", "h100", 4, ())]),
        ("gres/gpu:h100=4", [("gpu", "h100", 4, ())]),
        ("gpu:h100:4(IDX:0-1,3,5)", [("gpu", "h100", 4, (0, 1, 3, 5))]),
        ("gpu:h100:0(IDX:N/A)", [("gpu", "h100", 0, ())]),
        ("gpu:a:2(S:0-1),nic:1", [("gpu", "a", 2, ()), ("nic", "", 1, ())]),
        ("gpu:a:1(IDX:0,2),gpu:b:1(IDX:3)", [("gpu", "a", 1, (0, 2)), ("gpu", "b", 1, (3,))]),
        ("gpu:(null):2(IDX:0-1)", [("gpu", "", 2, (0, 1))]),
        ("shard:4(1/4,0/4)", [("shard", "", 4, ())]),
        ("bandwidth:lustre:no_consume:4K", [("bandwidth", "lustre", 4096, ())]),
        ("(null)", []),
        (["gpu:h100:2", "nic:1"], [("gpu", "h100", 2, ()), ("nic", "", 1, ())]),
    ],
    ids=repr,
)
def test_devices(value: object, devices: list[tuple[str, str, int, tuple[int, ...]]]) -> None:
    found = [Gres(name=n, type=t, count=c, indices=i) for n, t, c, i in devices]
    assert gres(value) == tuple(found)


@pytest.mark.parametrize(
    ("value", "exit_code"),
    [
        ("3:0", ExitCode(code=3)),
        ("0:15", ExitCode(signal=15)),
        (768, ExitCode(code=3)),
        (15, ExitCode(signal=15)),
        (None, None),
        ("", None),
        ({"status": "SUCCESS", "return_code": 0}, ExitCode()),
        ({"return_code": 0, "signal": {"signal_id": 9, "name": "KILL"}}, ExitCode(signal=9)),
        ({"return_code": SET, "signal": {"id": NOT_SET, "name": ""}}, ExitCode(code=7)),
        ({"return_code": NOT_SET, "signal": {"id": SET}}, ExitCode(signal=7)),
    ],
    ids=repr,
)
def test_exit_codes(value: object, exit_code: ExitCode | None) -> None:
    assert values.exit_code(value) == exit_code


@pytest.mark.parametrize(
    ("read", "value", "said"),
    [
        (values.time_s, "yesterday", "is not a time"),
        (values.duration_s, "soon", "is not a duration"),
        (values.duration_s, "1:2:3:4", "is not a duration"),
        (gres, "gpu:8(S:0", "is not a device"),
        (gres, "gpu h100", "is not a device"),
        (values.exit_code, "3", "is not an exit code"),
        (values.memory_mib, "lots", "is not a number"),
    ],
    ids=lambda value: getattr(value, "__name__", repr(value)),
)
def test_what_cannot_be_read(read: Any, value: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read(value)
