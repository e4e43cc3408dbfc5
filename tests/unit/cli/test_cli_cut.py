"""A recipe's cut from the job file on: refused with its line, placed whole, told, or chosen."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Answer

from gridloom.base.system import SystemIds
from gridloom.cli import settings
from gridloom.cli.handin import expected_placement, show_plan
from gridloom.cli.prepare import Prepared, prepare
from gridloom.model.parallel import ParallelPlan, SiteSync

Call = Callable[..., Answer]

GRID = """sites:
  north: {nodes: {n1: {accelerators: cpu:3}, n2: {accelerators: cpu:3}}}
  south: {nodes: {s1: {accelerators: cpu:7}}}
  west: {nodes: {"w[1-2]": {accelerators: h100:8, memory: 640GB}}}
"""
JOB = """name: j
recipe: gpt
grid: grid.yaml
model: {layers: 2, hidden: 32, heads: 2, ffn: 64}
steps: 2
global_batch: 8
sequence_length: 16
"""
LARGE = JOB.replace("{layers: 2, hidden: 32, heads: 2, ffn: 64}",
                    "{layers: 32, hidden: 4096, heads: 32, kv_heads: 8, ffn: 14336}"
).replace("length: 16", "length: 4096") + "precision: bf16\n"  # fmt: skip


@pytest.fixture
def prepared(home: Path, tmp_path: Path) -> Callable[[str], Prepared]:
    def made(text: str) -> Prepared:
        (tmp_path / "grid.yaml").write_text(GRID)
        (tmp_path / "job.yaml").write_text(text)
        return prepare(tmp_path / "job.yaml", None, settings.read(), SystemIds())

    return made


def test_a_tensor_group_sits_on_one_node_and_sites_have_as_many_ranks(
    prepared: Callable[[str], Prepared],
) -> None:
    job = prepared(
        JOB + "resources: {accelerators: cpu:8, min_sites: 2}\nparallel: {tensor: 2, zero: 1}\n"
    )
    assert job.spec.recipe is not None
    assert job.spec.recipe.plan == ParallelPlan()  # that of the shape it is placed in counts
    placement = expected_placement(job)
    assert placement.option.plan == ParallelPlan(tensor=2, data=4, zero=1)
    # a third device of a node in the north is of no use, and the south gets no more than it
    assert [(t.site, t.node, len(t.devices)) for t in placement.tasks] == [
        ("north", "n1", 2), ("north", "n2", 2), ("south", "s1", 4)
    ]  # fmt: skip
    memory = placement.option.memory_bytes
    assert (
        0
        < memory
        < prepared(JOB + "resources: {accelerators: cpu:1}\n").spec.options[0].memory_bytes
    )


def test_the_cut_is_told_before_the_job_is_handed_in(
    prepared: Callable[[str], Prepared], capsys: pytest.CaptureFixture[str]
) -> None:
    cut = "{tensor: 2, sequence_parallel: true, stage_layers: [1, 1], pipeline: 2}\n"
    show_plan(prepared(JOB + f"resources: {{accelerators: cpu:4}}\nparallel: {cut}"))
    told = capsys.readouterr().out
    assert "tensor 2, pipeline 2, data 1, sequence_parallel, stage_layers 1 1" in told
    assert "0 B between sites" in told
    assert "within sites" not in told
    show_plan(prepared(JOB + "resources: {accelerators: cpu:2}\n"))
    told = capsys.readouterr().out
    assert "within sites" in told
    assert " cut " not in told


def test_a_cut_that_cannot_be_is_refused_with_its_line(call: Call, tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text(GRID)
    path = tmp_path / "job.yaml"
    path.write_text(JOB + "resources: {accelerators: cpu:6}\nparallel: {tensor: 3}\n")
    answer = call("run", str(path), "--json")
    assert answer.code == 2
    found = answer.json()["problems"]
    assert {(p["line"], p["field"]) for p in found} == {
        (7, "sequence_length"), (9, "parallel.tensor")
    }  # fmt: skip
    assert all(p["remedy"] for p in found)


def test_a_model_that_fits_on_no_device_is_cut_by_the_planner(
    prepared: Callable[[str], Prepared],
) -> None:
    job = prepared(LARGE + "resources: {accelerators: h100:16}\n")
    (option,) = job.spec.options
    assert option.plan.is_spread
    assert option.plan.site_sync == SiteSync()
    assert 0 < option.memory_bytes <= 80e9
    assert option.step_s > 0
    assert {task.site for task in expected_placement(job).tasks} == {"west"}
    whole = prepared(JOB + "resources: {accelerators: h100:8}\n").spec.options[0]
    assert whole.plan == ParallelPlan(data=8)
