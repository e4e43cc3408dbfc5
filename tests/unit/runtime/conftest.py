"""Ranks that are real processes of this machine, above all of gridloom's own training program."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.runtime.nursery import Said, Told
from tests.unit.runtime.wan.two_sites import free_ports

from gridloom.base.codec import decode, encode
from gridloom.model.recipe import CheckpointPolicy, GptRecipe, GptShape, TextData, Training
from gridloom.runtime.records import Result, StepMetrics
from gridloom.wire.launch import AnyLine, Rank

UNMEASURED = ["--unset=COVERAGE_PROCESS_CONFIG"]
"""What to tell ``env``: without the coverage of a test run, torch is loaded in half the time."""
ENTRY = "gridloom.runtime.entry"
TINY = GptShape(layers=2, hidden=16, heads=4, kv_heads=2, ffn=24)


class Nursery:
    """The process that all ranks come from, and what it has said of them."""

    def __init__(self) -> None:
        # Ranks are no business of the coverage of a test run, which makes them twice as slow
        variables = ["--unset=RANK", "OMP_NUM_THREADS=1", *UNMEASURED]
        self._process = subprocess.Popen(
            ["env", *variables, sys.executable, "-m", "tests.unit.runtime.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[3],
        )
        self._count = 0
        self._alive: dict[int, int] = {}
        self._codes: dict[int, int] = {}

    def begin(self, told: Told) -> int:
        """Start a process; return the number by which it is known."""
        assert self._process.stdin is not None
        self._count += 1
        told = msgspec.structs.replace(told, number=self._count)
        self._process.stdin.write(encode(told) + b"\n")
        self._process.stdin.flush()
        while self._count not in self._alive:
            self._listen()
        return self._count

    def run(
        self, program: str, words: Sequence[str], environment: Mapping[str, str], said: Path
    ) -> "Program":
        """Run a module as ``python -m`` does; what it prints goes to the file ``said``.

        It works in the directory of the file; its standard error goes to ``said`` with ``.err``.
        """
        errors = said.with_suffix(".err")
        told = Told(
            program, list(words), dict(environment), str(said.parent), str(said), str(errors)
        )
        return Program(self, self.begin(told), said, errors)

    def signal(self, number: int, signal_number: int) -> None:
        """Send a signal to a rank that has not been waited for."""
        os.kill(self._alive[number], signal_number)

    def wait(self, number: int) -> int:
        """Return a rank's exit code at its end."""
        while number not in self._codes:
            self._listen()
        return self._codes[number]

    def end_all(self) -> None:
        """Have done with all ranks that have not ended."""
        for number in sorted(self._alive.keys() - self._codes.keys()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._alive[number], signal.SIGKILL)
            self.wait(number)

    def close(self) -> None:
        self.end_all()
        self._process.communicate()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        said = decode(self._process.stdout.readline(), Said)
        self._alive[said.number] = said.process
        if said.code is not None:
            self._codes[said.number] = said.code


@dataclasses.dataclass
class Program:
    """A process that runs a program.

    Attributes:
        nursery: Where it comes from.
        number: By which it is known there.
        said: The file of its standard output.
        errors: That of its standard error.
    """

    nursery: Nursery
    number: int
    said: Path
    errors: Path

    def lines(self, code: int = 0) -> list[str]:
        """Wait for its end, which must be with the code; return what it has printed."""
        assert self.nursery.wait(self.number) == code, self.errors.read_text()[-3000:]
        return self.said.read_text().splitlines()

    def told(self, code: int = 0) -> list[Any]:
        """Wait for its end, which must be with the code; return the JSON values it has printed."""
        return [json.loads(line) for line in self.lines(code)]


@dataclasses.dataclass
class Run:
    """The ranks of one attempt, and what they left behind."""

    directory: Path
    nursery: Nursery
    numbers: list[int]

    def wait(self) -> list[int]:
        """Return the exit codes of all ranks at their end."""
        return [self.nursery.wait(number) for number in self.numbers]

    def wait_for(self, rank: int) -> int:
        """Return the exit code of one rank at its end."""
        return self.nursery.wait(self.numbers[rank])

    def signal(self, rank: int, number: int) -> None:
        self.nursery.signal(self.numbers[rank], number)

    @property
    def errors(self) -> list[str]:
        """What each rank wrote to its standard error."""
        files = [self.directory / f"error-{rank}.txt" for rank in range(len(self.numbers))]
        return [file.read_text() for file in files]

    @property
    def metrics(self) -> list[StepMetrics]:
        return self.metrics_in("metrics.jsonl")

    def metrics_in(self, name: str) -> list[StepMetrics]:
        lines = (self.directory / name).read_bytes().splitlines()
        return [decode(line, StepMetrics) for line in lines]

    @property
    def losses(self) -> list[float]:
        return [row.loss for row in self.metrics]

    @property
    def result(self) -> Result:
        return decode((self.directory / "result.json").read_bytes(), Result)

    def lines(self, rank: int = 0) -> list[AnyLine]:
        path = self.directory / f"report-{rank}.jsonl"
        if not path.exists():
            return []
        return [msgspec.json.decode(line, type=AnyLine) for line in path.read_bytes().splitlines()]


Launch = Callable[..., Run]


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


@pytest.fixture
def recipe(tmp_path: Path) -> GptRecipe:
    return recipe_in(tmp_path)


def recipe_in(directory: Path) -> GptRecipe:
    """Return a recipe that a rank trains in a second, on a text of its own."""
    text = directory / "text"
    text.mkdir()
    for number in range(12):
        lines = [f"def f{number}_{i}(x):\n    return x + {i * number}\n" for i in range(40)]
        (text / f"file{number:02d}.py").write_text("\n".join(lines))
    return GptRecipe(
        shape=TINY,
        data=TextData(text=(str(text),), held_out=0.1),
        training=Training(steps=6, global_batch=8, sequence_length=32, warmup_steps=2),
        checkpoint=CheckpointPolicy(directory=str(directory / "run" / "checkpoints")),
    )


@pytest.fixture
def launch(tmp_path: Path, nursery: Nursery) -> Iterator[Launch]:
    yield launcher(tmp_path, nursery)
    nursery.end_all()


def launcher(base: Path, nursery: Nursery) -> Launch:
    """Return a function that starts all ranks of an attempt."""

    def start(
        recipe: GptRecipe,
        sites: Sequence[int] = (1,),
        *,
        attempt: int = 1,
        run: str = "run",
        job: str = "job-1",
        small_files_rank: int = -1,
        started_in: Sequence[Path] = (),
    ) -> Run:
        directory = base / run
        directory.mkdir(exist_ok=True)
        (directory / "recipe.json").write_bytes(encode(recipe))
        numbers = []
        for rank in ranks(sites, attempt, directory, job):
            place = started_in[rank.rank] if started_in else base
            # a few bytes more than a report line
            limit = 4096 if rank.rank == small_files_rank else 0
            errors = str(directory / f"error-{rank.rank}.txt")
            told = Told(ENTRY, [], rank.environment(), str(place), errors, errors, limit)
            numbers.append(nursery.begin(told))
        return Run(directory, nursery, numbers)

    return start


def ranks(sites: Sequence[int], attempt: int, directory: Path, job: str = "job-1") -> list[Rank]:
    """Return the ranks of one attempt, one node a site, all of them this machine."""
    port = free_ports(2 * len(sites))[0]
    world = [(site, local) for site, count in enumerate(sites) for local in range(count)]
    return [
        Rank(
            job_id=job,
            attempt=attempt,
            epoch=attempt,
            rank=number,
            world_size=len(world),
            local_rank=local,
            local_world_size=sites[site],
            node_rank=site,
            node_count=len(sites),
            site=f"site{site}",
            site_ranks=tuple((f"site{i}", count) for i, count in enumerate(sites)),
            node_addresses=("127.0.0.1",) * len(sites),
            node_ranks=tuple(sites),
            master_address="127.0.0.1",
            master_port=port,
            restart_count=attempt - 1,
            run_dir=str(directory),
            report_file=str(directory / f"report-{number}.jsonl"),
            grace_s=30,
        )
        for number, (site, local) in enumerate(world)
    ]
