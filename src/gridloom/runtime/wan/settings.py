"""How a site speaks to other sites: who it is, how many streams, caps and time windows, TLS."""

import dataclasses
import re
from collections.abc import Iterator, Mapping

from gridloom.base.errors import InputError, Problem
from gridloom.model.parallel import WAN_STREAMS

Address = tuple[str, int]  # host name or IP address, port

_TIME_OF_DAY = re.compile(r"([01]\d|2[0-3]):([0-5]\d)|24:00")
STREAMS_MAX = 16
_PORT_MAX = 65535
_CHUNK_BYTES_MIN = 1024
_CHUNK_BYTES_MAX = 16 * 1024**2


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """This site as the other sites meet it.

    Attributes:
        name: Name of the site.
        listen: Where to wait for others; ``None`` for a site that cannot be reached and dials all.
        token: The secret that all sites of the job share.
    """

    name: str
    listen: Address | None
    token: str = dataclasses.field(repr=False)

    def __post_init__(self) -> None:
        if not self.name:
            raise InputError([Problem("a site without a name", "name the site", field="name")])
        if not self.token:
            remedy = "give all sites of the job the same secret"
            raise InputError([Problem("the token is empty", remedy, field="token")])
        check_address(self.listen, "listen")


def check_address(address: Address | None, field: str) -> None:
    """Check where somebody listens.

    Raises:
        InputError: There is no host, or the port is none.
    """
    if address is not None and not (address[0] and 0 <= address[1] <= _PORT_MAX):
        remedy = f"a host name or an IP address, and a port from 0 to {_PORT_MAX}"
        raise InputError([Problem(f"{address} is no address", remedy, field=field)])


@dataclasses.dataclass(frozen=True)
class CapWindow:
    """A bandwidth cap for a part of the day, by local time, over midnight where it says so.

    Attributes:
        from_time: ``HH:MM``, first minute inside.
        to_time: ``HH:MM``, first minute outside; ``24:00`` for the end of the day.
        cap_bytes_per_s: 0 lets nothing but urgent messages and the transport's own out.
    """

    from_time: str
    to_time: str
    cap_bytes_per_s: float

    def __post_init__(self) -> None:
        problems = [
            Problem(f"{text!r} is not a time of day", "write HH:MM, as 22:30", field=field)
            for field, text in (("from_time", self.from_time), ("to_time", self.to_time))
            if not _TIME_OF_DAY.fullmatch(text)
        ]
        if not problems and self.from_time == self.to_time:
            remedy = "00:00 to 24:00 is the whole day"
            problems.append(Problem("the window is empty", remedy, field="to_time"))
        if not self.cap_bytes_per_s >= 0:
            remedy = "write 0 to send nothing, or bytes per second"
            problems.append(Problem("the cap is negative", remedy, field="cap_bytes_per_s"))
        if problems:
            raise InputError(problems)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransportSettings:
    """Settings of a transport; those of the site that dials decide how many streams a pair has.

    Attributes:
        streams: TCP connections a pair for bulk, from 1 to 16; one more carries small messages.
        chunk_bytes: Size of the pieces of a body, each sent over whichever stream is free.
        heartbeat_s: Seconds between signs of life.
        silence_s: A peer that is not heard for so long is down.
        connect_s: Seconds to wait for an answer to a call, before the next call.
        backoff_s_max: Longest pause between two calls.
        body_bytes_max: Largest body accepted.
        unread_bytes_max: Bulk is not read from the network while the caller has more bytes unread.
        cap_bytes_per_s: Bandwidth cap for each peer without one of its own; ``None`` for none.
        caps: Bandwidth caps of single peers, by name, bytes per second.
        windows: Caps by time of day; the first that fits counts, before all others.
        certificate: Path of this site's certificate chain (PEM); with `key` and `authority`, all
            connections are mutual TLS, and only holders of the authority's certificates get in.
        key: Path of the certificate's private key (PEM).
        authority: Path of the authority's certificate (PEM).

    Raises:
        InputError: A value is out of its range, or only a part of the TLS files is named.
    """

    streams: int = WAN_STREAMS
    chunk_bytes: int = 256 * 1024
    heartbeat_s: float = 0.5
    silence_s: float = 3.0
    connect_s: float = 2.0
    backoff_s_max: float = 0.5
    body_bytes_max: int = 16 * 1024**3
    unread_bytes_max: int = 4 * 1024**3
    cap_bytes_per_s: float | None = None
    caps: Mapping[str, float] = dataclasses.field(default_factory=dict)
    windows: tuple[CapWindow, ...] = ()
    certificate: str | None = None
    key: str | None = None
    authority: str | None = None

    def __post_init__(self) -> None:
        if problems := [*_out_of_range(self), *_half_tls(self)]:
            raise InputError(problems)

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.certificate is not None


def _out_of_range(settings: TransportSettings) -> Iterator[Problem]:
    ranges = (
        ("streams", settings.streams, 1, STREAMS_MAX),
        ("chunk_bytes", settings.chunk_bytes, _CHUNK_BYTES_MIN, _CHUNK_BYTES_MAX),
        ("heartbeat_s", settings.heartbeat_s, 0.01, 60.0),
        ("silence_s", settings.silence_s, 2 * settings.heartbeat_s, 3600.0),
        ("connect_s", settings.connect_s, 0.05, 60.0),
        ("backoff_s_max", settings.backoff_s_max, 0.01, 60.0),
        ("body_bytes_max", settings.body_bytes_max, 1, 2**48),
        ("unread_bytes_max", settings.unread_bytes_max, 1, 2**48),
    )
    for field, value, least, most in ranges:
        if not least <= value <= most:
            remedy = f"from {least} to {most}"
            yield Problem(f"{value} is out of range", remedy, field=field)
    caps = [("cap_bytes_per_s", settings.cap_bytes_per_s)]
    caps += [(f"caps.{peer}", cap) for peer, cap in sorted(settings.caps.items())]
    for field, cap in caps:
        if cap is not None and not cap >= 0:
            yield Problem(f"{cap} is no bandwidth", "write bytes per second", field=field)


def _half_tls(settings: TransportSettings) -> Iterator[Problem]:
    files = {
        "certificate": settings.certificate,
        "key": settings.key,
        "authority": settings.authority,
    }
    missing = [field for field, path in files.items() if path is None]
    if 0 < len(missing) < len(files):
        remedy = "TLS needs certificate, key and authority; name all three, or none"
        for field in missing:
            yield Problem("not given", remedy, field=field)
