#!/usr/bin/env python3
"""Delay, shape, drop and forward Ethernet frames between the ports of a WAN.

Runs in the hub namespace that wan_up.sh makes, for kernels without the netem
queueing discipline.  Every site is one port (a veth end without an address);
frames pass from port to port through this process, which gives each ordered
pair of sites a link of its own: a one-way delay, a rate with a drop-tail queue,
jitter that never reorders, and random loss.

The link file is read at the start and again on SIGHUP, so a test can change or
cut a link while traffic flows.  One line a link, for both directions unless the
arrow says otherwise; later lines win:

    *      delay=20ms rate=1gbit
    a b    delay=5ms rate=10gbit loss=0.1%
    a>c    down

Counters go to the statistics file once a second.

`--batch 1ms` sleeps so long between two looks at the ports: frames are up to that late, and the
process needs half the CPU.

Frames may be larger than the MTU (segments that TCP offload has not cut yet);
they pass whole.  Loss is drawn per segment, but takes the frame.
"""

import argparse
import contextlib
import heapq
import json
import os
import random
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
ETH_P_ALL = 3
VNET_HDR = 10  # struct virtio_net_hdr before each frame
FRAME_MAX = VNET_HDR + 14 + 65536 + 64
SEGMENT_OVERHEAD = 66  # headers that each further segment of a frame repeats
MIN_QUEUE = 512 * 1024

UNITS: dict[str, dict[str, float]] = {
    "delay": {"s": 1.0, "ms": 1e-3, "us": 1e-6},
    "rate": {"gbit": 1e9, "mbit": 1e6, "kbit": 1e3, "bit": 1.0},
    "queue": {"gb": 1 << 30, "mb": 1 << 20, "kb": 1 << 10, "b": 1},
    "loss": {"%": 0.01},
}
UNITS["jitter"] = UNITS["delay"]


Pair = tuple[str, str]


@dataclass(frozen=True)
class Shape:
    """What one direction between two sites is like; see the units in ``UNITS``."""

    delay: float = 0.0
    jitter: float = 0.0
    rate: float = 0.0
    loss: float = 0.0
    queue: float | None = None
    down: bool = False


def quantity(kind: str, text: str) -> float:
    for unit, factor in sorted(UNITS[kind].items(), key=lambda u: -len(u[0])):
        if text.endswith(unit):
            return float(text[: -len(unit)]) * factor
    raise ValueError(f"{kind}={text}: wants a unit of {', '.join(UNITS[kind])}")


class Link:
    """One direction between two sites."""

    def __init__(self) -> None:
        self.busy_until = self.last_due = 0.0
        self.frames = self.bytes = self.lost = self.overrun = 0
        self.shape(Shape())

    def shape(self, shape: Shape) -> None:
        self.delay, self.jitter, self.rate = shape.delay, shape.jitter, shape.rate
        self.loss, self.down = shape.loss, shape.down
        # As much as the link carries in one round trip, which lets TCP fill it.
        filling = max(MIN_QUEUE, shape.rate / 8 * 2 * shape.delay)
        self.queue = filling if shape.queue is None else shape.queue

    def due(self, now: float, size: int, segments: int) -> float | None:
        """When a frame that arrives now comes out at the far end; None if never."""
        if self.down or (self.loss and random.random() > (1 - self.loss) ** segments):
            self.lost += 1
            return None
        if self.rate:
            start = max(now, self.busy_until)
            if (start - now) * self.rate / 8 > self.queue:
                self.overrun += 1
                return None
            self.busy_until = now = start + size * 8 / self.rate
        when = now + self.delay
        if self.jitter:
            when += random.uniform(0, self.jitter)
        self.last_due = when = max(when, self.last_due)
        self.frames += 1
        self.bytes += size
        return when


def read_links(path: str, sites: Sequence[str]) -> dict[Pair, Shape]:
    """The shape of every ordered pair, from a link file."""
    shapes = {(a, b): Shape() for a in sites for b in sites if a != b}
    with open(path) as lines:
        for line in lines:
            words = line.split("#")[0].split()
            if not words:
                continue
            settings = [word for word in words if word == "down" or "=" in word]
            ends = [word for word in words if word not in settings]
            for pair in pairs_named(path, line, ends, shapes):
                shapes[pair] = shaped(path, shapes[pair], settings)
    return shapes


def pairs_named(path: str, line: str, ends: list[str], shapes: dict[Pair, Shape]) -> list[Pair]:
    """The ordered pairs that a line is for."""
    if ends == ["*"]:
        return list(shapes)
    if len(ends) == 1 and ends[0].count(">") == 1:
        one, other = ends[0].split(">")
        pairs = [(one, other)]
    elif len(ends) == 2:
        one, other = ends
        pairs = [(one, other), (other, one)]
    else:
        raise ValueError(f"{path}: cannot tell the sites in: {line.strip()}")
    for pair in pairs:
        if pair not in shapes:
            raise ValueError(f"{path}: no such pair of sites: {' '.join(pair)}")
    return pairs


def shaped(path: str, before: Shape, settings: list[str]) -> Shape:
    """The shape that a line makes of one; `down` keeps nothing of it."""
    shape = Shape(down=True) if "down" in settings else before
    for setting in settings:
        key, _, value = setting.partition("=")
        if setting != "down" and key not in UNITS:
            raise ValueError(f"{path}: no setting is called {key}")
        if setting != "down":
            number: Any = quantity(key, value)
            shape = replace(shape, **{key: number})
    return shape


class Port:
    def __init__(self, interface: str) -> None:
        s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        s.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
        s.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        for option in (SO_SNDBUFFORCE, SO_RCVBUFFORCE):
            s.setsockopt(socket.SOL_SOCKET, option, 64 << 20)
        s.bind((interface, ETH_P_ALL))
        s.setblocking(False)
        self.socket = s


class Hub:
    def __init__(
        self, sites: list[str], link_file: str, stats_file: str, batch: float = 0.0
    ) -> None:
        self.sites, self.link_file, self.stats_file = sites, link_file, stats_file
        self.batch = batch
        self.ports = [Port(f"to-{site}") for site in sites]
        self.links = {(a, b): Link() for a in sites for b in sites if a != b}
        self.pending: list[tuple[float, int, int, bytes]] = []  # heap of (due, number, port, frame)
        self.number = 0
        self.reload = True

    def load(self) -> None:
        self.reload = False
        try:
            shapes = read_links(self.link_file, self.sites)
        except (OSError, ValueError) as error:
            sys.stderr.write(f"wan_link: links stay as they were: {error}\n")
            sys.stderr.flush()
            return
        for pair, shape in shapes.items():
            self.links[pair].shape(shape)

    def write_stats(self) -> None:
        stats = {
            f"{a}>{b}": {key: getattr(link, key) for key in ("frames", "bytes", "lost", "overrun")}
            for (a, b), link in self.links.items()
        }
        with open(self.stats_file + ".new", "w") as out:
            json.dump(stats, out, indent=1)
        os.replace(self.stats_file + ".new", self.stats_file)

    def receive(self, source: int) -> None:
        port = self.ports[source]
        for _ in range(64):  # so that one port cannot starve the others
            try:
                frame = port.socket.recv(FRAME_MAX)
            except BlockingIOError:
                return
            segments, size = 1, len(frame) - VNET_HDR
            gso_type, gso_size = frame[1], int.from_bytes(frame[4:6], sys.byteorder)
            if gso_type and gso_size:
                segments = -(-size // gso_size)
                size += (segments - 1) * SEGMENT_OVERHEAD
            mac = frame[VNET_HDR : VNET_HDR + 6]
            if mac[0] & 1:  # broadcast or multicast
                targets = [i for i in range(len(self.ports)) if i != source]
            else:  # wan_up.sh numbers the sites in the last byte
                known = 1 <= mac[5] <= len(self.ports) and mac[5] - 1 != source
                targets = [mac[5] - 1] if known else []
            now = time.monotonic()
            for target in targets:
                when = self.links[self.sites[source], self.sites[target]].due(now, size, segments)
                if when is not None:
                    self.number += 1
                    heapq.heappush(self.pending, (when, self.number, target, frame))

    def deliver(self) -> None:
        pending = self.pending
        while pending and pending[0][0] <= time.monotonic():
            _, _, target, frame = heapq.heappop(pending)
            with contextlib.suppress(OSError):  # as at a full interface: the frame is gone
                self.ports[target].socket.send(frame)

    def run(self) -> None:
        by_fd = {port.socket.fileno(): i for i, port in enumerate(self.ports)}
        next_stats = 0.0
        while True:
            if self.reload:
                self.load()
            if self.batch:
                time.sleep(self.batch)
            now = time.monotonic()
            if now >= next_stats:
                self.write_stats()
                next_stats = now + 1
            wake = min(self.pending[0][0], next_stats) if self.pending else next_stats
            readable, _, _ = select.select(by_fd, (), (), max(0.0, wake - now))
            self.deliver()
            for fd in readable:
                self.receive(by_fd[fd])
                self.deliver()


def main() -> None:
    parser = argparse.ArgumentParser(description="Forward frames between the ports of a WAN.")
    parser.add_argument("--links", required=True)
    parser.add_argument("--stats", required=True)
    parser.add_argument("--batch", default="0ms")
    parser.add_argument("sites", nargs="+")
    args = parser.parse_args()
    read_links(args.links, args.sites)  # a mistake at the start is fatal
    hub = Hub(args.sites, args.links, args.stats, quantity("delay", args.batch))

    def ask_reload(*_: object) -> None:
        hub.reload = True

    signal.signal(signal.SIGHUP, ask_reload)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    hub.run()


if __name__ == "__main__":
    main()
