"""Real runs through the command line: real processes, real torch, real text, a tiny model."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from gridloom.wire.agent import TASK_VARIABLE

LIMIT_S = 120.0
GRID = {"sites": {"north": {"accelerators": "cpu:2"}, "south": {"accelerators": "cpu:2"}}}
JOB: dict[str, Any] = {
    "name": "tiny",
    "recipe": "gpt",
    "model": {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn": 64},
    "data": {"text": "text", "held_out": 0.2},
    "steps": 60,
    "global_batch": 8,
    "sequence_length": 32,
    "grid": "grid.yaml",
    "resources": {"accelerators": "cpu:4", "min_sites": 2},
    "checkpoint": {"interval": 20},
}


class Stage:
    """A directory with a grid, some text and a state directory, and the command line over them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.home = directory / "home"
        self.environment = {
            **{k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"},
            "GRIDLOOM_HOME": str(self.home),
            "OMP_NUM_THREADS": "1",
            "COVERAGE_PROCESS_CONFIG": "",  # with coverage, torch takes twice as long to load
        }
        (directory / "text").mkdir(parents=True)
        for number in range(12):
            words = [f"word{(number * 7 + i * i) % 31} = {i % 5}\n" for i in range(300)]
            (directory / "text" / f"{number}.txt").write_text("".join(words))
        self.write("grid.yaml", GRID)

    def write(self, name: str, document: Mapping[str, Any]) -> Path:
        path = self.directory / name
        path.write_text(yaml.safe_dump(dict(document), sort_keys=False))
        return path

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start ``gridloom``; with ``--json`` its standard output is JSON lines."""
        return subprocess.Popen(
            [sys.executable, "-m", "gridloom.cli.main", *words],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def call(self, *words: str, code: int = 0) -> list[dict[str, Any]]:
        """Run ``gridloom`` with ``--json`` to its end; return its lines."""
        process = self.start(*words, "--json")
        out, err = process.communicate(timeout=LIMIT_S)
        assert process.returncode == code, (process.returncode, out[-2000:], err[-2000:])
        return [json.loads(line) for line in out.splitlines()]

    def run(self, document: Mapping[str, Any], code: int = 0) -> dict[str, Any]:
        """Run a job to its end; return its summary."""
        path = self.write("job.yaml", document)
        return self.call("run", "-y", str(path), code=code)[-1]

    def run_dir(self, job: str) -> Path:
        return self.home / "runs" / job

    def losses(self, job: str) -> dict[int, float]:
        """Loss by training step; of a repeated step the last."""
        lines = (self.run_dir(job) / "metrics.jsonl").read_text().splitlines()
        return {m["step"]: m["loss"] for m in map(json.loads, lines)}

    def processes(self) -> list[psutil.Process]:
        """Every process of this stage: training processes, supervisors, control planes."""
        found = []
        for process in psutil.process_iter():
            try:
                mine = process.environ().get("GRIDLOOM_HOME") == str(self.home)
                if mine and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def ranks(self) -> dict[int, psutil.Process]:
        """The training processes by rank."""
        found = {}
        for process in self.processes():
            try:
                environment = process.environ()
            except psutil.Error:
                continue
            if TASK_VARIABLE in environment:
                found[int(environment["RANK"])] = process
        return found

    def clean_up(self) -> None:
        """Leave no process behind."""
        for process in self.processes():
            process.send_signal(signal.SIGKILL)


def wait_for(what: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
    """Return what ``what`` returns once that is true."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        found = what()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("waited in vain")


def read_until(process: subprocess.Popen[str], want: Callable[[dict[str, Any]], bool]) -> Any:
    """Read JSON lines of a running command until one is wanted; return it."""
    assert process.stdout is not None
    for line in process.stdout:
        event = json.loads(line)
        if want(event):
            return event
    raise AssertionError("the command ended first")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path / "stage")
    yield made
    made.clean_up()
