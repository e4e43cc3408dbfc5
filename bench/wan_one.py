"""One peer on one bed: what its ranks print, and a summary of it.

    python -m bench.wan_one PEER [--link '* delay=20ms rate=100mbit'] [--cores 0,1] [-- OPTIONS]

Without ``--link`` there is no WAN between the sites. What stands behind ``--`` goes to the peer
(``python -m bench.wan_peers.ddp --help``). Needs root; torchft and hivemind need
``bench/wan_peers/setup.sh`` to have been run.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.wan_bed import PATH, ROOT, Bed

PEERS: dict[str, tuple[str, ...]] = {
    "alone": ("alone",),
    "ddp": ("ddp",),
    "ddp-fp16": ("ddp", "--hook", "fp16"),
    "ddp-powersgd": ("ddp", "--hook", "powersgd"),
    "torchft-local-sgd": ("torchft_local_sgd",),
    "torchft-diloco": ("torchft_diloco",),
    "torchft-streaming": (
        "torchft_diloco", "--sync-every", "30", "--fragments", "6", "--delay", "4",
        "--alpha", "0.5",
    ),
    "hivemind-local": ("hivemind_local",),
    "gridloom": ("gridloom_sync",),
    "gridloom-stages": ("gridloom_stages",),
}  # fmt: skip
"""By name: the module in ``bench/wan_peers``, and the options that make it this peer."""

PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"


@dataclass
class Outcome:
    """What the ranks of a run have printed.

    Attributes:
        windows: Lines of windows by rank, in order.
        ends: The last line of each rank that came to its end.
        codes: Exit codes by rank; ``None``: killed for the time limit.
        complaint: The end of what a rank that failed wrote.
    """

    windows: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    ends: dict[int, dict[str, Any]] = field(default_factory=dict)
    codes: list[int | None] = field(default_factory=list)
    complaint: str = ""

    @property
    def bits_per_byte(self) -> float | None:
        """On the held-out text, the mean over the ranks' weights."""
        lines = [line for line in self.ends.values() if "nats" in line]
        count = sum(line["held_out_bytes"] for line in lines)
        return sum(line["nats"] for line in lines) / 0.6931471805599453 / count if count else None

    def tokens_per_s(self) -> list[float]:
        """Of all ranks together, window by window; the first, which warms up, left out."""
        rows = zip(*self.windows.values(), strict=False)
        return [sum(line["tokens"] / line["seconds"] for line in row) for row in rows][1:]

    def bytes_per_token(self) -> float:
        """Sent by all ranks' interfaces for a token of all ranks, the first windows left out."""
        lines = [line for rank in self.windows.values() for line in rank[1:]]
        return sum(line["sent_bytes"] for line in lines) / max(1, sum(w["tokens"] for w in lines))


def installed(peer: str) -> str:
    """Return why a peer cannot run here; nothing if it can."""
    module = PEERS[peer][0].partition("_")[0]
    if module not in ("torchft", "hivemind"):
        return ""
    if not PEERS_PYTHON.is_file():
        return "bench/wan_peers/setup.sh has not been run"
    done = subprocess.run(
        [PEERS_PYTHON, "-c", f"import {module}"], capture_output=True, text=True, check=False
    )
    return done.stderr.strip().rpartition("\n")[2] if done.returncode else ""


def run_peer(
    bed: Bed, peer: str, options: Sequence[str], cores: Sequence[int | None], limit_s: float
) -> Outcome:
    """Run a peer to its end, or until the limit; the bed stays up."""
    module, *fixed = PEERS[peer]
    python = PEERS_PYTHON if PEERS_PYTHON.is_file() else Path(sys.executable)
    processes = bed.start_ranks(
        [str(python), "-m", f"bench.wan_peers.{module}", *fixed, *options],
        cores=cores,
        environment={"PYTHONPATH": PATH},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    outcome = Outcome()
    errors = [""] * len(processes)
    readers = []
    for rank, process in enumerate(processes):
        outcome.windows[rank] = []
        for read in (_read_lines, _read_errors):
            reader = threading.Thread(target=read, args=(process, rank, outcome, errors))
            reader.start()
            readers.append(reader)
    until_s = time.monotonic() + limit_s
    for process in processes:
        try:
            outcome.codes.append(process.wait(max(0.1, until_s - time.monotonic())))
        except subprocess.TimeoutExpired:
            outcome.codes.append(None)
    for process in processes:
        bed.kill(process)
    for reader in readers:
        reader.join()
    bad = [rank for rank, code in enumerate(outcome.codes) if code != 0]
    outcome.complaint = "\n".join(errors[rank][-3000:] for rank in bad)
    return outcome


def _read_lines(
    process: "subprocess.Popen[str]", rank: int, outcome: Outcome, errors: list[str]
) -> None:
    for text in process.stdout or ():
        try:
            line = json.loads(text)
        except ValueError:  # a library's own talk
            errors[rank] += text
            continue
        if line.get("kind") == "window":
            outcome.windows[rank].append(line)
        elif line.get("kind") == "end":
            outcome.ends[rank] = line


def _read_errors(
    process: "subprocess.Popen[str]", rank: int, outcome: Outcome, errors: list[str]
) -> None:
    for text in process.stderr or ():
        errors[rank] += text


def main() -> int:
    """Print every window and a summary; 1 when a rank failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("peer", choices=tuple(PEERS))
    parser.add_argument("--sites", default="a,b")
    parser.add_argument("--link", action="append", default=[])
    parser.add_argument("--cores", default="0,1", help="one a site")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds")
    words = sys.argv[1:]
    border = words.index("--") if "--" in words else len(words)
    args, options = parser.parse_args(words[:border]), words[border + 1 :]
    if why := installed(args.peer):
        print(f"{args.peer}: left out: {why}")
        return 0
    cores = [int(core) for core in args.cores.split(",")]
    with Bed(args.sites.split(","), args.link) as bed:
        outcome = run_peer(bed, args.peer, options, cores, args.limit)
        hub_s, load = bed.hub_cpu_s(), os.getloadavg()[0]
    for lines in zip(*outcome.windows.values(), strict=False):
        speed = sum(line["tokens"] / line["seconds"] for line in lines)
        loss = statistics.mean(line["loss"] for line in lines)
        seconds = " ".join(f"{line['seconds']:6.1f}" for line in lines)
        sent = sum(line["sent_bytes"] for line in lines) / 1e6
        print(
            f"  {lines[0]['window']:3} {seconds} s {speed:7.0f} tokens/s {sent:8.2f} MB "
            f"loss {loss:.4f}"
        )
    speeds = outcome.tokens_per_s()
    print(
        f"{args.peer}: {statistics.median(speeds) if speeds else 0:.0f} tokens/s, "
        f"{outcome.bytes_per_token():.1f} bytes a token, bits a byte {outcome.bits_per_byte}, "
        f"hub {hub_s:.1f} s, exit codes {outcome.codes}, load {load:.1f}"
    )
    if outcome.complaint:
        print(outcome.complaint, file=sys.stderr)
    return 0 if set(outcome.codes) == {0} else 1


if __name__ == "__main__":
    raise SystemExit(main())
