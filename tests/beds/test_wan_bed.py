"""The emulated WAN: sites are as far apart as they were told to be, and nothing is left of it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.bed, pytest.mark.timeout(120)]

WAN = Path(__file__).parent / "wan"
PREFIX = "bedtest"
FAR = "* delay=20ms rate=100mbit"
# Nothing listens there: the refusal comes back after one round trip. The shortest of several, as
# the first also asks for the other's hardware address
RTT = """
import socket, sys, time
shortest = float("inf")
for _ in range(5):
    began = time.monotonic()
    try:
        socket.create_connection((sys.argv[1], 9), timeout=1.0)
    except ConnectionRefusedError:
        shortest = min(shortest, time.monotonic() - began)
    except OSError:
        break
print(shortest)
"""


def wan(script: str, *arguments: str) -> None:
    subprocess.run([WAN / script, *arguments], check=True, timeout=60)


def rtt_s(site: str, address: str) -> float:
    """Return the round trip; infinite where no answer comes."""
    command = ["ip", "netns", "exec", f"{PREFIX}-{site}", sys.executable, "-c", RTT, address]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    return float(done.stdout)


def namespaces() -> list[str]:
    done = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return [line.split()[0] for line in done.stdout.splitlines() if line.startswith(PREFIX)]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    wan("wan_down.sh", "--dir", str(tmp_path))


def test_far_sites_cut_and_joined_again(place: Path) -> None:
    here = ("--dir", str(place))
    wan("wan_up.sh", *here, "--sites", "a b", "--prefix", PREFIX, "--link", FAR)
    assert sorted(namespaces()) == [f"{PREFIX}-a", f"{PREFIX}-b", f"{PREFIX}-hub"]
    assert 0.040 <= rtt_s("a", "10.77.0.2") < 0.2
    hub = int((place / "hub.pid").read_text())

    wan("wan_up.sh", *here, "--link", FAR, "--link", "a b down")
    assert any(rtt_s("a", "10.77.0.2") == float("inf") for _ in range(10))  # soon, not at once
    assert rtt_s("b", "10.77.0.1") == float("inf")

    wan("wan_up.sh", *here, "--link", FAR)
    assert any(0.040 <= rtt_s("a", "10.77.0.2") < 0.2 for _ in range(10))

    wan("wan_down.sh", *here)
    assert namespaces() == []
    assert not Path(f"/proc/{hub}").exists()


def test_sites_on_one_switch_are_near(place: Path) -> None:
    here = ("--dir", str(place))
    wan("wan_up.sh", *here, "--sites", "a b", "--prefix", PREFIX, "--hub", "bridge")
    assert rtt_s("a", "10.77.0.2") < 0.03
    wan("wan_down.sh", *here)
    assert namespaces() == []
