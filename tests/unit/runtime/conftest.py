"""Ranks as real processes of ``python -m gridloom.runtime.entry`` on this machine."""

import dataclasses
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from gridloom.base.codec import decode, encode
from gridloom.model.recipe import CheckpointPolicy, GptRecipe, GptShape, TextData, Training
from gridloom.runtime.records import Result, StepMetrics
from gridloom.wire.launch import AnyLine, Rank

TINY = GptShape(layers=2, hidden=16, heads=4, kv_heads=2, ffn=24)


@dataclasses.dataclass
class Run:
    """The processes of one attempt, and what they left behind."""

    directory: Path
    processes: list[subprocess.Popen[str]]
    errors: list[str] = dataclasses.field(default_factory=list)

    def wait(self, timeout_s: float = 120) -> list[int]:
        self.errors = [process.communicate(timeout=timeout_s)[1] for process in self.processes]
        return [process.returncode for process in self.processes]

    @property
    def metrics(self) -> list[StepMetrics]:
        lines = (self.directory / "metrics.jsonl").read_bytes().splitlines()
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


@pytest.fixture
def recipe(tmp_path: Path) -> GptRecipe:
    """A recipe that a rank trains in a second, on a text of its own."""
    text = tmp_path / "text"
    text.mkdir()
    for number in range(12):
        lines = [f"def f{number}_{i}(x):\n    return x + {i * number}\n" for i in range(40)]
        (text / f"file{number:02d}.py").write_text("\n".join(lines))
    return GptRecipe(
        shape=TINY,
        data=TextData(text=(str(text),), held_out=0.1),
        training=Training(steps=6, global_batch=8, sequence_length=32, warmup_steps=2),
        checkpoint=CheckpointPolicy(directory=str(tmp_path / "run" / "checkpoints")),
    )


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Return a function that starts all ranks of an attempt."""
    running: list[subprocess.Popen[str]] = []

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
        directory = tmp_path / run
        directory.mkdir(exist_ok=True)
        (directory / "recipe.json").write_bytes(encode(recipe))
        for rank in ranks(sites, attempt, directory, job):
            variables = [f"{name}={value}" for name, value in rank.environment().items()]
            limit = _no_large_files if rank.rank == small_files_rank else None
            running.append(
                subprocess.Popen(
                    ["env", *variables, sys.executable, "-m", "gridloom.runtime.entry"],
                    stderr=subprocess.PIPE,
                    text=True,
                    preexec_fn=limit,
                    cwd=started_in[rank.rank] if started_in else None,
                )
            )
        return Run(directory, running[-sum(sites) :])

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
            process.communicate()


def ranks(sites: Sequence[int], attempt: int, directory: Path, job: str = "job-1") -> list[Rank]:
    """Return the ranks of one attempt, one node a site, all of them this machine."""
    port = _free_port()
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
            master_address="127.0.0.1",
            master_port=port,
            restart_count=attempt - 1,
            run_dir=str(directory),
            report_file=str(directory / f"report-{number}.jsonl"),
            grace_s=30,
        )
        for number, (site, local) in enumerate(world)
    ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _no_large_files() -> None:
    """Let no file grow beyond a few bytes more than a report line: a disk that is full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
