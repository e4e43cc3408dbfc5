"""A site behind a login host: a real sshd and a real Slurm that see nothing of a desk's files.

They run in a mount namespace of their own, in which the desk's directory is an empty file system.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from bench.wan_bed import PATH
from tests.beds.test_slurm import SLURM

SERVER = "openssh-server"
CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {place}/host_key
PidFile {place}/sshd.pid
AuthorizedKeysFile {place}/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
Subsystem sftp internal-sftp
SetEnv HOME={place}
"""
"""A home without start-up files of a shell: what they do would be done before each command."""


class FarSite:
    """One site: its login host at ``port``, its Slurm from ``port + 10`` on."""

    def __init__(self, place: Path, name: str, port: int, desk: Path) -> None:
        self.place, self.name, self.port, self.desk = place / name, name, port, desk
        self.scratch = self.place / "scratch"
        for path in (self.place, self.scratch):
            path.mkdir(parents=True, exist_ok=True)
        self._install()
        self._keys()
        self._up = [
            str(SLURM / "slurm_up.sh"), "--dir", str(self.place / "slurm"), "--name", name,
            "--base-port", str(port + 10), "--nodes", "4", "--gpus-per-node", "0",
            "--cpus-per-node", "4", "--no-rest", "--grace", "10",
        ]  # fmt: skip

    @property
    def conf(self) -> str:
        return str(self.place / "slurm" / "etc" / "slurm.conf")

    @property
    def pid(self) -> int:
        return int((self.place / "sshd.pid").read_text())

    def start(self) -> None:
        """Start what does not run."""
        self._inside(*self._up)
        self.listen()

    def listen(self) -> None:
        """Start sshd."""
        self._inside("/usr/sbin/sshd", "-f", str(self.place / "sshd_config"))
        until_s = time.monotonic() + 10.0
        while not (self.place / "sshd.pid").exists():
            assert time.monotonic() < until_s, "sshd does not come up"
            time.sleep(0.02)

    def leave(self) -> None:
        """Kill sshd with all its connections."""
        for pid in (self.pid, *_children(self.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        (self.place / "sshd.pid").unlink()

    def stop(self) -> None:
        if (self.place / "sshd.pid").exists():
            self.leave()
        down = [str(SLURM / "slurm_down.sh"), "--dir", str(self.place / "slurm"), "--purge"]
        subprocess.run(down, check=True, timeout=60, stdout=subprocess.DEVNULL)

    def says(self, *argv: str) -> str:
        done = subprocess.run(
            argv, env=os.environ | {"SLURM_CONF": self.conf}, capture_output=True, text=True,
            check=True, timeout=60,
        )  # fmt: skip
        return done.stdout

    def mark(self, state: str) -> None:
        """Put all nodes into a state."""
        nodes = f"nodename={self.name}-n[0-3]"
        self.says("scontrol", "update", nodes, f"state={state}", "reason=fans")

    def jobs(self) -> list[str]:
        """Return name and state of all jobs that it remembers."""
        return self.says("squeue", "--noheader", "--states=all", "--format=%j %T").splitlines()

    def document(self, python: str, **more: Any) -> dict[str, Any]:
        """Return the site as a grid file has it."""
        ssh = {
            "host": "127.0.0.1",
            "port": self.port,
            "key_file": str(self.place / "user_key"),
            "known_hosts": str(self.place / "known_hosts"),
            "directory": str(self.scratch),
        }
        there = {"SLURM_CONF": self.conf, "PYTHONPATH": PATH, "OMP_NUM_THREADS": "1"}
        return {
            "kind": "slurm",
            "nodes": {f"{self.name}-n[0-3]": {"accelerators": "cpu:2"}},
            "slurm": {
                "network": "127.0.0.0/8",
                "partition": "low",
                "python": python,
                "time_limit": "10min",
                "environment": there,
                "ssh": ssh | more,
            },
        }

    def _inside(self, *argv: str) -> None:
        hide = f'mount -t tmpfs tmpfs "{self.desk}" && exec "$@"'
        words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", hide, "sh", *argv]
        subprocess.run(words, check=True, timeout=200, stdout=subprocess.DEVNULL)

    def _install(self) -> None:
        if shutil.which("sshd", path="/usr/sbin") is None:
            quiet = {"DEBIAN_FRONTEND": "noninteractive"}
            for words in (["update", "-qq"], ["install", "-y", "-qq", SERVER]):
                subprocess.run(
                    ["apt-get", *words], env=os.environ | quiet, check=True, timeout=200,
                    stdout=subprocess.DEVNULL,
                )  # fmt: skip
        Path("/run/sshd").mkdir(exist_ok=True)

    def _keys(self) -> None:
        for name in ("host_key", "user_key"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.place / name)]
            subprocess.run(words, check=True)
        shutil.copy(self.place / "user_key.pub", self.place / "authorized_keys")
        key = (self.place / "host_key.pub").read_text()
        (self.place / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {key}")
        config = CONFIG.format(port=self.port, place=self.place)
        (self.place / "sshd_config").write_text(config)


def _children(pid: int) -> list[int]:
    """Return all that descends from a process."""
    found = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    own = [int(one) for one in found.stdout.split()]
    return [*own, *(below for one in own for below in _children(one))]
