"""One model over two sites: the mathematics, and a script of somebody else."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.scenarios.conftest import JOB, Stage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True)
class Trained:
    """A run at two sites that has ended, and where it lies."""

    stage: Stage
    facts: dict[str, Any]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trained]:
    stage = Stage(tmp_path_factory.mktemp("two-sites"))
    try:
        yield Trained(stage, stage.run(JOB))
    finally:
        stage.clean_up()


def test_two_sites_train_as_one_process_does(trained: Trained) -> None:
    stage, first = trained.stage, trained.facts
    alone = stage.run(JOB | {"resources": {"accelerators": "cpu:1"}})

    assert first["state"] == alone["state"] == "succeeded"
    assert first["sites"].keys() == {"north", "south"}
    assert [site["ranks"] for site in first["sites"].values()] == [[0, 1], [2, 3]]
    losses = stage.losses(first["job"])
    assert sorted(losses) == list(range(1, 61))
    assert losses == pytest.approx(stage.losses(alone["job"]), abs=1e-4)
    assert losses[60] < losses[1] - 0.5
    for where in ("within_sites", "between_sites"):
        counted = first["bytes"][where]
        assert counted["measured"] == pytest.approx(counted["predicted"], rel=0.05)
    assert alone["bytes"]["between_sites"]["predicted"] == 0


def test_a_model_cut_at_each_site_trains_as_a_whole_one(stage: Stage) -> None:
    experts = {"count": 4, "per_token": 2, "ffn": 32, "shared_ffn": 16, "dense_layers": 1}
    job = JOB | {"model": JOB["model"] | {"experts": experts}, "steps": 12}
    cut = stage.run(job | {"parallel": {"tensor": 2, "sequence_parallel": True}})
    alone = stage.run(job | {"resources": {"accelerators": "cpu:1"}})

    assert cut["state"] == alone["state"] == "succeeded"
    assert [site["ranks"] for site in cut["sites"].values()] == [[0, 1], [2, 3]]
    losses = stage.losses(cut["job"])
    assert sorted(losses) == list(range(1, 13))
    assert losses == pytest.approx(stage.losses(alone["job"]), rel=1e-4)
    assert cut["bits_per_byte"] == pytest.approx(alone["bits_per_byte"], rel=1e-3)
    between = cut["bytes"]["between_sites"]
    assert between["measured"] == pytest.approx(between["predicted"], rel=0.1)
    held = [run["memory_bytes_per_rank"]["predicted"] for run in (cut, alone)]
    assert 0 < held[0] < held[1]


def test_run_directory_holds_everything(trained: Trained) -> None:
    run_dir = trained.stage.run_dir(trained.facts["job"])
    for name in ("job.yaml", "job.resolved.json", "grid.yaml", "grid.resolved.json"):
        assert (run_dir / name).stat().st_size
    environment = json.loads((run_dir / "environment.json").read_text())
    assert environment["packages"]["torch"]
    assert environment["devices"]["sites"]
    assert len(list((run_dir / "logs" / "attempt-1").glob("rank-*.log"))) == 4
    assert json.loads((run_dir / "summary.json").read_text())["steps"] == 60
    assert "<svg" in (run_dir / "report.html").read_text()
    assert [json.loads(line) for line in (run_dir / "journal.jsonl").read_text().splitlines()]
    assert [
        json.loads((run_dir / f"checkpoints/{site}/step-00000060/manifest.json").read_text())
        for site in ("north", "south")
    ]


def test_torchrun_script_runs_unmodified(stage: Stage) -> None:
    document = yaml.safe_load((EXAMPLES / "torchrun-script.yaml").read_text())
    document |= {"workdir": str(EXAMPLES), "grid": "grid.yaml"}
    facts = stage.run(document)
    assert facts["state"] == "succeeded"
    lines = {}
    for entry in stage.call("logs", facts["job"]):
        lines[entry["rank"]] = entry["line"]
    assert sorted(lines) == [0, 1, 2, 3]
    restarts = len(facts["attempts"]) - 1  # somebody else may have taken the port in between
    for rank, line in lines.items():
        assert f"rank {rank} of 4 (local {rank % 2}, restarts {restarts}): y = 3.0" in line
