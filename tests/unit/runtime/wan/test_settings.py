"""What cannot be is refused with every problem at once."""

from typing import Any

import pytest

from gridloom.base.errors import InputError
from gridloom.runtime.wan.settings import CapWindow, Endpoint, TransportSettings


def test_usual_settings_are_sound() -> None:
    assert not TransportSettings().tls
    assert TransportSettings(certificate="c", key="k", authority="a").tls


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"streams": 0}, ["streams: 0 is out of range; from 1 to 16"]),
        ({"streams": 17, "chunk_bytes": 5}, ["streams: 17", "chunk_bytes: 5"]),
        ({"silence_s": 0.7}, ["silence_s: 0.7 is out of range; from 1.0 to"]),
        ({"cap_bytes_per_s": -1.0}, ["cap_bytes_per_s: -1.0 is no bandwidth"]),
        ({"caps": {"b": float("nan"), "a": -2.0}}, ["caps.a: -2.0", "caps.b: nan"]),
        ({"key": "k"}, ["certificate: not given; TLS needs", "authority: not given"]),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        TransportSettings(**wrong)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("from_time", "to_time", "cap", "word"),
    [
        ("8:00", "09:00", 0.0, "'8:00' is not a time of day"),
        ("08:00", "25:00", 0.0, "'25:00' is not a time of day"),
        ("08:00", "08:00", 0.0, "the window is empty"),
        ("08:00", "09:00", -1.0, "the cap is negative"),
    ],
)
def test_wrong_windows_are_refused(from_time: str, to_time: str, cap: float, word: str) -> None:
    with pytest.raises(InputError, match=word):
        CapWindow(from_time, to_time, cap)


def test_an_endpoint_needs_a_name_and_a_token_that_is_not_shown() -> None:
    with pytest.raises(InputError, match="a site without a name"):
        Endpoint("", None, "secret")
    with pytest.raises(InputError, match="the token is empty"):
        Endpoint("north", None, "")
    assert "secret" not in repr(Endpoint("north", None, "secret"))
